# %% [markdown]
# # Choosing q
#
# **You will learn** how to choose a setting, such as the q of q-FedAvg, without fooling yourself:
# validation rows, several seeds, paired differences and `evenly.tune`. You will also see what
# happens if you choose on test rows.
#
# **You need** evenly, and the [first comparison](first_comparison.md). Nothing is downloaded.
#
# **It takes** twenty minutes to read and less than a minute to run.
#
# ## The question
#
# q-FedAvg weighs a client by its loss to the power q. With q = 0 it is FedAvg with equal weights;
# with a larger q, clients that are served badly count more. (The method does not use the sizes of
# clients. They count if the sampling draws clients by size; here all clients take part in every
# round, so they do not.) No theory says which q is right for your data, so it has
# to be chosen from results. Ten clinics predict who returns within a month. In clinics 1 and 2 an
# emergency admission means the opposite of what it means in the others. We have 4,000 patients of
# this year. Next year's patients will tell whether the choice was good.

# %%
import altair as alt
import numpy as np
import pandas as pd

import evenly
from evenly.metrics import spread


def patients(rows, seed, alike=False):
    draw = np.random.default_rng(seed)
    table = pd.DataFrame({"clinic": draw.integers(1, 11, rows)})
    table["age"] = draw.normal(60, 12, rows).round()
    table["emergency"] = draw.random(rows) < 0.4
    sign = np.where((table["clinic"] <= 2) & (not alike), -1, 1)
    risk = (table["age"] - 60) / 12 + 2 * sign * (table["emergency"] - 0.4)
    table["returned"] = np.where(risk + draw.logistic(size=rows) > 0, "yes", "no")
    return table


this_year, next_year = patients(4_000, seed=1), patients(10_000, seed=2)
columns = {"client": "clinic", "label": "returned", "name": "patients"}
training = {"sampling": "full", "rounds": 200, "progress": False}

# %% [markdown]
# ## Look at validation rows, and at several seeds
#
# Each clinic's rows are split: 80 % train, 10 % validate, 10 % test. Validation rows are there for
# choices, test rows for what you report afterwards. Every seed draws another split and other
# mini-batches.

# %%
methods = "q-fedavg(q=[0, 0.5, 1, 2, 5, 10])"
results = evenly.compare(this_year, methods, **columns, **training, evaluate_every=200, seeds=10)
results.table(["average", "worst10"], split="valid").round(1)

# %% [markdown]
# The worst-served tenth gains with larger q. But the intervals of `worst10` are around ten points
# wide, and most of them overlap. Does that mean that nothing can be said? No. Most of this spread
# has nothing to do with q: some seeds draw harder validation rows than others, for all q alike.
#
# ## Compare seed by seed
#
# All methods of a comparison see the same splits and batches, so the fair question is by how much a
# method is better *in the same seed*. `differences` subtracts the baseline's value from each
# method's, seed by seed. `low` and `high` are the 95 % interval of the mean difference.

# %%
results.differences("worst10", "q-fedavg(q=0)", split="valid").round(3)

# %% [markdown]
# This interval is the one that answers the question. It is narrower than the method's own, except
# for q = 10, where both are about as wide. For the larger q the gain is far above zero. `p_holm` is
# corrected for the five comparisons of this table, and `effect` is the mean difference in standard
# deviations. The marks in evenly's tables and reports ("not clearly worse") use paired
# differences, too.
#
# What these intervals leave out: all seeds split the same 4,000 patients. They say how much depends
# on the split and on training, and not how other patients would fare.
#
# ## Let a rule choose
#
# The largest gain is not the only thing that matters: the average falls with q. A rule that is
# written down before you look keeps you from bending it. The rule of the q-FFL paper is: the least
# variance among the values whose average stays within one point of q = 0. We put the worst tenth in
# place of the variance. `evenly.tune` applies the rule on validation rows. Test rows are read once,
# at the end, for the chosen q and the baseline.

# %%
found = evenly.tune(
    this_year, "q-fedavg(q=[0.5, 1, 2, 5, 10])", objectives="worst10", keep="average", within=1.0,
    **columns, **training, seeds=10,
)  # fmt: skip
found.table()[["method", "worst10", "average", "allowed", "chosen"]].round(1)

# %% [markdown]
# q = 10 had the best `worst10`, but its average fell by more than a point, so it was not allowed.
#
# ## What the test rows say
#
# `found` repeats the choice in words, and shows the test rows of the choice and of the baseline.

# %%
found

# %% [markdown]
# The figure to report is the paired difference on test rows:

# %%
found.results.differences(["worst10", "average"]).round(3)

# %% [markdown]
# The gain on test rows is a little smaller than on validation rows, and the average falls by about
# a point instead of half a point. This is typical: the winner was chosen *because* its validation
# figures were good, and part of that was luck.
#
# One caution. Each seed has its own split, so a patient may be a validation row in one seed and a
# test row in another. The test rows are therefore not entirely untouched. Patients who were never
# in the table are. The clinics of next year:


# %%
def served(method, seed):
    correct = found.results.model(method, seed=seed).predict(next_year) == next_year["returned"]
    return 100 * correct.mean(), 100 * correct.groupby(next_year["clinic"]).mean().min()


rows = {method: np.array([served(method, seed) for seed in range(10)]) for method in found.results}
pd.DataFrame(
    {method: own.mean(axis=0) for method, own in rows.items()}, index=["average", "worst clinic"]
).T.rename_axis("method").round(1)

# %% [markdown]
# The choice holds: the worst clinic gains several points, and the average pays a little over one.
# Whether this is a good trade is not a statistical question. The rule only says what you decided
# before you looked.
#
# ## What goes wrong on test rows
#
# Now suppose that q makes no difference: all ten clinics are alike, and there are only 60 patients
# per clinic. We try seven values of q besides 0 in a hundred seeds. In each seed we take the q with
# the least variance between clinics on *test* rows, and note the improvement over q = 0 that we
# would report. If q = 0 itself has the least, the improvement is 0.
# Validation rows played no part in this choice, so they show what it is worth.


# %%
def by_seed(results, split, metric):
    history = results.history(split)
    last = history[history["round"] == history["round"].max()]
    return last.pivot(index="seed", columns="method", values=metric)[results.methods]


small = evenly.compare(
    patients(600, seed=5, alike=True), "q-fedavg(q=[0, 0.1, 0.5, 1, 2, 5, 10, 20])", **columns,
    sampling="full", rounds=60, evaluate_every=60, seeds=100, progress=False,
)  # fmt: skip
test, valid = (by_seed(small, split, "variance") for split in ("test", "valid"))
base = small.methods[0]


def change(table, chosen):
    return np.array([table.loc[seed, q] - table.loc[seed, base] for seed, q in chosen.items()])


chosen = test.idxmin(axis=1)
reported, true = spread(change(test, chosen)), spread(change(valid, chosen))
print(f"variance of q = 0 on test rows    {test[base].mean():6.0f}")
print(f"reported change, on test rows     {reported.mean:6.1f} ± {reported.half_width:.1f}")
print(f"change on rows that did not choose {true.mean:5.1f} ± {true.half_width:.1f}")

# %% [markdown]
# On average we would report a clear improvement, with an interval that excludes zero, from a
# setting that does nothing. On the other rows there is none. The intervals do not protect us: they
# are about the chosen figures, and the choice was made by looking at them.
#
# The more values we try, the more we would report:

# %%
tries = []
for number in range(1, len(small.methods) + 1):
    chosen = test[small.methods[:number]].idxmin(axis=1)
    for rows, table in {"test rows, which chose": test, "other rows": valid}.items():
        tries.append({"values": number, "change": change(table, chosen).mean(), "rows": rows})
legend = alt.Legend(orient="top", title="Measured on")
alt.Chart(pd.DataFrame(tries), title="Change that choosing q seems to bring").encode(
    x=alt.X("values:O", title="Number of values of q that were tried", axis=alt.Axis(labelAngle=0)),
    y=alt.Y("change:Q", title="Mean change of the variance"),
    color=alt.Color("rows:N", legend=legend, scale=alt.Scale(range=["#0072b2", "#d55e00"])),
    shape=alt.Shape("rows:N", legend=None),
).mark_line(point=True).properties(width=560, height=220)

# %% [markdown]
# Below zero is less variance, which looks fairer. Three habits avoid the mistake:
#
# 1. Choose on validation rows, with a rule that you wrote down before. `results.best()` and
#    `evenly.tune` do.
# 2. Report the test figures of the choice and of the baseline only, and their paired difference.
# 3. Use more than one seed, and more rows. With 60 patients per clinic a variance between clinics
#    is mostly chance. The metric `variance_noise`, in tables *variance from sampling*, says how
#    much of it.
#
# ## Next
#
# - [Tuning](../tuning.md): ranges, several objectives, long searches that resume.
# - [Group fairness](group_fairness.md): the same care with differences between groups.
# - [q-FedAvg](../algorithms/q-fedavg.md): the method, its settings and its paper.

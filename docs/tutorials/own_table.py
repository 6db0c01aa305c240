# %% [markdown]
# # Your own table
#
# **You will learn** how a table becomes a federation: which columns evenly refuses and why, what
# happens to missing values and rare categories, how to bring your own split, and how to find out
# whom a model serves worst.
#
# **You need** evenly. Nothing is downloaded.
#
# **It takes** fifteen minutes to read and less than half a minute to run.
#
# ## A table as it comes
#
# Eight hospitals export their stays of one year into a CSV file. It has what such files have: an
# identifier, dates, missing values, and a ward that hardly occurs. We make it up, and we put one
# difficulty in: *Lakeside* does not measure creatinine, the value that tells most about the risk.

# %%
import textwrap

import numpy as np
import pandas as pd

import evenly

draw, rows = np.random.default_rng(0), 8_000
day = pd.Timestamp("2024-01-01") + pd.to_timedelta(draw.integers(0, 366, rows), "D")
places = ["Airport", "Bridge", "Central", "Harbour", "Lakeside", "North", "Old Town", "South"]
kidney = draw.normal(0, 1, rows)
stays = pd.DataFrame(
    {
        "patient_id": [f"P{i:06d}" for i in draw.permutation(rows)],
        "admitted": day.strftime("%Y-%m-%d"),
        "hospital": draw.choice(places, rows),
        "sex": draw.choice(["female", "male"], rows),
        "insurance": draw.choice(["private", "public"], rows, p=[0.3, 0.7]),
        "ward": draw.choice(["burns", "general", "heart"], rows, p=[0.001, 0.599, 0.4]),
        "age": draw.normal(60, 12, rows).round(),
        "creatinine": (1.0 + 0.3 * kidney).round(2),
    }
)
risk = 3 * kidney + (stays["age"] - 60) / 12 + 0.8 * (stays["ward"] == "heart")
stays["returned"] = np.where(risk + draw.logistic(size=rows) > 0.3, "yes", "no")
missing = np.where(stays["hospital"] == "Lakeside", 0.95, 0.05)
stays.loc[draw.random(rows) < missing, "creatinine"] = np.nan
stays.head(4)

# %% [markdown]
# ## What evenly refuses
#
# `Federation.from_frame` turns a table into a federation. You name the column of the client, the
# label, and the sensitive columns; with two of them, groups are their intersections. All other
# columns become features, unless they cannot teach a model anything.

# %%
columns = {"client": "hospital", "label": "returned", "sensitive": ["sex", "insurance"]}


def attempt(table, **settings):
    try:
        evenly.Federation.from_frame(table, **settings)
    except ValueError as error:
        print(textwrap.fill(str(error), 96), "\n")


attempt(stays, **columns)

# %% [markdown]
# An identifier has a new value in every row, so that a model could only memorise it. A date as text
# would become one category per day. Both would also tell the model who a patient is. The message
# names all such columns at once, with the argument that leaves them out. If you want the season, or
# the number of days since a start, make a number of the date first and drop the date.
#
# Three more mistakes are found before anything is trained:

# %%
drop = ["patient_id", "admitted"]
attempt(stays, **columns | {"label": "creatinine"}, drop=drop)
attempt(stays, **columns | {"sensitive": "age"}, drop=drop)
attempt(stays.assign(sex=stays["sex"].where(stays.index != 5)), **columns, drop=drop)

# %% [markdown]
# - A label must be a class. evenly compares accuracies, and a quantity has none.
# - A sensitive column must make groups that are large enough to measure. Cut an age into bands.
# - Client, label and sensitive columns must be filled. A guess would put people into a group that
#   they may not belong to. Make a value such as "not stated" of missing ones if that is a group you
#   want to see.
#
# ## What became of the columns
#
# People prefer not to return, so the favourable label is `no`. Which group is compared with all
# others should be your decision, too, before you see results. Without a name evenly takes the value
# with the lowest share of favourable labels.

# %%
sides = {"favourable": "no", "unprivileged": {"insurance": "public"}}
federation = evenly.Federation.from_frame(stays, **columns, **sides, drop=drop, name="stays")
print(textwrap.fill(repr(federation), 96))
print(federation.encoder.features)

# %% [markdown]
# - Numbers are standardised. A missing number becomes the mean, and `creatinine is missing` tells
#   the model that it did. Whether a value is missing often says something by itself.
# - `ward` became one 0/1 feature per category. All of this is learned from training rows only. The
#   burns ward has so few patients that another split may have none in its training rows. The rows
#   of an unknown category then have zeros.
# - The sensitive columns are not features. To use them as features, list them in `features=`.
#
# How few patients the rare ward has is worth a look, because everything that a model says about
# them rests on these rows:

# %%
stays["ward"].value_counts()

# %% [markdown]
# ## A split of your own
#
# By default each hospital's rows are split at random: 80 % for training, 10 % for validation, 10 %
# for testing. A model that is used next year should be tested on patients who came later. We use
# the dates for this, although they are no feature: training until August, testing from November.

# %%
parts = [day < "2024-09-01", day < "2024-11-01"]
stays["part"] = np.select(parts, ["train", "valid"], "test")
stays.to_csv("stays.csv", index=False)
pd.crosstab(stays["hospital"], stays["part"])

# %% [markdown]
# `evenly.compare` takes the table or the path of its file, and names columns with the same
# arguments as `from_frame`. One seed is enough: with a split of your own, seeds differ in
# mini-batches only, and an interval over them would not say how much depends on which patients are
# tested.

# %%
results = evenly.compare(
    "stays.csv", ["fedavg", "q-fedavg(q=5)"], **columns, **sides, drop=drop, split="part",
    sampling="full", rounds=200, evaluate_every=20, seeds=1, progress=False,
)  # fmt: skip
results

# %% [markdown]
# ## Whom the model serves worst
#
# The sentences below the table answer this for FedAvg. `clients` has every hospital, with a 95 %
# interval for its number of test rows:

# %%
clients = results.clients()
worst = clients[clients["method"] == "fedavg"].sort_values("accuracy").head(3)
worst[["client", "accuracy", "low", "high", "examples", "weight_share"]].round(2)

# %%
results.plot("clients")

# %% [markdown]
# Lakeside is far below all others, and its interval does not touch theirs. q-FedAvg gives it more
# weight, as it should, but hardly helps:

# %%
lakeside = clients[clients["client"] == "Lakeside"]
lakeside[["method", "accuracy", "weight_share"]].round(2)

# %% [markdown]
# A method can decide who counts how much. It cannot replace a measurement that was not taken. The
# share of missing values by hospital shows the cause, and the remedy is in the laboratory:

# %%
share = 100 * stays["creatinine"].isna().groupby(stays["hospital"]).mean()
share.rename("creatinine is missing (%)").round(0)

# %% [markdown]
# ## Groups of people
#
# With two sensitive columns there are rows for their intersections and for each column alone. With
# one seed, `low` and `high` are 95 % intervals for the number of test rows.

# %%
groups = results["fedavg"].groups()
groups[["group", "unprivileged", "examples", "accuracy", "accuracy_low", "accuracy_high"]].round(1)

# %% [markdown]
# The accuracies differ by a point or two. Of the worst group and of the worst intersection the
# sentences above say that chance alone could explain the difference. That is no proof of fairness:
# with a few hundred test rows per group, differences of a few points cannot be seen.
#
# The same comparison on the command line also prints what became of each column:
#
# ```sh
# evenly compare --data stays.csv --client hospital --label returned --sensitive sex,insurance \
#   --favourable no --unprivileged insurance=public --drop patient_id,admitted --split part \
#   --algorithms "fedavg,q-fedavg(q=5)" --sampling full --rounds 200 --seeds 1
# ```
#
# ## Next
#
# - [Group fairness](group_fairness.md): what to do when groups are treated differently.
# - [Auditing](auditing.md): the same questions about the predictions of a model you already have.
# - [Your data](../data.md): every rule for columns, labels and splits.

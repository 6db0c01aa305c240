# %% [markdown]
# # Auditing predictions
#
# **You will learn** how to audit the predictions of any model, federated or not: which clients and
# groups it serves worst, whether that is more than chance, what is hidden about small groups, and
# what an audit cannot say.
#
# **You need** evenly, and a table of predictions. Here it is made up; nothing is downloaded.
#
# **It takes** fifteen minutes to read and a few seconds to run.
#
# ## A model that somebody else made
#
# Twelve clinics bought a model that decides who is offered visits by a nurse. Nobody can look into
# it. It returns a risk from 0 to 1, and patients above 0.5 are offered visits. Later, nurses
# recorded who did need visits. We know how the table was made: the model predicts *spending*, and
# less is spent on women with the same need. In clinic 7 its inputs are mostly noise.

# %%
import textwrap

import numpy as np
import pandas as pd

import evenly

draw, rows = np.random.default_rng(0), 6_000
clinics = [f"clinic {k}" for k in range(1, 13)]
visits = pd.DataFrame({"clinic": draw.choice(clinics, rows, p=[0.002, *[0.998 / 11] * 11])})
visits["sex"] = draw.choice(["female", "male"], rows)
visits["language"] = draw.choice(["Dutch", "French", "Frisian"], rows, p=[0.7, 0.2985, 0.0015])
need = draw.normal(0, 1.5, rows)
visits["needed"] = np.where(need + draw.logistic(size=rows) > 0, "yes", "no")
noise = np.where(visits["clinic"] == "clinic 7", 4.0, 0.8) * draw.normal(size=rows)
spending = need - 0.7 * (visits["sex"] == "female") + noise
visits["risk"] = (1 / (1 + np.exp(-spending))).round(4)
visits["offered"] = np.where(visits["risk"] > 0.5, "yes", "no")
visits["costly"] = np.where(spending + draw.logistic(size=rows) > 0, "yes", "no")
visits.head(3)

# %% [markdown]
# ## The audit
#
# `evenly.audit` needs one row per person: what was true (`label`), what the model decided
# (`prediction`), and what tells people apart. Nothing is trained. A visit helps, so `favourable` is
# "yes". The `unprivileged` values are those you suspect to be treated worse. Name them before you
# look: a search for the largest gap always finds one.

# %%
roles = {"client": "clinic", "prediction": "offered", "score": "risk", "favourable": "yes"}
sides = {"sex": "female", "language": "French"}
columns = ["sex", "language"]
result = evenly.audit(visits, label="needed", sensitive=columns, unprivileged=sides, **roles)
for sentence in result.sentences:
    print(textwrap.fill(sentence, 92, initial_indent="- ", subsequent_indent="  "))

# %% [markdown]
# The report begins with these sentences. In short: women are offered visits far less often than
# men, also among those who needed them. Their scores are too low by about eleven points. Most
# clinics show the same difference by themselves, so the reason is not that women go to other
# clinics than men.
#
# ## Worst served, or only small?
#
# The audit names clinic 1 as the worst served, and adds that chance could explain it. Both are
# right. `table` has every figure with a 95 % interval:

# %%
figures = result.table
clinics = figures[(figures["level"] == "client") & (figures["metric"] == "accuracy")]
clinics.sort_values("value")[["name", "value", "low", "high", "rows"]].head(4).round(1)

# %% [markdown]
# Clinic 1 has so few patients that its interval reaches far above the average of about 68 %. Clinic
# 7 has several hundred, its interval ends below the average, and that is the finding to act on.
# Sort by the upper end of the interval to find the clients whose whole interval lies below the
# average.
#
# ## Small cells
#
# The table of groups has no row for French, although some 1,800 patients speak it.

# %%
result.group_table[["rows", "accuracy", "selection_rate", "tpr", "fpr"]].round(1)

# %%
for sentence in result.warnings:
    print(textwrap.fill(sentence, 92, initial_indent="- ", subsequent_indent="  "))

# %% [markdown]
# Fewer than ten patients speak Frisian. A figure about so few people can reveal what happened to
# one of them, so figures that rest on fewer than `min_cell` people (10 by default) are hidden. That
# is not enough: anyone who knows the figures of everybody, of Dutch and of French can subtract. So
# a second group is hidden as well. A handful of people cost us the comparison of 1,800.
#
# The remedy is to choose groups that are large enough *before* auditing, here by merging. Do not
# lower `min_cell` for a report that others will read.

# %%
merged = visits.assign(language=np.where(visits["language"] == "Dutch", "Dutch", "other"))
result = evenly.audit(
    merged, label="needed", sensitive=columns, name="visits", **roles,
    unprivileged={"sex": "female", "language": "other"},
)  # fmt: skip
gaps = result.table
gaps = gaps[(gaps["level"] == "column") & gaps["metric"].isin(["spd", "eod"])]
gaps[["name", "metric", "value", "low", "high"]].round(3)

# %% [markdown]
# `spd` is the difference in the share of people who are offered a visit, `eod` the same among those
# who needed one. By sex both are far from zero. By language the intervals include zero: the audit
# found no difference, and differences of more than a few points are unlikely.
#
# ## What an audit can and cannot say
#
# An audit takes the label for the truth. The vendor of this model measured it against *spending*,
# which it was trained to predict. The column `bias` is the mean risk minus the share of people who
# have the label; at 0, scores are neither too high nor too low.

# %%
labels = {"needed": "against need", "costly": "against spending"}
audits = {
    title: evenly.audit(merged, label=label, sensitive="sex", unprivileged="female", **roles)
    for label, title in labels.items()
}
pd.DataFrame({title: one.group_table["bias"] for title, one in audits.items()}).round(3)

# %% [markdown]
# Measured against spending, the scores are nearly right for women and men. Measured against need,
# they are far too low for women. The predictions are the same. Obermeyer et al. (Science, 2019)
# found this for Black and White patients in a model that was in wide use in the United States. No
# metric notices a label that stands for the wrong thing. Ask what was recorded, by whom, and why.
#
# An audit also does not say:
#
# - why there is a difference;
# - anything about people who are not in the table, such as those who never came to a clinic;
# - that a model is fair: intervals that include zero also include small differences, and groups
#   that you did not name were not compared;
# - what to do. A difference in selection rates can be closed by offering visits to fewer men.
#
# ## Files, and the command line
#
# `write` makes a report and two files of figures. They hold counts and rates, and no rows.

# %%
visits.to_csv("visits.csv", index=False)
sorted(path.name for path in result.write("audit").iterdir())

# %% [markdown]
# The same from a file:
#
# ```sh
# evenly audit visits.csv --client clinic --label needed --prediction offered --score risk \
#   --sensitive sex,language --favourable yes --unprivileged sex=female \
#   --unprivileged language=French
# ```
#
# `--anonymous` (in Python `anonymous=True`) replaces the names of clients by numbers.
#
# ## Next
#
# - [Audit](../audit.md): what is measured, how intervals are made, and what is hidden.
# - [Group fairness](group_fairness.md): methods that change what an audit finds.
# - [Your own table](own_table.md): train on a table like this one.

# %% [markdown]
# # Group fairness
#
# **You will learn** how to measure whether a federated model treats groups of people differently,
# what equal opportunity (EOD) and statistical parity (SPD) say, what FairFed and local reweighing
# do about it, and what this costs.
#
# **You need** evenly and the census data. `evenly data fetch acs-income` downloads them once and
# checks them; set the environment variable `EVENLY_DATA` if they are to go to a folder of your own.
# Without a network, `evenly data describe acs-income` names the files and their addresses.
#
# **It takes** fifteen minutes to read and less than a minute to run.
#
# ## The data
#
# ACSIncome (Ding et al., NeurIPS 2021) has people of the US census sample of 2018. The label is
# whether a person earns more than 50,000 dollars, which we take as the favourable one: think of a
# loan that is granted for it. Each of 35 states is a client. The groups are women and men. We take
# 2,000 people of each state, so that it runs in seconds, and hold 20 % of them out for validation
# and 20 % for testing.

# %%
import pandas as pd

import evenly

census = "acs-income(rows_per_state=2000, train=0.6, valid=0.2)"
methods = ["fedavg", "fairfed(beta=1)", "fedavg+reweigh"]
results = evenly.compare(
    census, methods, sampling="full", rounds=30, evaluate_every=10, seeds=5, progress=False
)
results.federation

# %% [markdown]
# ## What FedAvg does
#
# `groups` has the rates of each group, in percent. Look at FedAvg first.

# %%
groups = results.groups()
rates = ["method", "group", "examples", "accuracy", "selection_rate", "tpr", "fpr"]
groups.loc[groups["method"] == "fedavg", rates].round(1)

# %% [markdown]
# Accuracy says that women are served *better*. It misleads: fewer women in the data earn above
# 50,000 dollars, so that "no" is right more often for them. The other columns tell more:
#
# - `selection_rate` is the share of people for whom the model says "yes".
# - `tpr`, the true positive rate, is that share among those who do earn above 50,000 dollars, who
#   qualify for the loan. Of the women who qualify, the model finds about half.
# - `fpr`, the false positive rate, is the share among those who do not.
#
# Two differences are standard. Both subtract the rate of men, the privileged group, from that of
# women, and are fractions:
#
# - **SPD**, statistical parity difference: of selection rates. It asks whether women get a "yes" as
#   often as men, whatever they earn.
# - **EOD**, equal opportunity difference: of true positive rates. It asks whether women *who
#   qualify* get it as often as men who qualify.

# %%
fedavg = groups[groups["method"] == "fedavg"].set_index("group")
women, men = fedavg.loc["Female"], fedavg.loc["Male"]
print(f"SPD {(women['selection_rate'] - men['selection_rate']) / 100:.2f}")
print(f"EOD {(women['tpr'] - men['tpr']) / 100:.2f}")

# %% [markdown]
# Both are negative: women are at a disadvantage. A model that is right about everybody cannot have
# both at zero here, because fewer women than men earn above 50,000 dollars: its EOD is zero and its
# SPD is negative. Which of them matters depends on the purpose of the model. EOD takes the labels
# as the truth. If the labels themselves are unjust, SPD says more.
#
# ## Two remedies
#
# **Local reweighing** (`+reweigh`) acts on the rows. Before training, every state gives weights to
# its rows so that group and label are independent among them: women with a high income count more,
# men with a high income less. States reveal nothing more than with FedAvg.
#
# **FairFed** (Ezzeldin et al., AAAI 2023) acts on the clients. A state whose own EOD is close to
# the EOD of all states together counts more. States reveal counts by group, label and prediction.

# %%
results

# %% [markdown]
# - Reweighing brings |EOD| close to zero, and |SPD| down to less than half. This is far more than
#   the seeds differ.
# - FairFed changes little. It favours states whose gap is like everyone's, and such a state need
#   not have a small gap. Where women are at a disadvantage in all states or nearly all, no choice
#   of weights finds a state to follow. The counts of a trace show how it is here:

# %%
trace = results.traces("fedavg")[0]
table = trace.tables[-1, 2, :, :, 1]  # test rows that qualify: [states, groups, predictions]
tpr = table[:, :, 1] / table.sum(-1)
own = pd.Series(tpr[:, 0] - tpr[:, 1], index=results.federation.names, name="EOD of a state")
print(f"states with a negative EOD: {(own < 0).sum()} of {len(own)}")

# %% [markdown]
# ## Look at the sign, and at each group
#
# |EOD| hides who is ahead. The signed values, and the rates of both groups, do not.

# %%
results.table(["eod", "spd"]).round(3)

# %%
results.plot("groups", metric="tpr")

# %% [markdown]
# Reweighing does not only lift women. Men who qualify are found less often than before. The gap
# closes from both sides, which |EOD| alone would not have told. Whether this is acceptable is again
# a question about the purpose.
#
# ## What it costs
#
# All methods saw the same states, rows and batches, so the costs are differences from FedAvg, seed
# by seed. `low` and `high` are their 95 % intervals.

# %%
costs = results.differences(["average", "worst10", "worst_tpr", "eod_abs", "spd_abs"])
costs[["metric", "difference", "low", "high"]].round(3)

# %% [markdown]
# Rates are in points: reweighing costs somewhat less than a point of the average, and about as much
# in the worst-served tenth of the states (`worst10`). What helps the groups does not help the
# clients. `worst_tpr`, the true positive rate of the group with the lower one, rises by far more
# than any accuracy falls. FairFed moves the same figures in the same direction, by much less. The
# front shows accuracy and |EOD| at once.

# %%
results.plot("front", metric="eod_abs")

# %% [markdown]
# ## The question before any method
#
# In this data set sex is a feature, as the publications on it have it. (In a table of your own,
# sensitive columns are features only if you list them.) What if the model does not see it?

# %%
unaware = evenly.compare(
    census.replace(")", ", drop_sensitive=true)"), "fedavg",
    sampling="full", rounds=30, evaluate_every=10, seeds=5, progress=False,
)  # fmt: skip
unaware.table(["average", "eod", "spd"]).round(3)

# %% [markdown]
# Most of the EOD is gone, and about half of the SPD, for about half a point of accuracy. Ask this
# question first. It is no general remedy: other features can stand for the one that was removed,
# and then the gap stays.
#
# What all of this does not say:
#
# - Nothing about other data. Reweighing overshoots on some data sets, and helps little where states
#   have few people of a group. [Choose a method](../choose.md) lists what we measured.
# - Nothing about FairFed with another β. We did not tune it. If you do, use validation rows, as in
#   [choosing q](choosing_q.md).
# - Nothing about individual states. With 400 test rows per state, of which some 60 are women who
#   qualify, the EOD of one state is mostly chance.
# - Nothing about lending. An income above a threshold in a survey is not creditworthiness.
#
# ## Next
#
# - [Auditing](auditing.md): the same measures for the predictions of any model.
# - [Metrics](../metrics.md): definitions of EOD, SPD and the others.
# - [FairFed](../algorithms/fairfed.md) and its settings.

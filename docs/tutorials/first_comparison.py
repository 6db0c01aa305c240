# %% [markdown]
# # A first comparison
#
# **You will learn** how to compare fair methods on a table, how to add a method and a metric of
# your own, and how to read, save and reload the results.
#
# **You need** evenly, which installs pandas. Nothing is downloaded.
#
# **It takes** fifteen minutes to read and less than half a minute to run.
#
# Five hospitals want one model that predicts which patients return within a month. Each hospital
# is a *client*: it keeps its rows, and only model updates leave it. We use made-up patients, so
# that we know what is in the data: in the hospital Old Town, an emergency admission lowers the
# risk of a return, while it raises the risk everywhere else. A model that fits the other four
# hospitals must be wrong about Old Town.
#
# ## The table

# %%
import numpy as np
import pandas as pd

draw, rows = np.random.default_rng(0), 8_000
places = ["Airport", "Central", "Harbour", "North", "Old Town"]
patients = pd.DataFrame({"hospital": draw.choice(places, rows)})
patients["sex"] = draw.choice(["female", "male"], rows)
patients["age"] = draw.normal(60, 12, rows).round()
patients["emergency"] = draw.random(rows) < 0.4
effect = np.where(patients["hospital"] == "Old Town", -2, 2) * (patients["emergency"] - 0.4)
risk = (patients["age"] - 60) / 12 + effect + draw.logistic(size=rows)
patients["returned"] = np.where(risk > 0, "yes", "no")
patients.head(3)

# %% [markdown]
# ## Everything in one cell
#
# The next cell adds a method and a metric, trains three methods five times each, draws the charts,
# writes a report, predicts with the best model (here for the same patients) and prints how the
# methods did, in percent. The sections below explain it part by part.

# %% tags=["everything"]
import evenly
from evenly.metrics import Metric
from evenly.types import Rule, Weighed, record


@record
class ByLoss(Rule):  # a client counts in proportion to its loss
    needs = frozenset({"loss"})

    def weigh(self, public, own, sums):
        return Weighed(own.loss)


method = evenly.Method(name="by-loss", title="By loss", reference="", formula="F", rule=ByLoss)
metric = Metric(
    name="below_55", title="below 55 %", formula="share of a < 0.55", range="0 to 100 %", better=-1,
    function=lambda accuracy, rows: 100 * np.mean(accuracy < 0.55), rests_on="clients",
)  # fmt: skip
evenly.register(method, replace=True)
evenly.register(metric, replace=True)
results = evenly.compare(
    patients, ["fedavg", "by-loss", "q-fedavg(q=5)"], sampling="full", rounds=300, seeds=5,
    client="hospital", label="returned", sensitive="sex", favourable="no", name="patients",
    evaluate_every=20, progress=False,
)  # fmt: skip
charts = [results.plot(kind) for kind in ("clients", "front", "history", "groups", "influence")]
tables = [results.clients(), results.groups(), results.history(), results.latex()]
results.report("report.html")
predictions = results.model(results.best()).predict(patients)
print(results.table(["average", "worst10", "below_55"], intervals=False).round(1))

# %% [markdown]
# **The table** has one row per patient. `client` names the column that says which hospital a row
# belongs to, and `label` the column to predict. `sensitive` names a column whose groups are to be
# compared; it is not used for predictions. People prefer *not* to return to a hospital, so
# `favourable="no"` says which answer is the good one. Every other column is a feature.
#
# **The method** is a rule that is written for one client. A rule sees the client's own numbers
# (`own`), sums over all clients (`sums`) and what the server keeps (`public`). It returns how much
# the client counts. evenly samples the clients, trains them and averages their updates. `needs`
# says what a client must reveal, so that a report can list it. With `replace=True` the cell can be
# changed and run again.
#
# **The metric** is a function of the accuracies of all clients: the share of hospitals below 55 %.
# `better=-1` says that lower is better. `rests_on` says what the function is called with, and whose
# numbers it reveals ([add a metric](../add-a-metric.md)).
#
# **The comparison** trains each method on the same clients, the same splits and the same
# mini-batches, so that differences are due to the methods. `full` lets every hospital take part in
# every round. Five seeds draw five splits into training, validation and test rows.
#
# ## What the table says
#
# A notebook shows `results` as a table with 95 % intervals over the seeds, and says in words whom
# the first method serves worst.

# %%
results

# %% [markdown]
# - *average (rows)* is the accuracy on the test rows of all hospitals together. The three methods
#   are within about a point of each other. The dotted lines say that none of them is clearly worse
#   than the best. The test behind this compares the methods seed by seed.
# - *worst 10 %* is the accuracy of the worst-served tenth of the clients. With five clients this is
#   the worst one. FedAvg is right for about half of the patients there. q-FedAvg is clearly the
#   best.
# - *|EOD|* and *|SPD|* compare women and men: the difference in true positive rates and in the
#   share of favourable predictions. They are close to zero, and no method is clearly worse.
#
# The table does not say that q-FedAvg is the better method in general. It says so for these
# hospitals, this model and 300 rounds.
#
# `table` returns a DataFrame with the metrics that you name, your own included. The columns `_low`
# and `_high` are the ends of the 95 % interval. An interval over five seeds is wide, and may leave
# the range of the metric.

# %%
results.table(["worst10", "below_55"]).round(1)

# %% [markdown]
# ## Who gains and who pays
#
# `clients` has one row for each method and hospital. `low` and `high` are a 95 % interval for the
# test rows of one seed: a hospital with few test rows has a wide one. `weight_share` says how much
# the hospital counted in training.

# %%
clients = results.clients()
clients[clients["client"].isin(["Airport", "Old Town"])].round(2)

# %%
results.plot("clients")

# %% [markdown]
# With q-FedAvg Old Town gains about nine points, and every other hospital loses some. Fairness
# between clients is a trade here, because one linear model cannot be right about emergencies in all
# five hospitals. The dashed line is FedAvg's average. Old Town gains because it counts more:

# %%
results.plot("influence")

# %% [markdown]
# A vertical stroke is the hospital's share of the training rows: FedAvg counts each hospital by its
# size.
#
# `plot` has five kinds of charts: `"clients"`, `"front"` (accuracy against a measure of fairness),
# `"history"` (any metric by round), `"groups"` and `"influence"`. They are Altair charts:
# `chart.save("chart.svg")` writes one to a file, and so do the endings `.png` and `.html`. With
# `chart.save("chart.html", inline=True)` the page opens without a network.
#
# ## Groups of people
#
# `groups` has one row for each method and group, with accuracy, selection rate (the share that gets
# the favourable prediction), true and false positive rate. `low` and `high` are the lowest and the
# highest seed.

# %%
groups = results.groups()
groups[["method", "group", "examples", "accuracy", "accuracy_low", "accuracy_high"]].round(1)

# %% [markdown]
# The ranges of women and men overlap for every method. On about 400 test rows each, a difference of
# a point or two is what chance produces.
#
# ## Was training finished?
#
# Methods that take smaller steps can look even because they have learned less. `history` has every
# metric at every evaluation, and `plot("history")` draws one.

# %%
history = results.history()
some = history[history["round"].isin([20, 100, 300])]
some.pivot_table("worst10", "method", "round", sort=False).round(1)

# %%
results.plot("history", metric="worst10")

# %% [markdown]
# The columns of the table are rounds. FedAvg and our rule are done after twenty. q-FedAvg takes
# smaller steps: it needs well over a hundred rounds, and after twenty our rule seemed to be fairer.
# The bands run from the lowest seed to the highest.
#
# ## Choose a method and use its model
#
# `best` returns the method with the best mean of a metric. It looks at validation rows: choosing on
# test rows would make the choice look better than it is ([choosing q](choosing_q.md) shows by how
# much).

# %%
results.best("worst10"), results.best("average")

# %% [markdown]
# `model` returns the trained model of one seed, by default of the first. It encodes new rows as in
# training.

# %%
model = results.model("q-fedavg(q=5)", seed=0)
new = pd.DataFrame({"age": [82, 47], "emergency": [True, False]})
new.assign(returned=model.predict(new), probability=model.probabilities(new)[:, 1].round(2))

# %% [markdown]
# ## Tables for papers, reports, and folders
#
# `latex` writes the table of methods, bold where a method is clearly the best. `report` writes one
# HTML file with all tables and charts, which opens without a network.

# %%
print(results.latex(["average", "worst10"]))
results.report("report.html")

# %% [markdown]
# So far everything was in memory. `results.save("folder")` writes the results, the models and the
# report into a folder. With `out=` they are written while training runs: if the call is
# interrupted, repeat it, and finished runs are not trained again. The folder holds counts and
# models but no rows of the table. Nor does it hold the code of your method and your metric: on the
# next day, register them again before you load it.

# %%
evenly.compare(
    patients, ["fedavg", "by-loss"], out="ward", client="hospital", label="returned",
    sampling="full", rounds=20, seeds=2, progress=False,
)  # fmt: skip
again = evenly.load_results("ward")
again.table(["average", "worst10"]).round(1)

# %% [markdown]
# ## Next
#
# - [Your own table](own_table.md): columns that evenly refuses, missing values, several groups.
# - [Your own method](own_method.md): a rule with a setting, its limits, and the command line.
# - [Choose a method](../choose.md): where to start, from what was measured on public data.

# %% [markdown]
# # Your own method
#
# **You will learn** how an idea becomes a method: a rule for one client, checks of its limits, one
# file that registers it, a comparison with q-FedAvg, and its use on the command line.
#
# **You need** evenly, and the [first comparison](first_comparison.md). Nothing is downloaded.
#
# **It takes** fifteen minutes to read and less than half a minute to run.
#
# ## The idea
#
# In a round of federated learning every client trains the model that it received, and the server
# averages the results. A fair method changes how much each client counts. Clients with a large loss
# are served badly, so they should count more. TERM (Li et al., ICLR 2021) weighs client k by
# exp(α Fₖ), where Fₖ is its loss. The same α means much where losses are near 2 and little where
# they are near 0.2.
#
# Our idea is to measure each loss in multiples of the mean loss F̄ of the round:
#
#     aₖ ∝ exp(Fₖ / (T F̄))
#
# The temperature T says how little differences matter. We call the method *urgent*.
#
# ## A rule for one client
#
# A rule never sees two clients at once. What it needs of all clients is a *sum*: that is all that a
# server must learn, and it can be computed under secure aggregation. Here the rule needs the sum of
# the losses and the number of clients, so it has one stage. `contribute` is the part of one client,
# and `weigh` is called with the sums. `exponent` instead of `exp(...)` keeps the weight from
# overflowing at low temperatures. The rule is compiled before there are numbers: for anything
# beyond arithmetic use `jax.numpy`, such as `jnp.sqrt(own.loss)`, and `jnp.where` in place of `if`.

# %%
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import evenly
from evenly.types import Own, Rule, Weighed, leaf, record


@record
class Urgent(Rule):
    """Weigh a client by the exponential of its loss in multiples of the mean loss of the round."""

    temperature: float = leaf(default=1.0, above=0, doc="how little differences in loss matter")
    needs = frozenset({"loss"})  # what clients reveal besides their update
    stages = 1  # sums that are needed before a client can be weighed

    def contribute(self, public, own, sums):
        return own.loss, 1.0

    def weigh(self, public, own, sums):
        total, clients = sums[0]
        return Weighed(1.0, exponent=own.loss * clients / (total * self.temperature))


# %% [markdown]
# ## Check its limits before training anything
#
# A rule is an ordinary object, so we can weigh a few clients by hand. This function does what a
# round does: add up the contributions, weigh every client, and divide by the sum.


# %%
def weights(rule, losses):
    clients, sums = [Own(loss=loss) for loss in losses], ()
    for _ in range(rule.stages):
        parts = [rule.contribute((), own, sums) for own in clients]
        sums += (jax.tree.map(lambda *own: sum(own), *parts),)
    weighed = [rule.weigh((), own, sums) for own in clients]
    found = np.array([own.weight * np.exp(own.exponent or 0.0) for own in weighed])
    return (found / found.sum()).round(3)


losses = np.array([0.5, 0.6, 0.7, 1.0])
print("T = 1,000,000       ", weights(Urgent(temperature=1e6), losses))
print("T = 0.01            ", weights(Urgent(temperature=0.01), losses))
print("T = 1               ", weights(Urgent(temperature=1.0), losses))
print("T = 1, losses x 10  ", weights(Urgent(temperature=1.0), 10 * losses))
print("q-FedAvg, q = 1     ", (losses / losses.sum()).round(3))

# %% [markdown]
# - As the temperature goes to infinity, all clients count alike: FedAvg with equal weights.
# - As it goes to zero, only the client with the largest loss counts.
# - The scale of the losses does not matter, which was the point.
# - T = 1 is close to q-FedAvg with q = 1. This is no accident: near the mean loss, the logarithm of
#   our weight has the slope 1/T in log Fₖ, and that of q-FedAvg has the slope q. So we expect
#   T = 1/q to behave like q.
#
# A bound of the setting is checked when the rule is made:

# %%
try:
    Urgent(temperature=0.0)
except ValueError as error:
    print(error)

# %% [markdown]
# ## One file
#
# A method is a file with a rule and a `Method`, and its last line registers it. The notation, the
# settings and their help text follow from the fields of the rule. In a package of your own this
# file would be written by hand; here the tutorial writes it.

# %%
characters = Path("urgent.py").write_text('''
"""Urgent: clients with a large loss, in multiples of the mean, count more."""

import evenly
from evenly.types import Rule, Weighed, leaf, record


@record
class Urgent(Rule):
    """Weigh a client by the exponential of its loss in multiples of the mean loss of the round."""

    temperature: float = leaf(default=1.0, above=0, doc="how little differences in loss matter")
    needs = frozenset({"loss"})  # what clients reveal besides their update
    stages = 1  # sums that are needed before a client can be weighed

    def contribute(self, public, own, sums):
        return own.loss, 1.0

    def weigh(self, public, own, sums):
        total, clients = sums[0]
        return Weighed(1.0, exponent=own.loss * clients / (total * self.temperature))


METHOD = evenly.Method(
    name="urgent",
    title="Urgent",
    reference="this tutorial",
    formula="aₖ ∝ exp(Fₖ / (T F̄))",
    rule=Urgent,
)
evenly.register(METHOD)
''')

# %% [markdown]
# ## Compare it
#
# Twelve hospitals predict who returns within a month. In three of them an emergency admission means
# the opposite of what it means in the others. `plugins` loads the file, and then `urgent` can be
# written like any other method. A list of values is a sweep; its runs share one compiled program.

# %%
draw, rows = np.random.default_rng(1), 12_000
stays = pd.DataFrame({"hospital": draw.integers(1, 13, rows)})
stays["age"] = draw.normal(60, 12, rows).round()
stays["emergency"] = draw.random(rows) < 0.4
effect = np.where(stays["hospital"] <= 3, -2, 2) * (stays["emergency"] - 0.4)
risk = (stays["age"] - 60) / 12 + effect + draw.logistic(size=rows)
stays["returned"] = np.where(risk > 0, "yes", "no")
stays.to_csv("stays.csv", index=False)

results = evenly.compare(
    "stays.csv",
    ["fedavg(weights=equal)", "urgent(temperature=[1000000, 1, 0.2, 0.1])", "q-fedavg(q=[1, 5])"],
    client="hospital", label="returned", plugins=["urgent.py"],
    sampling="full", rounds=200, evaluate_every=20, seeds=3, progress=False,
)  # fmt: skip
results.table(["average", "worst10", "variance"], intervals=False).round(1)

# %% [markdown]
# Read it from the top:
#
# - The limit holds after training, too: a huge temperature gives the figures of FedAvg with equal
#   weights. The models themselves agree:

# %%
plain, limit = (results.model(method) for method in results.methods[:2])
bool(np.allclose(plain.params["w"], limit.params["w"], atol=1e-4))

# %% [markdown]
# - T = 1 does about what q = 1 does, and T = 0.2 about what q = 5 does, as the slopes promised.
#   They serve the worst-served tenth of the hospitals better than FedAvg does, and cost up to about
#   a point of the average.
# - T = 0.1 is worse than doing nothing, for the average and for the worst-served.
#
# The last line deserves a look, because the rule does what we told it to. The history shows how.

# %%
results[["urgent(temperature=0.2)", "urgent(temperature=0.1)", "q-fedavg(q=5)"]].plot(
    "history", metric="worst10"
)

# %% [markdown]
# With T = 0.2 the rule arrives within 20 rounds; q-FedAvg takes smaller steps and needs many more.
# With T = 0.1 it never gets there. In each round the rule looks at losses of the *received* model
# and gives nearly all weight to the three hospitals that are worst at this moment; the model jumps
# to them, and then the other nine are the worst. The weights of two rounds in a row show it:

# %%
trace = results.traces("urgent(temperature=0.1)")[0]
names = [f"no. {name}" for name in results.federation.names]
pd.DataFrame(trace.weights[-2:].round(2), index=["round 199", "round 200"], columns=names)

# %% [markdown]
# What this comparison does not show: whether *urgent* is better than q-FedAvg. It was fast here, on
# one made-up table with a linear model, and we chose the temperatures after thinking about this
# very table. [Choosing q](choosing_q.md) shows how to choose such a number honestly.
#
# ## On the command line
#
# `--plugin` loads the file for one command. We start the command from Python; in a terminal it
# begins with `evenly compare --plugin urgent.py`. The folder that it writes can be read in Python.
# `load_results` needs `plugins=` again: it never runs code just because a folder mentions it.

# %%
table = ["--data", "stays.csv", "--client", "hospital", "--label", "returned"]
short = ["--sampling", "full", "--rounds", "25", "--seeds", "2", "--out", "compared"]
methods = ["--algorithms", "fedavg,urgent(temperature=0.2)", "--plugin", "urgent.py"]
command = [sys.executable, "-m", "evenly", "compare", *table, *methods, *short]
ended = subprocess.run(command, check=True, capture_output=True)
evenly.load_results("compared", plugins=["urgent.py"]).table(["average", "worst10"]).round(1)

# %% [markdown]
# `evenly describe urgent --plugin urgent.py` shows the formula, the settings with their help, and
# what clients reveal. All of it follows from the fields of the rule. In Python:

# %%
algorithm = evenly.algorithm("urgent(temperature=0.2)+uniform(clients=5)")
print(algorithm.rule, "needs", sorted(algorithm.needs))

# %% [markdown]
# ## Next
#
# - [Add a method](../add-a-method.md): all parts of a rule, and how to contribute one.
# - [Choosing q](choosing_q.md): choose a setting without fooling yourself.
# - [Plugins](../plugins.md): files, packages and what a folder of results keeps of them.

# %% [markdown]
# # Hospitals with Flower
#
# **You will learn** how to turn a comparison into a real federation: write a Flower app for your
# table, run it as separate processes with encryption and keys, see what each hospital sends, and
# read the result like any other.
#
# **You need** evenly with Flower: `pip install ".[flower]"`. Nothing else is downloaded. All
# processes run on this machine and talk over the loopback.
#
# **It takes** fifteen minutes to read and about a minute to run.
#
# ## Simulate first
#
# A simulated round takes milliseconds, a deployed one many seconds: processes start, certificates
# are checked, messages travel. So methods are compared in a simulation, and the chosen one is
# deployed. Three hospitals predict who returns within a month.

# %%
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd

import evenly

draw, rows = np.random.default_rng(0), 3_000
hospitals = draw.choice(["Central", "Harbour", "North"], rows, p=[0.5, 0.3, 0.2])
stays = pd.DataFrame({"hospital": hospitals, "sex": draw.choice(["female", "male"], rows)})
stays["age"] = draw.normal(60, 12, rows).round()
stays["emergency"] = draw.random(rows) < 0.4
effect = np.where(stays["hospital"] == "North", -2, 2) * (stays["emergency"] - 0.4)
risk = (stays["age"] - 60) / 12 + effect + draw.logistic(size=rows)
stays["returned"] = np.where(risk > 0, "yes", "no")
stays.to_csv("stays.csv", index=False)

columns = {"client": "hospital", "label": "returned", "sensitive": "sex", "favourable": "no"}
method = "q-fedavg(q=1)"
simulated = evenly.compare(
    "stays.csv", method, **columns, unprivileged="female", model="softmax", sampling="full",
    rounds=2, evaluate_every=1, seeds=1, progress=False,
)  # fmt: skip
simulated.clients()[["client", "accuracy", "examples", "train_examples"]].round(1)

# %% [markdown]
# ## Write the app
#
# `evenly flower new` writes a small Flower app for the table. It overwrites nothing. We start it
# from Python; in a terminal you write the same words.


# %%
def run(*words):
    command = [sys.executable, "-m", "evenly", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


table = ["--data", "stays.csv", "--client", "hospital", "--label", "returned"]
people = ["--sensitive", "sex", "--favourable", "no", "--unprivileged", "female"]
print(run("flower", "new", "ward", *table, *people, "--method", method, "--rounds", "2"))

# %% [markdown]
# Four of the files deserve a look before anything runs.
#
# **`pyproject.toml`** has the settings of the run. `least` is how many answers a round needs. With
# fewer, the run stops instead of learning from one hospital alone.

# %%
config = tomllib.loads(Path("ward/pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
pd.Series(config, name="value").rename_axis("setting")

# %% [markdown]
# **`schema.json`** is what the hospitals must agree on beforehand: which column is what, and how
# columns become numbers. It travels to everybody with the app. It holds no rows, but it does hold
# the mean and the deviation of every number, and the name of every category. In a real federation,
# make it from a table that all hospitals may know, such as an invented one.

# %%
schema = json.loads(Path("ward/ward/schema.json").read_text())
print("clients:", schema["clients"], " labels:", schema["labels"], " groups:", schema["groups"])
pd.DataFrame(schema["encoder"])[["name", "mean", "deviation"]].round(2)

# %% [markdown]
# **`policy.toml`** belongs to the hospital, which answers nothing that it does not allow. Counts of
# fewer than five people are refused, for example, and so is a table that differs from the one
# before by fewer than five. These patients are invented. So that every evaluation is told in full,
# we lower both limits to 1. A hospital with real patients keeps them. Where it has fewer people
# of a kind than the limit, it refuses; [Rare features](../flower-policy.md#rare-features) says what
# to do before the run.

# %%
policies = sorted(Path("ward/sites").glob("*/policy.toml"))
limits = re.compile(r"^(least_cell|least_change) = \d+$", re.MULTILINE)
for policy in policies:
    policy.write_text(limits.sub(r"\1 = 1", policy.read_text()))
tomllib.loads(policies[0].read_text())

# %% [markdown]
# **`server_app.py`** is the whole server. The strategy decides how much each hospital counts;
# Flower moves the messages.

# %%
source = Path("ward/ward/server_app.py").read_text()
print(source[source.index("@app.main") :])

# %% [markdown]
# ## Run it
#
# `evenly flower up` starts a SuperLink (the server) and one SuperNode for each hospital, with TLS
# certificates and keys made for the occasion. It runs the app, writes the report, and stops
# everything that it started, also after Ctrl-C. Each SuperNode uses only the rows of its hospital.

# %%
message = run("flower", "up", "ward", "--out", "deployed")
sorted(path.name for path in Path("deployed").iterdir())

# %% [markdown]
# ## What each hospital sent
#
# In each round a hospital receives the model and replies with one record:
#
# | in the record | what it is | why |
# | --- | --- | --- |
# | arrays | the model after local training | is averaged |
# | `num-examples` | number of training rows | sizes in the report |
# | `loss` | loss of the received model | q-FedAvg weighs by it |
#
# Once before the first round it says its name and its number of training rows by group and label.
# After each round it sends counts of its rows by group, label and prediction, from which all tables
# are made. No row is sent. That is not the same as privacy: a trained model, and counts of few
# people, can give something away. [A real federation](../flower-deploy.md) lists who sees what, and
# [the record](../flower-record.md) has every field.
#
# A hospital that does not answer, refuses, or answers with something impossible is left out of the
# round, and the folder says why. Here nobody was:

# %%
json.loads(Path("deployed/left_out.json").read_text())["left_out"]

# %% [markdown]
# ## Read the deployment
#
# `load_results` reads the folder like that of a comparison: tables, charts and the report work as
# usual.

# %%
deployed = evenly.load_results("deployed")
deployed.clients()[["client", "accuracy", "low", "high", "examples", "weight_share"]].round(2)

# %% [markdown]
# Two rounds are not enough to learn much. North is served worst, because an emergency means the
# opposite there. The weights of each round show that q-FedAvg reacts:

# %%
(trace,) = deployed.traces()
index = pd.Index([1, 2], name="round")
pd.DataFrame(trace.weights, index=index, columns=trace.clients).round(3)

# %% [markdown]
# All hospitals start with the same loss, because all parameters of the first model are zero. In the
# second round North's loss is the largest, and so is its weight.
#
# ## The same as in the simulation
#
# A deployment draws the same splits and mini-batches as a simulation with the same seed. So the
# figures must be the same, up to rounding. (The app has a softmax model, which is why we simulated
# with one.)

# %%
same = np.allclose(trace.weights, simulated.traces()[0].weights, atol=1e-4)
accuracy = [results.clients()["accuracy"].to_numpy() for results in (deployed, simulated)]
print("same weights:", same, " same accuracies:", np.allclose(*accuracy))

# %% [markdown]
# This is a check that you can repeat with your own table before you go to the hospitals. What it
# does not show is everything that differs there: tables that do not fit the schema, machines that
# are switched off, and people who must agree to it.
#
# ## Next
#
# - [A real federation](../flower-deploy.md): certificates, keys, a server and hospitals on machines
#   of their own, and what to do when something fails.
# - [Clients](../flower-clients.md): your own model in PyTorch, scikit-learn or JAX.
# - [A client that lies](../flower-trust.md): bounds on what one client can claim.

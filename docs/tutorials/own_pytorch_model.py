# %% [markdown]
# # Your own PyTorch model
#
# **You will learn** how to train a PyTorch module of your own with several methods, compare them,
# and get the trained weights back.
#
# **You need** evenly with the extra `torch`: run `pip install ".[torch]"` in a copy of the sources
# ([installing](../installing.md)). No data are downloaded.
#
# **It takes** five minutes to read and about a minute to run.
#
# ## A comparison in about thirty lines
#
# The module is ordinary PyTorch, with batch norm and dropout, and so is the data set. Its examples
# are a picture, a label and a client. The pictures are made up: bars that are upright, lying or
# diagonal, seen by twelve cameras of different quality.

# %%
import numpy as np
import torch
from torch import nn

import evenly


class Bars(torch.utils.data.Dataset):
    classes = ("upright", "lying", "diagonal")

    def __init__(self, rows=1_200):
        draw = np.random.default_rng(0)
        self.camera, self.bar = draw.integers(0, 12, rows), draw.integers(0, 3, rows)
        shapes = np.zeros((3, 10, 10))
        shapes[0, 1:9, 4:6] = shapes[1, 4:6, 1:9] = 1
        shapes[2] = np.eye(10) + np.eye(10, k=1)
        noise = np.where(self.camera < 9, 0.6, 1.4)[:, None, None]  # three cameras are worse
        self.pictures = shapes[self.bar] + noise * draw.normal(size=(rows, 10, 10))

    def __len__(self):
        return len(self.bar)

    def __getitem__(self, i):
        return torch.tensor(self.pictures[None, i]).float(), self.bar[i], self.camera[i]


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.drop, self.fc = nn.Dropout(0.1), nn.Linear(8 * 5 * 5, 3)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.fc(self.drop(x.flatten(1)))


# %% [markdown]
# `from_torch` takes the class, or any function that builds the module, and an example of a few
# rows as the module takes them: `[n, channels, height, width]`. For each seed the module is built
# after `torch.manual_seed(seed)`. `compare` takes the data set; `client` is the position of the
# client in an example.

# %%
task = evenly.from_torch(SmallCNN, example=torch.zeros(2, 1, 10, 10))
results = evenly.compare(
    Bars(), ["fedavg", "fedprox(mu=0.1)", "q-fedavg(q=1)", "afl", "ditto"], client=2, model=task,
    rounds=30, seeds=1, sampling="full", learning_rate=0.05, out="bars", progress=False,
)  # fmt: skip
results.report("bars.html")
results.table()[["average", "worst10", "variance"]].round(1)

# %% [markdown]
# On about ten test rows per camera and one seed, these methods cannot be told apart. The example
# shows the mechanics; a comparison needs more rows and at least five seeds. FedProx has the figures
# of FedAvg because its pull towards the received model is weak with μ = 0.1. `afl` takes one step
# with the gradient of all rows in a round, where FedAvg takes many small ones. On other data it may
# need more rounds or a larger learning rate: `results.plot("history")` shows whether it has
# finished ([AFL](../algorithms/afl.md) has a form with local training).
#
# `bars.html` is the report. The folder `bars` holds everything that is needed to resume. Batch
# norm's running statistics travel with the model and are averaged as the weights are. All methods
# share initial weights, batches and dropout masks, so that differences are due to the methods.
#
# ## Weights back in PyTorch
#
# `to_torch` gives a state dict. The module predicts what the simulator's model predicts:

# %%
model = results.model("fedavg")  # of the first seed; choose another with seed=
network = SmallCNN()
network.load_state_dict(model.to_torch())
with torch.no_grad():
    scores = network.eval()(torch.from_numpy(results.federation.x))
predicted = model.classes[scores.argmax(1).numpy()]
bool((predicted == model.predict(results.federation.x)).all())

# %% [markdown]
# ## The next day
#
# A folder stores the weights but neither the code of your module nor the pictures. In a new
# process, define or import the module, and pass the task again to get a model that predicts:

# %%
again = evenly.load_results("bars")
task = evenly.from_torch(SmallCNN, example=torch.zeros(2, 1, 10, 10))
again.model("fedavg", task=task).predict(torch.stack([Bars()[i][0] for i in range(4)]))

# %% [markdown]
# ## Next
#
# - [Models](../models.md): losses of your own, augmentation, what is translated and what is not.
# - [Deploy with Flower](../flower-clients.md): the same module in a real federation, where PyTorch
#   itself runs.

"""fluke: its FedAVG, by size, with loaders that shuffle their own batches. It has no q-FedAvg. No
client has test rows: none evaluates.

It imports torchvision, which must be the build that belongs to the PyTorch that is installed.
"""

import torch
import torch_models
from fluke import FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import FastDataLoader
from plan import Plan
from protocol import Ran, serve
from torch import Tensor, nn


class Given:
    """In the place of fluke's splitter: the clients are there already."""

    def __init__(self, plan: Plan) -> None:
        x, y = torch_models.examples(plan)
        self.own = [
            (x[rows], y[rows])
            for rows in (torch.from_numpy(plan.own(k)) for k in range(plan.clients))
        ]
        self.labels = plan.classes

    def assign(self, n_clients: int, batch_size: int) -> tuple:
        loaders = [
            FastDataLoader(
                *own,
                num_labels=self.labels,
                batch_size=batch_size,
                shuffle=True,
                skip_singleton=False,
            )
            for own in self.own
        ]
        return (loaders, [None] * n_clients), None


class Criterion(nn.Module):
    """The loss as a module, which fluke copies."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.loss = torch_models.criterion(plan)

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        return self.loss(z, y)


class Fluke:
    def __init__(self, plan: Plan) -> None:
        FlukeENV().set_seed(0)
        self.plan, self.data = plan, Given(plan)

    def run(self, rounds: int) -> Ran:
        plan, model = self.plan, torch_models.module(self.plan)
        for parameter, value in zip(model.parameters(), torch_models.start(plan), strict=True):
            parameter.data.copy_(value)
        client = {
            "batch_size": plan.batch, "local_epochs": plan.epochs, "loss": lambda: Criterion(plan),
            "optimizer": {"name": "SGD", "lr": plan.rate},
            "scheduler": {"step_size": 1, "gamma": 1.0},
        }  # fmt: skip
        algorithm = FedAVG(
            plan.clients,
            self.data,
            {"client": client, "server": {"weighted": True}, "model": model},
        )
        algorithm.run(rounds, plan.cohort.shape[1] / plan.clients)
        return Ran(torch_models.on_host(list(algorithm.server.model.parameters())))


if __name__ == "__main__":
    serve(Fluke, "fluke-fl", "torch", "torchvision", "numpy")

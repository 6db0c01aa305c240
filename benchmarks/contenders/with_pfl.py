"""pfl: its simulated backend with PyTorch. It has no q-FedAvg, which is therefore a small algorithm
of our own on its FederatedAveraging.

Its users come in the plan's order with their rows in the plan's order, which it cuts into batches.
No metrics are computed.
"""

import logging
import time

import numpy as np
import torch
import torch_models
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from plan import TINY, Plan
from protocol import Ran, serve
from torch import Tensor, nn

NEVER = 10**6  # rounds between evaluations


class Linear(nn.Module):
    """The model as pfl asks for it."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.inner, self.criterion = torch_models.module(plan), torch_models.criterion(plan)
        for parameter, value in zip(self.parameters(), torch_models.start(plan), strict=True):
            parameter.data.copy_(value)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)

    def loss(self, x: Tensor, y: Tensor, **_: object) -> Tensor:
        return self.criterion(self.inner(x), y)

    def metrics(self, *_: object, **__: object) -> dict:
        return {}


def fair_averaging(plan: Plan) -> FederatedAveraging:
    """q-FedAvg: the update is scaled by the loss, and what it is divided by travels as
    its weight.
    """

    class Fair(FederatedAveraging):
        def train_one_user(self, initial_model_state, model, user_dataset, central_context):
            with torch.no_grad():
                loss = float(model.pytorch_model.loss(*user_dataset.raw_data)) + TINY
            update, metrics = super().train_one_user(
                initial_model_state, model, user_dataset, central_context
            )
            square = sum(float((v * v).sum()) for _, v in update.items()) / plan.rate**2
            for name, value in list(update.items()):
                update[name] = value * (loss**plan.q / plan.rate)
            update.weight = plan.q * loss ** (plan.q - 1) * square + loss**plan.q / plan.rate
            return update, metrics

    return Fair()


class Clock(TrainingProcessCallback):
    """When rounds end; building the model and the data beforehand is not counted."""

    def __init__(self) -> None:
        self.stamps = [time.perf_counter()]

    def after_central_iteration(self, *_: object, **__: object) -> tuple[bool, Metrics]:
        self.stamps.append(time.perf_counter())
        return False, Metrics()


class Pfl:
    def __init__(self, plan: Plan) -> None:
        logging.disable(logging.WARNING)
        self.plan = plan
        self.x, self.y = torch_models.examples(plan)

    def user(self, number: int) -> Dataset:
        visit = self.plan.visit(number)
        rows = torch.from_numpy(visit.rows)
        return Dataset((self.x[rows], self.y[rows]), user_id=str(visit.client))

    def run(self, rounds: int) -> Ran:
        plan, width = self.plan, self.plan.cohort.shape[1]
        numbers = iter([*range(rounds * width), *([0] * width)])  # it looks one round ahead
        data = FederatedDataset(self.user, lambda: next(numbers))
        net, clock = Linear(plan), Clock()
        model = PyTorchModel(
            model=net, local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0)
        )  # fmt: skip
        backend = SimulatedBackend(
            training_data=data,
            val_data=data,
            postprocessors=[] if plan.fair else [WeightByDatapoints()],
        )
        (fair_averaging(plan) if plan.fair else FederatedAveraging()).run(
            algorithm_params=NNAlgorithmParams(rounds, NEVER, width, 0),
            backend=backend,
            model=model,
            model_train_params=NNTrainHyperParams(
                local_learning_rate=plan.rate,
                local_num_epochs=plan.epochs,
                local_batch_size=plan.batch,
            ),
            callbacks=[clock],
            send_metrics_to_platform=False,
        )
        trained: list[np.ndarray] = torch_models.on_host(list(net.parameters()))
        return Ran(trained, clock.stamps[-1] - clock.stamps[0], rounds)


if __name__ == "__main__":
    serve(Pfl, "pfl", "torch", "numpy")

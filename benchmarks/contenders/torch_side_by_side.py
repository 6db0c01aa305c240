"""FedAvg and q-FedAvg in PyTorch, the clients of a round side by side, padded to the longest.

How the gradients of all clients are found is what its two contenders differ in.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch_models
from plan import TINY, Plan
from protocol import Ran
from torch import Tensor
from torch_one_by_one import foreach_add

# parameters, x, y, weights: a client axis in front of each
Slopes = Callable[[list[Tensor], Tensor, Tensor, Tensor], Sequence[Tensor]]


class SideBySide:
    """The rounds around it. Batches were drawn beforehand; padding is a row that weighs nothing."""

    def __init__(self, plan: Plan, slopes: Slopes) -> None:
        self.plan, self.slopes = plan, slopes
        self.x, self.y = torch_models.examples(plan)
        self.forward, self.criterion = torch_models.forward(plan), torch_models.criterion(plan)

    def run(self, rounds: int) -> Ran:
        received = torch_models.start(self.plan)
        with torch.no_grad():
            for t in range(rounds):
                received = self.one_round(t, received)
        return Ran(torch_models.on_host(received))

    def one_round(self, t: int, received: list[Tensor]) -> list[Tensor]:
        rows, weights = self.batches(t)
        x, y = self.x[rows], self.y[rows]
        trained = [value.expand(len(rows), *value.shape).contiguous() for value in received]
        for s in range(rows.shape[1]):
            foreach_add(
                trained,
                self.slopes(trained, x[:, s], y[:, s], weights[:, s]),
                alpha=-self.plan.rate,
            )
        return (
            self.fair(received, trained, self.losses(received, x, y, weights))
            if self.plan.fair
            else self.mean(t, trained)
        )

    def batches(self, t: int) -> tuple[Tensor, Tensor]:
        """Row numbers and what each row counts in its batch's mean. [clients, steps, batch]"""
        plan, width = self.plan, self.plan.cohort.shape[1]
        edges = plan.first_step[t * width : (t + 1) * width + 1]
        rows = np.full((width, np.diff(edges).max(), plan.batch), len(plan.y), np.int64)
        for k, (first, last) in enumerate(itertools.pairwise(edges)):
            rows[k, : last - first] = plan.steps[first:last]
        real = rows < len(plan.y)
        weights = real / np.maximum(real.sum(2, keepdims=True), 1)
        return torch.from_numpy(np.where(real, rows, 0)).to(self.x.device), torch.from_numpy(
            weights.astype(np.float32)
        ).to(self.x.device)

    def losses(self, received: list[Tensor], x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Every client's loss of the model it received, on all its rows (one epoch has each once).
        [clients]
        """
        each = self.criterion(
            self.forward(received, x.flatten(0, 2)), y.flatten(), reduction="none"
        ).reshape(len(x), -1)
        real = (weights > 0).flatten(1)
        return (each * real).sum(1) / real.sum(1) + TINY

    def fair(self, received: list[Tensor], trained: list[Tensor], loss: Tensor) -> list[Tensor]:
        """Algorithm 1 of q-FFL with d_k = L (w - w_k) and L = 1 / rate."""
        q, rate = self.plan.q, self.plan.rate
        moved = [(w - p) / rate for w, p in zip(received, trained, strict=True)]
        square = torch.stack([(d * d).flatten(1).sum(1) for d in moved]).sum(0)
        scale = (q * loss ** (q - 1) * square + loss**q / rate).sum()
        return [
            w - torch.tensordot(loss**q, d, 1) / scale for w, d in zip(received, moved, strict=True)
        ]

    def mean(self, t: int, trained: list[Tensor]) -> list[Tensor]:
        sizes = self.plan.sizes[self.plan.cohort[t]]
        shares = torch.from_numpy((sizes / sizes.sum()).astype(np.float32)).to(self.x.device)
        return [torch.tensordot(shares, value, 1) for value in trained]

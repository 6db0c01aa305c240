"""FedAvg and q-FedAvg in PyTorch, one client after another. How a step is made is what its two
contenders differ in.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch_models
from plan import TINY, Plan, Visit
from protocol import Ran
from torch import Tensor

# what PyTorch's own optimisers use
foreach_add, foreach_copy = torch._foreach_add_, torch._foreach_copy_


class Local(NamedTuple):
    """The model that clients train in turn."""

    parameters: list[Tensor]
    logits: Callable[[Tensor], Tensor]
    step: Callable[[Tensor, Tensor], None]  # one batch, in place


class OneByOne:
    """The rounds around it. Batches were drawn beforehand; a visit's rows are gathered at once."""

    def __init__(self, plan: Plan, local: Local) -> None:
        self.plan, self.local = plan, local
        self.x, self.y = torch_models.examples(plan)
        self.criterion = torch_models.criterion(plan)
        self.own = [self.gathered(plan.own(k)) for k in range(plan.clients)] if plan.fair else []

    def gathered(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        places = torch.from_numpy(rows).to(self.x.device)
        return self.x[places], self.y[places]

    def run(self, rounds: int) -> Ran:
        received, one_round = (
            torch_models.start(self.plan),
            self.fair_round if self.plan.fair else self.mean_round,
        )
        for t in range(rounds):
            received = one_round(t, received)
        return Ran(torch_models.on_host(received))

    def mean_round(self, t: int, received: list[Tensor]) -> list[Tensor]:
        """FedAvg: the mean by size."""
        visits = list(self.plan.visits(t))
        sizes = self.plan.sizes[[visit.client for visit in visits]]
        totals = [torch.zeros_like(value) for value in received]
        for visit, share in zip(visits, sizes / sizes.sum(), strict=True):
            self.train(visit, received)
            with torch.no_grad():
                foreach_add(totals, self.local.parameters, alpha=float(share))
        return totals

    def fair_round(self, t: int, received: list[Tensor]) -> list[Tensor]:
        """Algorithm 1 of q-FFL with d_k = L (w - w_k) and L = 1 / rate."""
        q, rate, scale = self.plan.q, self.plan.rate, 0.0
        totals = [torch.zeros_like(value) for value in received]
        for visit in self.plan.visits(t):
            loss = self.train(visit, received)
            with torch.no_grad():
                moved = [
                    (w - p) / rate for w, p in zip(received, self.local.parameters, strict=True)
                ]
                scale += (
                    q * loss ** (q - 1) * sum(float((d * d).sum()) for d in moved) + loss**q / rate
                )
                foreach_add(totals, moved, alpha=loss**q)
        return [w - total / scale for w, total in zip(received, totals, strict=True)]

    def train(self, visit: Visit, received: list[Tensor]) -> float:
        """One client's epochs; returns its loss of the model it received, where that is needed."""
        loss = 0.0
        with torch.no_grad():
            foreach_copy(self.local.parameters, received)
            if self.plan.fair:
                x, y = self.own[visit.client]
                loss = float(self.criterion(self.local.logits(x), y)) + TINY
        x, y = self.gathered(visit.rows)
        for features, labels in zip(x.split(visit.sizes), y.split(visit.sizes), strict=True):
            self.local.step(features, labels)
        return loss

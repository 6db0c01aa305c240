"""Opacus: DP-SGD of one client after another, with the per-sample gradients and the optimiser of
Opacus. Each row is in each batch with the plan's rate, as in evenly.
"""

import numpy as np
import torch
import torch_models
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from plan import Plan
from protocol import Ran, serve


class Opacus:
    def __init__(self, plan: Plan) -> None:
        with np.load(plan.path) as file:
            self.rate, self.noise = float(file["dp_rate"]), float(file["dp_noise"])
            self.clients = int(file["dp_clients"])
        self.plan, self.criterion = plan, torch_models.criterion(plan)
        self.x, self.y = torch_models.examples(plan)
        self.module = GradSampleModule(torch_models.module(plan))
        self.parameters = list(self.module.parameters())
        self.steps = round(plan.epochs / self.rate)

    def run(self, rounds: int) -> Ran:
        received, generator = torch_models.start(self.plan), np.random.default_rng(0)
        for t in range(rounds):
            clients = self.plan.cohort[t][: self.clients]
            totals = [torch.zeros_like(value) for value in received]
            for client in clients:
                self.train(int(client), received, generator)
                with torch.no_grad():
                    torch._foreach_add_(totals, self.parameters, alpha=1 / len(clients))
            received = totals
        return Ran(torch_models.on_host(received))

    def train(self, client: int, received: list, generator: np.random.Generator) -> None:
        """One client's steps; the module then holds its model."""
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, received)
        rows = self.plan.own(client)
        optimizer = DPOptimizer(
            torch.optim.SGD(self.module.parameters(), lr=self.plan.rate),
            noise_multiplier=self.noise, max_grad_norm=1.0,
            expected_batch_size=max(1, round(self.rate * len(rows))),
        )  # fmt: skip
        for _ in range(self.steps):
            batch = torch.from_numpy(rows[generator.random(len(rows)) < self.rate])
            optimizer.zero_grad()
            logits = self.module(self.x[batch])
            self.criterion(logits, self.y[batch], reduction="mean").backward()
            optimizer.step()


if __name__ == "__main__":
    serve(Opacus, "opacus", "torch", "numpy")

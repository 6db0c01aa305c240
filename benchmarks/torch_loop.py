"""The contender: q-FedAvg as a plain PyTorch loop, one client after another.

Run by `synthetic.py` as a process of its own, so that the threads of the two libraries do not meet. It reads the data,
cohorts and batches from one npz file, then one request per line from standard input ({"rounds": ..., "threads": ...})
and answers each with one line of JSON.
"""

import itertools
import json
import sys
import time
from typing import Any

import numpy as np
import torch
from machine import peak_megabytes
from torch import nn

Arrays = dict[str, np.ndarray]


class Loop:
    """A linear softmax model trained with torch.optim.SGD; the optimiser is built once, not once for each client."""

    def __init__(self, given: Arrays) -> None:
        self.rate, self.q = float(given["rate"]), float(given["q"])
        self.cohort, self.starts, self.batch = given["cohort"], given["first_step"], int(given["batch"])
        self.order = torch.from_numpy(given["rows"].reshape(-1).astype(np.int64))
        self.x, self.y = torch.from_numpy(given["x"]), torch.from_numpy(given["y"].astype(np.int64))
        edges = given["offsets"]
        rows = [torch.from_numpy(given["train"][a:b].astype(np.int64)) for a, b in itertools.pairwise(edges)]
        self.own = [(self.x[r], self.y[r]) for r in rows]  # every client's training rows, for its loss
        self.model = nn.Linear(given["x"].shape[1], int(given["classes"]))
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=self.rate)
        self.criterion = nn.CrossEntropyLoss()

    def run(self, rounds: int) -> list[torch.Tensor]:
        """The model after some rounds, from zero."""
        received = [torch.zeros_like(p) for p in self.model.parameters()]
        for t in range(rounds):
            received = self.one_round(t, received)
        return received

    def one_round(self, t: int, received: list[torch.Tensor]) -> list[torch.Tensor]:
        """Algorithm 1 of q-FFL with d_k = L (w - w_k) and L = 1 / rate."""
        deltas, scale = [torch.zeros_like(p) for p in received], 0.0
        for k, client in enumerate(self.cohort[t]):
            self.load(received)
            loss = self.loss(client)
            self.train(t * self.cohort.shape[1] + k, client)
            with torch.no_grad():
                moved = [(w - p) / self.rate for w, p in zip(received, self.model.parameters(), strict=True)]
                square = sum(float((d * d).sum()) for d in moved)
                scale += self.q * loss ** (self.q - 1) * square + loss**self.q / self.rate
                deltas = [total + loss**self.q * d for total, d in zip(deltas, moved, strict=True)]
        return [w - total / scale for w, total in zip(received, deltas, strict=True)]

    def load(self, values: list[torch.Tensor]) -> None:
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), values, strict=True):
                parameter.copy_(value)

    def loss(self, client: int) -> float:
        """F_k: the loss of the received model on all training rows, before training."""
        x, y = self.own[client]
        with torch.no_grad():
            return float(self.criterion(self.model(x), y)) + 1e-10

    def train(self, visit: int, client: int) -> None:
        first = int(self.starts[visit]) * self.batch
        rows = self.order[first : first + len(self.own[client][1])]
        x, y = self.x[rows], self.y[rows]
        for i in range(0, len(y), self.batch):
            self.optimiser.zero_grad()
            self.criterion(self.model(x[i : i + self.batch]), y[i : i + self.batch]).backward()
            self.optimiser.step()


def answer(loop: Loop, request: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(request["threads"])
    start = time.perf_counter()
    weight, bias = loop.run(request["rounds"])
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "w": weight.T.tolist(), "b": bias.tolist(), "megabytes": peak_megabytes()}


def main() -> None:
    with np.load(sys.argv[1]) as file:
        loop = Loop(dict(file))
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(loop, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

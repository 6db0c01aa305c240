"""The contender of `lenet.py`: FedAvg with LeNet as a plain PyTorch loop, one client after another.

Run as a process of its own, so that the threads of the two libraries do not meet. It reads images, start and batches from one
npz file, then one request per line from standard input ({"rounds": ..., "threads": ..., "out": ...}) and answers each with one
line of JSON.
"""

import json
import sys
import time
from typing import Any

import machine
import numpy as np
import torch
from torch import nn


class Loop:
    """A module, an SGD optimiser and backward()."""

    def __init__(self, path: str) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        with np.load(path) as file:
            self.given = dict(file)
        self.clients = int(self.given["clients"])
        self.model = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Linear(128, 10),
        ).to(self.device)  # fmt: skip
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=float(self.given["rate"]))
        self.x = torch.from_numpy(self.given["x"][:, None]).to(self.device)
        self.y = torch.from_numpy(self.given["y"].astype(np.int64)).to(self.device)
        self.start = [torch.from_numpy(self.given[f"start{i}"]).to(self.device) for i in range(8)]

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        torch.set_num_threads(request["threads"])
        begun, used, values = time.perf_counter(), time.process_time(), self.start
        for t in range(request["rounds"]):
            values = self.one_round(t, values)
        values = [value.cpu().numpy() for value in values]  # waits for a GPU
        seconds, cpu = time.perf_counter() - begun, time.process_time() - used
        np.savez(request["out"], *values)
        return {"seconds": [seconds, cpu], "megabytes": machine.peak_megabytes(), "device": self.device}

    def one_round(self, t: int, received: list[Any]) -> list[Any]:
        totals = [torch.zeros_like(value) for value in received]
        for k in range(self.clients):
            self.load(received)
            first, last = self.given["first_step"][t * self.clients + k : t * self.clients + k + 2]
            for rows in self.given["rows"][first:last]:
                real = torch.from_numpy(rows[rows < len(self.y)].astype(np.int64)).to(self.device)
                self.optimiser.zero_grad()
                torch.nn.functional.cross_entropy(self.model(self.x[real]), self.y[real]).backward()
                self.optimiser.step()
            with torch.no_grad():
                for total, parameter in zip(totals, self.model.parameters(), strict=True):
                    total += parameter / self.clients
        return totals

    def load(self, values: list[Any]) -> None:
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), values, strict=True):
                parameter.copy_(value)


def main() -> None:
    loop = Loop(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(loop.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

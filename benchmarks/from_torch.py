"""A translated LeNet against the built-in one and against the same rounds written in PyTorch.

    python benchmarks/from_torch.py

The three take turns in one process, so that the load of the machine is the same for all: FedAvg,
ten clients of 60 pictures each, batches of ten, one epoch. Prints milliseconds per round, the
ratios, and how long translation and compilation take.
"""

import copy
import os
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

import evenly
from evenly.models import LeNet
from evenly.types import Task

CLIENTS, ROWS, BATCH, RATE, ROUNDS, TURNS = 10, 60, 10, 0.01, 3, 5
METHOD = f"fedavg(learning_rate={RATE}, batch_size={BATCH}, shuffle=false)+full"


def network() -> nn.Module:
    """The built-in LeNet in PyTorch."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def loop(x: np.ndarray, y: np.ndarray) -> Callable[[], object]:
    """The rounds in PyTorch: a copy of the model for each client, and a mean."""
    pictures, labels = torch.from_numpy(x), torch.from_numpy(y).long()
    model = network()

    def rounds() -> None:
        for _ in range(ROUNDS):
            received = copy.deepcopy(model.state_dict())
            total = {key: torch.zeros_like(value) for key, value in received.items()}
            for k in range(CLIENTS):
                model.load_state_dict(received)
                optimiser = torch.optim.SGD(model.parameters(), RATE)
                for begin in range(k * ROWS, (k + 1) * ROWS, BATCH):
                    rows = slice(begin, begin + BATCH)
                    optimiser.zero_grad()
                    nn.functional.cross_entropy(model(pictures[rows]), labels[rows]).backward()
                    optimiser.step()
                for key, value in model.state_dict().items():
                    total[key] += value / CLIENTS
            model.load_state_dict(total)

    return rounds


def main() -> None:
    """Measure, and print a table."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(CLIENTS * ROWS, 28, 28)).astype(np.float32)
    y, client = np.arange(len(x)) % 10, np.repeat(np.arange(CLIENTS), ROWS)
    split = ["train"] * len(x)

    def federation(rows: np.ndarray) -> evenly.Federation:
        return evenly.Federation.from_arrays(rows, y, client, split=split)

    began = time.perf_counter()
    task = evenly.from_torch(network, x[:2, None])
    print(f"translation {time.perf_counter() - began:.1f} s")

    def train(task: Task, data: evenly.Federation) -> Callable[[], object]:
        return lambda: evenly.train(task, data, METHOD, rounds=ROUNDS)

    contenders = {
        "from_torch": train(task, federation(x[:, None])),
        "built-in": train(LeNet(classes=10), federation(x)),
        "PyTorch": loop(x[:, None], y),
    }
    for name, run in contenders.items():
        began = time.perf_counter()
        run()
        print(f"first call of {name} {time.perf_counter() - began:.1f} s")
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(TURNS):
        for name, run in contenders.items():
            began = time.perf_counter()
            run()
            times[name].append(1000 * (time.perf_counter() - began) / ROUNDS)
    medians = {name: float(np.median(own)) for name, own in times.items()}
    for name, own in times.items():
        ratio = medians[name] / medians["from_torch"]
        print(f"{name:12} {medians[name]:8.0f} ms per round ({min(own):.0f} to {max(own):.0f}),"
              f" {ratio:.2f} times from_torch")  # fmt: skip
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()

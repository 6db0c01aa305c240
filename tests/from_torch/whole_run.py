"""FedAvg with a translated module, and the same rounds as a loop in PyTorch."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import evenly
from tests.from_torch.agreement import farthest

RATE, BATCH, EPOCHS = 0.1, 8, 2
METHOD = f"fedavg(learning_rate={RATE}, batch_size={BATCH}, epochs={EPOCHS}, shuffle=false)+full"
COUNT = "norm.num_batches_tracked"  # a mean of counts is no count


class Normed(nn.Module):
    """A convolution with batch norm, and dropout before the scores."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.drop, self.fc = nn.Dropout(dropout), nn.Linear(3 * 9, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.fc(self.drop(x.flatten(1)))


def small_federation() -> evenly.Federation:
    """Four clients of different sizes, whose last batches are smaller."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(90, 1, 6, 6)).astype(np.float32)
    y = (x[:, 0, :3].mean((1, 2)) > 0).astype(int)
    client = np.repeat(np.arange(4), [14, 20, 26, 30])
    return evenly.Federation.from_arrays(x, y, client)


def rounds_in_torch(module: nn.Module, federation: evenly.Federation, rounds: int) -> Any:
    """FedAvg written as a loop over clients."""
    received = copy.deepcopy(module.state_dict())
    sizes = federation.train.counts
    for _ in range(rounds):
        total = {key: torch.zeros_like(v, dtype=torch.float64) for key, v in received.items()}
        for k in range(federation.clients):
            own = copy.deepcopy(module)
            own.load_state_dict(received)
            train(own.train(), federation, federation.train.of(k))
            for key, value in own.state_dict().items():
                total[key] += value * float(sizes[k] / sizes.sum())
        received = {key: value.to(received[key].dtype) for key, value in total.items()}
    return received


def train(module: nn.Module, federation: evenly.Federation, rows: np.ndarray) -> None:
    optimiser = torch.optim.SGD(module.parameters(), RATE)
    for _ in range(EPOCHS):
        for begin in range(0, len(rows), BATCH):
            batch = rows[begin : begin + BATCH]
            x, y = torch.from_numpy(federation.x[batch]), torch.from_numpy(federation.y[batch])
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(x), y.long()).backward()
            optimiser.step()


def distance_after_three_rounds() -> float:
    """How far a run of three rounds is from the loop in PyTorch."""
    torch.manual_seed(3)
    federation, module = small_federation(), Normed()
    task: Any = evenly.from_torch(module, torch.zeros(2, 1, 6, 6))
    (trace,) = evenly.train(task, federation, METHOD, rounds=3)
    found, expected = task.to_torch(trace.model), rounds_in_torch(module, federation, 3)
    del found[COUNT], expected[COUNT]
    return farthest(*({k: v.numpy() for k, v in part.items()} for part in (found, expected)))

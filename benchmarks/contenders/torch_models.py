"""The three models in PyTorch: as a module, and as a function of a list of parameters in the same
order.
"""

from collections.abc import Callable

import numpy as np
import torch
from plan import Plan
from torch import Tensor, nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Parameters = list[Tensor]


def module(plan: Plan) -> nn.Module:
    if plan.kind != "lenet":
        outputs, inputs = plan.start[0].shape
        return nn.Linear(inputs, outputs).to(DEVICE)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Linear(128, 10),
    ).to(DEVICE)  # fmt: skip


def forward(plan: Plan) -> Callable[[Parameters, Tensor], Tensor]:
    return _lenet if plan.kind == "lenet" else lambda p, x: functional.linear(x, p[0], p[1])


def _lenet(p: Parameters, x: Tensor) -> Tensor:
    relu = functional.relu
    x = relu(
        functional.conv2d(relu(functional.conv2d(x, p[0], p[1], padding=1)), p[2], p[3], padding=1)
    )
    x = relu(functional.linear(functional.max_pool2d(x, 2).flatten(1), p[4], p[5]))
    return functional.linear(x, p[6], p[7])


def criterion(plan: Plan) -> Callable[..., Tensor]:
    """The loss of logits [n, outputs]; `reduction` as PyTorch has it."""
    if plan.kind == "logistic":
        return lambda z, y, reduction="mean": functional.binary_cross_entropy_with_logits(
            z[:, 0], y, reduction=reduction
        )
    return functional.cross_entropy


def examples(plan: Plan) -> tuple[Tensor, Tensor]:
    """All rows, on the device."""
    x = plan.x[:, None] if plan.kind == "lenet" else plan.x
    return torch.from_numpy(x).to(DEVICE), torch.from_numpy(
        plan.y.astype(np.float32 if plan.kind == "logistic" else np.int64)
    ).to(DEVICE)


def start(plan: Plan) -> Parameters:
    return [torch.from_numpy(value).to(DEVICE) for value in plan.start]


def on_host(parameters: Parameters) -> list[np.ndarray]:
    """Waits for a GPU."""
    return [value.detach().cpu().numpy() for value in parameters]

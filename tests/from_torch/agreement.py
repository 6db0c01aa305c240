"""How far translated modules are from PyTorch: outputs, losses, gradients, steps, and weights back.

Needs no test runner, so that `benchmarks/from_torch.py --agreement` measures it on any machine.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

import evenly
from evenly.data.federation import Shard
from evenly.parts.work import LocalTraining, training_loss
from evenly.trees import learned, with_learned
from tests.from_torch.modules import CASES, CLASSES, Case
from tests.from_torch.torch_loop import loss_of, masks_of, sgd_step

ROWS, PADDING, STEPS, RATE = 5, 2, 10, 0.05
# Its last images are single pixels, so that five rows decide the statistics of a channel, and
# rounding grows tenfold from step to step: after ten steps PyTorch in float32 is 0.24 from PyTorch
# in float64. Its steps in float32 are compared with float64 (`drift`).
UNSTABLE = "resnet18-batch"

Entries = dict[str, np.ndarray]


class Pair:
    """A module and its translation."""

    def __init__(self, case: Case, *, double: bool) -> None:
        torch.manual_seed(1)
        self.double, self.case = double, case
        self.module = case.build().double() if double else case.build()
        self.task: Any = evenly.from_torch(self.module, case.rows(2))
        self.initial = self.task.init(jax.random.key(0))
        self.step = jax.jit(LocalTraining(learning_rate=RATE).step)

    def batch(self, seed: int) -> tuple[tuple[torch.Tensor, torch.Tensor], Shard]:
        """Rows for PyTorch, and the same with padding for the simulator."""
        x = self.case.rows(ROWS, seed)
        x = x.double() if self.double and x.is_floating_point() else x
        y = torch.arange(ROWS) * 2 % CLASSES
        padded = [np.pad(a, [(0, PADDING)] + [(0, 0)] * (a.ndim - 1)) for a in (x, y)]
        mask = np.pad(np.ones(ROWS, np.float32), (0, PADDING))
        whole, ones = padded[1].astype(np.int32), np.ones_like(mask)
        arrays = (padded[0], whole, np.zeros_like(whole), ones, mask)
        return (x, y), Shard(*map(jnp.asarray, arrays))

    def entries(self, model: Any) -> Entries:
        """A model by the names of PyTorch."""
        return {key: value.numpy() for key, value in self.task.to_torch(model).items()}

    def state(self) -> Entries:
        """The module by the same names."""
        return {key: value.numpy().copy() for key, value in self.module.state_dict().items()}

    def outputs(self, model: Any) -> float:
        """Distance of the outputs of a model from those of the module."""
        (x, _), _ = self.batch(7)
        with torch.no_grad():
            expected = self.module.eval()(x).numpy()
        return distance(jax.jit(self.task.outputs)(model, x.numpy()), expected)

    def gradient(self) -> tuple[float, float]:
        """Distances of a loss and of its gradient."""
        (x, y), shard = self.batch(3)
        key = jax.random.key(5)
        before = {name: value.clone() for name, value in self.module.state_dict().items()}
        masks = masks_of(self.task, self.initial, shard, key)
        expected = loss_of(self.module, x, y, masks).numpy()

        def objective(params: Any) -> Any:
            return training_loss(self.task, with_learned(self.initial, params), shard, key)[0]

        loss, gradient = jax.jit(jax.value_and_grad(objective))(learned(self.initial))
        found = self.entries(with_learned(self.initial, gradient))
        parameters = self.module.named_parameters()
        wanted = {name: value.grad.numpy() for name, value in parameters if value.grad is not None}
        self.module.load_state_dict(before)  # batch norm has seen a batch
        return distance(loss, expected), farthest({name: found[name] for name in wanted}, wanted)

    def train(self, steps: int = STEPS) -> Any:
        """Steps of SGD in both, with the same dropout masks; returns the translated model."""
        local = LocalTraining(learning_rate=RATE).start(self.task, self.initial, None)
        for i in range(steps):
            (x, y), shard = self.batch(i)
            key = jax.random.key(i)
            sgd_step(self.module, x, y, RATE, masks_of(self.task, local.model, shard, key))
            local = self.step(self.task, self.initial, local, shard, key)
        return local.model


def distance(found: Any, expected: Any) -> float:
    """The largest difference of two arrays, over one plus the size of what is expected."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    if found.shape != expected.shape:
        raise ValueError(f"Shape {found.shape} in place of {expected.shape}.")
    largest = (np.abs(found - expected) / (1 + np.abs(expected))).max(initial=0.0)
    return float(largest) if np.isfinite(largest) else float("inf")


def farthest(found: Entries, expected: Entries) -> float:
    """The largest distance of arrays with the same names."""
    if found.keys() != expected.keys():
        raise ValueError(f"{sorted(found)} in place of {sorted(expected)}.")
    return max(distance(found[name], expected[name]) for name in expected)


class Distances(NamedTuple):
    """How far a translation is from PyTorch."""

    outputs: float
    loss: float
    gradient: float
    steps: float  # all entries of the state dict after ten steps
    back: float  # outputs of the trained weights, given back to a new module


def distances(name: str, *, double: bool) -> Distances:
    """Train a module and its translation, and compare them."""
    with jax.enable_x64(double):
        pair = Pair(CASES[name], double=double)
        outputs, (loss, gradient) = pair.outputs(pair.initial), pair.gradient()
        trained = pair.train()
        steps = farthest(pair.entries(trained), pair.state())
        pair.module = CASES[name].build().double() if double else CASES[name].build()
        pair.module.load_state_dict(pair.task.to_torch(trained))
        return Distances(outputs, loss, gradient, steps, pair.outputs(trained))


def drift(name: str, steps: int) -> tuple[float, float]:
    """How far float32 takes the translation, and PyTorch, from PyTorch in float64. Without dropout,
    whose masks differ.
    """
    pair = Pair(CASES[name], double=False)
    found = pair.entries(pair.train(steps))
    with jax.enable_x64(True):
        exact = Pair(CASES[name], double=True)
        exact.train(steps)
    return farthest(found, exact.state()), farthest(pair.state(), exact.state())

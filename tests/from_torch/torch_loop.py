"""The same steps in PyTorch, with the random masks of the translation."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from evenly.data.federation import Shard
from evenly.torch_models.graph import evaluate
from evenly.torch_models.module_task import TorchTrainingModel, values_of
from evenly.torch_models.operands import StepDraws


class RecordedDraws(StepDraws):
    """Random numbers that are kept, to give them to PyTorch."""

    def __init__(self, key: Any) -> None:
        super().__init__(key)
        self.masks: list[Any] = []

    def keep(self, probability: float, shape: tuple[int, ...]) -> Any:
        self.masks.append(super().keep(probability, shape))
        return self.masks[-1]


def masks_of(task: Any, model: Any, batch: Shard, key: Any) -> list[np.ndarray]:
    """The masks that a step draws."""
    if not isinstance(task, TorchTrainingModel):
        return []
    return [np.asarray(mask) for mask in _masks(task, model, batch, key)]


@jax.jit
def _masks(task: TorchTrainingModel, model: Any, batch: Shard, key: Any) -> list[Any]:
    draws, values = RecordedDraws(key), {**task.constants, **values_of(model)}
    evaluate(task.training, values, batch.x, mask=batch.mask, draws=draws)
    return draws.masks


class _GivenMasks(TorchDispatchMode):
    """Every dropout of PyTorch on a CPU fills a tensor with `bernoulli_`."""

    def __init__(self, masks: Sequence[np.ndarray], images: bool) -> None:
        super().__init__()
        self.masks, self.images = list(masks), images

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.bernoulli_.float:
            mask = self.masks.pop(0)
            # Images have their channels last, and padding comes after the rows.
            mask = np.moveaxis(mask, -1, 1) if mask.ndim == 4 and self.images else mask
            cut = mask[tuple(slice(0, side) for side in args[0].shape)]
            return args[0].copy_(torch.from_numpy(np.array(cut)))
        return func(*args, **(kwargs or {}))


@contextmanager
def given_masks(masks: Sequence[np.ndarray], *, images: bool = False) -> Iterator[None]:
    """Let PyTorch use these masks for dropout, all of them. `images`: masks with four axes have
    their channels last.
    """
    with _GivenMasks(masks, images) as mode:
        yield
    assert not mode.masks


def loss_of(module: nn.Module, x: torch.Tensor, y: torch.Tensor, masks: Any) -> torch.Tensor:
    """The mean cross-entropy in training, with gradients in the parameters."""
    module.train()
    module.zero_grad()
    with given_masks(masks):
        loss = nn.functional.cross_entropy(module(x), y)
    loss.backward()
    return loss.detach()


def sgd_step(module: nn.Module, x: torch.Tensor, y: torch.Tensor, rate: float, masks: Any) -> None:
    """One step of SGD."""
    loss_of(module, x, y, masks)
    with torch.no_grad():
        for value in module.parameters():
            value -= rate * value.grad

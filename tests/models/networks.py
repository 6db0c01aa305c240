"""Small networks and data for them: seconds, not minutes."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from evenly.data.federation import Federation, Shard
from evenly.models import CNN, CharLSTM, LeNet, ResNet
from evenly.types import Task

CLASSES = 3
SMALL: dict[str, Task] = {
    "lenet": LeNet(classes=CLASSES, shape=(8, 8, 1), widths=(4, 6, 8)),
    "lenet-no-bias": LeNet(classes=CLASSES, shape=(8, 8, 1), widths=(4, 6, 8), bias=False),
    "cnn": CNN(classes=CLASSES, shape=(11, 10, 3), channels=(3, 4), hidden=(7, 5), kernel=3),
    "resnet": ResNet(classes=CLASSES, shape=(8, 8, 3), width=2, blocks=(1, 1)),
    "char-lstm": CharLSTM(symbols=CLASSES, embedding=2, hidden=6, layers=2),
}


def examples(name: str, n: int, seed: int = 0) -> np.ndarray:
    """Images as bytes, or rows of symbols."""
    draw = np.random.default_rng(seed)
    if name == "char-lstm":
        return draw.integers(0, CLASSES, (n, 12)).astype(np.int32)
    return draw.integers(0, 256, (n, *SMALL[name].shape), np.uint8)  # pyright: ignore[reportAttributeAccessIssue]


def shard(x: Any, y: Any) -> Shard:
    n = len(y)
    return Shard(jnp.asarray(x), jnp.asarray(y), jnp.zeros(n, int), jnp.ones(n), jnp.ones(n))


def federation(name: str) -> Federation:
    """Four clients of 6 to 12 rows, whose label can be seen: images grow brighter, rows of symbols
    end with it.
    """
    draw = np.random.default_rng(1)
    sizes = (6, 9, 12, 8)
    owner, y = np.repeat(np.arange(len(sizes)), sizes), draw.integers(0, CLASSES, sum(sizes))
    x = examples(name, len(y))
    if name == "char-lstm":
        x[:, -2:] = y[:, None]
    else:
        x = (x // 4 + 64 * y.reshape(-1, 1, 1, 1)).astype(np.uint8)
    return Federation.from_arrays(x, y, owner, name=name)

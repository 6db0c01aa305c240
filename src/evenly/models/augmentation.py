"""Augmentation: random changes of the features while a model is trained, inside the compiled step.

`Augmented` adds a function of a key and a batch of features to any task. `crop_and_flip` is the
usual one for small pictures (He et al., 2016).
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from evenly.data.federation import Shard
from evenly.models.task import TrainingTask, judged
from evenly.records import record, require, static
from evenly.types import Array, Key, Task, Tree

Augment = Callable[[Any, Array], Array]  # key and features [n, ...] -> features of the same form


@record
class Augmented:
    """A task whose features are changed at random in training. Evaluation and predictions see the
    features as they are.

    Args:
        task: Task to train.
        augment: ``augment(key, x)`` returns a batch of features of the same shape and type. It is
            compiled with the step, and a new key comes with every step.

    Raises:
        ValueError: If `augment` is not a function.

    Example:
        >>> from evenly.models import MLP
        >>> def noise(key, x):
        ...     return x + 0.1 * jax.random.normal(key, x.shape)
        >>> task = Augmented(task=MLP(features=4, classes=2), augment=noise)
        >>> task.predict(task.init(jax.random.key(0)), jnp.ones((3, 4))).shape
        (3,)
    """

    task: Task
    augment: Augment = static()

    def __post_init__(self) -> None:
        require(
            callable(self.augment),
            f"augment must be a function of a key and features, got {self.augment!r}.",
        )

    @property
    def joint(self) -> bool:
        """Runs are vectorised."""
        return False

    @property
    def reduction(self) -> str:
        """As the task's."""
        return self.task.reduction

    def init(self, key: Key) -> Tree:
        """As the task's."""
        return self.task.init(key)

    def losses(self, params: Tree, shard: Shard) -> Array:
        """Loss of each row as it is. [n]"""
        return self.task.losses(params, shard)

    def train_losses(self, model: Tree, shard: Shard, key: Any) -> tuple[Array, Tree]:
        """Loss of each row after its change, and the new state of the model. [n]"""
        own, inner = jax.random.split(key)
        x = self.augment(own, shard.x)
        if x.shape != shard.x.shape or x.dtype != shard.x.dtype:
            raise ValueError(
                "augment must return features of the shape and type that it gets,"
                f" {shard.x.dtype}{list(shard.x.shape)}, but it returned {x.dtype}{list(x.shape)}."
            )
        changed = shard._replace(x=x)
        if isinstance(self.task, TrainingTask):
            return self.task.train_losses(model, changed, inner)
        return self.task.losses(model, changed), ()

    def penalty(self, params: Tree) -> Array | float:
        """As the task's."""
        return self.task.penalty(params)

    def predict(self, params: Tree, x: Array) -> Array:
        """Class number of each row as it is. [n]"""
        return self.task.predict(params, x)

    def judge(self, params: Tree, shard: Shard) -> tuple[Array, Array]:
        """Losses and predictions of rows as they are. [n] and [n]"""
        return judged(self.task, params, shard)


@functools.cache  # tasks with the same augmentation share a program
def crop_and_flip(padding: int = 4, *, channels_first: bool = False) -> Augment:
    """Build an augmentation for pictures: pad with zeros, crop at a random place, and mirror half
    of the pictures.

    Args:
        padding: Pixels that are added on every side before the crop.
        channels_first: Whether pictures are [n, channels, height, width], as PyTorch has them,
            instead of [n, height, width] or [n, height, width, channels].

    Returns:
        A function of a key and pictures, for `Augmented`.

    Raises:
        ValueError: If the padding is negative.

    Example:
        >>> pictures = jnp.ones((2, 8, 8, 3))
        >>> crop_and_flip(padding=2)(jax.random.key(0), pictures).shape
        (2, 8, 8, 3)
    """
    require(padding >= 0, f"padding must be at least 0, got {padding}.")
    high = 1 if channels_first else 0  # axes of one picture

    def one(key: Any, picture: Array) -> Array:
        place, mirror = jax.random.split(key)
        sides = [
            (padding, padding) if high <= i < high + 2 else (0, 0) for i in range(picture.ndim)
        ]
        corner = jax.random.randint(place, (2,), 0, 2 * padding + 1)
        start = [corner[i - high] if high <= i < high + 2 else 0 for i in range(picture.ndim)]
        cropped = lax.dynamic_slice(jnp.pad(picture, sides), start, picture.shape)
        flipped = jnp.flip(cropped, high + 1)
        return jnp.where(jax.random.bernoulli(mirror), flipped, cropped)

    def augment(key: Any, x: Array) -> Array:
        return jax.vmap(one)(jax.random.split(key, x.shape[0]), x)

    return augment

"""A user's own model as a Task: an (initialise, apply) pair, or an equinox module."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from evenly.data.federation import Shard
from evenly.models.linear import check_sizes, cross_entropy
from evenly.records import record, static
from evenly.types import Key, Tree


@record
class Custom:
    """A classifier given by `initialise(key) -> params` and `apply(params, x) -> logits [n, classes]`.

    `params` may be any pytree of float arrays. With `joint`, `apply` must also take parameters with a trailing run axis
    and return [n, classes, runs].
    """

    initialise: Callable[[Key], Tree] = static()
    apply: Callable[[Tree, Any], jax.Array] = static()
    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def __post_init__(self) -> None:
        check_sizes("custom", self.reduction)

    def init(self, key: Key) -> Tree:
        return self.initialise(key)

    def losses(self, params: Tree, shard: Shard) -> jax.Array:
        return cross_entropy(self._logits(params, shard.x), shard.y)

    def penalty(self, params: Tree) -> float:
        return 0.0

    def predict(self, params: Tree, x: jax.Array) -> jax.Array:
        return self._logits(params, x).argmax(1)

    def judge(self, params: Tree, shard: Shard) -> tuple[jax.Array, jax.Array]:
        logits = self._logits(params, shard.x)
        return cross_entropy(logits, shard.y), logits.argmax(1)

    def probabilities(self, params: Tree, x: jax.Array) -> jax.Array:
        return jax.nn.softmax(self._logits(params, x), axis=1)

    def _logits(self, params: Tree, x: jax.Array) -> jax.Array:
        logits = self.apply(params, x)
        if logits.ndim < 2 or logits.shape[0] != x.shape[0] or logits.shape[1] < 2:
            raise ValueError(
                f"Your model must give one row of at least two class scores per example, [{x.shape[0]}, classes] here; "
                f"it gave shape {logits.shape}. An equinox module maps one example to [classes]."
            )
        return logits


def from_equinox(build: Callable[[Key], Any]) -> Custom:
    """A Task from `build(key) -> equinox module`, a module that maps one example to its logits.

    Float arrays of the module are trained; everything else (activations, sizes, integer arrays) is built once and fixed.
    """
    fixed = eqx.filter(build(jax.random.key(0)), eqx.is_inexact_array, inverse=True)

    def initialise(key: Key) -> Tree:
        return eqx.filter(build(key), eqx.is_inexact_array)

    def apply(params: Tree, x: Any) -> jax.Array:
        return jax.vmap(eqx.combine(params, fixed))(x)

    return Custom(initialise=initialise, apply=apply)

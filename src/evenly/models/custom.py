"""A user's own model as a Task: an (init, apply) pair, or an equinox module."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from evenly.models.linear import cross_entropy
from evenly.records import record, static
from evenly.types import Key, Shard, Tree


@record
class Custom:
    """A classifier given by `initialise(key) -> params` and `apply(params, x) -> logits [n, classes]`."""

    initialise: Callable[[Key], Tree] = static()
    apply: Callable[[Tree, Any], jax.Array] = static()
    joint: bool = static(False)
    reduction: str = static("mean")

    def init(self, key: Key) -> Tree:
        return self.initialise(key)

    def losses(self, params: Tree, shard: Shard) -> jax.Array:
        return cross_entropy(self.apply(params, shard.x), shard.y)

    def penalty(self, params: Tree) -> float:
        return 0.0

    def predict(self, params: Tree, x: jax.Array) -> jax.Array:
        return self.apply(params, x).argmax(1)


def from_equinox(build: Callable[[Key], Any]) -> Custom:
    """A Task from `build(key) -> equinox module`, a module that maps one example to its logits."""
    # Everything that is not a float array (activations, sizes) is the same for every key.
    skeleton = eqx.filter_eval_shape(build, jax.random.key(0))
    rest = eqx.filter(skeleton, lambda leaf: not isinstance(leaf, jax.ShapeDtypeStruct))

    def initialise(key: Key) -> Tree:
        return eqx.filter(build(key), eqx.is_inexact_array)

    def apply(params: Tree, x: Any) -> jax.Array:
        return jax.vmap(eqx.combine(params, rest))(x)

    return Custom(initialise=initialise, apply=apply)

"""Softmax (multinomial logistic) regression, started at zero."""

import jax
import jax.numpy as jnp

from evenly.data.federation import Shard
from evenly.models.linear import check_sizes, cross_entropy, product
from evenly.records import record, static
from evenly.types import Key, Tree


@record
class Softmax:
    """argmax(x W + b) with cross-entropy. The objective is convex, so the start does not matter: zeros."""

    features: int = static()
    classes: int = static()
    joint: bool = static(default=True)
    reduction: str = static(default="mean")

    def __post_init__(self) -> None:
        check_sizes("softmax", self.reduction, features=(self.features, 1), classes=(self.classes, 2))

    def init(self, key: Key) -> Tree:
        return {"w": jnp.zeros((self.features, self.classes)), "b": jnp.zeros((self.classes,))}

    def losses(self, params: Tree, shard: Shard) -> jax.Array:
        return cross_entropy(self._logits(params, shard.x), shard.y)

    def penalty(self, params: Tree) -> float:
        return 0.0

    def predict(self, params: Tree, x: jax.Array) -> jax.Array:
        return self._logits(params, x).argmax(1)

    def probabilities(self, params: Tree, x: jax.Array) -> jax.Array:
        return jax.nn.softmax(self._logits(params, x), axis=1)

    def _logits(self, params: Tree, x: jax.Array) -> jax.Array:
        return product(x, params["w"]) + params["b"]

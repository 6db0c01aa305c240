"""A multilayer perceptron with ReLU and He initialisation."""

import jax
import jax.numpy as jnp

from evenly.models.linear import cross_entropy
from evenly.records import record, require, static
from evenly.types import Key, Shard, Tree


@record
class MLP:
    """Dense layers of the widths in `hidden`, then a softmax over the classes."""

    features: int = static()
    classes: int = static()
    hidden: tuple[int, ...] = static((64,))
    joint: bool = static(False)
    reduction: str = static("mean")

    def __post_init__(self) -> None:
        require(bool(self.hidden) and min(self.hidden) > 0, f"mlp: hidden must be positive widths, got {self.hidden!r}.")

    def init(self, key: Key) -> Tree:
        widths = (self.features, *self.hidden, self.classes)
        pairs = list(zip(widths[:-1], widths[1:], strict=True))
        keys = jax.random.split(key, len(pairs))
        return [
            {"w": jax.random.normal(k, (a, b)) * jnp.sqrt(2.0 / a), "b": jnp.zeros((b,))}
            for k, (a, b) in zip(keys, pairs, strict=True)
        ]

    def losses(self, params: Tree, shard: Shard) -> jax.Array:
        return cross_entropy(self._logits(params, shard.x), shard.y)

    def penalty(self, params: Tree) -> float:
        return 0.0

    def predict(self, params: Tree, x: jax.Array) -> jax.Array:
        return self._logits(params, x).argmax(1)

    def _logits(self, params: Tree, x: jax.Array) -> jax.Array:
        for layer in params[:-1]:
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
        return x @ params[-1]["w"] + params[-1]["b"]

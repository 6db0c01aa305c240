"""A multilayer perceptron with ReLU."""

import jax
import jax.numpy as jnp

from evenly.data.federation import Shard
from evenly.models.convolution import dense
from evenly.models.linear import check_sizes, cross_entropy, flat
from evenly.records import record, require, static
from evenly.types import Key, Tree


@record
class MLP:
    """Dense layers of the widths in `hidden`, then a softmax over the classes.

    Weights start normal with variance 2 / inputs before a ReLU (He) and 1 / inputs in the last layer, which has none,
    so that logits of standardised features start with a variance of about 1; biases, if any, start at zero.
    """

    features: int = static()
    classes: int = static()
    hidden: tuple[int, ...] = static(default=(64,))
    bias: bool = static(default=True)
    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def __post_init__(self) -> None:
        check_sizes("mlp", self.reduction, features=(self.features, 1), classes=(self.classes, 2))
        legal = isinstance(self.hidden, tuple) and bool(self.hidden) and all(isinstance(h, int) and h > 0 for h in self.hidden)
        require(legal, f"mlp: hidden must be a tuple of positive widths, such as (64,), got {self.hidden!r}.")

    def init(self, key: Key) -> Tree:
        widths = (self.features, *self.hidden, self.classes)
        gains = [2.0] * len(self.hidden) + [1.0]
        keys = jax.random.split(key, len(gains))
        return [
            {"w": jax.random.normal(k, (a, b)) * jnp.sqrt(gain / a), **({"b": jnp.zeros((b,))} if self.bias else {})}
            for k, a, b, gain in zip(keys, widths[:-1], widths[1:], gains, strict=True)
        ]

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
        x = flat(x)
        for layer in params[:-1]:
            x = jax.nn.relu(dense(x, layer))
        return dense(x, params[-1], last=True)

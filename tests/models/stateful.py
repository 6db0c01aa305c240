"""A small network with dropout and batch norm, to try tasks that behave differently in training."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.nn import log_softmax

from evenly.data.federation import Shard
from evenly.records import record, static
from evenly.trees import Stateful
from evenly.types import Array, Tree

MOMENTUM, SMALLEST = 0.9, 1e-5


@record
class Normalised:
    """A linear classifier on features that are normalised by batch statistics while it is trained
    and by their running means in predictions; some features are dropped in training.
    """

    features: int = static()
    classes: int = static()
    dropout: float = static(default=0.0)
    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def init(self, key: Any) -> Stateful:
        weights = 0.1 * jax.random.normal(key, (self.features, self.classes))
        state = {"mean": jnp.zeros(self.features), "square": jnp.ones(self.features)}
        return Stateful({"w": weights, "b": jnp.zeros(self.classes)}, state)

    def losses(self, model: Stateful, shard: Shard) -> Array:
        return _losses(self._logits(model, shard.x), shard.y)

    def penalty(self, model: Stateful) -> float:
        return 0.0

    def predict(self, model: Stateful, x: Array) -> Array:
        return jnp.argmax(self._logits(model, x), axis=-1)

    def train_losses(self, model: Stateful, shard: Shard, key: Any) -> tuple[Array, Tree]:
        rows = jnp.maximum(shard.mask.sum(), 1.0)
        mean = (shard.x * shard.mask[:, None]).sum(0) / rows
        square = ((shard.x - mean) ** 2 * shard.mask[:, None]).sum(0) / rows
        kept = jax.random.bernoulli(key, 1 - self.dropout, shard.x.shape) / (1 - self.dropout)
        x = (shard.x - mean) / jnp.sqrt(square + SMALLEST) * kept
        new = {"mean": mean, "square": square}
        state = jax.tree.map(lambda a, b: MOMENTUM * a + (1 - MOMENTUM) * b, model.state, new)
        return _losses(x @ model.params["w"] + model.params["b"], shard.y), state

    def _logits(self, model: Stateful, x: Array) -> Array:
        x = (x - model.state["mean"]) / jnp.sqrt(model.state["square"] + SMALLEST)
        return x @ model.params["w"] + model.params["b"]


def _losses(logits: Array, y: Array) -> Array:
    return -jnp.take_along_axis(log_softmax(logits), y[:, None], axis=-1)[:, 0]

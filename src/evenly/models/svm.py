"""Linear support vector machine.

The public q-FFL code trains Vehicle on 0.5 ||w||^2 + the *sum* of hinges, not their mean, and its q was tuned on that
scale: `reduction="sum"` restores it.
"""

import jax
import jax.numpy as jnp

from evenly.models.linear import over_runs, product
from evenly.records import record, require, static
from evenly.types import Key, Shard, Tree


@record
class LinearSVM:
    """sign(x w + b) with hinge losses max(0, 1 - y z) and a penalty on w; labels 0 and 1 stand for -1 and +1."""

    features: int = static()
    reduction: str = static("mean")
    regularisation: float = 1.0
    joint: bool = static(True)

    def __post_init__(self) -> None:
        require(self.reduction in ("mean", "sum"), f"svm: reduction must be 'mean' or 'sum', got {self.reduction!r}.")

    def init(self, key: Key) -> Tree:
        return {"w": jnp.zeros((self.features,)), "b": jnp.zeros(())}

    def losses(self, params: Tree, shard: Shard) -> jax.Array:
        margin = product(shard.x, params["w"]) + params["b"]
        return jnp.maximum(0.0, 1.0 - over_runs(2.0 * shard.y - 1.0, margin) * margin)

    def penalty(self, params: Tree) -> jax.Array:
        return 0.5 * self.regularisation * (params["w"] ** 2).sum(0)

    def predict(self, params: Tree, x: jax.Array) -> jax.Array:
        return (product(x, params["w"]) + params["b"] > 0).astype(jnp.int32)

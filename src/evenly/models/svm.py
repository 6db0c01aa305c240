"""Linear support vector machine.

The public q-FFL code trains Vehicle on 0.5 ||w||^2 + the *sum* of hinges, not their mean, and its q was tuned on that
scale: `reduction="sum"` restores it.
"""

import jax
import jax.numpy as jnp

from evenly.data.federation import Shard
from evenly.models.linear import check_sizes, over_runs, product
from evenly.records import is_number, record, require, static
from evenly.types import Key, Tree


@record
class LinearSVM:
    """sign(x w + b) with hinge losses max(0, 1 - y z) and a penalty on w; labels 0 and 1 stand for -1 and +1."""

    features: int = static()
    reduction: str = static(default="mean")
    regularisation: float = 1.0
    joint: bool = static(default=True)

    def __post_init__(self) -> None:
        check_sizes("svm", self.reduction, features=(self.features, 1))
        if is_number(self.regularisation):
            require(self.regularisation >= 0, f"svm: regularisation must be at least 0, got {self.regularisation}.")

    def init(self, key: Key) -> Tree:
        return {"w": jnp.zeros((self.features,)), "b": jnp.zeros(())}

    def losses(self, params: Tree, shard: Shard) -> jax.Array:
        margin = self._margin(params, shard.x)
        return jnp.maximum(0.0, 1.0 - over_runs(2.0 * shard.y - 1.0, margin) * margin)

    def penalty(self, params: Tree) -> jax.Array:
        return 0.5 * self.regularisation * (params["w"] ** 2).sum(0)

    def predict(self, params: Tree, x: jax.Array) -> jax.Array:
        return (self._margin(params, x) > 0).astype(jnp.int32)

    def _margin(self, params: Tree, x: jax.Array) -> jax.Array:
        return product(x, params["w"]) + params["b"]

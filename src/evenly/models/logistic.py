"""Binary logistic regression with a single logit, started at zero."""

import jax
import jax.numpy as jnp

from evenly.models.linear import over_runs, product
from evenly.records import record, static
from evenly.types import Key, Shard, Tree


@record
class Logistic:
    """P(y = 1) = sigmoid(x w + b). Half the arithmetic of a two-class softmax."""

    features: int = static()
    joint: bool = static(True)
    reduction: str = static("mean")

    def init(self, key: Key) -> Tree:
        return {"w": jnp.zeros((self.features,)), "b": jnp.zeros(())}

    def losses(self, params: Tree, shard: Shard) -> jax.Array:
        z = self._logit(params, shard.x)
        return jax.nn.softplus(z) - over_runs(shard.y, z) * z

    def penalty(self, params: Tree) -> float:
        return 0.0

    def predict(self, params: Tree, x: jax.Array) -> jax.Array:
        return (self._logit(params, x) > 0).astype(jnp.int32)

    def _logit(self, params: Tree, x: jax.Array) -> jax.Array:
        return product(x, params["w"]) + params["b"]

"""Binary logistic regression with a single logit, started at zero."""

import jax
import jax.numpy as jnp

from evenly.data.federation import Shard
from evenly.models.linear import check_sizes, over_runs, product
from evenly.records import record, static
from evenly.types import Key, Tree


@record
class Logistic:
    """P(y = 1) = sigmoid(x w + b). Half the arithmetic of a two-class softmax."""

    features: int = static()
    joint: bool = static(default=True)
    reduction: str = static(default="mean")

    def __post_init__(self) -> None:
        check_sizes("logistic", self.reduction, features=(self.features, 1))

    def init(self, key: Key) -> Tree:
        return {"w": jnp.zeros((self.features,)), "b": jnp.zeros(())}

    def losses(self, params: Tree, shard: Shard) -> jax.Array:
        z = self._logit(params, shard.x)
        # softplus(z) - y z would lose all digits of a small loss at a large logit.
        return jax.nn.softplus(jnp.where(over_runs(shard.y, z) == 1, -z, z))

    def penalty(self, params: Tree) -> float:
        return 0.0

    def predict(self, params: Tree, x: jax.Array) -> jax.Array:
        return (self._logit(params, x) > 0).astype(jnp.int32)

    def probabilities(self, params: Tree, x: jax.Array) -> jax.Array:
        z = self._logit(params, x)
        return jnp.stack([jax.nn.sigmoid(-z), jax.nn.sigmoid(z)], axis=1)

    def _logit(self, params: Tree, x: jax.Array) -> jax.Array:
        return product(x, params["w"]) + params["b"]

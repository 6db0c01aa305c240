"""A client chooses the group whose model has the lowest loss on its own rows: one forward pass for each group."""

import jax
import jax.numpy as jnp
from jax import lax

from evenly.data.federation import Shard
from evenly.ranking.supernetwork import Supernetwork
from evenly.types import Array, Tree


def lowest_loss(task: Supernetwork, masks: Tree, shard: Shard) -> Array:
    """E2FL, Algorithm 3: argmin over the groups of the mean loss of `masks` [groups, ...]; of equals the first. int32"""

    def loss(mask: Tree) -> Array:
        return (task.inner.losses(task.subnetwork(mask), shard) * shard.mask).sum()

    # One group after another: side by side, the products of all of them would have to fit in memory.
    losses = lax.map(loss, jax.tree.map(jnp.asarray, masks))
    return jnp.argmin(jnp.where(jnp.isnan(losses), jnp.inf, losses)).astype(jnp.int32)

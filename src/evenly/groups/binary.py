"""A client chooses its group by halving: of the groups still in question, those that would lower the entropy least are dropped.

E2FL prints the rule the other way round: it drops masks whose gradient lies *below* the median, which are the ones that lower
the entropy, and which one-shot inference and its source (Supermasks in Superposition) keep. Here those are kept. Printed with
the median, the loop would also never end where gradients tie; here every step keeps exactly half, rounded up, by gradient and
then by number, which is the same without ties.
"""

import jax.numpy as jnp

from evenly.data.federation import Shard
from evenly.groups.entropy import entropy_gradient, group_count
from evenly.ranking.supernetwork import Supernetwork
from evenly.types import Array, Tree


def binary(task: Supernetwork, masks: Tree, shard: Shard) -> Array:
    """The last group left, after ceil(log2 groups) forward and backward passes. int32"""
    groups = group_count(masks)
    active, left = jnp.ones(groups, bool), groups
    while left > 1:
        gradient = entropy_gradient(task, masks, active / left, shard)
        left = (left + 1) // 2
        lowest = jnp.argsort(jnp.where(active, gradient, jnp.inf), stable=True)[:left]
        active = jnp.zeros(groups, bool).at[lowest].set(True)
    return jnp.argmax(active).astype(jnp.int32)

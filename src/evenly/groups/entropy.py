"""How sure a mixture of the groups' models is, and which group would make it surer.

Wortsman et al., "Supermasks in Superposition", NeurIPS 2020: mix the masks with shares alpha and look at the entropy of what
the mixture predicts; the right mask is the one whose larger share lowers the entropy most.
"""

import jax
import jax.numpy as jnp

from evenly.data.federation import Shard
from evenly.ranking.supernetwork import Supernetwork
from evenly.types import Array, Tree

TINY = 1e-30


def mixture_entropy(task: Supernetwork, masks: Tree, shares: Array, shard: Shard) -> Array:
    """Mean over the rows of -sum p ln p, p the probabilities under the mask sum_q shares[q] masks[q]."""
    mixed = jax.tree.map(lambda mask: jnp.tensordot(shares, mask, 1), masks)
    p = task.mixed_probabilities(mixed, shard.x)
    entropy = -(p * jnp.log(jnp.maximum(p, TINY))).sum(1)
    return (entropy * shard.mask).sum() / jnp.maximum(shard.mask.sum(), 1.0)


def entropy_gradient(task: Supernetwork, masks: Tree, shares: Array, shard: Shard) -> Array:
    """dH / d share, for each group: the lower, the surer the mixture would become. NaN counts as the highest. [groups]"""
    gradient = jax.grad(lambda alpha: mixture_entropy(task, masks, alpha, shard))(shares)
    return jnp.where(jnp.isnan(gradient), jnp.finfo(jnp.float32).max, gradient)


def group_count(masks: Tree) -> int:
    return jax.tree.leaves(masks)[0].shape[0]

"""Inference of a client's group, as in E2FL.

Rank clustering is done once by the server, before training. The others are done by a client in
every round, from the masks of the groups' models: `CHOOSERS` names them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from evenly.data.federation import Shard
from evenly.notation import unknown
from evenly.parts.ranking import Ballot, Supernetwork, ballot, elect, footrule
from evenly.randomness import Draws
from evenly.records import require
from evenly.types import Array, Tree

# How sure a mixture of the groups' models is, and which group would make it surer.
#
# Wortsman et al., "Supermasks in Superposition", NeurIPS 2020: mix the masks with shares alpha and
# look at the entropy of what the mixture predicts; the right mask is the one whose larger share
# lowers the entropy most.

TINY = 1e-30


def mixture_entropy(task: Supernetwork, masks: Tree, shares: Array, shard: Shard) -> Array:
    """Mean over the rows of -sum p ln p, p the probabilities under the mask sum_q shares[q]
    masks[q].
    """
    mixed = jax.tree.map(lambda mask: jnp.tensordot(shares, mask, 1), masks)
    p = task.mixed_probabilities(mixed, shard.x)
    entropy = -(p * jnp.log(jnp.maximum(p, TINY))).sum(1)
    return (entropy * shard.mask).sum() / jnp.maximum(shard.mask.sum(), 1.0)


def entropy_gradient(task: Supernetwork, masks: Tree, shares: Array, shard: Shard) -> Array:
    """dH / d share, for each group: the lower, the surer the mixture would become. NaN counts as
    the highest. [groups]
    """
    gradient = jax.grad(lambda alpha: mixture_entropy(task, masks, alpha, shard))(shares)
    return jnp.where(jnp.isnan(gradient), jnp.finfo(jnp.float32).max, gradient)


def group_count(masks: Tree) -> int:
    return jax.tree.leaves(masks)[0].shape[0]


# A client chooses its group by halving: of the groups still in question, those that would lower the
# entropy least are dropped.
#
# E2FL prints the rule the other way round: it drops masks whose gradient lies *below* the median,
# which are the ones that lower the entropy, and which one-shot inference and its source (Supermasks
# in Superposition) keep. Here those are kept. Printed with the median, the loop would also never
# end where gradients tie; here every step keeps exactly half, rounded up, by gradient and then by
# number, which is the same without ties.


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


# A client chooses the group whose model has the lowest loss on its own rows: one forward pass for
# each group.


def lowest_loss(task: Supernetwork, masks: Tree, shard: Shard) -> Array:
    """E2FL, Algorithm 3: argmin over the groups of the mean loss of `masks` [groups, ...]; of
    equals the first. int32
    """

    def loss(mask: Tree) -> Array:
        return (task.inner.losses(task.subnetwork(mask), shard) * shard.mask).sum()

    # One group after another: side by side, the products of all of them would have to fit in
    # memory.
    losses = lax.map(loss, jax.tree.map(jnp.asarray, masks))
    return jnp.argmin(jnp.where(jnp.isnan(losses), jnp.inf, losses)).astype(jnp.int32)


# Groups that are given, or drawn where nothing is known yet.


def membership(client_group: Any, groups: int) -> np.ndarray:
    """Who belongs to which group: bool [groups, clients], from each client's group number."""
    group = np.asarray(client_group)
    require(groups >= 1, f"There must be at least one group, got {groups}.")
    require(
        group.ndim == 1 and group.dtype.kind in "iu",
        f"Groups must be one whole number per client, got {group.dtype}{list(group.shape)}.",
    )
    strange = (group < 0) | (group >= groups)
    if strange.any():
        who = int(strange.argmax())
        raise ValueError(
            f"Groups are numbered from 0 to {groups - 1}, but client {who} is in group"
            f" {group[who]}. Correct it, or use more groups."
        )
    return group == np.arange(groups)[:, None]


def drawn_groups(clients: int, groups: int, seed: int) -> np.ndarray:
    """A random group for every client, by its number alone. int32 [clients]

    In the first round all groups' masks are equal, so that every client would choose the first
    group.
    """
    require(groups >= 1, f"There must be at least one group, got {groups}.")
    draws = Draws(seed, "groups")
    return np.array([draws.at(k).integers(groups) for k in range(clients)], np.int32)


# A client chooses its group with one forward and one backward pass: the one that would lower the
# entropy fastest.


def one_shot(task: Supernetwork, masks: Tree, shard: Shard) -> Array:
    """E2FL, Algorithm 3: argmax over the groups of -dH / d share at equal shares; of equals the
    first. int32

    `shard` is a batch of the client's training rows; up to 128 are enough.
    """
    groups = group_count(masks)
    return jnp.argmin(entropy_gradient(task, masks, jnp.full(groups, 1 / groups), shard)).astype(
        jnp.int32
    )


# The server finds groups once, before training: k-means on the orders that clients send, by
# Spearman's footrule.
#
# E2FL, Algorithm 2. Its text applies the footrule to the lists of edges as they are; the distance
# it means, how far apart two clients place an edge, is between *places*. The paper does not say how
# many iterations: at most 20 here, fewer once no client moves, and the best of a few restarts,
# because k-means stops at the first arrangement that it cannot improve by one move.


class Clustering(NamedTuple):
    """Groups of clients and the order that each of them elects."""

    choice: np.ndarray  # int32 [clients]
    centres: Tree  # places, [groups, ...]
    distance: float  # of all clients to their centres
    iterations: int  # of the restart that was best


def rank_clustering(
    places: Tree, groups: int, *, seed: int, iterations: int = 20, restarts: int = 5
) -> Clustering:
    """Cluster clients by their places [clients, ...]; the first centres are `groups` of them, drawn
    by `seed`.

    A subtree of the places, such as one layer, clusters by that alone. Of centres equally near the
    first is chosen; an empty cluster keeps its centre.
    """
    clients = jax.tree.leaves(places)[0].shape[0]
    require(groups >= 1, f"There must be at least one group, got {groups}.")
    require(
        groups <= clients,
        f"{clients} clients cannot be divided into {groups} groups. Use at most as many groups as"
        " clients.",
    )
    for name, value in (("iterations", iterations), ("restarts", restarts)):
        require(value >= 1, f"{name} must be at least 1, got {value}.")
    places = jax.tree.map(jnp.asarray, places)  # to the device once, not in every step
    draws = Draws(seed, "rank clustering")
    clusterings = [
        _from(places, draws.at(r).choice(clients, groups, replace=False), iterations)
        for r in range(restarts)
    ]
    return min(clusterings, key=lambda clustering: clustering.distance)


def _from(places: Tree, first: np.ndarray, iterations: int) -> Clustering:
    centres = jax.tree.map(lambda leaf: leaf[first], places)
    choice, distance = _nearest(places, centres)
    done = 0
    while done < iterations:
        centres = _centres(places, choice, centres)
        before, (choice, distance) = choice, _nearest(places, centres)
        done += 1
        if bool((before == choice).all()):
            break
    return Clustering(np.asarray(choice), centres, float(distance), done)


@jax.jit
def _nearest(places: Tree, centres: Tree) -> tuple[Array, Array]:
    """Each client's nearest centre, and the sum of the distances."""

    def one(client_places: Tree) -> tuple[Array, Array]:
        distances = lax.map(lambda centre: footrule(client_places, centre), centres)
        return jnp.argmin(distances).astype(jnp.int32), distances.min()

    choice, distances = lax.map(one, places)
    return choice, distances.sum()


@jax.jit
def _centres(places: Tree, choice: Array, centres: Tree) -> Tree:
    """What the members of every cluster elect."""
    groups = jax.tree.leaves(centres)[0].shape[0]

    def add(k: Array, total: Ballot) -> Ballot:
        own = ballot(jax.tree.map(lambda leaf: leaf[k], places))
        return jax.tree.map(lambda t, part: t.at[choice[k]].add(part), total, own)

    nothing = ballot(jax.tree.map(jnp.zeros_like, centres))
    elected = lax.map(elect, lax.fori_loop(0, choice.shape[0], add, nothing))
    empty = jnp.bincount(choice, length=groups) == 0
    return jax.tree.map(
        lambda old, new: jnp.where(empty.reshape(-1, *(1,) * (new.ndim - 1)), old, new),
        centres,
        elected,
    )


__all__ = [
    "CHOOSERS",
    "Chooser",
    "Clustering",
    "binary",
    "chooser",
    "drawn_groups",
    "lowest_loss",
    "membership",
    "one_shot",
    "rank_clustering",
]

# the network, masks [groups, ...], a client's rows -> group number
Chooser = Callable[[Supernetwork, Tree, Shard], Array]

CHOOSERS: dict[str, Chooser] = {"lowest-loss": lowest_loss, "one-shot": one_shot, "binary": binary}


def chooser(name: str) -> Chooser:
    """The way of choosing a group that is written `name`."""
    if name not in CHOOSERS:
        raise unknown("group inference", name, CHOOSERS)
    return CHOOSERS[name]

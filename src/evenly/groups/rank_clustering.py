"""The server finds groups once, before training: k-means on the orders that clients send, by Spearman's footrule.

E2FL, Algorithm 2. Its text applies the footrule to the lists of edges as they are; the distance it means, how far apart two
clients place an edge, is between *places*. The paper does not say how many iterations: at most 20 here, fewer once no client
moves, and the best of a few restarts, because k-means stops at the first arrangement that it cannot improve by one move.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from evenly.randomness import Draws
from evenly.ranking.ballots import Ballot, ballot, elect
from evenly.ranking.order import footrule
from evenly.records import require
from evenly.types import Array, Tree


class Clustering(NamedTuple):
    """Groups of clients and the order that each of them elects."""

    choice: np.ndarray  # int32 [clients]
    centres: Tree  # places, [groups, ...]
    distance: float  # of all clients to their centres
    iterations: int  # of the restart that was best


def rank_clustering(places: Tree, groups: int, *, seed: int, iterations: int = 20, restarts: int = 5) -> Clustering:
    """Cluster clients by their places [clients, ...]; the first centres are `groups` of them, drawn by `seed`.

    A subtree of the places, such as one layer, clusters by that alone. Of centres equally near the first is chosen; an empty
    cluster keeps its centre.
    """
    clients = jax.tree.leaves(places)[0].shape[0]
    require(groups >= 1, f"There must be at least one group, got {groups}.")
    require(groups <= clients, f"{clients} clients cannot be told apart into {groups} groups. Give at most as many groups as clients.")
    for name, value in (("iterations", iterations), ("restarts", restarts)):
        require(value >= 1, f"{name} must be at least 1, got {value}.")
    places = jax.tree.map(jnp.asarray, places)  # to the device once, not in every step
    draws = Draws(seed, "rank clustering")
    found = [_from(places, draws.at(r).choice(clients, groups, replace=False), iterations) for r in range(restarts)]
    return min(found, key=lambda clustering: clustering.distance)


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

    def one(own: Tree) -> tuple[Array, Array]:
        distances = lax.map(lambda centre: footrule(own, centre), centres)
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
    return jax.tree.map(lambda old, new: jnp.where(empty.reshape(-1, *(1,) * (new.ndim - 1)), old, new), centres, elected)

"""Votes on the order of edges: a Borda count, as one sum of places.

VOTE of E2FL and FRL adds up the places that every client gives an edge and sorts the sums. Sums of places outgrow what float32
holds exactly: 25 clients and a layer of 1.6 million edges reach 4e7, and 2^24 is the limit. So a ballot carries every place in
two digits, which are summed apart. With whole-number weights the vote is then exact for up to `MOST_BALLOTS` ballots, in
whatever order they are added; ties are real ties, and go to the edge with the lower number.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from evenly.ranking.order import ascending, placed
from evenly.types import Array, Tree

DIGIT = 2**11
MOST_BALLOTS = 2**24 // DIGIT


class Ballot(NamedTuple):
    """Places, or a weighted sum of them, as DIGIT * high + low."""

    high: Tree
    low: Tree


class Election(NamedTuple):
    """What a round of votes in groups decides."""

    overall: Tree  # places: one vote for each group that voted
    groups: Tree  # places, [groups, ...]: one vote for each client of the group


def ballot(places: Tree) -> Ballot:
    """One client's vote, ready to be summed."""
    high = jax.tree.map(lambda p: jnp.floor(p / DIGIT), places)
    return Ballot(high, jax.tree.map(lambda p, h: p - DIGIT * h, places, high))


def elect(total: Ballot) -> Tree:
    """The places that a sum of ballots decides, layer by layer."""
    return jax.tree.map(_elected, total.high, total.low)


def vote(places: Tree, weights: Array | None = None) -> Tree:
    """VOTE over stacked places [K, ...]; `weights` [K] are whole numbers, 0 for those who did not return, 1 for all if not given."""
    return elect(tally(places, weights))


def tally(places: Tree, weights: Array | None = None) -> Ballot:
    """The sum of weighted ballots over stacked places [K, ...]."""
    given = jnp.ones(jax.tree.leaves(places)[0].shape[0]) if weights is None else jnp.asarray(weights, jnp.float32)
    return jax.tree.map(lambda part: jnp.einsum("k,k...->...", given, part, precision="highest"), ballot(places))


def elect_groups(totals: Ballot, present: Array, last: Tree, *, absent_vote: bool = False) -> Election:
    """E2FL: every group elects its order, then every group has one vote on the order of all.

    `totals` [groups, ...] are summed ballots, `present` [groups] says which groups have any this round, and `last` [groups, ...]
    are the places that the others keep; with `absent_vote` those vote again with them.
    """
    new = jax.vmap(elect)(totals)
    groups = jax.tree.map(lambda a, b: jnp.where(present.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, last)
    return Election(vote(groups, jnp.ones(present.shape) if absent_vote else present), groups)


def _elected(high: Array, low: Array) -> Array:
    whole = jnp.floor(high)
    low = low + DIGIT * (high - whole)  # 0 unless weights were fractions
    carried = jnp.floor(low / DIGIT)
    keys = (whole + carried).reshape(-1), (low - DIGIT * carried).reshape(-1)
    return placed(ascending(*keys)).reshape(high.shape)

"""Servers of rank-based learning: the next model is what the ballots decide."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from evenly.ranking.ballots import Ballot, elect, elect_groups
from evenly.records import record, static
from evenly.types import Array, Tree


@record
class RankServer:
    """Replace the order of edges by the one elected (FRL's VOTE); the order before it has no say.

    The change that the rule hands on is the sum of the clients' ballots, each counted a whole number of times.
    """

    def init(self, model: Tree) -> Tree:
        return ()

    def update(self, change: Ballot, state: Tree, model: Tree) -> tuple[Tree, Tree]:
        return elect(change), state

    def serve(self, model: Tree, state: Tree) -> Tree:
        return model


class GroupVotes(NamedTuple):
    """What the clients of every group say in a round."""

    ballots: Ballot  # summed, [groups, ...]
    present: Array  # bool [groups] whether anybody of the group voted


@record
class GroupServer:
    """E2FL: each group elects its order, and the groups, one vote each, the order from which everybody starts next.

    The state are the groups' places [groups, ...]: of a group that was absent, those it elected last.
    """

    groups: int = static()
    absent_vote: bool = static(default=False)
    global_model: bool = static(default=False)

    def init(self, model: Tree) -> Tree:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.groups, *leaf.shape)), model)

    def update(self, change: GroupVotes, state: Tree, model: Tree) -> tuple[Tree, Tree]:
        return elect_groups(change.ballots, change.present, state, absent_vote=self.absent_vote)

    def serve(self, model: Tree, state: Tree) -> Tree:
        """The groups' models, or for each of them the model of all. [groups, ...]"""
        return self.init(model) if self.global_model else state

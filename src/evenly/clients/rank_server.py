"""The server of rank-based learning: its next model is what the ballots decide."""

from evenly.ranking.ballots import Ballot, elect
from evenly.records import record
from evenly.types import Tree


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

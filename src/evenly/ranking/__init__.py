"""Learning by ranking: which edges of a frozen random network to keep. A model is the place of every edge in its layer's order."""

from evenly.ranking.ballots import Ballot, Election, ballot, elect, elect_groups, vote
from evenly.ranking.frozen import Frozen
from evenly.ranking.order import dropped, footrule, inverse, places
from evenly.ranking.supernetwork import Supernetwork, supernetwork
from evenly.ranking.threshold import kth_lowest

__all__ = [
    "Ballot", "Election", "Frozen", "Supernetwork", "ballot", "dropped", "elect", "elect_groups", "footrule", "inverse", "kth_lowest",
    "places", "supernetwork", "vote",
]  # fmt: skip

"""Which group a client belongs to, where it does not say: E2FL's ways to infer it, one file each.

Rank clustering is done once by the server, before training. The others are done by a client in every round, from the masks
of the groups' models: `CHOOSERS` names them.
"""

from collections.abc import Callable

from evenly.data.federation import Shard
from evenly.groups.binary import binary
from evenly.groups.lowest_loss import lowest_loss
from evenly.groups.membership import drawn_groups, membership
from evenly.groups.one_shot import one_shot
from evenly.groups.rank_clustering import Clustering, rank_clustering
from evenly.notation import unknown
from evenly.ranking.supernetwork import Supernetwork
from evenly.types import Array, Tree

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

Chooser = Callable[[Supernetwork, Tree, Shard], Array]  # the network, masks [groups, ...], a client's rows -> group number

CHOOSERS: dict[str, Chooser] = {"lowest-loss": lowest_loss, "one-shot": one_shot, "binary": binary}


def chooser(name: str) -> Chooser:
    """The way of choosing a group that is written `name`."""
    if name not in CHOOSERS:
        raise unknown("group inference", name, CHOOSERS)
    return CHOOSERS[name]

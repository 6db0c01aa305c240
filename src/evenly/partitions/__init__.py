"""Ways to deal rows to clients, one file each: rows -> Federation. `PARTITIONS` names those that invent clients."""

from collections.abc import Callable

from evenly.federation import Federation
from evenly.partitions.card import ClientCard, GroupCard, describe, describe_groups, good_clients, left_over
from evenly.partitions.cov_diff_size import cov_diff_size
from evenly.partitions.cov_same_size import cov_same_size
from evenly.partitions.dirichlet import dirichlet
from evenly.partitions.dirichlet_attribute import dirichlet_attribute
from evenly.partitions.dirichlet_label_attribute import dirichlet_label_attribute
from evenly.partitions.equal import equal
from evenly.partitions.natural import choose_clients, natural
from evenly.partitions.official import official
from evenly.partitions.ratio_dirichlet import ratio_dirichlet
from evenly.partitions.rows import Rows, federate

__all__ = [
    "PARTITIONS", "ClientCard", "GroupCard", "Rows", "choose_clients", "cov_diff_size", "cov_same_size", "describe", "describe_groups",
    "dirichlet", "dirichlet_attribute", "dirichlet_label_attribute", "equal", "federate", "good_clients", "left_over", "natural",
    "official", "ratio_dirichlet",
]  # fmt: skip

PARTITIONS: dict[str, Callable[..., Federation]] = {
    "dirichlet": dirichlet,
    "equal": equal,
    "dirichlet-attribute": dirichlet_attribute,
    "dirichlet-label-attribute": dirichlet_label_attribute,
    "ratio-dirichlet": ratio_dirichlet,
    "cov-same-size": cov_same_size,
    "cov-diff-size": cov_diff_size,
}

"""Federations, and partitions, which assign the rows of a data set to clients. `PARTITIONS` maps
their names to functions.

>>> sorted(PARTITIONS)[:3]
['cov-diff-size', 'cov-same-size', 'dirichlet']
"""

from collections.abc import Callable

from evenly.data.federation import Federation
from evenly.data.partition import (
    Rows,
    choose_clients,
    dirichlet,
    dirichlet_attribute,
    dirichlet_label_attribute,
    equal,
    federate,
    natural,
    official,
)
from evenly.data.partition_coverage import cov_diff_size, cov_same_size, ratio_dirichlet

__all__ = [
    "PARTITIONS",
    "Rows",
    "choose_clients",
    "cov_diff_size",
    "cov_same_size",
    "dirichlet",
    "dirichlet_attribute",
    "dirichlet_label_attribute",
    "equal",
    "federate",
    "natural",
    "official",
    "ratio_dirichlet",
]

PARTITIONS: dict[str, Callable[..., Federation]] = {
    "dirichlet": dirichlet,
    "equal": equal,
    "dirichlet-attribute": dirichlet_attribute,
    "dirichlet-label-attribute": dirichlet_label_attribute,
    "ratio-dirichlet": ratio_dirichlet,
    "cov-same-size": cov_same_size,
    "cov-diff-size": cov_diff_size,
}

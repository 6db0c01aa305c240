"""Clients that differ in groups and in labels: every combination of a group and a label is dealt by Dirichlet shares of its own.

Unlike `dirichlet-attribute`, a group's rate of favourable labels then differs from client to client, so that local fairness
says little about global fairness.
"""

import numpy as np

from evenly.federation import Federation
from evenly.partitions.rows import Rows
from evenly.partitions.strata import deal_by_shares

NAME = "dirichlet-label-attribute"


def dirichlet_label_attribute(
    rows: Rows,
    *,
    clients: int = 5,
    alpha: float = 0.5,
    shares: tuple[float, float] = (0.9, 0.1),
    min_samples: int = 100,
    tries: int = 1000,
    central: np.ndarray | None = None,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Deal rows to clients by Dirichlet shares of each combination of group and label; see `dirichlet_attribute`."""
    strata = rows.y if rows.group is None else rows.group.astype(np.int64) * len(rows.labels) + rows.y
    return deal_by_shares(
        NAME, rows, strata, clients=clients, alpha=alpha, min_samples=min_samples, tries=tries, shares=shares, central=central,
        seed=seed, split_seed=split_seed,
    )  # fmt: skip

"""Clients whose people are of different groups: every group is dealt by Dirichlet shares of its own.

Ezzeldin et al., "FairFed: Enabling Group Fairness in Federated Learning" (AAAI 2023), and the FedCvg-Ratio study deal so: a
small alpha leaves some clients with hardly anyone of a group, a large one makes all clients alike. Labels follow the
groups: within a group, all clients see the same mix of labels but for chance.
"""

import numpy as np

from evenly.federation import Federation
from evenly.partitions.rows import Rows
from evenly.partitions.strata import deal_by_shares

NAME = "dirichlet-attribute"


def dirichlet_attribute(
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
    """Deal rows to clients by Dirichlet shares of each group.

    `seed` draws who gets which rows, `split_seed` which of them validate. `shares` are those of training and validation rows
    (what is left tests). Every client has at least `min_samples` rows, all its parts together, or the draw is repeated, at
    most `tries` times. Rows in `central` belong to no client.
    """
    strata = np.zeros(len(rows.y), np.int64) if rows.group is None else rows.group
    return deal_by_shares(
        NAME, rows, strata, clients=clients, alpha=alpha, min_samples=min_samples, tries=tries, shares=shares, central=central,
        seed=seed, split_seed=split_seed,
    )  # fmt: skip

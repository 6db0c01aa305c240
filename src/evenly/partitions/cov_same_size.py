"""Clients of equal size, some of which cover the unprivileged people well and some badly (`cov_same_size` of the study).

A bad client gets tolerance * coverage unprivileged rows; a good one as many as there are for it, at most
(1 + tolerance) * coverage; privileged rows fill every client up to the same size. What is left over belongs to no one.
"""

import numpy as np

from evenly.federation import Federation, split_rows
from evenly.partitions.coverage import plan
from evenly.partitions.rows import Rows, client_rows, federate, notation, numbered
from evenly.partitions.strata import deal_counts

NAME = "cov-same-size"


def cov_same_size(
    rows: Rows,
    *,
    coverage: float,
    clients: int = 0,
    tolerance: float = 0.1,
    good_share: float = 0.5,
    count_rule: str = "table",
    scale: bool = True,
    shares: tuple[float, float] = (0.9, 0.1),
    central: np.ndarray | None = None,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Deal rows so that good clients, which come first, have `coverage` unprivileged rows within the tolerance.

    `clients` is their number; 0 leaves it to `count_rule`. At least the share `good_share` of them, rounded down, is good, and
    more where the rows allow no fewer. `scale` multiplies the coverage by the share of rows that is not central.
    """
    dealt = client_rows(rows, central)
    quota, unprivileged = plan(
        rows, dealt, coverage=coverage, clients=clients, tolerance=tolerance, good_share=good_share, count_rule=count_rule, scale=scale
    )
    wanted = np.where(np.arange(quota.clients) < quota.good, quota.good_rows, quota.bad_rows)
    counts = np.stack([quota.size - wanted, wanted])  # privileged rows are stratum 0, unprivileged ones stratum 1
    owner = deal_counts(unprivileged.astype(int), dealt, counts, seed)
    parts = split_rows(owner, quota.clients, shares=shares, seed=split_seed)
    made = notation(NAME, clients=quota.clients, coverage=coverage)
    return federate(rows, parts, names=numbered(quota.clients), central=central, partition=made)

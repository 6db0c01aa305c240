"""Clients that are alike: rows are shuffled and dealt evenly (IID)."""

import numpy as np

from evenly.federation import Federation, split_rows
from evenly.partitions.rows import Rows, check_clients, client_rows, federate, notation, numbered
from evenly.randomness import generator


def equal(
    rows: Rows,
    *,
    clients: int = 10,
    shares: tuple[float, float] = (0.8, 0.1),
    central: np.ndarray | None = None,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Deal rows to clients evenly; sizes differ by at most one. `seed` deals, `split_seed` chooses the training rows."""
    dealt = client_rows(rows, central)
    check_clients("equal", clients, len(dealt))
    owner = np.full(len(rows.y), -1)
    owner[generator(seed, "equal").permutation(dealt)] = np.arange(len(dealt)) % clients
    parts = split_rows(owner, clients, shares=shares, seed=split_seed)
    return federate(rows, parts, names=numbered(clients), central=central, partition=notation("equal", clients=clients))

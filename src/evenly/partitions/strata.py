"""Clients that see kinds of rows (strata) in different proportions: groups, or groups and labels together.

For each stratum a share for every client is drawn from Dir(alpha, ..., alpha), independently of the other strata; client k
gets floor(share * n) of its n rows and what is left over goes to one client drawn at random. If a client is too small,
everything is drawn again. Which rows of a stratum a client gets is drawn too, and so are its validation rows.
"""

import numpy as np

from evenly.federation import Federation, split_rows
from evenly.partitions.dirichlet import draw_once
from evenly.partitions.rows import Rows, check_clients, client_rows, federate, notation, numbered
from evenly.randomness import Draws, generator


def deal_by_shares(
    what: str,
    rows: Rows,
    strata: np.ndarray,
    *,
    clients: int,
    alpha: float,
    min_samples: int,
    tries: int,
    shares: tuple[float, float],
    central: np.ndarray | None,
    seed: int,
    split_seed: int,
) -> Federation:
    """Deal every stratum (a number for each row) by Dirichlet shares of its own."""
    dealt = client_rows(rows, central)
    check_clients(what, clients, len(dealt))
    if not (np.isfinite(alpha) and alpha > 0):
        raise ValueError(f"{what}: alpha must be a number above 0, got {alpha}. Small values make clients differ more.")
    if tries < 1:
        raise ValueError(f"{what}: tries must be at least 1, got {tries}.")
    totals = np.bincount(strata[dealt])
    counts = draw_shares(what, totals, clients=clients, alpha=alpha, min_samples=min_samples, tries=tries, seed=seed)
    owner = deal_counts(strata, dealt, counts, seed)
    parts = split_rows(owner, clients, shares=shares, seed=split_seed)
    return federate(rows, parts, names=numbered(clients), central=central, partition=notation(what, clients=clients, alpha=alpha))


def draw_shares(what: str, totals: np.ndarray, *, clients: int, alpha: float, min_samples: int, tries: int, seed: int) -> np.ndarray:
    """How many rows of each stratum each client gets, int64 [strata, clients]; raises when no draw is good enough."""
    draws, best, least = Draws(seed, what), 0, max(1, min_samples)
    for attempt in range(tries):
        counts = draw_once(totals, clients, alpha, draws.at(attempt))
        smallest = int(counts.sum(0).min())
        if smallest >= least:
            return counts
        best = max(best, smallest)
    raise ValueError(
        f"{what}: none of {tries} draws gave every client at least {least} rows ({int(totals.sum())} rows, {clients} clients, "
        f"alpha={alpha:g}); in the best draw the smallest client had {best}. "
        "Ask for fewer clients, a larger alpha or a smaller min_samples."
    )


def deal_counts(strata: np.ndarray, dealt: np.ndarray, counts: np.ndarray, seed: int) -> np.ndarray:
    """The client of every row, -1 for rows that nobody gets, given how many rows of each stratum each client gets.

    A stratum's rows are shuffled first; those beyond its clients' counts are left over.
    """
    owner = np.full(len(strata), -1)
    for stratum, wanted in enumerate(counts):
        mine = generator(seed, "deal", stratum).permutation(dealt[strata[dealt] == stratum])
        owner[mine[: wanted.sum()]] = np.repeat(np.arange(len(wanted)), wanted)
    return owner

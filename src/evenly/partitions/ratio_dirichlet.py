"""Clients whose sizes and shares of unprivileged people are drawn separately, so that each is controlled on its own.

`dirichlet-attribute` has one number for both: a client with few unprivileged people is often also a small one. Here client k
gets n_k rows, the sizes by Dir(alpha, ..., alpha) shares, and its share of unprivileged rows is drawn around the global one,

    r_k ~ Beta(concentration * r, concentration * (1 - r)),    mean r, variance r (1 - r) / (concentration + 1).

The drawn shares do not add up to the unprivileged rows there are. They are therefore all moved by the same amount of
log-odds, the only amount with which they do: sizes stay as drawn, the order of the clients' shares too, and every row is dealt.
"""

import numpy as np

from evenly.federation import Federation, split_rows
from evenly.partitions.rows import Rows, check_clients, client_rows, federate, notation, numbered
from evenly.partitions.strata import deal_counts
from evenly.randomness import Draws
from evenly.records import require

NAME = "ratio-dirichlet"
HALVINGS = 200  # of an interval of log-odds: far below one row


def ratio_dirichlet(
    rows: Rows,
    *,
    clients: int = 5,
    alpha: float = 0.5,
    concentration: float = 5.0,
    shares: tuple[float, float] = (0.9, 0.1),
    min_samples: int = 100,
    tries: int = 1000,
    central: np.ndarray | None = None,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Deal rows to clients with sizes by `alpha` and shares of unprivileged rows by `concentration`; large numbers: all alike.

    Every client has at least `min_samples` rows, or the sizes are drawn again, at most `tries` times.
    """
    dealt = client_rows(rows, central)
    check_clients(NAME, clients, len(dealt))
    for name, value in (("alpha", alpha), ("concentration", concentration)):
        require(bool(np.isfinite(value) and value > 0), f"{NAME}: {name} must be a number above 0, got {value}.")
    require(tries >= 1, f"{NAME}: tries must be at least 1, got {tries}.")
    unprivileged = rows.is_unprivileged()
    total = int(unprivileged[dealt].sum())
    require(0 < total < len(dealt), f"{NAME} needs unprivileged and privileged rows, but {rows.name} has {total} and {len(dealt) - total}.")
    draws = Draws(seed, NAME)
    sizes = draw_sizes(len(dealt), clients, alpha, least=max(1, min_samples), tries=tries, draws=draws)
    share = total / len(dealt)
    drawn = draws.at(tries).beta(concentration * share, concentration * (1 - share), clients)
    wanted = fit_shares(sizes, drawn, total)
    owner = deal_counts(unprivileged.astype(int), dealt, np.stack([sizes - wanted, wanted]), seed)
    parts = split_rows(owner, clients, shares=shares, seed=split_seed)
    made = notation(NAME, clients=clients, alpha=alpha, concentration=concentration)
    return federate(rows, parts, names=numbered(clients), central=central, partition=made)


def draw_sizes(total: int, clients: int, alpha: float, *, least: int, tries: int, draws: Draws) -> np.ndarray:
    """Rows of each client, which add up to all of them; raises when no draw gives everyone enough. int64 [clients]"""
    best = 0
    for attempt in range(tries):
        sizes = whole(draws.at(attempt).dirichlet(np.full(clients, alpha)) * total, np.full(clients, total))
        if sizes.min() >= least:
            return sizes
        best = max(best, int(sizes.min()))
    raise ValueError(
        f"{NAME}: none of {tries} draws gave every client at least {least} rows ({total} rows, {clients} clients, alpha={alpha:g}); in the "
        f"best draw the smallest client had {best}. Ask for fewer clients, a larger alpha or a smaller min_samples."
    )


def fit_shares(sizes: np.ndarray, drawn: np.ndarray, total: int) -> np.ndarray:
    """Unprivileged rows of each client: the drawn shares, moved by one amount of log-odds so that they add up. int64 [clients]"""
    inside = np.clip(drawn, 1e-12, 1 - 1e-12)
    odds = np.log(inside) - np.log1p(-inside)
    low, high = -100.0, 100.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if (sizes / (1 + np.exp(-odds - middle))).sum() < total else (low, middle)
    return whole(sizes / (1 + np.exp(-odds - (low + high) / 2)), sizes, total)


def whole(wanted: np.ndarray, most: np.ndarray, total: int | None = None) -> np.ndarray:
    """Whole numbers with the same sum, at most `most` each: rounded down, and one more where the fraction is largest."""
    down = np.minimum(np.floor(wanted), most).astype(np.int64)
    missing = (round(wanted.sum()) if total is None else total) - int(down.sum())
    order = np.argsort(-(wanted - down), kind="stable")
    order = order[down[order] < most[order]]
    down[order[:missing]] += 1
    return down

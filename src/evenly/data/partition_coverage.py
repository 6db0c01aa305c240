"""Coverage partitions: clients that hold enough rows of unprivileged people, and clients that do
not.
"""

import math
from typing import NamedTuple

import numpy as np

from evenly.data.federation import Federation
from evenly.data.partition import (
    Rows,
    check_clients,
    client_rows,
    deal_counts,
    draw_once,
    federate_owners,
    first_legal,
    notation,
)  # fmt: skip
from evenly.notation import unknown
from evenly.randomness import Draws, generator
from evenly.records import require

# How many clients cover the unprivileged people well, and with how many rows: what both coverage
# partitions share.
#
# A client is good if it has at least coverage * (1 - tolerance) unprivileged rows, and bad
# otherwise. The study that uses these partitions (Gonfiantini, "Fairness-Aware Federated Learning",
# Università di Genova, 2026, Section 4.3.2) takes them from a thesis that is not public (Brocchi
# 2023), so the construction is ours and keeps what the study's Table 5.6 reports: about a tenth of
# the coverage at bad clients, and at most a tenth more than the coverage at good ones.
#
# Two rules give the number of clients. "table": the larger of the two sides divided by the
# coverage, rounded, which is every count in Table 5.6 (7, 13, 16 on Adult and 5, 8, 11 on COMPAS;
# males are the larger side of both). "text": as many good clients as the unprivileged rows allow,
# divided by the wanted share of good ones, which is what the study's text says and its table
# contradicts.
#
# The study's coverages are feasible only on all rows. Where some rows are a central test set, the
# coverage is therefore multiplied by the share of rows that is dealt (`scale`), while the number of
# clients follows from all rows, so that it does not depend on the draw of the test set.

COUNT_RULES = ("table", "text")
LEAST_BAD = 0.08  # of the coverage, at bad clients of different size
MOST_BAD = 0.12


class Quota(NamedTuple):
    """How many clients there are, how many of them are good, and the unprivileged rows of each kind
    where sizes are equal.
    """

    clients: int
    good: int
    coverage: float  # after scaling
    good_rows: int  # unprivileged rows of a good client
    bad_rows: int  # of a bad one
    size: int  # all rows of a client


class SideCounts(NamedTuple):
    """Rows of unprivileged people and of all others."""

    unprivileged: int
    privileged: int

    @staticmethod
    def of(unprivileged: np.ndarray) -> "SideCounts":
        return SideCounts(int(unprivileged.sum()), int((~unprivileged).sum()))


def count_clients(sides: SideCounts, coverage: float, rule: str, good_share: float = 0.5) -> int:
    """How many clients a rule makes of all rows; see the module."""
    if rule not in COUNT_RULES:
        raise unknown("count rule", rule, COUNT_RULES)
    if rule == "table":
        return max(1, round(max(sides) / coverage))
    return max(1, int(math.floor(sides.unprivileged / coverage) / good_share))


def quota(
    sides: SideCounts,
    clients: int,
    coverage: float,
    *,
    tolerance: float = 0.1,
    good_share: float = 0.5,
    dealt_share: float = 1.0,
) -> Quota:
    """The smallest feasible number of good clients, at least the wanted share; raises, naming the
    limit, if there is none.

    The coverage is multiplied by `dealt_share`.
    """
    least = max(1, math.floor(good_share * clients))
    for good in range(least, clients + 1):
        quota = _equal_sizes(sides, clients, good, coverage * dealt_share, tolerance)
        if quota is not None:
            return quota
    wanted = coverage * dealt_share
    most = math.floor(min(coverage, sides.unprivileged / (1 - tolerance) / dealt_share))
    limit = next(
        (
            c
            for c in range(most, 0, -1)
            if _feasible(sides, clients, least, c * dealt_share, tolerance)
        ),
        0,
    )
    advice = (
        f"The limit is coverage={limit}. Use that, or fewer clients."
        if limit
        else "No coverage works: use fewer clients."
    )
    raise ValueError(
        f"coverage={coverage:.10g}: {clients} clients, counted as if of equal size, {least} or more"
        f" of them with at least {(1 - tolerance) * wanted:.0f} unprivileged rows and the others"
        f" with {round(tolerance * wanted)}, cannot be made of {sides.unprivileged} unprivileged"
        f" and {sides.privileged} privileged rows. {advice}"
    )


def _feasible(
    sides: SideCounts, clients: int, least: int, coverage: float, tolerance: float
) -> bool:
    return any(
        _equal_sizes(sides, clients, good, coverage, tolerance)
        for good in range(least, clients + 1)
    )


def _equal_sizes(
    sides: SideCounts, clients: int, good: int, coverage: float, tolerance: float
) -> Quota | None:
    """Rows of good and bad clients, for a number of good ones; None if there are too few rows of
    either side.
    """
    bad_rows = round(tolerance * coverage)
    good_rows = min(
        (sides.unprivileged - (clients - good) * bad_rows) // good,
        math.floor((1 + tolerance) * coverage),
    )
    size = (sides.privileged + good * good_rows + (clients - good) * bad_rows) // clients
    enough = good_rows >= (1 - tolerance) * coverage and size >= max(good_rows, bad_rows)
    return Quota(clients, good, coverage, good_rows, bad_rows, size) if enough else None


def plan(
    rows: Rows,
    dealt: np.ndarray,
    *,
    coverage: float,
    clients: int,
    tolerance: float,
    good_share: float,
    count_rule: str,
    scale: bool,
) -> tuple[Quota, np.ndarray]:
    """The quota for the dealt rows, and whether each row is of an unprivileged person."""
    require(
        coverage > 0 and math.isfinite(coverage),
        f"coverage must be a number of rows above 0, got {coverage}.",
    )
    require(
        0 <= tolerance < 1, f"coverage: tolerance must be at least 0 and below 1, got {tolerance}."
    )
    require(
        0 < good_share <= 1,
        f"coverage: good_share must be above 0 and at most 1, got {good_share}.",
    )
    unprivileged = rows.is_unprivileged()
    require(
        bool(unprivileged.any() and not unprivileged.all()),
        f"coverage needs unprivileged and privileged rows, but {rows.name} has only one of them."
        " Choose data with a sensitive attribute.",
    )
    number = clients or count_clients(SideCounts.of(unprivileged), coverage, count_rule, good_share)
    check_clients("coverage", number, len(dealt))
    dealt_share = len(dealt) / len(unprivileged) if scale else 1.0
    sides = SideCounts.of(unprivileged[dealt])
    return (
        quota(
            sides,
            number,
            coverage,
            tolerance=tolerance,
            good_share=good_share,
            dealt_share=dealt_share,
        ),
        unprivileged,
    )


# Clients of equal size, some of which cover the unprivileged people well and some badly
# (`cov_same_size` of the study).
#
# A bad client gets tolerance * coverage unprivileged rows; a good one as many as there are for it,
# at most (1 + tolerance) * coverage; privileged rows fill every client up to the same size. What is
# left over belongs to no one.

SAME_SIZE = "cov-same-size"


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
    """Deal rows so that good clients, which come first, have `coverage` unprivileged rows within
    the tolerance.

    `clients` is their number; 0 leaves it to `count_rule`. At least the share `good_share` of them,
    rounded down, is good, and more where the rows allow no fewer. `scale` multiplies the coverage
    by the share of rows that is not central.
    """
    dealt = client_rows(rows, central)
    quota, unprivileged = plan(
        rows,
        dealt,
        coverage=coverage,
        clients=clients,
        tolerance=tolerance,
        good_share=good_share,
        count_rule=count_rule,
        scale=scale,
    )
    wanted = np.where(np.arange(quota.clients) < quota.good, quota.good_rows, quota.bad_rows)
    # privileged rows are stratum 0, unprivileged ones stratum 1
    counts = np.stack([quota.size - wanted, wanted])
    owner = deal_counts(unprivileged.astype(int), dealt, counts, seed)
    partition = notation(SAME_SIZE, clients=quota.clients, coverage=coverage)
    return federate_owners(
        rows,
        owner,
        partition,
        clients=quota.clients,
        shares=shares,
        central=central,
        split_seed=split_seed,
    )


# Clients of different size, some of which cover the unprivileged people well and some badly
# (`cov_diff_size` of the study).
#
# A good client gets coverage * U[1 - t, 1 + 2t] unprivileged rows (t the tolerance), a bad one
# coverage * U[0.08, 0.12]; these ranges are the extremes that the study's Table 5.6 reports. Where
# there are too few unprivileged rows, what good clients have above 1 - t shrinks, then what bad
# ones have above 0.08. Privileged rows are all dealt, by Dir(5, ..., 5) shares. Unprivileged rows
# that are left over belong to no one. How many clients there are, and how many are good, is as for
# equal sizes.

DIFF_SIZE = "cov-diff-size"
EVENNESS = 5.0  # of the privileged rows: the concentration of their Dirichlet shares


def cov_diff_size(
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
    """Deal rows so that good clients, which come first, have at least `coverage` * (1 -
    `tolerance`) unprivileged rows.

    The settings are those of `cov_same_size`.
    """
    dealt = client_rows(rows, central)
    quota, unprivileged = plan(
        rows,
        dealt,
        coverage=coverage,
        clients=clients,
        tolerance=tolerance,
        good_share=good_share,
        count_rule=count_rule,
        scale=scale,
    )
    counts = draw_rows(
        quota, SideCounts.of(unprivileged[dealt]), tolerance, generator(seed, DIFF_SIZE)
    )
    owner = deal_counts(unprivileged.astype(int), dealt, counts, seed)
    partition = notation(DIFF_SIZE, clients=quota.clients, coverage=coverage)
    return federate_owners(
        rows,
        owner,
        partition,
        clients=quota.clients,
        shares=shares,
        central=central,
        split_seed=split_seed,
    )


def draw_rows(
    quota: Quota, sides: SideCounts, tolerance: float, draw: np.random.Generator
) -> np.ndarray:
    """Privileged and unprivileged rows of each client. int64 [2, clients]"""
    wanted = draw_unprivileged(quota, sides.unprivileged, tolerance, draw)
    others = draw_once(np.array([sides.privileged]), quota.clients, EVENNESS, draw)
    return np.concatenate([others, wanted[None]])


def draw_unprivileged(
    quota: Quota, available: int, tolerance: float, draw: np.random.Generator
) -> np.ndarray:
    """The unprivileged rows of each client, good ones first; at most as many as there are. int64
    [clients]
    """
    bad = quota.clients - quota.good
    least_good = np.ceil((1 - tolerance) * quota.coverage)
    good_rows = np.maximum(
        least_good,
        np.floor(quota.coverage * draw.uniform(1 - tolerance, 1 + 2 * tolerance, quota.good)),
    )
    least_bad = np.ceil(LEAST_BAD * quota.coverage)
    bad_rows = np.maximum(
        least_bad, np.floor(quota.coverage * draw.uniform(LEAST_BAD, MOST_BAD, bad))
    )
    good_rows = _shrunk(good_rows, least_good, available - bad_rows.sum())
    bad_rows = _shrunk(bad_rows, least_bad, available - good_rows.sum())
    if good_rows.sum() + bad_rows.sum() > available:
        raise ValueError(
            f"{DIFF_SIZE}: {quota.good} good clients with at least {least_good:.0f} unprivileged"
            f" rows and {bad} bad ones with at least {least_bad:.0f} need"
            f" {quota.good * least_good + bad * least_bad:.0f}, but there are {available}. Use a"
            " smaller coverage."
        )
    return np.concatenate([good_rows, bad_rows]).astype(np.int64)


def _shrunk(rows: np.ndarray, least: float, available: float) -> np.ndarray:
    """The same counts, with what exceeds `least` multiplied down until they fit, as far as that
    goes.
    """
    surplus = (rows - least).sum()
    if rows.sum() <= available or surplus == 0:
        return rows
    kept = max(0.0, (available - least * len(rows)) / surplus)
    return least + np.floor((rows - least) * kept)


# Clients whose sizes and shares of unprivileged people are drawn separately, so that each is
# controlled on its own.
#
# `dirichlet-attribute` has one number for both: a client with few unprivileged people is often also
# a small one. Here client k gets n_k rows, the sizes by Dir(alpha, ..., alpha) shares, and its
# share of unprivileged rows is drawn around the global one,
#
# r_k ~ Beta(concentration * r, concentration * (1 - r)), mean r, variance r (1 - r) /
# (concentration + 1).
#
# The drawn shares do not add up to the unprivileged rows there are. They are therefore all moved by
# the same amount of log-odds, the only amount with which they do: sizes stay as drawn, the order of
# the clients' shares too, and every row is dealt.

RATIO_DIRICHLET = "ratio-dirichlet"
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
    """Deal rows to clients with sizes by `alpha` and shares of unprivileged rows by
    `concentration`; large numbers: all alike.

    Every client has at least `min_samples` rows, or the sizes are drawn again, at most `tries`
    times.
    """
    dealt = client_rows(rows, central)
    check_clients(RATIO_DIRICHLET, clients, len(dealt))
    _check_ratio(alpha, concentration, tries)
    unprivileged = rows.is_unprivileged()
    total = int(unprivileged[dealt].sum())
    require(
        0 < total < len(dealt),
        f"{RATIO_DIRICHLET} needs unprivileged and privileged rows, but {rows.name} has {total} and"
        f" {len(dealt) - total}.",
    )
    draws = Draws(seed, RATIO_DIRICHLET)
    sizes = draw_sizes(
        len(dealt), clients, alpha, least=max(1, min_samples), tries=tries, draws=draws
    )
    share = total / len(dealt)
    drawn = draws.at(tries).beta(concentration * share, concentration * (1 - share), clients)
    wanted = fit_shares(sizes, drawn, total)
    owner = deal_counts(unprivileged.astype(int), dealt, np.stack([sizes - wanted, wanted]), seed)
    partition = notation(RATIO_DIRICHLET, clients=clients, alpha=alpha, concentration=concentration)
    return federate_owners(
        rows,
        owner,
        partition,
        clients=clients,
        shares=shares,
        central=central,
        split_seed=split_seed,
    )


def _check_ratio(alpha: float, concentration: float, tries: int) -> None:
    for name, value in (("alpha", alpha), ("concentration", concentration)):
        require(
            bool(np.isfinite(value) and value > 0),
            f"{RATIO_DIRICHLET}: {name} must be a number above 0, got {value}.",
        )
    require(tries >= 1, f"{RATIO_DIRICHLET}: tries must be at least 1, got {tries}.")


def draw_sizes(
    total: int, clients: int, alpha: float, *, least: int, tries: int, draws: Draws
) -> np.ndarray:
    """Rows of each client, which add up to all of them; raises if no draw gives every client
    enough. int64 [clients]
    """
    shares = (draws.at(attempt).dirichlet(np.full(clients, alpha)) for attempt in range(tries))
    drawn = (whole(each * total, np.full(clients, total)) for each in shares)
    return first_legal(
        drawn,
        lambda sizes: sizes.min() >= least,
        f"{RATIO_DIRICHLET}, alpha={alpha:g}, {least} rows",
    )


def fit_shares(sizes: np.ndarray, drawn: np.ndarray, total: int) -> np.ndarray:
    """Unprivileged rows of each client: the drawn shares, moved by one amount of log-odds so that
    they add up. int64 [clients]
    """
    inside = np.clip(drawn, 1e-12, 1 - 1e-12)
    odds = np.log(inside) - np.log1p(-inside)
    low, high = -100.0, 100.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if (sizes / (1 + np.exp(-odds - middle))).sum() < total
            else (low, middle)
        )
    return whole(sizes / (1 + np.exp(-odds - (low + high) / 2)), sizes, total)


def whole(wanted: np.ndarray, most: np.ndarray, total: int | None = None) -> np.ndarray:
    """Whole numbers with the same sum, at most `most` each: rounded down, and one more where the
    fraction is largest.
    """
    down = np.minimum(np.floor(wanted), most).astype(np.int64)
    missing = (round(wanted.sum()) if total is None else total) - int(down.sum())
    order = np.argsort(-(wanted - down), kind="stable")
    order = order[down[order] < most[order]]
    down[order[:missing]] += 1
    return down

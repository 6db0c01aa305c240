"""How many clients cover the unprivileged people well, and with how many rows: what both coverage partitions share.

A client is good if it has at least coverage * (1 - tolerance) unprivileged rows, and bad otherwise. The study that uses
these partitions (Gonfiantini, "Fairness-Aware Federated Learning", Università di Genova, 2026, Section 4.3.2) takes them from
a thesis that is not public (Brocchi 2023), so the construction is ours and keeps what the study's Table 5.6 reports: about
a tenth of the coverage at bad clients, and at most a tenth more than the coverage at good ones.

Two rules give the number of clients. "table": the larger of the two sides divided by the coverage, rounded, which is every
count in Table 5.6 (7, 13, 16 on Adult and 5, 8, 11 on COMPAS; males are the larger side of both). "text": as many good
clients as the unprivileged rows allow, divided by the wanted share of good ones, which is what the study's text says and
its table contradicts.

The study's coverages are feasible only on all rows. Where some rows are a central test set, the coverage is therefore
multiplied by the share of rows that is dealt (`scale`), while the number of clients follows from all rows, so that
it does not depend on the draw of the test set.
"""

import math
from typing import NamedTuple

import numpy as np

from evenly.notation import unknown
from evenly.partitions.rows import Rows, check_clients
from evenly.records import require

COUNT_RULES = ("table", "text")
LEAST_BAD = 0.08  # of the coverage, at bad clients of different size
MOST_BAD = 0.12


class Quota(NamedTuple):
    """How many clients there are, how many of them are good, and the unprivileged rows of each kind where sizes are equal."""

    clients: int
    good: int
    coverage: float  # after scaling
    good_rows: int  # unprivileged rows of a good client
    bad_rows: int  # of a bad one
    size: int  # all rows of a client


class Sides(NamedTuple):
    """Rows of unprivileged people and of all others."""

    unprivileged: int
    privileged: int

    @staticmethod
    def of(unprivileged: np.ndarray) -> "Sides":
        return Sides(int(unprivileged.sum()), int((~unprivileged).sum()))


def count_clients(sides: Sides, coverage: float, rule: str, good_share: float = 0.5) -> int:
    """How many clients a rule makes of all rows; see the module."""
    if rule not in COUNT_RULES:
        raise unknown("count rule", rule, COUNT_RULES)
    if rule == "table":
        return max(1, round(max(sides) / coverage))
    return max(1, int(math.floor(sides.unprivileged / coverage) / good_share))


def quota(
    sides: Sides, clients: int, coverage: float, *, tolerance: float = 0.1, good_share: float = 0.5, dealt_share: float = 1.0
) -> Quota:
    """The smallest feasible number of good clients, at least the wanted share; raises, naming the limit, if there is none.

    The coverage is multiplied by `dealt_share`.
    """
    least = max(1, math.floor(good_share * clients))
    for good in range(least, clients + 1):
        found = _equal_sizes(sides, clients, good, coverage * dealt_share, tolerance)
        if found is not None:
            return found
    wanted = coverage * dealt_share
    most = math.floor(min(coverage, sides.unprivileged / (1 - tolerance) / dealt_share))
    limit = next((c for c in range(most, 0, -1) if _feasible(sides, clients, least, c * dealt_share, tolerance)), 0)
    advice = f"The limit is coverage={limit}. Ask for that, or for fewer clients." if limit else "No coverage works: ask for fewer clients."
    raise ValueError(
        f"coverage={coverage:.10g}: {clients} clients, counted as if of equal size, {least} or more of them with at least "
        f"{(1 - tolerance) * wanted:.0f} unprivileged rows and the others with {round(tolerance * wanted)}, cannot be made of "
        f"{sides.unprivileged} unprivileged and {sides.privileged} privileged rows. {advice}"
    )


def _feasible(sides: Sides, clients: int, least: int, coverage: float, tolerance: float) -> bool:
    return any(_equal_sizes(sides, clients, good, coverage, tolerance) for good in range(least, clients + 1))


def _equal_sizes(sides: Sides, clients: int, good: int, coverage: float, tolerance: float) -> Quota | None:
    """The rows of good and bad clients if so many are good; None if there are too few rows of either side."""
    bad_rows = round(tolerance * coverage)
    good_rows = min((sides.unprivileged - (clients - good) * bad_rows) // good, math.floor((1 + tolerance) * coverage))
    size = (sides.privileged + good * good_rows + (clients - good) * bad_rows) // clients
    enough = good_rows >= (1 - tolerance) * coverage and size >= max(good_rows, bad_rows)
    return Quota(clients, good, coverage, good_rows, bad_rows, size) if enough else None


def plan(
    rows: Rows, dealt: np.ndarray, *, coverage: float, clients: int, tolerance: float, good_share: float, count_rule: str, scale: bool
) -> tuple[Quota, np.ndarray]:
    """The quota for the dealt rows, and whether each row is of an unprivileged person."""
    require(coverage > 0 and math.isfinite(coverage), f"coverage must be a number of rows above 0, got {coverage}.")
    require(0 <= tolerance < 1, f"coverage: tolerance must be at least 0 and below 1, got {tolerance}.")
    require(0 < good_share <= 1, f"coverage: good_share must be above 0 and at most 1, got {good_share}.")
    unprivileged = rows.is_unprivileged()
    require(
        bool(unprivileged.any() and not unprivileged.all()),
        f"coverage needs unprivileged and privileged rows, but {rows.name} has only one of these. Choose data with a sensitive attribute.",
    )
    number = clients or count_clients(Sides.of(unprivileged), coverage, count_rule, good_share)
    check_clients("coverage", number, len(dealt))
    dealt_share = len(dealt) / len(unprivileged) if scale else 1.0
    sides = Sides.of(unprivileged[dealt])
    return quota(sides, number, coverage, tolerance=tolerance, good_share=good_share, dealt_share=dealt_share), unprivileged

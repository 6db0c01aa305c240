"""Gaps within clients, and where a gap between groups comes from: from within clients or from
between them.

A gap over all people can occur in every client, in a few, or only because the clients that select
fewer people have more people of the group. Kitagawa's decomposition (1955) splits it exactly into
these two parts.
"""

from typing import NamedTuple

import numpy as np

from evenly.auditing.estimates import NOTHING, Estimate, estimates, newcombe
from evenly.auditing.hiding import FAVOURABLE, label_counts
from evenly.metrics import rates, ratio
from evenly.metrics.statistics import LEAST_CLIENTS, percentile_interval, resampled
from evenly.report.disclosure import hide

# The gap of each client.

Array = np.ndarray
DRAWS = 1000


class ClientGaps(NamedTuple):
    """The gaps of each client, as fractions; NOTHING where a client has too few people on
    one side.
    """

    spd: tuple[Estimate, ...]  # [clients] difference in selection rate
    eod: tuple[Estimate, ...]  # [clients] difference in true positive rate
    # of the differences in selection rate, weighted by the number of people of each client
    mean: Estimate
    # bool [clients]: clients with people on one side only, of whom nothing is small
    one_sided: Array = np.zeros(1, bool)

    @property
    def clients(self) -> int:
        """Number of clients with enough people on both sides."""
        return sum(gap.has_value for gap in self.spd)

    @property
    def visible(self) -> Array:
        """Whether each client has a gap that is shown. [clients]"""
        return np.array([gap.has_value for gap in self.spd], bool)


def client_gaps(pairs: Array, rest: Array, hidden: Array, min_cell: int) -> ClientGaps:
    """Compute the gaps from tables of the group and of all others in each client [clients, 2,
    labels, outcomes].

    `hidden` clients have no gap. `rest` [clients, labels, outcomes] counts people on neither side,
    whose number would follow from the total of their client.
    """
    of_sides = rates(pairs, FAVOURABLE)
    # [clients, sides and rest, labels]
    counts = label_counts(np.concatenate([pairs, rest[:, None]], axis=1))
    enough = _clients_with_enough(counts, hidden, min_cell)
    people = counts[:, :2].sum(-1)
    visible = enough & (people > 0).all(1)
    spd, eod = (
        _gaps(of_sides.selection_rate, people, visible),
        _gaps(of_sides.tpr, counts[:, :2, FAVOURABLE], visible),
    )
    return ClientGaps(spd, eod, _mean(spd), enough & ((people > 0).sum(1) == 1))


def _clients_with_enough(counts: Array, hidden: Array, min_cell: int) -> Array:
    """Clients in which both sides may be shown.

    No side may be small or have few people with one label, and no such number may follow from the
    totals of clients and groups. The selection rates of both sides and the accuracy of the client
    together could reveal the labels, so these must be visible too.
    """
    people = hide(counts.sum(-1), min_cell, sums=[0, 1], also=hidden[:, None]).cells
    labels = hide(counts, min_cell, sums=[0, 1, 2], also=people[..., None]).cells
    return ~hidden & ~labels.any((1, 2))


def _gaps(share: Array, rows: Array, visible: Array) -> tuple[Estimate, ...]:
    """Differences of two shares with Newcombe's 95 % interval."""
    return estimates(
        np.where(visible, share[:, 0] - share[:, 1], np.nan), *newcombe(share, rows), rows.sum(1)
    )


def _mean(gaps: tuple[Estimate, ...]) -> Estimate:
    # [clients, 2]
    parts = np.array([[gap.rows * gap.value, gap.rows] for gap in gaps if gap.has_value])
    if not len(parts):
        return NOTHING
    total, people = parts.sum(0)
    if len(parts) < LEAST_CLIENTS:
        return Estimate(float(total / people), rows=int(people))
    interval = percentile_interval(
        np.concatenate([ratio(part[:, 0], part[:, 1]) for part in resampled(parts, DRAWS, 0)])
    )
    return Estimate(float(total / people), float(interval.low), float(interval.high), int(people))


# Where a gap comes from.
#
# π_k|g is the share of group g's people who are at client k, and r_gk their rate there. The gap
# Σπ_k|0 r_0k − Σπ_k|1 r_1k is the sum of two parts. Within: Σ ½(π_k|0 + π_k|1)(r_0k − r_1k), the
# gaps of the clients. Between: Σ ½(r_0k + r_1k)(π_k|0 − π_k|1), which is not 0 only if the people
# of both groups are at different clients.
#
# A client with one group only has no gap of its own: its whole term belongs to the second part.

ORIGINS = ("spd", "eod", "acc_diff")  # gaps that are split


class GapParts(NamedTuple):
    """The parts of a gap that each client contributes; they sum to the gap."""

    within: Array  # [clients]
    # [clients]; rates less their mean over clients, which adds 0 in total: above 0, the group is
    # more often than others where everybody's rate is high, or less often where it is low
    between: Array
    one_sided: Array  # bool [clients]: the client has people of one group only


def gap_parts(hits: Array, rows: Array) -> GapParts:
    """Split the gap between two groups into parts of clients, by Kitagawa's decomposition.

    Args:
        hits: People with the outcome in question, such as selected ones, [clients, 2 groups].
        rows: People, [clients, 2 groups]. Both groups need some.

    Returns:
        The parts of each client.

    Raises:
        ValueError: If a group has no people.

    Example:
        >>> hits, rows = np.array([[8, 10], [30, 90]]), np.array([[40, 40], [60, 150]])
        >>> parts = gap_parts(hits, rows)
        >>> round(float(parts.within.sum()), 4), round(float(parts.between.sum()), 4)
        (-0.0847, -0.0616)
        >>> round(38 / 100 - 100 / 190, 4)
        -0.1463
    """
    totals = rows.sum(0)
    if not totals.all():
        raise ValueError(f"Both groups must have people, got {totals.tolist()}.")
    shares = rows / totals
    both, some = np.all(rows > 0, axis=1), np.any(rows > 0, axis=1)
    group, others = np.moveaxis(ratio(hits, rows), -1, 0)
    # the only rate of a client with one group is its mean rate
    middle = np.where(both, (group + others) / 2, np.where(rows[:, 0] > 0, group, others))
    middle = np.where(some, middle, 0.0)
    mean = float((shares.mean(1) * middle).sum())
    return GapParts(
        np.where(both, shares.mean(1) * (group - others), 0.0),
        (middle - mean) * (shares[:, 0] - shares[:, 1]),
        np.asarray(some & ~both),
    )


class GapOrigin(NamedTuple):
    """Where the gap of a group comes from. `within` and `between` sum to the gap."""

    within: Estimate
    between: Estimate
    clients: tuple[int, ...]  # numbers of the clients that have parts of their own
    parts: GapParts  # of these clients, and last of all others together if there are any
    joined: int  # how many clients these others are
    one_sided: int  # people of clients with one group only

    @property
    def gap(self) -> float:
        """The gap over all people."""
        return self.within.value + self.between.value


def gap_origin(pairs: Array, metric: str, shown: Array) -> GapOrigin | None:
    """Split the gap of a group from tables of the group and of all others in each client [clients,
    2, labels, outcomes].

    Only the clients in `shown` have parts of their own. All others count as one client: its counts
    are the totals minus those of the shown clients, so the parts reveal nothing that the rates of
    the groups and the gaps of the clients do not reveal. None if fewer than two parts are left, or
    if a group has nobody.
    """
    hits, rows = _counts(pairs, metric)
    others = ~shown & rows.any(1)
    own = np.flatnonzero(shown & rows.any(1))
    joined = [others] if others.any() else []
    hits, rows = (
        np.concatenate([each[own], *(each[rest].sum(0, keepdims=True) for rest in joined)])
        for each in (hits, rows)
    )
    if len(rows) < 2 or not rows.sum(0).all():
        return None
    parts = gap_parts(hits, rows)
    within, between = _ends(hits, rows)
    people = int(rows.sum())
    return GapOrigin(
        within=Estimate(float(parts.within.sum()), *within, people),
        between=Estimate(float(parts.between.sum()), *between, people),
        clients=tuple(own.tolist()),
        parts=parts,
        joined=int(others.sum()),
        one_sided=int(rows[parts.one_sided].sum()),
    )


def _counts(pairs: Array, metric: str) -> tuple[Array, Array]:
    """People with the outcome of a gap, and all people it is a share of. [clients, 2] each"""
    if metric == "spd":
        return pairs[..., FAVOURABLE].sum(-1), pairs.sum((-2, -1))
    if metric == "eod":
        return pairs[..., FAVOURABLE, FAVOURABLE], pairs[..., FAVOURABLE, :].sum(-1)
    return np.trace(pairs, axis1=-2, axis2=-1), pairs.sum((-2, -1))


def _ends(hits: Array, rows: Array) -> tuple[tuple[float, float], tuple[float, float]]:
    """Ends of the 95 % intervals of both parts, from resampling clients; NaN with fewer than ten.

    Both parts are functions of sums over clients, so that resampled sums are enough.
    """
    if len(rows) < LEAST_CLIENTS:
        return (np.nan, np.nan), (np.nan, np.nan)
    both = np.asarray((rows > 0).all(1))
    # what the rows of one group would give with the rate of the other in the same client
    swapped = np.where(both[:, None], rows * ratio(hits, rows)[:, ::-1], 0.0)
    compared = np.where(both[:, None], hits, 0)
    sums = np.stack([hits, rows, compared, swapped], axis=1)  # [clients, 4, 2]
    drawn = np.concatenate(list(resampled(sums, DRAWS, 0)))
    all_hits, all_rows, own, other = np.moveaxis(drawn, 1, 0)
    each = ratio(own - other, all_rows)
    within = (each[:, 0] - each[:, 1]) / 2
    rate = ratio(all_hits, all_rows)
    interval = percentile_interval(np.stack([within, rate[:, 0] - rate[:, 1] - within], axis=1))
    low, high = interval.low.tolist(), interval.high.tolist()
    return (low[0], high[0]), (low[1], high[1])

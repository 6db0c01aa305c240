"""The gap between a group and all others within each client: a gap over all people can be there in every client, in a few, or only
because clients that serve everybody worse have more of the group's people."""

from typing import NamedTuple

import numpy as np

from evenly.auditing.estimates import NOTHING, Estimate, estimates, newcombe
from evenly.auditing.hiding import FAVOURABLE, label_counts
from evenly.metrics import rates, ratio
from evenly.metrics.statistics import LEAST_CLIENTS, percentile_interval, resampled
from evenly.report.disclosure import hide

Array = np.ndarray


class Within(NamedTuple):
    """The gaps of single clients, as fractions; nothing where a client has too few people on one side."""

    spd: tuple[Estimate, ...]  # [clients] difference in selection rate
    eod: tuple[Estimate, ...]  # [clients] difference in true positive rate
    mean: Estimate  # of the differences in selection rate, every client counting by its people

    @property
    def clients(self) -> int:
        """How many clients have enough people on both sides."""
        return sum(gap.known for gap in self.spd)


def within(pairs: Array, rest: Array, hidden: Array, least: int) -> Within:
    """From tables of the group and of all others in each client [clients, 2, labels, outcomes]; `hidden` clients have none.

    `rest` [clients, labels, outcomes] counts people on neither side, who would follow from their client's total.
    """
    seen = rates(pairs, FAVOURABLE)
    counts = label_counts(np.concatenate([pairs, rest[:, None]], axis=1))  # [clients, sides and rest, labels]
    shown = _told_apart(counts, hidden, least)
    spd, eod = _gaps(seen.selection_rate, counts[:, :2].sum(-1), shown), _gaps(seen.tpr, counts[:, :2, FAVOURABLE], shown)
    return Within(spd, eod, _mean(spd))


def _told_apart(counts: Array, gone: Array, least: int) -> Array:
    """Clients in which both sides may be shown: no side is small, nor has it few people with one label, nor does such a number
    follow from the totals of clients and of groups.

    The selection rates of both sides with the accuracy of their client could tell the labels, so these must not be hidden.
    """
    people = hide(counts.sum(-1), least, sums=[0, 1], also=gone[:, None]).cells
    labels = hide(counts, least, sums=[0, 1, 2], also=people[..., None]).cells
    return ~gone & ~labels.any((1, 2)) & (counts[:, :2].sum(-1) > 0).all(1)


def _gaps(share: Array, rows: Array, shown: Array) -> tuple[Estimate, ...]:
    """Differences of two shares with Newcombe's 95 % interval."""
    return estimates(np.where(shown, share[:, 0] - share[:, 1], np.nan), *newcombe(share, rows), rows.sum(1))


def _mean(gaps: tuple[Estimate, ...]) -> Estimate:
    known = [gap for gap in gaps if gap.known]
    if not known:
        return NOTHING
    parts = np.array([[gap.rows * gap.value, gap.rows] for gap in known])  # [clients, 2]
    total, people = parts.sum(0)
    if len(known) < LEAST_CLIENTS:
        return Estimate(float(total / people), rows=int(people))
    drawn = np.concatenate([ratio(part[:, 0], part[:, 1]) for part in resampled(parts, 1000, 0)])
    interval = percentile_interval(drawn)
    return Estimate(float(total / people), float(interval.low), float(interval.high), int(people))

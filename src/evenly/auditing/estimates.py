"""Figures with their intervals, and how the intervals are found."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from evenly.metrics.statistics import LEAST_CLIENTS, Interval, over_clients, over_people
from evenly.report.values import wilson

Array = np.ndarray
NAN = float("nan")


class Estimate(NamedTuple):
    """A figure, its 95 % interval and the rows it rests on; NaN where it is undefined or hidden, or has no interval."""

    value: float
    low: float = NAN
    high: float = NAN
    rows: int = 0

    @property
    def known(self) -> bool:
        return bool(np.isfinite(self.value))

    @property
    def ranged(self) -> bool:
        return bool(np.isfinite([self.value, self.low, self.high]).all())

    def times(self, factor: float) -> "Estimate":
        return self._replace(value=factor * self.value, low=factor * self.low, high=factor * self.high)


NOTHING = Estimate(NAN)


def resampled(units: Array, statistic: Callable[[Array], Array]) -> Interval:
    """The 95 % interval of a statistic of summed tables: of resampled clients where there are enough, else of resampled people.

    `units` is [units, groups, labels, outcomes]; `statistic` takes [draws, groups, labels, outcomes].
    """
    return over_clients(units, statistic) if len(units) >= LEAST_CLIENTS else over_people(units.sum(0), statistic)


def rate_ends(units: Array, share: Array, rows: Array, statistic: Callable[[Array], Array]) -> tuple[Array, Array]:
    """What chance allows with so many rows and, where clients can be resampled, that interval too: the outer ends of both.

    Resampling alone finds no uncertainty where a group's few rows all went the same way.
    """
    low, high = wilson(share, rows)
    if len(units) < LEAST_CLIENTS:
        return low, high
    drawn = over_clients(units, statistic)
    return np.fmin(low, drawn.low), np.fmax(high, drawn.high)


def newcombe(share: Array, rows: Array) -> tuple[Array, Array]:
    """Newcombe's 95 % interval of the first of two shares less the second (his method 10), which joins Wilson's of both. [..., 2]"""
    low, high = wilson(share, rows)
    gap = share[..., 0] - share[..., 1]
    below = np.sqrt((share[..., 0] - low[..., 0]) ** 2 + (high[..., 1] - share[..., 1]) ** 2)
    above = np.sqrt((high[..., 0] - share[..., 0]) ** 2 + (share[..., 1] - low[..., 1]) ** 2)
    return gap - below, gap + above


def estimates(value: Array, low: Array, high: Array, rows: Array) -> tuple[Estimate, ...]:
    """One estimate per entry of parallel arrays; nothing where the value is not known."""
    numbers = zip(value.tolist(), low.tolist(), high.tolist(), rows.tolist(), strict=True)
    return tuple(Estimate(v, a, b, int(n)) if np.isfinite(v) else NOTHING for v, a, b, n in numbers)

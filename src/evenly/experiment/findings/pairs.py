"""Pairs of methods on the same seeds: what one changes against the other, and whether the seeds decide it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evenly.experiment.study import Outcome
from evenly.experiment.thesis import Method, View
from evenly.metrics import Spread, spread


class Pair(NamedTuple):
    """A method, what it is compared with, and the change of each metric, seed by seed."""

    view: View
    method: Method
    changed: Outcome
    plain: Outcome

    def change(self, metric: str) -> np.ndarray:
        return self.changed.values[metric] - self.plain.values[metric]


class Tally(NamedTuple):
    """How many 95 % intervals lie below 0, hold it, and lie above it."""

    lower: int
    undecided: int
    higher: int

    @property
    def total(self) -> int:
        return sum(self)

    def __str__(self) -> str:
        return f"{self.lower} / {self.undecided} / {self.higher}"


def pairs(views: Sequence[View], protocol: str, part: str) -> list[Pair]:
    """Every method with a part ("debias" or "parity") beside the same method without it."""
    found = []
    for view in views:
        methods = view.outcomes[protocol]
        for method, outcome in methods.items():
            plain = method._replace(debias=False) if part == "debias" else method._replace(parity="")
            if plain != method and plain in methods:
                found.append(Pair(view, method, outcome, methods[plain]))
    return found


def against(views: Sequence[View], protocol: str, algorithm: str, other: str) -> list[Pair]:
    """Every variant of one aggregation beside another aggregation with the same sampling and the same local work."""
    found = []
    for view in views:
        methods = view.outcomes[protocol]
        for method, outcome in methods.items():
            plain = method._replace(algorithm=other, parameter="")
            if method.algorithm == algorithm and plain in methods:
                found.append(Pair(view, method, outcome, methods[plain]))
    return found


def verdict(change: Spread) -> int:
    """-1 or 1 where the 95 % interval leaves out 0, else 0: also for a single seed, which has no interval."""
    return int(np.sign(change.mean)) if abs(change.mean) > change.half_width else 0


def tally(changes: Sequence[np.ndarray]) -> Tally:
    """Count the verdicts.

    >>> tally([np.array([-0.2, -0.21, -0.19]), np.array([-1.0, 1.0, 0.1])])
    Tally(lower=1, undecided=1, higher=0)
    """
    found = [verdict(spread(change)) for change in changes]
    return Tally(found.count(-1), found.count(0), found.count(1))


def on_average(changes: Sequence[np.ndarray]) -> Spread:
    """The mean of several changes with its interval: averaged within each seed first, because seeds are what varies."""
    if not changes:
        return spread(np.empty(0))
    stacked = np.stack(changes)
    known = np.isfinite(stacked)
    counts = known.sum(0)
    return spread(np.where(counts > 0, np.where(known, stacked, 0).sum(0) / np.maximum(counts, 1), np.nan))


def ranks(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """The place of each value, the lowest first; equal values share the mean of their places, undefined ones come last.

    >>> ranks([0.3, 0.1, 0.3, float("nan")])
    array([2.5, 1. , 2.5, 4. ])
    """
    found = np.where(np.isfinite(values), values, np.inf)
    below, same = (found[None] < found[:, None]).sum(1), (found[None] == found[:, None]).sum(1)
    return below + (same + 1) / 2


def rank_correlation(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Spearman's, over the entries that are defined in both; NaN if one side is constant or fewer than three are left."""
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    known = np.isfinite(a) & np.isfinite(b)
    a, b = ranks(a[known]), ranks(b[known])
    if len(a) < 3 or a.min() == a.max() or b.min() == b.max():
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])

"""Choosing among settings on validation rows; the test rows of what is chosen are read once, afterwards.

With one objective this is q-FFL's rule: of all candidates whose average stays close to the baseline's, the one with the least variance.
With several, the most balanced candidate of the front is taken: the one nearest to the best of each objective, when each is measured from
the worst (0) to the best (1) of the front and the baseline. The front is made of the candidates that no other beats in the objectives and
in what is kept.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

import numpy as np

from evenly.metrics import EVERY_METRIC
from evenly.metrics.statistics import on_front

Seen = Mapping[str, Mapping[str, float]]  # candidate -> metric -> mean over seeds, on validation rows


class Choice(NamedTuple):
    """What was chosen, what no other candidate beats, and who may be chosen at all."""

    chosen: str
    baseline: str
    front: tuple[str, ...]
    allowed: dict[str, bool]  # whether what is to be kept stays within the margin


def choose(
    seen: Seen, baseline: str, *, objectives: Sequence[str] = ("variance",), keep: str = "average", within: float | None = 1.0
) -> Choice:
    """The best candidate that keeps `keep` within a margin of the baseline's (None: no margin). The baseline is a candidate itself."""
    if baseline not in seen:
        raise ValueError(f"The baseline must be one of {', '.join(seen)}, got {baseline!r}.")
    if within is not None and within < 0:
        raise ValueError(f"within must be at least 0 points, got {within:g}.")
    allowed = {name: within is None or shortfall(seen, name, baseline, keep, within) <= 0 for name in seen}
    known = [name for name in seen if all(isfinite(seen[name][metric]) for metric in objectives)]
    known.sort(key=lambda name: name != baseline)  # the baseline wins ties
    unbeaten = on_front(_better(seen, known, judged_by(objectives, keep, within)))
    front = [name for name, kept in zip(known, unbeaten.tolist(), strict=True) if kept]
    possible = [name for name in (known if len(objectives) == 1 else front) if allowed[name]]
    if not possible:
        raise ValueError(
            f"Nothing can be chosen: on validation rows no candidate within the margin has a value of {' and '.join(objectives)}."
        )
    better = _better(seen, possible, objectives)
    start = _better(seen, [baseline], objectives)
    best = int(np.argmax(better[:, 0]) if len(objectives) == 1 else np.argmin(_unbalance(better, start)))
    return Choice(possible[best], baseline, tuple(name for name in seen if name in front), allowed)


def judged_by(objectives: Sequence[str], keep: str, within: float | None) -> tuple[str, ...]:
    """What spans the front: a single objective is seen against what is to be kept, and so are several where there is a margin."""
    return tuple(dict.fromkeys((*objectives, keep))) if len(objectives) == 1 or within is not None else tuple(objectives)


def shortfall(seen: Seen, name: str, baseline: str, keep: str, within: float) -> float:
    """How far a candidate is below the margin in what is to be kept: at most 0 where it is allowed, infinite where undefined."""
    side = EVERY_METRIC[keep].better
    missing = (side * seen[baseline][keep] - within) - side * seen[name][keep]
    return missing if isfinite(missing) else float("inf")


def _better(seen: Seen, names: Sequence[str], metrics: Sequence[str]) -> np.ndarray:
    """[names, metrics], larger is better in every column."""
    values = [[EVERY_METRIC[m].better * seen[name][m] for m in metrics] for name in names]
    return np.array(values, np.float64).reshape(len(names), len(metrics))


def _unbalance(better: np.ndarray, baseline: np.ndarray) -> np.ndarray:
    """How far each row is from the best of every column, columns scaled to 0 to 1 over all rows and the baseline's."""
    low, high = np.fmin(better.min(0), baseline[0]), better.max(0)  # the baseline's where it has a value
    missing = (high - better) / np.where(high > low, high - low, 1)
    return np.sqrt((missing**2).sum(-1))

"""Spread over seeds: mean, deviation and a confidence interval."""

from typing import NamedTuple

import numpy as np

from evenly.metrics.paired import t_quantile


class Spread(NamedTuple):
    """The mean over seeds, the sample deviation, and half the width of a 95 % interval for the mean."""

    mean: float
    deviation: float  # NaN for a single seed
    half_width: float  # NaN for a single seed
    seeds: int


def spread(values: np.ndarray) -> Spread:
    """Summarise one value per seed. Seeds where it is undefined (NaN) are left out.

    The interval is Student's t with one degree of freedom fewer than there are seeds, however many there are.

    >>> found = spread(np.array([1.0, 3.0]))
    >>> found.mean, round(found.deviation, 4), round(found.half_width, 4), found.seeds
    (2.0, 1.4142, 12.7062, 2)
    """
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    if len(known) == 0:
        return Spread(float("nan"), float("nan"), float("nan"), 0)
    if len(known) == 1:
        return Spread(float(known[0]), float("nan"), float("nan"), 1)
    deviation = float(known.std(ddof=1))
    return Spread(float(known.mean()), deviation, half_width(deviation, len(known)), len(known))


def half_width(deviation: float, seeds: int) -> float:
    """Half the width of a 95 % interval for the mean over seeds, from their sample deviation; NaN for a single seed."""
    return t_quantile(seeds - 1) * deviation / float(np.sqrt(seeds)) if seeds > 1 else float("nan")

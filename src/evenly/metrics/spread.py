"""Spread over seeds: mean, deviation and a confidence interval."""

from typing import NamedTuple

import numpy as np

# Two-sided 95 % points of Student's t for 1 to 30 degrees of freedom; beyond that the normal's 1.96 is within 4 %.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


class Spread(NamedTuple):
    """The mean over seeds, the sample deviation, and half the width of a 95 % interval for the mean."""

    mean: float
    deviation: float  # NaN for a single seed
    half_width: float  # NaN for a single seed
    seeds: int


def spread(values: np.ndarray) -> Spread:
    """Summarise one value per seed; seeds where it is undefined (NaN) are left out.

    >>> spread(np.array([1.0, 3.0]))
    Spread(mean=2.0, deviation=1.4142135623730951, half_width=12.706, seeds=2)
    """
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    if len(known) == 0:
        return Spread(float("nan"), float("nan"), float("nan"), 0)
    if len(known) == 1:
        return Spread(float(known[0]), float("nan"), float("nan"), 1)
    deviation = float(known.std(ddof=1))
    factor = _T95[len(known) - 2] if len(known) <= 31 else 1.96
    return Spread(float(known.mean()), deviation, factor * deviation / float(np.sqrt(len(known))), len(known))

"""Paired comparison of two methods over seeds: the mean difference, its interval, a p value, and Holm's correction for many of them.

Methods share the data, cohorts and batches of a seed, so the differences seed by seed are compared with 0 by Student's t test. The
degrees of freedom are whole numbers, for which the distribution is a finite sum; nothing has to be approximated.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Paired(NamedTuple):
    """One method less another over seeds. NaN where so few seeds say nothing."""

    difference: float  # mean over seeds
    half_width: float  # half of the 95 % interval for that mean; NaN for a single seed, or where all differ by the same
    p: float  # two-sided; NaN for a single seed
    effect: float  # the mean difference in its own standard deviations (Cohen's d of the differences); NaN for a single seed
    seeds: int


def paired(differences: Sequence[float] | np.ndarray) -> Paired:
    """Compare seed-by-seed differences with 0. Seeds where the difference is undefined (NaN) are left out.

    Where all n seeds differ by exactly the same, as accuracies on few rows often do by chance, t would be infinite and p 0 already with
    two seeds. Then p is that of the signs alone, 2^(1 - n), or 1 if they do not differ, and the effect infinite, or 0.

    >>> found = paired([1.0, 2.0, 3.0])
    >>> found.difference, round(found.p, 4), found.effect  # t = 2 / (1 / sqrt 3) with two degrees of freedom
    (2.0, 0.0742, 2.0)
    """
    known = np.asarray(differences, np.float64)
    known = known[np.isfinite(known)]
    n, nothing = len(known), float("nan")
    if n < 2:
        return Paired(float(known[0]) if n else nothing, nothing, nothing, nothing, n)
    mean, deviation = float(known.mean()), float(known.std(ddof=1))
    # Equal differences leave a deviation of rounding errors only.
    if deviation <= 1e-12 * max(1.0, abs(mean)):
        alike = abs(mean) <= 1e-12
        return Paired(0.0, 0.0, 1.0, 0.0, n) if alike else Paired(mean, nothing, 2.0 ** (1 - n), math.copysign(math.inf, mean), n)
    error = deviation / math.sqrt(n)
    return Paired(mean, t_quantile(n - 1) * error, two_sided(mean / error, n - 1), mean / deviation, n)


def two_sided(t: float, freedom: int) -> float:
    """The probability that Student's t with whole degrees of freedom is at least as far from 0, to about 1e-15.

    With θ = arctan(|t| / √ν) the probability of being nearer to 0 is, for even ν, sin θ (1 + 1/2 cos²θ + 1·3/(2·4) cos⁴θ + …) up to
    cos^(ν−2), and for odd ν, 2/π (θ + sin θ (cos θ + 2/3 cos³θ + 2·4/(3·5) cos⁵θ + …)) up to the same power.

    >>> round(two_sided(1.0, 1), 12)  # the Cauchy distribution: half of it lies outside of ±1
    0.5
    """
    if freedom < 1:
        raise ValueError(f"Student's t needs at least one degree of freedom, got {freedom}.")
    theta = math.atan2(abs(t), math.sqrt(freedom))
    sine, cosine = math.sin(theta), math.cos(theta)
    odd = freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(1 if odd else 0, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (k + 1) / (k + 2)
    nearer = 2 / math.pi * (theta + sine * total) if odd else sine * total
    return min(1.0, max(0.0, 1.0 - nearer))


@functools.cache
def t_quantile(freedom: int, level: float = 0.95) -> float:
    """The distance from 0 within which Student's t lies with this probability.

    >>> round(t_quantile(4), 3)
    2.776
    """
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > 1 - level:
        high *= 2
    for _ in range(80):  # halves the gap below what a float can tell
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > 1 - level else (low, middle)
    return (low + high) / 2


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Holm's correction: p values such that those below 5 % hold a false one with at most 5 % probability, however they depend.

    The smallest of m is multiplied by m, the next by m − 1, and so on; none may be below the one before it. NaN stays NaN and does
    not count.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p, np.float64)
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    found = np.full(p.shape, np.nan)
    found[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
    return found

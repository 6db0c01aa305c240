"""Statistics of results: bootstrap intervals, paired comparisons, spread over seeds, means and Pareto fronts."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.randomness import generator

# Intervals from resampling clients, or people: how far a figure could move had others of the same kind taken part.

Array = np.ndarray
AT_ONCE = 4_000_000  # counts of resampled tables held in memory together
MOST_BLOCKS = 2000
LEAST_CLIENTS = 10  # to resample: with fewer, resampling them finds too narrow intervals


class Interval(NamedTuple):
    """A percentile interval of every figure, and in how many of the resamples each was defined."""

    low: Array
    high: Array
    defined: Array  # fraction of the draws


def resampled(tables: Array, draws: int, seed: int) -> Iterator[Array]:
    """Summed tables of clients drawn with replacement, as many as there are: [clients, ...] -> [draws, ...], in pieces.

    Very many clients are first joined into blocks and the blocks are drawn: their sums vary as much as those of single
    clients do, and the work stays bounded.
    """
    joined = blocks(tables.reshape(len(tables), -1).astype(np.float64))  # whole numbers far below 2^53: sums are exact
    step = max(1, AT_ONCE // max(1, joined.shape[1]))
    for at in range(0, draws, step):
        chosen = _times(len(joined), draws, seed)[at : at + step]
        yield (chosen @ joined).reshape(len(chosen), *tables.shape[1:])


def blocks(rows: Array) -> Array:
    """Client k goes into block k modulo the number of blocks; few clients stay as they are. [clients, cells] -> [blocks, cells]"""
    if len(rows) <= MOST_BLOCKS:
        return rows
    joined = np.zeros((MOST_BLOCKS, rows.shape[1]))
    np.add.at(joined, np.arange(len(rows)) % MOST_BLOCKS, rows)
    return joined


@functools.lru_cache(maxsize=4)
def _times(units: int, draws: int, seed: int) -> Array:
    """How often each of the units is in each draw; a report asks for the same draws many times."""
    return generator(seed, "bootstrap").multinomial(units, np.full(units, 1 / units), size=draws)


def over_clients(tables: Array, statistic: Callable[[Array], Array], *, draws: int = 1000, level: float = 0.95, seed: int = 0) -> Interval:
    """Percentile interval of a statistic of the clients' summed tables [clients, groups, labels, outcomes].

    `statistic` takes tables [draws, groups, labels, outcomes] and returns [draws, ...]. Resamples in which a figure is
    undefined are left out of its interval; with fewer than two clients, or none left, the interval is NaN.

    >>> two = np.array([[[[1, 0], [0, 0]]], [[[0, 1], [0, 0]]]])  # one client is all right, the other all wrong
    >>> found = over_clients(two, lambda t: t[:, 0, 0, 0] / t.sum((1, 2, 3)))
    >>> float(found.low), float(found.high)
    (0.0, 1.0)
    """
    _check(draws, level)
    found = [np.asarray(statistic(part), np.float64) for part in resampled(tables, draws, seed)]
    return percentile_interval(np.concatenate(found), level=level, known=len(tables) > 1)


def over_people(table: Array, statistic: Callable[[Array], Array], *, draws: int = 1000, level: float = 0.95, seed: int = 0) -> Interval:
    """Percentile interval of a statistic of one table [groups, labels, outcomes] from resampling its people, not clients.

    For tables without clients, or with too few to resample: the interval says how far chance alone could move the figure had
    other people of the same kind been there. Otherwise as `over_clients`.

    >>> found = over_people(np.array([[[50, 50], [0, 0]]]), lambda t: t[:, 0, 0, 0] / t.sum((1, 2, 3)))
    >>> round(float(found.low), 1), round(float(found.high), 1)
    (0.4, 0.6)
    """
    _check(draws, level)
    people = int(table.sum())
    drawn = generator(seed, "bootstrap").multinomial(people, table.ravel() / max(1, people), size=draws).reshape(draws, *table.shape)
    return percentile_interval(np.asarray(statistic(drawn), np.float64), level=level, known=people > 1)


def _check(draws: int, level: float) -> None:
    if draws < 1 or not 0 < level < 1:
        raise ValueError(f"draws must be at least 1 and level between 0 and 1, got draws = {draws} and level = {level}.")


def percentile_interval(found: Array, *, level: float = 0.95, known: bool = True) -> Interval:
    """The interval of resampled figures [draws, ...] where they are defined; NaN where none is, or nothing is known of them."""
    defined = np.isfinite(found) & known
    ends = _percentiles(np.where(defined, found, np.inf), defined.sum(0), ((1 - level) / 2, (1 + level) / 2))
    return Interval(ends[0], ends[1], defined.mean(0))


def _percentiles(values: Array, known: Array, at: tuple[float, float]) -> list[Array]:
    """Linear percentiles of the first `known` of the sorted values. NumPy's own warns where there are none."""
    ordered = np.sort(values, axis=0)
    ends = []
    for share in at:
        place = share * np.maximum(known - 1, 0)
        below, above = (np.take_along_axis(ordered, np.asarray(p, int)[None], 0)[0] for p in (np.floor(place), np.ceil(place)))
        defined = known > 0
        below, above = np.where(defined, below, 0), np.where(defined, above, 0)
        ends.append(np.where(defined, below + (place - np.floor(place)) * (above - below), np.nan))
    return ends


# Paired comparison of two methods over seeds: the mean difference, its interval, a p value, and Holm's correction for many of them.
#
# Methods share the data, cohorts and batches of a seed, so the differences seed by seed are compared with 0 by Student's t test. The
# degrees of freedom are whole numbers, for which the distribution is a finite sum; nothing has to be approximated.


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


# Spread over seeds: mean, deviation and a confidence interval.


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


# The generalised-mean view of fair federated learning (PropFair, Section 3).
#
# Each method replaces the plain mean of the clients' losses by A_s(f) = s^-1(mean s(f_i)) for some increasing s:
#
# fedavg s(t) = t the mean q-ffl s(t) = t^(q+1) a power mean afl the maximum term s(t) = exp(alpha t) log-mean-exp propfair s(t) =
# -log(M - t) M minus the geometric mean of M - f_i
#
# `dual_weights` are the lambda_i with which the method weighs the clients' gradients; they sum to 1 except PropFair's, whose product of
# n lambda_i is 1 (its sum exceeds 1).

KINDS = ("fedavg", "q-ffl", "afl", "term", "propfair")


def generalised_mean(losses: Array, kind: str, parameter: float = 0.0) -> float:
    """A_s of non-negative losses; `parameter` is q, alpha or M.

    >>> round(generalised_mean(np.array([0.5, 2.0, 1.0]), "q-ffl", 1.0), 10)
    1.3228756555
    """
    f = _checked(losses, kind, parameter)
    top = f.max()
    if kind == "fedavg" or (kind == "term" and parameter == 0):
        return float(f.mean())
    if kind == "afl":
        return float(top)
    if kind == "q-ffl":  # scaled by the largest, so that no power overflows
        return float(top * np.mean((f / top) ** (parameter + 1)) ** (1 / (parameter + 1))) if top > 0 else 0.0
    if kind == "term":
        return float(top + np.log1p(np.mean(np.expm1(parameter * (f - top)))) / parameter)
    return float(-parameter * np.expm1(np.mean(np.log1p(-f / parameter))))  # M - GM(M - f), without cancelling at large M


def dual_weights(losses: Array, kind: str, parameter: float = 0.0) -> Array:
    """How the method weighs each client's gradient; equally if all losses are 0.

    >>> dual_weights(np.array([0.5, 2.0, 1.0]), "propfair", 5.0).round(4)
    array([0.28 , 0.42 , 0.315])
    """
    f = _checked(losses, kind, parameter)
    if kind == "fedavg" or f.max() == 0:
        raw = np.ones_like(f)
    elif kind == "q-ffl":
        raw = (f / f.max()) ** parameter
    elif kind == "afl":
        raw = (f == f.max()).astype(float)
    elif kind == "term":
        raw = np.exp(parameter * (f - f.max()))
    else:
        return np.exp(np.mean(np.log(parameter - f))) / (parameter - f) / len(f)
    return raw / raw.sum()


def _checked(losses: Array, kind: str, parameter: float) -> Array:
    f = np.asarray(losses, np.float64)
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    if len(f) == 0 or (f < 0).any() or not np.isfinite(f).all():
        raise ValueError(f"Losses must be finite, at least 0 and at least one, got {losses}.")
    if kind in ("q-ffl", "term") and parameter < 0:
        raise ValueError(f"{kind}: the parameter must be at least 0, got {parameter}.")
    if kind == "propfair" and not f.max() < parameter:
        raise ValueError(f"propfair: M must exceed every loss, got M = {parameter} and a loss of {f.max()}.")
    return f


# Which of several choices are not beaten: the front that is left of a trade-off between aims.


def on_front(values: Any) -> np.ndarray:
    """Which rows no other row beats: as good in every column, and better in one. Larger is better in all columns. [n, aims] -> [n]

    Rows with an undefined value are not on the front and beat nobody; equal rows are all on it or all off it.

    >>> on_front([[1, 5], [2, 4], [1, 4], [0, 5]]).tolist()
    [True, True, False, False]
    """
    found = np.asarray(values, np.float64)
    known = np.isfinite(found).all(1)
    front = np.array(known)
    for i in np.flatnonzero(known):
        front[i] = not ((found[known] >= found[i]).all(1) & (found[known] > found[i]).any(1)).any()
    return front

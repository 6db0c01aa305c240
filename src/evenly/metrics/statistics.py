"""Statistics of results: bootstrap intervals, paired tests, spread over seeds, generalised means
and Pareto fronts.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.randomness import generator

# Bootstrap intervals: how much a figure would vary with other clients, or other people, from the
# same population.

Array = np.ndarray
AT_ONCE = 4_000_000  # counts of resampled tables held in memory together
MOST_BLOCKS = 2000
LEAST_CLIENTS = 10  # intervals from resampling fewer clients are too narrow


class Interval(NamedTuple):
    """A percentile interval of one or more figures.

    Example:
        >>> percentile_interval(np.arange(101.0), level=0.9).high
        array(95.)
    """

    low: Array
    high: Array
    defined: Array  # fraction of the draws


def resampled(tables: Array, draws: int, seed: int) -> Iterator[Array]:
    """Draw clients with replacement, as many as there are, and sum their tables: [clients, ...] ->
    [draws, ...], in batches.

    More than MOST_BLOCKS clients are first joined into blocks, and the blocks are drawn. Sums of
    blocks vary as much as sums of single clients, and the cost stays bounded.
    """
    # whole numbers far below 2^53: sums are exact
    joined = blocks(tables.reshape(len(tables), -1).astype(np.float64))
    step = max(1, AT_ONCE // max(1, joined.shape[1]))
    for at in range(0, draws, step):
        chosen = _times(len(joined), draws, seed)[at : at + step]
        yield (chosen @ joined).reshape(len(chosen), *tables.shape[1:])


def blocks(rows: Array) -> Array:
    """Join client k into block k modulo MOST_BLOCKS. Fewer clients stay unchanged. [clients, cells]
    -> [blocks, cells]
    """
    if len(rows) <= MOST_BLOCKS:
        return rows
    joined = np.zeros((MOST_BLOCKS, rows.shape[1]))
    np.add.at(joined, np.arange(len(rows)) % MOST_BLOCKS, rows)
    return joined


@functools.lru_cache(maxsize=4)
def _times(units: int, draws: int, seed: int) -> Array:
    """How often each unit occurs in each draw. Cached because a report uses the same draws many
    times.
    """
    return generator(seed, "bootstrap").multinomial(units, np.full(units, 1 / units), size=draws)


def over_clients(
    tables: Array,
    statistic: Callable[[Array], Array],
    *,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Compute the bootstrap interval of a statistic of summed count tables by resampling clients.

    Args:
        tables: Count tables of the clients, [clients, groups, labels, outcomes].
        statistic: Maps tables [draws, groups, labels, outcomes] to figures [draws, ...].
        draws: Number of resamples.
        level: Coverage of the interval.
        seed: Seed of the resampling.

    Returns:
        The percentile interval. Resamples in which a figure is undefined are excluded from it. With
        fewer than two clients, or without any defined resample, it is NaN.

    Raises:
        ValueError: If `draws` is less than 1 or `level` is not between 0 and 1.

    Example:
        >>> # One client is always right, the other always wrong.
        >>> two = np.array([[[[1, 0], [0, 0]]], [[[0, 1], [0, 0]]]])
        >>> interval = over_clients(two, lambda t: t[:, 0, 0, 0] / t.sum((1, 2, 3)))
        >>> float(interval.low), float(interval.high)
        (0.0, 1.0)
    """
    _check(draws, level)
    values = [np.asarray(statistic(part), np.float64) for part in resampled(tables, draws, seed)]
    return percentile_interval(np.concatenate(values), level=level, enough=len(tables) > 1)


def over_people(
    table: Array,
    statistic: Callable[[Array], Array],
    *,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Compute the bootstrap interval of a statistic of one table [groups, labels, outcomes] by
    resampling people.

    For tables without clients, or with too few to resample. The arguments and the result are those
    of `over_clients`.

    >>> accuracy = lambda tables: tables[:, 0, 0, 0] / tables.sum((1, 2, 3))
    >>> interval = over_people(np.array([[[50, 50], [0, 0]]]), accuracy)
    >>> round(float(interval.low), 1), round(float(interval.high), 1)
    (0.4, 0.6)
    """
    _check(draws, level)
    people = int(table.sum())
    drawn = (
        generator(seed, "bootstrap")
        .multinomial(people, table.ravel() / max(1, people), size=draws)
        .reshape(draws, *table.shape)
    )
    return percentile_interval(
        np.asarray(statistic(drawn), np.float64), level=level, enough=people > 1
    )


def _check(draws: int, level: float) -> None:
    if draws < 1 or not 0 < level < 1:
        raise ValueError(
            f"draws must be at least 1 and level between 0 and 1, got draws = {draws} and level ="
            f" {level}."
        )


def percentile_interval(values: Array, *, level: float = 0.95, enough: bool = True) -> Interval:
    """Compute the percentile interval of resampled figures [draws, ...] where they are defined; NaN
    where none is, or unless `enough`.
    """
    defined = np.isfinite(values) & enough
    ends = _percentiles(
        np.where(defined, values, np.inf), defined.sum(0), ((1 - level) / 2, (1 + level) / 2)
    )
    return Interval(ends[0], ends[1], defined.mean(0))


def _percentiles(values: Array, number: Array, shares: tuple[float, float]) -> list[Array]:
    """Linear percentiles of the first `number` of the sorted values. NumPy's function warns where
    there are none.
    """
    ascending = np.sort(values, axis=0)
    ends = []
    for share in shares:
        position = share * np.maximum(number - 1, 0)
        below, above = (
            np.take_along_axis(ascending, np.asarray(p, int)[None], 0)[0]
            for p in (np.floor(position), np.ceil(position))
        )
        defined = number > 0
        below, above = np.where(defined, below, 0), np.where(defined, above, 0)
        ends.append(
            np.where(defined, below + (position - np.floor(position)) * (above - below), np.nan)
        )
    return ends


# Paired comparison of two methods over seeds: mean difference, confidence interval, p value, and
# Holm's correction.
#
# Methods share the data, cohorts and batches of a seed, so the differences per seed are compared
# with 0 by Student's t test. For whole degrees of freedom the distribution is a finite sum and
# needs no approximation.

LEVEL = 0.05
ROUNDING = 1e-12


class Paired(NamedTuple):
    """Difference between two methods over seeds. NaN where there are too few seeds.

    Example:
        >>> paired([1.0, 2.0, 3.0]).difference
        2.0
    """

    difference: float  # mean over seeds
    # half of the 95 % interval for that mean; NaN for a single seed, or where all differences are
    # equal
    half_width: float
    p: float  # two-sided; NaN for a single seed
    # the mean difference in its own standard deviations (Cohen's d of the differences); NaN for a
    # single seed
    effect: float
    seeds: int


def paired(differences: Sequence[float] | np.ndarray) -> Paired:
    """Test whether paired differences between two methods are 0 on average.

    If all n differences are equal, which happens by chance with accuracies on few rows, t would be
    infinite and p would be 0 with only two seeds. In this case p is that of the sign test, 2^(1 -
    n), and the effect is infinite; if all differences are 0, p is 1 and the effect is 0.

    Args:
        differences: One difference per seed. Undefined ones (NaN) are excluded.

    Returns:
        Mean difference, interval, two-sided p value and effect size.

    Example:
        >>> test = paired([1.0, 2.0, 3.0])
        >>> test.difference, round(test.p, 4), test.effect  # t = 2 sqrt 3
        (2.0, 0.0742, 2.0)
    """
    defined = np.asarray(differences, np.float64)
    defined = defined[np.isfinite(defined)]
    n, nothing = len(defined), float("nan")
    if n < 2:
        return Paired(float(defined[0]) if n else nothing, nothing, nothing, nothing, n)
    change = spread(defined)
    p = p_value(change)
    if all_alike(change):
        none = abs(change.mean) <= ROUNDING
        return (
            Paired(0.0, 0.0, p, 0.0, n)
            if none
            else Paired(change.mean, nothing, p, math.copysign(math.inf, change.mean), n)
        )
    return Paired(change.mean, change.half_width, p, change.mean / change.deviation, n)


def p_value(change: "Spread") -> float:
    """Compute the two-sided p value of a change over seeds: the t test or, if it is the same in all
    seeds, the sign test. NaN for a single seed.

    >>> round(p_value(spread(np.array([1.0, 2.0, 3.0]))), 4), p_value(spread(np.array([2.0, 2.0])))
    (0.0742, 0.5)
    """
    if not math.isfinite(change.deviation):
        return float("nan")
    if all_alike(change):
        return 1.0 if abs(change.mean) <= ROUNDING else 2.0 ** (1 - change.seeds)
    error = change.deviation / math.sqrt(change.seeds)
    return two_sided(change.mean / error, change.seeds - 1)


def is_clear(change: "Spread") -> bool:
    """Whether a change over seeds differs from 0 at the 5 % level. Tables, texts and tests of a
    report all use this decision.

    If the change is the same in all seeds, six seeds are needed. With a single seed nothing is
    clear.

    >>> is_clear(spread(np.full(5, 2.0))), is_clear(spread(np.full(6, 2.0)))
    (False, True)
    """
    return p_value(change) < LEVEL


def all_alike(change: "Spread") -> bool:
    """Whether a change is the same in all of at least two seeds, but for rounding errors."""
    return change.seeds > 1 and change.deviation <= ROUNDING * max(1.0, abs(change.mean))


def two_sided(t: float, freedom: int) -> float:
    """Compute the two-sided p value of Student's t with whole degrees of freedom, to about 1e-15.

    With θ = arctan(|t| / √ν) the probability of being nearer to 0 is, for even ν, sin θ (1 + 1/2
    cos²θ + 1·3/(2·4) cos⁴θ + …) up to cos^(ν−2), and for odd ν, 2/π (θ + sin θ (cos θ + 2/3 cos³θ +
    2·4/(3·5) cos⁵θ + …)) up to the same power.

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
    """Compute the two-sided quantile of Student's t: the distance from 0 within which t lies with a
    given probability.

    Args:
        freedom: Degrees of freedom, at least 1.
        level: The probability.

    Returns:
        The quantile.

    Raises:
        ValueError: If there are fewer than one degree of freedom.

    Example:
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
    """Adjust p values for multiple testing with Holm's correction.

    It controls the probability of any false positive, whatever the dependence between the tests.
    The smallest of m p values is multiplied by m, the next by m − 1, and so on; none becomes
    smaller than the one before it.

    Args:
        p: p values. NaN stays NaN and does not count.

    Returns:
        The adjusted p values, in the same order.

    Example:
        >>> holm([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.06, 0.06]
    """
    p = np.asarray(p, np.float64)
    defined = np.flatnonzero(np.isfinite(p))
    order = defined[np.argsort(p[defined], kind="stable")]
    adjusted = np.full(p.shape, np.nan)
    adjusted[order] = np.minimum(
        1.0, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
    )
    return adjusted


# Spread over seeds: mean, standard deviation and confidence interval.


class Spread(NamedTuple):
    """Mean over seeds, sample standard deviation, and half the width of the 95 % confidence
    interval of the mean.

    Example:
        >>> spread(np.array([1.0, 3.0])).mean
        2.0
    """

    mean: float
    deviation: float  # NaN for a single seed
    half_width: float  # NaN for a single seed
    seeds: int


def spread(values: np.ndarray) -> Spread:
    """Summarise one value per seed: mean, standard deviation and confidence interval.

    Args:
        values: One value per seed. Undefined ones (NaN) are excluded.

    Returns:
        The summary. Its interval is that of Student's t with n − 1 degrees of freedom for n seeds.

    Example:
        >>> summary = spread(np.array([1.0, 3.0]))
        >>> summary.mean, round(summary.deviation, 4), round(summary.half_width, 4), summary.seeds
        (2.0, 1.4142, 12.7062, 2)
    """
    defined = np.asarray(values, np.float64)
    defined = defined[np.isfinite(defined)]
    if len(defined) == 0:
        return Spread(float("nan"), float("nan"), float("nan"), 0)
    if len(defined) == 1:
        return Spread(float(defined[0]), float("nan"), float("nan"), 1)
    deviation = float(defined.std(ddof=1))
    return Spread(
        float(defined.mean()), deviation, half_width(deviation, len(defined)), len(defined)
    )


def half_width(deviation: float, seeds: int) -> float:
    """Compute half the width of the 95 % confidence interval of a mean over seeds.

    Args:
        deviation: Sample standard deviation over seeds.
        seeds: Number of seeds.

    Returns:
        Half the width; NaN for a single seed.

    Example:
        >>> round(half_width(1.0, 5), 4)
        1.2417
    """
    return t_quantile(seeds - 1) * deviation / float(np.sqrt(seeds)) if seeds > 1 else float("nan")


# The generalised-mean view of fair federated learning (PropFair, Section 3).
#
# Each method replaces the mean of the clients' losses by A_s(f) = s^-1(mean s(f_i)) for some
# increasing s:
#
# fedavg    s(t) = t               the mean q-ffl     s(t) = t^(q+1)         a power mean afl
# the maximum term      s(t) = exp(alpha t)    log-mean-exp propfair  s(t) = -log(M - t)     M minus
# the geometric mean of M - f_i
#
# `dual_weights` are the coefficients lambda_i of the clients' gradients. They sum to 1, except for
# PropFair, where the product of the n lambda_i is 1 and the sum exceeds 1.

KINDS = ("fedavg", "q-ffl", "afl", "term", "propfair")


def generalised_mean(losses: Array, kind: str, parameter: float = 0.0) -> float:
    """Compute the generalised mean of losses that a method minimises.

    Args:
        losses: Non-negative losses of the clients.
        kind: ``"fedavg"``, ``"q-ffl"``, ``"afl"``, ``"term"`` or ``"propfair"``.
        parameter: q of q-FFL, alpha of TERM or M of PropFair.

    Returns:
        The generalised mean.

    Raises:
        ValueError: If the kind is unknown, a loss is negative or not finite, or the parameter is
            out of range.

    Example:
        >>> round(generalised_mean(np.array([0.5, 2.0, 1.0]), "q-ffl", 1.0), 10)
        1.3228756555
    """
    f = _check_losses(losses, kind, parameter)
    top = f.max()
    if kind == "fedavg" or (kind == "term" and parameter == 0):
        return float(f.mean())
    if kind == "afl":
        return float(top)
    if kind == "q-ffl":  # scaled by the largest, so that no power overflows
        return (
            float(top * np.mean((f / top) ** (parameter + 1)) ** (1 / (parameter + 1)))
            if top > 0
            else 0.0
        )
    if kind == "term":
        return float(top + np.log1p(np.mean(np.expm1(parameter * (f - top)))) / parameter)
    # M - GM(M - f), without cancelling at large M
    return float(-parameter * np.expm1(np.mean(np.log1p(-f / parameter))))


def dual_weights(losses: Array, kind: str, parameter: float = 0.0) -> Array:
    """Compute the coefficients of the clients' gradients in the gradient of a generalised mean.

    Args:
        losses: Non-negative losses of the clients.
        kind: ``"fedavg"``, ``"q-ffl"``, ``"afl"``, ``"term"`` or ``"propfair"``.
        parameter: q of q-FFL, alpha of TERM or M of PropFair.

    Returns:
        One coefficient per client; equal ones if all losses are 0.

    Raises:
        ValueError: If the kind is unknown, a loss is negative or not finite, or the parameter is
            out of range.

    Example:
        >>> dual_weights(np.array([0.5, 2.0, 1.0]), "propfair", 5.0).round(4)
        array([0.28 , 0.42 , 0.315])
    """
    f = _check_losses(losses, kind, parameter)
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


def _check_losses(losses: Array, kind: str, parameter: float) -> Array:
    f = np.asarray(losses, np.float64)
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    if len(f) == 0 or (f < 0).any() or not np.isfinite(f).all():
        raise ValueError(f"Losses must be finite, at least 0 and at least one, got {losses}.")
    if kind in ("q-ffl", "term") and parameter < 0:
        raise ValueError(f"{kind}: the parameter must be at least 0, got {parameter}.")
    if kind == "propfair" and not f.max() < parameter:
        raise ValueError(
            f"propfair: M must exceed every loss, got M = {parameter} and a loss of {f.max()}."
        )
    return f


# Pareto front.


def on_front(values: Any) -> np.ndarray:
    """Find the Pareto front: the rows that no other row dominates.

    A row dominates another if it is at least as large in every column and larger in one. Equal rows
    are all on the front or all off it.

    Args:
        values: One row per candidate and one column per objective, [n, objectives]. Larger is
            better in every column.

    Returns:
        Whether each row is on the front, [n]. Rows with an undefined value are not, and dominate no
        other row.

    Example:
        >>> on_front([[1, 5], [2, 4], [1, 4], [0, 5]]).tolist()
        [True, True, False, False]
    """
    rows = np.asarray(values, np.float64)
    defined = np.isfinite(rows).all(1)
    front = np.array(defined)
    for i in np.flatnonzero(defined):
        front[i] = not ((rows[defined] >= rows[i]).all(1) & (rows[defined] > rows[i]).any(1)).any()
    return front

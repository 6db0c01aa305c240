"""Intervals from resampling clients, or people: how far a figure could move had others of the same kind taken part."""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from evenly.randomness import generator

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

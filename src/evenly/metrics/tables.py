"""From count tables to rates. Division by a count goes through `ratio`: an undefined rate is NaN, never 0."""

from typing import Any

import numpy as np

from evenly.types import Trace

Array = np.ndarray


def seated(trace: Trace) -> tuple[Array, Array]:
    """Who sat in each slot of each round, as a number among the clients in the tables, and with which weight. [rounds, K] each

    Where only a panel was evaluated, whoever is not of it has no number: the slot is given to the first, with weight 0.
    """
    if trace.panel is None:
        return trace.cohort, trace.weights
    place = np.full(len(trace.excluded), -1)
    place[trace.panel] = np.arange(len(trace.panel))
    found = place[trace.cohort]
    return np.maximum(found, 0), np.where(found < 0, 0, trace.weights)


def ratio(part: Any, whole: Any) -> Array:
    """part / whole, NaN where whole is 0.

    >>> ratio([1, 0], [2, 0])
    array([0.5, nan])
    """
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    return np.divide(part, whole, out=np.full(np.broadcast(part, whole).shape, np.nan), where=whole != 0)


def correct(tables: Array) -> Array:
    """Rows predicted right. [..., groups, labels, outcomes] -> [...]"""
    return np.trace(tables, axis1=-2, axis2=-1).sum(-1)


def examples(tables: Array) -> Array:
    """Rows counted. [..., groups, labels, outcomes] -> [...]"""
    return tables.sum((-3, -2, -1))


def accuracy(tables: Array) -> Array:
    """Share of rows predicted right, NaN without rows. [..., groups, labels, outcomes] -> [...]"""
    return ratio(correct(tables), examples(tables))

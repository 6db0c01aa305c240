"""How well inferred groups agree with the true ones, whose numbers they need not share."""

from typing import Any

import numpy as np

from evenly.metrics.tables import ratio

Array = np.ndarray


def group_accuracy(inferred: Any, true: Any) -> float:
    """Share of clients in the right group, in percent, under the naming of the inferred groups that is best for them.

    Inferred groups beyond the number of true ones match none. NaN without clients.

    >>> group_accuracy([1, 1, 0, 0, 0], [0, 0, 1, 1, 0])
    80.0
    """
    found, wanted = np.asarray(inferred), np.asarray(true)
    if found.shape != wanted.shape or found.ndim != 1:
        raise ValueError(f"There must be one inferred and one true group per client, got {list(found.shape)} and {list(wanted.shape)}.")
    if len(found) == 0:
        return float("nan")
    size = int(max(found.max(), wanted.max())) + 1
    counts = np.zeros((size, size), np.int64)
    np.add.at(counts, (found, wanted), 1)
    return float(100 * ratio(counts[np.arange(size), best_matching(counts)].sum(), len(found)))


def best_matching(gain: Array) -> Array:
    """The column of each row, all different, with the largest total gain: the Hungarian method. [n, n] -> [n]

    Rows are taken in one after another along the cheapest chain of changes; `row_price` and `column_price` keep every reduced
    cost at least 0, and 0 along the matching, which proves it best. Column 0 stands for "none yet".
    """
    cost = -np.asarray(gain, np.float64)
    n = len(cost)
    if cost.shape != (n, n):
        raise ValueError(f"Gains must be a square table, got {list(cost.shape)}.")
    row_price, column_price = np.zeros(n + 1), np.zeros(n + 1)
    owner = np.zeros(n + 1, int)  # row of each column, both counted from 1
    for row in range(1, n + 1):
        owner[0], column = row, 0
        slack, came_from, seen = np.full(n + 1, np.inf), np.zeros(n + 1, int), np.zeros(n + 1, bool)
        while owner[column]:
            seen[column] = True
            reduced = cost[owner[column] - 1] - row_price[owner[column]] - column_price[1:]
            closer = ~seen[1:] & (reduced < slack[1:])
            slack[1:][closer], came_from[1:][closer] = reduced[closer], column
            nearest = int(np.argmin(np.where(seen, np.inf, slack)[1:])) + 1
            step = slack[nearest]
            row_price[owner[seen]] += step
            column_price[seen] -= step
            slack[~seen] -= step
            column = nearest
        while column:
            owner[column] = owner[came_from[column]]
            column = came_from[column]
    matched = np.empty(n, int)
    matched[owner[1:] - 1] = np.arange(n)
    return matched

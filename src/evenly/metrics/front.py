"""Which of several choices are not beaten: the front that is left of a trade-off between aims."""

from typing import Any

import numpy as np


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

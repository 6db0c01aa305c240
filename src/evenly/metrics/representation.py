"""Who is in the data at all: shares and counts of groups, before any model (Thesis, Section 1.2.1)."""

import numpy as np

from evenly.metrics.tables import ratio

Array = np.ndarray


def representation_rates(cells: Array) -> Array:
    """RR_g = |D_g| / |D| (Eq. 1.1): each group's share of the rows. [..., groups, labels] -> [..., groups], NaN without rows.

    >>> representation_rates(np.array([[10, 20], [30, 40]]))
    array([0.3, 0.7])
    """
    rows = cells.sum(-1)
    return ratio(rows, rows.sum(-1, keepdims=True))


def represented(cells: Array, threshold: float) -> Array:
    """Whether each group's share of the rows reaches a threshold (Eq. 1.2). [..., groups, labels] -> [..., groups]"""
    return representation_rates(cells) >= threshold


def covered(cells: Array, threshold: float) -> Array:
    """Whether each group has at least so many rows, whatever its share (Eq. 1.3). [..., groups, labels] -> [..., groups]"""
    return cells.sum(-1) >= threshold


def good_clients(unprivileged: Array, coverage: float, tolerance: float = 0.1) -> Array:
    """Which clients have enough rows of the unprivileged: u_k >= coverage (1 - tolerance) (Section 4.3.2). [clients]

    >>> good_clients(np.array([899, 900]), coverage=1000)
    array([False,  True])
    """
    if not 0 <= tolerance <= 1:
        raise ValueError(f"tolerance must be from 0 to 1, got {tolerance}.")
    # Rounded: 1000 (1 - 0.1) must be 900 and not a hair more.
    return np.asarray(unprivileged) >= round(coverage * (1 - tolerance), 9)

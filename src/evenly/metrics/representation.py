"""Representation: which groups are in the data before any model is trained, for each client and in
total (Thesis, Section 1.2.1).
"""

from typing import NamedTuple

import numpy as np

from evenly.data.federation import Federation
from evenly.data.splits import SPLITS
from evenly.metrics.outcomes import ratio

Array = np.ndarray


def representation_rates(cells: Array) -> Array:
    """Compute each group's share of the rows, RR_g = |D_g| / |D| (Eq. 1.1).

    Args:
        cells: Number of rows by group and label, [..., groups, labels].

    Returns:
        The shares as fractions, [..., groups]; NaN without rows.

    Example:
        >>> representation_rates(np.array([[10, 20], [30, 40]]))
        array([0.3, 0.7])
    """
    rows = cells.sum(-1)
    return ratio(rows, rows.sum(-1, keepdims=True))


def represented(cells: Array, threshold: float) -> Array:
    """Test whether each group's share of the rows reaches a threshold (Eq. 1.2).

    Args:
        cells: Number of rows by group and label, [..., groups, labels].
        threshold: Smallest share, as a fraction.

    Returns:
        One boolean per group, [..., groups].

    Example:
        >>> represented(np.array([[10, 20], [30, 40]]), threshold=0.5)
        array([False,  True])
    """
    return representation_rates(cells) >= threshold


def covered(cells: Array, threshold: float) -> Array:
    """Test whether each group has a minimum number of rows, whatever its share (Eq. 1.3).

    Args:
        cells: Number of rows by group and label, [..., groups, labels].
        threshold: Smallest number of rows.

    Returns:
        One boolean per group, [..., groups].

    Example:
        >>> covered(np.array([[10, 20], [30, 40]]), threshold=30)
        array([ True,  True])
    """
    return cells.sum(-1) >= threshold


def good_clients(unprivileged: Array, coverage: float, tolerance: float = 0.1) -> Array:
    """Test which clients have enough rows of unprivileged people: u_k >= coverage (1 - tolerance)
    (Section 4.3.2).

    Args:
        unprivileged: Number of rows u_k of unprivileged people of each client, [clients].
        coverage: Number of rows that a client should have.
        tolerance: Fraction of the coverage that may be missing.

    Returns:
        One boolean per client, [clients].

    Raises:
        ValueError: If the tolerance is not from 0 to 1.

    Example:
        >>> good_clients(np.array([899, 900]), coverage=1000)
        array([False,  True])
    """
    if not 0 <= tolerance <= 1:
        raise ValueError(f"tolerance must be from 0 to 1, got {tolerance}.")
    # Rounding makes 1000 (1 - 0.1) exactly 900.
    return np.asarray(unprivileged) >= round(coverage * (1 - tolerance), 9)


# Description of a partition: sizes of clients, and their shares of labels and groups.


class ClientCard(NamedTuple):
    """Size and composition of one client."""

    name: str
    train: int
    valid: int
    test: int
    share: float  # of all clients' rows
    labels: tuple[float, ...]  # share of each label among its rows, in the federation's order
    groups: tuple[float, ...]  # share of each group among its rows, in the federation's order
    unprivileged: int  # rows of people in unprivileged groups


class GroupCard(NamedTuple):
    """Size and labels of one group of people over all clients and the central test set."""

    name: str
    rows: int
    share: float  # of all rows that are used
    favourable: float  # share of its rows with the favourable label; NaN without rows
    unprivileged: bool


def describe(federation: Federation) -> tuple[ClientCard, ...]:
    """Describe every client: sizes, and shares of labels and groups over all its rows."""
    # [clients, splits]
    sizes = np.stack([federation.split(name).counts for name in SPLITS], axis=1)
    cells = client_cells(federation)
    totals = sizes.sum(1)
    return tuple(
        ClientCard(
            name,
            *map(int, sizes[k]),
            share=float(totals[k] / totals.sum()),
            labels=tuple((cells[k].sum(0) / totals[k]).tolist()),
            groups=tuple((cells[k].sum(1) / totals[k]).tolist()),
            unprivileged=int(cells[k, list(federation.unprivileged)].sum()),
        )
        for k, name in enumerate(federation.names)
    )


def describe_groups(federation: Federation) -> tuple[GroupCard, ...]:
    """Describe every group: its size and rate of favourable labels, over all clients and the
    central test set.
    """
    cells = client_cells(federation).sum(0)
    np.add.at(cells, (federation.group[federation.central], federation.y[federation.central]), 1)
    rows = cells.sum(1)
    with np.errstate(invalid="ignore"):
        rates = cells[:, federation.favourable] / rows
    return tuple(
        GroupCard(
            name,
            int(rows[g]),
            float(rows[g] / rows.sum()),
            float(rates[g]),
            g in federation.unprivileged,
        )
        for g, name in enumerate(federation.groups)
    )


def good_clients_of(federation: Federation, coverage: float, tolerance: float = 0.1) -> np.ndarray:
    """Test which clients of a federation have enough rows of unprivileged people, over all splits.
    See `good_clients`. [clients]

    On a training split, pass the coverage used there: that of the data set times the share of rows
    that is not central.
    """
    return good_clients(
        client_cells(federation)[:, list(federation.unprivileged)].sum((1, 2)), coverage, tolerance
    )


def left_over(federation: Federation) -> int:
    """Count the rows that belong neither to a client nor to the central test set, which a coverage
    partition could not assign.
    """
    return (
        len(federation.y)
        - sum(len(federation.split(name).rows) for name in SPLITS)
        - len(federation.central)
    )


def client_cells(federation: Federation) -> np.ndarray:
    """Count the rows of each client by group and label, over all splits. int64 [clients, groups,
    labels]
    """
    cells = np.zeros((federation.clients, len(federation.groups), len(federation.labels)), np.int64)
    for name in SPLITS:
        part = federation.split(name)
        owner = np.repeat(np.arange(federation.clients), part.counts)
        np.add.at(cells, (owner, federation.group[part.rows], federation.y[part.rows]), 1)
    return cells

"""Who is in the data, before any model is trained: shares and counts of groups, for each client and in all."""

from typing import NamedTuple

import numpy as np

from evenly.data.federation import Federation
from evenly.data.splits import SPLITS
from evenly.metrics.tables import ratio

# Who is in the data at all: shares and counts of groups, before any model (Thesis, Section 1.2.1).

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


# What a partition looks like: how large clients are, what they hold, and whom they represent.


class ClientCard(NamedTuple):
    """One client of a federation."""

    name: str
    train: int
    valid: int
    test: int
    share: float  # of all clients' rows
    labels: tuple[float, ...]  # share of each label among its rows, in the federation's order
    groups: tuple[float, ...]  # share of each group among its rows, in the federation's order
    unprivileged: int  # its rows of people in unprivileged groups


class GroupCard(NamedTuple):
    """One group of people, wherever their rows are."""

    name: str
    rows: int
    share: float  # of all rows that are used
    favourable: float  # share of its rows with the favourable label; NaN without rows
    unprivileged: bool


def describe(federation: Federation) -> tuple[ClientCard, ...]:
    """Sizes, label and group shares of every client, all its rows together."""
    sizes = np.stack([federation.split(name).counts for name in SPLITS], axis=1)  # [clients, splits]
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
    """Size and rate of favourable labels of every group, over all clients and the central test set."""
    cells = client_cells(federation).sum(0)
    np.add.at(cells, (federation.group[federation.central], federation.y[federation.central]), 1)
    rows = cells.sum(1)
    with np.errstate(invalid="ignore"):
        rates = cells[:, federation.favourable] / rows
    return tuple(
        GroupCard(name, int(rows[g]), float(rows[g] / rows.sum()), float(rates[g]), g in federation.unprivileged)
        for g, name in enumerate(federation.groups)
    )


def good_clients_of(federation: Federation, coverage: float, tolerance: float = 0.1) -> np.ndarray:
    """Which clients cover unprivileged people: at least coverage * (1 - tolerance) rows, all parts together. bool [clients]

    On a training split, give the coverage that was used there: the data set's times the share of rows that is not central.
    """
    return good_clients(client_cells(federation)[:, list(federation.unprivileged)].sum((1, 2)), coverage, tolerance)


def left_over(federation: Federation) -> int:
    """How many rows belong neither to a client nor to the central test set: what a coverage partition could not deal."""
    return len(federation.y) - sum(len(federation.split(name).rows) for name in SPLITS) - len(federation.central)


def client_cells(federation: Federation) -> np.ndarray:
    """Rows of each client by group and label, all its parts together, int64 [clients, groups, labels]."""
    cells = np.zeros((federation.clients, len(federation.groups), len(federation.labels)), np.int64)
    for name in SPLITS:
        part = federation.split(name)
        owner = np.repeat(np.arange(federation.clients), part.counts)
        np.add.at(cells, (owner, federation.group[part.rows], federation.y[part.rows]), 1)
    return cells

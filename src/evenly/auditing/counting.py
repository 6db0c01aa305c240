"""From rows to counts: after this, nobody's row is needed any more."""

from typing import NamedTuple

import numpy as np

from evenly.metrics.statistics import MOST_BLOCKS

Array = np.ndarray


class Counts(NamedTuple):
    """Rows by client or group, label and outcome."""

    clients: Array  # int64 [clients, 1, labels, outcomes]; no clients where the table names none
    units: Array  # int64 [units, groups, labels, outcomes]: what intervals resample, clients or blocks of them; else one unit

    @property
    def groups(self) -> Array:
        """Everybody by group. [groups, labels, outcomes]"""
        return self.units.sum(0)


class Rows(NamedTuple):
    """What is known of every row, as numbers."""

    client: Array | None  # [rows]
    group: Array | None  # [rows]
    label: Array  # [rows]
    outcome: Array  # [rows]


def counted(rows: Rows, *, clients: int, groups: int, kinds: int) -> Counts:
    """Count all rows; `kinds` is how many labels and outcomes are told apart.

    Beyond MOST_BLOCKS clients, groups are counted by block of clients, the very blocks that resampling would form: so the counts
    stay small whatever the number of clients.
    """
    units = 1 if rows.client is None else min(clients, MOST_BLOCKS)
    unit = None if rows.client is None else rows.client if clients <= MOST_BLOCKS else rows.client % MOST_BLOCKS
    tables = _table([unit, rows.group, rows.label, rows.outcome], (units, groups, kinds, kinds))
    if rows.client is None:
        return Counts(np.zeros((0, 1, kinds, kinds), np.int64), tables)
    if units == clients:
        return Counts(tables.sum(1, keepdims=True), tables)
    return Counts(_table([rows.client, None, rows.label, rows.outcome], (clients, 1, kinds, kinds)), tables)


def _table(codes: list[Array | None], shape: tuple[int, ...]) -> Array:
    """How many rows have each combination of these numbers; None stands for a column that is 0 everywhere."""
    place: Array | None = None
    for code, size in zip(codes, shape, strict=True):
        place = code if place is None else place * size + (0 if code is None else code)
        place = None if place is None else place.astype(np.int64, copy=False)
    assert place is not None  # labels are always given
    return np.bincount(place, minlength=int(np.prod(shape))).reshape(shape)

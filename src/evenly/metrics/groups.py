"""From count tables to the rates of groups: [..., groups, labels, outcomes] -> [..., groups], NaN where undefined, never 0.

One label is favourable, the one that people want to get; with more than two labels it is set against all others together.
Some groups are unprivileged, all others privileged; pooled, they are the two sides whose rates are subtracted.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evenly.data.sensitive import Attribute
from evenly.metrics.tables import ratio

Array = np.ndarray


class Rates(NamedTuple):
    """How a model treats each group. All shares are fractions of what is named, NaN where there is none of it."""

    examples: Array  # rows
    accuracy: Array  # of all rows: predicted right, among all labels
    selection_rate: Array  # of all rows: predicted favourable
    base_rate: Array  # of all rows: labelled favourable
    tpr: Array  # of rows labelled favourable: predicted so
    fpr: Array  # of rows labelled otherwise: predicted favourable
    precision: Array  # of rows predicted favourable: labelled so
    f1: Array  # harmonic mean of precision and tpr: 2 TP / (2 TP + FP + FN)


class Wholes(NamedTuple):
    """How many rows each rate is a share of: what says whether it can be trusted."""

    accuracy: Array
    selection_rate: Array
    tpr: Array
    fpr: Array
    precision: Array


def rates(tables: Array, favourable: int) -> Rates:
    """The rates of every group.

    >>> table = np.array([[[40, 10], [20, 30]], [[0, 0], [0, 0]]])  # the second group has no rows
    >>> rates(table, favourable=1).tpr
    array([0.6, nan])
    """
    wholes = rows_behind(tables, favourable)
    tp, right = tables[..., favourable, favourable], np.trace(tables, axis1=-2, axis2=-1)
    return Rates(
        examples=wholes.accuracy,
        accuracy=ratio(right, wholes.accuracy),
        selection_rate=ratio(wholes.precision, wholes.accuracy),
        base_rate=ratio(wholes.tpr, wholes.accuracy),
        tpr=ratio(tp, wholes.tpr),
        fpr=ratio(wholes.precision - tp, wholes.fpr),
        precision=ratio(tp, wholes.precision),
        f1=ratio(2 * tp, wholes.tpr + wholes.precision),
    )


def rows_behind(tables: Array, favourable: int) -> Wholes:
    """The rows that each rate of each group is a share of.

    >>> rows_behind(np.array([[[40, 10], [20, 30]]]), favourable=1).tpr
    array([50])
    """
    if not 0 <= favourable < tables.shape[-1]:
        raise ValueError(f"The favourable label must be a number from 0 to {tables.shape[-1] - 1}, got {favourable}.")
    rows, labelled, predicted = tables.sum((-2, -1)), tables[..., favourable, :].sum(-1), tables[..., favourable].sum(-1)
    return Wholes(accuracy=rows, selection_rate=rows, tpr=labelled, fpr=rows - labelled, precision=predicted)


def sides(tables: Array, unprivileged: Sequence[int]) -> Array:
    """The unprivileged groups pooled, then the privileged: [..., groups, labels, outcomes] -> [..., 2, labels, outcomes]."""
    groups = tables.shape[-3]
    if not all(0 <= g < groups for g in unprivileged):
        raise ValueError(f"Unprivileged groups must be numbers from 0 to {groups - 1}, got {tuple(unprivileged)}.")
    chosen = np.isin(np.arange(groups), unprivileged)
    return np.stack([tables[..., chosen, :, :].sum(-3), tables[..., ~chosen, :, :].sum(-3)], axis=-3)


def by_attribute(tables: Array, attribute: Attribute) -> Array:
    """Groups pooled by their value of one attribute: [..., groups, labels, outcomes] -> [..., values, labels, outcomes].

    >>> sex = Attribute("sex", ("female", "male"), of_group=(0, 0, 1))
    >>> by_attribute(np.array([[[1]], [[2]], [[4]]]), sex).ravel()
    array([3, 4])
    """
    if tables.shape[-3] != len(attribute.of_group):
        raise ValueError(
            f"The attribute {attribute.name!r} must say the value of every group: it names {len(attribute.of_group)} groups, "
            f"but the tables have {tables.shape[-3]}."
        )
    of_group = np.array(attribute.of_group)
    return np.stack([tables[..., of_group == v, :, :].sum(-3) for v in range(len(attribute.values))], axis=-3)

"""Count tables and rates: from the number of rows per group, label and prediction to accuracies and
rates.

Count tables have the shape [..., groups, labels, outcomes]. Every division by a count uses `ratio`,
so an undefined rate is NaN and never 0.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.data.sensitive import Attribute
from evenly.types import Trace

Array = np.ndarray


def slots_of_evaluated(trace: Trace) -> tuple[Array, Array]:
    """Return which client was in each slot of each round, and its coefficient.

    Clients are numbered as in the count tables. If only some clients were evaluated, the others
    have no number there. Their slots get the number of the first evaluated client and the
    coefficient 0, so that they do not count.

    Args:
        trace: A finished run.

    Returns:
        The numbers of the clients and their coefficients, [rounds, K] each.

    Example:
        >>> from types import SimpleNamespace
        >>> cohort, coefficients = np.array([[0, 2]]), np.array([[0.5, 0.5]])
        >>> trace = SimpleNamespace(
        ...     cohort=cohort, weights=coefficients, panel=np.array([1, 2]), excluded=np.zeros(3)
        ... )
        >>> # of three clients, 1 and 2 were evaluated
        >>> [array.tolist() for array in slots_of_evaluated(trace)]
        [[[0, 1]], [[0.0, 0.5]]]
    """
    if trace.panel is None:
        return trace.cohort, trace.weights
    number = np.full(len(trace.excluded), -1)
    number[trace.panel] = np.arange(len(trace.panel))
    client = number[trace.cohort]
    return np.maximum(client, 0), np.where(client < 0, 0, trace.weights)


def ratio(part: Any, whole: Any) -> Array:
    """Divide, with NaN where the divisor is 0.

    Args:
        part: Numerator: a number or an array.
        whole: Denominator, of a shape that broadcasts with `part`.

    Returns:
        ``part / whole`` as float64.

    Example:
        >>> ratio([1, 0], [2, 0])
        array([0.5, nan])
    """
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    return np.divide(
        part, whole, out=np.full(np.broadcast(part, whole).shape, np.nan), where=whole != 0
    )


def correct(tables: Array) -> Array:
    """Count the rows with a correct prediction. [..., groups, labels, outcomes] -> [...]"""
    return np.trace(tables, axis1=-2, axis2=-1).sum(-1)


def examples(tables: Array) -> Array:
    """Count the rows of count tables.

    Args:
        tables: Count tables [..., groups, labels, outcomes].

    Returns:
        The number of rows, [...].

    Example:
        >>> examples(np.array([[[40, 10], [20, 30]]]))
        np.int64(100)
    """
    return tables.sum((-3, -2, -1))


def accuracy(tables: Array) -> Array:
    """Compute the share of rows with a correct prediction.

    Args:
        tables: Count tables [..., groups, labels, outcomes].

    Returns:
        The accuracy as a fraction, [...]; NaN without rows.

    Example:
        >>> accuracy(np.array([[[40, 10], [20, 30]]]))
        array(0.7)
    """
    return ratio(correct(tables), examples(tables))


# Rates of groups. One label is the favourable one, the one that people want to get; with more than
# two labels it is compared with all others together. Some groups are unprivileged and all others
# privileged; pooled, they are the two sides whose rates are subtracted.


class Rates(NamedTuple):
    """Rates of each group, as fractions; NaN where nobody is in the denominator. The comments name
    the denominator first.

    Example:
        >>> rates(np.array([[[40, 10], [20, 30]]]), favourable=1).selection_rate
        array([0.4])
    """

    examples: Array  # number of rows
    accuracy: Array  # of all rows: correct predictions, among all labels
    selection_rate: Array  # of all rows: favourable predictions
    base_rate: Array  # of all rows: favourable labels
    tpr: Array  # of rows with the favourable label: favourable predictions
    fpr: Array  # of rows with another label: favourable predictions
    precision: Array  # of rows with a favourable prediction: favourable labels
    f1: Array  # harmonic mean of precision and tpr: 2 TP / (2 TP + FP + FN)


class Wholes(NamedTuple):
    """Number of rows in the denominator of each rate, which determines how reliable the rate is."""

    accuracy: Array
    selection_rate: Array
    tpr: Array
    fpr: Array
    precision: Array


def rates(tables: Array, favourable: int) -> Rates:
    """Compute the rates of every group.

    Args:
        tables: Count tables [..., groups, labels, outcomes].
        favourable: Number of the favourable label.

    Returns:
        The rates, [..., groups] each; NaN where nobody is in the denominator.

    Raises:
        ValueError: If there is no label with this number.

    Example:
        >>> table = np.array([[[40, 10], [20, 30]], [[0, 0], [0, 0]]])  # no rows in the second
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
    """Count the rows in the denominator of each rate of each group.

    Args:
        tables: Count tables [..., groups, labels, outcomes].
        favourable: Number of the favourable label.

    Returns:
        The counts, [..., groups] each.

    Raises:
        ValueError: If there is no label with this number.

    Example:
        >>> rows_behind(np.array([[[40, 10], [20, 30]]]), favourable=1).tpr
        array([50])
    """
    if not 0 <= favourable < tables.shape[-1]:
        raise ValueError(
            f"The favourable label must be a number from 0 to {tables.shape[-1] - 1}, got"
            f" {favourable}."
        )
    rows, labels, predictions = (
        tables.sum((-2, -1)),
        tables[..., favourable, :].sum(-1),
        tables[..., favourable].sum(-1),
    )
    return Wholes(
        accuracy=rows, selection_rate=rows, tpr=labels, fpr=rows - labels, precision=predictions
    )


def sides(tables: Array, unprivileged: Sequence[int]) -> Array:
    """Pool the unprivileged groups and the privileged groups.

    Args:
        tables: Count tables [..., groups, labels, outcomes].
        unprivileged: Numbers of the unprivileged groups. All other groups are privileged.

    Returns:
        Count tables [..., 2, labels, outcomes]: the unprivileged side, then the privileged one.

    Raises:
        ValueError: If there is no group with one of these numbers.

    Example:
        >>> sides(np.array([[[1]], [[2]], [[4]]]), unprivileged=(0, 2)).ravel()
        array([5, 2])
    """
    groups = tables.shape[-3]
    if not all(0 <= g < groups for g in unprivileged):
        raise ValueError(
            f"Unprivileged groups must be numbers from 0 to {groups - 1}, got"
            f" {tuple(unprivileged)}."
        )
    chosen = np.isin(np.arange(groups), unprivileged)
    return np.stack(
        [tables[..., chosen, :, :].sum(-3), tables[..., ~chosen, :, :].sum(-3)], axis=-3
    )


def by_attribute(tables: Array, attribute: Attribute) -> Array:
    """Pool groups that share a value of a sensitive attribute.

    Args:
        tables: Count tables [..., groups, labels, outcomes].
        attribute: The attribute, with the value of every group.

    Returns:
        Count tables [..., values, labels, outcomes].

    Raises:
        ValueError: If the attribute is for another number of groups.

    Example:
        >>> sex = Attribute("sex", ("female", "male"), of_group=(0, 0, 1))
        >>> by_attribute(np.array([[[1]], [[2]], [[4]]]), sex).ravel()
        array([3, 4])
    """
    if tables.shape[-3] != len(attribute.of_group):
        raise ValueError(
            f"The attribute {attribute.name!r} must have a value for every group: it has"
            f" {len(attribute.of_group)} values, but the tables have {tables.shape[-3]} groups."
        )
    of_group = np.array(attribute.of_group)
    return np.stack(
        [tables[..., of_group == v, :, :].sum(-3) for v in range(len(attribute.values))], axis=-3
    )

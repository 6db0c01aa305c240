"""What of the groups must not be shown because it rests on too few people, also not by subtraction.

Shown are, besides the groups, everybody together, every column's values where there are intersections, and rates of those with
and of those without the favourable label: so a group, or the part of a group with one label, may follow from none of these totals.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.report.disclosure import Hidden, hide
from evenly.sensitive import Attribute

Array = np.ndarray
FAVOURABLE = 1  # how `labels.outcomes` numbers the favourable label
MOST_CELLS = 20_000  # combinations of values that are looked at, whether they occur or not


class Veil(NamedTuple):
    """What is hidden of some groups."""

    groups: Hidden  # [groups]
    labels: Hidden  # [groups, 2] their people with an unfavourable and with the favourable label


def label_counts(tables: Array) -> Array:
    """Rows of every group with an unfavourable and with the favourable label: what most rates are shares of. [..., 2]

    >>> label_counts(np.array([[[40, 10], [20, 30]]])).tolist()
    [[50, 50]]
    """
    favourable = tables[..., FAVOURABLE, :].sum(-1)
    return np.stack([tables.sum((-2, -1)) - favourable, favourable], axis=-1)


def veil(tables: Array, least: int) -> Veil:
    """What is hidden of the groups of one column, from their tables [groups, labels, outcomes]."""
    counts = label_counts(tables)
    groups = hide(counts.sum(-1), least, sums=[0])
    return Veil(groups, hide(counts, least, sums=[0, 1], also=_both(groups.cells)))


def both_shown(own: Veil) -> Array:
    """Groups of which neither label's people are hidden. [groups]"""
    return ~(own.labels.cells[:, 0] | own.labels.cells[:, 1])


def can_cross(attributes: Sequence[Attribute]) -> bool:
    """Whether the combinations of these columns' values are few enough to be looked at together."""
    return math.prod(len(attribute.values) for attribute in attributes) <= MOST_CELLS


def crossed(tables: Array, attributes: Sequence[Attribute], single: Sequence[Veil], least: int) -> Veil:
    """What is hidden of intersections [groups, labels, outcomes], of which each column's values are shown as well.

    `single` says what is hidden of each column on its own; that must not follow from its intersections either.
    """
    place = tuple(np.array(attribute.of_group) for attribute in attributes)
    counts = np.zeros((*(len(attribute.values) for attribute in attributes), 2), np.int64)
    counts[place] = label_counts(tables)
    gone = np.zeros(counts.shape[:-1], bool)
    for axis, own in enumerate(single):
        gone |= np.expand_dims(own.groups.cells, tuple(i for i in range(gone.ndim) if i != axis))
    axes = range(gone.ndim)
    groups = hide(counts.sum(-1), least, sums=list(axes), also=gone & (counts.sum(-1) > 0))
    labels = hide(counts, least, sums=[*axes, gone.ndim], also=_both(groups.cells))
    return Veil(_gathered(groups, place), _gathered(labels, place))


def _both(cells: Array) -> Array:
    return np.repeat(cells[..., None], 2, axis=-1)


def _gathered(hidden: Hidden, place: Any) -> Hidden:
    return Hidden(hidden.cells[place], hidden.small[place], {})

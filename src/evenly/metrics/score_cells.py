"""Scores as counts: how a site describes its scores without sending any, and which AUC follows.

Scores from 0 to 1 lie in 100 bins of equal width. A *cell* counts the people of one group with one
label whose scores lie in a range of neighbouring bins. A site joins bins until every cell holds
enough people, so each range is as narrow as its people allow. AUC is a share of pairs of people,
and only pairs whose ranges overlap are uncertain: the cells bound it from both sides.
"""

from typing import NamedTuple

import numpy as np

from evenly.metrics.outcomes import ratio

Array = np.ndarray
BINS = 100
FIELDS = ("group", "label", "first", "last", "people")  # of a cell


class AucBounds(NamedTuple):
    """The smallest and the largest AUC that cells allow, and DeLong's variance of their middle."""

    low: Array
    high: Array
    variance: Array

    @property
    def middle(self) -> Array:
        """The AUC if scores of overlapping ranges were equal."""
        return (self.low + self.high) / 2

    @property
    def error(self) -> Array:
        """How far the AUC can be from the middle."""
        return (self.high - self.low) / 2


def score_cells(score: Array, label: Array, group: Array, least: int = 1) -> Array:
    """Count scores in cells of at least `least` people each.

    Args:
        score: Probabilities of the favourable label, [rows].
        label: Whether each row has the favourable label, [rows].
        group: Group of each row, [rows].
        least: Smallest number of people in a cell. A group with fewer people of one label has one
            cell for them, which covers all bins and tells only their number.

    Returns:
        One row per cell, int64 [cells, 5]: group, label (1 is the favourable one), first bin, last
        bin and people.

    Raises:
        ValueError: If a score is not a probability.

    Example:
        >>> score, label = np.array([0.05, 0.05, 0.31, 0.9]), np.array([1, 1, 1, 1])
        >>> score_cells(score, label, np.zeros(4, int), least=2).tolist()
        [[0, 1, 0, 5, 2], [0, 1, 6, 99, 2]]
    """
    invalid = ~((score >= 0) & (score <= 1))
    if invalid.any():
        raise ValueError(
            f"Scores must be probabilities from 0 to 1, got {score[invalid][0]:g}"
            f" ({int(invalid.sum()):,} invalid). Convert a logit z with 1 / (1 + exp(-z))."
        )
    bins = np.minimum((score * BINS).astype(np.int64), BINS - 1)
    cells = []
    for g in np.unique(group).tolist():
        for kind in (0, 1):
            own = bins[(group == g) & (np.asarray(label, int) == kind)]
            for first, last, people in _joined(np.bincount(own, minlength=BINS), least):
                cells.append((g, kind, first, last, people))
    return np.array(cells, np.int64).reshape(-1, len(FIELDS))


def _joined(counts: Array, least: int) -> list[tuple[int, int, int]]:
    """First bin, last bin and people of each cell. People who are left over at the end join the
    cell before. Where cells join people, their ranges cover all bins: a range that began at the
    lowest score would tell the score of one person.
    """
    filled = np.flatnonzero(counts).tolist()
    if least == 1:
        return [(b, b, int(counts[b])) for b in filled]
    cells: list[tuple[int, int, int]] = []
    first, people = 0, 0
    for b in filled:
        people += int(counts[b])
        if people >= least:
            cells.append((first, b, people))
            first, people = b + 1, 0
    if people and not cells:  # their number is known from the table, and nothing else is told
        return [(0, BINS - 1, people)]
    if cells:
        begun, _, before = cells.pop()
        cells.append((begun, BINS - 1, before + people))
    return cells


class CellCounts(NamedTuple):
    """Cells as counts only: people by the first and by the last bin of their cell, [groups, 2,
    BINS] each. The cells of a group and label do not overlap, so both tell the cells.
    """

    first: Array
    last: Array


def counts_of_cells(cells: Array, groups: int) -> CellCounts:
    """Write cells as counts.

    >>> counts = counts_of_cells(np.array([[0, 1, 5, 9, 10], [0, 1, 12, 12, 7]]), 1)
    >>> cells_of_counts(counts).tolist()
    [[0, 1, 5, 9, 10], [0, 1, 12, 12, 7]]
    """
    group, label, first, last, people = cells.T
    return CellCounts(*(_by_bin(group, label, bins, people, groups) for bins in (first, last)))


def cells_of_counts(counts: CellCounts) -> Array:
    """Read cells from counts. Raises a ValueError if no cells have these counts."""
    wrong = counts.first.shape != counts.last.shape or counts.first.shape[1:] != (2, BINS)
    if wrong or not all(((each >= 0) & (each % 1 == 0)).all() for each in counts):
        raise ValueError(f"Counts of scores must be whole numbers of shape [groups, 2, {BINS}].")
    first, last = (np.argwhere(each > 0) for each in counts)
    if len(first) != len(last) or (first[:, :2] != last[:, :2]).any():
        raise ValueError("The first and last bins of scores belong to different cells.")
    people = counts.first[tuple(first.T)]
    apart = (first[:, 2] <= last[:, 2]) & (people == counts.last[tuple(last.T)])
    same = (first[1:, :2] == first[:-1, :2]).all(1)
    if not apart.all() or (same & (first[1:, 2] <= last[:-1, 2])).any():
        raise ValueError("The first and last bins of scores belong to different cells.")
    return np.column_stack([first, last[:, 2], people]).astype(np.int64)


def refuse_wrong_cells(cells: Array, labels: Array) -> None:
    """Raise a ValueError unless cells fit the numbers of people by group and label [groups, 2]."""
    whole = cells.ndim == 2 and cells.shape[1:] == (len(FIELDS),)
    if not whole or not np.equal(np.mod(cells, 1), 0).all():
        raise ValueError(f"Score cells must be whole numbers of shape [cells, {len(FIELDS)}].")
    group, label, first, last, people = cells.astype(np.int64).T
    inside = (
        (group >= 0) & (group < len(labels)) & (label >= 0) & (label < 2) & (people > 0)
        & (first >= 0) & (first <= last) & (last < BINS)
    )  # fmt: skip
    if not inside.all():
        raise ValueError("A score cell names an unknown group, label or bin.")
    found = np.zeros(labels.shape, np.int64)
    np.add.at(found, (group, label), people)
    if (found != labels).any():
        raise ValueError("The score cells have other numbers of people than the table.")


def auc_bounds(cells: Array, of_cell: Array, groups: int) -> AucBounds:
    """Bound the AUC of each group, from cells [cells, 5] and the group that each belongs to; NaN
    without people of both labels.

    Example:
        >>> cells = np.array([[0, 1, 5, 9, 10], [0, 0, 0, 4, 10], [0, 0, 8, 20, 10]])
        >>> found = auc_bounds(cells, np.zeros(3, int), 1)
        >>> found.low.tolist(), found.high.tolist()
        ([0.5], [1.0])
    """
    _, label, first, last, people = cells.T
    begins, ends = (_by_bin(of_cell, label, bins, people, groups) for bins in (first, last))
    total = begins.sum(-1)  # [groups, 2]
    # people of a label whose range ends before a bin, or begins after it: [groups, 2, BINS]
    before = np.cumsum(ends, -1) - ends
    after = total[..., None] - np.cumsum(begins, -1)
    other = 1 - label
    below, above = before[of_cell, other, first], after[of_cell, other, last]
    favourable = label == 1
    # people of the other label whom each person of the cell is ranked correctly against
    sure = np.where(favourable, below, above)
    possible = total[of_cell, other] - np.where(favourable, above, below)
    pairs = total.prod(1)
    ends_of_auc = [
        ratio(np.bincount(of_cell, favourable * people * each, minlength=groups), pairs)
        for each in (sure, possible)
    ]
    placement = ratio((sure + possible) / 2, total[of_cell, other])
    middle = (ends_of_auc[0] + ends_of_auc[1]) / 2
    square = people * (placement - middle[of_cell]) ** 2
    variance = sum(
        ratio(
            ratio(np.bincount(of_cell, (label == k) * square, minlength=groups), total[:, k] - 1),
            total[:, k],
        )
        for k in (0, 1)
    )
    return AucBounds(ends_of_auc[0], ends_of_auc[1], np.asarray(variance))


def _by_bin(group: Array, label: Array, bins: Array, people: Array, groups: int) -> Array:
    counts = np.zeros((groups, 2, BINS), np.int64)
    np.add.at(counts, (group, label, bins), people)
    return counts

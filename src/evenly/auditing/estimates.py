"""Estimates with confidence intervals, counts of rows, and the quality of scores: AUC, calibration
and thresholds.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from evenly.auditing.read import row_words
from evenly.metrics import ratio
from evenly.metrics.statistics import (
    LEAST_CLIENTS,
    MOST_BLOCKS,
    Interval,
    over_clients,
    over_people,
)
from evenly.report.disclosure import hide
from evenly.report.values import NORMAL95, wilson

# Estimates and their confidence intervals.

Array = np.ndarray
NAN = float("nan")


class Estimate(NamedTuple):
    """A figure, its 95 % confidence interval and the number of rows it rests on; NaN where
    undefined, hidden or without interval.
    """

    value: float
    low: float = NAN
    high: float = NAN
    rows: int = 0

    @property
    def has_value(self) -> bool:
        """Whether the figure is defined and may be shown."""
        return bool(np.isfinite(self.value))

    @property
    def has_interval(self) -> bool:
        """Whether the figure has an interval."""
        return bool(np.isfinite([self.value, self.low, self.high]).all())

    def times(self, factor: float) -> "Estimate":
        """Scale the figure and its interval."""
        return self._replace(
            value=factor * self.value, low=factor * self.low, high=factor * self.high
        )


NOTHING = Estimate(NAN)


def resampled_interval(units: Array, statistic: Callable[[Array], Array]) -> Interval:
    """Compute the bootstrap interval of a statistic of summed tables, from resampled clients if
    there are enough, else from people.

    `units` is [units, groups, labels, outcomes]; `statistic` takes [draws, groups, labels,
    outcomes].
    """
    return (
        over_clients(units, statistic)
        if len(units) >= LEAST_CLIENTS
        else over_people(units.sum(0), statistic)
    )


def rate_ends(
    units: Array, share: Array, rows: Array, statistic: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Compute the ends of the intervals of rates: Wilson's interval, widened to the bootstrap
    interval if there are enough clients.

    Resampling alone finds no uncertainty where all of a group's few rows have the same outcome.
    """
    low, high = wilson(share, rows)
    if len(units) < LEAST_CLIENTS:
        return low, high
    drawn = over_clients(units, statistic)
    return np.fmin(low, drawn.low), np.fmax(high, drawn.high)


def newcombe(share: Array, rows: Array) -> tuple[Array, Array]:
    """Compute Newcombe's 95 % interval (method 10) of the difference of two shares [..., 2], which
    combines their Wilson intervals.
    """
    low, high = wilson(share, rows)
    gap = share[..., 0] - share[..., 1]
    below = np.sqrt((share[..., 0] - low[..., 0]) ** 2 + (high[..., 1] - share[..., 1]) ** 2)
    above = np.sqrt((high[..., 0] - share[..., 0]) ** 2 + (share[..., 1] - low[..., 1]) ** 2)
    return gap - below, gap + above


def p_value(gap: Estimate) -> float:
    """Compute the two-sided p value of a difference from its 95 % interval, by the normal
    approximation on the side of 0.

    It is below 0.05 if the interval lies on one side of 0, and therefore agrees with what the
    interval shows, whether that comes from resampling or from Newcombe.

    >>> round(p_value(Estimate(-0.2, -0.5, -0.1)), 4)
    0.0001
    >>> p_value(Estimate(0.1, 0.0, 0.3)) < 0.05 < p_value(Estimate(0.1, -0.01, 0.3))
    True
    """
    if not gap.has_interval:
        return NAN
    half = abs((gap.high if gap.value < 0 else gap.low) - gap.value)
    return math.erfc(NORMAL95 * abs(gap.value) / half / math.sqrt(2)) if half > 0 else NAN


def estimates(value: Array, low: Array, high: Array, rows: Array) -> tuple[Estimate, ...]:
    """Combine parallel arrays into one estimate per entry; NOTHING where the value is NaN."""
    numbers = zip(value.tolist(), low.tolist(), high.tolist(), rows.tolist(), strict=True)
    return tuple(Estimate(v, a, b, int(n)) if np.isfinite(v) else NOTHING for v, a, b, n in numbers)


# Counts of rows, from which everything except scores is computed.


class Counts(NamedTuple):
    """Number of rows by client or group, label and outcome."""

    clients: Array  # int64 [clients, 1, labels, outcomes]; empty without a client column
    # int64 [units, groups, labels, outcomes]: units of resampling, which are clients or blocks of
    # them; else one unit
    units: Array

    @property
    def groups(self) -> Array:
        """Counts by group, over all clients. [groups, labels, outcomes]"""
        return self.units.sum(0)


class AuditRows(NamedTuple):
    """Client, group, label and outcome of every row, as numbers."""

    client: Array | None  # [rows]
    group: Array | None  # [rows]
    label: Array  # [rows]
    outcome: Array  # [rows]


def count_rows(rows: AuditRows, *, clients: int, groups: int, kinds: int) -> Counts:
    """Count all rows; `kinds` is the number of labels and of outcomes.

    With more than MOST_BLOCKS clients, groups are counted by block of clients. These are the blocks
    that resampling would form, and the counts stay small whatever the number of clients.
    """
    units = 1 if rows.client is None else min(clients, MOST_BLOCKS)
    unit = (
        None
        if rows.client is None
        else rows.client
        if clients <= MOST_BLOCKS
        else rows.client % MOST_BLOCKS
    )
    tables = _table([unit, rows.group, rows.label, rows.outcome], (units, groups, kinds, kinds))
    if rows.client is None:
        return Counts(np.zeros((0, 1, kinds, kinds), np.int64), tables)
    if units == clients:
        return Counts(tables.sum(1, keepdims=True), tables)
    return Counts(
        _table([rows.client, None, rows.label, rows.outcome], (clients, 1, kinds, kinds)), tables
    )


def _table(codes: list[Array | None], shape: tuple[int, ...]) -> Array:
    """Count the rows with each combination of codes; None stands for a column that is 0
    everywhere.
    """
    cell: Array | None = None
    for code, size in zip(codes, shape, strict=True):
        cell = code if cell is None else cell * size + (0 if code is None else code)
        cell = None if cell is None else cell.astype(np.int64, copy=False)
    assert cell is not None  # labels are always given
    return np.bincount(cell, minlength=int(np.prod(shape))).reshape(shape)


# Scores: how well they rank people (AUC) and whether they match the observed frequencies
# (calibration).
#
# A score is the predicted probability of the favourable label. AUC is the probability that a person
# with the favourable label has a higher score than a person without it, where ties count half. Its
# interval is that of DeLong, DeLong and Clarke-Pearson (1988), on the logit scale. The calibration
# error is Σ share of a bin · |mean score − share with the favourable label|, over ten bins of equal
# width.

BINS = 10
THRESHOLDS = 20  # steps between 0 and 1
SCORES = {"auc": "AUC", "ece": "Calibration error", "bias": "Mean score less share favourable"}


class Scores(NamedTuple):
    """Score and label of every row, and the order of rows by score."""

    score: Array  # float64 [rows]
    label: Array  # [rows] whether the label is the favourable one
    order: Array  # [rows] row numbers, the lowest score first


class ScoreSummary(NamedTuple):
    """AUC, bias and calibration of each group; NaN where undefined."""

    auc: Array
    auc_low: Array
    auc_high: Array
    # mean score minus the share with the favourable label: above 0, scores are too high
    bias: Array
    bias_low: Array
    bias_high: Array
    ece: Array  # expected calibration error
    rows: Array
    favourable: Array  # rows with the favourable label
    # [groups, BINS, 3] rows, sum of scores and rows with the favourable label in every bin
    bins: Array
    steps: Array  # [groups, 2, THRESHOLDS] rows by label and score


class Curves(NamedTuple):
    """Calibration curves and gaps by threshold of every group; NaN where hidden."""

    score: Array  # [groups, BINS] mean score in the bin
    frequency: Array  # [groups, BINS] share with the favourable label in the bin
    rows: Array  # [groups, BINS]
    spd: Array  # [groups, THRESHOLDS] selection rate minus that of all others at each threshold
    eod: Array  # [groups, THRESHOLDS] true positive rate minus that of all others


def check_scores(name: str, values: Array, label: Array) -> Scores:
    """Sort the scores of a column. Raises a ValueError unless all are probabilities."""
    invalid = ~((values >= 0) & (values <= 1))
    if invalid.any():
        first = int(invalid.argmax())
        what = "is empty or not a number" if np.isnan(values[first]) else f"holds {values[first]:g}"
        raise ValueError(
            f"Column {name!r} must hold probabilities from 0 to 1 in every row; {row_words(first)}"
            f" {what}, and {int(invalid.sum()) - 1:,} more rows are invalid. Use the probability of"
            " the favourable label; convert a logit z with 1 / (1 + exp(-z))."
        )
    return Scores(values, label == 1, np.argsort(values, kind="stable"))


def summarise_scores(scores: Scores, group: Array | None, groups: int) -> ScoreSummary:
    """Compute AUC, bias and calibration of every group, or of everybody if `group` is None."""
    group = np.zeros(len(scores.score), np.int64) if group is None else group.astype(np.int64)
    rows, favourable = (
        np.bincount(group, minlength=groups),
        np.bincount(group, scores.label, minlength=groups),
    )
    auc, low, high = _auc(scores, group, groups, favourable, rows - favourable)
    bins = _bins(scores, group, groups)
    bias = ratio(bins[..., 1].sum(-1) - favourable, rows)
    half = _bias_error(scores, group, groups, bias, rows)
    gaps = np.abs(bins[..., 1] - bins[..., 2]).sum(-1)
    steps = np.minimum((scores.score * THRESHOLDS).astype(np.int64), THRESHOLDS - 1)
    kinds = np.bincount(
        (group * 2 + scores.label) * THRESHOLDS + steps, minlength=groups * 2 * THRESHOLDS
    )
    return ScoreSummary(
        auc, low, high, bias, bias - half, bias + half, ratio(gaps, rows), rows,
        favourable.astype(np.int64), bins, kinds.reshape(groups, 2, THRESHOLDS),
    )  # fmt: skip


def score_figures(
    summary: ScoreSummary, visible: Array, min_cell: int
) -> dict[str, tuple[Estimate, ...]]:
    """AUC, calibration error and bias of the groups whose label counts are visible; AUC only with
    enough people of each label.

    All three depend on the labels: with scores of 0 and 1, bias and selection rate reveal how many
    people have the favourable label.
    """
    fewest = np.minimum(summary.favourable, summary.rows - summary.favourable)
    has_auc, nothing = visible & (fewest >= min_cell), np.full(len(summary.rows), np.nan)
    return {
        "auc": estimates(
            np.where(has_auc, summary.auc, np.nan), summary.auc_low, summary.auc_high, summary.rows
        ),
        "ece": estimates(np.where(visible, summary.ece, np.nan), nothing, nothing, summary.rows),
        "bias": estimates(
            np.where(visible, summary.bias, np.nan),
            summary.bias_low,
            summary.bias_high,
            summary.rows,
        ),
    }


def curves(summary: ScoreSummary, visible: Array, compared: Array, min_cell: int) -> Curves:
    """Compute the curves of the charts. Bins with fewer than `min_cell` people are hidden.

    A curve of many thresholds reveals more than a single rate, so it is hidden unless both sides
    have ten times as many people of each label.
    """
    rows, score, favourable = np.moveaxis(summary.bins, -1, 0)
    # a group's total is visible
    filled = ~hide(rows, min_cell, sums=[1], also=~visible[:, None]).cells
    spd, eod = (np.full((len(rows), THRESHOLDS), np.nan) for _ in range(2))
    everybody = summary.steps[compared].sum(0)
    for g in np.flatnonzero(visible & compared):
        pair = np.stack([summary.steps[g], everybody - summary.steps[g]])
        if (pair.sum(-1) >= 10 * max(1, min_cell)).all():
            spd[g], eod[g] = (rate[0] - rate[1] for rate in at_thresholds(pair))
    divisor = np.where(filled, rows, np.nan)
    return Curves(
        ratio(score, divisor), ratio(favourable, divisor), np.where(filled, rows, 0), spd, eod
    )


def at_thresholds(steps: Array) -> tuple[Array, Array]:
    """Compute selection rate and true positive rate of groups if everybody with at least a
    threshold's score were selected.

    The thresholds are 0, 1/20, 2/20 and so on; `steps` is that of `ScoreSummary`. [groups,
    THRESHOLDS] each
    """
    above = steps[..., ::-1].cumsum(-1)[..., ::-1]  # rows from each step on
    return ratio(above.sum(-2), steps.sum((-2, -1))[..., None]), ratio(
        above[..., 1, :], steps[..., 1, :].sum(-1)[..., None]
    )


def _bins(scores: Scores, group: Array, groups: int) -> Array:
    cell = group * BINS + np.minimum((scores.score * BINS).astype(np.int64), BINS - 1)
    weights = (None, scores.score, scores.label)
    return np.stack(
        [np.bincount(cell, weight, minlength=groups * BINS) for weight in weights], axis=-1
    ).reshape(groups, BINS, 3)


def _bias_error(scores: Scores, group: Array, groups: int, bias: Array, rows: Array) -> Array:
    """Half of the 95 % interval of the mean difference between score and label of each group."""
    square = np.bincount(group, (scores.score - scores.label) ** 2, minlength=groups)
    return NORMAL95 * np.sqrt(
        np.maximum(ratio(square, rows) - bias**2, 0) / np.maximum(rows - 1, 1)
    )


def _auc(
    scores: Scores, group: Array, groups: int, favourable: Array, other: Array
) -> tuple[Array, Array, Array]:
    """AUC of every group and the ends of its interval.

    The placement of a row is the share of its group's rows with the other label that it is ranked
    correctly against. The mean placement is the AUC.
    """
    rank, rank_in_label = _ranks(scores, group), _ranks(scores, group * 2 + scores.label)
    below = (rank - rank_in_label) / np.where(scores.label, other[group], favourable[group]).clip(1)
    placement = np.where(scores.label, below, 1 - below)
    auc = ratio(np.bincount(group, placement * scores.label, minlength=groups), favourable)
    auc = np.where(other > 0, auc, np.nan)
    variance = sum(
        _variance(placement, scores.label == kind, group, groups, auc) for kind in (True, False)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        centre, half = np.log(auc / (1 - auc)), NORMAL95 * np.sqrt(variance) / (auc * (1 - auc))
        low, high = (1 / (1 + np.exp(-(centre + side * half))) for side in (-1, 1))
    varies = variance > 0  # not where everybody is ranked correctly, or nobody is
    return auc, np.where(varies, low, np.nan), np.where(varies, high, np.nan)


def _variance(placement: Array, of_label: Array, group: Array, groups: int, auc: Array) -> Array:
    """Variance of the mean placement of the rows with one label."""
    rows = np.bincount(group, of_label, minlength=groups)
    square = np.bincount(
        group, np.where(of_label, (placement - auc[group]) ** 2, 0), minlength=groups
    )
    return ratio(ratio(square, rows - 1), rows)


def _ranks(scores: Scores, group: Array) -> Array:
    """Rank of every row by score within its group, counted from 1; ties share the mean of their
    ranks. [rows]
    """
    kind = np.min_scalar_type(group.max(initial=0))  # NumPy sorts short integers in linear time
    order = scores.order[np.argsort(group[scores.order].astype(kind), kind="stable")]
    of_row, score = group[order], scores.score[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = of_row[1:] != of_row[:-1]
    starts = np.flatnonzero(is_new)
    # position of the first row of each row's group
    start = np.repeat(starts, np.diff(starts, append=len(order)))
    is_new[1:] |= score[1:] != score[:-1]
    ties = np.flatnonzero(is_new)
    size = np.diff(ties, append=len(order))
    middle = np.repeat(ties + (size + 1) / 2, size)
    ranks = np.empty(len(order))
    ranks[order] = middle - start
    return ranks

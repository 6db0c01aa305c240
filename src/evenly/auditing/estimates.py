"""Figures with intervals: counts, rates, differences, and scores of probabilities."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from evenly.auditing.read import row_words
from evenly.metrics import ratio
from evenly.metrics.statistics import LEAST_CLIENTS, MOST_BLOCKS, Interval, over_clients, over_people
from evenly.report.disclosure import hide
from evenly.report.values import NORMAL95, wilson

# Figures with their intervals, and how the intervals are found.

Array = np.ndarray
NAN = float("nan")


class Estimate(NamedTuple):
    """A figure, its 95 % interval and the rows it rests on; NaN where it is undefined or hidden, or has no interval."""

    value: float
    low: float = NAN
    high: float = NAN
    rows: int = 0

    @property
    def known(self) -> bool:
        return bool(np.isfinite(self.value))

    @property
    def ranged(self) -> bool:
        return bool(np.isfinite([self.value, self.low, self.high]).all())

    def times(self, factor: float) -> "Estimate":
        return self._replace(value=factor * self.value, low=factor * self.low, high=factor * self.high)


NOTHING = Estimate(NAN)


def resampled_interval(units: Array, statistic: Callable[[Array], Array]) -> Interval:
    """The 95 % interval of a statistic of summed tables: of resampled clients where there are enough, else of resampled people.

    `units` is [units, groups, labels, outcomes]; `statistic` takes [draws, groups, labels, outcomes].
    """
    return over_clients(units, statistic) if len(units) >= LEAST_CLIENTS else over_people(units.sum(0), statistic)


def rate_ends(units: Array, share: Array, rows: Array, statistic: Callable[[Array], Array]) -> tuple[Array, Array]:
    """What chance allows with so many rows and, where clients can be resampled, that interval too: the outer ends of both.

    Resampling alone finds no uncertainty where a group's few rows all went the same way.
    """
    low, high = wilson(share, rows)
    if len(units) < LEAST_CLIENTS:
        return low, high
    drawn = over_clients(units, statistic)
    return np.fmin(low, drawn.low), np.fmax(high, drawn.high)


def newcombe(share: Array, rows: Array) -> tuple[Array, Array]:
    """Newcombe's 95 % interval of the first of two shares less the second (his method 10), which joins Wilson's of both. [..., 2]"""
    low, high = wilson(share, rows)
    gap = share[..., 0] - share[..., 1]
    below = np.sqrt((share[..., 0] - low[..., 0]) ** 2 + (high[..., 1] - share[..., 1]) ** 2)
    above = np.sqrt((high[..., 0] - share[..., 0]) ** 2 + (share[..., 1] - low[..., 1]) ** 2)
    return gap - below, gap + above


def estimates(value: Array, low: Array, high: Array, rows: Array) -> tuple[Estimate, ...]:
    """One estimate per entry of parallel arrays; nothing where the value is not known."""
    numbers = zip(value.tolist(), low.tolist(), high.tolist(), rows.tolist(), strict=True)
    return tuple(Estimate(v, a, b, int(n)) if np.isfinite(v) else NOTHING for v, a, b, n in numbers)


# From rows to counts: after this, nobody's row is needed any more.


class Counts(NamedTuple):
    """Rows by client or group, label and outcome."""

    clients: Array  # int64 [clients, 1, labels, outcomes]; no clients where the table names none
    units: Array  # int64 [units, groups, labels, outcomes]: what intervals resample, clients or blocks of them; else one unit

    @property
    def groups(self) -> Array:
        """Everybody by group. [groups, labels, outcomes]"""
        return self.units.sum(0)


class AuditRows(NamedTuple):
    """What is known of every row, as numbers."""

    client: Array | None  # [rows]
    group: Array | None  # [rows]
    label: Array  # [rows]
    outcome: Array  # [rows]


def counted(rows: AuditRows, *, clients: int, groups: int, kinds: int) -> Counts:
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


# How well scores rank people and how far they can be taken at their word: AUC and calibration, of everybody, groups and clients.
#
# A score is the probability of the favourable label that a model states. AUC is the chance that somebody with the favourable label is
# scored higher than somebody without, ties counting half; its interval is that of DeLong, DeLong and Clarke-Pearson (1988), on the
# logit scale. The calibration error is Σ share of a bin · |mean score − share with the favourable label|, over ten bins of equal width.

BINS = 10
THRESHOLDS = 20  # steps between 0 and 1
SCORES = {"auc": "AUC", "ece": "Calibration error", "bias": "Mean score less share favourable"}


class Scores(NamedTuple):
    """The score of every row, the label, and the order by score, which is found once."""

    score: Array  # float64 [rows]
    label: Array  # [rows] whether the label is the favourable one
    order: Array  # [rows] row numbers, the lowest score first


class Scored(NamedTuple):
    """Scores of some groups, one entry each; NaN where undefined."""

    auc: Array
    auc_low: Array
    auc_high: Array
    bias: Array  # mean score less the share with the favourable label: above 0, the score promises too much
    bias_low: Array
    bias_high: Array
    ece: Array  # expected calibration error
    rows: Array
    favourable: Array  # rows with the favourable label
    bins: Array  # [groups, BINS, 3] rows, sum of scores and rows with the favourable label in every bin
    steps: Array  # [groups, 2, THRESHOLDS] rows by label and score


class Curves(NamedTuple):
    """What charts of scores are drawn from, of every group; NaN where it is hidden."""

    stated: Array  # [groups, BINS] mean score in the bin
    seen: Array  # [groups, BINS] share with the favourable label in the bin
    rows: Array  # [groups, BINS]
    spd: Array  # [groups, THRESHOLDS] selection rate less that of all others, if that score were the threshold
    eod: Array  # [groups, THRESHOLDS] the same for the true positive rate


def scores(name: str, values: Array, label: Array) -> Scores:
    """Check the scores and find their order."""
    broken = ~((values >= 0) & (values <= 1))
    if broken.any():
        at = int(broken.argmax())
        what = "is empty or not a number" if np.isnan(values[at]) else f"holds {values[at]:g}"
        raise ValueError(
            f"Column {name!r} must hold probabilities from 0 to 1 in every row; {row_words(at)} {what}, and {int(broken.sum()) - 1:,} more "
            "rows are like it. Give the probability of the favourable label; a logit z becomes one as 1 / (1 + exp(-z))."
        )
    return Scores(values, label == 1, np.argsort(values, kind="stable"))


def scored(scores: Scores, group: Array | None, groups: int) -> Scored:
    """AUC and calibration of every group; None: of everybody together."""
    own = np.zeros(len(scores.score), np.int64) if group is None else group.astype(np.int64)
    rows, favourable = np.bincount(own, minlength=groups), np.bincount(own, scores.label, minlength=groups)
    auc, low, high = _auc(scores, own, groups, favourable, rows - favourable)
    bins = _bins(scores, own, groups)
    bias = ratio(bins[..., 1].sum(-1) - favourable, rows)
    half = _bias_error(scores, own, groups, bias, rows)
    gaps = np.abs(bins[..., 1] - bins[..., 2]).sum(-1)
    steps = np.minimum((scores.score * THRESHOLDS).astype(np.int64), THRESHOLDS - 1)
    kinds = np.bincount((own * 2 + scores.label) * THRESHOLDS + steps, minlength=groups * 2 * THRESHOLDS)
    return Scored(
        auc, low, high, bias, bias - half, bias + half, ratio(gaps, rows), rows, favourable.astype(np.int64), bins,
        kinds.reshape(groups, 2, THRESHOLDS),
    )  # fmt: skip


def score_figures(found: Scored, shown: Array, least: int) -> dict[str, tuple[Estimate, ...]]:
    """AUC, calibration error and bias of the groups whose numbers of people with each label may be shown; AUC only where both are enough.

    All three rest on the labels: with scores of 0 and 1, bias and selection rate tell how many people have the favourable label.
    """
    fewest = np.minimum(found.favourable, found.rows - found.favourable)
    ranked = shown & (fewest >= least)
    nothing = np.full(len(found.rows), np.nan)
    return {
        "auc": estimates(np.where(ranked, found.auc, np.nan), found.auc_low, found.auc_high, found.rows),
        "ece": estimates(np.where(shown, found.ece, np.nan), nothing, nothing, found.rows),
        "bias": estimates(np.where(shown, found.bias, np.nan), found.bias_low, found.bias_high, found.rows),
    }


def curves(found: Scored, shown: Array, compared: Array, least: int) -> Curves:
    """What the charts show. Bins with fewer than `least` people are hidden, and thresholds where a side has few of one label.

    A curve of many steps tells more than a single rate; so it needs ten times as many people.
    """
    rows, stated, seen = np.moveaxis(found.bins, -1, 0)
    kept = ~hide(rows, least, sums=[1], also=~shown[:, None] & (rows > 0)).cells & (rows > 0)  # a group's total is shown
    spd, eod = (np.full((len(rows), THRESHOLDS), np.nan) for _ in range(2))
    everybody = found.steps[compared].sum(0)
    for g in np.flatnonzero(shown & compared):
        pair = np.stack([found.steps[g], everybody - found.steps[g]])
        if (pair.sum(-1) >= 10 * max(1, least)).all():
            selected, found_right = at_thresholds(pair)
            spd[g], eod[g] = selected[0] - selected[1], found_right[0] - found_right[1]
    hidden = np.where(kept, rows, np.nan)
    return Curves(ratio(stated, hidden), ratio(seen, hidden), np.where(kept, rows, 0), spd, eod)


def at_thresholds(steps: Array) -> tuple[Array, Array]:
    """Selection rate and true positive rate of groups if everybody from a score on were selected. [groups, THRESHOLDS] each

    The thresholds are 0, 1/20, 2/20 and so on; `steps` is that of `Scored`.
    """
    above = steps[..., ::-1].cumsum(-1)[..., ::-1]  # rows from each step on
    return ratio(above.sum(-2), steps.sum((-2, -1))[..., None]), ratio(above[..., 1, :], steps[..., 1, :].sum(-1)[..., None])


def _bins(scores: Scores, group: Array, groups: int) -> Array:
    place = group * BINS + np.minimum((scores.score * BINS).astype(np.int64), BINS - 1)
    weights = (None, scores.score, scores.label)
    return np.stack([np.bincount(place, weight, minlength=groups * BINS) for weight in weights], axis=-1).reshape(groups, BINS, 3)


def _bias_error(scores: Scores, group: Array, groups: int, bias: Array, rows: Array) -> Array:
    """Half of the 95 % interval of a group's mean difference between score and label."""
    square = np.bincount(group, (scores.score - scores.label) ** 2, minlength=groups)
    return NORMAL95 * np.sqrt(np.maximum(ratio(square, rows) - bias**2, 0) / np.maximum(rows - 1, 1))


def _auc(scores: Scores, group: Array, groups: int, favourable: Array, other: Array) -> tuple[Array, Array, Array]:
    """Every row's share of the other label's rows that it is ranked right against; their means are the AUC of the group."""
    among_all, among_own = _ranks(scores, group), _ranks(scores, group * 2 + scores.label)
    beaten = (among_all - among_own) / np.where(scores.label, other[group], favourable[group]).clip(1)
    right = np.where(scores.label, beaten, 1 - beaten)
    auc = ratio(np.bincount(group, right * scores.label, minlength=groups), favourable)
    auc = np.where(other > 0, auc, np.nan)
    variance = sum(_variance(right, scores.label == kind, group, groups, auc) for kind in (True, False))
    with np.errstate(divide="ignore", invalid="ignore"):
        centre, half = np.log(auc / (1 - auc)), NORMAL95 * np.sqrt(variance) / (auc * (1 - auc))
        low, high = (1 / (1 + np.exp(-(centre + side * half))) for side in (-1, 1))
    inside = (auc > 0) & (auc < 1) & (variance > 0)
    return auc, np.where(inside, low, np.nan), np.where(inside, high, np.nan)


def _variance(right: Array, chosen: Array, group: Array, groups: int, auc: Array) -> Array:
    """Variance of the mean of one label's placements."""
    rows = np.bincount(group, chosen, minlength=groups)
    square = np.bincount(group, np.where(chosen, (right - auc[group]) ** 2, 0), minlength=groups)
    return ratio(ratio(square, rows - 1), rows)


def _ranks(scores: Scores, group: Array) -> Array:
    """The rank of every row by score within its group, counted from 1; ties share the mean of their ranks. [rows]"""
    kind = np.int16 if group.max(initial=0) < 2**15 else np.int64  # short numbers are sorted by counting
    order = scores.order[np.argsort(group[scores.order].astype(kind), kind="stable")]
    own, score = group[order], scores.score[order]
    new = np.ones(len(order), bool)
    new[1:] = own[1:] != own[:-1]
    start = np.flatnonzero(new)
    first = np.repeat(start, np.diff(start, append=len(order)))  # where each row's group begins
    new[1:] |= score[1:] != score[:-1]
    tied = np.flatnonzero(new)
    size = np.diff(tied, append=len(order))
    middle = np.repeat(tied + (size + 1) / 2, size)
    ranks = np.empty(len(order))
    ranks[order] = middle - first
    return ranks

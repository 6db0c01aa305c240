"""How well scores rank people and how far they can be taken at their word: AUC and calibration, of everybody, groups and clients.

A score is the probability of the favourable label that a model states. AUC is the chance that somebody with the favourable label
is scored higher than somebody without, ties counting half; its interval is that of DeLong, DeLong and Clarke-Pearson (1988), on the
logit scale. The calibration error is Σ share of a bin · |mean score − share with the favourable label|, over ten bins of equal width.
"""

from typing import NamedTuple

import numpy as np

from evenly.auditing.columns import row_words
from evenly.auditing.estimates import Estimate, estimates
from evenly.metrics import ratio
from evenly.report.disclosure import hide
from evenly.report.values import NORMAL95

Array = np.ndarray
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

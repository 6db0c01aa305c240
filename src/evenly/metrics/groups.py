"""Group metrics: how evenly a model treats groups of people, computed from count tables.

₀ is the unprivileged groups pooled, ₁ the privileged ones pooled; a negative difference is to the
disadvantage of the unprivileged. Ranges over groups do not pool: they compare every single group.
Differences and scores are fractions and shares of rows are in percent, as the papers print them.
Every function takes `GroupedRates` and works on any leading axes. Audits show those that
`evenly.auditing.views` names in `GAPS` and `RANGES`.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from evenly.data.splits import CENTRAL, SPLITS
from evenly.metrics.metric import GROUPS, ROWS, SIDES, Metric
from evenly.metrics.outcomes import Rates, rates, ratio, sides
from evenly.types import Trace

Array = np.ndarray


class GroupedRates(NamedTuple):
    """Rates of the same rows at three levels: single groups, the two sides, and everybody. A metric
    of groups of people is a function of these.

    Example:
        >>> import evenly
        >>> def gap(group_rates: evenly.metrics.GroupedRates):
        ...     return group_rates.sides.precision[..., 0] - group_rates.sides.precision[..., 1]
    """

    groups: Rates  # [..., groups]
    sides: Rates  # [..., 2] unprivileged, privileged
    whole: Rates  # [...]


def view(tables: Array, *, favourable: int, unprivileged: Sequence[int]) -> GroupedRates:
    """Compute the rates of the groups, of the two sides and of everybody, from count tables [...,
    groups, labels, outcomes].
    """
    whole = rates(tables.sum(-3, keepdims=True), favourable)
    return GroupedRates(
        rates(tables, favourable),
        rates(sides(tables, unprivileged), favourable),
        Rates(*(rate[..., 0] for rate in whole)),
    )


def statistical_parity(group_rates: GroupedRates) -> Array:
    """Statistical parity difference: selection rate of the unprivileged minus that of the
    privileged (thesis, Eq. 1.4).
    """
    return _gap(group_rates.sides.selection_rate)


def equal_opportunity(group_rates: GroupedRates) -> Array:
    """Equal opportunity difference: true positive rate of the unprivileged minus that of the
    privileged (thesis, Eq. 1.5).
    """
    return _gap(group_rates.sides.tpr)


def average_odds(group_rates: GroupedRates) -> Array:
    """Average odds difference: mean of the differences in true and in false positive rate
    (thesis, Eq. 1.6).
    """
    return (_gap(group_rates.sides.fpr) + _gap(group_rates.sides.tpr)) / 2


def accuracy_difference(group_rates: GroupedRates) -> Array:
    """Accuracy for the unprivileged minus that for the privileged (thesis, Eq. 1.7)."""
    return _gap(group_rates.sides.accuracy)


def f1_difference(group_rates: GroupedRates) -> Array:
    """F1 score for the unprivileged minus that for the privileged. E2FL calls it DI; it is not
    the ratio known as disparate impact.
    """
    return _gap(group_rates.sides.f1)


def odds_difference(group_rates: GroupedRates) -> Array:
    """Equalised odds difference: the larger of the absolute differences in true and in false
    positive rate.
    """
    return np.maximum(np.abs(_gap(group_rates.sides.tpr)), np.abs(_gap(group_rates.sides.fpr)))


def size_of(difference: str, group_rates: GroupedRates) -> Array:
    """Absolute value of a difference, whichever side is favoured. Its mean over seeds cannot cancel
    out.
    """
    return np.abs(SIGNED[difference](group_rates))


def range_of(rate: str, group_rates: GroupedRates) -> Array:
    """Highest rate of a group minus the lowest, over the groups where it is defined; NaN with fewer
    than two of them.
    """
    return spread_over_groups(getattr(group_rates.groups, rate))


def odds_range(group_rates: GroupedRates) -> Array:
    """The larger of the ranges of true and of false positive rate over groups: fairlearn's
    equalized odds difference.
    """
    return np.maximum(range_of("tpr", group_rates), range_of("fpr", group_rates))


def worst_of(rate: str, group_rates: GroupedRates) -> Array:
    """The lowest rate of a group in percent, over the groups where it is defined."""
    return 100 * lowest(getattr(group_rates.groups, rate))


def overall(rate: str, group_rates: GroupedRates) -> Array:
    """The rate of all rows together, in percent."""
    return 100 * getattr(group_rates.whole, rate)


def representation(group_rates: GroupedRates) -> Array:
    """Representation rate of the unprivileged: their share of the rows (thesis, Eq. 1.1)."""
    return ratio(100 * group_rates.sides.examples[..., 0], group_rates.whole.examples)


def fas_thesis(group_rates: GroupedRates) -> Array:
    """Fairness-accuracy score of the thesis' tables: absolute EOD, SPD and AOD, and the signed
    accuracy difference. It rewards a model that is more accurate for the privileged.

    The formula as printed (Eq. 4.2) keeps every sign. It rewards all bias against the unprivileged
    and can exceed the accuracy, so it is not implemented.
    """
    return _score(group_rates, accuracy_difference(group_rates))


def fas_abs(group_rates: GroupedRates) -> Array:
    """Fairness-accuracy score with absolute differences: the accuracy, reduced by the mean of four
    absolute differences.
    """
    return _score(group_rates, np.abs(accuracy_difference(group_rates)))


def lowest(values: Array) -> Array:
    """Return the smallest defined value over the last axis, NaN if there is none.

    >>> lowest(np.array([[2.0, np.nan, 1.0], [np.nan, np.nan, np.nan]]))
    array([ 1., nan])
    """
    defined = np.isfinite(values)
    return np.where(
        defined.any(-1), np.where(defined, values, np.inf).min(-1, initial=np.inf), np.nan
    )


def spread_over_groups(values: Array) -> Array:
    """Return the largest minus the smallest defined value over the last axis, NaN with fewer than
    two.
    """
    several = np.isfinite(values).sum(-1) > 1
    least, most = lowest(values), -lowest(-values)
    return np.where(several, most - least, np.nan)


def _gap(rate: Array) -> Array:
    return rate[..., 0] - rate[..., 1]


def _score(group_rates: GroupedRates, accuracy_gap: Array) -> Array:
    unfair = sum(size_of(name, group_rates) for name in ("eod", "spd", "aod")) + accuracy_gap
    return group_rates.whole.accuracy * (1 - unfair / 4)


SIGNED = {
    "spd": statistical_parity,
    "eod": equal_opportunity,
    "aod": average_odds,
    "acc_diff": accuracy_difference,
    "f1_diff": f1_difference,
}
NO_ROWS = "one side has no rows"
NO_LABEL = "one side has no rows with the favourable label"
NO_ODDS = "one side has no rows with the favourable label, or none with another"
NO_F1 = "on one side nobody is labelled or predicted favourable"
FEW_GROUPS = "fewer than two groups have rows"
FEW_LABELS = "fewer than two groups have rows with the favourable label"
FEW_ODDS = f"{FEW_LABELS}, or fewer than two have rows with another"
NOBODY, UNIT, PERCENT = "there are no rows", "0 to 1", "0 to 100 %"

GROUP_METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric(
            "accuracy",
            "accuracy",
            "right / rows",
            PERCENT,
            +1,
            partial(overall, "accuracy"),
            ROWS,
            NOBODY,
            meaning="Share of all rows that are classified correctly.",
        ),
        Metric(
            "precision",
            "precision",
            "TP / (TP + FP)",
            PERCENT,
            +1,
            partial(overall, "precision"),
            ROWS,
            "nobody is predicted favourable",
            meaning="Share of the rows predicted favourable that have the favourable label.",
        ),
        Metric("spd", "SPD", "P₀(ŷ=1) − P₁(ŷ=1)", "−1 to 1", 0, statistical_parity, SIDES, NO_ROWS),
        Metric("eod", "EOD", "TPR₀ − TPR₁", "−1 to 1", 0, equal_opportunity, SIDES, NO_LABEL),
        Metric(
            "aod",
            "AOD",
            "½ [(FPR₀ − FPR₁) + (TPR₀ − TPR₁)]",
            "−1 to 1",
            0,
            average_odds,
            SIDES,
            NO_ODDS,
        ),
        Metric(
            "acc_diff",
            "accuracy difference",
            "accuracy₀ − accuracy₁",
            "−1 to 1",
            0,
            accuracy_difference,
            SIDES,
            NO_ROWS,
        ),
        Metric(
            "f1_diff", "F1 difference (DI)", "F1₀ − F1₁", "−1 to 1", 0, f1_difference, SIDES, NO_F1
        ),
        Metric(
            "spd_abs",
            "|SPD|",
            "|SPD|",
            UNIT,
            -1,
            partial(size_of, "spd"),
            SIDES,
            NO_ROWS,
            meaning="Absolute value of SPD, whichever side is favoured.",
        ),
        Metric(
            "eod_abs",
            "|EOD|",
            "|EOD|",
            UNIT,
            -1,
            partial(size_of, "eod"),
            SIDES,
            NO_LABEL,
            meaning="Absolute value of EOD, whichever side is favoured.",
        ),
        Metric(
            "aod_abs",
            "|AOD|",
            "|AOD|",
            UNIT,
            -1,
            partial(size_of, "aod"),
            SIDES,
            NO_ODDS,
            meaning="Absolute value of AOD, whichever side is favoured.",
        ),
        Metric(
            "acc_diff_abs",
            "|accuracy difference|",
            "|accuracy difference|",
            UNIT,
            -1,
            partial(size_of, "acc_diff"),
            SIDES,
            NO_ROWS,
            meaning="Absolute value of the accuracy difference, whichever side is favoured.",
        ),
        Metric(
            "f1_diff_abs",
            "|F1 difference|",
            "|F1 difference|",
            UNIT,
            -1,
            partial(size_of, "f1_diff"),
            SIDES,
            NO_F1,
            meaning="Absolute value of the F1 difference, whichever side is favoured.",
        ),
        Metric(
            "odds_diff",
            "equalised odds difference",
            "max(|TPR₀ − TPR₁|, |FPR₀ − FPR₁|)",
            UNIT,
            -1,
            odds_difference,
            SIDES,
            NO_ODDS,
        ),
        Metric(
            "spd_range",
            "range of selection rate",
            "max P_g(ŷ=1) − min",
            UNIT,
            -1,
            partial(range_of, "selection_rate"),
            GROUPS,
            FEW_GROUPS,
            meaning="Highest selection rate of a group minus the lowest.",
        ),
        Metric(
            "eod_range",
            "range of TPR",
            "max TPR_g − min TPR_g",
            UNIT,
            -1,
            partial(range_of, "tpr"),
            GROUPS,
            FEW_LABELS,
            meaning="Highest true positive rate of a group minus the lowest.",
        ),
        Metric(
            "odds_range",
            "range of odds",
            "max(range of TPR, range of FPR)",
            UNIT,
            -1,
            odds_range,
            GROUPS,
            FEW_ODDS,
        ),
        Metric(
            "acc_range",
            "range of accuracy",
            "max accuracy_g − min",
            UNIT,
            -1,
            partial(range_of, "accuracy"),
            GROUPS,
            FEW_GROUPS,
            meaning="Highest accuracy of a group minus the lowest.",
        ),
        Metric(
            "worst_accuracy",
            "worst group's accuracy",
            "min accuracy_g",
            PERCENT,
            +1,
            partial(worst_of, "accuracy"),
            GROUPS,
            NOBODY,
            meaning="Accuracy of the group with the lowest accuracy.",
        ),
        Metric(
            "worst_tpr",
            "worst group's TPR",
            "min TPR_g",
            PERCENT,
            +1,
            partial(worst_of, "tpr"),
            GROUPS,
            "nobody is labelled favourable",
            meaning="True positive rate of the group with the lowest one.",
        ),
        Metric(
            "worst_selection",
            "lowest selection rate",
            "min P_g(ŷ=1)",
            PERCENT,
            0,
            partial(worst_of, "selection_rate"),
            GROUPS,
            NOBODY,
            meaning="Selection rate of the group with the lowest one.",
        ),
        Metric(
            "fas_abs",
            "FAS",
            "accuracy · (1 − (|EOD| + |SPD| + |AOD| + |accuracy difference|)/4)",
            UNIT,
            +1,
            fas_abs,
            SIDES,
            NO_ODDS,
        ),
        Metric(
            "fas_thesis",
            "FAS (thesis)",
            "the same with the signed accuracy difference",
            "0 to 1.25",
            +1,
            fas_thesis,
            SIDES,
            NO_ODDS,
        ),
        Metric(
            "representation",
            "share of the unprivileged",
            "rows₀ / rows",
            PERCENT,
            0,
            representation,
            SIDES,
            NOBODY,
        ),
    )
}
"""Metrics of how evenly groups of people are served, by name. `measure_groups` computes them.

Example:
    >>> GROUP_METRICS["eod"].formula
    'TPR₀ − TPR₁'
"""


def measure_groups(
    tables: Array, *, favourable: int, unprivileged: Sequence[int]
) -> dict[str, Array]:
    """Compute all group metrics of `GROUP_METRICS`.

    Args:
        tables: Count tables [..., groups, labels, outcomes].
        favourable: Number of the favourable label.
        unprivileged: Numbers of the unprivileged groups. All other groups are privileged.

    Returns:
        The value of each metric by name, [...] each; NaN where it is undefined.

    Raises:
        ValueError: If there is no label or group with such a number.

    Example:
        >>> table = np.array([[[40, 10], [20, 30]], [[40, 30], [20, 60]]])
        >>> values = measure_groups(table, favourable=1, unprivileged=(0,))
        >>> round(float(values["spd"]), 10), round(float(values["eod"]), 10)
        (-0.2, -0.15)
    """
    group_rates = view(tables, favourable=favourable, unprivileged=unprivileged)
    return {metric.name: metric.function(group_rates) for metric in GROUP_METRICS.values()}


def pooled(trace: Trace, split: str) -> Array:
    """Sum the count tables of a run over all clients.

    Args:
        trace: A finished run.
        split: ``"train"``, ``"valid"``, ``"test"``, or ``"central"`` for the central test set.

    Returns:
        Count tables [evaluations, groups, labels, outcomes].

    Raises:
        ValueError: If there is no split of this name.

    Example:
        >>> from types import SimpleNamespace
        >>> trace = SimpleNamespace(tables=np.ones((2, 3, 5, 1, 2, 2), int))
        >>> pooled(trace, "test").tolist()
        [[[[5, 5], [5, 5]]], [[[5, 5], [5, 5]]]]
    """
    return trace.central if split == CENTRAL else trace.tables[:, SPLITS.index(split)].sum(1)

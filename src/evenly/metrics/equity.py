"""Equality and equity (E2FL, Section 3): how evenly a model serves clients, and how evenly it serves groups of clients.

Equality is the spread of the accuracies over clients; equity the spread over groups of the mean accuracy of a group's clients,
so that a group of three counts as much as one of three hundred. Both are standard deviations in E2FL's definitions, and
variances in its tables. In percent; lower is fairer; clients without rows, and groups without such clients, are left out; all
are NaN if nobody is left.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from evenly.metrics.clients import best_tenth, deviation, mean_over_clients, variance, worst_tenth
from evenly.metrics.metric import CLIENT_GROUPS, Metric
from evenly.metrics.tables import ratio

Array = np.ndarray


def group_means(accuracies: Any, client_group: Any, groups: int) -> Array:
    """Mean accuracy of each group's clients, NaN for a group without any. [groups]

    >>> group_means([0.5, 0.7, 0.9], [0, 0, 1], 3)
    array([0.6, 0.9, nan])
    """
    a, group = np.asarray(accuracies, np.float64), np.asarray(client_group)
    if a.shape != group.shape or a.ndim != 1:
        raise ValueError(f"There must be one group per client, got {list(group.shape)} groups for {list(a.shape)} accuracies.")
    if len(group) and not (group.min() >= 0 and group.max() < groups):
        raise ValueError(f"Groups are numbered from 0 to {groups - 1}, got numbers from {group.min()} to {group.max()}.")
    known = np.isfinite(a)
    sums = np.bincount(group[known], a[known], minlength=groups)
    return ratio(sums, np.bincount(group[known], minlength=groups))


def equity(accuracies: Any, client_group: Any, groups: int) -> dict[str, float]:
    """Average, worst and best tenth, variance and deviation: over clients as they are, over groups with `group_` before the name.

    Of ten groups, the worst and best tenth are the worst and the best group.
    """
    a = np.asarray(accuracies, np.float64)
    means = group_means(a, client_group, groups)
    return {**_summary(a, ""), **_summary(means, "group_")}


def _summary(values: Array, prefix: str) -> dict[str, float]:
    known = values[np.isfinite(values)]
    functions = {"average": mean_over_clients, "worst10": worst_tenth, "best10": best_tenth, "variance": variance, "std": deviation}
    return {prefix + name: f(known, np.ones(len(known))) if len(known) else float("nan") for name, f in functions.items()}


def over_groups(summary: Callable[[Array, Array], float], accuracies: Any, client_group: Any) -> float:
    """The same of clients' groups instead of clients: every group counts once, with the mean accuracy of its clients."""
    group = np.asarray(client_group)
    means = group_means(accuracies, group, int(group.max(initial=-1)) + 1)
    known = means[np.isfinite(means)]
    return summary(known, np.ones(len(known))) if len(known) else float("nan")


NOBODY, PERCENT = "no client has rows", "0 to 100 %"


def _metric(name: str, title: str, formula: str, extent: str, better: int, summary: Callable[[Array, Array], float]) -> Metric:
    return Metric(name, title, formula, extent, better, partial(over_groups, summary), CLIENT_GROUPS, NOBODY)


EQUITY_METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        _metric("group_average", "average (groups)", "mean ā_q", PERCENT, +1, mean_over_clients),
        _metric("group_worst10", "worst 10 % of groups", "lowest tenth of ā_q", PERCENT, +1, worst_tenth),
        _metric("group_best10", "best 10 % of groups", "highest tenth of ā_q", PERCENT, +1, best_tenth),
        _metric("group_variance", "variance over groups", "variance of ā_q", "0 to 2500 %²", -1, variance),
        _metric("group_std", "equity", "standard deviation of ā_q", "0 to 50 %", -1, deviation),
    )
}


def measure_equity(accuracies: Any, client_group: Any) -> dict[str, float]:
    """How evenly groups of clients are served: every metric of `EQUITY_METRICS`, from accuracies as fractions.

    >>> measure_equity([0.5, 0.7, 0.9], [0, 0, 1])["group_average"]
    75.0
    """
    return {m.name: m.function(accuracies, client_group) for m in EQUITY_METRICS.values()}

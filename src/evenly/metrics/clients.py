"""Metrics of clients: how evenly accuracies are spread, and equality and equity of groups of clients."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from evenly.data.splits import SPLITS
from evenly.metrics.tables import (
    BEST_CLIENT,
    BEST_TENTH,
    CLIENT_GROUPS,
    CLIENTS,
    WORST_CLIENT,
    WORST_TENTH,
    Metric,
    accuracy,
    examples,
    ratio,
)
from evenly.notation import unknown
from evenly.types import Trace

# How evenly a model serves the clients: functions of the clients' accuracies a_1..a_m (fractions) and row counts n_k.
#
# Clients without rows have accuracy NaN and are left out of every metric; a metric that is undefined is NaN. Accuracies and what is
# measured in them are returned in percent, variances in percent squared, as the papers print them.

Array = np.ndarray


def mean_over_points(a: Array, n: Array) -> float:
    """Average with respect to data points: sum n_k a_k / sum n_k.

    >>> mean_over_points(np.array([1.0, 0.5]), np.array([3, 1]))
    87.5
    """
    return float(100 * (n * a).sum() / n.sum())


def mean_over_clients(a: Array, n: Array) -> float:
    """Average with respect to clients: every client counts the same.

    >>> mean_over_clients(np.array([1.0, 0.5]), np.array([3, 1]))
    75.0
    """
    return float(100 * a.mean())


def tenth(clients: int) -> int:
    """How many clients a tenth is: floor(m / 10), but at least one."""
    return max(1, clients // 10)


def worst_tenth(a: Array, n: Array) -> float:
    """Mean accuracy of the worst-served tenth of the clients."""
    return float(100 * np.sort(a)[: tenth(len(a))].mean())


def best_tenth(a: Array, n: Array) -> float:
    """Mean accuracy of the best-served tenth of the clients."""
    return float(100 * np.sort(a)[-tenth(len(a)) :].mean())


def lowest(a: Array, n: Array) -> float:
    """Accuracy of the worst-served client."""
    return float(100 * a.min())


def highest(a: Array, n: Array) -> float:
    """Accuracy of the best-served client."""
    return float(100 * a.max())


def variance(a: Array, n: Array) -> float:
    """Population variance of the accuracies in percent squared. 0 is perfectly even.

    >>> variance(np.array([1.0, 0.5]), np.array([3, 1]))
    625.0
    """
    return float((100 * a).var())


def deviation(a: Array, n: Array) -> float:
    """Population standard deviation of the accuracies in percent."""
    return float((100 * a).std())


def angle(a: Array, n: Array) -> float:
    """Angle in degrees between the accuracies and (1, ..., 1): arctan(std / mean). NaN if all are 0."""
    return float(np.degrees(np.arctan2(a.std(), a.mean()))) if a.any() else float("nan")


def divergence(a: Array, n: Array) -> float:
    """KL divergence of a / sum(a) from the uniform distribution: sum p_k ln(m p_k), 0 ln 0 = 0. NaN if all are 0."""
    if not a.any():
        return float("nan")
    p = a[a > 0] / a.sum()
    return max(0.0, float((p * np.log(len(a) * p)).sum()))


def entropy(a: Array, n: Array) -> float:
    """Entropy of a / sum(a): ln m minus the KL divergence. NaN if all are 0."""
    return float(np.log(len(a)) - divergence(a, n))


def gini(a: Array, n: Array) -> float:
    """Gini coefficient: 1 - sum (2i - 1) a_(i) / (m^2 mean), sorted from high to low. NaN if all are 0."""
    if not a.any():
        return float("nan")
    m = len(a)
    return float(1 - ((2 * np.arange(1, m + 1) - 1) * np.sort(a)[::-1]).sum() / (m**2 * a.mean()))


def jain(a: Array, n: Array) -> float:
    """Jain's index: (sum a)^2 / (m sum a^2) = cos^2 of the angle. NaN if all are 0."""
    return float(a.sum() ** 2 / (len(a) * (a**2).sum())) if a.any() else float("nan")


def noise_floor(a: Array, n: Array) -> float:
    """The variance that sampling alone would cause: how much of `variance` is only small test sets.

    A client with true accuracy p and n rows shows an accuracy with variance p (1 - p) / n; a (1 - a) / (n - 1) estimates
    it without bias. The floor is its mean over clients with at least two rows, in percent squared, times (m - 1) / m
    because the population variance is taken around the clients' own mean. NaN if no client has two rows.
    """
    several = n > 1
    if not several.any():
        return float("nan")
    own = a[several] * (1 - a[several]) / (n[several] - 1)
    return float(1e4 * own.mean() * (len(a) - 1) / len(a))


def true_variance(a: Array, n: Array) -> float:
    """Variance of the accuracies less the variance from sampling, at least 0: how unevenly the clients are really served."""
    return max(0.0, variance(a, n) - noise_floor(a, n)) if np.isfinite(noise_floor(a, n)) else float("nan")


METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric("average", "average (rows)", "Σ nₖaₖ / Σ nₖ", "0 to 100 %", +1, mean_over_points, CLIENTS),
        Metric("average_devices", "average (clients)", "mean aₖ", "0 to 100 %", +1, mean_over_clients, CLIENTS),
        Metric("worst10", "worst 10 %", "mean of the lowest max(1, ⌊m/10⌋) aₖ", "0 to 100 %", +1, worst_tenth, WORST_TENTH),
        Metric("best10", "best 10 %", "mean of the highest max(1, ⌊m/10⌋) aₖ", "0 to 100 %", +1, best_tenth, BEST_TENTH),
        Metric("variance", "variance", "mean (aₖ − ā)²", "0 to 2500 %²", -1, variance, CLIENTS),
        Metric("variance_noise", "variance from sampling", "(m−1)/m · mean aₖ(1−aₖ)/(nₖ−1)", "0 to 2500 %²", 0, noise_floor, CLIENTS),
        Metric(
            "variance_true",
            "variance less sampling",
            "max(0, variance − variance from sampling)",
            "0 to 2500 %²",
            -1,
            true_variance,
            CLIENTS,
        ),
        Metric("std", "standard deviation", "√variance", "0 to 50 %", -1, deviation, CLIENTS),
        Metric("angle", "angle to (1,…,1)", "arctan(std / mean)", "0 to 90°", -1, angle, CLIENTS),
        Metric("kl", "KL from uniform", "Σ pₖ ln(m pₖ), pₖ = aₖ/Σa", "0 to ln m", -1, divergence, CLIENTS),
        Metric("entropy", "entropy", "ln m − KL", "0 to ln m", +1, entropy, CLIENTS),
        Metric("gini", "Gini", "1 − Σ(2i−1)a₍ᵢ₎ / (m² ā)", "0 to 1 − 1/m", -1, gini, CLIENTS),
        Metric("jain", "Jain index", "(Σa)² / (m Σa²)", "1/m to 1", +1, jain, CLIENTS),
        Metric("min", "worst client", "min aₖ", "0 to 100 %", +1, lowest, WORST_CLIENT),
        Metric("max", "best client", "max aₖ", "0 to 100 %", +1, highest, BEST_CLIENT),
    )
}


def measure(accuracies: Array, counts: Array) -> dict[str, float]:
    """All client metrics of one model. Clients without rows (NaN) are left out; with none left, all are NaN."""
    known = np.isfinite(accuracies)
    a, n = accuracies[known], counts[known]
    return {m.name: m.function(a, n) if len(a) else float("nan") for m in METRICS.values()}


def final_metrics(trace: Trace, split: str = "test") -> dict[str, float]:
    """All client metrics of a run's last evaluation on one split."""
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    tables = trace.tables[-1, SPLITS.index(split)]
    return measure(accuracy(tables), examples(tables))


# Equality and equity (E2FL, Section 3): how evenly a model serves clients, and how evenly it serves groups of clients.
#
# Equality is the spread of the accuracies over clients; equity the spread over groups of the mean accuracy of a group's clients, so
# that a group of three counts as much as one of three hundred. Both are standard deviations in E2FL's definitions, and variances in its
# tables. In percent; lower is fairer; clients without rows, and groups without such clients, are left out; all are NaN if nobody is
# left.


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

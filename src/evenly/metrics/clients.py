"""Client metrics: how evenly a model serves clients, and how evenly it serves groups of clients
(equity).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from evenly.data.splits import SPLITS
from evenly.metrics.metric import (
    BEST_CLIENT,
    BEST_TENTH,
    CLIENT_GROUPS,
    CLIENTS,
    WORST_CLIENT,
    WORST_TENTH,
    Metric,
)
from evenly.metrics.outcomes import accuracy, examples, ratio
from evenly.notation import unknown
from evenly.types import Trace

# Client metrics are functions of the clients' accuracies a_1..a_m (fractions) and row counts n_k.
#
# Clients without rows have accuracy NaN and are excluded from every metric. An undefined metric is
# NaN. Accuracies and their deviations are returned in percent and variances in percent squared, as
# the papers print them.

Array = np.ndarray


def mean_over_points(a: Array, n: Array) -> float:
    """Accuracy over the rows of all clients together. A client with more rows counts more.

    >>> mean_over_points(np.array([1.0, 0.5]), np.array([3, 1]))
    87.5
    """
    return float(100 * (n * a).sum() / n.sum())


def mean_over_clients(a: Array, n: Array) -> float:
    """Mean accuracy over clients. Every client counts the same.

    >>> mean_over_clients(np.array([1.0, 0.5]), np.array([3, 1]))
    75.0
    """
    return float(100 * a.mean())


def tenth(clients: int) -> int:
    """Number of clients in a tenth: floor(m / 10), but at least one."""
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
    """Population variance of the accuracies. It is 0 if all clients have the same accuracy.

    >>> variance(np.array([1.0, 0.5]), np.array([3, 1]))
    625.0
    """
    return float((100 * a).var())


def deviation(a: Array, n: Array) -> float:
    """Population standard deviation of the accuracies."""
    return float((100 * a).std())


def angle(a: Array, n: Array) -> float:
    """Angle between the vector of accuracies and (1, ..., 1)."""
    return float(np.degrees(np.arctan2(a.std(), a.mean()))) if a.any() else float("nan")


def divergence(a: Array, n: Array) -> float:
    """KL divergence of the accuracies, divided by their sum, from the uniform distribution."""
    if not a.any():
        return float("nan")
    p = a[a > 0] / a.sum()
    return max(0.0, float((p * np.log(len(a) * p)).sum()))


def entropy(a: Array, n: Array) -> float:
    """Entropy of the accuracies, divided by their sum."""
    return float(np.log(len(a)) - divergence(a, n))


def gini(a: Array, n: Array) -> float:
    """Gini coefficient of the accuracies, which are sorted in descending order."""
    if not a.any():
        return float("nan")
    m = len(a)
    return float(1 - ((2 * np.arange(1, m + 1) - 1) * np.sort(a)[::-1]).sum() / (m**2 * a.mean()))


def jain(a: Array, n: Array) -> float:
    """Jain's fairness index: the squared cosine of the angle to (1, ..., 1)."""
    return float(a.sum() ** 2 / (len(a) * (a**2).sum())) if a.any() else float("nan")


def noise_floor(a: Array, n: Array) -> float:
    """Estimate of the part of the variance that is due to small test sets.

    The accuracy of a client with true accuracy p and n rows has variance p (1 - p) / n, and a (1 -
    a) / (n - 1) is an unbiased estimate of it. The floor is its mean over clients with at least two
    rows, in percent squared, times (m - 1) / m because the population variance is taken around the
    clients' own mean. NaN if no client has two rows.
    """
    several = n > 1
    if not several.any():
        return float("nan")
    estimate = a[several] * (1 - a[several]) / (n[several] - 1)
    return float(1e4 * estimate.mean() * (len(a) - 1) / len(a))


def true_variance(a: Array, n: Array) -> float:
    """Variance minus the variance from sampling, at least 0: an estimate of the variance between
    the clients' true accuracies.
    """
    floor = noise_floor(a, n)
    return max(0.0, variance(a, n) - floor) if np.isfinite(floor) else float("nan")


# The formula of each in LaTeX is in `tools/formulas.py`.
METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric(
            "average",
            "average (rows)",
            "Σ nₖaₖ / Σ nₖ",
            "0 to 100 %",
            +1,
            mean_over_points,
            CLIENTS,
        ),
        Metric(
            "average_devices",
            "average (clients)",
            "mean aₖ",
            "0 to 100 %",
            +1,
            mean_over_clients,
            CLIENTS,
        ),
        Metric(
            "worst10",
            "worst 10 %",
            "mean of the lowest max(1, ⌊m/10⌋) aₖ",
            "0 to 100 %",
            +1,
            worst_tenth,
            WORST_TENTH,
        ),
        Metric(
            "best10",
            "best 10 %",
            "mean of the highest max(1, ⌊m/10⌋) aₖ",
            "0 to 100 %",
            +1,
            best_tenth,
            BEST_TENTH,
        ),
        Metric("variance", "variance", "mean (aₖ − ā)²", "0 to 2500 %²", -1, variance, CLIENTS),
        Metric(
            "variance_noise",
            "variance from sampling",
            "(m−1)/m · mean aₖ(1−aₖ)/(nₖ−1)",
            "0 to 2500 %²",
            0,
            noise_floor,
            CLIENTS,
        ),
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
        Metric(
            "kl",
            "KL from uniform",
            "Σ pₖ ln(m pₖ), pₖ = aₖ/Σa",
            "0 to ln m",
            -1,
            divergence,
            CLIENTS,
        ),
        Metric("entropy", "entropy", "ln m − KL", "0 to ln m", +1, entropy, CLIENTS),
        Metric("gini", "Gini", "1 − Σ(2i−1)a₍ᵢ₎ / (m² ā)", "0 to 1 − 1/m", -1, gini, CLIENTS),
        Metric("jain", "Jain index", "(Σa)² / (m Σa²)", "1/m to 1", +1, jain, CLIENTS),
        Metric("min", "worst client", "min aₖ", "0 to 100 %", +1, lowest, WORST_CLIENT),
        Metric("max", "best client", "max aₖ", "0 to 100 %", +1, highest, BEST_CLIENT),
    )
}
"""Metrics of how evenly clients are served, by name. `measure` computes them.

Example:
    >>> METRICS["worst10"].title
    'worst 10 %'
"""


def measure(accuracies: Array, counts: Array) -> dict[str, float]:
    """Compute all client metrics of `METRICS`.

    Args:
        accuracies: Accuracy of each client as a fraction, [clients]. Clients without rows (NaN) are
            excluded.
        counts: Number of rows of each client, [clients].

    Returns:
        The value of each metric by name. All are NaN if no client has rows.

    Example:
        >>> values = measure(np.array([1.0, 0.5, np.nan]), np.array([3, 1, 0]))
        >>> values["average"], values["average_devices"], values["variance"]
        (87.5, 75.0, 625.0)
    """
    defined = np.isfinite(accuracies)
    a, n = accuracies[defined], counts[defined]
    return {m.name: m.function(a, n) if len(a) else float("nan") for m in METRICS.values()}


def final_metrics(trace: Trace, split: str = "test") -> dict[str, float]:
    """Compute all client metrics of a run's last evaluation.

    Args:
        trace: A finished run, as returned by :func:`evenly.train`.
        split: Rows to evaluate on: ``"train"``, ``"valid"`` or ``"test"``.

    Returns:
        The value of each metric of `METRICS` by name.

    Raises:
        ValueError: If there is no split of this name.

    Example:
        >>> from types import SimpleNamespace
        >>> trace = SimpleNamespace(tables=np.full((1, 3, 2, 1, 2, 2), [[8, 2], [0, 10]]))
        >>> final_metrics(trace)["average"]
        90.0
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    tables = trace.tables[-1, SPLITS.index(split)]
    return measure(accuracy(tables), examples(tables))


# Equality and equity (E2FL, Section 3): how evenly a model serves clients, and how evenly it serves
# groups of clients.
#
# Equality is the spread of the accuracies over clients. Equity is the spread over groups of the
# mean accuracy of a group's clients, so a group of three counts as much as one of three hundred.
# Both are standard deviations in E2FL's definitions, and variances in its tables. Values are in
# percent and lower is fairer. Clients without rows, and groups without clients that have rows, are
# excluded; if nobody remains, all values are NaN.


def group_means(accuracies: Any, client_group: Any, groups: int) -> Array:
    """Compute the mean accuracy of each group's clients, NaN for a group without clients. [groups]

    >>> group_means([0.5, 0.7, 0.9], [0, 0, 1], 3)
    array([0.6, 0.9, nan])
    """
    a, group = np.asarray(accuracies, np.float64), np.asarray(client_group)
    if a.shape != group.shape or a.ndim != 1:
        raise ValueError(
            f"There must be one group per client, got {list(group.shape)} groups for"
            f" {list(a.shape)} accuracies."
        )
    if len(group) and not (group.min() >= 0 and group.max() < groups):
        raise ValueError(
            f"Groups are numbered from 0 to {groups - 1}, got numbers from {group.min()} to"
            f" {group.max()}."
        )
    defined = np.isfinite(a)
    sums = np.bincount(group[defined], a[defined], minlength=groups)
    return ratio(sums, np.bincount(group[defined], minlength=groups))


def equity(accuracies: Any, client_group: Any, groups: int) -> dict[str, float]:
    """Compute average, worst and best tenth, variance and deviation over clients, and over groups
    with the prefix `group_`.

    With ten groups, the worst and best tenth are the worst and the best group.
    """
    a = np.asarray(accuracies, np.float64)
    means = group_means(a, client_group, groups)
    return {**_summary(a, ""), **_summary(means, "group_")}


def _summary(values: Array, prefix: str) -> dict[str, float]:
    defined = values[np.isfinite(values)]
    functions = {
        "average": mean_over_clients,
        "worst10": worst_tenth,
        "best10": best_tenth,
        "variance": variance,
        "std": deviation,
    }
    return {
        prefix + name: f(defined, np.ones(len(defined))) if len(defined) else float("nan")
        for name, f in functions.items()
    }


def over_groups(
    summary: Callable[[Array, Array], float], accuracies: Any, client_group: Any
) -> float:
    """Compute a client metric over groups of clients: every group counts once, with the mean
    accuracy of its clients.
    """
    group = np.asarray(client_group)
    means = group_means(accuracies, group, int(group.max(initial=-1)) + 1)
    defined = means[np.isfinite(means)]
    return summary(defined, np.ones(len(defined))) if len(defined) else float("nan")


NOBODY, PERCENT = "no client has rows", "0 to 100 %"


def _equity_metric(
    name: str,
    title: str,
    formula: str,
    extent: str,
    better: int,
    *,
    of: Callable[[Array, Array], float],
    meaning: str,
) -> Metric:
    computed = partial(over_groups, of)
    return Metric(name, title, formula, extent, better, computed, CLIENT_GROUPS, NOBODY, meaning)


EQUITY_METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        _equity_metric(
            "group_average",
            "average (groups)",
            "mean ā_q",
            PERCENT,
            +1,
            of=mean_over_clients,
            meaning="Mean over groups of the mean accuracy of a group's clients.",
        ),
        _equity_metric(
            "group_worst10",
            "worst 10 % of groups",
            "lowest tenth of ā_q",
            PERCENT,
            +1,
            of=worst_tenth,
            meaning="Mean over the worst-served tenth of the groups.",
        ),
        _equity_metric(
            "group_best10",
            "best 10 % of groups",
            "highest tenth of ā_q",
            PERCENT,
            +1,
            of=best_tenth,
            meaning="Mean over the best-served tenth of the groups.",
        ),
        _equity_metric(
            "group_variance",
            "variance over groups",
            "variance of ā_q",
            "0 to 2500 %²",
            -1,
            of=variance,
            meaning="Population variance over groups of the mean accuracy of a group's clients.",
        ),
        _equity_metric(
            "group_std",
            "equity",
            "standard deviation of ā_q",
            "0 to 50 %",
            -1,
            of=deviation,
            meaning="Square root of the variance over groups.",
        ),
    )
}
"""Metrics of how evenly groups of clients are served, by name. `measure_equity` computes them.

Example:
    >>> EQUITY_METRICS["group_worst10"].title
    'worst 10 % of groups'
"""


def measure_equity(accuracies: Any, client_group: Any) -> dict[str, float]:
    """Compute how evenly groups of clients are served: all metrics of `EQUITY_METRICS`.

    Args:
        accuracies: Accuracy of each client as a fraction, [clients]. Clients without rows (NaN) are
            excluded.
        client_group: Number of each client's group, [clients].

    Returns:
        The value of each metric by name.

    Raises:
        ValueError: If there is not one group per client, or a number is negative.

    Example:
        >>> measure_equity([0.5, 0.7, 0.9], [0, 0, 1])["group_average"]
        75.0
    """
    return {m.name: m.function(accuracies, client_group) for m in EQUITY_METRICS.values()}

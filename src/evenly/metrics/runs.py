"""Run metrics: bytes sent and received, models in use, idle rounds, and how well inferred groups
match the true ones.
"""

from typing import Any

import numpy as np

from evenly.metrics.metric import RUN, Metric
from evenly.metrics.outcomes import ratio
from evenly.types import Trace

MIB = 2**20


def group_accuracy(inferred: Any, true: Any) -> float:
    """Compute the share of clients in the right group, in percent, under the best matching of
    inferred to true groups.

    Inferred and true groups need not share their numbers. Inferred groups in excess of the true
    ones match none. NaN without clients.

    >>> group_accuracy([1, 1, 0, 0, 0], [0, 0, 1, 1, 0])
    80.0
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = np.asarray(inferred), np.asarray(true)
    if rows.shape != columns.shape or rows.ndim != 1:
        raise ValueError(
            f"There must be one inferred and one true group per client, got {list(rows.shape)} and"
            f" {list(columns.shape)}."
        )
    if len(rows) == 0:
        return float("nan")
    if min(rows.min(), columns.min()) < 0:
        raise ValueError("Groups must be numbered from 0, got a negative number.")
    counts = np.zeros((rows.max() + 1, columns.max() + 1), np.int64)
    np.add.at(counts, (rows, columns), 1)
    return float(100 * ratio(counts[linear_sum_assignment(counts, maximize=True)].sum(), len(rows)))


# Traffic, rounds without effect, and which of several models serves which client.


def upload(trace: Trace, client_group: Any) -> float:
    """Data that a participating client sends per round, in MiB (2^20 bytes)."""
    return trace.upload / MIB


def download(trace: Trace, client_group: Any) -> float:
    """Data that a participating client receives per round, in MiB (2^20 bytes)."""
    return trace.download / MIB


def models_used(trace: Trace, client_group: Any) -> float:
    """Number of models that serve at least one client after the last round. It is lower than the
    number of models of the run if clusters collapsed.
    """
    return float(occupied(trace.choice[-1])) if trace.choice.size else float("nan")


def group_inference(trace: Trace, client_group: Any) -> float:
    """Share of clients that are served by the model of their group, under the best matching of
    models to groups.
    """
    if client_group is None or not trace.choice.size:
        return float("nan")
    return group_accuracy(trace.choice[-1], client_group)


def idle_rounds(trace: Trace) -> int:
    """Count the rounds that did not change the model because no client's update counted.

    All coefficients of such a round are 0. This happens under AFL when every client of the round
    has λ = 0, and under every method when no client returns a finite update. A run in which no
    round changes the model, such as local training, has no idle rounds.

    Args:
        trace: A finished run.

    Returns:
        The number of idle rounds.

    Example:
        >>> from types import SimpleNamespace
        >>> idle_rounds(SimpleNamespace(weights=np.array([[0.5, 0.5], [0.0, 0.0]])))
        1
    """
    effective = (trace.weights != 0).any(axis=1)
    return int((~effective).sum()) if effective.any() else 0


def occupied(choice: Any) -> int:
    """Count the different models that these clients use.

    >>> occupied([2, 0, 2, 2])
    2
    """
    return len(np.unique(choice))


ONE = "there is one model for all"

RUN_METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric("upload", "upload (MiB)", "bytes sent / 2²⁰", "0 or more", -1, upload, RUN, "never"),
        Metric(
            "download",
            "download (MiB)",
            "bytes received / 2²⁰",
            "0 or more",
            -1,
            download,
            RUN,
            "never",
        ),
        Metric(
            "models_used",
            "models in use",
            "different models that serve clients",
            "1 to the number of models",
            0,
            models_used,
            RUN,
            ONE,
        ),
        Metric(
            "group_inference",
            "clients in their group",
            "clients served by the model of their group / clients",
            "0 to 100 %",
            +1,
            group_inference,
            RUN,
            f"{ONE}, or the data do not say the groups",
        ),
    )
}
"""Metrics of a whole run, such as its communication, by name. `run_metrics` computes them.

Example:
    >>> RUN_METRICS["upload"].title
    'upload (MiB)'
"""


def run_metrics(trace: Trace, client_group: Any) -> dict[str, float]:
    """Compute the metrics of `RUN_METRICS` that are defined for a run.

    Args:
        trace: A finished run.
        client_group: True group of each client, [clients], or None if the data do not contain it.

    Returns:
        The value of each defined metric by name.

    Example:
        >>> from types import SimpleNamespace
        >>> trace = SimpleNamespace(upload=2**20, download=2**21, choice=np.zeros((0, 0)))
        >>> run_metrics(trace, None)
        {'upload': 1.0, 'download': 2.0}
    """
    values = {m.name: m.function(trace, client_group) for m in RUN_METRICS.values()}
    return {name: value for name, value in values.items() if np.isfinite(value)}


def effective_clients(trace: Trace) -> float:
    """Compute the effective number of clients per round: the mean over rounds of 1 / Σ a² of the
    normalised coefficients a.

    It is K for equal coefficients and 1 if one client has all the weight. Rounds without any
    coefficient are excluded; NaN if no round remains.
    """
    clients = len(trace.excluded)
    # A client that was drawn twice occupies two slots and counts with both.
    keys, inverse = np.unique(
        np.arange(len(trace.cohort))[:, None] * clients + trace.cohort, return_inverse=True
    )
    coefficients = np.bincount(inverse.ravel(), trace.weights.ravel())
    total, square = (
        np.bincount(keys // clients, power) for power in (coefficients, coefficients**2)
    )
    effective = ratio(total**2, square)
    effective = effective[np.isfinite(effective)]
    return float(effective.mean()) if len(effective) else float("nan")

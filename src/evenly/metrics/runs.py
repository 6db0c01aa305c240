"""Metrics of whole runs: final metrics, bytes sent and received, and how well inferred groups match."""

from typing import Any

import numpy as np

from evenly.metrics.tables import RUN, Metric, ratio
from evenly.types import Trace

MIB = 2**20

# How well inferred groups agree with the true ones, whose numbers they need not share.

Array = np.ndarray


def group_accuracy(inferred: Any, true: Any) -> float:
    """Share of clients in the right group, in percent, under the naming of the inferred groups that is best for them.

    Inferred groups beyond the number of true ones match none. NaN without clients.

    >>> group_accuracy([1, 1, 0, 0, 0], [0, 0, 1, 1, 0])
    80.0
    """
    found, wanted = np.asarray(inferred), np.asarray(true)
    if found.shape != wanted.shape or found.ndim != 1:
        raise ValueError(f"There must be one inferred and one true group per client, got {list(found.shape)} and {list(wanted.shape)}.")
    if len(found) == 0:
        return float("nan")
    size = int(max(found.max(), wanted.max())) + 1
    counts = np.zeros((size, size), np.int64)
    np.add.at(counts, (found, wanted), 1)
    return float(100 * ratio(counts[np.arange(size), best_matching(counts)].sum(), len(found)))


def best_matching(gain: Array) -> Array:
    """The column of each row, all different, with the largest total gain: the Hungarian method. [n, n] -> [n]

    Rows are taken in one after another along the cheapest chain of changes; `row_price` and `column_price` keep every reduced
    cost at least 0, and 0 along the matching, which proves it best. Column 0 stands for "none yet".
    """
    cost = -np.asarray(gain, np.float64)
    n = len(cost)
    if cost.shape != (n, n):
        raise ValueError(f"Gains must be a square table, got {list(cost.shape)}.")
    row_price, column_price = np.zeros(n + 1), np.zeros(n + 1)
    owner = np.zeros(n + 1, int)  # row of each column, both counted from 1
    for row in range(1, n + 1):
        owner[0], column = row, 0
        slack, came_from, seen = np.full(n + 1, np.inf), np.zeros(n + 1, int), np.zeros(n + 1, bool)
        while owner[column]:
            seen[column] = True
            reduced = cost[owner[column] - 1] - row_price[owner[column]] - column_price[1:]
            closer = ~seen[1:] & (reduced < slack[1:])
            slack[1:][closer], came_from[1:][closer] = reduced[closer], column
            nearest = int(np.argmin(np.where(seen, np.inf, slack)[1:])) + 1
            step = slack[nearest]
            row_price[owner[seen]] += step
            column_price[seen] -= step
            slack[~seen] -= step
            column = nearest
        while column:
            owner[column] = owner[came_from[column]]
            column = came_from[column]
    matched = np.empty(n, int)
    matched[owner[1:] - 1] = np.arange(n)
    return matched


# What is known of a run besides its counts: what a round costs, which rounds had no effect, and which of several models serves whom.


def upload(trace: Trace, client_group: Any) -> float:
    """What a client that takes part sends in a round, in MiB (2^20 bytes)."""
    return trace.upload / MIB


def download(trace: Trace, client_group: Any) -> float:
    """What a client that takes part receives in a round, in MiB (2^20 bytes)."""
    return trace.download / MIB


def models_used(trace: Trace, client_group: Any) -> float:
    """How many of a run's models serve at least one client at the end: fewer than there are, where clusters collapsed."""
    return float(occupied(trace.choice[-1])) if trace.choice.size else float("nan")


def group_inference(trace: Trace, client_group: Any) -> float:
    """Share of clients that are served the model of their own group, under the naming of the models that is best for them."""
    if client_group is None or not trace.choice.size:
        return float("nan")
    return group_accuracy(trace.choice[-1], client_group)


def idle_rounds(trace: Trace) -> int:
    """How many rounds changed nothing because no client's update counted, although other rounds of the run did change the model.

    The weights of such a round are all 0. That happens under AFL when every client of the round has λ = 0, and under every method
    when nobody returns a finite update. A method that shares no model, such as local training, has no idle rounds.
    """
    counted = (trace.weights != 0).any(axis=1)
    return int((~counted).sum()) if counted.any() else 0


def occupied(choice: Any) -> int:
    """How many different models these clients chose.

    >>> occupied([2, 0, 2, 2])
    2
    """
    return len(np.unique(choice))


ONE = "there is one model for all"

RUN_METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric("upload", "upload (MiB)", "bytes sent / 2²⁰", "0 or more", -1, upload, RUN, "never"),
        Metric("download", "download (MiB)", "bytes received / 2²⁰", "0 or more", -1, download, RUN, "never"),
        Metric(
            "models_used", "models in use", "different models that serve clients", "1 to the number of models", 0, models_used, RUN, ONE,
        ),
        Metric(
            "group_inference", "clients in their group", "clients served by the model of their group / clients", "0 to 100 %", +1,
            group_inference, RUN, f"{ONE}, or the data do not say the groups",
        ),
    )
}  # fmt: skip


def run_metrics(trace: Trace, client_group: Any) -> dict[str, float]:
    """Those of these metrics that the run has."""
    found = {m.name: m.function(trace, client_group) for m in RUN_METRICS.values()}
    return {name: value for name, value in found.items() if np.isfinite(value)}


def effective_clients(trace: Trace) -> float:
    """1 / Σ a² of the normalised coefficients, averaged over rounds: K for equal weights, 1 if one client has them all.

    Rounds in which nobody counted are left out; NaN if that is all of them.
    """
    clients = len(trace.excluded)
    # A client that was drawn twice sits in two slots and counts with both.
    found, at = np.unique(np.arange(len(trace.cohort))[:, None] * clients + trace.cohort, return_inverse=True)
    held = np.bincount(at.ravel(), trace.weights.ravel())
    total, square = (np.bincount(found // clients, power) for power in (held, held**2))
    each = ratio(total**2, square)
    each = each[np.isfinite(each)]
    return float(each.mean()) if len(each) else float("nan")

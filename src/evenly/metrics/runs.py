"""What is known of a run besides its counts: what a round costs, which rounds had no effect, and which of several models serves whom."""

from typing import Any

import numpy as np

from evenly.metrics.communication import MIB
from evenly.metrics.matching import group_accuracy
from evenly.metrics.metric import RUN, Metric
from evenly.types import Trace


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

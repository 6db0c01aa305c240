"""Metrics of a round, averaged over clients by their examples: fairness weights never touch what is reported."""

from typing import Any

import numpy as np
from flwr.app import MetricRecord, RecordDict

from evenly.flower import wire

# What clients tell the server for the method's sake. A mean over clients of these means nothing.
NOT_MEANS = (
    wire.TABLE, wire.CELL_LOSS, wire.CELLS, wire.UNPRIVILEGED, wire.CHOICE, wire.SQUARE_NORM, wire.COEFFICIENT, wire.CLIENT,
    wire.CLIENT_GROUP,
)  # fmt: skip


def averaged(contents: list[RecordDict], weighted_by_key: str) -> MetricRecord:
    """Each metric's mean over the clients that sent a finite number, weighted by their examples, as Flower's own strategies do.

    What one client sends never costs the mean of the others: without a size it does not count, and NaN is no number.
    """
    sums: dict[str, Any] = {}
    mass: dict[str, float] = {}
    for content in contents:
        metrics = content.metric_records.get(wire.METRICS) or next(iter(content.metric_records.values()))
        weight = metrics.get(weighted_by_key)
        if isinstance(weight, list) or weight is None or not 0 < weight < np.inf:
            continue
        for name, value in metrics.items():
            if name == weighted_by_key or not _is_mean(name):
                continue
            own = float(weight) * np.asarray(value, float)
            if not np.isfinite(own).all() or (name in sums and np.shape(sums[name]) != own.shape):
                continue  # lists of other lengths cannot be averaged
            sums[name], mass[name] = sums.get(name, 0.0) + own, mass.get(name, 0.0) + float(weight)
    return MetricRecord({name: (total / mass[name]).tolist() for name, total in sums.items()})


def _is_mean(name: str) -> bool:
    """Not a signal, nor one of a split (train-table), nor a shape."""
    plain = name.removeprefix("train-").removeprefix("valid-")
    return not name.endswith(wire.SHAPE) and plain not in NOT_MEANS and not plain.endswith(wire.EXAMPLES)

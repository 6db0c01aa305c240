"""Metrics of a round, averaged over clients by their examples: fairness weights never touch what is reported."""

from collections import Counter
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
    said: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}  # by metric: weights, and weights times values
    with np.errstate(all="ignore"):
        for content in contents:
            metrics = content.metric_records.get(wire.METRICS) or next(iter(content.metric_records.values()))
            weight = _finite(metrics.get(weighted_by_key))
            if weight is None or weight.ndim or not weight > 0:
                continue
            for name, value in metrics.items():
                own = _finite(value) if name != weighted_by_key and _is_mean(name) else None
                if own is not None and np.isfinite(weight * own).all():
                    said.setdefault(name, []).append((weight, np.asarray(weight * own)))
        return MetricRecord({name: _mean(own) for name, own in said.items()})


def _finite(value: Any) -> np.ndarray | None:
    """Numbers that somebody else sent; None: they are not, or not finite."""
    try:
        found = np.asarray(value, float)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if np.isfinite(found).all() else None


def _mean(said: list[tuple[np.ndarray, np.ndarray]]) -> Any:
    """Of values of the shape that most sent: lists of other lengths cannot be averaged with them."""
    usual = Counter(own.shape for _, own in said).most_common(1)[0][0]
    counted = [(weight, own) for weight, own in said if own.shape == usual]
    total, mass = counted[0][1], counted[0][0]
    for weight, own in counted[1:]:
        total, mass = total + own, mass + weight
    return (total / mass).tolist()


def _is_mean(name: str) -> bool:
    """Not a signal, nor one of a split (train-table), nor a shape."""
    plain = name.removeprefix("train-").removeprefix("valid-")
    return not name.endswith(wire.SHAPE) and plain not in NOT_MEANS and not plain.endswith(wire.EXAMPLES)

"""Metrics: pure functions of count tables."""

from evenly.metrics.clients import METRICS, Metric, final_metrics, measure
from evenly.metrics.means import dual_weights, generalised_mean
from evenly.metrics.spread import Spread, spread
from evenly.metrics.tables import accuracy, examples, ratio

__all__ = [
    "METRICS", "Metric", "Spread", "accuracy", "dual_weights", "examples", "final_metrics", "generalised_mean", "measure", "ratio",
    "spread",
]  # fmt: skip

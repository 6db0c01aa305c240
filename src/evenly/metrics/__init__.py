"""Metrics: pure functions of count tables."""

from evenly.metrics.clients import METRICS, Metric, final_metrics, measure
from evenly.metrics.spread import Spread, spread
from evenly.metrics.tables import accuracy, examples, ratio

__all__ = ["METRICS", "Metric", "Spread", "accuracy", "examples", "final_metrics", "measure", "ratio", "spread"]

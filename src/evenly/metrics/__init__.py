"""Metrics: pure functions of count tables."""

from evenly.metrics.clients import METRICS, Metric, measure
from evenly.metrics.spread import Spread, spread
from evenly.metrics.tables import accuracy, examples, ratio

__all__ = ["METRICS", "Metric", "Spread", "accuracy", "examples", "measure", "ratio", "spread"]

"""Metrics: pure functions of count tables."""

from evenly.metrics.bootstrap import Interval, over_clients
from evenly.metrics.clients import METRICS, final_metrics, measure
from evenly.metrics.equity import EQUITY_METRICS, measure_equity
from evenly.metrics.fairness import GROUP_METRICS, measure_groups, pooled
from evenly.metrics.front import on_front
from evenly.metrics.groups import Rates, by_attribute, rates, rows_behind, sides
from evenly.metrics.means import dual_weights, generalised_mean
from evenly.metrics.metric import Metric
from evenly.metrics.paired import Paired, holm, paired, t_quantile
from evenly.metrics.representation import covered, good_clients, representation_rates, represented
from evenly.metrics.runs import RUN_METRICS, idle_rounds, run_metrics
from evenly.metrics.spread import Spread, spread
from evenly.metrics.tables import accuracy, examples, ratio, seated

EVERY_METRIC: dict[str, Metric] = METRICS | GROUP_METRICS | EQUITY_METRICS | RUN_METRICS

__all__ = [
    "EQUITY_METRICS", "EVERY_METRIC", "GROUP_METRICS", "METRICS", "RUN_METRICS", "Interval", "Metric", "Paired", "Rates", "Spread",
    "accuracy", "by_attribute", "covered", "dual_weights", "examples", "final_metrics", "generalised_mean", "good_clients", "holm",
    "idle_rounds", "measure", "measure_equity", "measure_groups", "on_front", "over_clients", "paired", "pooled", "rates", "ratio",
    "representation_rates", "represented", "rows_behind", "run_metrics", "seated", "sides", "spread", "t_quantile",
]  # fmt: skip

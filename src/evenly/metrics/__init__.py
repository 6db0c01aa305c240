"""Metrics of fairness and accuracy: pure functions of count tables, and the statistics to compare
them.

- `clients`: metrics of clients and of groups of clients. `groups`: metrics of groups of people.
  `runs`: metrics of whole runs. Each has its registry, to which a new metric is added.
- `metric`: what a metric declares. `declaration_check`: whether its value keeps to that.
- `outcomes`: count tables and rates. `score_cells`: cells of scores that sites send.
- `representation`: shares of groups. `statistics`: intervals, tests and the front.

>>> import numpy as np
>>> values = measure(accuracies=np.array([1.0, 0.75, 0.5]), counts=np.array([10, 10, 10]))
>>> values["average"], values["min"]
(75.0, 50.0)
"""

from collections import ChainMap
from collections.abc import Mapping
from types import MappingProxyType

from evenly.metrics.clients import EQUITY_METRICS, METRICS, final_metrics, measure, measure_equity
from evenly.metrics.declaration_check import check_declaration
from evenly.metrics.groups import GROUP_METRICS, GroupedRates, measure_groups, pooled
from evenly.metrics.metric import CLIENT_GROUPS, OF_CLIENTS, OF_PEOPLE, RUN, Metric
from evenly.metrics.outcomes import (
    Rates,
    accuracy,
    by_attribute,
    examples,
    rates,
    ratio,
    rows_behind,
    sides,
    slots_of_evaluated,
)
from evenly.metrics.representation import covered, good_clients, representation_rates, represented
from evenly.metrics.runs import RUN_METRICS, idle_rounds, run_metrics
from evenly.metrics.statistics import (
    Interval,
    Paired,
    Spread,
    dual_weights,
    generalised_mean,
    half_width,
    holm,
    on_front,
    over_clients,
    paired,
    spread,
    t_quantile,
)
from evenly.registry import add, forget

# A view of the four registries, not a copy: it contains metrics that are registered later. The last
# of these maps comes first.
EVERY_METRIC: Mapping[str, Metric] = MappingProxyType(
    ChainMap(RUN_METRICS, EQUITY_METRICS, GROUP_METRICS, METRICS)
)
"""All metrics by name, including those that are registered later.

Example:
    >>> [name in EVERY_METRIC for name in ("worst10", "eod", "upload")]
    [True, True, True]
"""

REGISTRIES: dict[str, dict[str, Metric]] = {
    **dict.fromkeys(OF_PEOPLE, GROUP_METRICS), **dict.fromkeys(OF_CLIENTS, METRICS),
    CLIENT_GROUPS: EQUITY_METRICS, RUN: RUN_METRICS,
}  # fmt: skip

__all__ = [
    "EQUITY_METRICS", "EVERY_METRIC", "GROUP_METRICS", "METRICS", "RUN_METRICS", "GroupedRates",
    "Interval", "Metric", "Paired", "Rates", "Spread", "accuracy", "by_attribute", "covered",
    "dual_weights", "examples", "final_metrics", "generalised_mean", "good_clients", "half_width",
    "holm", "idle_rounds", "measure", "measure_equity", "measure_groups", "on_front",
    "over_clients", "paired", "pooled", "rates", "ratio", "register", "representation_rates",
    "represented", "rows_behind", "run_metrics", "seated", "sides", "slots_of_evaluated", "spread",
    "t_quantile",
]  # fmt: skip

seated = slots_of_evaluated  # the former name, which the changelog promises


def register(metric: Metric, *, replace: bool = False) -> None:
    """Add a metric, which then appears in results and reports. Audits show only client metrics.

    Args:
        metric: The metric. Its `rests_on` selects the registry, and its function is checked to use
            only the data it declares.
        replace: Whether to replace a registered metric of the same name.

    Raises:
        ValueError: If the name is taken and `replace` is False, if the function fails on an
            example, or if its value depends on data that `rests_on` does not declare.

    Example:
        >>> import numpy as np
        >>> formula = lambda accuracy, rows: 100 * np.median(accuracy)
        >>> median = Metric("median", "median", "median aₖ", "0 to 100 %", 1, formula, "clients")
        >>> register(median)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: Metric 'median' declares rests_on='clients' ... Declare rests_on='some clients'.
    """
    check_declaration(metric)
    if replace and metric.name in EVERY_METRIC and EVERY_METRIC[metric.name] is not metric:
        for registry in (METRICS, GROUP_METRICS, EQUITY_METRICS, RUN_METRICS):
            forget("metric", registry, metric.name)  # it may have rested on something else
    add("metric", REGISTRIES[metric.rests_on], metric, taken=EVERY_METRIC, replace=replace)

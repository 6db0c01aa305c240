"""Which methods a report talks about: what others are compared with, which one leads, and which are
drawn in colour.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from evenly.experiment.comparison import Comparison
from evenly.metrics import EVERY_METRIC
from evenly.report.disclosure import hidden_numbers
from evenly.report.group_values import with_groups
from evenly.report.values import Values, client_split, defined_metrics, final_values, over_seeds

MOST_SERIES = 8  # more colours and shapes cannot be told apart


class Focus(NamedTuple):
    """The methods and rows that a report emphasises. `lead` is the baseline if there is no other
    method.
    """

    baseline: str
    lead: str
    # the split that chose the lead: "valid", "test", or "" where there was nothing to choose
    lead_split: str
    series: tuple[str, ...]  # in the order of the comparison
    split: str = "test"  # the rows that clients are compared on
    # the method with the least |EOD| on the rows that groups are shown on; "" where there are no
    # groups
    least_eod: str = ""
    least: int = 0  # what rests on fewer people is hidden
    hidden: frozenset[int] = frozenset()  # clients that are therefore not named
    chosen: str = ""  # the method that a search chose; "" where there was none

    @property
    def subject(self) -> str:
        """The method whose worst-served clients and groups open the report."""
        return self.chosen or self.baseline


def choose_focus(comparison: Comparison, values: Values, least: int = 0) -> Focus:
    """Use the first method as the baseline, and lead with the method that serves the worst 10 %
    best on validation rows.

    Selecting the lead on test rows would favour it, so they are used only if there are no
    validation rows.
    """
    labels = comparison.labels
    baseline, *others = labels
    valid = final_values(comparison, "valid") if len(others) > 1 else values
    split = "" if len(others) < 2 else "valid" if _defined(valid, others) else "test"
    lead = best_of(valid if split == "valid" else values, others, "worst10") if others else baseline
    least_eod = _least_eod(comparison, values, least)
    series = _series(values, labels, [baseline, lead, *([least_eod] if least_eod else [])])
    shown_on = client_split(comparison)
    hidden = hidden_numbers(comparison, shown_on, least)
    chosen = comparison.chosen if comparison.chosen in labels else ""
    return Focus(baseline, lead, split, series, shown_on, least_eod, least, hidden, chosen)


def _least_eod(comparison: Comparison, values: Values, least: int) -> str:
    whole = with_groups(comparison, values, least)
    known = len(comparison.federation.groups) > 1 and defined_metrics(whole, ("eod_abs",))
    return best_of(whole, comparison.labels, "eod_abs") if known else ""


def best_of(values: Values, labels: list[str], metric: str) -> str:
    """The label with the best mean. Ties are broken by accuracy, then by order."""
    return max(
        labels, key=lambda label: (_rank(values, metric, label), _rank(values, "average", label))
    )


def _rank(values: Values, metric: str, label: str) -> float:
    mean = over_seeds(values, label, metric).mean * EVERY_METRIC[metric].better
    return mean if np.isfinite(mean) else -np.inf


def _defined(values: Values, labels: list[str]) -> bool:
    return any(np.isfinite(over_seeds(values, label, "worst10").mean) for label in labels)


def _series(values: Values, labels: list[str], first: list[str]) -> tuple[str, ...]:
    if len(labels) <= MOST_SERIES:
        return tuple(labels)
    winners = [
        best_of(values, labels, metric)
        for metric in ("average", "worst10", "variance_true", "variance")
    ]
    ranked = dict.fromkeys(
        [*first, *winners, *sorted(labels, key=partial(_rank, values, "worst10"), reverse=True)]
    )
    kept = set(list(ranked)[:MOST_SERIES])
    return tuple(label for label in labels if label in kept)

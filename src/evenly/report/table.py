"""The results table as data: for every method and metric the mean over seeds, its spread, and which value is best.

The command line and the page both show this table, so it knows nothing of either.
"""

import dataclasses
from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from evenly.data.splits import CENTRAL, SPLITS
from evenly.experiment.results import Comparison, shown_split
from evenly.metrics import EVERY_METRIC, GROUP_METRICS, Metric, Spread, accuracy, examples, measure, spread

MAIN_METRICS = ("average", "average_devices", "worst10", "best10", "variance", "variance_noise", "variance_true")
UNDEFINED = "n/a"
SPLIT_WORDS = {"train": "training", "valid": "validation", "test": "test"}
# A view of the registries, not a copy: what is added to them has a column.
COLUMNS: Mapping[str, Metric] = ChainMap(
    {CENTRAL: dataclasses.replace(GROUP_METRICS["accuracy"], name=CENTRAL, title="accuracy on the central test set")},
    cast("dict[str, Metric]", EVERY_METRIC),
)

Values = dict[str, dict[int, dict[str, float]]]  # label -> seed -> metric -> value, after the last round


class Cell(NamedTuple):
    """One method's value of one metric."""

    metric: Metric
    spread: Spread
    best: bool  # the best mean of all methods
    near: bool  # not the best, but over these seeds not clearly worse
    clear: bool = False  # the best, and over these seeds every other method is clearly worse

    @property
    def text(self) -> str:
        return format_spread(self.spread, self.metric)


class Row(NamedTuple):
    """One method."""

    label: str
    cells: dict[str, Cell]


class Table(NamedTuple):
    """One row per method, one column per metric."""

    split: str
    metrics: tuple[Metric, ...]
    rows: tuple[Row, ...]
    seeds: int


def results_table(comparison: Comparison, *, metrics: Sequence[str] = MAIN_METRICS, split: str = "test") -> Table:
    """Mean and spread over seeds of every metric, on the clients' rows of one split."""
    return table_of(final_values(comparison, split), metrics=metrics, split=split)


def table_of(values: Values, *, metrics: Sequence[str] = MAIN_METRICS, split: str = "test") -> Table:
    """The same table from values that are already measured."""
    chosen = tuple(COLUMNS[name] for name in metrics)
    columns = {metric.name: _column(values, metric) for metric in chosen}
    rows = tuple(Row(label, {name: column[label] for name, column in columns.items()}) for label in values)
    return Table(split, chosen, rows, max((len(seeds) for seeds in values.values()), default=0))


def final_values(comparison: Comparison, split: str = "test", withheld: Collection[str] = ()) -> Values:
    """Every metric of every run after its last round. All that a table needs; measured once. Those that are withheld are undefined.

    Where only a central test set is held out, the accuracy on it is among them, under "central".
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}.")
    values: Values = {label: {} for label in comparison.labels}
    alone = len(comparison.federation.central) and not comparison.federation.test.counts.any()
    for run in comparison.runs:
        tables = run.trace.tables[-1, SPLITS.index(split)]
        central = {CENTRAL: float(100 * accuracy(run.trace.central[-1]))} if alone else {}
        found = measure(accuracy(tables), examples(tables)) | dict.fromkeys(withheld, float("nan"))
        values[run.label][run.seed] = found | central
    return values


def clients_split(comparison: Comparison) -> str:
    """The rows that clients are compared on: their test rows or, where no client has any, their validation rows."""
    return shown_split(comparison.federation)


def headline(values: Values) -> str:
    """The accuracy to look at first: on the central test set where only that is held out, else the clients' average."""
    return CENTRAL if all(CENTRAL in seed for seeds in values.values() for seed in seeds.values()) else "average"


def known_of(values: Values, metrics: Sequence[str]) -> tuple[str, ...]:
    """The metrics that at least one method has a value of."""
    return tuple(m for m in metrics if any(np.isfinite(over_seeds(values, label, m).mean) for label in values))


def over_seeds(values: Values, label: str, metric: str) -> Spread:
    return spread(np.array([seed[metric] for seed in values[label].values()]))


def difference(values: Values, label: str, other: str, metric: str) -> Spread:
    """The change from `other` to `label`, seed by seed.

    Methods share data, cohorts and batches of a seed, so most of the variation between seeds cancels in the difference.
    """
    common = [seed for seed in values[label] if seed in values[other]]
    return spread(np.array([values[label][s][metric] - values[other][s][metric] for s in common]))


def is_clear(change: Spread) -> bool:
    """Whether the 95 % interval of a change leaves out 0. A single seed has no interval and shows nothing clearly."""
    return bool(np.isfinite(change.half_width) and abs(change.mean) > change.half_width)


def _column(values: Values, metric: Metric) -> dict[str, Cell]:
    found = {label: over_seeds(values, label, metric.name) for label in values}
    ranked = [s.mean * metric.better for s in found.values() if np.isfinite(s.mean)]
    # A metric without a better side has no best value, nor have methods that are all alike.
    top = max(ranked) if metric.better and len(found) > 1 and ranked and (min(ranked) < max(ranked) or len(ranked) < len(found)) else None
    best = {label for label, s in found.items() if top is not None and s.mean * metric.better == top}
    near = {label for label in found if _near(values, label, best, metric)}
    others = [label for label, s in found.items() if label not in best and np.isfinite(s.mean)]
    clear = len(best) == 1 and bool(others) and all(is_clear(difference(values, label, min(best), metric.name)) for label in others)
    return {label: Cell(metric, s, label in best, label in near, clear and label in best) for label, s in found.items()}


def _near(values: Values, label: str, best: set[str], metric: Metric) -> bool:
    if not best or label in best:
        return False
    change = difference(values, label, min(best), metric.name)
    return bool(np.isfinite(change.half_width)) and not is_clear(change)


def format_spread(value: Spread, metric: Metric) -> str:
    """Mean and half the width of the 95 % interval: "71.3 ± 2.1"; no interval for a single seed; "n/a" if undefined."""
    if not np.isfinite(value.mean):
        return UNDEFINED
    mean, digits = format_value(value.mean, metric), _digits(value.mean, metric)
    return f"{mean} ± {value.half_width:.{digits}f}" if np.isfinite(value.half_width) else mean


def spread_words(seeds: int) -> str:
    """What the figures of a table are, in the same words wherever one is shown: ± always means the same."""
    return f"mean ± half of the 95 % interval over {seeds} seeds" if seeds > 1 else "one seed, so there are no intervals"


def _digits(value: float, metric: Metric) -> int:
    if "%²" in metric.range and abs(value) >= 100:
        return 0
    return 1 if "%" in metric.range or "°" in metric.range else 3


def format_value(value: float, metric: Metric) -> str:
    """A number with the digits that suit the metric: one for percentages and degrees, three for indices."""
    if not np.isfinite(value):
        return UNDEFINED
    digits = _digits(value, metric)
    shown = f"{value:.{digits}f}"
    return f"{0:.{digits}f}" if float(shown) == 0 else shown  # no "-0.0"

"""How each group is served: rates with intervals, metrics per method, and on which rows."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from evenly.data.federation import Federation
from evenly.data.sensitive import FEW, Attribute
from evenly.data.splits import CENTRAL, SPLITS
from evenly.experiment.comparison import Comparison, Run
from evenly.metrics import (
    GROUP_METRICS,
    by_attribute,
    measure_groups,
    over_clients,
    pooled,
    rates,
    rows_behind,
    sides,
)
from evenly.metrics.groups import spread_over_groups
from evenly.metrics.statistics import LEAST_CLIENTS, over_people
from evenly.report.disclosure import RESTS_ON, HiddenGroups, hidden_groups
from evenly.report.values import Values, client_split, mean_over_seeds, wilson

RATES = {
    "accuracy": "Accuracy",
    "selection_rate": "Selection rate",
    "tpr": "True positive rate",
    "fpr": "False positive rate",
}


class Grouping(NamedTuple):
    """One way to group people: by the groups of the federation, or by one of several attributes."""

    title: str
    names: tuple[str, ...]
    unprivileged: tuple[int, ...]
    favourable: int
    attribute: Attribute | None = None

    def pool(self, tables: np.ndarray) -> np.ndarray:
        """Tables by group as tables by this grouping."""
        return tables if self.attribute is None else by_attribute(tables, self.attribute)


class GroupRate(NamedTuple):
    """One rate of one group under one method, in percent, the mean over seeds."""

    group: str
    value: float
    low: float
    high: float
    rows: float  # that the rate is a share of
    hidden: bool = False  # because it rests on too few people, or would reveal a rate that does

    @property
    def few(self) -> bool:
        return self.rows < FEW


def groupings(federation: Federation) -> list[Grouping]:
    """The groups and, if they are intersections, each attribute separately; empty without at least
    two groups.
    """
    if len(federation.groups) < 2:
        return []
    several = federation.attributes if len(federation.attributes) > 1 else ()
    title = " and ".join(a.name for a in federation.attributes) or "group"
    whole = Grouping(title, federation.groups, federation.unprivileged, federation.favourable)
    return [
        whole,
        *(Grouping(a.name, a.values, (a.unprivileged,), federation.favourable, a) for a in several),
    ]


def group_split(comparison: Comparison) -> str:
    """The split that group metrics are computed on: the central test set if there is one."""
    return CENTRAL if len(comparison.federation.central) else client_split(comparison)


def group_values(
    comparison: Comparison, grouping: Grouping, split: str, withheld: frozenset[str] = frozenset()
) -> Values:
    """Every group metric of every run after its last round. Withheld metrics are NaN."""
    values: Values = {label: {} for label in comparison.labels}
    for run in comparison.runs:
        found = _measured(grouping, grouping.pool(pooled(run.trace, split)[-1]))
        values[run.label][run.seed] = {
            name: float("nan") if name in withheld else float(value)
            for name, value in found.items()
        }
    return values


def with_groups(comparison: Comparison, values: Values, least: int = 0) -> Values:
    """Add the group metrics to the values of clients; without groups, return the values unchanged.

    Metrics that would reveal fewer than `least` people are NaN.
    """
    for grouping in groupings(comparison.federation)[:1]:
        split = group_split(comparison)
        found = group_values(
            comparison, grouping, split, hidden_groups(comparison, split, least).withheld
        )
        return {
            label: {seed: {**found[label][seed], **own} for seed, own in seeds.items()}
            for label, seeds in values.items()
        }
    return values


def metric_intervals(
    comparison: Comparison, grouping: Grouping, label: str, split: str
) -> dict[str, tuple[float, float]]:
    """95 % intervals of every group metric from resampling clients, or people where clients are
    few, of a method with a single seed; else nothing.
    """
    runs = comparison.of(label)
    if len(runs) > 1 or split == CENTRAL or comparison.federation.clients < 2:
        return {}
    tables = _client_tables(runs[0], grouping, split)
    found = partial(_every, grouping)
    interval = (
        over_clients(tables, found)
        if len(tables) >= LEAST_CLIENTS
        else over_people(tables.sum(0), found)
    )
    return {
        name: (float(low), float(high))
        for name, low, high in zip(GROUP_METRICS, interval.low, interval.high, strict=True)
    }


def group_rates(
    comparison: Comparison,
    grouping: Grouping,
    label: str,
    split: str,
    rate: str,
    *,
    hidden: HiddenGroups | None = None,
) -> list[GroupRate]:
    """One rate of every group. From the lowest seed to the highest; with one seed a 95 %
    interval.
    """
    runs = comparison.of(label)
    # [seeds, groups, labels, outcomes]
    tables = np.stack([grouping.pool(pooled(run.trace, split)[-1]) for run in runs])
    seen = getattr(rates(tables, grouping.favourable), rate)
    rows = getattr(rows_behind(tables, grouping.favourable), rate).mean(0)
    mean = mean_over_seeds(seen)
    low, high = _ends(runs[0], grouping, split, rate) if len(runs) == 1 else _extremes(seen)
    numbers = zip(grouping.names, 100 * mean, 100 * low, 100 * high, rows, strict=True)
    found = [
        GroupRate(name, float(v), float(a), float(b), float(n)) for name, v, a, b, n in numbers
    ]
    if hidden is None:
        return found
    unknown, cells = (
        float("nan"),
        np.logical_or.reduce(hidden.cells[:, list(RESTS_ON[rate])], axis=-1),
    )
    return [
        GroupRate(own.group, unknown, unknown, unknown, unknown, True) if cells[g] else own
        for g, own in enumerate(found)
    ]


def side_rates(
    comparison: Comparison, grouping: Grouping, label: str, split: str, rate: str
) -> tuple[float, float]:
    """One rate of the unprivileged and of the privileged, each pooled, in percent; the mean over
    seeds.
    """
    pairs = [
        sides(grouping.pool(pooled(run.trace, split)[-1]), grouping.unprivileged)
        for run in comparison.of(label)
    ]
    unprivileged, privileged = np.mean([_rate(grouping, rate, pair) for pair in pairs], axis=0)
    return float(100 * unprivileged), float(100 * privileged)


# Metrics of single groups can rest on a handful of people: the group that is served worst, or best,
# is often a small one.

EXTREMES = {  # the rates whose lowest group, or lowest and highest, decide a metric
    "worst_accuracy": ("accuracy",),
    "worst_tpr": ("tpr",),
    "worst_selection": ("selection_rate",),
    "acc_range": ("accuracy",),
    "eod_range": ("tpr",),
    "spd_range": ("selection_rate",),
    "odds_range": ("tpr", "fpr"),
}


def rows_of_extremes(
    metric: str, share: Mapping[str, np.ndarray], rows: Mapping[str, np.ndarray]
) -> float:
    """The rows that a metric of single groups rests on: those of the smaller group that decides it.

    `share` and `rows` hold each rate and its denominators, [groups] each; a rate is NaN where it is
    undefined or hidden. Of groups with the same rate, the largest counts.

    >>> share, rows = np.array([0.9, 0.2, 0.5]), np.array([40, 7, 300])
    >>> rows_of_extremes("worst_accuracy", {"accuracy": share}, {"accuracy": rows})
    7.0
    """
    ranges = {rate: spread_over_groups(share[rate]) for rate in EXTREMES[metric]}
    rate = max(ranges, key=lambda name: np.nan_to_num(ranges[name], nan=-1.0))
    known = np.isfinite(share[rate])
    if not known.any():
        return float("nan")
    values, behind = share[rate][known], rows[rate][known]
    ends = [values.min()] if metric.startswith("worst") else [values.min(), values.max()]
    return float(min(behind[values == end].max() for end in ends))


def metrics_of_few(
    comparison: Comparison, grouping: Grouping, label: str, split: str
) -> frozenset[str]:
    """The metrics of single groups that rest on fewer than FEW rows in some seed."""
    found: set[str] = set()
    for run in comparison.of(label):
        table = grouping.pool(pooled(run.trace, split)[-1])
        share = rates(table, grouping.favourable)._asdict()
        rows = rows_behind(table, grouping.favourable)._asdict()
        found |= {name for name in EXTREMES if rows_of_extremes(name, share, rows) < FEW}
    return frozenset(found)


def _measured(grouping: Grouping, tables: np.ndarray) -> dict[str, np.ndarray]:
    return measure_groups(
        tables, favourable=grouping.favourable, unprivileged=grouping.unprivileged
    )


def _every(grouping: Grouping, tables: np.ndarray) -> np.ndarray:
    return np.stack(list(_measured(grouping, tables).values()), axis=-1)


def _client_tables(run: Run, grouping: Grouping, split: str) -> np.ndarray:
    return grouping.pool(run.trace.tables[-1, SPLITS.index(split)])


def _extremes(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    known = np.isfinite(seen)
    low, high = np.where(known, seen, np.inf).min(0), np.where(known, seen, -np.inf).max(0)
    return np.where(known.any(0), low, np.nan), np.where(known.any(0), high, np.nan)


def _ends(run: Run, grouping: Grouping, split: str, rate: str) -> tuple[np.ndarray, np.ndarray]:
    """What chance allows with so many rows and, where there are enough clients to resample, that
    interval too: the outer ends of both.

    Resampling alone finds no uncertainty where a group's few rows all went the same way.
    """
    table = grouping.pool(pooled(run.trace, split)[-1])
    low, high = wilson(
        _rate(grouping, rate, table), getattr(rows_behind(table, grouping.favourable), rate)
    )
    tables = _client_tables(run, grouping, split) if split != CENTRAL else table[:0]
    if len(tables) < LEAST_CLIENTS:
        return low, high
    drawn = over_clients(tables, partial(_rate, grouping, rate))
    return np.fmin(low, drawn.low), np.fmax(high, drawn.high)


def _rate(grouping: Grouping, rate: str, tables: np.ndarray) -> np.ndarray:
    return getattr(rates(tables, grouping.favourable), rate)

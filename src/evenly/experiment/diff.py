"""Two folders of results beside each other: what differs in settings, in methods and in results."""

import json
from collections.abc import Iterator, Mapping
from math import isclose, isnan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.data.splits import CENTRAL, SPLITS
from evenly.experiment.deployment import Deployment
from evenly.experiment.folder import open_results, open_study, read_plan
from evenly.experiment.plan import Plan
from evenly.experiment.results import Comparison, final_by_seed
from evenly.experiment.study import Study, StudyPlan

ABSENT = "not there"


class Setting(NamedTuple):
    """A setting that is not the same, under its place in plan.json."""

    key: str
    first: Any
    second: Any


class Figure(NamedTuple):
    """A metric of a method that is not the same: means over seeds, where both have any."""

    label: str
    split: str  # of a study the protocol
    metric: str
    first: float
    second: float
    cell: str = ""  # of a study: the partition

    @property
    def difference(self) -> float:
        return self.second - self.first


class Difference(NamedTuple):
    """Everything that is not the same in two folders."""

    settings: list[Setting]
    only_first: list[str]  # methods
    only_second: list[str]
    figures: list[Figure]
    compared: int  # figures that both have

    @property
    def same(self) -> bool:
        return not (self.settings or self.only_first or self.only_second or self.figures)


class _Place(NamedTuple):
    cell: str
    label: str
    split: str
    metric: str


Values = dict[_Place, dict[int, float]]  # by seed


def diff(first: Path, second: Path, *, tolerance: float = 0.0) -> Difference:
    """Compare two finished folders. Results are the same where, seed by seed, they differ by at most `tolerance`."""
    if not tolerance >= 0:
        raise ValueError(f"The tolerance must be at least 0, got {tolerance}.")
    plans = [read_plan(folder) for folder in (first, second)]
    a, b = (_values(folder, plan) for folder, plan in zip((first, second), plans, strict=True))
    methods = [list(dict.fromkeys(place.label for place in values)) for values in (a, b)]
    shared = [place for place in a if place in b]
    return Difference(
        settings=list(_settings(*(json.loads(plan.to_json()) for plan in plans))),
        only_first=[label for label in methods[0] if label not in methods[1]],
        only_second=[label for label in methods[1] if label not in methods[0]],
        figures=[_figure(place, a[place], b[place]) for place in shared if not _same(a[place], b[place], tolerance)],
        compared=len(shared),
    )


def _settings(first: Any, second: Any, at: str = "") -> Iterator[Setting]:
    if isinstance(first, dict) and isinstance(second, dict):
        for key in dict.fromkeys([*first, *second]):
            yield from _settings(first.get(key, ABSENT), second.get(key, ABSENT), f"{at}.{key}" if at else key)
    elif first != second:
        yield Setting(at, first, second)


def _values(folder: Path, plan: Plan | StudyPlan | Deployment) -> Values:
    return dict(_of_study(open_study(folder)) if isinstance(plan, StudyPlan) else _of_comparison(open_results(folder)))


def _of_comparison(comparison: Comparison) -> Iterator[tuple[_Place, dict[int, float]]]:
    for label in comparison.labels:
        for split in (*SPLITS, CENTRAL):
            for metric, values in final_by_seed(comparison, label, split).items():
                yield _Place("", label, split, metric), values


def _of_study(study: Study) -> Iterator[tuple[_Place, dict[int, float]]]:
    for outcome in study.outcomes:
        seeds = study.plan.cells[outcome.cell].seeds
        for metric, values in outcome.values.items():
            yield _Place(outcome.cell, outcome.method, outcome.protocol, metric), dict(zip(seeds, values.tolist(), strict=True))


def _same(first: Mapping[int, float], second: Mapping[int, float], tolerance: float) -> bool:
    if first.keys() != second.keys():
        return _close(_mean(first), _mean(second), tolerance)
    return all(_close(first[seed], second[seed], tolerance) for seed in first)


def _close(a: float, b: float, tolerance: float) -> bool:
    return (isnan(a) and isnan(b)) or a == b or isclose(a, b, rel_tol=0.0, abs_tol=tolerance)


def _figure(place: _Place, first: Mapping[int, float], second: Mapping[int, float]) -> Figure:
    return Figure(place.label, place.split, place.metric, _mean(first), _mean(second), place.cell)


def _mean(values: Mapping[int, float]) -> float:
    return float(np.mean(list(values.values())))

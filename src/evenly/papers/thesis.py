"""The thesis beside our results: its names of methods and partitions, its figures, and our results
in its columns.

Gonfiantini, "Fairness-Aware Federated Learning", Master's thesis, University of Genoa, 2026. Only
its tables A.1 to A.5 (Adult, Dirichlet) are among the reference figures. Elsewhere no figures are
shown.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from importlib import resources
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from evenly.data.splits import CENTRAL
from evenly.experiment.comparison import Comparison, Run
from evenly.experiment.plan import Plan
from evenly.experiment.result_rows import RESULTS_SCHEMA
from evenly.experiment.study import PROTOCOLS, Outcome, Study, drop_settings
from evenly.metrics import Spread, spread
from evenly.metrics.statistics import is_clear
from evenly.notation import parse

# Names, places and figures.

# The thesis' columns and our metrics. Accuracies and precisions are fractions there and percentages
# here.
COLUMNS = {
    "accuracy": "accuracy", "eod": "eod_abs", "spd": "spd_abs", "aod": "aod_abs",
    "acc_diff": "acc_diff", "precision": "precision",
}  # fmt: skip
SCORES = {"fas_thesis": "fas_thesis", "fas_abs": "fas_abs"}
FRACTIONS = ("accuracy", "precision")
DATASETS = {"adult-sex": "adult"}
PARTITIONS = {"dirichlet-attribute": "dirichlet"}
PARAMETERS = {"accuracy": "ACCDIFF", "eod": "EOD", "spd": "SPD"}
TABLES = {("adult", "dirichlet"): "A", ("compas", "dirichlet"): "B"}
LEVELS = ("0.1", "0.2", "0.5", "10", "5000")


class ThesisMethod(NamedTuple):
    """A method in the thesis' notation: `FEDCVG-RATIO(0.5)+LD+PS(0.7)`."""

    algorithm: str
    parameter: str
    debias: bool  # local debiasing (LD), our `reweigh`
    parity: str  # the p of parity sampling (PS); "": everyone takes part
    other: str = ""  # parts that the thesis does not have, as we write them

    @property
    def aggregation(self) -> str:
        return f"{self.algorithm}({self.parameter})" if self.parameter else self.algorithm

    def __str__(self) -> str:
        return (
            self.aggregation
            + "+LD" * self.debias
            + (f"+PS({self.parity})" if self.parity else "")
            + self.other
        )


class Place(NamedTuple):
    """One partition of one data set, which is one table of the thesis."""

    table: str  # "" where the thesis' number is not known
    dataset: str
    partition: str
    value: str

    def __str__(self) -> str:
        if self.partition == "dirichlet":
            return f"{self.dataset}, alpha {self.value}"
        return ", ".join(filter(None, (self.dataset, self.partition, self.value)))


class StudyView(NamedTuple):
    """All results on one partition, by the thesis' names."""

    place: Place
    cell: str
    outcomes: dict[str, dict[ThesisMethod, Outcome]]  # protocol -> method
    # method -> label with a value of the chosen settings -> seeds
    runs: dict[ThesisMethod, dict[str, list[Run]]]
    paper: dict[ThesisMethod, dict[str, float]]  # empty where the thesis' figures are not known
    comparison: Comparison


def thesis_method(label: str) -> ThesisMethod:
    """The thesis' name of one of our labels.

    >>> str(thesis_method("fedavg+reweigh+parity(p=0.5, share=0.7)"))
    'FEDAVG+LD+PS(0.5)'
    >>> str(thesis_method("fairfed(metric=accuracy)+full"))
    'FAIRFED(ACCDIFF)'
    """
    head, *rest = parse(label)
    parameter = ", ".join(PARAMETERS.get(str(v), _number(v)) for v in head.settings.values())
    parity = next(
        (_number(part.settings.get("p", "")) for part in rest if part.name == "parity"), ""
    )
    other = "".join(f"+{part}" for part in rest if part.name not in ("reweigh", "parity", "full"))
    return ThesisMethod(
        head.name.upper(), parameter, any(part.name == "reweigh" for part in rest), parity, other
    )


def place(plan: Plan, cell: str) -> Place:
    """The data set and partition of a plan, as the thesis names them."""
    name, kind = str(plan.data.get("name", "")), str(plan.data.get("partition", ""))
    dataset, partition = DATASETS.get(name, name), PARTITIONS.get(kind, kind.replace("-", "_"))
    value = plan.data.get("alpha", plan.data.get("coverage", cell))
    level = _number(value)
    letter = TABLES.get((dataset, partition), "")
    return Place(
        f"{letter}.{LEVELS.index(level) + 1}" if letter and level in LEVELS else "",
        dataset,
        partition,
        level,
    )


def figures(where: Place) -> dict[ThesisMethod, dict[str, float]]:
    """The thesis' figures for a partition, with our names and units of metrics, or an empty
    dictionary.
    """
    with (resources.files("evenly") / "papers" / "reference" / "thesis_results.csv").open() as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["dataset"], row["partition"], row["partition_value"]) == where[1:]
        ]
    found = {}
    for row in rows:
        method = ThesisMethod(
            row["algorithm"], row["algorithm_param"], row["local_debias"] == "1", row["parity_p"]
        )
        values = {ours: float(row[column]) for column, ours in COLUMNS.items()}
        found[method] = {
            name: 100 * v if name in FRACTIONS else v for name, v in values.items()
        } | _scores(values)
    return found


def study_views(studies: Sequence[Study]) -> list[StudyView]:
    """One view for every partition of these studies."""
    return [_view(study, cell) for study in studies for cell in study.cells]


def _view(study: Study, cell: str) -> StudyView:
    where, comparison = place(study.plan.cells[cell], cell), study.cells[cell]
    outcomes = {p: {thesis_method(o.method): o for o in study.of(p, cell)} for p in PROTOCOLS}
    runs: dict[ThesisMethod, dict[str, list[Run]]] = {}
    for run in comparison.runs:
        runs.setdefault(thesis_method(drop_settings(run.label, study.plan.chosen)), {}).setdefault(
            run.label, []
        ).append(run)
    return StudyView(where, cell, outcomes, runs, figures(where), comparison)


def study_rows(study: Study) -> Iterator[dict[str, Any]]:
    """One row per partition, protocol and method: the columns of the reference file, then further
    columns.
    """
    for view in study_views([study]):
        for protocol, outcomes in view.outcomes.items():
            for method, outcome in outcomes.items():
                found = {
                    column: _thesis_spread(outcome, metric)
                    for column, metric in (COLUMNS | SCORES).items()
                }
                yield {
                    "table": view.place.table,
                    "dataset": view.place.dataset,
                    "partition": view.place.partition,
                    "partition_value": view.place.value,
                    "method": str(method),
                    "algorithm": method.algorithm,
                    "algorithm_param": method.parameter,
                    "local_debias": int(method.debias),
                    "parity_p": method.parity,
                    **{column: _or_none(found[column].mean) for column in COLUMNS},
                    "protocol": protocol,
                    **outcome.chosen,
                    **{
                        f"{column}_deviation": _or_none(found[column].deviation)
                        for column in COLUMNS
                    },
                    **{column: _or_none(found[column].mean) for column in SCORES},
                    **{
                        f"{column}_deviation": _or_none(found[column].deviation)
                        for column in SCORES
                    },
                }


def tidy_study(study: Study) -> Iterator[dict[str, Any]]:
    """One row per partition, protocol, method, seed and metric, in our units."""
    metrics = dict.fromkeys([*COLUMNS.values(), *COLUMNS, *SCORES])
    for outcome in study.outcomes:
        plan, comparison = study.plan.cells[outcome.cell], study.cells[outcome.cell]
        head = parse(outcome.method)[0]
        common = {
            "schema": RESULTS_SCHEMA,
            "experiment": study.plan.name,
            "cell": outcome.cell,
            "protocol": outcome.protocol,
            "label": outcome.method,
            "algorithm": head.name,
            "params": json.dumps(head.settings | outcome.chosen),
            "data": comparison.federation.name,
            "partition": plan.data.get("partition", ""),
            "round": plan.rounds,
            "split": CENTRAL,
            "level": "model",
            "name": "",
        }
        for i, seed in enumerate(plan.seeds):
            run = {**common, "run": f"{outcome.method}#{seed}", "seed": seed}
            yield from ({**run, "metric": m, "value": float(outcome.values[m][i])} for m in metrics)


def _thesis_spread(outcome: Outcome, metric: str) -> Spread:
    return spread(outcome.values[metric] / (100 if metric in FRACTIONS else 1))


def _or_none(value: float) -> float | None:
    return value if isfinite(value) else None  # an empty field, as in the reference files


def _scores(values: dict[str, float]) -> dict[str, float]:
    """FAS from the thesis' rounded figures, in both variants."""
    gaps = values["eod_abs"] + values["spd_abs"] + values["aod_abs"]
    signed, size = (
        values["accuracy"] * (1 - (gaps + gap) / 4)
        for gap in (values["acc_diff"], abs(values["acc_diff"]))
    )
    return {"fas_thesis": signed, "fas_abs": size}


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# Pairs of methods on the same seeds, and whether a change is decided by the seeds.


class Pair(NamedTuple):
    """A method, the method that it is compared with, and the change of each metric by seed."""

    view: StudyView
    method: ThesisMethod
    changed: Outcome
    plain: Outcome

    def change(self, metric: str) -> np.ndarray:
        return self.changed.values[metric] - self.plain.values[metric]


class Tally(NamedTuple):
    """Numbers of 95 % intervals that lie below 0, contain 0, and lie above 0."""

    lower: int
    undecided: int
    higher: int

    @property
    def total(self) -> int:
        return sum(self)

    def __str__(self) -> str:
        return f"{self.lower} / {self.undecided} / {self.higher}"


def pairs(views: Sequence[StudyView], protocol: str, part: str) -> list[Pair]:
    """Every method with a part ("debias" or "parity"), and the same method without it."""
    found = []
    for view in views:
        methods = view.outcomes[protocol]
        for method, outcome in methods.items():
            plain = (
                method._replace(debias=False) if part == "debias" else method._replace(parity="")
            )
            if plain != method and plain in methods:
                found.append(Pair(view, method, outcome, methods[plain]))
    return found


def aggregation_pairs(
    views: Sequence[StudyView], protocol: str, algorithm: str, other: str
) -> list[Pair]:
    """Every variant of one aggregation, and another aggregation with the same sampling and local
    work.
    """
    found = []
    for view in views:
        methods = view.outcomes[protocol]
        for method, outcome in methods.items():
            plain = method._replace(algorithm=other, parameter="")
            if method.algorithm == algorithm and plain in methods:
                found.append(Pair(view, method, outcome, methods[plain]))
    return found


def verdict(change: Spread) -> int:
    """-1 or 1 if the change is clear over seeds, otherwise 0. One seed shows nothing clearly."""
    return int(np.sign(change.mean)) if is_clear(change) else 0


def tally(changes: Sequence[np.ndarray]) -> Tally:
    """Count the verdicts.

    >>> tally([np.array([-0.2, -0.21, -0.19]), np.array([-1.0, 1.0, 0.1])])
    Tally(lower=1, undecided=1, higher=0)
    """
    found = [verdict(spread(change)) for change in changes]
    return Tally(found.count(-1), found.count(0), found.count(1))


def mean_change(changes: Sequence[np.ndarray]) -> Spread:
    """The mean of several changes with its interval over seeds. Changes are averaged within each
    seed first.
    """
    if not changes:
        return spread(np.empty(0))
    stacked = np.stack(changes)
    known = np.isfinite(stacked)
    counts = known.sum(0)
    return spread(
        np.where(counts > 0, np.where(known, stacked, 0).sum(0) / np.maximum(counts, 1), np.nan)
    )


def ranks(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Ranks of values, the lowest first. Equal values share their mean rank, undefined values come
    last.

    >>> ranks([0.3, 0.1, 0.3, float("nan")])
    array([2.5, 1. , 2.5, 4. ])
    """
    return rankdata(np.where(np.isfinite(values), values, np.inf))


def rank_correlation(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Spearman's correlation over entries that are defined in both. NaN if one side is constant or
    has fewer than three.
    """
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    known = np.isfinite(a) & np.isfinite(b)
    a, b = ranks(a[known]), ranks(b[known])
    if len(a) < 3 or a.min() == a.max() or b.min() == b.max():
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


# Findings and the format of their numbers.


class Finding(NamedTuple):
    """A question about the thesis and its answer."""

    key: str
    question: str
    answer: str  # one sentence
    thesis: str  # what the thesis says
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # the numbers


def opening_words(counts: Tally) -> str:
    """The first words of an answer to "is it lower?", no stronger than the counts.

    >>> opening_words(Tally(lower=8, undecided=145, higher=7))
    'Mostly undecided'
    """
    if counts.lower == counts.total:
        return "Yes"
    if counts.undecided * 2 > counts.total:
        return "Mostly undecided"
    if not counts.higher:
        return "Where the seeds decide it, yes"
    if not counts.lower:
        return "No"
    return "Mostly, but not always" if counts.lower > counts.higher else "Mostly not"


def score(value: Spread) -> str:
    """A value with its interval, without a sign."""
    return gap(value).removeprefix("+")


def gap(value: Spread) -> str:
    """A change of a fraction with its interval, in three digits."""
    return _signed(value, 3)


def points(value: Spread) -> str:
    """A change in percentage points with its interval, in two digits."""
    return _signed(value, 2)


def _signed(value: Spread, digits: int) -> str:
    if not np.isfinite(value.mean):
        return "n/a"
    half = f" ± {value.half_width:.{digits}f}" if np.isfinite(value.half_width) else ""
    return f"{value.mean:+.{digits}f}{half}"

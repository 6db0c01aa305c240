"""The comparative thesis: its names for our methods and partitions, its figures beside ours, and our results in its columns.

Gonfiantini, "Fairness-Aware Federated Learning", Master's thesis, University of Genoa, 2026. Of its tables of results only
A.1 to A.5 (Adult, Dirichlet) are among the reference figures; where there is no figure, none is shown.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from importlib import resources
from math import isfinite
from typing import Any, NamedTuple

from evenly.data.splits import CENTRAL
from evenly.experiment.plan import SCHEMA, Plan
from evenly.experiment.results import Comparison, Run
from evenly.experiment.study import PROTOCOLS, Outcome, Study, without
from evenly.metrics import Spread, spread
from evenly.notation import parse

# The thesis' columns and our metrics. Accuracies and precisions are fractions there and percentages here.
COLUMNS = {
    "accuracy": "accuracy", "eod": "eod_abs", "spd": "spd_abs", "aod": "aod_abs", "acc_diff": "acc_diff", "precision": "precision",
}  # fmt: skip
SCORES = {"fas_thesis": "fas_thesis", "fas_abs": "fas_abs"}
FRACTIONS = ("accuracy", "precision")
DATASETS = {"adult-sex": "adult"}
PARTITIONS = {"dirichlet-attribute": "dirichlet"}
PARAMETERS = {"accuracy": "ACCDIFF", "eod": "EOD", "spd": "SPD"}
TABLES = {("adult", "dirichlet"): "A", ("compas", "dirichlet"): "B"}
LEVELS = ("0.1", "0.2", "0.5", "10", "5000")


class Method(NamedTuple):
    """A method in the thesis' words: `FEDCVG-RATIO(0.5)+LD+PS(0.7)`."""

    algorithm: str
    parameter: str
    debias: bool  # local debiasing (LD), our `reweigh`
    parity: str  # the p of parity sampling (PS); "": everyone takes part
    other: str = ""  # parts that the thesis does not have, as we write them

    @property
    def aggregation(self) -> str:
        return f"{self.algorithm}({self.parameter})" if self.parameter else self.algorithm

    def __str__(self) -> str:
        return self.aggregation + "+LD" * self.debias + (f"+PS({self.parity})" if self.parity else "") + self.other


class Place(NamedTuple):
    """One partition of one data set: a table of the thesis."""

    table: str  # "" where the thesis' number is not known
    dataset: str
    partition: str
    value: str

    def __str__(self) -> str:
        if self.partition == "dirichlet":
            return f"{self.dataset}, alpha {self.value}"
        return ", ".join(filter(None, (self.dataset, self.partition, self.value)))


class View(NamedTuple):
    """All that was found on one partition, by the thesis' names."""

    place: Place
    cell: str
    outcomes: dict[str, dict[Method, Outcome]]  # protocol -> method
    runs: dict[Method, dict[str, list[Run]]]  # method -> label with a value of the chosen settings -> seeds
    paper: dict[Method, dict[str, float]]  # empty where the thesis' figures are not known
    comparison: Comparison


def named(label: str) -> Method:
    """The thesis' name of one of our labels.

    >>> str(named("fedavg+reweigh+parity(p=0.5, share=0.7)"))
    'FEDAVG+LD+PS(0.5)'
    >>> str(named("fairfed(metric=accuracy)+full"))
    'FAIRFED(ACCDIFF)'
    """
    head, *rest = parse(label)
    parameter = ", ".join(PARAMETERS.get(str(v), _number(v)) for v in head.settings.values())
    parity = next((_number(part.settings.get("p", "")) for part in rest if part.name == "parity"), "")
    other = "".join(f"+{part}" for part in rest if part.name not in ("reweigh", "parity", "full"))
    return Method(head.name.upper(), parameter, any(part.name == "reweigh" for part in rest), parity, other)


def place(plan: Plan, cell: str) -> Place:
    """Where a plan of the study belongs in the thesis."""
    name, kind = str(plan.data.get("name", "")), str(plan.data.get("partition", ""))
    dataset, partition = DATASETS.get(name, name), PARTITIONS.get(kind, kind.replace("-", "_"))
    value = plan.data.get("alpha", plan.data.get("coverage", cell))
    level = _number(value)
    letter = TABLES.get((dataset, partition), "")
    return Place(f"{letter}.{LEVELS.index(level) + 1}" if letter and level in LEVELS else "", dataset, partition, level)


def figures(where: Place) -> dict[Method, dict[str, float]]:
    """The thesis' figures for a partition, by our names of metrics and in our units; nothing where they are not known."""
    with (resources.files("evenly") / "reference" / "thesis_results.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["dataset"], row["partition"], row["partition_value"]) == where[1:]]
    found = {}
    for row in rows:
        method = Method(row["algorithm"], row["algorithm_param"], row["local_debias"] == "1", row["parity_p"])
        values = {ours: float(row[column]) for column, ours in COLUMNS.items()}
        found[method] = {name: 100 * v if name in FRACTIONS else v for name, v in values.items()} | _scores(values)
    return found


def views(studies: Sequence[Study]) -> list[View]:
    """Every partition of these studies."""
    return [_view(study, cell) for study in studies for cell in study.cells]


def _view(study: Study, cell: str) -> View:
    where, comparison = place(study.plan.cells[cell], cell), study.cells[cell]
    outcomes = {p: {named(o.method): o for o in study.of(p, cell)} for p in PROTOCOLS}
    runs: dict[Method, dict[str, list[Run]]] = {}
    for run in comparison.runs:
        runs.setdefault(named(without(run.label, study.plan.chosen)), {}).setdefault(run.label, []).append(run)
    return View(where, cell, outcomes, runs, figures(where), comparison)


def study_rows(study: Study) -> Iterator[dict[str, Any]]:
    """Our results in the columns of the reference file, then what only we have: one row per partition, protocol and method."""
    for view in views([study]):
        for protocol, outcomes in view.outcomes.items():
            for method, outcome in outcomes.items():
                found = {column: _in_its_units(outcome, metric) for column, metric in (COLUMNS | SCORES).items()}
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
                    **{column: _known(found[column].mean) for column in COLUMNS},
                    "protocol": protocol,
                    **outcome.chosen,
                    **{f"{column}_deviation": _known(found[column].deviation) for column in COLUMNS},
                    **{column: _known(found[column].mean) for column in SCORES},
                    **{f"{column}_deviation": _known(found[column].deviation) for column in SCORES},
                }


def tidy_study(study: Study) -> Iterator[dict[str, Any]]:
    """One row per partition, protocol, method, seed and metric, in our units."""
    metrics = dict.fromkeys([*COLUMNS.values(), *COLUMNS, *SCORES])
    for outcome in study.outcomes:
        plan, comparison = study.plan.cells[outcome.cell], study.cells[outcome.cell]
        head = parse(outcome.method)[0]
        common = {
            "schema": SCHEMA,
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


def _in_its_units(outcome: Outcome, metric: str) -> Spread:
    return spread(outcome.values[metric] / (100 if metric in FRACTIONS else 1))


def _known(value: float) -> float | None:
    return value if isfinite(value) else None  # an empty field, as in the reference files


def _scores(values: dict[str, float]) -> dict[str, float]:
    """FAS from the thesis' rounded figures, in both variants."""
    gaps = values["eod_abs"] + values["spd_abs"] + values["aod_abs"]
    signed, size = (values["accuracy"] * (1 - (gaps + gap) / 4) for gap in (values["acc_diff"], abs(values["acc_diff"])))
    return {"fas_thesis": signed, "fas_abs": size}


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

"""What an experiment leaves: runs with their traces, and the tidy rows that every table and chart is made from."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from evenly.federation import SPLITS, Federation
from evenly.metrics import Spread, accuracy, examples, final_metrics, measure, spread
from evenly.types import Trace

SCHEMA = 1
MOST_NAMED = 12


class Run(NamedTuple):
    """One method, with its settings, trained on one seed."""

    label: str
    algorithm: str
    settings: dict[str, Any]
    seed: int
    trace: Trace
    needs: frozenset[str] | None = None  # what clients reveal: fields of Signals and Effort; None: not known


class Comparison(NamedTuple):
    """Several methods on the same data: everything that the table, the files and the report show."""

    name: str
    federation: Federation  # of the first seed
    partition: str
    model: str
    runs: list[Run]
    rounds: int
    command: str
    seconds: float
    versions: dict[str, str]
    sampling: str = ""  # who takes part, where a method's label does not say

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(run.label for run in self.runs))

    @property
    def seeds(self) -> list[int]:
        return list(dict.fromkeys(run.seed for run in self.runs))

    def of(self, label: str) -> list[Run]:
        return [run for run in self.runs if run.label == label]


def over_seeds(comparison: Comparison, label: str, split: str) -> dict[str, Spread]:
    """Every metric of one method at the end, with its spread over seeds; in small federations also each client's accuracy."""
    each = [final_metrics(run.trace, split) | _by_client(comparison, run, split) for run in comparison.of(label)]
    return {metric: spread(np.array([values[metric] for values in each])) for metric in each[0]}


def _by_client(comparison: Comparison, run: Run, split: str) -> dict[str, float]:
    """`client:NAME` -> accuracy in percent, where there are few enough clients to be named in a table."""
    names = comparison.federation.names
    if len(names) > MOST_NAMED:
        return {}
    return dict(zip((f"client:{n}" for n in names), (100 * accuracy(run.trace.tables[-1, SPLITS.index(split)])).tolist(), strict=True))


def tidy(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """One row per metric: of the whole model at every evaluation, and of every client at the last one."""
    for run in comparison.runs:
        common = {
            "schema": SCHEMA,
            "experiment": comparison.name,
            "run": f"{run.label}#{run.seed}",
            "label": run.label,
            "algorithm": run.algorithm,
            "params": json.dumps(run.settings),
            "data": comparison.federation.name,
            "partition": comparison.partition,
            "seed": run.seed,
        }
        last = len(run.trace.rounds) - 1
        for i, done in enumerate(run.trace.rounds):
            for j, split in enumerate(SPLITS):
                tables = run.trace.tables[i, j]
                where = {**common, "round": int(done), "split": split}
                accuracies, counts = accuracy(tables), examples(tables)
                for metric, value in measure(accuracies, counts).items():
                    yield {**where, "level": "model", "name": "", "metric": metric, "value": value}
                if i == last:
                    for k, name in enumerate(comparison.federation.names):
                        where_client = {**where, "level": "client", "name": name}
                        yield {**where_client, "metric": "accuracy", "value": float(100 * accuracies[k])}
                        yield {**where_client, "metric": "loss", "value": float(run.trace.losses[i, j, k])}
                        yield {**where_client, "metric": "examples", "value": float(counts[k])}

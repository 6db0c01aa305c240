"""The rows of results.csv: one for each metric of a model, a client or a group."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from evenly.data.federation import Federation
from evenly.data.splits import CENTRAL, SPLITS
from evenly.experiment.comparison import Comparison, Run, client_metrics, group_metrics
from evenly.metrics import accuracy, examples, pooled, rates
from evenly.types import Trace

RESULTS_SCHEMA = 1
MOST_LISTED = 5_000  # clients with rows of their own; of more, there are quantiles
QUANTILES = (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)
GROUP_RATES = ("accuracy", "selection_rate", "tpr", "fpr")


def tidy_rows(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """One row per metric: of the model at every evaluation, and of every client and group at the
    last evaluation.

    With more than `MOST_LISTED` clients there are rows of quantiles, with the level "clients",
    instead of rows of clients.
    """
    for run in comparison.runs:
        common = run_columns(comparison, run)
        by_group = {
            split: group_metrics(comparison.federation, run.trace, split)
            for split in (*SPLITS, CENTRAL)
        }
        for i, done in enumerate(run.trace.rounds):
            last = i == len(run.trace.rounds) - 1
            for split in (*SPLITS, CENTRAL):
                where = {**common, "round": int(done), "split": split}
                model = (
                    {}
                    if split == CENTRAL
                    else client_metrics(
                        comparison.federation, run.trace.tables[i, SPLITS.index(split)]
                    )
                )
                model |= {name: float(values[i]) for name, values in by_group[split].items()}
                yield from (
                    {**where, "level": "model", "name": "", "metric": m, "value": v}
                    for m, v in model.items()
                )
                if last and split != CENTRAL:
                    yield from (
                        {**where, **row} for row in _client_rows(comparison, run.trace, split)
                    )
                if last and len(by_group[split]) > 1:
                    yield from (
                        {**where, **row}
                        for row in _group_rows(comparison.federation, run.trace, split)
                    )


def run_columns(comparison: Comparison, run: Run) -> dict[str, Any]:
    """The columns that are the same in every row of a run. Studies have the same columns: see
    `papers.thesis.tidy_study`.
    """
    return {
        "schema": RESULTS_SCHEMA,
        "experiment": comparison.name,
        "run": f"{run.label}#{run.seed}",
        "label": run.label,
        "algorithm": run.algorithm,
        "params": json.dumps(run.settings),
        "data": comparison.federation.name,
        "partition": comparison.partition,
        "seed": run.seed,
    }


def _client_rows(comparison: Comparison, trace: Trace, split: str) -> Iterator[dict[str, Any]]:
    tables = trace.tables[-1, SPLITS.index(split)]
    found = {
        "accuracy": 100 * accuracy(tables),
        "loss": trace.losses[-1, SPLITS.index(split)],
        "examples": examples(tables),
    }
    if comparison.federation.clients > MOST_LISTED:
        yield from _quantile_rows(found)
        return
    # which of several models it is served
    found |= {"model": trace.choice[-1]} if trace.choice.size else {}
    for k, name in enumerate(comparison.federation.names):
        for metric, values in found.items():
            yield {"level": "client", "name": name, "metric": metric, "value": float(values[k])}


def _quantile_rows(found: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    """The distribution of the clients' values, without undefined ones."""
    for metric, values in found.items():
        known = values[np.isfinite(values)]
        for share, value in (
            zip(QUANTILES, np.quantile(known, QUANTILES), strict=True) if len(known) else ()
        ):
            yield {
                "level": "clients",
                "name": f"quantile {share:g}",
                "metric": metric,
                "value": float(value),
            }


def _group_rows(federation: Federation, trace: Trace, split: str) -> Iterator[dict[str, Any]]:
    """The rates of each group in percent."""
    found = rates(pooled(trace, split)[-1], federation.favourable)
    for g, name in enumerate(federation.groups):
        for metric in GROUP_RATES:
            yield {
                "level": "group",
                "name": name,
                "metric": metric,
                "value": float(100 * getattr(found, metric)[g]),
            }
        yield {
            "level": "group",
            "name": name,
            "metric": "examples",
            "value": float(found.examples[g]),
        }

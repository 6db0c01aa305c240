"""The result of a plan: runs with their traces, and their metrics."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from evenly.data.federation import Federation
from evenly.data.splits import CENTRAL, SPLITS
from evenly.experiment.deployment import Exclusion, RoundFlag, ServerOptions
from evenly.metrics import (
    GROUP_METRICS,
    Spread,
    accuracy,
    examples,
    final_metrics,
    measure,
    measure_equity,
    measure_groups,
    pooled,
    run_metrics,
    spread,
)
from evenly.metrics.clients import tenth
from evenly.metrics.groups import view
from evenly.types import Trace

MOST_NAMED = 12


class Run(NamedTuple):
    """One method with its settings, trained on one seed."""

    label: str
    algorithm: str
    settings: dict[str, Any]
    seed: int
    trace: Trace
    # what clients reveal: fields of Signals; None: not known
    needs: frozenset[str] | None = None


class Incidents(NamedTuple):
    """Problems in a deployment: which replies did not count, in which round and why, and which
    claims exceeded a cap.
    """

    left_out: tuple[Exclusion, ...] = ()
    flagged: tuple[RoundFlag, ...] = ()
    asked: int = 0  # updates that were asked for in all rounds


class DeploymentSetup(NamedTuple):
    """How a deployment was run, and what clients sent in addition to what the method needs."""

    caps: dict[str, Any]
    options: tuple[ServerOptions, ...] = ()  # in the order of rounds; none: its folder does not say
    census: bool = False  # whether clients were asked for one
    evaluated: tuple[str, ...] = ()  # the splits that clients evaluated on
    tables: bool = False  # whether evaluations hold tables
    accuracies: bool = False  # whether some hold an accuracy only


class Comparison(NamedTuple):
    """Several methods on the same data, with everything that tables, files and reports need."""

    name: str
    federation: Federation  # of the first seed: the clients that were evaluated
    partition: str
    model: str
    runs: list[Run]
    rounds: int
    command: str
    seconds: float
    versions: dict[str, str]
    sampling: str = ""  # who takes part, where a method's label does not say
    # a sentence where clients are sampled by size and their sizes do not count; else empty
    sizes: str = ""
    title: str = ""  # of the experiment in words, where it has one
    notes: str = ""  # what its file says about it; an empty line ends a paragraph
    chosen: str = ""  # the method that a search chose; "" where there was none
    # what the user did not state: "favourable", or sensitive columns whose unprivileged value was
    # not named
    assumed: tuple[str, ...] = ()
    incidents: Incidents | None = None  # of a deployment; a simulation has none
    deployed: DeploymentSetup | None = None
    # with all clients, where only a panel of them was evaluated
    registered: Federation | None = None
    # what methods with differential privacy promise, by label; see evenly.privacy.claims.facts
    privacy: Mapping[str, Any] = {}

    @property
    def everyone(self) -> Federation:
        return self.registered or self.federation

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(run.label for run in self.runs))

    @property
    def seeds(self) -> list[int]:
        return list(dict.fromkeys(run.seed for run in self.runs))

    def of(self, label: str) -> list[Run]:
        return [run for run in self.runs if run.label == label]


def final_spreads(comparison: Comparison, label: str, split: str) -> dict[str, Spread]:
    """All metrics of one method after the last round, with their spread over seeds.

    In small federations, the accuracy of each client is included. Group metrics need at least two
    groups, equity metrics need groups of clients. The split "central", a test set that belongs to
    no client, has group metrics only; without groups it has the accuracy.
    """
    return {
        metric: spread(np.array(list(values.values())))
        for metric, values in final_by_seed(comparison, label, split).items()
    }


def final_by_seed(comparison: Comparison, label: str, split: str) -> dict[str, dict[int, float]]:
    """All metrics of one method after the last round: metric -> seed -> value."""
    each = {run.seed: _final(comparison, run, split) for run in comparison.of(label)}
    first = next(iter(each.values()))
    return {metric: {seed: values[metric] for seed, values in each.items()} for metric in first}


def _final(comparison: Comparison, run: Run, split: str) -> dict[str, float]:
    by_client = {}
    if split != CENTRAL:
        tables, group = (
            run.trace.tables[-1, SPLITS.index(split)],
            comparison.federation.client_group,
        )
        by_client = (
            final_metrics(run.trace, split)
            | _equity(comparison.federation, tables)
            | run_metrics(run.trace, group)
        )
        by_client |= _by_client(comparison, run, split)
    return by_client | {
        name: float(values[-1])
        for name, values in group_metrics(comparison.federation, run.trace, split).items()
    }


def group_metrics(federation: Federation, trace: Trace, split: str) -> dict[str, np.ndarray]:
    """Group metrics at every evaluation, over all rows of a split or over the central test set:
    arrays [evaluations].

    With fewer than two groups the central test set has the accuracy only, and other splits have no
    group metrics.
    """
    if split == CENTRAL and not len(federation.central):
        return {}
    if split != CENTRAL and len(federation.groups) < 2:
        return {}
    found = measure_groups(
        pooled(trace, split), favourable=federation.favourable, unprivileged=federation.unprivileged
    )
    return found if len(federation.groups) > 1 else {"accuracy": found["accuracy"]}


def metric_history(federation: Federation, trace: Trace, split: str) -> dict[str, np.ndarray]:
    """Every metric at every evaluation, and the loss, for one split or the central test set: arrays
    [evaluations].
    """
    found = live_metrics(federation, trace, split) | group_metrics(federation, trace, split)
    if split == CENTRAL:
        return found
    each = [client_metrics(federation, tables) for tables in trace.tables[:, SPLITS.index(split)]]
    return found | {name: np.array([values[name] for values in each]) for name in each[0]}


def _equity(federation: Federation, tables: np.ndarray) -> dict[str, float]:
    """Metrics of evenness between groups of clients, if clients belong to groups."""
    return (
        {}
        if federation.client_group is None
        else measure_equity(accuracy(tables), federation.client_group)
    )


def client_metrics(federation: Federation, tables: np.ndarray) -> dict[str, float]:
    """The metrics of all clients from their counts [clients, ...], and of groups of clients."""
    return measure(accuracy(tables), examples(tables)) | _equity(federation, tables)


def _by_client(comparison: Comparison, run: Run, split: str) -> dict[str, float]:
    """`client:NAME` -> accuracy in percent, if there are at most `MOST_NAMED` clients."""
    names = comparison.federation.names
    if len(names) > MOST_NAMED:
        return {}
    return dict(
        zip(
            (f"client:{n}" for n in names),
            (100 * accuracy(run.trace.tables[-1, SPLITS.index(split)])).tolist(),
            strict=True,
        )
    )


# The metrics that are reported during training.

LIVE_GROUP_METRICS = ("accuracy", "eod_abs", "spd_abs", "aod_abs", "acc_diff_abs")


def live_metrics(federation: Federation, trace: Trace, split: str) -> dict[str, np.ndarray]:
    """The metrics that are reported during training, for one split or the central test set: arrays
    [evaluations].

    The result is empty if no client has rows in the split.
    """
    by_group = _live_group_metrics(federation, trace, split)
    if split == CENTRAL:
        return by_group
    tables, losses = trace.tables[:, SPLITS.index(split)], trace.losses[:, SPLITS.index(split)]
    counts = examples(tables)
    # a client's rows are the same at every evaluation, unless a deployed one answered late
    known = (counts > 0).all(0)
    if not known.any():
        return {}
    a, n = accuracy(tables)[:, known], counts[:, known]
    by_client = {  # as in metrics.clients, for all evaluations at once
        "average": 100 * (a * n).sum(1) / n.sum(1),
        "worst10": 100 * np.sort(a, axis=1)[:, : tenth(a.shape[1])].mean(1),
        "variance": (100 * a).var(1),
    }
    return by_client | {"loss": (losses[:, known] * n).sum(1) / n.sum(1)} | by_group


def _live_group_metrics(federation: Federation, trace: Trace, split: str) -> dict[str, np.ndarray]:
    """Group metrics if there are at least two groups; the accuracy of a central test set without
    groups.
    """
    several = len(federation.groups) > 1
    if not (several or split == CENTRAL) or (split == CENTRAL and not len(federation.central)):
        return {}
    seen = view(
        pooled(trace, split), favourable=federation.favourable, unprivileged=federation.unprivileged
    )
    return {
        name: GROUP_METRICS[name].function(seen)
        for name in (LIVE_GROUP_METRICS if several else LIVE_GROUP_METRICS[:1])
    }


def compared_split(federation: Federation) -> str:
    """The split on which clients are compared: test rows or, if there are none, validation rows."""
    return "valid" if federation.valid.counts.any() and not federation.test.counts.any() else "test"

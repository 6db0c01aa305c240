"""A deployment's folder as a comparison of one run: the same traces, so the same tables, files and report as of a simulation.

Clients do not answer in every round. What is shown of one that did not answer is what it said last; before its first
answer nothing is known of it. Where clients tell only an accuracy, the nearest whole number of right rows is counted.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evenly.data.federation import Federation
from evenly.data.splits import SPLITS, Ragged
from evenly.experiment import record
from evenly.experiment.deployment import UNKNOWN, About, Deployment, Evaluation, Round, read_about, read_left_out, read_rounds
from evenly.experiment.options import InForce, read_options
from evenly.experiment.results import Comparison, Deployed, Incidents, Run
from evenly.types import NO_CHOICE, Trace

PARTITION = "who holds them: this is a deployment"
NOT_FINITE = "NaN or infinity"


def open_deployment(folder: Path, deployment: Deployment) -> Comparison:
    """What is there so far; a deployment that still runs, or was stopped, is shown up to its last evaluation."""
    rounds, about = read_rounds(folder), read_about(folder)
    if not any(done.evaluation for done in rounds):
        raise ValueError(
            f"{str(folder)!r} holds no evaluation yet: {len(rounds)} rounds, and no client has said how the model serves it. "
            "Let clients evaluate (fraction_evaluate above 0) and wait for the first round."
        )
    left, flagged = read_left_out(folder)
    told = Incidents(tuple(left), tuple(flagged), sum(len(done.cohort) for done in rounds))
    return record.told(comparison_of(deployment, about, rounds, told, read_options(folder)), folder)


def comparison_of(
    deployment: Deployment, about: About, rounds: Sequence[Round], told: Incidents, options: Sequence[InForce] = ()
) -> Comparison:
    trace = trace_of(about, rounds, told)
    federation = federation_of(deployment, about, rounds, trace)
    return Comparison(
        name=deployment.name,
        federation=federation,
        partition=PARTITION,
        model=_model(deployment),
        runs=[Run(deployment.method, deployment.algorithm, deployment.settings, deployment.seeds["cohort"], trace,
                  frozenset(deployment.needs))],
        rounds=max((done.number for done in rounds), default=0),
        command="",
        seconds=sum(done.seconds for done in rounds),
        versions={},
        sampling=deployment.sampling,
        incidents=told,
        deployed=_deployed(deployment, about, rounds, options),
    )  # fmt: skip


def _deployed(deployment: Deployment, about: About, rounds: Sequence[Round], options: Sequence[InForce]) -> Deployed:
    found = [done.evaluation for done in rounds if done.evaluation]
    last = max((done.number for done in rounds), default=0)
    return Deployed(
        caps=deployment.caps,
        options=tuple(one for one in options if one.since <= max(last, 1)),  # a server that found all rounds done decided nothing
        census=bool(about.examples),
        evaluated=tuple(split for s, split in enumerate(SPLITS) if any(one.examples[:, s].any() for one in found)),
        tables=any(one.tables.any() for one in found),
        accuracies=any((one.correct != UNKNOWN).any() for one in found),
    )


def trace_of(about: About, rounds: Sequence[Round], told: Incidents | None = None) -> Trace:
    """The rounds of a deployment, stacked as a simulation's are. The model itself is not in it."""
    seen = [done for done in rounds if done.evaluation]
    tables, losses, choice = _stacked(about, [done.evaluation for done in seen if done.evaluation])
    trained = [done for done in rounds if done.number]
    cohort, weights = _cohorts(trained)
    counted = [done for done in trained if done.upload or done.download]
    excluded = np.zeros(len(about.names), np.int32)
    for one in told.left_out if told else ():
        if NOT_FINITE in one.reason and one.client != UNKNOWN:
            excluded[one.client] += 1
    return Trace(
        rounds=np.array([done.number for done in seen], np.int32),
        tables=tables,
        losses=losses,
        central=np.zeros((len(seen), *tables.shape[3:]), np.int32),
        cohort=cohort,
        weights=weights,
        excluded=excluded,
        upload=float(np.mean([done.upload for done in counted])) if counted else 0.0,
        download=float(np.mean([done.download for done in counted])) if counted else 0.0,
        model={},
        reports=trained[-1].reports if trained else {},
        choice=choice,
    )


def federation_of(deployment: Deployment, about: About, rounds: Sequence[Round], trace: Trace) -> Federation:
    """A federation without rows: only how many each client has."""
    groups, labels = trace.tables.shape[3:5]
    sizes = trace.tables[-1].sum((-3, -2, -1)) if len(trace.tables) else np.zeros((len(SPLITS), len(about.names)), int)
    train, valid, test = sizes
    return Federation(
        x=np.zeros((0, 1), np.float32),
        y=np.zeros(0, np.int32),
        group=np.zeros(0, np.int32),
        train=_only_counts(np.where(train > 0, train, training_rows(about, rounds))),
        valid=_only_counts(valid),
        test=_only_counts(test),
        central=np.zeros(0, np.int32),
        client_group=np.array(about.client_group, np.int32) if about.client_group else None,
        name=deployment.name,
        names=about.names,
        labels=about.labels if len(about.labels) == labels else _plain_labels(rounds, labels),
        groups=about.groups or (tuple(f"group {g + 1}" for g in range(groups)) if groups > 1 else ("all",)),
        unprivileged=about.unprivileged,
        favourable=about.favourable,
    )


def training_rows(about: About, rounds: Sequence[Round]) -> np.ndarray:
    """As clients said before the first round, or with their last update; 0: never told. [clients]"""
    rows = np.array(about.examples or [0] * len(about.names), np.int64)
    for done in rounds:
        rows[done.cohort] = np.where(done.examples > 0, done.examples, rows[done.cohort])
    return rows


def _only_counts(counts: np.ndarray) -> Ragged:
    return Ragged(np.zeros(0, np.int32), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


def _plain_labels(rounds: Sequence[Round], labels: int) -> tuple[str, ...]:
    tables = any(done.evaluation and done.evaluation.tables.shape[-1] for done in rounds)
    return tuple(map(str, range(labels))) if tables else ("not told",)


def _model(deployment: Deployment) -> str:
    numbers = sum(int(np.prod(shape)) for _, shape, _ in deployment.arrays)
    return f"{numbers:,} numbers in {len(deployment.arrays):,} arrays"


def _stacked(about: About, evaluations: Sequence[Evaluation]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tables, losses and chosen models of every client at every evaluation, as each said last."""
    shape = _shape(about, evaluations)
    clients, count = len(about.names), len(evaluations)
    tables = np.zeros((count, len(SPLITS), clients, *shape), np.int32)
    losses = np.full(tables.shape[:3], np.nan, np.float32)
    choice = np.full((count, clients), UNKNOWN, np.int32)
    for t, found in enumerate(evaluations):
        if t:
            tables[t], losses[t], choice[t] = tables[t - 1], losses[t - 1], choice[t - 1]
        for i, k in enumerate(found.clients.tolist()):
            tables[t, :, k], losses[t, :, k] = _tables(found, i, shape), found.losses[i]
            choice[t, k] = found.choice[i]
    return tables, losses, np.maximum(choice, 0) if (choice != UNKNOWN).any() else NO_CHOICE


def _shape(about: About, evaluations: Sequence[Evaluation]) -> tuple[int, int, int]:
    """Groups, labels and outcomes, from what clients said of themselves or from their tables; accuracies alone need two outcomes."""
    sent = next((found.tables.shape[2:] for found in evaluations if found.tables.shape[-1]), (1, 2, 2))
    groups, labels = len(about.groups) or sent[0], max(len(about.labels), sent[1], 2)
    return groups, labels, labels


def latest(before: Evaluation | None, now: Evaluation) -> Evaluation:
    """What every client said last, where some did not answer now; older tables of another shape are left."""
    if before is None or before.tables.shape[1:] != now.tables.shape[1:]:
        return now
    old = ~np.isin(before.clients, now.clients)
    return Evaluation(*(np.concatenate([a[old], b]) for a, b in zip(before, now, strict=True)))


def _tables(found: Evaluation, i: int, shape: tuple[int, int, int]) -> np.ndarray:
    """One client's tables by split; of an accuracy, right rows and wrong ones of no label in particular."""
    made = np.zeros((len(SPLITS), *shape), np.int32)
    groups, labels, outcomes = found.tables.shape[2:]
    if groups == shape[0] and labels <= shape[1]:
        made[:, :, :labels, :outcomes] = found.tables[i]
    told = (found.correct[i] != UNKNOWN) & (made.sum((1, 2, 3)) == 0)
    made[told, 0, 0, 0] = found.correct[i, told]
    made[told, 0, 0, 1] = found.examples[i, told] - found.correct[i, told]
    return made


def _cohorts(trained: Sequence[Round]) -> tuple[np.ndarray, np.ndarray]:
    """Cohorts and weights of equal length: a smaller cohort names one of its own again, with weight 0."""
    slots = max((len(done.cohort) for done in trained), default=0)
    cohort, weights = np.zeros((len(trained), slots), np.int32), np.zeros((len(trained), slots), np.float32)
    for t, done in enumerate(trained):
        n = len(done.cohort)
        cohort[t, :n], weights[t, :n] = done.cohort, done.weights
        cohort[t, n:] = done.cohort[0] if n else 0
    return cohort, weights

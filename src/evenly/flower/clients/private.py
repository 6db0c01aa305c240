"""A deployed client whose rows are private: it noises what it sends, and keeps account of it.

A node whose config names a `ledger` protects its training rows. It trains only with methods with
`+dp(unit=row)`, draws batches and noise from secret random numbers of its own, and counts every
release in the ledger before it is made. It keeps its last answers, and sends them again when it is
asked the same again. The server sees noised vectors, noised signals and noised counts, and exact
counts of test rows. A node without a ledger refuses such methods, unless they add no noise at all
and so promise nothing; it then draws the random numbers of a simulation.

    --node-config 'ledger="/var/lib/evenly/ledger.json" epsilon=8.0 delta=1e-5'

A policy of the site can lower the epsilon (`evenly.flower.clients.policy`).
"""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ConfigRecord, Context, Message, MetricRecord, RecordDict

from evenly.archives import leaves_of
from evenly.flower import wire
from evenly.flower.clients import guard, rows
from evenly.flower.clients.ledger import Budget, RowLedger, Spent, ToldError, digest_of
from evenly.flower.clients.rows import ClientData, Look, Metrics, RowOutcomes
from evenly.parts.row_privacy import (
    LOSSES,
    ONCE,
    NoisedReweigh,
    PrivateTraining,
    SignalNoise,
    noised_signals,
    signal_key,
)
from evenly.parts.work import Reweigh, local_steps
from evenly.privacy.row_account import row_epsilon
from evenly.randomness import gaussian, generator, key_data
from evenly.records import require
from evenly.types import Algorithm

LEDGER, EPSILON, DELTA = "ledger", "epsilon", "delta"  # in the node's config
USUAL_DELTA = 1e-5
RELEASED = "evenly-released"  # in the node's own state
COUNTS, NEVER_CHANGED = "counts", "never-changed"  # in the ledger
LOG = logging.getLogger("flwr")


class Question(NamedTuple):
    """What a message asks of a client."""

    kind: str  # "census", "measure" or "train"
    algorithm: Algorithm
    number: int  # of the round, from 1
    client: int
    seed: int  # of the batches, as the server names it
    signals: bool  # whether signals are part of the answer


class Admitted(NamedTuple):
    """What a client may answer, and from which random numbers."""

    seed: int
    fresh: frozenset[str]  # signals that are measured anew
    kept: Metrics  # signals that were released before, and are sent again
    counts: np.ndarray | None  # noised, by group and label, if the answer reads them


def protects(algorithm: Algorithm) -> bool:
    """Whether clients of a method make what they send private by themselves."""
    return isinstance(algorithm.work, PrivateTraining)


def ledger_of(context: Context) -> RowLedger | None:
    """The ledger that the node's config names; None if it names none."""
    config = context.node_config
    if LEDGER not in config:
        return None
    given = [float(config[EPSILON])] if EPSILON in config else []
    given += [] if (most := guard.most_epsilon()) is None else [most]
    limit = Budget(min(given), float(config.get(DELTA, USUAL_DELTA))) if given else None
    return RowLedger(Path(str(config[LEDGER])).expanduser(), row_epsilon, limit)


def refuse_others(algorithm: Algorithm | None, context: Context) -> None:
    """Raise if a node that protects its rows is asked by a method that does not."""
    if ledger_of(context) is None or (algorithm is not None and protects(algorithm)):
        return
    asked = "The server did not name its method" if algorithm is None else algorithm.label
    raise ToldError(
        f"This client protects its rows, because its config names a ledger, and takes part only in"
        f" methods with +dp(unit=row, ...). Asked for: {asked}. Add the part to the method, or"
        " remove the ledger from the node's config to send exact numbers."
    )


class HiddenError(Exception):
    """The kind of an error whose words stay at the client, because they may quote rows."""


def hide_errors(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Flower sends the words of an error to the server; those of a client that protects its rows
    stay in its own log, but for refusals.
    """
    try:
        return call_next(message, context)
    except ToldError:
        raise
    except Exception as error:
        if LEDGER not in context.node_config:
            raise
        LOG.error("This client could not answer", exc_info=error)
        raise HiddenError(
            f"{type(error).__name__}. This client protects its rows, so that only its own log says"
            " what went wrong. Ask its owner."
        ) from None


def admit(question: Question, client: ClientData, context: Context) -> Admitted:
    """Count what the answer to a message releases, before anything is computed.

    Raises:
        ValueError: If the budget of the client is spent, or it has no ledger.
    """
    algorithm, ledger = question.algorithm, ledger_of(context)
    work = algorithm.work
    assert isinstance(work, PrivateTraining)
    fresh, kept = _measured(question, client, context)
    if ledger is None:
        require(
            not work.noise_multiplier,
            f"{algorithm.label} protects single rows, so that this client must keep account of what"
            " it releases. Name a file for it in the node's config: --node-config"
            " 'ledger=\"/path/ledger.json\"'.",
        )
        draw = question.seed, question.client
        counts = row_counts(algorithm, client, draw) if releases_counts(question) else None
        return Admitted(question.seed, fresh, kept, counts)
    digest = digest_of(rows_digest(client), float(_signals(work).noise))
    known = ledger.kept(COUNTS)
    drawn = releases_counts(question) and known.get("digest") != digest
    planned = _releases(question, client, fresh, drawn)
    seed = ledger.spend(planned, _budget(algorithm)) if planned else 0
    if drawn:  # once, whatever number a server gives this client
        known = {"digest": digest, "cells": row_counts(algorithm, client, (seed, 0)).tolist()}
        ledger.keep(COUNTS, known)
    return Admitted(
        seed, fresh, kept, np.array(known["cells"]) if releases_counts(question) else None
    )


def _releases(
    question: Question, client: ClientData, fresh: frozenset[str], drawn: bool
) -> list[Spent]:
    """What an answer reveals; `drawn` says whether counts by group and label are part of it."""
    work = question.algorithm.work
    assert isinstance(work, PrivateTraining)
    # signals that never change are counted apart from the others
    tables = drawn + bool(fresh & ONCE) + bool(fresh - ONCE)
    found = [Spent(1.0, float(_signals(work).noise), tables)]
    if question.kind == "train":
        steps = int(local_steps(work, np.array([client.train.size]))[0])
        found.append(Spent(float(work.rate), float(work.noise_multiplier), steps))
    return [one for one in found if one.times]


def rows_digest(client: ClientData) -> str:
    """A digest of the rows that answers rest on."""
    return digest_of(*client.train, *client.valid, client.shape, client.unprivileged)


def releases_counts(question: Question) -> bool:
    """Whether an answer reads the client's counts by group and label."""
    return question.kind == "census" or isinstance(question.algorithm.prepare, NoisedReweigh)


def _budget(algorithm: Algorithm) -> Budget | None:
    """The budget that the method names."""
    privacy = algorithm.privacy
    if privacy is None or privacy.epsilon is None:
        return None
    return Budget(float(privacy.epsilon), float(privacy.delta or USUAL_DELTA))


def _signals(work: PrivateTraining) -> SignalNoise:
    assert work.signals is not None
    return work.signals


# Signals, kept between two measurements.


def released(question: Question, context: Context) -> dict[str, Any]:
    """What this client released last in a deployment of this method."""
    ledger = ledger_of(context)
    if ledger is not None:
        found = ledger.kept(RELEASED)
    else:
        there = context.state.get(RELEASED)
        found = json.loads(str(there["json"])) if isinstance(there, ConfigRecord) else {}
    return found if found.get("method") == question.algorithm.label else {}


def _due(question: Question, last: Mapping[str, Any]) -> bool:
    """Whether signals are measured anew: the last ones are too old, or of an earlier deployment."""
    work = question.algorithm.work
    assert isinstance(work, PrivateTraining)
    age = question.number - int(last["round"]) if last else -1
    return not 0 <= age < _signals(work).every


def _measured(
    question: Question, client: ClientData, context: Context
) -> tuple[frozenset[str], Metrics]:
    """Names of the signals that are measured anew, and those that were released and still hold."""
    names = frozenset(noised_signals(question.algorithm.rule.needs) if question.signals else ())
    last, ledger = released(question, context), ledger_of(context)
    fresh, kept = frozenset[str](), Metrics()
    if names - ONCE and _due(question, last):
        fresh |= names - ONCE
    elif names - ONCE:
        kept |= last["metrics"]
    known = {} if ledger is None else ledger.kept(NEVER_CHANGED)
    if names & ONCE and known.get("digest") == _unchanged_digest(question, client):
        kept |= known["metrics"]
    else:
        fresh |= names & ONCE
    return fresh, kept


def _unchanged_digest(question: Question, client: ClientData) -> str:
    """A digest of what signals rest on that never change: their noise depends on all names."""
    work, names = question.algorithm.work, noised_signals(question.algorithm.rule.needs)
    assert isinstance(work, PrivateTraining)
    return digest_of(rows_digest(client), float(_signals(work).noise), names)


def signals(
    question: Question, admitted: Admitted, client: ClientData, context: Context, look: Look,
    *, penalty: float, reduction: str,
) -> Metrics:  # fmt: skip
    """The signals as they leave the client: noised ones of this round, or those released last."""
    work, names = question.algorithm.work, noised_signals(question.algorithm.rule.needs)
    assert isinstance(work, PrivateTraining)
    noise = _signals(work)
    exact = rows.signals(
        client, admitted.fresh, _bounded(look, float(noise.loss_bound)), penalty=penalty,
        reduction=reduction,
    )  # fmt: skip
    sent: dict[bool, Metrics] = {False: {}, True: {}}  # by whether they never change
    for place, name in enumerate(names):
        if name not in admitted.fresh:
            continue
        once, key = name in ONCE, wire.SIGNALS[name]
        value = np.asarray(wire.get(exact, key), np.float32)
        number = 0 if once else question.number - 1
        draw = gaussian(
            signal_key(key_data(admitted.seed), number, question.client, place), value.shape
        )
        scale = float(noise.deviation(name, len(names)))
        if name == "loss" and reduction == "mean":
            scale /= max(client.train.size, 1)
        own = _entry(name, np.maximum(value + scale * np.asarray(draw), 0.0), value, client)
        wire.put(sent[once], key, own)
    _keep(question, client, context, sent)
    return {wire.EXAMPLES: client.train.size, **admitted.kept, **sent[True], **sent[False]}


def _bounded(look: Look, bound: float) -> Look:
    """The same outcomes with losses between 0 and a bound."""

    def bounded(own: rows.ClientRows) -> RowOutcomes:
        seen = look(own)
        losses = np.where(np.isnan(seen.losses), bound, seen.losses)
        return seen._replace(losses=np.clip(losses, 0.0, bound))

    return bounded


def _entry(name: str, noised: np.ndarray, exact: np.ndarray, client: ClientData) -> np.ndarray:
    """A noised signal in the form that servers expect: counts are whole numbers that add up to the
    number of rows, which is public.
    """
    if name == "unprivileged":
        return np.minimum(np.round(noised), client.train.size).astype(np.int64)
    if name in LOSSES:
        return noised
    return whole_counts(noised, int(exact.sum()))


def whole_counts(noised: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers of at least 0 with this total, in proportion to noised counts.

    Example:
        >>> whole_counts(np.array([[10.4, -3.0], [20.3, 0.0]]), 30).tolist()
        [[10, 0], [20, 0]]
    """
    positive = np.maximum(noised.astype(float), 0.0)
    if not positive.sum():
        positive = np.ones_like(positive)
    shares = positive * (total / positive.sum())
    counts = np.floor(shares).astype(np.int64)
    # those with the largest remainder are rounded up
    order = np.argsort(-(shares - counts).ravel(), kind="stable")
    counts.ravel()[order[: total - int(counts.sum())]] += 1
    return counts


def _keep(
    question: Question, client: ClientData, context: Context, sent: Mapping[bool, Metrics]
) -> None:
    """Keep new signals, by whether they never change."""
    ledger = ledger_of(context)
    last = {
        "method": question.algorithm.label, "round": question.number, "metrics": sent[False]
    }  # fmt: skip
    if ledger is None and sent[False]:
        context.state[RELEASED] = ConfigRecord({"json": json.dumps(last)})
    elif ledger is not None and sent[False]:
        ledger.keep(RELEASED, last)
    if ledger is not None and sent[True]:
        digest = _unchanged_digest(question, client)
        ledger.keep(NEVER_CHANGED, {"digest": digest, "metrics": sent[True]})


# The last answer of each kind, beside the ledger.


def request_digest(kind: str, message: Message, client: ClientData, task: str) -> str:
    """A digest of everything that a message asks, and of what it asks about. What else an answer
    depends on, such as the code of the task, is not part of it.
    """
    parts: list[Any] = [kind, task, rows_digest(client)]
    for name, record in sorted(message.content.items()):
        for key, value in sorted(record.items()):
            parts += [name, key, wire.read(value) if isinstance(value, Array) else value]
    return digest_of(*parts)


def kept_answer(kind: str, digest: str, context: Context) -> RecordDict | None:
    """The answer that this client gave to the same message, if it was the last of its kind."""
    ledger = ledger_of(context)
    found = None if ledger is None else ledger.answer(kind, digest)
    if found is None:
        return None
    records: dict[str, Any] = {wire.METRICS: MetricRecord(found.header["metrics"])}
    if "arrays" in found.header:
        records[wire.ARRAYS] = wire.record_of(found.header["arrays"], found.leaves())
    return RecordDict(records)


def keep_answer(kind: str, digest: str, context: Context, content: RecordDict) -> None:
    """Keep an answer before it is sent, so that the same message gets the same one."""
    ledger = ledger_of(context)
    if ledger is None:
        return
    entries: dict[str, Any] = {"metrics": dict(content.metric_records[wire.METRICS])}
    arrays = content.array_records.get(wire.ARRAYS)
    if arrays is not None:
        entries["arrays"] = list(arrays)
    leaves = [] if arrays is None else [wire.read(array) for array in arrays.values()]
    ledger.keep_answer(kind, digest, leaves_of(leaves), entries)


# Counts by group and label.


def row_counts(algorithm: Algorithm, client: ClientData, draw: tuple[int, int]) -> np.ndarray:
    """Counts by group and label with the noise of a seed and a number. [groups, labels]"""
    work = algorithm.work
    assert isinstance(work, PrivateTraining)
    noised = NoisedReweigh(reweigh=Reweigh(), noise=float(_signals(work).noise))
    seed, number = draw
    draws = generator(seed, "counts", number)
    return noised.counts(client.train.y, client.train.group, client.shape, draws)


def census(question: Question, client: ClientData, context: Context) -> Metrics:
    """The census with noised counts, as whole numbers that add up to the number of rows."""
    found, work = rows.census(client), question.algorithm.work
    assert isinstance(work, PrivateTraining)
    if ledger_of(context) is None and not work.noise_multiplier:
        return found
    admitted = admit(question, client, context)
    assert admitted.counts is not None
    wire.put(found, wire.CELLS, whole_counts(admitted.counts, client.train.size))
    return found

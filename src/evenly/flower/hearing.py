"""Replies sorted into those that can be used and those that are left out, with a reason."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from flwr.app import Message, RecordDict

from evenly.experiment.deployment import UNKNOWN, LeftOut
from evenly.flower import wire
from evenly.flower.checking import Evaluated, Expected, Reply, check_evaluation, check_reply, no_answer, size_of
from evenly.flower.expecting import ARRAYS
from evenly.flower.options import Setting

LOG = logging.getLogger("flwr")
QUOTED = 5  # reasons in one sentence
OWN_METRICS = 2**24  # bytes that a client's metrics may have besides tables
UNKNOWN_TABLES = 2**26  # bytes of tables where no census says how large they are: of a thousand labels, say


class Asked(NamedTuple):
    """Who was asked in a round."""

    number: int  # from 1; 0: before the first
    cohort: np.ndarray  # int32 [K]: who was chosen, one for each slot
    reached: tuple[int, ...]  # those of them that were connected
    needs: frozenset[str] = frozenset()  # signals that they are to send
    phase: str = "train"
    coefficients: Mapping[int, np.ndarray] | None = None  # two-phase rounds: what each client was told to multiply its update by
    masked: bool = False  # whether only the sum of what they send means anything

    @property
    def chosen(self) -> list[int]:
        return sorted(set(self.cohort.tolist()))


class Heard(NamedTuple):
    """What came back."""

    replies: dict[int, Reply]  # by client
    contents: list[RecordDict]  # of the same, for metrics
    left_out: list[LeftOut]


class Findings(NamedTuple):
    """What came back from an evaluation."""

    replies: list[Evaluated]
    contents: list[RecordDict]  # of everybody who sent metrics
    left_out: list[LeftOut]


def heard(setting: Setting, asked: Asked, replies: Iterable[Message]) -> Heard:
    """The replies to a round of training."""
    found, contents, left_out = {}, [], []
    for client, message in _by_client(setting, asked, replies, left_out):
        reply = check_reply(message, expected(setting, asked, client))
        if isinstance(reply, LeftOut):
            left_out.append(reply)
        else:
            found[client] = reply
            contents.append(message.content)
    _tell(left_out)
    return Heard(found, contents, left_out)


def findings(setting: Setting, asked: Asked, replies: Iterable[Message]) -> Findings:
    """The replies to an evaluation. Metrics that the report cannot use may still be averaged."""
    found, contents, left_out = [], [], []
    for client, message in _by_client(setting, asked, replies, left_out):
        reply = check_evaluation(message, expected(setting, asked, client))
        (left_out if isinstance(reply, LeftOut) else found).append(reply)
        if message.has_content() and message.content.metric_records and size_of(message.content) <= most_bytes(setting, asked):
            contents.append(message.content)
    _tell(left_out)
    return Findings(found, contents, left_out)


def without(setting: Setting, asked: Asked, came: Heard, counted: set[int]) -> Heard:
    """The same, and those are left out whose numbers are finite one by one but whose update is too long to be added."""
    reason = "sent an update whose length is NaN or infinity"
    more = [expected(setting, asked, k).left_out(reason, ARRAYS) for k in sorted(came.replies.keys() - counted)]
    _tell(more)
    return came._replace(left_out=came.left_out + more)


def require_enough(setting: Setting, asked: Asked, came: Heard) -> None:
    """Stop with the reasons where too few replies are left."""
    least = setting.options.min_train_nodes
    if len(came.replies) >= max(min(least, len(asked.chosen)), 1):
        return
    raise ValueError(
        f"Round {asked.number} of {setting.algorithm.label}: of {len(asked.chosen)} clients that were chosen, {len(came.replies)} sent a "
        f"reply that can be used, and min_train_nodes = {least} must. {quoted(came.left_out)}"
    )


def quoted(left_out: list[LeftOut], most: int = QUOTED) -> str:
    """Every reason once, the most frequent first: who gave it, and how many others did."""
    counts = Counter(one.reason for one in left_out)
    first = {one.reason: one for one in reversed(left_out)}
    said = []
    for reason, count in counts.most_common(most):
        node, client = first[reason].node, first[reason].client
        who = f"Node {node}" if client == UNKNOWN else f"Node {node} (client {client})"
        others = f", like {count - 1} other{'s' if count > 2 else ''}," if count > 1 else ""
        said.append(f"{who}{others} {reason}.")
    rest = sum(counts.values()) - sum(count for _, count in counts.most_common(most))
    return " ".join([*said, f"{rest} more were left out for other reasons."] if rest else said)


def expected(setting: Setting, asked: Asked, client: int) -> Expected:
    """What a client's reply must hold."""
    roll, options = setting.roll, setting.options
    known = roll.introduced
    coefficient = None if asked.coefficients is None else asked.coefficients.get(client)
    return Expected(
        node=roll.nodes[client],
        client=client,
        round=asked.number,
        method=setting.algorithm.label,
        needs=asked.needs,
        layout=_layout(setting, asked, coefficient),
        ranked=setting.form.ranks and coefficient is None,
        examples=int(roll.census.examples[client]) if known and asked.phase in ("train", "measure") else None,
        cells=(roll.census.cells.shape[1], roll.census.cells.shape[2]) if known else None,
        models=max(setting.models, 1),
        phase=asked.phase,
        coefficient=coefficient,
        masked=asked.masked,
        arrays_key=options.arrayrecord_key,
        examples_key=options.weighted_by_key,
        most_bytes=most_bytes(setting, asked),
    )


def most_bytes(setting: Setting, asked: Asked) -> int:
    """How large a reply may be: the arrays that are asked for in double precision, tables, and what clients may add of their own."""
    if setting.options.max_reply_bytes is not None:
        return setting.options.max_reply_bytes
    census = setting.roll.census.cells.shape[1:] if setting.roll.introduced else None
    if asked.phase != "train":
        return beside_arrays(census)
    models = next(iter(asked.coefficients.values())).shape if asked.coefficients else ()
    return setting.form.most_bytes(models) + beside_arrays(census)


def beside_arrays(cells: tuple[int, ...] | None) -> int:
    """Bytes of metrics: a table for each split and cells for the method, where groups and labels are known, and some more."""
    if cells is None:
        return UNKNOWN_TABLES + OWN_METRICS
    groups, labels = cells
    return 8 * groups * labels * (4 * labels + 2) + OWN_METRICS


def _layout(setting: Setting, asked: Asked, coefficient: np.ndarray | None) -> wire.Layout | None:
    """Of the arrays that are asked for: a trained model, or coefficient times update."""
    if asked.phase != "train" or asked.masked:
        return None
    return setting.form.layout if coefficient is None else setting.form.scaled(coefficient.shape)


def _by_client(setting: Setting, asked: Asked, replies: Iterable[Message], left_out: list[LeftOut]) -> Iterable[tuple[int, Message]]:
    """Every client's first answer; who did not give one is added to those left out."""
    waiting = {setting.roll.nodes[k]: k for k in asked.reached}
    for message in replies:
        client = waiting.pop(message.metadata.src_node_id, None)
        if client is not None:  # else it answers an earlier round
            yield client, message
    left_out += [no_answer(expected(setting, asked, k)) for k in waiting.values()]
    away = sorted(set(asked.chosen) - set(asked.reached))
    left_out += [no_answer(expected(setting, asked, k), "is not connected") for k in away]


def _tell(left_out: list[LeftOut]) -> None:
    for one in left_out:
        LOG.warning("Round %d: client %d (node %d) %s.", one.round, one.client, one.node, one.reason)

"""Checks of replies and censuses. A client whose reply fails is left out of the round with a
reason; the others continue.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict

from evenly.data.sensitive import Attribute
from evenly.data.splits import SPLITS
from evenly.experiment.deployment import UNKNOWN, Exclusion
from evenly.flower import checks, wire
from evenly.flower.checks import (
    ERROR,
    LONGEST_REASON,
    SIGNALS,
    SILENT,
    SIZES,
    UNREADABLE,
    ReplyError,
    ReplySpec,
    arrays_of,
    printable,
    read_or_exclude,
    record_of,
)

# What can be wrong with a reply. Whoever sent it is left out of the round with a reason; the others
# go on.
#
# Nothing is changed here and nothing is copied: a reply is read once, and its arrays stay where
# Flower put them.

# Flower's codes of errors that mean that no answer came: MESSAGE_UNAVAILABLE,
# REPLY_MESSAGE_UNAVAILABLE and NODE_UNAVAILABLE.
WITHOUT_ANSWER = {
    3: "did not answer in time",
    4: "did not answer in time",
    5: "is not connected any more",
}
POLICY = "refused by its policy"  # begins the reason of a client whose operator allows less
CRASHED = 8  # CLIENT_APP_CRASHED
MOST_READ = 10 * LONGEST_REASON  # characters of an error, from its end
RAISED = re.compile(r"^<class '(?:\w+\.)*(\w+)'>:<'")  # how Flower begins what an app raised
# what Flower puts before an app's own words, and '> after them
WRAPPED = "Exception ClientAppException occurred. Message: "


class Reply(NamedTuple):
    """A usable reply to train or measure."""

    node: int
    client: int
    examples: int
    metrics: Mapping[str, Any]
    signals: dict[str, np.ndarray]  # those of `needs` that clients measure
    arrays: ArrayRecord | None
    upload: int = 0  # bytes


def check_reply(message: Message, expected: ReplySpec) -> Reply | Exclusion:
    """Check a reply to train or measure."""
    return read_or_exclude(expected, lambda: _read_reply(message, expected))


def _read_reply(message: Message, expected: ReplySpec) -> Reply:
    content = content_of(message, expected.most_bytes)
    metrics = _metrics(content)
    examples = _examples(metrics, expected)
    signals = {
        need: checks.signal(need, metrics, examples, expected)
        for need in sorted(expected.needs & wire.SIGNALS.keys())
    }
    checks.check_coefficient(metrics, expected)
    checks.check_norm(metrics, expected)
    arrays = _arrays(content, expected)
    return Reply(
        expected.node, expected.client, examples, metrics, signals, arrays, bytes_of(content)
    )


class ClientEvaluation(NamedTuple):
    """Usable reply to evaluate: by split, rows, mean loss, and a table or the number of correct
    rows.
    """

    client: int
    splits: dict[str, Any]
    metrics: Mapping[str, Any]


def check_evaluation(message: Message, expected: ReplySpec) -> ClientEvaluation | Exclusion:
    """Check a reply to evaluate: test rows, and training and validation rows if the client sends
    them.
    """
    return read_or_exclude(expected, lambda: _read_evaluation(message, expected))


def _read_evaluation(message: Message, expected: ReplySpec) -> ClientEvaluation:
    metrics = _metrics(content_of(message, expected.most_bytes))
    found: dict[str, Any] = {"test": _read_split(metrics, "", expected)}
    for split in SPLITS:
        if split != "test" and any(key.startswith(f"{split}-") for key in metrics):
            found[split] = _read_split(metrics, f"{split}-", expected)
    shapes = {own["table"].shape for own in found.values() if own["table"] is not None}
    if len(shapes) > 1:
        raise ReplyError(
            f"sent tables of shapes {' and '.join(map(str, sorted(shapes)))}, which must be the"
            " same for all splits",
            SIGNALS,
        )
    if wire.CHOICE in metrics:
        found["choice"] = checks.choice(metrics[wire.CHOICE], expected)
    return ClientEvaluation(expected.client, found, metrics)


def no_answer(expected: ReplySpec, reason: str = "did not answer in time") -> Exclusion:
    """Exclusion of a client without a reply."""
    return expected.left_out(reason, SILENT)


def bytes_of(content: RecordDict) -> int:
    """Bytes of the arrays of a message, without its metrics."""
    return sum(
        len(array.data) for record in content.array_records.values() for array in record.values()
    )


def size_of(content: RecordDict) -> int:
    """Approximate bytes of a message: arrays, eight for each other number, and text."""
    total = 0
    for record in content.values():
        if isinstance(record, ArrayRecord):
            total += sum(len(name) + len(array.data) for name, array in record.items())
        else:
            total += sum(len(key) + _size(value) for key, value in record.items())
    return total


def _size(value: Any) -> int:
    if isinstance(value, list):
        return (
            sum(map(_size, value))
            if value and isinstance(value[0], str | bytes)
            else 8 * len(value)
        )
    return len(value) if isinstance(value, str | bytes) else 8


def content_of(message: Message, most: int | None = None) -> RecordDict:
    """What was sent, of at most so many bytes; nothing is decoded before that is known.

    Of an error only the last line is quoted, which says what it was; the others say where in
    somebody's code.
    """
    if not message.has_error():
        size = size_of(message.content)
        if most is not None and size > most:
            raise ReplyError(
                f"sent {size:,} bytes, and a reply may have at most {most:,} (max_reply_bytes)",
                SIZES,
            )
        return message.content
    error = message.error
    if error.code == UNREADABLE:
        raise ReplyError(printable(str(error.reason)) or "sent a reply that cannot be read", ERROR)
    if error.code == wire.REFUSED:
        reason = str(error.reason).removeprefix(wire.REFUSES)
        raise ReplyError(f"{POLICY}: {printable(reason).rstrip('.')}", ERROR)
    if error.code in WITHOUT_ANSWER:
        raise ReplyError(WITHOUT_ANSWER[error.code], SILENT)
    end = str(error.reason or "")[-MOST_READ:].removesuffix("'>")
    lines = [line.strip() for line in end.splitlines() if line.strip()]
    last = RAISED.sub(r"\1: ", lines[-1].removeprefix(WRAPPED)) if lines else ""
    said = f": {printable(last).rstrip('.')}" if last else ""
    what = (
        "crashed"
        if error.code == CRASHED
        else f"replied with an error (Flower's code {error.code})"
    )
    raise ReplyError(f"{what}{said}", ERROR)


def _metrics(content: RecordDict) -> Mapping[str, Any]:
    records = content.metric_records
    if wire.METRICS in records:
        return records[wire.METRICS]
    if len(records) != 1:
        raise ReplyError(
            f"sent {len(records)} records of metrics, where one is needed (named {wire.METRICS!r})",
            SIGNALS,
        )
    return next(iter(records.values()))


def _arrays(content: RecordDict, expected: ReplySpec) -> ArrayRecord | None:
    if expected.masked:
        return record_of(content, expected)
    return None if expected.layout is None else arrays_of(content, expected)


def _examples(metrics: Mapping[str, Any], expected: ReplySpec) -> int:
    key = expected.examples_key
    if key not in metrics:
        raise ReplyError(
            f"sent no {key!r}. It must reply with {wire.HOW_TO_SEND[wire.EXAMPLES]}:"
            f" metrics[{key!r}] = ...",
            SIZES,
        )
    rows = checks.count(key, metrics[key], SIZES)
    if rows == 0:
        raise ReplyError(f"says that it has no training rows ({key!r} is 0)", SIZES)
    if expected.examples is not None and rows != expected.examples:
        raise ReplyError(
            f"says {rows:,} training rows, but said {expected.examples:,} before the first round",
            SIZES,
        )
    return rows


def _read_split(metrics: Mapping[str, Any], prefix: str, spec: ReplySpec) -> dict[str, Any]:
    """Rows, loss, and table or number of correct rows of one split; `prefix` precedes its
    metrics.
    """
    named = {
        name.removeprefix(prefix): value
        for name, value in metrics.items()
        if name.startswith(prefix)
    }
    rows = _rows_of_split(metrics, prefix, named)
    loss = (
        checks.loss(prefix + wire.LOSS, named[wire.LOSS], spec)
        if wire.LOSS in named and rows
        else np.nan
    )
    table = checks.table(prefix + wire.TABLE, metrics, rows, spec) if wire.TABLE in named else None
    correct = None
    if table is None and "accuracy" in named:
        accuracy = checks.number(prefix + "accuracy", named["accuracy"]) if rows else 0.0
        if not 0 <= accuracy <= 1:
            raise ReplyError(
                f"sent {accuracy:g} as {prefix + 'accuracy'!r}, which must be a share from 0 to 1",
                SIGNALS,
            )
        correct = round(accuracy * rows)
    if spec.cells and spec.cells[0] > 1 and table is None and rows:
        raise ReplyError(
            f"sent no {prefix + wire.TABLE!r}, which is needed because the federation has groups",
            SIGNALS,
        )
    return {"examples": rows, "loss": loss, "table": table, "correct": correct}


def _rows_of_split(metrics: Mapping[str, Any], prefix: str, named: Mapping[str, Any]) -> int:
    key = prefix + wire.EXAMPLES
    if key in metrics:
        return checks.count(key, metrics[key], SIZES)
    if wire.TABLE in named and prefix:  # the table contains it
        return checks.count(
            prefix + wire.TABLE, float(np.sum(np.asarray(named[wire.TABLE], float))), SIZES
        )
    raise ReplyError(
        f"sent no {key!r}, the number of rows it evaluated the model on: metrics[{key!r}] = ...",
        SIZES,
    )


# What clients say of themselves before the first round. Who cannot be right, or knows other groups
# or labels than most, is left out.

LONGEST_NAME = 80
MOST_CLIENTS = 1_000_000  # numbers of clients are below


class Introduction(NamedTuple):
    """A node's reply to the census, unchecked."""

    node: int
    metrics: Mapping[str, Any]
    about: Mapping[str, Any]


class CensusReply(NamedTuple):
    """A usable census. Values that a client did not send are None; labels and groups are ()."""

    node: int
    examples: int
    cells: np.ndarray  # int64 [groups, labels]
    client: int | None
    client_group: int | None
    name: str | None
    labels: tuple[str, ...]
    groups: tuple[str, ...]
    unprivileged: tuple[int, ...] | None
    favourable: int | None
    attributes: tuple[Attribute, ...] = ()
    assumed: tuple[str, ...] = ()
    key: str = ""  # digest of its registered key, where Flower tells it


# What is each client's own. Either all of them say it or nobody does.
OWN: dict[str, Callable[[CensusReply], int | None]] = {
    wire.CLIENT: lambda told: told.client,
    wire.CLIENT_GROUP: lambda told: told.client_group,
}

# What all clients must agree on, where they say it.
COMMON: dict[str, Callable[[CensusReply], Hashable]] = {
    "groups and labels": lambda told: told.cells.shape,
    "names of labels": lambda told: told.labels,
    "names of groups": lambda told: told.groups,
    "unprivileged groups": lambda told: told.unprivileged,
    "the favourable label": lambda told: told.favourable,
    "sensitive attributes": lambda told: told.attributes,
    "what is assumed": lambda told: told.assumed,
}


def read_censuses(
    replies: Iterable[Message], nodes: Iterable[int], *, most: int | None = None
) -> tuple[list[CensusReply], list[Exclusion]]:
    """Censuses that can be read, in the order of nodes, and exclusions with a reason."""
    told: list[CensusReply] = []
    left_out: list[Exclusion] = []
    silent = set(nodes)
    for reply in replies:
        node = reply.metadata.src_node_id
        if node not in silent:
            continue
        silent.remove(node)
        expected = ReplySpec(node, UNKNOWN, 0, phase="census", most_bytes=most)
        found = read_or_exclude(expected, partial(_read, reply, expected))
        told.append(found) if isinstance(found, CensusReply) else left_out.append(found)
    left_out += [no_answer(ReplySpec(node, UNKNOWN, 0, phase="census")) for node in sorted(silent)]
    return sorted(told, key=lambda one: one.node), [
        one._replace(reason=f"was asked for the census and {one.reason}") for one in left_out
    ]


def _read(message: Message, expected: ReplySpec) -> CensusReply:
    content = content_of(message, expected.most_bytes)
    metrics = content.metric_records.get(wire.METRICS) or next(
        iter(content.metric_records.values()), {}
    )
    return parse_census(
        Introduction(expected.node, metrics, content.config_records.get(wire.ABOUT, {}))
    )


def consistent_censuses(
    censuses: Sequence[CensusReply], groups: int = 0, settled: Sequence[CensusReply] = ()
) -> tuple[list[CensusReply], list[Exclusion]]:
    """Censuses that fit together, and why the others are left out.

    The majority decides what all clients must agree on, and every client number belongs to one
    client. `groups` is the number of groups that whole clients may belong to; 0: as many as there
    are clients. With `settled` censuses of clients that take part already, these decide.
    """
    kept, wrong = list(censuses), list[tuple[CensusReply, str]]()
    for select in (_agreeing, _alike, partial(_distinct, groups=groups)):
        kept, others = select(kept, settled)
        wrong += others
    return kept, [census_exclusion(one.node, reason) for one, reason in wrong]


def census_exclusion(node: int, reason: str) -> Exclusion:
    """Exclusion of a node whose census does not fit those of the others."""
    spec = ReplySpec(node, UNKNOWN, 0, phase="census")
    return spec.left_out(f"{reason} ({wire.CENSUS!r})", SIZES)


# censuses that are kept, and the others with the reason
Selection = tuple[list[CensusReply], list[tuple[CensusReply, str]]]


def _agreeing(censuses: list[CensusReply], settled: Sequence[CensusReply]) -> Selection:
    """Those that give the most frequent value of every common entry, or none."""
    kept, others = censuses, list[tuple[CensusReply, str]]()
    for entry, value_of in COMMON.items():
        said, before = (
            Counter(value for one in group if (value := value_of(one)) not in (None, ()))
            for group in (kept, settled)
        )
        agreed = (None, (), *(value for value, _ in (before or said).most_common(1)))
        reason = (
            "says {!r} of {}, where most clients say {!r}: all clients must give the same, in the"
            " same order"
        )
        others += [
            (one, reason.format(value_of(one), entry, agreed[-1]))
            for one in kept
            if value_of(one) not in agreed
        ]
        kept = [one for one in kept if value_of(one) in agreed]
    return kept, others


def _alike(censuses: list[CensusReply], settled: Sequence[CensusReply]) -> Selection:
    """Those that, like most, give a number and a group of the client, or do not."""
    kept, others = censuses, list[tuple[CensusReply, str]]()
    for key, value_of in OWN.items():
        giving, silent = (
            [one for one in kept if value_of(one) is not None],
            [one for one in kept if value_of(one) is None],
        )
        deciding = [value_of(one) is not None for one in settled or kept]
        kept, rest = (giving, silent) if 2 * sum(deciding) >= len(deciding) else (silent, giving)
        how = (
            f"did not say {key!r}, and most clients did"
            if kept is giving
            else f"says {key!r}, and most clients do not"
        )
        others += [(one, f"{how}: either all clients say it or none") for one in rest]
    return kept, others


def _distinct(
    censuses: list[CensusReply], settled: Sequence[CensusReply], groups: int
) -> Selection:
    """Those whose number no other of them has and whose group exists. Of several with one number
    the settled client is kept, or else the first.
    """
    owners: dict[int | None, CensusReply] = {
        one.client: one for one in settled if one.client is not None
    }
    censuses = sorted(censuses, key=lambda one: not _continues(owners.get(one.client), one))
    first: dict[int, CensusReply] = {}
    kept, others = list[CensusReply](), list[tuple[CensusReply, str]]()
    most = groups or len(settled) + len(censuses)
    for one in censuses:
        holder = one if one.client is None else first.setdefault(one.client, one)
        if holder is not one:
            others.append(
                (
                    one,
                    (
                        f"says that it is client {one.client}, as node {holder.node} does: each"
                        " client needs its own number"
                    ),
                )
            )
        elif one.client_group is not None and one.client_group >= most:
            others.append(
                (
                    one,
                    (
                        f"says {wire.CLIENT_GROUP!r} {one.client_group}, where {most} groups are"
                        " possible, from 0"
                    ),
                )
            )
        else:
            kept.append(one)
    return kept, others


def _continues(before: CensusReply | None, answer: CensusReply) -> bool:
    """Whether an answer is of the client of before: by its key or, where keys are not known, by its
    node.
    """
    if before is None:
        return False
    if before.key and answer.key:
        return before.key == answer.key
    return before.node == answer.node


def parse_census(answer: Introduction) -> CensusReply:
    """Check and parse a census."""
    metrics, about = answer.metrics, answer.about
    examples = checks.count(wire.EXAMPLES, _require_entry(metrics, wire.EXAMPLES), SIZES)
    _require_entry(metrics, wire.CELLS)
    cells = checks.array(wire.CELLS, metrics, (None, None))
    if (cells != np.floor(cells)).any() or cells.sum() != examples:
        raise ReplyError(
            f"sent {wire.CELLS!r} that count {cells.sum():g} rows, but says that it has"
            f" {examples:,}",
            SIZES,
        )
    labels, groups = (
        _words(about, "labels", cells.shape[1]),
        _words(about, "groups", cells.shape[0]),
    )
    assumed = about.get("assumed", [])
    return CensusReply(
        answer.node,
        examples,
        cells.astype(np.int64),
        _number(metrics, wire.CLIENT),
        _number(metrics, wire.CLIENT_GROUP),
        printable(str(about["name"]), LONGEST_NAME) if "name" in about else None,
        labels,
        groups,
        _unprivileged(about["unprivileged"], cells.shape[0]) if "unprivileged" in about else None,
        (
            None
            if "favourable" not in about
            else _below(cells.shape[1], "favourable", about["favourable"])
        ),
        _attributes(about, cells.shape[0]),
        _words(about, "assumed", len(assumed) if isinstance(assumed, list) else 0),
    )


def _attributes(about: Mapping[str, Any], groups: int) -> tuple[Attribute, ...]:
    """Sensitive attributes, from the value that each group has."""
    found = []
    for key in about:
        if key.startswith(wire.ATTRIBUTE):
            values, name = _words(about, key, groups), key.removeprefix(wire.ATTRIBUTE)
            if not values:
                raise ReplyError(f"sent no value of the groups as {printable(key)!r}", SIZES)
            known = tuple(dict.fromkeys(values))  # groups are in the order of values
            of_group = tuple(known.index(value) for value in values)
            side = printable(str(about.get(wire.SIDE + name, "")), LONGEST_NAME)
            unprivileged = known.index(side) if side in known else -1
            found.append(Attribute(printable(name, LONGEST_NAME), known, of_group, unprivileged))
    names = [one.name for one in found]
    if "" in names or len(set(names)) < len(names):
        raise ReplyError("sent sensitive attributes without a name, or two of one name", SIZES)
    return tuple(found)


def _require_entry(metrics: Mapping[str, Any], key: str) -> Any:
    if key not in metrics:
        raise ReplyError(f"did not say {key!r}, which is {wire.HOW_TO_SEND[key]}", SIZES)
    return metrics[key]


def _number(metrics: Mapping[str, Any], key: str) -> int | None:
    """Number of the client, or of its group."""
    found = checks.count(key, metrics[key], SIZES) if key in metrics else None
    if found is not None and found >= MOST_CLIENTS:
        raise ReplyError(
            f"sent {found:,} as {key!r}, which must be from 0 to {MOST_CLIENTS - 1:,}", SIZES
        )
    return found


def _unprivileged(said: Any, groups: int) -> tuple[int, ...]:
    """Numbers of the unprivileged groups: at least one, each once."""
    found = [
        _below(groups, "unprivileged", group)
        for group in (said if isinstance(said, list) else [said])
    ]
    if not found or len(set(found)) < len(found):
        raise ReplyError(
            f"sent {str(said)[:LONGEST_NAME]} as 'unprivileged', which must name at least one"
            " group, each once",
            SIZES,
        )
    return tuple(found)


def _words(about: Mapping[str, Any], key: str, count: int) -> tuple[str, ...]:
    found = about.get(key, [])
    if not isinstance(found, list) or len(found) not in (0, count):
        raise ReplyError(
            f"sent {str(found)[:LONGEST_NAME]!r} as {key!r}, which must be a list of {count} names,"
            f" as in {wire.CELLS!r}",
            SIZES,
        )
    return tuple(printable(str(word), LONGEST_NAME) for word in found)


def _below(count: int, key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        raise ReplyError(
            f"sent {str(value)[:LONGEST_NAME]!r} as {key!r}, which must be from 0 to {count - 1}",
            SIZES,
        )
    return int(value)

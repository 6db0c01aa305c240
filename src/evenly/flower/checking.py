"""What can be wrong with a reply. Whoever sent it is left out of the round with a reason; the others go on.

Nothing is changed here and nothing is copied: a reply is read once, and its arrays stay where Flower put them.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict

from evenly.data.splits import SPLITS
from evenly.experiment.deployment import LeftOut
from evenly.flower import checking_numbers as numbers
from evenly.flower import wire
from evenly.flower.checking_arrays import arrays_of, record_of
from evenly.flower.expecting import ERROR, LONGEST_REASON, SIGNALS, SILENT, SIZES, Expected, Wrong, printable, read_or_left_out
from evenly.flower.gathering import UNREADABLE

# Flower's codes of errors that mean that no answer came: MESSAGE_UNAVAILABLE, REPLY_MESSAGE_UNAVAILABLE and NODE_UNAVAILABLE.
WITHOUT_ANSWER = {
    3: "did not answer in time",
    4: "did not answer in time",
    5: "is not connected any more",
}
CRASHED = 8  # CLIENT_APP_CRASHED
MOST_READ = 10 * LONGEST_REASON  # characters of an error, from its end
RAISED = re.compile(r"^<class '(?:\w+\.)*(\w+)'>:<'")  # how Flower begins what an app raised
WRAPPED = "Exception ClientAppException occurred. Message: "  # what Flower puts before an app's own words, and '> after them


class Reply(NamedTuple):
    """A reply that can be used."""

    node: int
    client: int
    examples: int
    metrics: Mapping[str, Any]
    signals: dict[str, np.ndarray]  # those of `needs` that clients measure
    arrays: ArrayRecord | None
    upload: int = 0  # bytes


def check_reply(message: Message, expected: Expected) -> Reply | LeftOut:
    """A reply to train or to measure."""
    return read_or_left_out(expected, lambda: _read_reply(message, expected))


def _read_reply(message: Message, expected: Expected) -> Reply:
    content = content_of(message, expected.most_bytes)
    metrics = _metrics(content)
    examples = _examples(metrics, expected)
    signals = {need: numbers.signal(need, metrics, examples, expected) for need in sorted(expected.needs & wire.SIGNALS.keys())}
    numbers.check_coefficient(metrics, expected)
    numbers.check_norm(metrics, expected)
    arrays = _arrays(content, expected)
    return Reply(expected.node, expected.client, examples, metrics, signals, arrays, bytes_of(content))


class Evaluated(NamedTuple):
    """What a client found: by split, its rows, loss, and rows predicted right or a table of them."""

    client: int
    found: dict[str, Any]
    metrics: Mapping[str, Any]


def check_evaluation(message: Message, expected: Expected) -> Evaluated | LeftOut:
    """A reply to evaluate: test rows, and training and validation rows where a client tells of them."""
    return read_or_left_out(expected, lambda: _read_evaluation(message, expected))


def _read_evaluation(message: Message, expected: Expected) -> Evaluated:
    metrics = _metrics(content_of(message, expected.most_bytes))
    found: dict[str, Any] = {"test": _evaluated(metrics, "", expected)}
    for split in SPLITS:
        if split != "test" and any(key.startswith(f"{split}-") for key in metrics):
            found[split] = _evaluated(metrics, f"{split}-", expected)
    shapes = {own["table"].shape for own in found.values() if own["table"] is not None}
    if len(shapes) > 1:
        raise Wrong(f"sent tables of shapes {' and '.join(map(str, sorted(shapes)))}, which must be the same for all splits", SIGNALS)
    if wire.CHOICE in metrics:
        found["choice"] = numbers.choice(metrics[wire.CHOICE], expected)
    return Evaluated(expected.client, found, metrics)


def no_answer(expected: Expected, reason: str = "did not answer in time") -> LeftOut:
    """A client that was asked and from whom nothing came."""
    return expected.left_out(reason, SILENT)


def bytes_of(content: RecordDict) -> int:
    """What the arrays of a message weigh; the few numbers beside them are not counted."""
    return sum(len(array.data) for record in content.array_records.values() for array in record.values())


def size_of(content: RecordDict) -> int:
    """What a whole message weighs, about: bytes of arrays, eight for each other number, and text."""
    total = 0
    for record in content.values():
        if isinstance(record, ArrayRecord):
            total += sum(len(name) + len(array.data) for name, array in record.items())
        else:
            total += sum(len(key) + _size(value) for key, value in record.items())
    return total


def _size(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_size, value)) if value and isinstance(value[0], str | bytes) else 8 * len(value)
    return len(value) if isinstance(value, str | bytes) else 8


def content_of(message: Message, most: int | None = None) -> RecordDict:
    """What was sent, of at most so many bytes; nothing is decoded before that is known.

    Of an error only the last line is quoted, which says what it was; the others say where in somebody's code.
    """
    if not message.has_error():
        size = size_of(message.content)
        if most is not None and size > most:
            raise Wrong(f"sent {size:,} bytes, and a reply may have at most {most:,} (max_reply_bytes)", SIZES)
        return message.content
    error = message.error
    if error.code == UNREADABLE:
        raise Wrong(printable(str(error.reason)) or "sent a reply that cannot be read", ERROR)
    if error.code in WITHOUT_ANSWER:
        raise Wrong(WITHOUT_ANSWER[error.code], SILENT)
    end = str(error.reason or "")[-MOST_READ:].removesuffix("'>")
    lines = [line.strip() for line in end.splitlines() if line.strip()]
    last = RAISED.sub(r"\1: ", lines[-1].removeprefix(WRAPPED)) if lines else ""
    said = f": {printable(last).rstrip('.')}" if last else ""
    what = "crashed" if error.code == CRASHED else f"replied with an error (Flower's code {error.code})"
    raise Wrong(f"{what}{said}", ERROR)


def _metrics(content: RecordDict) -> Mapping[str, Any]:
    records = content.metric_records
    if wire.METRICS in records:
        return records[wire.METRICS]
    if len(records) != 1:
        raise Wrong(f"sent {len(records)} records of metrics, where one is needed (named {wire.METRICS!r})", SIGNALS)
    return next(iter(records.values()))


def _arrays(content: RecordDict, expected: Expected) -> ArrayRecord | None:
    if expected.masked:
        return record_of(content, expected)
    return None if expected.layout is None else arrays_of(content, expected)


def _examples(metrics: Mapping[str, Any], expected: Expected) -> int:
    key = expected.examples_key
    if key not in metrics:
        raise Wrong(f"sent no {key!r}. It must reply with {wire.HOW_TO_SEND[wire.EXAMPLES]}: metrics[{key!r}] = ...", SIZES)
    rows = numbers.count(key, metrics[key], SIZES)
    if rows == 0:
        raise Wrong(f"says that it has no training rows ({key!r} is 0)", SIZES)
    if expected.examples is not None and rows != expected.examples:
        raise Wrong(f"says {rows:,} training rows, but said {expected.examples:,} before the first round", SIZES)
    return rows


def _evaluated(metrics: Mapping[str, Any], prefix: str, expected: Expected) -> dict[str, Any]:
    key = prefix + wire.EXAMPLES
    named = {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}
    if key in metrics:
        rows = numbers.count(key, metrics[key], SIZES)
    elif wire.TABLE in named and prefix:  # the table says it
        rows = numbers.count(prefix + wire.TABLE, float(np.sum(np.asarray(named[wire.TABLE], float))), SIZES)
    else:
        raise Wrong(f"sent no {key!r}, how many rows it evaluated the model on: metrics[{key!r}] = ...", SIZES)
    loss = numbers.loss(prefix + wire.LOSS, named[wire.LOSS], expected) if wire.LOSS in named and rows else np.nan
    table = numbers.table(prefix + wire.TABLE, metrics, rows, expected) if wire.TABLE in named else None
    correct = None
    if table is None and "accuracy" in named:
        accuracy = numbers.number(prefix + "accuracy", named["accuracy"]) if rows else 0.0
        if not 0 <= accuracy <= 1:
            raise Wrong(f"sent {accuracy:g} as {prefix + 'accuracy'!r}, which must be a share from 0 to 1", SIGNALS)
        correct = round(accuracy * rows)
    if expected.cells and expected.cells[0] > 1 and table is None and rows:
        raise Wrong(f"sent no {prefix + wire.TABLE!r}, though the federation has groups: an accuracy does not say whose", SIGNALS)
    return {"examples": rows, "loss": loss, "table": table, "correct": correct}

"""What can be wrong with a reply. Whoever sent it is left out of the round with a reason; the others go on.

Nothing is changed here and nothing is copied: a reply is read once, and its arrays stay where Flower put them.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict

from evenly.experiment.deployment import LeftOut
from evenly.federation import SPLITS
from evenly.flower import wire

LARGEST_LOSS = 1e6  # of one row, on average: no loss that training can lower is above
MOST_ROWS = 10**12
LONGEST_REASON = 300

# Kinds of reasons, as the report counts them.
SILENT, ERROR, ARRAYS, SIZES, SIGNALS = "no answer", "an error", "unusable arrays", "unusable sizes", "unusable signals"

# Flower's codes of errors that mean that no answer came: MESSAGE_UNAVAILABLE, REPLY_MESSAGE_UNAVAILABLE and NODE_UNAVAILABLE.
WITHOUT_ANSWER = {
    3: "did not answer in time",
    4: "did not answer in time",
    5: "is not connected any more",
}
CRASHED = 8  # CLIENT_APP_CRASHED


class Expected(NamedTuple):
    """Whose reply it is, and what it must hold."""

    node: int
    client: int
    round: int
    method: str = ""  # the algorithm, for sentences
    needs: frozenset[str] = frozenset()  # fields of Signals
    layout: wire.Layout | None = None  # of the arrays; None: none are asked for
    ranked: bool = False  # whether arrays are places in an order: every place once
    examples: int | None = None  # training rows that it said in the census
    cells: tuple[int, int] | None = None  # groups and labels, where known
    models: int = 1
    phase: str = "train"
    arrays_key: str = wire.ARRAYS
    examples_key: str = wire.EXAMPLES
    largest_loss: float = LARGEST_LOSS

    def left_out(self, reason: str, kind: str) -> LeftOut:
        return LeftOut(self.node, self.client, self.round, reason, kind, self.phase)


class Reply(NamedTuple):
    """A reply that can be used."""

    node: int
    client: int
    examples: int
    metrics: Mapping[str, Any]
    signals: dict[str, np.ndarray]  # those of `needs` that clients measure
    arrays: ArrayRecord | None
    upload: int = 0  # bytes


class Wrong(Exception):  # noqa: N818 - raised and caught in this module alone
    """Something about a reply, in words, and its kind."""


def check_reply(message: Message, expected: Expected) -> Reply | LeftOut:
    """A reply to train or to measure."""
    try:
        content = _content(message)
        metrics = _metrics(content)
        examples = _examples(metrics, expected)
        signals = {need: _signal(need, metrics, examples, expected) for need in sorted(expected.needs & wire.SIGNALS.keys())}
        _check_norm(metrics)
        arrays = None if expected.layout is None else _arrays(content, expected)
    except Wrong as wrong:
        return expected.left_out(*wrong.args)
    return Reply(expected.node, expected.client, examples, metrics, signals, arrays, bytes_of(content))


class Evaluated(NamedTuple):
    """What a client found: by split, its rows, loss, and rows predicted right or a table of them."""

    client: int
    found: dict[str, Any]
    metrics: Mapping[str, Any]


def check_evaluation(message: Message, expected: Expected) -> Evaluated | LeftOut:
    """A reply to evaluate: test rows, and training and validation rows where a client tells of them."""
    try:
        metrics = _metrics(_content(message))
        found: dict[str, Any] = {"test": _evaluated(metrics, "", expected)}
        for split in SPLITS:
            if split != "test" and any(key.startswith(f"{split}-") for key in metrics):
                found[split] = _evaluated(metrics, f"{split}-", expected)
        if wire.CHOICE in metrics:
            found["choice"] = _choice(metrics[wire.CHOICE], expected)
    except Wrong as wrong:
        return expected.left_out(*wrong.args)
    return Evaluated(expected.client, found, metrics)


def no_answer(expected: Expected, reason: str = "did not answer in time") -> LeftOut:
    """A client that was asked and from whom nothing came."""
    return expected.left_out(reason, SILENT)


def bytes_of(content: RecordDict) -> int:
    """What the arrays of a message weigh; the few numbers beside them are not counted."""
    return sum(len(array.data) for record in content.array_records.values() for array in record.values())


def _content(message: Message) -> RecordDict:
    if not message.has_error():
        return message.content
    error = message.error
    if error.code in WITHOUT_ANSWER:
        raise Wrong(WITHOUT_ANSWER[error.code], SILENT)
    lines = [line.strip() for line in (error.reason or "").splitlines() if line.strip()]
    said = f": {lines[-1][:LONGEST_REASON]}" if lines else ""
    what = "crashed" if error.code == CRASHED else f"replied with an error (Flower's code {error.code})"
    raise Wrong(f"{what}{said}", ERROR)


def _metrics(content: RecordDict) -> Mapping[str, Any]:
    records = content.metric_records
    if wire.METRICS in records:
        return records[wire.METRICS]
    if len(records) != 1:
        raise Wrong(f"sent {len(records)} records of metrics, where one is needed (named {wire.METRICS!r})", SIGNALS)
    return next(iter(records.values()))


def _examples(metrics: Mapping[str, Any], expected: Expected) -> int:
    key = expected.examples_key
    if key not in metrics:
        raise Wrong(f"sent no {key!r}. It must reply with {wire.HOW_TO_SEND[wire.EXAMPLES]}: metrics[{key!r}] = ...", SIZES)
    rows = _count(key, metrics[key], SIZES)
    if rows == 0:
        raise Wrong(f"says that it has no training rows ({key!r} is 0)", SIZES)
    if expected.examples is not None and rows != expected.examples:
        raise Wrong(f"says {rows:,} training rows, but said {expected.examples:,} before the first round", SIZES)
    return rows


def _count(key: str, value: Any, kind: str) -> int:
    number = _number(key, value, kind)
    if number < 0 or number != np.floor(number):
        raise Wrong(f"sent {number:g} as {key!r}, which must be a whole number of at least 0", kind)
    if number > MOST_ROWS:
        raise Wrong(f"sent {number:g} as {key!r}, which no client can have", kind)
    return int(number)


def _number(key: str, value: Any, kind: str = SIGNALS) -> float:
    if isinstance(value, list) or not isinstance(value, int | float | np.number):
        raise Wrong(f"sent {_brief(value)} as {key!r}, which must be one number", kind)
    if not np.isfinite(value):
        raise Wrong(f"sent {value} as {key!r}, which must be a finite number", kind)
    return float(value)


def _signal(need: str, metrics: Mapping[str, Any], examples: int, expected: Expected) -> np.ndarray:
    key = wire.SIGNALS[need]
    if key not in metrics:
        how = wire.HOW_TO_SEND[key]
        raise Wrong(f"sent no {key!r}. {expected.method or 'The method'} needs {how}: metrics[{key!r}] = ...", SIGNALS)
    if need == "loss":
        return np.asarray(_loss(key, metrics[key], expected))
    if need == "unprivileged":
        return np.asarray(_part(key, metrics[key], examples))
    if need == "choice":
        return np.asarray(_choice(metrics[key], expected))
    if need == "table":
        return _table(key, metrics, examples, expected)
    return _cell_loss(key, metrics, examples, expected)


def _loss(key: str, value: Any, expected: Expected) -> float:
    loss = _number(key, value)
    if loss < 0:
        raise Wrong(f"sent {loss:g} as {key!r}, and a loss must be at least 0", SIGNALS)
    if loss > expected.largest_loss:
        raise Wrong(f"sent {loss:g} as {key!r}, far above what a mean loss can be ({expected.largest_loss:g})", SIGNALS)
    return loss


def _part(key: str, value: Any, examples: int) -> int:
    rows = _count(key, value, SIGNALS)
    if rows > examples:
        raise Wrong(f"sent {rows:,} as {key!r}, more than its {examples:,} rows", SIGNALS)
    return rows


def _choice(value: Any, expected: Expected) -> int:
    choice = _number(wire.CHOICE, value)
    if choice != np.floor(choice) or not 0 <= choice < expected.models:
        raise Wrong(f"chose model {choice:g}, but there are models 0 to {expected.models - 1}", SIGNALS)
    return int(choice)


def _array(key: str, metrics: Mapping[str, Any], wanted: tuple[int | None, ...]) -> np.ndarray:
    try:
        found = wire.get(metrics, key)
    except (ValueError, TypeError) as error:
        raise Wrong(f"sent {key!r} in a form that cannot be read: {error}", SIGNALS) from None
    assert found is not None  # it is there: the caller looked
    if found.ndim != len(wanted) or any(w not in (None, own) for own, w in zip(found.shape, wanted, strict=True)):
        shape, said = [*("any" if w is None else w for w in wanted)], f"{key}{wire.SHAPE}"
        raise Wrong(f"sent {key!r} with shape {list(found.shape)}, where {shape} is needed; {said!r} says the shape", SIGNALS)
    if not np.isfinite(found).all() or (found < 0).any():
        raise Wrong(f"sent {key!r} with entries that are negative or not finite", SIGNALS)
    return found


def _table(key: str, metrics: Mapping[str, Any], examples: int, expected: Expected) -> np.ndarray:
    groups, labels = expected.cells or (None, None)
    table = _array(key, metrics, (groups, labels, labels))
    if table.shape[1] != table.shape[2]:
        raise Wrong(f"sent {key!r} with {table.shape[1]} labels but {table.shape[2]} outcomes", SIGNALS)
    if (table != np.floor(table)).any():
        raise Wrong(f"sent {key!r} with entries that are not whole numbers, though they count rows", SIGNALS)
    if table.sum() != examples:
        raise Wrong(f"sent {key!r} that counts {table.sum():,.0f} rows, but says that there are {examples:,}", SIGNALS)
    return table


def _cell_loss(key: str, metrics: Mapping[str, Any], examples: int, expected: Expected) -> np.ndarray:
    losses = _array(key, metrics, expected.cells or (None, None))
    if losses.sum() > expected.largest_loss * examples:
        raise Wrong(f"sent {key!r} with a mean of {losses.sum() / examples:g} a row, far above what a loss can be", SIGNALS)
    return losses


def _check_norm(metrics: Mapping[str, Any]) -> None:
    if wire.SQUARE_NORM in metrics and _number(wire.SQUARE_NORM, metrics[wire.SQUARE_NORM]) < 0:
        raise Wrong(f"sent a negative {wire.SQUARE_NORM!r}", SIGNALS)


def _arrays(content: RecordDict, expected: Expected) -> ArrayRecord:
    records = content.array_records
    if expected.arrays_key not in records and len(records) != 1:
        raise Wrong(f"sent {len(records)} models, where one is needed (named {expected.arrays_key!r})", ARRAYS)
    arrays = records.get(expected.arrays_key) or next(iter(records.values()))
    layout = expected.layout
    assert layout is not None  # the caller asked for arrays
    if arrays.keys() != set(layout.names):
        raise Wrong(_other_names(list(arrays), list(layout.names)), ARRAYS)
    for name, shape, dtype in zip(*layout, strict=True):
        try:
            found = wire.read(arrays[name])
        except (ValueError, TypeError, EOFError) as error:
            raise Wrong(f"sent array {name!r} in a form that cannot be read: {str(error)[:LONGEST_REASON]}", ARRAYS) from None
        if found.shape != shape:
            raise Wrong(f"sent array {name!r} with shape {list(found.shape)}, where the model has {list(shape)}", ARRAYS)
        if _kind(found.dtype) != _kind(dtype):
            raise Wrong(f"sent array {name!r} with numbers of type {found.dtype}, where the model has {dtype}", ARRAYS)
        if not is_finite(found):
            raise Wrong(f"sent NaN or infinity in array {name!r}", ARRAYS)
        if expected.ranked and not _places(found):
            raise Wrong(f"sent an order in array {name!r} that does not name every place once", ARRAYS)
    return arrays


def _other_names(found: list[str], wanted: list[str]) -> str:
    text = f"sent {len(found)} arrays, where the model has {len(wanted)}"
    missing, strange = [name for name in wanted if name not in found], [name for name in found if name not in wanted]
    parts = ([f"{missing[0]!r} is missing"] if missing else []) + ([f"{strange[0]!r} is not one of them"] if strange else [])
    return f"{text}: {' and '.join(parts)}"


def is_finite(array: np.ndarray) -> bool:
    """Whether all entries are finite, in one pass: a sum of squares is finite only then, unless it overflows."""
    if array.dtype.kind not in "fc" or not array.size:
        return True
    flat = array.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        square = np.vdot(flat, flat)
    return bool(np.isfinite(square) or np.isfinite(flat).all())


def _places(array: np.ndarray) -> bool:
    flat = array.ravel()
    inside = flat.size == 0 or (flat.min() >= 0 and flat.max() < flat.size)
    return bool(inside and (np.bincount(flat.astype(np.int64), minlength=flat.size) == 1).all())


def _kind(dtype: np.dtype[Any]) -> str:
    """Types of one kind can stand for each other: float16, float32 and float64, say; signs of whole numbers are no matter."""
    return "i" if dtype.kind == "u" else dtype.kind


def _evaluated(metrics: Mapping[str, Any], prefix: str, expected: Expected) -> dict[str, Any]:
    key = prefix + wire.EXAMPLES
    named = {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}
    if key in metrics:
        rows = _count(key, metrics[key], SIZES)
    elif wire.TABLE in named and prefix:  # the table says it
        rows = int(np.sum(named[wire.TABLE]))
    else:
        raise Wrong(f"sent no {key!r}, how many rows it evaluated the model on: metrics[{key!r}] = ...", SIZES)
    loss = _loss(prefix + wire.LOSS, named[wire.LOSS], expected) if wire.LOSS in named and rows else np.nan
    table = _table(wire.TABLE, named, rows, expected) if wire.TABLE in named else None
    correct = None
    if table is None and "accuracy" in named:
        accuracy = _number(prefix + "accuracy", named["accuracy"]) if rows else 0.0
        if not 0 <= accuracy <= 1:
            raise Wrong(f"sent {accuracy:g} as {prefix + 'accuracy'!r}, which must be a share from 0 to 1", SIGNALS)
        correct = round(accuracy * rows)
    if expected.cells and expected.cells[0] > 1 and table is None and rows:
        raise Wrong(f"sent no {prefix + wire.TABLE!r}, though the federation has groups: an accuracy does not say whose", SIGNALS)
    return {"examples": rows, "loss": loss, "table": table, "correct": correct}


def _brief(value: Any) -> str:
    return repr(value)[:60]


def tell(left_out: Iterable[LeftOut], names: Mapping[int, str]) -> list[str]:
    """A sentence for each: who, and why."""
    return [f"{names.get(one.client, f'node {one.node}')} (node {one.node}) {one.reason}." for one in left_out]

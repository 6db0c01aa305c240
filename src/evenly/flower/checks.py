"""Checks of the arrays and numbers in a reply, before anything is computed with them."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
from flwr.app import ArrayRecord, Error, Message, RecordDict
from flwr.serverapp import Grid

from evenly.experiment.deployment import Exclusion
from evenly.flower import wire

# What a reply must hold, and how it is said that it does not.

Read = TypeVar("Read")

LARGEST_LOSS = 1e6  # of one row, on average: no loss that training can lower is above
LONGEST_REASON = 300

# Kinds of reasons, as the report counts them.
SILENT, ERROR, ARRAYS, SIZES, SIGNALS = (
    "no answer",
    "an error",
    "unusable arrays",
    "unusable sizes",
    "unusable signals",
)


class ReplyError(Exception):
    """What is wrong with a reply: a reason in words, and its kind."""


def printable(text: str, most: int = LONGEST_REASON) -> str:
    """Text of a client in one short line without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * most]).split())[:most]


class ReplySpec(NamedTuple):
    """Requirements on one reply."""

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
    # two-phase rounds: what it was told to multiply its update by
    coefficient: np.ndarray | None = None
    # whether its arrays mean nothing before they are added to those of the others
    masked: bool = False
    arrays_key: str = wire.ARRAYS
    examples_key: str = wire.EXAMPLES
    largest_loss: float = LARGEST_LOSS
    most_bytes: int | None = None  # of the whole reply; None: any

    def left_out(self, reason: str, kind: str) -> Exclusion:
        return Exclusion(
            self.node,
            self.client,
            self.round,
            printable(reason, 2 * LONGEST_REASON),
            kind,
            self.phase,
        )


def read_or_exclude(expected: ReplySpec, reading: Callable[[], Read]) -> Read | Exclusion:
    """Read a reply; turn any exception into an exclusion of that client.

    Every reading of a reply goes through here: of training, measuring, evaluations and the census.
    """
    try:
        with np.errstate(all="ignore"):
            return reading()
    except ReplyError as wrong:
        reason, kind = wrong.args
    except Exception as error:  # whoever wrote the reply chooses how its reading fails
        reason, kind = (
            f"sent a reply that cannot be read ({type(error).__name__}: {printable(str(error))})",
            ERROR,
        )
    return expected.left_out(reason, kind)


# Replies as they come: pulled one by one, each under the name of the node that was asked.
#
# Flower's `send_and_receive` holds all replies before anybody looks at one, believes what a reply
# says of its sender, and ends the run where one of them cannot be decoded. Here a reply is looked
# at before the next one is pulled, so that those which are too large are let go one by one. A reply
# counts only if it answers the message that was sent to its node, and whatever its decoding raises
# is handed on as an error of that node.

# a code beside Flower's own, for a reply that cannot be decoded or is not the node's
UNREADABLE = 900
# seconds between two looks at who has answered; the longest is Flower's own
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 3.0


def replies_to(grid: Grid, messages: Iterable[Message], timeout: float) -> Iterator[Message]:
    """Send messages now, and yield at most one reply to each until the timeout in seconds."""
    sent = list(messages)
    stored = set(grid.push_messages(sent)) if sent else set()
    return _pull_all(
        grid,
        {key: message for message in sent if (key := message.metadata.message_id) in stored},
        timeout,
    )


def _pull_all(grid: Grid, waiting: dict[str, Message], timeout: float) -> Iterator[Message]:
    end, pause = time.monotonic() + timeout, SHORTEST_PAUSE
    while waiting:
        for key in list(waiting):
            if time.monotonic() >= end:
                return
            reply = _pull(grid, key, waiting[key])
            if reply is not None:
                del waiting[key]
                yield reply
        if waiting:
            time.sleep(max(0.0, min(pause, end - time.monotonic())))
            pause = min(2 * pause, LONGEST_PAUSE)


def _pull(grid: Grid, key: str, asked: Message) -> Message | None:
    """Reply to one message; None if there is none yet."""
    try:
        found = next(
            (
                reply
                for reply in grid.pull_messages([key])
                if reply.metadata.reply_to_message_id == key
            ),
            None,
        )
    except Exception as error:  # whoever wrote the reply chooses how its decoding fails
        return _unreadable(
            asked,
            f"sent a reply that could not be fetched and decoded ({type(error).__name__}:"
            f" {printable(str(error))})",
        )
    if found is None:
        return None
    if found.has_error():  # of the node, or of the SuperLink about it
        error = found.error
        return Message(
            Error(0, error.reason) if error.code == UNREADABLE else error, reply_to=asked
        )
    if found.metadata.src_node_id != asked.metadata.dst_node_id:
        return _unreadable(asked, f"replied in the name of node {found.metadata.src_node_id}")
    return found


def _unreadable(asked: Message, reason: str) -> Message:
    return Message(Error(UNREADABLE, reason), reply_to=asked)


# The arrays of a reply: the model's names, shapes and kinds of numbers, all of them finite. One
# pass, no copies.


def arrays_of(content: RecordDict, expected: ReplySpec) -> ArrayRecord:
    """Checked record of the trained model."""
    arrays, layout = record_of(content, expected), expected.layout
    assert layout is not None  # the caller asked for arrays
    if arrays.keys() != set(layout.names):
        raise ReplyError(_other_names(list(arrays), list(layout.names)), ARRAYS)
    for name, shape, dtype in zip(*layout, strict=True):
        try:
            found = wire.read(arrays[name])
        except (ValueError, TypeError, EOFError) as error:
            raise ReplyError(
                f"sent array {name!r} in a form that cannot be read: {str(error)[:LONGEST_REASON]}",
                ARRAYS,
            ) from None
        if found.shape != shape:
            raise ReplyError(
                f"sent array {name!r} with shape {list(found.shape)}, where the model has"
                f" {list(shape)}",
                ARRAYS,
            )
        if _kind(found.dtype) != _kind(dtype):
            raise ReplyError(
                f"sent array {name!r} with numbers of type {found.dtype}, where the model has"
                f" {dtype}",
                ARRAYS,
            )
        if not is_finite(found):
            raise ReplyError(f"sent NaN or infinity in array {name!r}", ARRAYS)
        if not _fits(found, dtype):
            what = "NaN or infinity in" if dtype.kind == "f" else "beyond"
            raise ReplyError(
                f"sent numbers in array {name!r} that are {what} the model's {dtype}", ARRAYS
            )
        if expected.ranked and not _places(found):
            raise ReplyError(
                f"sent an order in array {name!r} that does not name every place once", ARRAYS
            )
    return arrays


def record_of(content: RecordDict, expected: ReplySpec) -> ArrayRecord:
    """Record of arrays, unchecked."""
    records = content.array_records
    if expected.arrays_key not in records and len(records) != 1:
        raise ReplyError(
            f"sent {len(records)} models, where one is needed (named {expected.arrays_key!r})",
            ARRAYS,
        )
    return records.get(expected.arrays_key) or next(iter(records.values()))


def _other_names(found: list[str], wanted: list[str]) -> str:
    text = f"sent {len(found)} arrays, where the model has {len(wanted)}"
    missing, strange = (
        [name for name in wanted if name not in found],
        [name for name in found if name not in wanted],
    )
    parts = ([f"{missing[0]!r} is missing"] if missing else []) + (
        [f"{strange[0]!r} is not one of them"] if strange else []
    )
    return f"{text}: {' and '.join(parts)}"


def is_finite(array: np.ndarray) -> bool:
    """Whether all entries are finite. The sum of squares is finite only then, unless it
    overflows.
    """
    if array.dtype.kind not in "fc" or not array.size:
        return True
    flat = array.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        square = np.vdot(flat, flat)
    return bool(np.isfinite(square) or np.isfinite(flat).all())


def _fits(array: np.ndarray, dtype: np.dtype[Any]) -> bool:
    """Whether the model's type can represent the numbers."""
    if not array.size or array.dtype == dtype or dtype.kind not in "fiu":
        return True
    if dtype.kind == "f":
        return array.dtype.itemsize <= dtype.itemsize or bool(
            max(array.max(), -array.min()) <= np.finfo(dtype).max
        )
    return np.iinfo(dtype).min <= int(array.min()) and int(array.max()) <= np.iinfo(dtype).max


def _places(array: np.ndarray) -> bool:
    flat = array.ravel()
    inside = flat.size == 0 or (flat.min() >= 0 and flat.max() < flat.size)
    return bool(inside and (np.bincount(flat.astype(np.int64), minlength=flat.size) == 1).all())


def _kind(dtype: np.dtype[Any]) -> str:
    """Kind of a type. Floats of any precision are one kind, and so are signed and unsigned
    integers.
    """
    return "i" if dtype.kind == "u" else dtype.kind


# The numbers of a reply: sizes, losses, tables and choices that can be what they say they are.

MOST_ROWS = 2**31 - 1  # tables of counts hold no more
LARGEST, LARGEST_SINGLE = float(np.finfo(np.float64).max), float(np.finfo(np.float32).max)


def count(key: str, value: Any, kind: str) -> int:
    """A number of rows."""
    rows = number(key, value, kind)
    if rows < 0 or rows != np.floor(rows):
        raise ReplyError(
            f"sent {rows:g} as {key!r}, which must be a whole number of at least 0", kind
        )
    if rows > MOST_ROWS:
        raise ReplyError(f"sent {rows:g} as {key!r}, which no client can have", kind)
    return int(rows)


def number(key: str, value: Any, kind: str = SIGNALS) -> float:
    """One finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ReplyError(f"sent {_brief(value)} as {key!r}, which must be one number", kind)
    if not abs(value) <= LARGEST:  # NaN is not, either; and a whole number may be beyond any float
        raise ReplyError(f"sent {_brief(value)} as {key!r}, which must be a finite number", kind)
    return float(value)


def signal(need: str, metrics: Mapping[str, Any], examples: int, expected: ReplySpec) -> np.ndarray:
    """One signal that clients measure."""
    key = wire.SIGNALS[need]
    if key not in metrics:
        how = wire.HOW_TO_SEND[key]
        raise ReplyError(
            f"sent no {key!r}. {expected.method or 'The method'} needs {how}: metrics[{key!r}]"
            " = ...",
            SIGNALS,
        )
    check = {
        "loss": lambda: np.asarray(loss(key, metrics[key], expected)),
        "unprivileged": lambda: np.asarray(part(key, metrics[key], examples)),
        "choice": lambda: np.asarray(choice(metrics[key], expected)),
        "table": lambda: table(key, metrics, examples, expected),
        "valid_table": lambda: table(key, metrics, None, expected),
        "cell_loss": lambda: cell_loss(key, metrics, examples, expected),
    }
    return check[need]()


def loss(key: str, value: Any, expected: ReplySpec) -> float:
    """A mean loss."""
    mean = number(key, value)
    if mean < 0:
        raise ReplyError(f"sent {mean:g} as {key!r}, and a loss must be at least 0", SIGNALS)
    if mean > expected.largest_loss:
        raise ReplyError(
            f"sent {mean:g} as {key!r}, far above what a mean loss can be"
            f" ({expected.largest_loss:g})",
            SIGNALS,
        )
    return mean


def part(key: str, value: Any, examples: int) -> int:
    """A number of rows that is at most the client's."""
    rows = count(key, value, SIGNALS)
    if rows > examples:
        raise ReplyError(f"sent {rows:,} as {key!r}, more than its {examples:,} rows", SIGNALS)
    return rows


def choice(value: Any, expected: ReplySpec) -> int:
    """Number of one of several models."""
    model = number(wire.CHOICE, value)
    if model != np.floor(model) or not 0 <= model < expected.models:
        raise ReplyError(
            f"chose model {model:g}, but there are models 0 to {expected.models - 1}", SIGNALS
        )
    return int(model)


def array(key: str, metrics: Mapping[str, Any], wanted: tuple[int | None, ...]) -> np.ndarray:
    """An array of non-negative finite numbers with this shape; None: any length."""
    try:
        found = wire.get(metrics, key)
    except ValueError as error:
        raise ReplyError(f"sent {key!r} in a form that cannot be read: {error}", SIGNALS) from None
    assert found is not None  # it is there: the caller looked
    if found.ndim != len(wanted) or any(
        w not in (None, own) for own, w in zip(found.shape, wanted, strict=True)
    ):
        shape, said = [*("any" if w is None else w for w in wanted)], f"{key}{wire.SHAPE}"
        raise ReplyError(
            f"sent {key!r} with shape {list(found.shape)}, where {shape} is needed; {said!r} says"
            " the shape",
            SIGNALS,
        )
    if not found.size:
        raise ReplyError(f"sent {key!r} without an entry, with shape {list(found.shape)}", SIGNALS)
    if not np.isfinite(found).all() or (found < 0).any():
        raise ReplyError(f"sent {key!r} with entries that are negative or not finite", SIGNALS)
    return found


def table(
    key: str, metrics: Mapping[str, Any], examples: int | None, expected: ReplySpec
) -> np.ndarray:
    """Counts of rows by group, label and outcome, which must sum to `examples` unless
    that is None.
    """
    groups, labels = expected.cells or (None, None)
    found = counts(key, metrics, (groups, labels, labels))
    if found.shape[1] != found.shape[2]:
        raise ReplyError(
            f"sent {key!r} with {found.shape[1]} labels but {found.shape[2]} outcomes", SIGNALS
        )
    if examples is not None and found.sum() != examples:
        raise ReplyError(
            f"sent {key!r} that counts {found.sum():,.0f} rows, but says that there are"
            f" {examples:,}",
            SIGNALS,
        )
    return found


def counts(key: str, metrics: Mapping[str, Any], wanted: tuple[int | None, ...]) -> np.ndarray:
    """Counts of rows with this shape; None: any length."""
    found = array(key, metrics, wanted)
    if (found != np.floor(found)).any():
        raise ReplyError(
            f"sent {key!r} with entries that are not whole numbers, though they count rows", SIGNALS
        )
    if found.sum() > MOST_ROWS:
        raise ReplyError(
            f"sent {key!r} that counts {found.sum():,.0f} rows, which no client can have", SIGNALS
        )
    return found


def cell_loss(
    key: str, metrics: Mapping[str, Any], examples: int, expected: ReplySpec
) -> np.ndarray:
    """Summed losses by group and label."""
    losses = array(key, metrics, expected.cells or (None, None))
    if losses.sum() > expected.largest_loss * examples:
        raise ReplyError(
            f"sent {key!r} with a mean of {losses.sum() / examples:g} a row, far above what a loss"
            " can be",
            SIGNALS,
        )
    return losses


def check_norm(metrics: Mapping[str, Any], expected: ReplySpec) -> None:
    """Check the squared length of an update, which is required where the method needs it and the
    server sees only a sum.
    """
    if "square_norm" in expected.needs and wire.SQUARE_NORM not in metrics:
        key, how = wire.SQUARE_NORM, wire.HOW_TO_SEND[wire.SQUARE_NORM]
        raise ReplyError(
            f"sent no {key!r}. {expected.method or 'The method'} needs {how}: metrics[{key!r}]"
            " = ...",
            SIGNALS,
        )
    if wire.SQUARE_NORM not in metrics:
        return
    square = number(wire.SQUARE_NORM, metrics[wire.SQUARE_NORM])
    if square < 0:
        raise ReplyError(f"sent a negative {wire.SQUARE_NORM!r}", SIGNALS)
    if square > LARGEST_SINGLE:
        raise ReplyError(
            f"sent {square:g} as {wire.SQUARE_NORM!r}, which is infinity in single precision",
            SIGNALS,
        )


def check_coefficient(metrics: Mapping[str, Any], expected: ReplySpec) -> None:
    """Check that a client repeats its coefficient: a client without two-phase rounds would send a
    whole model.
    """
    if expected.coefficient is None:
        return
    key, told = wire.COEFFICIENT, np.ravel(expected.coefficient).tolist()
    if key not in metrics:
        how = "multiply trained minus received by it and repeat it"
        raise ReplyError(
            f"sent no {key!r}. In two-phase rounds it must {how}: metrics[{key!r}] ="
            f" config[{key!r}]",
            SIGNALS,
        )
    sent = metrics[key]
    found = np.array([number(key, one) for one in (sent if isinstance(sent, list) else [sent])])
    if found.shape != np.shape(told) or not np.allclose(found, told, rtol=1e-5, atol=0):
        raise ReplyError(
            f"multiplied its update by {_brief(metrics[key])}, where it was told"
            f" {told if len(told) > 1 else told[0]}",
            SIGNALS,
        )


def _brief(value: Any) -> str:
    """Beginning of a value. Python does not print integers of thousands of digits."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return "a whole number beyond any float"
    return repr(value[:9] if isinstance(value, list) else value)[:60]

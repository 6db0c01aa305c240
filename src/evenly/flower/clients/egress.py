"""The egress log of a site: every number that left, and every request that was refused.

One JSON object on each line, only ever appended. Each line holds the digest of the one before, so
that a line which is changed or taken out is noticed. The log is also the memory of the policy: how
many rounds were answered today, which tables left already, and of which rows.
"""

import datetime
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.flower import wire
from evenly.validation import check_kinds, kinds_of, plain_json

ONLY_OWNER = 0o600
START = "0" * 64  # the digest before the first line
LEFT, REFUSED, WITHHELD, FAILED = "left", "refused", "withheld", "failed"
PLAIN = {
    "census": "introduced itself",
    "measure": "measured the model it received",
    "train": "trained",
    "evaluate": "evaluated a model",
    "audit": "answered an audit",
}
WORDS = {
    wire.EXAMPLES: "number of rows",
    wire.LOSS: "mean loss",
    wire.TABLE: "rows by group, true label and predicted label",
    wire.CELL_LOSS: "sum of losses by group and label",
    wire.UNPRIVILEGED: "number of rows of people in unprivileged groups",
    wire.CHOICE: "number of the model it chose",
    wire.SQUARE_NORM: "squared length of its update",
    wire.COEFFICIENT: "factor of its update, as received",
    wire.CELLS: "rows by group and label",
    wire.SCORE_FIRST: "rows by group, label and the lowest score of their range",
    wire.SCORE_LAST: "rows by group, label and the highest score of their range",
    wire.CLIENT: "its number among the clients",
    wire.CLIENT_GROUP: "the group it belongs to as a whole",
}


class EgressError(ValueError):
    """A log that cannot be written, or that was changed."""


class EgressEntry(NamedTuple):
    """One line of the log."""

    time: str  # local time with its offset, to the second
    run: str  # Flower's number of the run
    kind: str  # census, measure, train, evaluate, audit, or another kind that was refused
    round: int
    # left; refused, before rows were looked at; withheld, after it; or failed
    decision: str
    words: str  # the refusal in words; empty if something left
    method: str = ""
    request: str = ""  # digest of what was asked
    pinned: Mapping[str, Any] = {}  # seeds and number that the server gave this client
    state: str = ""  # the policy's name for the state of the rows
    rows: str = ""  # digest of the rows; empty for clients that are written by hand
    numbers: Mapping[str, Any] = {}  # every number that left, by the name of its metric
    arrays: Mapping[str, Sequence[int]] = {}  # shapes of the arrays that left, by name
    about: Mapping[str, Any] = {}  # names that left

    @property
    def day(self) -> str:
        return self.time[:10]


class EgressLog:
    """The log in a file. Entries are read once, under a lock that lasts until the answer left."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[EgressEntry] = []
        self._last = START

    @contextmanager
    def locked(self) -> Iterator["EgressLog"]:
        """Read the log and keep it from other processes of this site meanwhile."""
        import fcntl  # not on every system; where it is missing, nothing is answered

        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, ONLY_OWNER)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self.entries, self._last = _read(self.path)
            yield self
        finally:
            os.close(descriptor)

    def append(self, entry: EgressEntry) -> None:
        """Add a line and wait until it is on the disk."""
        told = {**entry._asdict(), "before": self._last}
        line = json.dumps(told, allow_nan=True).encode("ascii")
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        before = os.fstat(descriptor).st_size
        try:
            left = line + b"\n"
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        except OSError:  # half a line would read as a log that somebody changed
            os.ftruncate(descriptor, before)
            raise
        finally:
            os.close(descriptor)
        self.entries.append(entry)
        self._last = _digest(line)


def read_egress(path: Path) -> list[EgressEntry]:
    """Read an egress log.

    Args:
        path: The file that the policy calls `log`.

    Returns:
        Its entries, oldest first.

    Raises:
        EgressError: If the file is missing, or a line was changed, added or taken out.
    """
    if not path.is_file():
        raise EgressError(f"There is no egress log {path}. A client with a policy writes it.")
    return _read(path)[0]


def _read(path: Path) -> tuple[list[EgressEntry], str]:
    entries, last = list[EgressEntry](), START
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            told = plain_json(line.decode("ascii"))
            if told.pop("before") != last:
                raise ValueError("the line before it is not the one that it was written after")
            check_kinds(told, kinds_of(EgressEntry), complete=True)
            entries.append(EgressEntry(**told))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise EgressError(
                f"{path}, line {number}: the log was changed or is damaged ({error}). Nothing is"
                " answered while it is there. Keep the file for those who investigate, and move it."
            ) from None
        last = _digest(line)
    return entries, last


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def now() -> str:
    """Local time, as an entry holds it."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def examined_today(entries: Iterable[EgressEntry], kind: str, today: str) -> set[str]:
    """Requests of this kind for which rows were looked at today. An answer that was withheld counts
    as well: that it was tells something about the rows.
    """
    return {
        one.request
        for one in entries
        if one.decision != REFUSED and one.kind == kind and one.day == today
    }


def tables_that_left(entries: Iterable[EgressEntry], key: str, rows: str) -> list[np.ndarray]:
    """Tables of these rows that left before under this name."""
    return [
        np.asarray(one.numbers[key]).reshape(one.numbers[key + wire.SHAPE])
        for one in entries
        if one.decision == LEFT and one.rows == rows and key + wire.SHAPE in one.numbers
    ]


def sentences(entry: EgressEntry) -> list[str]:
    """An entry in words for people who do not program: what was asked, and what left.

    >>> print(*sentences(EgressEntry("2026-11-18T09:00:00+00:00", "7", "train", 2, LEFT, "",
    ...     "fedavg", numbers={"num-examples": 80}, arrays={"w": [4, 2]})), sep="\\n")
    2026-11-18 09:00:00  run 7, round 2: this site trained with fedavg. This left:
      a trained model of 8 numbers (w: 4 x 2)
      number of rows: 80
    """
    where = f"{entry.time[:19].replace('T', ' ')}  run {entry.run}"
    where += f", round {entry.round}" if entry.round else ""
    if entry.decision != LEFT:
        what = "failed, and nothing left" if entry.decision == FAILED else "refused"
        return [_on_one_line(f"{where}: {what}: {entry.kind}. {entry.words}")]
    with_method = f" with {entry.method}" if entry.method and entry.kind != "census" else ""
    did = PLAIN.get(entry.kind, entry.kind)
    return [
        _on_one_line(f"{where}: this site {did}{with_method}. This left:"),
        *(f"  {_on_one_line(line)}" for line in _what_left(entry)),
    ]


def _on_one_line(text: str) -> str:
    """Text whose words a server may have chosen, with line breaks and control characters written
    out: nothing in it can pass for another entry.
    """
    return "".join(own if own.isprintable() else repr(own)[1:-1] for own in text)


def _what_left(entry: EgressEntry) -> Iterator[str]:
    if entry.arrays:
        count = sum(int(np.prod(shape)) for shape in entry.arrays.values())
        shapes = ", ".join(
            f"{name}: {' x '.join(map(str, shape)) or 'one number'}"
            for name, shape in entry.arrays.items()
        )
        yield f"a trained model of {count:,} numbers ({shapes})"
    for name, value in entry.numbers.items():
        if not name.endswith(wire.SHAPE):
            shape = entry.numbers.get(name + wire.SHAPE)
            shown = np.asarray(value).reshape(shape).tolist() if shape else value
            yield f"{metric_words(name)}: {shown}"
    for name, value in entry.about.items():
        yield f"{name}: {'; '.join(map(str, value)) if isinstance(value, list) else value}"


def metric_words(name: str) -> str:
    """A metric in words.

    >>> metric_words("train-loss"), metric_words("seconds")
    ('mean loss on training rows', 'seconds')
    """
    for prefix, rows in (("train-", "training"), ("valid-", "validation")):
        if name.startswith(prefix) and name.removeprefix(prefix) in WORDS:
            return f"{WORDS[name.removeprefix(prefix)]} on {rows} rows"
    return WORDS.get(name, name)

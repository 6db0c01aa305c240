"""Reading a live file while it grows, and other files of a folder: plain files inside it only, with every record checked."""

import os
from math import isfinite
from pathlib import Path
from typing import IO, Any

from evenly.experiment.observe import FORMAT
from evenly.outside import check_kinds, fits, plain_json

LATEST = 1e11  # seconds, in the year 5138: a time beyond is none
RUN = list[Any]  # a label and a seed
HEAD = {
    "live": int, "time": float, "pid": int, "host": str, "name": str, "data": str, "rounds": int, "splits": list[str], "runs": list[RUN],
}  # fmt: skip
NOTE = {
    "time": float, "label": str, "seed": int, "round": int, "values": dict[str, dict[str, float]], "done": int, "total": int,
    "started": list[RUN], "failed": list[RUN], "error": str, "end": str,
}  # fmt: skip
LARGEST = 2**53  # whole numbers beyond are not exact as floating-point numbers
MOST = 1e300  # a value beyond is none
TOGETHER = ({"label", "seed", "round", "values"}, {"done", "total"}, {"started"}, {"failed"}, {"end"})  # what a note is about


def opened(folder: Path, path: Path) -> IO[bytes]:
    """A plain file inside a folder. A link, or a file behind one, may be anybody's: it is treated as if it were not there."""
    inside = path.resolve().is_relative_to(folder.resolve())
    if not inside or path.is_symlink() or not path.is_file():
        raise FileNotFoundError(path)
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")


def read_object(folder: Path, name: str) -> dict[str, Any]:
    """The JSON object in a file of a folder; an empty one where there is none."""
    try:
        with opened(folder, folder / name) as file:
            found = plain_json(file.read())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class Tail:
    """The records of a live file so far. Only what was added since the last time is read, a torn last line never."""

    def __init__(self, folder: Path, path: Path) -> None:
        self.folder, self.path = folder, path
        self._records: list[dict[str, Any]] = []
        self._file, self._offset = (0, 0), 0

    def read(self) -> list[dict[str, Any]]:
        """Every whole line, the head first; nothing where there is no file, or one of a later version."""
        try:
            with opened(self.folder, self.path) as file:
                self._continue(file.fileno())
                file.seek(self._offset)
                added = file.read()
        except OSError:
            self._forget((0, 0))
            return []
        whole = added[: added.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self._take(_parsed(line))
        return self._records if self._records and self._records[0].get("live") == FORMAT else []

    def _take(self, record: dict[str, Any] | None) -> None:
        """Keep a record that can be used. The first line must be a head; without one, nothing else can be understood."""
        if record is not None and (self._records or is_head(record)) and (not self._records or is_note(record)):
            self._records.append(record)

    def _continue(self, file: int) -> None:
        """Begin again where another file has taken the place of the one that was read."""
        found = os.fstat(file)
        if (found.st_dev, found.st_ino) != self._file or found.st_size < self._offset:
            self._forget((found.st_dev, found.st_ino))

    def _forget(self, file: tuple[int, int]) -> None:
        self._records, self._file, self._offset = [], file, 0


def is_head(record: dict[str, Any]) -> bool:
    """Whether a record says what runs, in a version that is known."""
    return (
        HEAD.keys() <= record.keys()
        and _kinds_fit(record, HEAD)
        and 0 <= record["time"] < LATEST
        and 0 < record["pid"] < 2**31
        and all(_is_run(run) for run in record["runs"])
    )


def is_note(record: dict[str, Any]) -> bool:
    """Whether a record is one of those that follow, whole and of the right kinds."""
    return (
        "time" in record
        and _kinds_fit(record, NOTE)
        and 0 <= record["time"] < LATEST
        and any(names <= record.keys() for names in TOGETHER)
        and not any(names & record.keys() and not names <= record.keys() for names in TOGETHER[:2])
        and all(_is_run(run) for name in ("started", "failed") for run in record.get(name, ()))
    )


def _kinds_fit(record: dict[str, Any], kinds: dict[str, Any]) -> bool:
    try:
        check_kinds(record, kinds)
    except ValueError:
        return False
    return all(abs(value) < LARGEST for value in record.values() if fits(value, int))


def _is_run(run: list[Any]) -> bool:
    return len(run) == 2 and fits(run[0], str) and fits(run[1], int) and abs(run[1]) < LARGEST


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = plain_json(line)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    if isinstance(found.get("values"), dict):  # NaN and infinities cannot be drawn
        found["values"] = {split: _finite(each) for split, each in found["values"].items()}
    return found


def _finite(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    return {name: value for name, value in values.items() if not fits(value, float) or (abs(value) < MOST and isfinite(value))}

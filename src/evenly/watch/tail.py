"""Reading a live file while it grows."""

import json
import os
from pathlib import Path
from typing import Any

from evenly.experiment.live import FORMAT


class Tail:
    """The records of a live file so far. Only what was added since the last time is read, a torn last line never."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: list[dict[str, Any]] = []
        self._file, self._offset = (0, 0), 0

    def read(self) -> list[dict[str, Any]]:
        """Every whole line, the head first; nothing where there is no file, or one of a later version."""
        try:
            with open(self.path, "rb") as file:
                self._continue(file.fileno())
                file.seek(self._offset)
                added = file.read()
        except FileNotFoundError:
            self._forget((0, 0))
            return []
        whole = added[: added.rfind(b"\n") + 1]
        self._offset += len(whole)
        self._records += [record for line in whole.splitlines() if (record := _parsed(line)) is not None]
        return self._records if self._records and self._records[0].get("live") == FORMAT else []

    def _continue(self, file: int) -> None:
        """Begin again where another file has taken the place of the one that was read."""
        found = os.fstat(file)
        if (found.st_dev, found.st_ino) != self._file or found.st_size < self._offset:
            self._forget((found.st_dev, found.st_ino))

    def _forget(self, file: tuple[int, int]) -> None:
        self._records, self._file, self._offset = [], file, 0


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None

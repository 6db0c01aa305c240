"""What was read from files stays in memory while they are the same: an experiment loads its data once for every seed.

Only the files of one folder are kept, so that no more than one data set lies in memory besides what is in use.
"""

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Parsed = TypeVar("Parsed", np.ndarray, dict[str, np.ndarray])

_lock = threading.Lock()  # seeds are loaded in threads
_kept: dict[tuple[str, Path], tuple[Any, Any]] = {}  # reader and file -> what the file was like, and what was read


def read_once(read: Callable[[Path], Parsed]) -> Callable[[Path], Parsed]:
    """A reader that parses a file again only after it has changed. Its arrays are shared and cannot be written to."""

    @functools.wraps(read)
    def reading(path: Path) -> Parsed:
        key, now = (read.__qualname__, path.absolute()), stamp(path)
        with _lock:
            seen, parsed = _kept.get(key, (None, None))
        if seen != now:
            parsed = _frozen(read(path))
            with _lock:
                for other in [other for other in _kept if other[1].parent != key[1].parent]:
                    del _kept[other]
                _kept[key] = now, parsed
        return parsed

    return reading


def stamp(path: Path) -> tuple[int, int, int]:
    """Another one after the file has changed."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _frozen(parsed: Parsed) -> Parsed:
    for array in parsed.values() if isinstance(parsed, dict) else [parsed]:
        array.setflags(write=False)
    return parsed

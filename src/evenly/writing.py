"""Files that are there whole, or not at all."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

# NumPy reads the header of an array by parsing it as Python, which in some Pythons fails when two threads do it at once
# (CPython issue 106905): whoever reads arrays where several seeds may be reading takes this lock.
READING = threading.Lock()


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> Path:
    """Write a file beside its place and rename it into it: a kill or a full disk leaves the old file, never half a new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        if error.errno is not None:  # a full disk does not say which file it was
            error.filename = error.filename or str(path)
        raise
    finally:
        beside.unlink(missing_ok=True)
    return path

"""Files that are there whole, or not at all, and cells of tables that are safe to open."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what makes a spreadsheet take a cell for a formula
NUMBERS = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?( [+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)*")


def csv_cell(value: Any) -> Any:
    """A value as a CSV file has it. Text that a spreadsheet would take for a formula begins with an apostrophe; numbers stay numbers.

    Names of clients, groups and columns come from the user's data, and whoever opens the file may not be who made it.

    >>> csv_cell("=1+1"), csv_cell("-7"), csv_cell("-1e-05 2.5"), csv_cell("St. Mary's"), csv_cell(-7)
    ("'=1+1", '-7', '-1e-05 2.5', "St. Mary's", -7)
    """
    if not isinstance(value, str) or not value.startswith(FORMULA) or NUMBERS.fullmatch(value):
        return value
    return f"'{value}"


def csv_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose names and values are safe to open."""
    return {csv_cell(name): csv_cell(value) for name, value in row.items()}


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

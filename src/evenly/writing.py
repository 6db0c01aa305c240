"""Atomic writes of files, and cells of CSV files that spreadsheets do not run as formulas."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # first characters of formulas
NUMBERS = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?( [+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)*"
)


def csv_cell(value: Any) -> Any:
    """A value for a CSV file. Text that a spreadsheet would run as a formula gets a leading
    apostrophe; numbers are unchanged.

    Names of clients, groups and columns come from the user's data and could contain formulas.

    >>> tuple(map(csv_cell, ("=1+1", "-7", "-1e-05 2.5", "St. Mary's", -7)))
    ("'=1+1", '-7', '-1e-05 2.5', "St. Mary's", -7)
    """
    if not isinstance(value, str) or not value.startswith(FORMULA) or NUMBERS.fullmatch(value):
        return value
    return f"'{value}"


def csv_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with names and values for a CSV file."""
    return {csv_cell(name): csv_cell(value) for name, value in row.items()}


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> Path:
    """Write a temporary file and rename it, so that an interruption or a full disk leaves the old
    file unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        if error.errno is not None:  # the error of a full disk has no file name
            error.filename = error.filename or str(path)
        raise
    finally:
        beside.unlink(missing_ok=True)
    return path

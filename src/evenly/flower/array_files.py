"""Files of the arrays of one model, with the names that they have in messages."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord

from evenly.archives import Archive, read_archive, write_archive
from evenly.flower import wire
from evenly.validation import check_kinds

FORMAT = 1


def write_arrays(path: Path, arrays: ArrayRecord, entries: Mapping[str, Any]) -> Path:
    """Write arrays and further entries, atomically."""
    stored = {f"array {i}": wire.read(array) for i, array in enumerate(arrays.values())}
    return write_archive(path, stored, {"names": list(arrays), **entries}, format=FORMAT)


def read_arrays(path: Path, entries: Mapping[str, Any]) -> tuple[ArrayRecord, dict[str, Any]]:
    """Read arrays and the header, whose `entries` have these kinds. Raises DamagedError if the file
    is damaged.
    """

    def parse(archive: Archive) -> tuple[ArrayRecord, dict[str, Any]]:
        check_kinds(archive.header, {"names": list[str]}, complete=True)
        check_kinds(archive.header, dict(entries))
        names = archive.header["names"]
        leaves = [np.asarray(archive.arrays[f"array {i}"]) for i in range(len(names))]
        return wire.record_of(names, leaves), archive.header

    return read_archive(path, parse, newest=FORMAT)

"""Checkpoints of a run, from which an interrupted run resumes with the same bits as one that was
never interrupted.
"""

import hashlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evenly.archives import Archive, leaves_of, read_archive, write_archive
from evenly.data.federation import Federation
from evenly.types import Task
from evenly.validation import fits

FORMAT = 4
CHECKPOINT_SECONDS = 20.0  # between two checkpoints, at least


class OldCheckpointError(ValueError):
    """A checkpoint that an earlier version of evenly wrote."""


def write_checkpoint(path: Path, fingerprint: str, done: int, tree: Any) -> None:
    """Save arrays under a fingerprint of everything that determines them."""
    write_archive(path, leaves_of(tree), {"done": done}, format=FORMAT, fingerprint=fingerprint)


def read_checkpoint(path: Path, fingerprint: str) -> tuple[int, list[np.ndarray]] | None:
    """The rounds done and the leaves saved, or None where there is no complete checkpoint of this
    run.

    Raises:
        OldCheckpointError: If an earlier version of evenly wrote the checkpoint.
    """

    def parse(archive: Archive) -> tuple[int, list[np.ndarray]] | int | None:
        header = archive.header
        if header.get("format", 0) < FORMAT:
            return header.get("format", 0)
        same_run = header["fingerprint"] == fingerprint and fits(header["done"], int)
        return (header["done"], archive.leaves()) if same_run else None

    try:
        found = read_archive(path, parse, newest=FORMAT) if path.exists() else None
    except ValueError:
        return None  # incomplete or foreign: starting over is safe, trusting it is not
    if isinstance(found, int):
        raise OldCheckpointError(
            f"{str(path)!r} is a half-finished run of an earlier version of evenly, whose rounds"
            " cannot be continued. Remove the file to start this run over, or finish it with that"
            " version. Runs that are finished are read as before."
        )
    return found


def fingerprint(federation: Federation, *settings: Any) -> str:
    """A hash of the data and of every setting that shapes a run."""
    digest = hashlib.blake2b(digest_size=16)
    for array in jax.tree.leaves(federation):
        # without a copy, which would take the memory twice
        digest.update(np.ascontiguousarray(array).data)
    digest.update(repr(jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), settings)).encode())
    return digest.hexdigest()


def task_text(task: Task) -> str:
    """A task as text, without the addresses of functions, which differ from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(task))


class CheckpointFile:
    """The checkpoint of a run, which is written every few seconds."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self._path, self._fingerprint = path, fingerprint
        self._last, self._pause = time.monotonic(), CHECKPOINT_SECONDS

    def read(self) -> tuple[int, list[np.ndarray]] | None:
        """The rounds done and the leaves saved, if there are any."""
        return read_checkpoint(self._path, self._fingerprint)

    def write(self, done: int, arrays: Callable[[], Any]) -> None:
        """Save the arrays after this many rounds."""
        write_checkpoint(self._path, self._fingerprint, done, arrays())

    def write_if_due(self, done: int, arrays: Callable[[], Any]) -> None:
        """Save the arrays if the last checkpoint is old enough. Writing takes at most a tenth of
        the time, or a second.
        """
        began = time.monotonic()
        if began - self._last > self._pause:
            self.write(done, arrays)
            self._last = time.monotonic()
            # the memories of clients may be gigabytes
            self._pause = max(CHECKPOINT_SECONDS, 10 * (self._last - began - 1))

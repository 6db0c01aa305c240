"""Checkpoints of a run, from which an interrupted run resumes with the same bits as one that was never interrupted."""

import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evenly.data.federation import Federation
from evenly.outside import fits
from evenly.saving import Archive, leaves_of, read_archive, write_archive

FORMAT = 2


def write_checkpoint(path: Path, fingerprint: str, done: int, tree: Any) -> None:
    """Save arrays under a fingerprint of everything that determines them."""
    write_archive(path, leaves_of(tree), {"done": done}, format=FORMAT, fingerprint=fingerprint)


def read_checkpoint(path: Path, fingerprint: str) -> tuple[int, list[np.ndarray]] | None:
    """The rounds done and the leaves saved, or None where there is no complete checkpoint of this run."""

    def parse(archive: Archive) -> tuple[int, list[np.ndarray]] | None:
        header = archive.header
        same_run = header["format"] == FORMAT and header["fingerprint"] == fingerprint and fits(header["done"], int)
        return (header["done"], archive.leaves()) if same_run else None

    try:
        return read_archive(path, parse, newest=FORMAT) if path.exists() else None
    except ValueError:
        return None  # incomplete or foreign: starting over is safe, trusting it is not


def fingerprint(federation: Federation, *settings: Any) -> str:
    """A hash of the data and of every setting that shapes a run."""
    digest = hashlib.blake2b(digest_size=16)
    for array in jax.tree.leaves(federation):
        digest.update(np.ascontiguousarray(array).data)  # read where it lies: a copy would take the memory twice
    digest.update(repr(jax.tree.map(_plain, settings)).encode())
    return digest.hexdigest()


def _plain(leaf: Any) -> Any:
    return np.asarray(leaf).tolist()

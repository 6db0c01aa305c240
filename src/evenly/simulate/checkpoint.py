"""Saving a run half-way, so that a killed run resumes with the same bits as one that was never killed.

A checkpoint is one npz file, written beside its place and renamed into it: it is there whole, or not at all.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evenly.data.federation import Federation
from evenly.outside import DAMAGED, fits, plain_json, read_arrays
from evenly.writing import write_whole

FORMAT = 2


def write(path: Path, fingerprint: str, done: int, tree: Any) -> None:
    """Save arrays under a fingerprint of everything that determines them."""
    leaves = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}
    header = json.dumps({"format": FORMAT, "fingerprint": fingerprint, "done": done})
    write_whole(path, lambda file: np.savez(file, header=np.array(header), **leaves))  # pyright: ignore[reportArgumentType]


def read(path: Path, fingerprint: str) -> tuple[int, list[np.ndarray]] | None:
    """The rounds done and the leaves saved, or None where there is no whole checkpoint of this very run."""
    if not path.exists():
        return None
    try:
        arrays = read_arrays(path)
        header = plain_json(str(arrays.pop("header")))
        if header["format"] != FORMAT or header["fingerprint"] != fingerprint or not fits(header["done"], int):
            return None
        return header["done"], [arrays[f"leaf{i}"] for i in range(len(arrays))]
    except DAMAGED:
        return None  # cut short or not ours: starting over is safe, trusting it is not


def fingerprint(federation: Federation, *settings: Any) -> str:
    """A hash of the data and of every setting that shapes a run."""
    digest = hashlib.blake2b(digest_size=16)
    for array in jax.tree.leaves(federation):
        digest.update(np.ascontiguousarray(array).data)  # read where it lies: a copy would take the memory twice
    digest.update(repr(jax.tree.map(_plain, settings)).encode())
    return digest.hexdigest()


def _plain(leaf: Any) -> Any:
    return np.asarray(leaf).tolist()

"""A folder of results. Every file is written beside its place and renamed into it, so nothing half-made is ever read."""

import json
import re
import shutil
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import jax
import numpy as np

from evenly.saving import Model, save
from evenly.types import Task, Trace
from evenly.writing import READING, write_whole

OWN = ("plan.json", "results.csv", "results.parquet", "report.html", "traces", "models", "checkpoints", "cells", "study.csv", "run.json")
COMPRESSED = 2**20  # bytes from which a file of traces is worth compressing
ARRAYS = [f for f in Trace._fields if f not in ("model", "upload", "download", "reports")]


class Settings(Protocol):
    """What a folder's results belong to: a plan, or a study of several."""

    def to_json(self) -> str: ...
    def fingerprint(self) -> str: ...
    @staticmethod
    def from_json(text: str) -> "Settings": ...


class Store:
    """The output folder of one plan. Opening it again with the same plan finds what is already there."""

    def __init__(self, folder: Path, plan: Settings, *, force: bool = False) -> None:
        self.folder = folder
        self._claim(plan, force)

    def _claim(self, plan: Settings, force: bool) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"The output {str(self.folder)!r} must be a folder, but it is a file. Choose another --out.")
        held = self.folder / "plan.json"
        if held.exists() and _same(held, plan):
            return
        if self.folder.exists() and any(self.folder.iterdir()):
            if not held.exists():
                raise ValueError(f"The folder {str(self.folder)!r} holds files that are not evenly's. Choose another --out.")
            if not force:
                raise ValueError(
                    f"The folder {str(self.folder)!r} holds the results of other settings. "
                    "Choose another --out, or replace them with --force."
                )
            self._clear()
        self.write("plan.json", lambda file: file.write(plan.to_json().encode()))

    def _clear(self) -> None:
        for name in OWN:
            path = self.folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def write(self, name: str, write: Callable[[IO[bytes]], Any]) -> Path:
        """Write a file whole: it appears under its name only when complete."""
        return write_whole(self.folder / name, write)

    def checkpoint(self, key: str) -> Path:
        return self.folder / "checkpoints" / f"{slug(key)}.npz"

    def save_traces(self, keys: Sequence[str], traces: Sequence[Trace], *, models: bool = True) -> None:
        """Keep runs that were made together, in one file; without their models, those come back empty."""
        arrays = {f"{i}.{name}": getattr(trace, name) for i, trace in enumerate(traces) for name in ARRAYS}
        leaves: dict[str, Any] = {
            f"{i}.model{j}": leaf for i, trace in enumerate(traces) for j, leaf in enumerate(jax.tree.leaves(trace.model))
        }
        leaves = leaves if models else dict.fromkeys(leaves, np.zeros(0, np.float32))
        reports = [dict(trace.reports) for trace in traces]
        header = json.dumps({"keys": list(keys), "bytes": [[trace.upload, trace.download] for trace in traces], "reports": reports})
        write = np.savez_compressed if sum(a.nbytes for a in arrays.values()) > COMPRESSED else np.savez
        self.write(self._traces(keys), lambda file: write(file, header=np.array(header), **arrays, **leaves))

    def _traces(self, keys: Sequence[str]) -> str:
        return f"traces/{slug('|'.join(keys))}.npz"

    def save_model(self, key: str, model: Model) -> None:
        """Keep a trained model for `evenly.load`, unless it is there already."""
        path = self.folder / "models" / f"{slug(key)}.npz"
        if not path.exists():
            save(model, path)

    def load_traces(self, keys: Sequence[str], task: Task) -> list[Trace] | None:
        """Runs that were made together and are finished, or None."""
        path = self.folder / self._traces(keys)
        if not path.exists():
            return None
        structure = jax.tree.structure(jax.eval_shape(task.init, jax.random.key(0)))
        with READING, np.load(path) as file:
            header = json.loads(str(file["header"]))
            reports = header.get("reports") or [{}] * len(keys)  # older files have none
            return [
                Trace(
                    **{name: file[f"{i}.{name}"] for name in ARRAYS if f"{i}.{name}" in file},  # older files have fewer
                    upload=upload,
                    download=download,
                    model=jax.tree.unflatten(structure, [file[f"{i}.model{j}"] for j in range(structure.num_leaves)]),
                    reports=reports[i],
                )
                for i, (upload, download) in enumerate(header["bytes"])
            ]


def slug(key: str) -> str:
    """A file name for a run: readable, safe, and different for different runs."""
    readable = re.sub(r"[^A-Za-z0-9.=-]+", "_", key).strip("_")[:80]
    return f"{readable}-{zlib.crc32(key.encode()):08x}"


def _same(path: Path, plan: Settings) -> bool:
    try:
        return plan.from_json(path.read_text()).fingerprint() == plan.fingerprint()
    except (ValueError, TypeError, KeyError):
        return False

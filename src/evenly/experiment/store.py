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

from evenly.experiment.plan import NewerError, plain
from evenly.models.task import skeleton
from evenly.outside import DAMAGED, check_kinds, plain_json, read_arrays
from evenly.saving import Model, save
from evenly.types import Task, Trace
from evenly.writing import write_whole

OWN = (
    "plan.json", "results.csv", "results.parquet", "report.html", "traces", "models", "checkpoints", "cells", "study.csv", "run.json",
    "live.jsonl", "logs", "programs.json", "study.db-journal", "study.db", "tuning.csv", "batches", "chosen", "history", "federation.json",
    "left_out.json", "options.json", "state.npz", "metrics.json",
)  # fmt: skip
LOCK = ".lock"  # who works in the folder: see lock.py
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
        if not held.exists():
            if self.folder.exists() and any(path.name != LOCK for path in self.folder.iterdir()):
                raise ValueError(f"The folder {str(self.folder)!r} holds files that are not evenly's. Choose another --out.")
        elif other := self._other(held, plan):
            if not force:
                raise ValueError(f"{other} Choose another --out, or replace them with --force.")
            self._clear()
        else:
            return
        self.write("plan.json", lambda file: file.write(plan.to_json().encode()))

    def _other(self, held: Path, plan: Settings) -> str:
        """What is wrong with going on here; nothing where the results are of this very plan."""
        try:
            there = plain(held.read_text())
        except NewerError as error:  # not even with --force: whoever made them can still read them
            raise ValueError(f"The folder {str(self.folder)!r} {error}, or choose another --out; nothing was touched.") from None
        except ValueError:
            return f"The plan.json in {str(self.folder)!r} is damaged, so it is not known what the results there are of."
        other = f"The folder {str(self.folder)!r} holds the results of other settings"
        try:
            if plan.from_json(held.read_text()).fingerprint() == plan.fingerprint():
                return ""
        except ValueError:  # a comparison where a study is wanted, or the other way round
            return f"{other}."
        here = plain(plan.to_json())
        differ = [name for name in here if here[name] != there.get(name)]
        return f"{other}: not the same {'is' if len(differ) == 1 else 'are'} {' and '.join(differ)}." if differ else f"{other}."

    def _clear(self) -> None:
        for name in reversed(OWN):  # the plan last: without it, what is left would be nobody's
            path = self.folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def write(self, name: str, write: Callable[[IO[bytes]], Any]) -> Path:
        """Write a file whole: it appears under its name only when complete."""
        return write_whole(self.folder / name, write)

    def checkpoint(self, key: str) -> Path:
        return self.folder / "checkpoints" / f"{slug(key)}.npz"

    def save_traces(self, keys: Sequence[str], traces: Sequence[Trace], *, models: bool = True) -> None:
        """Keep runs that were made together, in one file; without their models, those come back empty."""
        named = ((f"{i}.{name}", getattr(trace, name)) for i, trace in enumerate(traces) for name in ARRAYS)
        arrays = {name: array for name, array in named if array is not None}
        leaves: dict[str, Any] = {
            f"{i}.model{j}": leaf for i, trace in enumerate(traces) for j, leaf in enumerate(jax.tree.leaves(trace.model))
        }
        leaves = leaves if models else dict.fromkeys(leaves, np.zeros(0, np.float32))
        reports = [dict(trace.reports) for trace in traces]
        header = json.dumps({"keys": list(keys), "bytes": [[trace.upload, trace.download] for trace in traces], "reports": reports})
        write = np.savez_compressed if sum(a.nbytes for a in arrays.values()) > COMPRESSED else np.savez
        write_whole(self.traces_in(self.folder, keys), lambda file: write(file, header=np.array(header), **arrays, **leaves))
        self.checkpoint("|".join(keys)).unlink(missing_ok=True)  # only now: until here, it was all there was

    @staticmethod
    def traces_in(folder: Path, keys: Sequence[str]) -> Path:
        """Where runs that were made together are kept."""
        return folder / "traces" / f"{slug('|'.join(keys))}.npz"

    def save_model(self, key: str, model: Model) -> None:
        """Keep a trained model for `evenly.load`, unless it is there already."""
        path = self.folder / "models" / f"{slug(key)}.npz"
        if not path.exists():
            save(model, path)

    def load_traces(self, keys: Sequence[str], task: Task) -> list[Trace] | None:
        """Runs that were made together and are finished, or None."""
        path = self.traces_in(self.folder, keys)
        if not path.exists():
            return None
        structure = jax.tree.structure(skeleton(task))
        try:
            return _read_traces(path, keys, structure)
        except DAMAGED:
            raise ValueError(
                f"The traces {str(path)!r} are damaged. Remove the file; its runs are then trained again and all others stay."
            ) from None


def _read_traces(path: Path, keys: Sequence[str], structure: Any) -> list[Trace]:
    file = read_arrays(path)
    header = plain_json(str(file["header"]))
    check_kinds(header, {"keys": list[str], "bytes": list[list[float]], "reports": list[dict[str, Any]]})
    if header["keys"] != list(keys):  # a name holds only the beginning of the keys, and a number that others may share
        raise ValueError
    reports = header.get("reports") or [{}] * len(keys)  # older files have none
    return [
        Trace(
            **{name: file[f"{i}.{name}"] for name in ARRAYS if f"{i}.{name}" in file},  # older files have fewer
            upload=upload,
            download=download,
            model=jax.tree.unflatten(structure, [file[f"{i}.model{j}"] for j in range(structure.num_leaves)]),
            reports=reports[i],
        )
        for i, (upload, download) in zip(range(len(keys)), header["bytes"], strict=True)
    ]


def slug(key: str) -> str:
    """A file name for a run: readable, safe, and different for different runs."""
    readable = re.sub(r"[^A-Za-z0-9.=-]+", "_", key).strip("_")[:80]
    return f"{readable}-{zlib.crc32(key.encode()):08x}"


def sweep(folder: Path) -> None:
    """Remove what a killed process left: files half-written beside their places, and checkpoints of runs that are finished.

    Only for who holds the folder: what another process is just writing looks the same.
    """
    begun = re.compile(r"\.(?P<name>.+)\.\d+(-journal)?")  # as write_whole names them, and what SQLite adds
    ours = (folder / "plan.json").exists()  # without it, a folder called models may be anybody's
    for path in folder.rglob(".*"):
        inside, found = path.relative_to(folder).parts, begun.fullmatch(path.name)
        if found and path.is_file() and (found["name"] in OWN if len(inside) == 1 else ours and inside[0] in OWN):
            path.unlink(missing_ok=True)
    for path in folder.rglob("checkpoints/*.npz") if ours else ():
        if (path.parents[1] / "traces" / path.name).exists():
            path.unlink(missing_ok=True)

"""A folder of results: stored runs, tables, the lock, and the record of the run. Every file is written whole or not at all."""

import dataclasses
import errno
import fcntl
import json
import os
import re
import shutil
import socket
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

from evenly import __version__
from evenly.experiment.comparison import Comparison, tidy_rows
from evenly.experiment.plan import NewerError, read_fields
from evenly.models.task import skeleton
from evenly.outside import check_kinds, kinds_of
from evenly.saving import Archive, DamagedError, Model, read_archive, save, write_archive
from evenly.simulate.program import compile_seconds
from evenly.types import Task, Trace
from evenly.writing import csv_cell, write_whole

if TYPE_CHECKING:
    import pyarrow as pa


# A folder of results. Every file is written beside its place and renamed into it, so nothing half-made is ever read.

FILES = (
    "plan.json", "results.csv", "results.parquet", "report.html", "traces", "models", "checkpoints", "cells", "study.csv", "run.json",
    "live.jsonl", "logs", "programs.json", "study.db-journal", "study.db", "tuning.csv", "batches", "chosen", "history", "federation.json",
    "left_out.json", "options.json", "state.npz", "metrics.json",
)  # fmt: skip
LOCK = ".lock"  # who works in the folder: see lock.py
TRACES_FORMAT = 1  # older files have no format number
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
        path = self.folder / "plan.json"
        if not path.exists():
            if self.folder.exists() and any(path.name != LOCK for path in self.folder.iterdir()):
                raise ValueError(f"The folder {str(self.folder)!r} holds files that are not evenly's. Choose another --out.")
        elif other := self._conflict(path, plan):
            if not force:
                raise ValueError(f"{other} Choose another --out, or replace them with --force.")
            self._clear()
        else:
            return
        self.write("plan.json", lambda file: file.write(plan.to_json().encode()))

    def _conflict(self, path: Path, plan: Settings) -> str:
        """What is wrong with going on here; nothing where the results are of this very plan."""
        try:
            there = read_fields(path.read_text())
        except NewerError as error:  # not even with --force: whoever made them can still read them
            raise ValueError(f"The folder {str(self.folder)!r} {error}, or choose another --out; nothing was touched.") from None
        except ValueError:
            return f"The plan.json in {str(self.folder)!r} is damaged, so it is not known what the results there are of."
        other = f"The folder {str(self.folder)!r} holds the results of other settings"
        try:
            if plan.from_json(path.read_text()).fingerprint() == plan.fingerprint():
                return ""
        except ValueError:  # a comparison where a study is wanted, or the other way round
            return f"{other}."
        here = read_fields(plan.to_json())
        differ = [name for name in here if here[name] != there.get(name)]
        return f"{other}: not the same {'is' if len(differ) == 1 else 'are'} {' and '.join(differ)}." if differ else f"{other}."

    def _clear(self) -> None:
        for name in reversed(FILES):  # the plan last: without it, what is left would be nobody's
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
        header = {"keys": list(keys), "bytes": [[trace.upload, trace.download] for trace in traces], "reports": reports}
        large = sum(a.nbytes for a in arrays.values()) > COMPRESSED
        write_archive(self.traces_in(self.folder, keys), arrays | leaves, header, format=TRACES_FORMAT, compress=large)
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
            return read_archive(path, lambda archive: _traces(archive, keys, structure), newest=TRACES_FORMAT)
        except DamagedError:
            raise ValueError(
                f"The traces {str(path)!r} are damaged. Remove the file; its runs are then trained again and all others stay."
            ) from None


def _traces(archive: Archive, keys: Sequence[str], structure: Any) -> list[Trace]:
    header, file = archive
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
        if found and path.is_file() and (found["name"] in FILES if len(inside) == 1 else ours and inside[0] in FILES):
            path.unlink(missing_ok=True)
    for path in folder.rglob("checkpoints/*.npz") if ours else ():
        if (path.parents[1] / "traces" / path.name).exists():
            path.unlink(missing_ok=True)


# Results as files: tidy rows in CSV and Parquet.


def write_rows(store: Store, comparison: Comparison) -> list[dict[str, Any]]:
    """Write results.csv and results.parquet, and return their rows."""
    return write_tidy(store, list(tidy_rows(comparison)))


def write_tidy(store: Store, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same for rows that are already there."""
    import pyarrow as pa  # plans are executed also where it is not installed
    import pyarrow.parquet

    store.write("results.parquet", lambda file: pyarrow.parquet.write_table(pa.Table.from_pylist(rows), file))
    write_csv(store, "results.csv", rows)
    return rows


def write_csv(store: Store, name: str, rows: list[dict[str, Any]]) -> None:
    """A table of its own columns beside the tidy rows."""
    import pyarrow.csv

    store.write(name, lambda file: pyarrow.csv.write_csv(csv_table(rows), file))


def csv_table(rows: list[dict[str, Any]]) -> "pa.Table":
    """Rows as a CSV file has them: names that a spreadsheet would take for formulas begin with an apostrophe."""
    import pyarrow as pa

    table = pa.Table.from_pylist(rows)
    for i, name in enumerate(table.column_names):
        column = table.column(i)
        if pa.types.is_string(column.type):
            words = column.unique().to_pylist()
            if words != (safe := [csv_cell(word) for word in words]):
                of = dict(zip(words, safe, strict=True))
                table = table.set_column(i, name, pa.array([of[word] for word in column.to_pylist()], column.type))
    return table.rename_columns([csv_cell(name) for name in table.column_names])


# One process at a time works in a folder of results.

WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}  # some file systems of clusters have none: nobody can be refused there


@contextmanager
def folder_lock(folder: Path, other: str = "--out") -> Iterator[None]:
    """Keep the folder for this process; whoever else wants it is refused with a sentence, and told to choose an `other`.

    The kernel lets go of the lock when the process ends, however it ends, so a lock file that a killed process left behind
    is no obstacle. A folder that was made only for the lock does not stay.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    file = _acquire_lock(folder, other)
    try:
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)  # while it is held: nobody can be waiting for a file that is gone
        os.close(file)
        with suppress(OSError):  # from the first that is not empty on
            for path in made:
                path.rmdir()


def _acquire_lock(folder: Path, other: str) -> int:
    path = folder / LOCK
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # whoever made an empty parent has just removed it
            continue
        except FileExistsError:
            raise ValueError(f"The output {str(folder)!r} must be a folder, but it is a file. Choose another {other}.") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                holder = os.read(file, 200).decode(errors="replace").strip() or "another process"
                os.close(file)
                if not isinstance(error, BlockingIOError):
                    raise
                raise ValueError(
                    f"{holder} is working in the folder {str(folder)!r}. Wait until it is done, or choose another {other}."
                ) from None
        if _same_file(file, path):
            break
        os.close(file)  # its holder removed it between our opening and locking it
    os.ftruncate(file, 0)
    os.write(file, f"Process {os.getpid()} on {socket.gethostname()}".encode())
    return file


def _same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


# `run.json`: what a folder says of its run besides the plan.
#
# It is written before training begins, so that a run that was killed can be continued and reported as if it had not been.

RECORD_SCHEMA = 1
RUN_FILE = "run.json"


def versions() -> dict[str, str]:
    return {"evenly": __version__, "python": sys.version.split()[0], "jax": jax.__version__, "numpy": np.__version__}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
    """Who asked for a run, what it is called, and what it took."""

    command: str = ""
    title: str = ""
    notes: str = ""
    paper: dict[str, Any] | None = None  # which figures of a paper stand beside ours, as an experiment file says it
    short: bool = False  # a quick version, whose figures are not comparable with the paper's
    started_in: str = "."  # where the command was given, seen from the results' folder: relative paths start there
    status: str = "running"  # or finished
    seconds: float = 0.0  # of training, over all interruptions
    compiling: float = 0.0  # of these, seconds in which programs were compiled
    device: str = ""
    date: str = ""
    versions: dict[str, str] = dataclasses.field(default_factory=dict)


def read_record(folder: Path) -> RunRecord | None:
    """What is known of the run in a folder; None where nothing is."""
    path = folder / RUN_FILE
    if not path.exists():
        return None
    try:
        fields = read_fields(path.read_text(), RECORD_SCHEMA)
        check_kinds(fields, kinds_of(RunRecord))
        return RunRecord(**{field.name: fields[field.name] for field in dataclasses.fields(RunRecord) if field.name in fields})
    except NewerError as error:
        raise ValueError(f"{str(path)!r} {error}, or choose another --out; nothing was touched.") from None
    except ValueError:
        raise ValueError(f"{str(path)!r} is damaged. Remove it and go on; the results beside it stay.") from None


def begin(folder: Path, record: RunRecord) -> RunRecord:
    """Write down what is about to run. Where the folder already has a record, its first command and what training took stay."""
    known = read_record(folder)
    if known:
        kept = {name: getattr(known, name) for name in ("started_in", "seconds", "compiling", "device", "date", "versions")}
        record = dataclasses.replace(record, **kept, command=known.command or record.command)
    else:
        record = dataclasses.replace(record, started_in=_working_directory(folder))
    return _write(folder, record)


def _working_directory(folder: Path) -> str:
    """Where we are, seen from a folder; not from a link to it, whose parent is another."""
    return os.path.relpath(Path.cwd(), folder.resolve())


@contextmanager
def training_timer(folder: Path, *traces: Path, command: str = "") -> Iterator[None]:
    """Add the time of what is done inside to the folder's record, unless all of its traces were there before."""
    there = lambda: sum(len(list(of.glob("*"))) for of in traces)  # noqa: E731
    began, before = time.monotonic(), there()
    add = lambda: add_training(folder, time.monotonic() - began, command, compiling=compile_seconds(began))  # noqa: E731
    try:
        yield
    except BaseException:
        with suppress(OSError):  # what stopped it is what the user must hear of
            add()
        raise
    if there() > before:
        add()


def add_training(folder: Path, seconds: float, command: str = "", *, compiling: float = 0.0, also: Mapping[str, str] | None = None) -> None:
    """Add the time of a session, and say where it was; `also` are versions of further packages."""
    known = read_record(folder) or RunRecord(command=command, started_in=_working_directory(folder))
    device = "a CPU" if jax.default_backend() == "cpu" else jax.devices()[0].device_kind
    every = {name: _add_distinct(known.versions.get(name, ""), version) for name, version in {**versions(), **(also or {})}.items()}
    where = {"device": _add_distinct(known.device, device), "date": date.today().isoformat(), "versions": every}
    _write(folder, dataclasses.replace(known, seconds=known.seconds + seconds, compiling=known.compiling + compiling, **where))


def _add_distinct(before: str, now: str) -> str:
    """What was used in any session, in order: results of several versions or devices say so."""
    return ", ".join(dict.fromkeys([*filter(None, before.split(", ")), now]))


def with_record(comparison: Comparison, folder: Path) -> Comparison:
    """A comparison with what its folder's record says of it."""
    known = read_record(folder) or RunRecord()
    facts = {"command": known.command, "seconds": known.seconds, "title": known.title, "notes": known.notes}
    return comparison._replace(**facts, versions=known.versions or comparison.versions)


def finish(folder: Path) -> RunRecord:
    """Everything that belongs into the folder is there."""
    return _write(folder, dataclasses.replace(read_record(folder) or RunRecord(), status="finished"))


def _write(folder: Path, record: RunRecord) -> RunRecord:
    text = json.dumps({"schema": RECORD_SCHEMA, **dataclasses.asdict(record)}, indent=1)
    write_whole(folder / RUN_FILE, lambda file: file.write(text.encode()))
    return record

"""A folder of results: stored runs, tables, the lock, and the run record. All files are written
atomically. The columns of results.csv are those of `evenly.experiment.result_rows.tidy_rows`.
"""

import dataclasses
import errno
import fcntl
import os
import re
import shutil
import socket
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

import jax
import numpy as np

from evenly import __version__
from evenly.archives import Archive, DamagedError, read_archive, write_archive
from evenly.experiment.comparison import Comparison
from evenly.experiment.plan import NewerError, Plan, read_fields, write_fields
from evenly.experiment.promises import shared_rows
from evenly.models.task import skeleton
from evenly.saved_models import Model, save
from evenly.simulate.program_cache import compile_seconds
from evenly.types import Task, Trace
from evenly.validation import check_kinds, kinds_of
from evenly.writing import csv_cell, write_whole

if TYPE_CHECKING:
    import pyarrow as pa


# Stored runs.

CHOSEN = "chosen"  # inside the folder of a search: the results of what it chose
FILES = (
    "plan.json", "results.csv", "results.parquet", "report.html", "traces", "models", "checkpoints",
    "cells", "study.csv", "run.json", "live.jsonl", "logs", "programs.json", "study.db-journal",
    "study.db", "tuning.csv", "batches", CHOSEN, "history", "federation.json", "left_out.json",
    "options.json", "state.npz", "metrics.json", "federation.npz",
)  # fmt: skip
LOCK = ".lock"  # who works in the folder: see lock.py
TRACES_FORMAT = 1  # older files have no format number
COMPRESSED = 2**20  # bytes from which a file of traces is worth compressing
ARRAYS = (
    "rounds", "tables", "losses", "central", "cohort", "weights", "excluded", "choice", "panel",
    "clip", "cut",
)  # fmt: skip
OBJECTS = "objects of your own (the code or settings of a model, method or metric changed)"
OTHER = "Choose another folder with --out (out= in Python)"


class Settings(Protocol):
    """The settings of a folder: a plan, a study, or a search for settings."""

    def to_json(self) -> str: ...
    def fingerprint(self) -> str: ...
    @staticmethod
    def from_json(text: str) -> "Settings": ...


class Store:
    """The output folder of one plan. Opening it again with the same plan finds the
    finished runs.
    """

    def __init__(self, folder: Path, plan: Settings, *, force: bool = False) -> None:
        self.folder = folder
        self._claim(plan, force)

    def _claim(self, plan: Settings, force: bool) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(
                f"The output {str(self.folder)!r} must be a folder, but it is a file. {OTHER}."
            )
        path = self.folder / "plan.json"
        if not path.exists():
            if self.folder.exists() and any(path.name != LOCK for path in self.folder.iterdir()):
                raise ValueError(
                    f"The folder {str(self.folder)!r} contains files that evenly did not write."
                    f" {OTHER}."
                )
        elif other := self._conflict(path, plan):
            if not force:
                raise ValueError(f"{other} {OTHER}, or replace them with --force (force=True).")
            self._clear()
        else:
            return
        self.write("plan.json", lambda file: file.write(plan.to_json().encode()))

    def _conflict(self, path: Path, plan: Settings) -> str:
        """Why the results in the folder cannot be continued, or "" if they have the same
        settings.
        """
        try:
            there = read_fields(path.read_text())
        except NewerError as error:  # not even with --force: whoever made them can still read them
            raise ValueError(
                f"The folder {str(self.folder)!r} {error}. {OTHER}. Nothing was changed."
            ) from None
        except ValueError:
            return (
                f"The plan.json in {str(self.folder)!r} is damaged, so the settings of these"
                " results are unknown."
            )
        other = f"The folder {str(self.folder)!r} contains results with different settings"
        try:
            if plan.from_json(path.read_text()).fingerprint() == plan.fingerprint():
                return ""
        except ValueError:  # a comparison where a study is wanted, or the other way round
            return f"{other}."
        here = read_fields(plan.to_json())
        differ = [OBJECTS if n == "own" else n for n in here if here[n] != there.get(n)]
        return f"{other}: {', '.join(differ)}." if differ else f"{other}."

    def _clear(self) -> None:
        for name in reversed(FILES):  # the plan last: without it, what is left would be nobody's
            path = self.folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def write(self, name: str, write: Callable[[IO[bytes]], Any]) -> Path:
        """Write a file atomically."""
        return write_whole(self.folder / name, write)

    def checkpoint(self, key: str) -> Path:
        """The checkpoint file of the runs with this key."""
        return self.folder / "checkpoints" / f"{slug(key)}.npz"

    def save_traces(
        self, keys: Sequence[str], traces: Sequence[Trace], *, models: bool = True
    ) -> None:
        """Store the traces of runs that were trained together, in one file. With `models=False`
        their models are stored empty.
        """
        named = (
            (f"{i}.{name}", getattr(trace, name))
            for i, trace in enumerate(traces)
            for name in ARRAYS
        )
        arrays = {name: array for name, array in named if array is not None}
        leaves: dict[str, Any] = {
            f"{i}.model{j}": leaf
            for i, trace in enumerate(traces)
            for j, leaf in enumerate(jax.tree.leaves(trace.model))
        }
        leaves = leaves if models else dict.fromkeys(leaves, np.zeros(0, np.float32))
        reports = [dict(trace.reports) for trace in traces]
        header = {
            "keys": list(keys),
            "bytes": [[trace.upload, trace.download] for trace in traces],
            "reports": reports,
        }
        large = sum(a.nbytes for a in arrays.values()) > COMPRESSED
        write_archive(
            self.traces_in(self.folder, keys),
            arrays | leaves,
            header,
            format=TRACES_FORMAT,
            compress=large,
        )
        # only now: until here, it was all there was
        self.checkpoint("|".join(keys)).unlink(missing_ok=True)

    @staticmethod
    def traces_in(folder: Path, keys: Sequence[str]) -> Path:
        """The file that holds the traces of runs that were trained together."""
        return folder / "traces" / f"{slug('|'.join(keys))}.npz"

    def save_model(self, key: str, model: Model) -> None:
        """Store a trained model for `evenly.load`, unless it is stored already."""
        path = self.folder / "models" / f"{slug(key)}.npz"
        if not path.exists():
            save(model, path)

    def load_traces(self, keys: Sequence[str], task: Task | None) -> list[Trace] | None:
        """The traces of runs that were trained together, or None if they are not finished. Without
        a task they have no models.
        """
        path = self.traces_in(self.folder, keys)
        if not path.exists():
            return None
        structure = jax.tree.structure({} if task is None else skeleton(task))
        try:
            return read_archive(
                path, lambda archive: _traces(archive, keys, structure), newest=TRACES_FORMAT
            )
        except DamagedError:
            raise ValueError(
                f"The traces {str(path)!r} are damaged. Remove the file; only its runs are then"
                " trained again."
            ) from None


def _traces(archive: Archive, keys: Sequence[str], structure: Any) -> list[Trace]:
    header, file = archive
    check_kinds(
        header, {"keys": list[str], "bytes": list[list[float]], "reports": list[dict[str, Any]]}
    )
    # a name holds only the beginning of the keys, and a number that others may share
    if header["keys"] != list(keys):
        raise ValueError
    reports = header.get("reports") or [{}] * len(keys)  # older files have none
    return [
        Trace(
            # older files have fewer
            **cast(Any, {name: file[f"{i}.{name}"] for name in ARRAYS if f"{i}.{name}" in file}),
            upload=upload,
            download=download,
            model=jax.tree.unflatten(
                structure, [file[f"{i}.model{j}"] for j in range(structure.num_leaves)]
            ),
            reports=reports[i],
        )
        for i, (upload, download) in zip(range(len(keys)), header["bytes"], strict=True)
    ]


def slug(key: str) -> str:
    """A file name for a key: readable, safe, and different for different keys."""
    readable = re.sub(r"[^A-Za-z0-9.=-]+", "_", key).strip("_")[:80]
    return f"{readable}-{zlib.crc32(key.encode()):08x}"


def sweep(folder: Path) -> None:
    """Remove partial files and obsolete checkpoints that a killed process left behind.

    Call it only with the lock of the folder, because files that another process is writing look the
    same.
    """
    # as write_whole names them, and what SQLite adds
    begun = re.compile(r"\.(?P<name>.+)\.\d+(-journal)?")
    ours = (folder / "plan.json").exists()  # without it, a folder called models may be anybody's
    for path in folder.rglob(".*"):
        inside, found = path.relative_to(folder).parts, begun.fullmatch(path.name)
        if (
            found
            and path.is_file()
            and (found["name"] in FILES if len(inside) == 1 else ours and inside[0] in FILES)
        ):
            path.unlink(missing_ok=True)
    for path in folder.rglob("checkpoints/*.npz") if ours else ():
        if (path.parents[1] / "traces" / path.name).exists():
            path.unlink(missing_ok=True)


# Tables: tidy rows in CSV and Parquet.


def write_results(store: Store, comparison: Comparison) -> list[dict[str, Any]]:
    """Write results.csv and results.parquet, and return their rows (`promises.shared_rows`)."""
    return write_result_rows(store, shared_rows(comparison))


def write_result_rows(store: Store, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write these rows to results.csv and results.parquet, and return them."""
    import pyarrow as pa  # plans are executed also where it is not installed
    import pyarrow.parquet

    store.write(
        "results.parquet",
        lambda file: pyarrow.parquet.write_table(pa.Table.from_pylist(rows), file),
    )
    write_csv(store, "results.csv", rows)
    return rows


def write_csv(store: Store, name: str, rows: list[dict[str, Any]]) -> None:
    """Write rows with columns of their own to a CSV file."""
    import pyarrow.csv

    store.write(name, lambda file: pyarrow.csv.write_csv(csv_table(rows), file))


def csv_table(rows: list[dict[str, Any]]) -> "pa.Table":
    """Rows as a table for CSV. Text that a spreadsheet would read as a formula starts with an
    apostrophe.
    """
    import pyarrow as pa

    table = pa.Table.from_pylist(rows)
    for i, name in enumerate(table.column_names):
        column = table.column(i)
        if pa.types.is_string(column.type):
            words = column.unique().to_pylist()
            if words != (safe := [csv_cell(word) for word in words]):
                of = dict(zip(words, safe, strict=True))
                table = table.set_column(
                    i, name, pa.array([of[word] for word in column.to_pylist()], column.type)
                )
    return table.rename_columns([csv_cell(name) for name in table.column_names])


# The lock: one process at a time works in a folder.

# some file systems of clusters have none: nobody can be refused there
WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}
ATTEMPTS = 1000


@contextmanager
def folder_lock(folder: Path, other: str = "--out") -> Iterator[None]:
    """Lock a folder for this process.

    The kernel releases the lock when the process ends, so the lock file of a killed process is no
    obstacle. Folders that were created only for the lock are removed.

    Raises:
        ValueError: If another process holds the lock. The message suggests to choose another
            `other`.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    file = _acquire_lock(folder, other)
    try:
        yield
    finally:
        # while it is held: nobody can be waiting for a file that is gone
        (folder / LOCK).unlink(missing_ok=True)
        os.close(file)
        with suppress(OSError):  # from the first that is not empty on
            for path in made:
                path.rmdir()


def _acquire_lock(folder: Path, other: str) -> int:
    path = folder / LOCK
    failed = 0
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # whoever made an empty parent has just removed it
            failed += 1
            if failed == ATTEMPTS:  # no: nobody can make a folder here, such as in /proc
                raise
            continue
        except FileExistsError:
            raise ValueError(
                f"The output {str(folder)!r} must be a folder, but it is a file. Choose another"
                f" {other}."
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                holder = os.read(file, 200).decode(errors="replace").strip() or "another process"
                os.close(file)
                if not isinstance(error, BlockingIOError):
                    raise
                raise ValueError(
                    f"{holder} is working in the folder {str(folder)!r}. Wait until it is done, or"
                    f" choose another {other}."
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


# Run metadata in run.json: command, time, device, versions. It is written before training, so that
# an interrupted run can be resumed and reported.

RECORD_SCHEMA = 1
RUN_FILE = "run.json"


def versions() -> dict[str, str]:
    """Versions of evenly, Python, JAX and NumPy."""
    return {
        "evenly": __version__,
        "python": sys.version.split()[0],
        "jax": jax.__version__,
        "numpy": np.__version__,
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
    """Run metadata: command, title, time, device and versions."""

    command: str = ""
    title: str = ""
    notes: str = ""
    # which figures of a paper stand beside ours, as an experiment file says it
    paper: dict[str, Any] | None = None
    chosen: str = ""  # the method that a search chose, in the folder of its results
    short: bool = False  # a quick version, whose figures are not comparable with the paper's
    # where the command was given, seen from the results' folder: relative paths start there
    started_in: str = "."
    status: str = "running"  # or finished
    seconds: float = 0.0  # of training, over all interruptions
    compiling: float = 0.0  # of these, seconds in which programs were compiled
    device: str = ""
    date: str = ""
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    # what methods with differential privacy promise, by label; in studies by partition and label
    privacy: dict[str, Any] = dataclasses.field(default_factory=dict)


def read_record(folder: Path) -> RunRecord | None:
    """The run record of a folder, or None if there is none."""
    path = folder / RUN_FILE
    if not path.exists():
        return None
    try:
        fields = read_fields(path.read_text(), RECORD_SCHEMA)
        check_kinds(fields, kinds_of(RunRecord))
        return RunRecord(
            **{
                field.name: fields[field.name]
                for field in dataclasses.fields(RunRecord)
                if field.name in fields
            }
        )
    except NewerError as error:
        raise ValueError(f"{str(path)!r} {error}. {OTHER}. Nothing was changed.") from None
    except ValueError:
        raise ValueError(
            f"{str(path)!r} is damaged. Remove it and run the command again; no results are lost."
        ) from None


def begin(folder: Path, record: RunRecord) -> RunRecord:
    """Write the run record before training. An existing record keeps its first command and its
    training time.
    """
    known = read_record(folder)
    if known:
        kept = {
            name: getattr(known, name)
            for name in ("started_in", "seconds", "compiling", "device", "date", "versions")
        }
        record = dataclasses.replace(record, **kept, command=known.command or record.command)
    else:
        record = dataclasses.replace(record, started_in=_working_directory(folder))
    return _write(folder, record)


def _working_directory(folder: Path) -> str:
    """The working directory, relative to a folder. Symbolic links to the folder are
    resolved first.
    """
    return os.path.relpath(Path.cwd(), folder.resolve())


@contextmanager
def starting_directory(folder: Path, *plans: Plan) -> Iterator[None]:
    """Context in which relative paths of the user's files mean the same as when the run was
    started. A file that is not there any more is a ValueError.
    """
    known = read_record(folder)
    if not known or not any(plan.has_files for plan in plans):
        yield
        return
    start = (folder / known.started_in).resolve()
    try:
        with chdir(start):
            yield
    except FileNotFoundError as error:
        if error.filename is None or Path(error.filename).is_absolute():
            raise
        raise ValueError(
            f"{str(folder)!r} needs the file {str(error.filename)!r} of its data again, and there"
            f" is none in {str(start)!r}. If the folder or the file was moved, move it back."
        ) from None


@contextmanager
def training_timer(folder: Path, *traces: Path, command: str = "") -> Iterator[None]:
    """Context that adds its duration to the run record, unless it added no traces."""
    there = lambda: sum(len(list(of.glob("*"))) for of in traces)  # noqa: E731
    began, before = time.monotonic(), there()

    def add():
        return add_training(
            folder, time.monotonic() - began, command, compiling=compile_seconds(began)
        )

    try:
        yield
    except BaseException:
        with suppress(OSError):  # what stopped it is what the user must hear of
            add()
        raise
    if there() > before:
        add()


def add_training(
    folder: Path,
    seconds: float,
    command: str = "",
    *,
    compiling: float = 0.0,
    also: Mapping[str, str] | None = None,
) -> None:
    """Add the duration, device and versions of a training session to the run record. `also` holds
    versions of further packages.
    """
    known = read_record(folder) or RunRecord(command=command, started_in=_working_directory(folder))
    device = "a CPU" if jax.default_backend() == "cpu" else jax.devices()[0].device_kind
    every = {
        name: _add_distinct(known.versions.get(name, ""), version)
        for name, version in {**versions(), **(also or {})}.items()
    }
    where = {
        "device": _add_distinct(known.device, device),
        "date": date.today().isoformat(),
        "versions": every,
    }
    _write(
        folder,
        dataclasses.replace(
            known, seconds=known.seconds + seconds, compiling=known.compiling + compiling, **where
        ),
    )


def _add_distinct(before: str, now: str) -> str:
    """A comma-separated list with one more entry, unless it is in the list."""
    return ", ".join(dict.fromkeys([*filter(None, before.split(", ")), now]))


def with_record(comparison: Comparison, folder: Path) -> Comparison:
    """A comparison with the command, time, title and notes of its run record."""
    known = read_record(folder) or RunRecord()
    facts = {
        "command": known.command,
        "seconds": known.seconds,
        "title": known.title,
        "notes": known.notes,
        "chosen": known.chosen,
    }
    return comparison._replace(**facts, versions=known.versions or comparison.versions)


def finish(folder: Path, privacy: Mapping[str, Any] | None = None) -> RunRecord:
    """Mark the run record as finished. `privacy` is what it says about private methods."""
    known = read_record(folder) or RunRecord()
    with suppress(OSError):  # it is not empty, or no run was long enough for a checkpoint
        (folder / "checkpoints").rmdir()
    return _write(
        folder,
        dataclasses.replace(known, status="finished", privacy=dict(privacy or known.privacy)),
    )


def _write(folder: Path, record: RunRecord) -> RunRecord:
    write_fields(folder / RUN_FILE, dataclasses.asdict(record), RECORD_SCHEMA)
    return record

"""`run.json`: what a folder says of its run besides the plan.

It is written before training begins, so that a run that was killed can be continued and reported as if it had not been.
"""

import dataclasses
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any

import jax

from evenly.experiment.execute import versions
from evenly.experiment.plan import NewerError, plain
from evenly.experiment.results import Comparison
from evenly.outside import check_kinds, kinds_of
from evenly.simulate import programs
from evenly.writing import write_whole

SCHEMA = 1
NAME = "run.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
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


def read(folder: Path) -> Record | None:
    """What is known of the run in a folder; None where nothing is."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        fields = plain(path.read_text(), SCHEMA)
        check_kinds(fields, kinds_of(Record))
        return Record(**{field.name: fields[field.name] for field in dataclasses.fields(Record) if field.name in fields})
    except NewerError as error:
        raise ValueError(f"{str(path)!r} {error}, or choose another --out; nothing was touched.") from None
    except ValueError:
        raise ValueError(f"{str(path)!r} is damaged. Remove it and go on; the results beside it stay.") from None


def begin(folder: Path, record: Record) -> Record:
    """Write down what is about to run. Where the folder already has a record, its first command and what training took stay."""
    known = read(folder)
    if known:
        kept = {name: getattr(known, name) for name in ("started_in", "seconds", "compiling", "device", "date", "versions")}
        record = dataclasses.replace(record, **kept, command=known.command or record.command)
    else:
        record = dataclasses.replace(record, started_in=_from(folder))
    return _write(folder, record)


def _from(folder: Path) -> str:
    """Where we are, seen from a folder; not from a link to it, whose parent is another."""
    return os.path.relpath(Path.cwd(), folder.resolve())


@contextmanager
def timed(folder: Path, *traces: Path, command: str = "") -> Iterator[None]:
    """Add the time of what is done inside to the folder's record, unless all of its traces were there before."""
    there = lambda: sum(len(list(of.glob("*"))) for of in traces)  # noqa: E731
    began, before = time.monotonic(), there()
    add = lambda: add_training(folder, time.monotonic() - began, command, compiling=programs.spent(began))  # noqa: E731
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
    known = read(folder) or Record(command=command, started_in=_from(folder))
    device = "a CPU" if jax.default_backend() == "cpu" else jax.devices()[0].device_kind
    every = {name: _also(known.versions.get(name, ""), version) for name, version in {**versions(), **(also or {})}.items()}
    where = {"device": _also(known.device, device), "date": date.today().isoformat(), "versions": every}
    _write(folder, dataclasses.replace(known, seconds=known.seconds + seconds, compiling=known.compiling + compiling, **where))


def _also(before: str, now: str) -> str:
    """What was used in any session, in order: results of several versions or devices say so."""
    return ", ".join(dict.fromkeys([*filter(None, before.split(", ")), now]))


def told(comparison: Comparison, folder: Path) -> Comparison:
    """A comparison with what its folder's record says of it."""
    known = read(folder) or Record()
    facts = {"command": known.command, "seconds": known.seconds, "title": known.title, "notes": known.notes}
    return comparison._replace(**facts, versions=known.versions or comparison.versions)


def finish(folder: Path) -> Record:
    """Everything that belongs into the folder is there."""
    return _write(folder, dataclasses.replace(read(folder) or Record(), status="finished"))


def _write(folder: Path, record: Record) -> Record:
    text = json.dumps({"schema": SCHEMA, **dataclasses.asdict(record)}, indent=1)
    write_whole(folder / NAME, lambda file: file.write(text.encode()))
    return record

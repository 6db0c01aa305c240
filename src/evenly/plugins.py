"""Plugins: methods, metrics and data sets that users add with `evenly.register`. Experimental.

A plugin is a Python file that calls `evenly.register`. The command line loads it with `--plugin
FILE.py`, an experiment file with `plugins = [...]`. A plan stores the path and hash of the file, so
that a resumed plan uses the same code. Installed packages provide plugins as entry points of the
groups `evenly.methods`, `evenly.metrics` and `evenly.datasets`.
"""

import hashlib
import sys
import traceback
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from evenly.algorithms import METHODS, Method
from evenly.algorithms import register as register_method
from evenly.datasets import DatasetCard
from evenly.datasets import register as register_dataset
from evenly.metrics import Metric
from evenly.metrics import register as register_metric
from evenly.registry import all_or_nothing

ENTRY_POINTS: dict[str, type[Any]] = {
    "evenly.methods": Method,
    "evenly.metrics": Metric,
    "evenly.datasets": DatasetCard,
}

Record = dict[str, str]  # of a plugin file in a plan: "path" and "sha256"

_loaded: dict[str, ModuleType] = {}  # by hash
# of each file that was loaded: its hash, and the kinds and names of what it registered
_files: dict[Path, tuple[str, list[tuple[str, str]]]] = {}
_installed: list[str] = []  # not empty once entry points are loaded, or are being loaded


def register(thing: Method | Metric | DatasetCard, *, replace: bool = False) -> None:
    """Add a method, a metric or a data set of your own. Notation, command line, tables and reports
    then accept its name. Experimental.

    Args:
        thing: What to add: a `Method`, a `Metric` or a `DatasetCard`.
        replace: Whether to replace what you registered under this name before, for example in a
            notebook.

    Raises:
        TypeError: If `thing` is of another type.
        ValueError: If the name is taken or not legal.

    Example:
        >>> import dataclasses, evenly
        >>> from evenly.algorithms import METHODS
        >>> evenly.register(dataclasses.replace(METHODS["fedavg"], name="my-fedavg"), replace=True)
        >>> evenly.algorithm("my-fedavg(learning_rate=0.5)").label
        'my-fedavg(learning_rate=0.5)'
        >>> del METHODS["my-fedavg"]
    """
    if isinstance(thing, Method):
        register_method(thing, replace=replace)
    elif isinstance(thing, Metric):
        register_metric(thing, replace=replace)
    elif isinstance(thing, DatasetCard):
        register_dataset(thing, replace=replace)
    else:
        raise TypeError(
            "evenly.register needs a Method (evenly.algorithms), a Metric (evenly.metrics) or a"
            f" DatasetCard (evenly.datasets), got {thing!r:.80}."
        )


def file_names(paths: str | Path | Iterable[str | Path]) -> tuple[str | Path, ...]:
    """The plugin files that a call names: one path, or several."""
    return (paths,) if isinstance(paths, str | Path) else tuple(paths)


def load_files(paths: str | Path | Iterable[str | Path]) -> tuple[Record, ...]:
    """Load plugin files, each once, and return their records for a plan."""
    records: dict[str, Record] = {}
    for path in map(Path, file_names(paths)):
        source = _read(path)
        digest = hashlib.sha256(source).hexdigest()
        _load(str(path), source, digest)
        records.setdefault(digest, {"path": str(path), "sha256": digest})
    return tuple(records.values())


def load_planned(records: Iterable[Record], sources: Mapping[str, bytes] | None = None) -> None:
    """Load installed plugins and the plugin files of a plan, which must not have changed since.

    `sources` holds the files by hash, where they are not on this machine.
    """
    load_installed()
    for record in records:
        path, digest = record["path"], record["sha256"]
        if digest in _loaded:
            continue
        source = (
            sources[digest]
            if sources is not None
            else _read(Path(path), f". The plan needs it; {AGAIN}")
        )
        if hashlib.sha256(source).hexdigest() != digest:
            raise ValueError(
                f"The plugin {path!r} has changed since these results were started. Restore it, or"
                f" {AGAIN}"
            )
        _load(path, source, digest)


def sources_of(records: Iterable[Record]) -> dict[str, bytes]:
    """Contents of a plan's plugin files by hash, for machines that do not have the files."""
    return {record["sha256"]: _read(Path(record["path"])) for record in records}


def refuse_unloaded(records: Iterable[Record], folder: Path, methods: Iterable[str] = ()) -> None:
    """Raise if results need plugins that are not loaded, or methods that are not registered.
    Reading results never runs code only because their folder names it.
    """
    absent = [record["path"] for record in records if record["sha256"] not in _loaded]
    if absent:
        named = " ".join(f"--plugin {path}" for path in absent)
        raise ValueError(
            f"The results in {str(folder)!r} were computed with the plugin {absent[0]!r}. Load the"
            f" same file with `{named}` (plugins= in Python); evenly does not run code only because"
            " a folder of results names it."
        )
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        raise ValueError(
            f"The results in {str(folder)!r} have the method {unknown[0]!r}, whose code is not"
            " stored. Register it first, as before training: evenly.register(...), or a file that"
            " does so with --plugin FILE (plugins= in Python)."
        )


def load_installed() -> None:
    """Register the entry points of installed packages. Only the first call has an effect."""
    if _installed:
        return
    _installed.append("")
    try:
        with all_or_nothing():
            for group, kind in ENTRY_POINTS.items():
                for point in entry_points(group=group):
                    _register_point(point, kind)
    except ValueError:
        _installed.clear()
        raise


AGAIN = "pass the same file with --plugin, or choose another folder."


def _register_point(point: EntryPoint, kind: type[Any]) -> None:
    where = (
        f"The installed package {point.dist.name if point.dist else '?'} provides {point.name!r} ="
        f" {point.value!r} ({point.group})"
    )
    try:
        thing = point.load()
        if not isinstance(thing, kind):
            raise TypeError(f"it must be a {kind.__name__}, got {type(thing).__name__}")
        register(thing)
    except Exception as error:
        raise ValueError(
            f"{where}, which cannot be used: {_reason(error)}. Correct or uninstall the package."
        ) from error


def _read(path: Path, hint: str = ".") -> bytes:
    if path.suffix != ".py":
        raise ValueError(
            f"A plugin must be a Python file whose name ends with .py, got {str(path)!r}."
        )
    if not path.is_file():
        raise ValueError(f"There is no plugin file {str(path)!r}{hint}")
    return path.read_bytes()


def _load(path: str, source: bytes, digest: str) -> None:
    """Run the source of a plugin; if it fails, nothing that it registered remains. A file that was
    edited replaces what it registered before.
    """
    if digest in _loaded:
        return
    old, earlier = _files.get(Path(path).resolve(), ("", []))
    name = f"evenly_plugin_{Path(path).stem}_{digest[:8]}"
    module = sys.modules[name] = ModuleType(name)  # dataclasses look up their module
    module.__file__ = path
    try:
        with all_or_nothing(earlier) as names:
            exec(compile(source, path, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ValueError(_sentence(path, error)) from error
    if not names:
        del sys.modules[name]
        raise ValueError(
            f"The plugin {path!r} registers nothing. It must call evenly.register(...) with a"
            " method, a metric or a data set."
        )
    _loaded.pop(old, None)
    _loaded[digest], _files[Path(path).resolve()] = module, (digest, names)


def _sentence(path: str, error: BaseException) -> str:
    """The error for a plugin that failed: the line and the reason."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return (
            f"The plugin {path!r} cannot be loaded. Line {error.lineno}: SyntaxError: {error.msg}."
        )
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == path
    ]
    return (
        f"The plugin {path!r} cannot be loaded."
        f" {f'Line {lines[-1]}: ' if lines else ''}{_reason(error)}."
    )


def _reason(error: BaseException) -> str:
    return (
        str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    ).rstrip(".")

"""What users add to evenly: methods, metrics and data sets of their own, all with `evenly.register`. Experimental.

A plugin is a Python file that calls `evenly.register`. The command line loads it with `--plugin FILE.py`, an experiment file with
`plugins = [...]`. A plan keeps its path and hash, so that whoever continues the plan loads the same file. Installed packages offer
plugins as entry points of the groups `evenly.methods`, `evenly.metrics` and `evenly.datasets`.
"""

import hashlib
import sys
import traceback
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from evenly.algorithms import Method
from evenly.algorithms import register as register_method
from evenly.datasets import DatasetCard
from evenly.datasets import register as register_dataset
from evenly.metrics import Metric
from evenly.metrics import register as register_metric
from evenly.registry import all_or_nothing

ENTRY_POINTS: dict[str, type[Any]] = {"evenly.methods": Method, "evenly.metrics": Metric, "evenly.datasets": DatasetCard}

Record = dict[str, str]  # of a plugin file in a plan: "path" and "sha256"

_loaded: dict[str, ModuleType] = {}  # by hash
_installed: list[str] = []  # entry points that are loaded, or are being loaded, in one entry; empty: nobody has looked yet


def register(thing: Method | Metric | DatasetCard, *, replace: bool = False) -> None:
    """Add a method, a metric or a data set of your own, so that notation, command line, tables and reports know it. Experimental.

    Its name must be free. `replace=True` replaces what you registered under that name before, for example in a notebook.
    """
    if isinstance(thing, Method):
        register_method(thing, replace=replace)
    elif isinstance(thing, Metric):
        register_metric(thing, replace=replace)
    elif isinstance(thing, DatasetCard):
        register_dataset(thing, replace=replace)
    else:
        raise TypeError(
            "evenly.register needs a Method (evenly.algorithms), a Metric (evenly.metrics) or a DatasetCard (evenly.datasets), "
            f"got {thing!r:.80}."
        )


def load_files(paths: Iterable[str | Path]) -> tuple[Record, ...]:
    """Load plugin files, each once, and return what a plan keeps of them."""
    found: dict[str, Record] = {}
    for path in map(Path, paths):
        source = _read(path)
        digest = hashlib.sha256(source).hexdigest()
        _load(str(path), source, digest)
        found.setdefault(digest, {"path": str(path), "sha256": digest})
    return tuple(found.values())


def load_planned(records: Iterable[Record], sources: Mapping[str, bytes] | None = None) -> None:
    """Load what is installed, and a plan's plugin files as they were when it was made. `sources` has files that are not here, by hash."""
    load_installed()
    for record in records:
        path, digest = record["path"], record["sha256"]
        if digest in _loaded:
            continue
        source = sources[digest] if sources is not None else _read(Path(path), f". The plan needs it; {AGAIN}")
        if hashlib.sha256(source).hexdigest() != digest:
            raise ValueError(f"The plugin {path!r} has changed since these results were begun. Put it back, or {AGAIN}")
        _load(path, source, digest)


def sources_of(records: Iterable[Record]) -> dict[str, bytes]:
    """The plugin files of a plan by hash, for machines that do not have them."""
    return {record["sha256"]: _read(Path(record["path"])) for record in records}


def refuse_unloaded(records: Iterable[Record], folder: Path) -> None:
    """Raise if results need plugins that nobody loaded. Whoever only looks at results must not run code that their folder names."""
    absent = [record["path"] for record in records if record["sha256"] not in _loaded]
    if absent:
        named = " ".join(f"--plugin {path}" for path in absent)
        raise ValueError(
            f"The results in {str(folder)!r} were made with the plugin {absent[0]!r}. Load the same file with `{named}`; evenly runs no "
            "code only because a folder of results names it."
        )


def load_installed() -> None:
    """Register what installed packages offer as entry points; the first call does it."""
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


AGAIN = "pass the same file with --plugin, or begin anew elsewhere."


def _register_point(point: EntryPoint, kind: type[Any]) -> None:
    where = f"The installed package {point.dist.name if point.dist else '?'} offers {point.name!r} = {point.value!r} ({point.group})"
    try:
        thing = point.load()
        if not isinstance(thing, kind):
            raise TypeError(f"it must be a {kind.__name__}, got {type(thing).__name__}")
        register(thing)
    except Exception as error:
        said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"{where}, which cannot be used: {said.rstrip('.')}. Correct or uninstall the package.") from error


def _read(path: Path, hint: str = ".") -> bytes:
    if path.suffix != ".py":
        raise ValueError(f"A plugin must be a Python file whose name ends with .py, got {str(path)!r}.")
    if not path.is_file():
        raise ValueError(f"There is no plugin file {str(path)!r}{hint}")
    return path.read_bytes()


def _load(path: str, source: bytes, digest: str) -> None:
    """Run a plugin's source; if it fails, nothing of it stays registered."""
    if digest in _loaded:
        return
    name = f"evenly_plugin_{Path(path).stem}_{digest[:8]}"
    module = sys.modules[name] = ModuleType(name)  # records look their module up while they are made
    module.__file__ = path
    try:
        with all_or_nothing() as names:
            exec(compile(source, path, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ValueError(_sentence(path, error)) from error
    if not names:
        del sys.modules[name]
        raise ValueError(f"The plugin {path!r} registers nothing. Call evenly.register(...) in it with a method, a metric or a data set.")
    _loaded[digest] = module


def _sentence(path: str, error: BaseException) -> str:
    """Where a plugin failed, and why."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return f"The plugin {path!r} cannot be loaded. Line {error.lineno}: SyntaxError: {error.msg}."
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return f"The plugin {path!r} cannot be loaded. {f'Line {lines[-1]}: ' if lines else ''}{said.rstrip('.')}."

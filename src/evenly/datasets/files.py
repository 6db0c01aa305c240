"""Files of data sets: where they are, how they are fetched and checked, and what is known of each data set."""

import functools
import hashlib
import http.client
import os
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np

from evenly.data.federation import Federation
from evenly.records import record, static
from evenly.writing import write_whole

# Where data files live, how they are checked, and how they are fetched. Nothing else in evenly touches the network.
#
# Files lie under one folder: `EVENLY_DATA`, or the user's cache folder. A data set may be accepted in several layouts (as published,
# unpacked, repacked); each is a tuple of files, and the first that is complete is used. Files whose publisher gives a checksum are
# checked every time they are read: a damaged file would quietly change results.

CHUNK = 1 << 20
PATIENCE = 60  # seconds without a byte before a server is given up
Progress = Callable[[int, int | None], None]  # bytes so far, and in all where known


class DataError(ValueError):
    """A data file is not there, or is not what it should be."""


class MissingData(DataError):  # noqa: N818 (what happened, in the user's words)
    """A data file is not there."""


class Content(NamedTuple):
    """One valid content of a file."""

    digest: str  # "sha256:..." or, where the publisher gives only that, "md5:..."
    size: int | None = None  # bytes


@record
class DataFile:
    """A file of a data set; the first part of its path is the data set's name unless `dataset` says otherwise."""

    path: str = static(doc="its place under the data folder")
    what: str = static(doc="what it holds")
    contents: tuple[Content, ...] = static(default=(), doc="valid contents (original, repacked); none: its publisher gives no checksum")
    urls: tuple[str, ...] = static(default=(), doc="public addresses, tried in order")
    by_hand: str = static(default="", doc="how to get it where it cannot be fetched")
    dataset: str = static(default="", doc="the data set that fetches it, where the folder has another name")


Layout = tuple[DataFile, ...]


def data_folder() -> Path:
    """`EVENLY_DATA`, or a folder in the user's cache."""
    chosen = os.environ.get("EVENLY_DATA")
    return Path(chosen).expanduser() if chosen else cache_folder()


def cache_folder() -> Path:
    """Where the user's programs keep what they could make again."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "evenly"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "evenly" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenly"


def place(file: DataFile) -> Path:
    return data_folder() / file.path


def locate(file: DataFile) -> Path:
    """The file's path; raises `MissingData` with what to do when it is not there."""
    path = place(file)
    if not path.is_file():
        raise MissingData(missing_sentence(file))
    return path


def missing_sentence(file: DataFile) -> str:
    folder = file.path.split("/")[0]
    start = f"{file.path} ({file.what}) is not in {data_folder()}."
    if file.urls:
        return (
            f"{start} Run `evenly data fetch {file.dataset or folder}`, or download {file.urls[0]} yourself and save it as {place(file)}."
        )
    return f"{start} It cannot be fetched: {file.by_hand} Save it as {place(file)}, or set EVENLY_DATA to the folder that holds {folder}/."


def check(file: DataFile) -> Path:
    """The file's path if its size and checksum are those of a valid content; raises `DataError` naming expected and found."""
    path = locate(file)
    wrong = mismatch(file, path)
    if wrong:
        raise DataError(
            f"{path} is not the file it should be ({file.what}): {wrong}. "
            "It may be cut off, changed or another version: delete it and get it again."
        )
    return path


def mismatch(file: DataFile, path: Path) -> str:
    """How the content at a path differs from every valid content of a file; empty if it is one of them, or if none is known."""
    found, sizes = path.stat().st_size, {content.size for content in file.contents}
    if file.contents and None not in sizes and found not in sizes:
        return f"expected {' or '.join(map(str, sorted(filter(None, sizes))))} bytes, found {found}"
    digests = {content.digest for content in file.contents}
    actual = [f"{kind}:{_digest(path, kind)}" for kind in sorted({digest.partition(":")[0] for digest in digests})]
    if digests and not digests.intersection(actual):
        return f"expected checksum {' or '.join(sorted(digests))}, found {', '.join(actual)}"
    return ""


def complete(layout: Layout) -> bool:
    return all(place(file).is_file() for file in layout)


def use(layouts: tuple[Layout, ...]) -> tuple[Layout, list[Path]]:
    """The first layout that is complete, and the checked paths of its files; otherwise raises for the one to get."""
    layout = next((layout for layout in layouts if complete(layout)), None)
    if layout is None:
        wanted = fetchable(layouts)
        raise MissingData(missing_sentence(next(file for file in wanted if not place(file).is_file())))
    return layout, [check(file) for file in layout]


def fetchable(layouts: tuple[Layout, ...]) -> Layout:
    """The first layout whose files all have an address; without one, the first."""
    return next((layout for layout in layouts if all(file.urls for file in layout)), layouts[0])


def fetch(file: DataFile, progress: Progress | None = None) -> Path:
    """Download a file into its place, checked and whole, unless a valid one is there already."""
    if place(file).is_file():
        return check(file)
    if not (file.urls and file.contents):
        raise MissingData(missing_sentence(file))
    failures: list[str] = []
    for url in file.urls:
        try:
            return write_whole(place(file), lambda out, url=url: _download(file, url, out, progress))
        except (urllib.error.URLError, http.client.HTTPException, OSError, DataError) as error:
            failures.append(f"{url}: {_reason(error)}")
    raise DataError(f"{file.path} could not be fetched. {' '.join(failures)} Download it yourself and save it as {place(file)}.")


def _download(file: DataFile, url: str, out: IO[bytes], progress: Progress | None) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "evenly"})
    sizes = [content.size for content in file.contents]
    most = None if None in sizes else max(filter(None, sizes), default=None)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        length = answer.headers.get("Content-Length")
        total, done = int(length) if length and length.isdigit() else most, 0
        while chunk := answer.read(CHUNK):
            out.write(chunk)
            done += len(chunk)
            if most is not None and done > most:
                raise DataError(f"it is longer than the {most} bytes expected.")
            if progress is not None:
                progress(done, total)
    out.flush()
    wrong = mismatch(file, Path(out.name))
    if wrong:
        raise DataError(f"what came is not the file it should be: {wrong}.")


def _digest(path: Path, kind: str) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, kind).hexdigest()


def _reason(error: BaseException) -> str:
    # An HTTPError's reason lacks its number; any other URLError's text wraps its reason in brackets.
    words = str(error if isinstance(error, urllib.error.HTTPError) else getattr(error, "reason", "") or error).strip()
    return words if words.endswith(".") else f"{words}."


# What was read from files stays in memory while they are the same: an experiment loads its data once for every seed.
#
# Only the files of one folder are kept, so that no more than one data set lies in memory besides what is in use.

Parsed = TypeVar("Parsed", np.ndarray, dict[str, np.ndarray])

_lock = threading.Lock()  # seeds are loaded in threads
_kept: dict[tuple[str, Path], tuple[Any, Any]] = {}  # reader and file -> what the file was like, and what was read


def read_once(read: Callable[[Path], Parsed]) -> Callable[[Path], Parsed]:
    """A reader that parses a file again only after it has changed. Its arrays are shared and cannot be written to."""

    @functools.wraps(read)
    def reading(path: Path) -> Parsed:
        key, now = (read.__qualname__, path.absolute()), stamp(path)
        with _lock:
            seen, parsed = _kept.get(key, (None, None))
        if seen != now:
            parsed = _frozen(read(path))
            with _lock:
                for other in [other for other in _kept if other[1].parent != key[1].parent]:
                    del _kept[other]
                _kept[key] = now, parsed
        return parsed

    return reading


def stamp(path: Path) -> tuple[int, int, int]:
    """Another one after the file has changed."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _frozen(parsed: Parsed) -> Parsed:
    for array in parsed.values() if isinstance(parsed, dict) else [parsed]:
        array.setflags(write=False)
    return parsed


# What is known of a data set besides its rows.


class Sizes(NamedTuple):
    """Clients and rows of a federation, to be compared with what a loader gives."""

    clients: int
    train: int
    valid: int
    test: int
    central: int = 0

    @staticmethod
    def of(federation: Federation) -> "Sizes":
        parts = (federation.train, federation.valid, federation.test)
        return Sizes(federation.clients, *(len(part.rows) for part in parts), central=len(federation.central))


@record
class DatasetCard:
    """A data set: how to load it, what it is made of, where it comes from and what to beware of."""

    name: str = static(doc="how the command line and experiment files call it")
    title: str = static(doc="one line")
    load: Callable[..., Federation] = static(doc="load(**settings, split_seed=0)")
    layouts: tuple[Layout, ...] = static(default=(), doc="accepted sets of files; the first complete one is read")
    papers: tuple[str, ...] = static(default=(), doc="of the papers we follow, those that use it")
    licence: str = static(default="", doc="as the publisher gives it, or that none is given")
    provenance: str = static(default="", doc="who made it, from what, when")
    citation: str = static(default="", doc="what to cite")
    notes: tuple[str, ...] = static(default=(), doc="cautions, and departures from the papers")
    memory: Callable[[Mapping[str, Any]], float] | None = static(
        default=None, doc="bytes that the rows take at least with all of these settings; None: not known, as of files"
    )
    expected: Sizes | None = static(default=None, doc="of the federation with default settings; None: never seen here, or not fixed")

    @property
    def files(self) -> Layout:
        """The files that `evenly data fetch` gets, or that a user has to provide."""
        return fetchable(self.layouts) if self.layouts else ()

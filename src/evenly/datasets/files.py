"""Files of data sets: where they are, how they are downloaded and verified, and the card that
describes each data set.
"""

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

# Files are in one folder: `EVENLY_DATA`, or the user's cache folder. A data set may accept several
# layouts (as published, unpacked, repacked). Each is a tuple of files, and the first complete one
# is used. Files whose publisher gives a checksum are verified every time they are read, because a
# damaged file would change results silently. Nothing else in evenly uses the network.

CHUNK = 1 << 20
TIMEOUT = 60  # seconds without a byte before the next server is tried
Progress = Callable[[int, int | None], None]  # bytes so far, and in all if known


class DataError(ValueError):
    """A data file is missing or has the wrong content."""


class MissingData(DataError):  # noqa: N818 (public name)
    """A data file is missing."""


class Content(NamedTuple):
    """One valid content of a file."""

    digest: str  # "sha256:...", or "md5:..." if the publisher gives only that
    size: int | None = None  # bytes


@record
class DataFile:
    """A file of a data set. The first part of its path is the name of the data set, unless
    `dataset` is another.
    """

    path: str = static(doc="path below the data folder")
    what: str = static(doc="content in words")
    contents: tuple[Content, ...] = static(
        default=(),
        doc="valid contents (original, repacked); none if its publisher gives no checksum",
    )
    urls: tuple[str, ...] = static(default=(), doc="public addresses, tried in order")
    by_hand: str = static(default="", doc="how to get a file that cannot be downloaded")
    dataset: str = static(default="", doc="name of the data set, if its folder has another name")


Layout = tuple[DataFile, ...]


def data_folder() -> Path:
    """Return the folder of data files: `EVENLY_DATA`, or a folder in the user's cache."""
    chosen = os.environ.get("EVENLY_DATA")
    return Path(chosen).expanduser() if chosen else cache_folder()


def cache_folder() -> Path:
    """Return evenly's folder in the user's cache."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "evenly"
    if sys.platform == "win32":
        return (
            Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
            / "evenly"
            / "Cache"
        )
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenly"


def path_of(file: DataFile) -> Path:
    """Return where a file is expected."""
    return data_folder() / file.path


def locate(file: DataFile) -> Path:
    """Return the path of a file. Raise `MissingData`, with the remedy, if it is missing."""
    path = path_of(file)
    if not path.is_file():
        raise MissingData(missing_sentence(file))
    return path


def missing_sentence(file: DataFile) -> str:
    """Return what is missing, and how to get it."""
    folder, path = file.path.split("/")[0], path_of(file)
    start = f"{file.path} ({file.what}) is not in {data_folder()}."
    if file.urls:
        return (
            f"{start} Run `evenly data fetch {file.dataset or folder}`, or download {file.urls[0]}"
            f" yourself and save it as {path}."
        )
    return (
        f"{start} It cannot be fetched: {file.by_hand} Save it as {path}, or set EVENLY_DATA to the"
        f" folder that holds {folder}/."
    )


def check(file: DataFile) -> Path:
    """Return the path of a file. Raise `DataError` if its size and checksum are not those of a
    valid content.
    """
    path = locate(file)
    if wrong := mismatch(file, path):
        raise DataError(
            f"{path} is not the expected file ({file.what}): {wrong}. "
            "It may be cut off, changed or another version: delete it and get it again."
        )
    return path


def mismatch(file: DataFile, path: Path) -> str:
    """Return how the content at a path differs from every valid content of a file. Empty if it is
    valid, or if none is known.
    """
    size, sizes = path.stat().st_size, {content.size for content in file.contents}
    if file.contents and None not in sizes and size not in sizes:
        return f"expected {' or '.join(map(str, sorted(filter(None, sizes))))} bytes, found {size}"
    digests = {content.digest for content in file.contents}
    actual = [
        f"{kind}:{_digest(path, kind)}"
        for kind in sorted({digest.partition(":")[0] for digest in digests})
    ]
    if digests and not digests.intersection(actual):
        return f"expected checksum {' or '.join(sorted(digests))}, found {', '.join(actual)}"
    return ""


def complete(layout: Layout) -> bool:
    """Return whether all files of a layout are present."""
    return all(path_of(file).is_file() for file in layout)


def checked_files(layouts: tuple[Layout, ...]) -> tuple[Layout, list[Path]]:
    """Return the first complete layout and the paths of its files, verified. Raise `MissingData` if
    no layout is complete.
    """
    layout = next((layout for layout in layouts if complete(layout)), None)
    if layout is None:
        raise MissingData(
            missing_sentence(
                next(file for file in fetchable(layouts) if not path_of(file).is_file())
            )
        )
    return layout, [check(file) for file in layout]


def fetchable(layouts: tuple[Layout, ...]) -> Layout:
    """Return the first layout whose files can all be downloaded, or else the first layout."""
    return next((layout for layout in layouts if all(file.urls for file in layout)), layouts[0])


def fetch(file: DataFile, progress: Progress | None = None) -> Path:
    """Download a file and verify it, unless a valid one is already there."""
    if path_of(file).is_file():
        return check(file)
    if not (file.urls and file.contents):
        raise MissingData(missing_sentence(file))
    failures: list[str] = []
    for url in file.urls:
        try:
            return write_whole(
                path_of(file), lambda out, url=url: _download(file, url, out, progress)
            )
        except (urllib.error.URLError, http.client.HTTPException, OSError, DataError) as error:
            failures.append(f"{url}: {_reason(error)}")
    raise DataError(
        f"{file.path} could not be fetched. {' '.join(failures)} Download it yourself and save it"
        f" as {path_of(file)}."
    )


def _download(file: DataFile, url: str, out: IO[bytes], progress: Progress | None) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "evenly"})
    sizes = [content.size for content in file.contents]
    most = None if None in sizes else max(filter(None, sizes), default=None)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        length = answer.headers.get("Content-Length")
        total, done = int(length) if length and length.isdigit() else most, 0
        while chunk := answer.read(CHUNK):
            out.write(chunk)
            done += len(chunk)
            if most is not None and done > most:
                raise DataError(f"it is longer than the expected {most} bytes.")
            if progress is not None:
                progress(done, total)
    out.flush()
    if wrong := mismatch(file, Path(out.name)):
        raise DataError(f"the server sent another file: {wrong}.")


def _digest(path: Path, kind: str) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, kind).hexdigest()


def _reason(error: BaseException) -> str:
    # An HTTPError's reason lacks its number; any other URLError's text wraps its reason in
    # brackets.
    words = str(
        error
        if isinstance(error, urllib.error.HTTPError)
        else getattr(error, "reason", "") or error
    ).strip()
    return words if words.endswith(".") else f"{words}."


# Parsed files stay in memory until they change, because an experiment loads its data once for every
# seed. Only files of one folder are stored, so that at most one data set is in memory besides those
# in use.

Parsed = TypeVar("Parsed", np.ndarray, dict[str, np.ndarray])

_lock = threading.Lock()  # seeds are loaded in threads
# reader and file: the file's stamp, and its parsed content
_cache: dict[tuple[str, Path], tuple[Any, Any]] = {}


def read_once(read: Callable[[Path], Parsed]) -> Callable[[Path], Parsed]:
    """Make a reader that parses a file again only after it has changed. Its arrays are shared and
    read-only.
    """

    @functools.wraps(read)
    def cached_read(path: Path) -> Parsed:
        key, now = (read.__qualname__, path.absolute()), stamp(path)
        with _lock:
            before, parsed = _cache.get(key, (None, None))
        if before != now:
            parsed = _freeze(read(path))
            with _lock:
                for other in [other for other in _cache if other[1].parent != key[1].parent]:
                    del _cache[other]
                _cache[key] = now, parsed
        return parsed

    return cached_read


def stamp(path: Path) -> tuple[int, int, int]:
    """Return values that differ after the file has changed."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _freeze(parsed: Parsed) -> Parsed:
    for array in parsed.values() if isinstance(parsed, dict) else [parsed]:
        array.setflags(write=False)
    return parsed


class Sizes(NamedTuple):
    """Numbers of clients and rows of a federation."""

    clients: int
    train: int
    valid: int
    test: int
    central: int = 0

    @staticmethod
    def of(federation: Federation) -> "Sizes":
        """Return the sizes of a federation."""
        parts = (federation.train, federation.valid, federation.test)
        return Sizes(
            federation.clients, *(len(part.rows) for part in parts), central=len(federation.central)
        )


@record
class DatasetCard:
    """The description of a data set: how to load it, its files, its origin and its pitfalls.

    Example:
        >>> import evenly
        >>> def wards(clients=5, split_seed=0):
        ...     return evenly.synthetic(clients=clients, split_seed=split_seed)
        >>> card = evenly.DatasetCard(name="wards", title="Made-up wards", load=wards)
        >>> card.state
        'none needed'
    """

    name: str = static(doc="name in commands and experiment files")
    title: str = static(doc="description in one line")
    load: Callable[..., Federation] = static(doc="load(**settings, split_seed=0)")
    layouts: tuple[Layout, ...] = static(
        default=(), doc="accepted sets of files; the first complete one is read"
    )
    papers: tuple[str, ...] = static(
        default=(), doc="papers with experiments in evenly that use it"
    )
    licence: str = static(default="", doc="licence as given by the publisher")
    provenance: str = static(default="", doc="authors, source and year")
    citation: str = static(default="", doc="publication to cite")
    notes: tuple[str, ...] = static(default=(), doc="cautions, and departures from the papers")
    memory: Callable[[Mapping[str, Any]], float] | None = static(
        default=None, doc="least number of bytes of the rows with these settings; None if unknown"
    )
    expected: Sizes | None = static(
        default=None, doc="sizes with default settings; None if untested or not fixed"
    )

    @property
    def files(self) -> Layout:
        """The files that `evenly data fetch` downloads, or that the user has to provide."""
        return fetchable(self.layouts) if self.layouts else ()

    @property
    def present(self) -> Layout:
        """The files of the first complete layout, if any."""
        return next((layout for layout in self.layouts if complete(layout)), ())

    @property
    def state(self) -> str:
        """Whether the files are here, or how to get them: "here", "none needed", "fetch" or "by
        hand".
        """
        if not self.layouts:
            return "none needed"
        if self.present:
            return "here"
        return "fetch" if all(file.urls and file.contents for file in self.files) else "by hand"

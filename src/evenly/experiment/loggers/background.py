"""A thread that logs, so that training never waits for a logger and never fails with it."""

import hashlib
import json
import queue
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from evenly.experiment.observe import Log, Point, complain

PATIENCE = 60.0  # seconds in which a logger must get something done, once nothing more is to come


class Backend(Protocol):
    """Somewhere to log to. It is only ever used by one thread."""

    def log(self, point: Point) -> None: ...
    def close(self, *, finished: bool) -> None: ...  # runs that have not come to their end are marked as stopped, or go on


class _Worker:
    """Logs points one after another until it is told to end, or the backend fails."""

    def __init__(self, name: str, backend: Backend) -> None:
        self._name, self._backend = name, backend
        self._points: queue.SimpleQueue[Point | bool] = queue.SimpleQueue()
        self._failed, self._logged = False, 0
        self._thread = threading.Thread(target=self._work, name=f"evenly-log-{name}", daemon=True)
        self._thread.start()

    def put(self, point: Point) -> None:
        if not self._failed:
            self._points.put(point)

    def end(self, *, finished: bool) -> None:
        """Wait for what is still to be logged, as long as it moves on."""
        self._points.put(finished)
        before = -1
        while self._thread.is_alive() and self._logged != before:
            before = self._logged
            self._thread.join(PATIENCE)
        if self._thread.is_alive():
            self._failed = True
            complain(f"Logging to {self._name} does not answer; {self._points.qsize()} points were not logged. The results are whole.")

    def _work(self) -> None:
        try:
            while not isinstance(point := self._points.get(), bool):
                self._backend.log(point)
                self._logged += 1
            self._backend.close(finished=point)
        except Exception as error:  # a server that is gone, a disk that is full: training goes on
            self._failed = True
            complain(f"Logging to {self._name} stopped ({type(error).__name__}: {_first_line(error)}). Training goes on.")


@contextmanager
def in_background(name: str, backend: Backend) -> Iterator[Log]:
    """A function that logs soon and returns at once."""
    worker = _Worker(name, backend)
    try:
        yield worker.put
    except BaseException:
        worker.end(finished=False)
        raise
    worker.end(finished=True)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


# What a run and its metrics are called elsewhere.


def key_of(point: Point, folder: Path) -> str:
    """The same for the same run of the same settings in the same folder, so that one that goes on is found again."""
    told = json.dumps([str(folder.resolve()), *point.run, point.params], sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:24]


def metrics_of(point: Point) -> dict[str, float]:
    """`split/metric` -> value: loggers group by what is before the slash."""
    return {f"{split}/{metric}": value for split, each in point.values.items() for metric, value in each.items()}


def params_of(point: Point) -> dict[str, str | int | float | bool]:
    """Settings as loggers take them: numbers, words and truths stay, everything else becomes text."""
    return {name: value if isinstance(value, bool | int | float | str) else json.dumps(value) for name, value in point.params.items()}


def path_of(point: Point) -> Path:
    """A folder for a run: readable, safe, and different for different runs.

    >>> from evenly.experiment.observe import RunId
    >>> path_of(Point(RunId("test", "q-fedavg(q=1)", 0), 0, 1, {}, {})).as_posix()
    'test/q-fedavg(q=1)/seed-0'
    """
    return Path(*(_safe(part) for part in point.run.experiment.split("/") if part), _safe(point.run.label), f"seed-{point.run.seed}")


def _safe(name: str) -> str:
    kept = re.sub(r"[^\w.,=()+\[\] -]+", "_", name)[:100]
    return kept if kept == name and name.strip(".") else f"{kept.strip('.')}-{zlib.crc32(name.encode()):08x}"

"""Log evaluations to TensorBoard, MLflow or Weights & Biases. Each run is one run there, and the
step is the round.

A thread of its own sends the points, so a slow server never delays training. If a logger fails,
evenly prints one warning and training continues. `to_tensorboard`, `to_mlflow` and `to_wandb` are
imported when they are used, because each needs a package that may not be installed.
"""

import hashlib
import json
import queue
import re
import sys
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from evenly.experiment.observe import Log, Point, warn
from evenly.notation import unknown

PATIENCE = 60.0  # seconds in which a logger must get something done, once nothing more is to come


class Backend(Protocol):
    """A system to log to. One thread uses it."""

    def log(self, point: Point) -> None: ...

    # runs that have not come to their end are marked as stopped, or go on
    def close(self, *, finished: bool) -> None: ...


class _Worker:
    """Logs points on a thread until it is ended or the backend fails."""

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
        """Wait until all points are logged, as long as the backend makes progress."""
        self._points.put(finished)
        before = -1
        while self._thread.is_alive() and self._logged != before:
            before = self._logged
            self._thread.join(PATIENCE)
        if self._thread.is_alive():
            self._failed = True
            warn(
                f"Logging to {self._name} did not respond; {self._points.qsize()} points were not"
                " logged. The results are complete."
            )

    def _work(self) -> None:
        try:
            while not isinstance(point := self._points.get(), bool):
                self._backend.log(point)
                self._logged += 1
            self._backend.close(finished=point)
        except Exception as error:  # a server that is gone, a disk that is full: training goes on
            self._failed = True
            warn(
                f"Logging to {self._name} stopped ({type(error).__name__}: {_first_line(error)})."
                " Training continues."
            )


@contextmanager
def in_background(name: str, backend: Backend) -> Iterator[Log]:
    """Context that yields a function that queues points and returns immediately."""
    worker = _Worker(name, backend)
    try:
        yield worker.put
    except BaseException:
        worker.end(finished=False)
        raise
    worker.end(finished=True)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


# Names of runs and metrics in other systems.


def key_of(point: Point, folder: Path) -> str:
    """An identifier of a run: the same for the same settings in the same folder, so that a resumed
    run is found again.
    """
    told = json.dumps(
        [str(folder.resolve()), *point.run, point.params], sort_keys=True, default=str
    )
    return hashlib.sha256(told.encode()).hexdigest()[:24]


def metrics_of(point: Point) -> dict[str, float]:
    """`split/metric` -> value. Loggers group metrics by the part before the slash."""
    return {
        f"{split}/{metric}": value
        for split, each in point.values.items()
        for metric, value in each.items()
    }


def params_of(point: Point) -> dict[str, str | int | float | bool]:
    """Settings as loggers accept them: numbers, text and booleans. Other values become
    JSON text.
    """
    return {
        name: value if isinstance(value, bool | int | float | str) else json.dumps(value)
        for name, value in point.params.items()
    }


def path_of(point: Point) -> Path:
    """A folder for a run: readable, safe, and different for different runs.

    >>> from evenly.experiment.observe import RunId
    >>> path_of(Point(RunId("test", "q-fedavg(q=1)", 0), 0, 1, {}, {})).as_posix()
    'test/q-fedavg(q=1)/seed-0'
    """
    return Path(
        *(_safe(part) for part in point.run.experiment.split("/") if part),
        _safe(point.run.label),
        f"seed-{point.run.seed}",
    )


def _safe(name: str) -> str:
    kept = re.sub(r"[^\w.,=()+\[\] -]+", "_", name)[:100]
    return (
        kept
        if kept == name and name.strip(".")
        else f"{kept.strip('.')}-{zlib.crc32(name.encode()):08x}"
    )


# The loggers by name: module and class, and the package that they need.

LOGGERS = {
    "tensorboard": ("to_tensorboard", "ToTensorBoard"),
    "mlflow": ("to_mlflow", "ToMLflow"),
    "wandb": ("to_wandb", "ToWandb"),
}
PACKAGES = {
    "tensorboard": ("tensorboardX", "tensorboardX"),
    "mlflow": ("mlflow", "mlflow-skinny"),
    "wandb": ("wandb", "wandb"),
}


def check_loggers(names: Sequence[str]) -> None:
    """Raise ValueError if a logger is unknown or its package is not installed."""
    for name in names:
        if name not in LOGGERS:
            raise unknown("logger", name, LOGGERS)
        module, package = PACKAGES[name]
        if module not in sys.modules and find_spec(module) is None:
            raise ValueError(
                f"Logging to {name} needs the package {package}, which is not installed. Install it"
                " with `pip install 'evenly[logging]'`, or do not log."
            )


def _backend(name: str, folder: Path) -> Backend:
    module, kind = LOGGERS[name]
    return getattr(import_module(f"{__name__}.{module}"), kind)(folder)


@contextmanager
def logging_to(names: Sequence[str], folder: Path) -> Iterator[Log | None]:
    """Context that yields the `log` argument of `execute`, or None if no logger is named.

    Files of loggers are written to `folder`/logs.
    """
    check_loggers(names)
    with ExitStack() as stack:
        backends = {name: _backend(name, folder / "logs" / name) for name in dict.fromkeys(names)}
        logs = [
            stack.enter_context(in_background(name, backend)) for name, backend in backends.items()
        ]

        def log(point: Point) -> None:
            for one in logs:
                one(point)

        yield log if logs else None

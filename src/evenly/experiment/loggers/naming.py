"""What a run and its metrics are called elsewhere."""

import hashlib
import json
import re
import zlib
from pathlib import Path

from evenly.experiment.observing import Point


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

    >>> from evenly.experiment.observing import RunId
    >>> path_of(Point(RunId("test", "q-fedavg(q=1)", 0), 0, 1, {}, {})).as_posix()
    'test/q-fedavg(q=1)/seed-0'
    """
    return Path(*(_safe(part) for part in point.run.experiment.split("/") if part), _safe(point.run.label), f"seed-{point.run.seed}")


def _safe(name: str) -> str:
    kept = re.sub(r"[^\w.,=()+\[\] -]+", "_", name)[:100]
    return kept if kept == name and name.strip(".") else f"{kept.strip('.')}-{zlib.crc32(name.encode()):08x}"

"""The state of an experiment for `evenly watch`, read from its files as they grow."""

import os
import shlex
import socket
import time
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import IO, Any, NamedTuple

from evenly.data.splits import CENTRAL
from evenly.experiment.folder import slug
from evenly.experiment.observe import LIVE_FILE, LIVE_FORMAT, is_running
from evenly.metrics import EVERY_METRIC
from evenly.report.values import SPLIT_WORDS, format_value
from evenly.validation import check_kinds, fits, plain_json

# The records of a live file, combined: progress of each run and values of each method.

CLIENT_TITLES = {
    "average": "average accuracy (%)",
    "worst10": "worst 10 % (%)",
    "variance": "variance (%²)",
    "loss": "loss",
}
RECENT = 0.25  # share of the time so far from which the pace is taken


class Values(NamedTuple):
    """One metric of one method after some rounds, over the seeds so far."""

    mean: float
    low: float
    high: float
    seeds: int


class LiveRun:
    """One execution of one plan, from the records of its live file."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        self.head, told = records[0], records[1:]
        self.runs = [(label, seed) for label, seed in self.head["runs"]]
        self.labels = list(dict.fromkeys(label for label, _ in self.runs))
        # label -> round -> seed
        self.points: dict[str, dict[int, dict[int, dict[str, float]]]] = {
            label: {} for label in self.labels
        }
        self._begun, self._failed, self._progress = set(), set(), []
        self.end, self.error, self.last = "", "", self.head["time"]
        for record in told:
            self._take(record)
            self.last = max(self.last, record.get("time", 0.0))

    def _take(self, record: dict[str, Any]) -> None:
        if "round" in record and record["label"] in self.points:
            values = {
                f"{split}:{m}": v
                for split, each in record["values"].items()
                for m, v in each.items()
                if _has_title(split, m)
            }
            self.points[record["label"]].setdefault(record["round"], {})[record["seed"]] = values
        elif "done" in record:
            self._progress.append((record["time"], record["done"], record["total"]))
        elif "started" in record or "failed" in record:
            self._begun |= {tuple(run) for run in record.get("started", ())}
            self._failed |= {tuple(run) for run in record.get("failed", ())}
            self.error = record.get("error", self.error)
        elif "end" in record:
            self.end, self.error = record["end"], record.get("error", self.error)

    @property
    def done(self) -> tuple[int, int]:
        """Finished rounds and total rounds over all programs; (0, 0) if unknown."""
        return self._progress[-1][1:] if self._progress else (0, 0)

    def left(self) -> float | None:
        """Estimated seconds of training left, from the recent pace, or None."""
        if self.end or len(self._progress) < 2:
            return None
        time, done, total = self._progress[-1]
        since = time - RECENT * (time - self.head["time"])
        before = next((p for p in reversed(self._progress) if p[0] <= since), self._progress[0])
        return (
            (total - done) * (time - before[0]) / (done - before[1]) if done > before[1] else None
        )

    def state(self, label: str, seed: int, *, over: bool) -> str:
        """The state of a run: finished, failed, running or waiting. With `over`, a running one is
        stopped.
        """
        if seed in self.points[label].get(self.head["rounds"], {}):
            return "finished"
        if (label, seed) in self._failed:
            return "failed"
        seen = (label, seed) in self._begun or any(
            seed in seeds for seeds in self.points[label].values()
        )
        return ("stopped" if over else "running") if seen else "waiting"

    def metrics(self) -> dict[str, str]:
        """`split:metric` -> title, for all metrics with values."""
        seen = dict.fromkeys(
            m
            for rounds in self.points.values()
            for seeds in rounds.values()
            for values in seeds.values()
            for m in values
        )
        return {name: title_of(*name.split(":")) for name in _order(list(seen))}

    def values(self, label: str, metric: str) -> Iterator[tuple[int, Values]]:
        """A metric after each number of rounds, over the seeds so far."""
        for done, seeds in sorted(self.points[label].items()):
            known = [values[metric] for values in seeds.values() if metric in values]
            if known:
                yield done, Values(sum(known) / len(known), min(known), max(known), len(known))


def _has_title(split: str, metric: str) -> bool:
    """Whether a metric has a title. Metrics of later versions and of plugins have none and are not
    shown.
    """
    return (metric in CLIENT_TITLES or metric in EVERY_METRIC) and (
        split == CENTRAL or split in SPLIT_WORDS
    )


def title_of(split: str, metric: str) -> str:
    """The title of a metric on the page."""
    name = CLIENT_TITLES.get(metric) or EVERY_METRIC[metric].title
    where = "central test set" if split == CENTRAL else f"{SPLIT_WORDS[split]} rows"
    return f"{name}, {where}"


def format_metric(value: float, metric: str) -> str:
    """A value as in tables."""
    name = metric.partition(":")[2]
    return f"{value:.3f}" if name == "loss" else format_value(value, EVERY_METRIC[name])


def _order(metrics: list[str]) -> list[str]:
    """Metrics in the order of the page: clients' metrics, then group metrics, then those of the
    central test set.
    """
    order = [*CLIENT_TITLES, *EVERY_METRIC]
    return sorted(
        metrics, key=lambda name: (name.startswith(CENTRAL), order.index(name.partition(":")[2]))
    )


# Reading live files and other files of a folder: plain files inside it only, with every record
# checked.

LATEST = 1e11  # seconds, in the year 5138: a time beyond is none
RUN = list[Any]  # a label and a seed
HEAD = {
    "live": int, "time": float, "pid": int, "host": str, "name": str, "data": str, "rounds": int,
    "splits": list[str], "runs": list[RUN],
}  # fmt: skip
NOTE = {
    "time": float, "label": str, "seed": int, "round": int, "values": dict[str, dict[str, float]],
    "done": int, "total": int, "started": list[RUN], "failed": list[RUN], "error": str, "end": str,
}  # fmt: skip
LARGEST = 2**53  # whole numbers beyond are not exact as floating-point numbers
MOST = 1e300  # a value beyond is none
# what a note is about
TOGETHER = (
    {"label", "seed", "round", "values"},
    {"done", "total"},
    {"started"},
    {"failed"},
    {"end"},
)


def open_inside(folder: Path, path: Path) -> IO[bytes]:
    """Open a plain file inside a folder.

    Raises:
        FileNotFoundError: Also for symbolic links and files behind them, which may be outside the
            folder.
    """
    inside = path.resolve().is_relative_to(folder.resolve())
    if not inside or path.is_symlink() or not path.is_file():
        raise FileNotFoundError(path)
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")


def read_object(folder: Path, name: str) -> dict[str, Any]:
    """The JSON object in a file of a folder, or {} if there is none."""
    try:
        with open_inside(folder, folder / name) as file:
            found = plain_json(file.read())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class Tail:
    """The records of a live file. Each call reads only the lines that were added; an incomplete
    last line is not read.
    """

    def __init__(self, folder: Path, path: Path) -> None:
        self.folder, self.path = folder, path
        self._records: list[dict[str, Any]] = []
        self._file, self._offset = (0, 0), 0

    def read(self) -> list[dict[str, Any]]:
        """All records, the head first; [] if there is no file or if it has a later format."""
        try:
            with open_inside(self.folder, self.path) as file:
                self._continue(file.fileno())
                file.seek(self._offset)
                added = file.read()
        except OSError:
            self._forget((0, 0))
            return []
        whole = added[: added.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self._take(_parse(line))
        return (
            self._records if self._records and self._records[0].get("live") == LIVE_FORMAT else []
        )

    def _take(self, record: dict[str, Any] | None) -> None:
        """Add a valid record. The first record must be a head."""
        if (
            record is not None
            and (self._records or is_head(record))
            and (not self._records or is_note(record))
        ):
            self._records.append(record)

    def _continue(self, file: int) -> None:
        """Start again if the file was replaced."""
        found = os.fstat(file)
        if (found.st_dev, found.st_ino) != self._file or found.st_size < self._offset:
            self._forget((found.st_dev, found.st_ino))

    def _forget(self, file: tuple[int, int]) -> None:
        self._records, self._file, self._offset = [], file, 0


def is_head(record: dict[str, Any]) -> bool:
    """Whether a record is a valid head: it describes an execution."""
    return (
        HEAD.keys() <= record.keys()
        and _kinds_fit(record, HEAD)
        and 0 <= record["time"] < LATEST
        and 0 < record["pid"] < 2**31
        and all(_is_run(run) for run in record["runs"])
    )


def is_note(record: dict[str, Any]) -> bool:
    """Whether a record is a valid line after the head."""
    return (
        "time" in record
        and _kinds_fit(record, NOTE)
        and 0 <= record["time"] < LATEST
        and any(names <= record.keys() for names in TOGETHER)
        and not any(names & record.keys() and not names <= record.keys() for names in TOGETHER[:2])
        and all(_is_run(run) for name in ("started", "failed") for run in record.get(name, ()))
    )


def _kinds_fit(record: dict[str, Any], kinds: dict[str, Any]) -> bool:
    try:
        check_kinds(record, kinds)
    except ValueError:
        return False
    return all(abs(value) < LARGEST for value in record.values() if fits(value, int))


def _is_run(run: list[Any]) -> bool:
    return len(run) == 2 and fits(run[0], str) and fits(run[1], int) and abs(run[1]) < LARGEST


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        found = plain_json(line)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    if isinstance(found.get("values"), dict):  # NaN and infinities cannot be drawn
        found["values"] = {split: _finite(each) for split, each in found["values"].items()}
    return found


def _finite(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    return {
        name: value
        for name, value in values.items()
        if not fits(value, float) or (abs(value) < MOST and isfinite(value))
    }


# The state for the page: progress, a table, and the lines of one chart.

STATES = ("finished", "running", "waiting", "stopped", "failed")
# the table's columns, where known
OF_CLIENTS, OF_GROUPS = ("average", "worst10", "variance"), ("accuracy", "eod_abs", "spd_abs")


class WatchState:
    """The state of a folder of results.

    A study has one part for each partition, a search for settings one for each batch. Other
    experiments have one part.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tails: dict[str, Tail] = {}
        self._folded: dict[str, tuple[int, float, LiveRun]] = {}

    def look(self, part: str = "", metric: str = "", seen: str = "") -> dict[str, Any]:
        """The state as plain data. `seen` is the version of the lines that the page has; they are
        not sent again.
        """
        found = {name: self._found(name, path) for name, path in self._parts().items()}
        begun = {name: one for name, one in found.items() if one}
        chosen = part if part in begun else _latest(begun)
        status, sentence = self._status(found)
        told: dict[str, Any] = {
            "title": self._title(begun.get(chosen)), "folder": str(self.folder), "status": status,
            "sentence": sentence, "now": time.time(), "report": self._report(begun),
            "parts": {name: _stage(one) for name, one in found.items()} if len(found) > 1 else {},
            "part": chosen, "progress": _progress(found),
        }  # fmt: skip
        return told | (
            _details(begun[chosen], metric, seen, over=status != "running")
            if chosen in begun
            else {}
        )

    def _parts(self) -> dict[str, Path]:
        cells = read_object(self.folder, "plan.json").get("cells")
        if isinstance(cells, dict) and cells:
            return {name: self.folder / "cells" / slug(name) / LIVE_FILE for name in cells}
        inside = (
            []
            if (self.folder / LIVE_FILE).exists()
            else [*self.folder.glob(f"*/{LIVE_FILE}"), *self.folder.glob(f"*/*/{LIVE_FILE}")]
        )
        return {
            path.parent.relative_to(self.folder).as_posix(): path for path in sorted(inside)
        } or {"": self.folder / LIVE_FILE}

    def _found(self, name: str, path: Path) -> LiveRun | None:
        tail = self._tails.setdefault(name, Tail(self.folder, path))
        records = tail.read()
        if not records:
            return None
        size, began, found = self._folded.get(name, (0, 0.0, None))
        if found is None or size != len(records) or began != records[0]["time"]:
            found = LiveRun(records)
            self._folded[name] = (len(records), records[0]["time"], found)
        return found

    def _status(self, parts: dict[str, LiveRun | None]) -> tuple[str, str]:
        """A word for the state of the experiment, and a sentence that says what happens and what
        the user can do.
        """
        begun = {name: one for name, one in parts.items() if one}
        if not begun:
            if self._report(begun):
                return "finished", "This experiment is finished."
            begins = "is being trained" if (self.folder / "plan.json").exists() else "has begun"
            return (
                "waiting",
                f"Nothing {begins} in {self.folder} yet. This page updates when training starts.",
            )
        last = begun[name := _latest(begun)]
        if not last.end and is_running(self._tails[name].path):
            begins = (
                "The first round is under way."
                if self._deployed()
                else "Loading data and compiling."
            )
            return "running", "Training." if last.done[0] or any(last.points.values()) else begins
        if (
            last.end == "finished"
            and all(one and one.end == "finished" for one in parts.values())
            and self._report(begun)
        ):
            return "finished", "This experiment is finished."
        if last.end == "finished" and _alive(last):
            over = len(begun) == len(parts)
            return (
                "running",
                (
                    "Training is done; the results are being written."
                    if over
                    else "The next partition is being prepared."
                ),
            )
        return self._interruption(last)

    def _interruption(self, last: LiveRun) -> tuple[str, str]:
        """The state of an experiment that ended too early: why, and how to resume it."""
        again = self._again()
        if last.end == "failed":
            return (
                "failed",
                (
                    f"Training failed: {last.error} Finished results are stored. When the cause is"
                    f" fixed, continue with {again}."
                ),
            )
        if last.end == "stopped":
            return (
                "stopped",
                f"Training was stopped. Finished results are stored; continue with {again}.",
            )
        since = time.strftime("%H:%M:%S on %d %B", time.localtime(last.last))
        return (
            "gone",
            (
                f"No progress since {since}: the process has ended. Finished results are stored;"
                f" continue with {again}."
            ),
        )

    def _again(self) -> str:
        """How to resume: a deployment needs its server, other experiments a command."""
        return (
            "starting the server again with this folder"
            if self._deployed()
            else f"`evenly resume {shlex.quote(str(self.folder))}`"
        )

    def _deployed(self) -> bool:
        return "deployment" in read_object(self.folder, "plan.json")

    def _title(self, found: LiveRun | None) -> str:
        """The title in run.json, the name in the plan, or the name of the folder."""
        title = read_object(self.folder, "run.json").get("title")
        return str(
            title
            if isinstance(title, str) and title
            else (found.head["name"] if found else self.folder.resolve().name)
        )

    def _report(self, begun: dict[str, LiveRun]) -> bool:
        """Whether there is a report of this execution."""
        try:
            with open_inside(self.folder, self.folder / "report.html") as file:
                written = os.fstat(file.fileno()).st_mtime
        except OSError:
            return False
        return written >= max((one.head["time"] for one in begun.values()), default=0.0)


def _alive(found: LiveRun) -> bool:
    """Whether the process that wrote a file is running. Its number may have been reused, which
    affects a sentence only.
    """
    if found.head["host"] != socket.gethostname():
        return False
    try:
        os.kill(found.head["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _stage(found: LiveRun | None) -> str:
    return "waiting" if found is None else found.end or "running"


def _latest(begun: dict[str, LiveRun]) -> str:
    """The part with the latest record. Of two with the same time, the later part."""
    return max(reversed(begun), key=lambda name: begun[name].last, default="")


def _progress(parts: dict[str, LiveRun | None]) -> dict[str, Any]:
    """Finished and total rounds. Parts that have not started count as long as the last one that
    has.
    """
    begun = [one for one in parts.values() if one]
    done, total = (
        (sum(counts) for counts in zip(*(one.done for one in begun), strict=True))
        if begun
        else (0, 0)
    )
    waiting = len(parts) - len(begun)
    each = begun[-1].done[1] if begun else 0
    lefts = [left for one in begun if not one.end and (left := one.left()) is not None]
    began = min((one.head["time"] for one in begun), default=None)
    pace = _pace(begun[-1]) if begun else None
    left = (
        None
        if not lefts and not (waiting and pace)
        else sum(lefts) + (waiting * each * pace if waiting and pace else 0.0)
    )
    return {
        "done": done,
        "total": total + waiting * each,
        "left": left,
        "began": began,
        "last": max((o.last for o in begun), default=None),
    }


def _pace(found: LiveRun) -> float | None:
    """Seconds per round of training in one execution, or None."""
    return (found.last - found.head["time"]) / found.done[0] if found.done[0] else None


def _details(found: LiveRun, metric: str, seen: str, *, over: bool) -> dict[str, Any]:
    metrics = found.metrics()
    metric = metric if metric in metrics else next(iter(metrics), "")
    version = f"{found.head['time']}:{found.last}:{metric}"
    states = [found.state(label, seed, over=over) for label, seed in found.runs]
    told = {
        "data": found.head["data"], "rounds": found.head["rounds"], "metrics": metrics,
        "metric": metric, "version": version,
        "runs": {state: states.count(state) for state in STATES},
        "columns": (columns := _columns(metrics)),
        "methods": [_method(found, label, list(columns), over=over) for label in found.labels],
    }  # fmt: skip
    return (
        told
        if version == seen
        else told
        | {"lines": [row for label in found.labels for row in _line(found, label, metric)]}
    )


def _columns(metrics: dict[str, str]) -> dict[str, str]:
    """Metrics of the table: clients' metrics, and group metrics on the central test set if there is
    one.
    """
    split = CENTRAL if any(m.startswith(CENTRAL) for m in metrics) else ""
    return {
        m: title
        for m, title in metrics.items()
        if m.endswith(OF_CLIENTS) or (m.startswith(split) and m.endswith(OF_GROUPS))
    }


def _method(found: LiveRun, label: str, metrics: list[str], *, over: bool) -> dict[str, Any]:
    """A row of the table: each metric after the last evaluated round."""
    seeds = [seed for name, seed in found.runs if name == label]
    stages = [found.state(label, seed, over=over) for seed in seeds]
    last = {
        m: list(found.values(label, m))[-1]
        for m in metrics
        if any(True for _ in found.values(label, m))
    }
    values = {
        m: {
            "text": format_metric(v.mean, m),
            "seeds": v.seeds,
            "span": f"{format_metric(v.low, m)} to {format_metric(v.high, m)}",
        }
        for m, (_, v) in last.items()
    }
    at = max((done for done, _ in last.values()), default=0)
    return {
        "label": label,
        "round": at,
        "seeds": len(seeds),
        "stages": {s: stages.count(s) for s in STATES if s in stages},
        "values": values,
    }


def _line(found: LiveRun, label: str, metric: str) -> list[dict[str, Any]]:
    return [
        {
            "method": label,
            "round": done,
            "mean": v.mean,
            "low": v.low,
            "high": v.high,
            "span": f"{format_metric(v.low, metric)} to {format_metric(v.high, metric)}"
            if v.seeds > 1
            else "one",
        }
        for done, v in found.values(label, metric)
    ]

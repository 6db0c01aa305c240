"""What the page is told: how the experiment stands, in words and numbers, and the lines of one chart."""

import os
import shlex
import socket
import time
from pathlib import Path
from typing import Any

from evenly.data.splits import CENTRAL
from evenly.experiment.folder import slug
from evenly.experiment.observe import NAME, is_running
from evenly.watch.found import Found, shown
from evenly.watch.tail import Tail, opened, read_object

STATES = ("finished", "running", "waiting", "stopped", "failed")
OF_CLIENTS, OF_GROUPS = ("average", "worst10", "variance"), ("accuracy", "eod_abs", "spd_abs")  # the table's columns, where known


class State:
    """A folder of results, looked at again and again.

    A study has a part for each of its partitions, a search for settings one for each batch; other experiments have one in all.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tails: dict[str, Tail] = {}
        self._folded: dict[str, tuple[int, float, Found]] = {}

    def look(self, part: str = "", metric: str = "", seen: str = "") -> dict[str, Any]:
        """The state as plain data. `seen` is the version of the lines that the page has already; they are not sent twice."""
        found = {name: self._found(name, path) for name, path in self._parts().items()}
        begun = {name: one for name, one in found.items() if one}
        chosen = part if part in begun else _latest(begun)
        status, sentence = self._status(found)
        told: dict[str, Any] = {
            "title": self._title(begun.get(chosen)), "folder": str(self.folder),
            "status": status, "sentence": sentence, "now": time.time(), "report": self._report(begun),
            "parts": {name: _stage(one) for name, one in found.items()} if len(found) > 1 else {}, "part": chosen,
            "progress": _progress(found),
        }  # fmt: skip
        return told | (_details(begun[chosen], metric, seen, over=status != "running") if chosen in begun else {})

    def _parts(self) -> dict[str, Path]:
        cells = read_object(self.folder, "plan.json").get("cells")
        if isinstance(cells, dict) and cells:
            return {name: self.folder / "cells" / slug(name) / NAME for name in cells}
        inside = [] if (self.folder / NAME).exists() else [*self.folder.glob(f"*/{NAME}"), *self.folder.glob(f"*/*/{NAME}")]
        return {path.parent.relative_to(self.folder).as_posix(): path for path in sorted(inside)} or {"": self.folder / NAME}

    def _found(self, name: str, path: Path) -> Found | None:
        tail = self._tails.setdefault(name, Tail(self.folder, path))
        records = tail.read()
        if not records:
            return None
        size, began, found = self._folded.get(name, (0, 0.0, None))
        if found is None or size != len(records) or began != records[0]["time"]:
            found = Found(records)
            self._folded[name] = (len(records), records[0]["time"], found)
        return found

    def _status(self, parts: dict[str, Found | None]) -> tuple[str, str]:
        """A word and a sentence: what happens, and what the user can do."""
        again = self._again()
        begun = {name: one for name, one in parts.items() if one}
        if not begun:
            if self._report(begun):
                return "finished", "This experiment is finished."
            begins = "is being trained" if (self.folder / "plan.json").exists() else "has begun"
            return "waiting", f"Nothing {begins} in {self.folder} yet. This page goes on looking."
        last = begun[name := _latest(begun)]
        if not last.end and is_running(self._tails[name].path):
            begins = "The first round is under way." if self._deployed() else "Loading data and compiling."
            return "running", "Training." if last.done[0] or any(last.points.values()) else begins
        if last.end == "failed":
            return "failed", f"It failed: {last.error} What was finished is kept; once the cause is gone, go on with {again}."
        if last.end == "stopped":
            return "stopped", f"It was stopped. What was finished is kept; go on with {again}."
        if last.end == "finished" and all(one and one.end == "finished" for one in parts.values()) and self._report(begun):
            return "finished", "This experiment is finished."
        if last.end == "finished" and _alive(last):
            over = len(begun) == len(parts)
            return "running", "Training is done; the results are being written." if over else "The next partition is being made ready."
        since = time.strftime("%H:%M:%S on %d %B", time.localtime(last.last))
        return "gone", f"No progress since {since}: the process is gone. What was finished is kept; go on with {again}."

    def _again(self) -> str:
        """How to go on: what a deployment waits for is its server, not a command of ours."""
        return "starting the server again with this folder" if self._deployed() else f"`evenly resume {shlex.quote(str(self.folder))}`"

    def _deployed(self) -> bool:
        return "deployment" in read_object(self.folder, "plan.json")

    def _title(self, found: Found | None) -> str:
        """What run.json calls the experiment, or its name in the plan, or the folder's."""
        title = read_object(self.folder, "run.json").get("title")
        return str(title if isinstance(title, str) and title else (found.head["name"] if found else self.folder.resolve().name))

    def _report(self, begun: dict[str, Found]) -> bool:
        """Whether there is a report, and of this execution."""
        try:
            with opened(self.folder, self.folder / "report.html") as file:
                written = os.fstat(file.fileno()).st_mtime
        except OSError:
            return False
        return written >= max((one.head["time"] for one in begun.values()), default=0.0)


def _alive(found: Found) -> bool:
    """Whether the process that wrote a file is there; another may have its number by now, which only changes a sentence."""
    if found.head["host"] != socket.gethostname():
        return False
    try:
        os.kill(found.head["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _stage(found: Found | None) -> str:
    return "waiting" if found is None else found.end or "running"


def _latest(begun: dict[str, Found]) -> str:
    """The part that told something last; of two at the same moment the later one, because parts follow each other."""
    return max(reversed(begun), key=lambda name: begun[name].last, default="")


def _progress(parts: dict[str, Found | None]) -> dict[str, Any]:
    """Rounds done and in all. Partitions that have not begun are taken to be like the last that has."""
    begun = [one for one in parts.values() if one]
    done, total = (sum(counts) for counts in zip(*(one.done for one in begun), strict=True)) if begun else (0, 0)
    waiting = len(parts) - len(begun)
    each = begun[-1].done[1] if begun else 0
    lefts = [left for one in begun if not one.end and (left := one.left()) is not None]
    began = min((one.head["time"] for one in begun), default=None)
    pace = _pace(begun[-1]) if begun else None
    left = None if not lefts and not (waiting and pace) else sum(lefts) + (waiting * each * pace if waiting and pace else 0.0)
    return {"done": done, "total": total + waiting * each, "left": left, "began": began, "last": max((o.last for o in begun), default=None)}


def _pace(found: Found) -> float | None:
    """Seconds for a round of training in one execution, where it trained anything."""
    return (found.last - found.head["time"]) / found.done[0] if found.done[0] else None


def _details(found: Found, metric: str, seen: str, *, over: bool) -> dict[str, Any]:
    metrics = found.metrics()
    metric = metric if metric in metrics else next(iter(metrics), "")
    version = f"{found.head['time']}:{found.last}:{metric}"
    states = [found.state(label, seed, over=over) for label, seed in found.runs]
    told = {
        "data": found.head["data"], "rounds": found.head["rounds"], "metrics": metrics, "metric": metric, "version": version,
        "runs": {state: states.count(state) for state in STATES},
        "columns": (columns := _columns(metrics)), "methods": [_method(found, label, list(columns), over=over) for label in found.labels],
    }  # fmt: skip
    return told if version == seen else told | {"lines": [row for label in found.labels for row in _line(found, label, metric)]}


def _columns(metrics: dict[str, str]) -> dict[str, str]:
    """The table's metrics: clients' own, and the groups' on the central test set where there is one."""
    split = CENTRAL if any(m.startswith(CENTRAL) for m in metrics) else ""
    return {m: title for m, title in metrics.items() if m.endswith(OF_CLIENTS) or (m.startswith(split) and m.endswith(OF_GROUPS))}


def _method(found: Found, label: str, metrics: list[str], *, over: bool) -> dict[str, Any]:
    """A row of the table: each metric after the last rounds that any seed has reached."""
    seeds = [seed for name, seed in found.runs if name == label]
    stages = [found.state(label, seed, over=over) for seed in seeds]
    last = {m: list(found.values(label, m))[-1] for m in metrics if any(True for _ in found.values(label, m))}
    values = {
        m: {"text": shown(v.mean, m), "seeds": v.seeds, "span": f"{shown(v.low, m)} to {shown(v.high, m)}"} for m, (_, v) in last.items()
    }
    at = max((done for done, _ in last.values()), default=0)
    return {
        "label": label,
        "round": at,
        "seeds": len(seeds),
        "stages": {s: stages.count(s) for s in STATES if s in stages},
        "values": values,
    }


def _line(found: Found, label: str, metric: str) -> list[dict[str, Any]]:
    return [
        {
            "method": label, "round": done, "mean": v.mean, "low": v.low, "high": v.high,
            "span": f"{shown(v.low, metric)} to {shown(v.high, metric)}" if v.seeds > 1 else "one",
        }
        for done, v in found.values(label, metric)
    ]  # fmt: skip

"""`live.jsonl`: what a running experiment has found so far, for `evenly watch` and for anybody who can read lines of JSON.

The first line says what runs; the others, in the order in which things happened, hold a `time` and one of these:

    label, seed, round, values          what an evaluation found: values[split][metric]
    done, total                         rounds of training, over all programs
    started | failed: [[label, seed]]   runs that are trained together began, or ended with an `error`
    end: finished | stopped | failed    the last line of an execution that was not killed

Lines are appended whole, so after a kill at most the last one is torn, and it is not read. Every execution begins the file
anew with what was found before. While its process lives, the file is locked; the kernel lets go of it however that ends.
"""

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

NAME = "live.jsonl"
FORMAT = 1
MOST_EVALUATIONS = 200  # of one run that are written down: a screen shows no more
MOST_LINES = 20_000  # about; where there are very many runs, fewer evaluations of each are written down
PAUSE, SHARE = 0.5, 400  # seconds between two notes of progress; of a long run, at most about one in so many parts of its time

RunName = tuple[str, int]  # label and seed


class Live:
    """The file of one execution. A disk that is full ends it, never the experiment."""

    def __init__(self, folder: Path, about: Mapping[str, Any], runs: Sequence[RunName]) -> None:
        self._lock, self._began, self._noted = threading.Lock(), time.monotonic(), -PAUSE
        self._rounds, self._splits = about["rounds"], about["splits"]
        most = min(MOST_EVALUATIONS, max(4, MOST_LINES // len(runs)))
        self._stride = about["every"] * -(-about["rounds"] // (about["every"] * most))
        head = {"live": FORMAT, "time": time.time(), "pid": os.getpid(), "host": socket.gethostname(), **about, "runs": runs}
        self._file: int | None = None
        with suppress(OSError):
            self._file = _begun(folder / NAME, _line(head))

    def wants(self, done: int) -> bool:
        """Whether the evaluation after so many rounds is one to write down; the first and the last always are."""
        return done % self._stride == 0 or done >= self._rounds  # some methods end with one more round than planned

    def point(self, label: str, seed: int, done: int, values: Mapping[str, Mapping[str, float]]) -> None:
        """What an evaluation found, after so many rounds."""
        if not self.wants(done):
            return
        shown = {split: {m: float(f"{v:.5g}") for m, v in values[split].items()} for split in self._splits if split in values}
        self._write({"label": label, "seed": seed, "round": done, "values": shown})

    def progress(self, done: int, total: int) -> None:
        """How far everything is; written now and then, and at the end."""
        now = time.monotonic() - self._began
        if now - self._noted >= max(PAUSE, now / SHARE) or done == total:
            self._noted = now
            self._write({"done": done, "total": total})

    def mark(self, what: str, runs: Sequence[RunName], error: str = "") -> None:
        """What happened to runs that are trained together: "started" or "failed"."""
        self._write({what: runs, **({"error": error} if error else {})})

    def end(self, how: str, error: str = "") -> None:
        self._write({"end": how, **({"error": error} if error else {})})
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _write(self, fields: dict[str, Any]) -> None:
        line = _line({"time": round(time.time(), 3), **fields})
        with self._lock:
            try:
                if self._file is not None and os.write(self._file, line) < len(line):
                    raise OSError("the disk is full")
            except OSError:
                if self._file is not None:
                    os.close(self._file)
                self._file = None


def is_running(path: Path) -> bool:
    """Whether the process that writes a live file is alive, or may be: some file systems have no locks."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode(errors="replace") + b"\n"


def _begun(path: Path, head: bytes) -> int:
    """A new file in place of an older one, locked before anybody can see it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    with suppress(OSError):  # a file system without locks: nobody will know whether we live
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        os.write(file, head)
        os.replace(beside, path)
    except OSError:
        os.close(file)
        beside.unlink(missing_ok=True)
        raise
    return file

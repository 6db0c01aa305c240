"""A contender's process, seen from the one that measures: started, asked, and ended with all that
it started.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import machine
import numpy as np
import watched

HERE = Path(__file__).resolve().parent
LIMIT = 900.0  # seconds that an answer may take
# of this process, not of contenders
SETTINGS = ("XLA_FLAGS", "NPROC", "JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_COMPILATION_CACHE_DIR")


class Stopped(RuntimeError):  # noqa: N818
    """A contender ended by itself; the message is the last thing it said."""


class Answer(NamedTuple):
    """What is known of one call."""

    seconds: float
    rounds: int  # that those seconds are of
    megabytes: float  # peak of the process, or of the sum over its family
    others: float | None  # share of the machine that others used meanwhile; unknown for a family
    model: list[np.ndarray]
    facts: dict[str, Any]

    @property
    def ms_per_round(self) -> float:
        return 1e3 * self.seconds / self.rounds


def environment(threads: int) -> dict[str, str]:
    """The same for everybody: one thread, or what the library does by itself where there
    are two.
    """
    inherited = {k: v for k, v in os.environ.items() if k not in SETTINGS}
    limits = {
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
    }
    if threads == 1:
        limits |= {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "NPROC": "1"}
    # every compilation is a real one
    alone = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    return inherited | limits | alone | {"PYTHONPATH": str(HERE)}


class Contender:
    """The process. It sleeps while others are timed."""

    def __init__(
        self,
        file: str,
        plan: Path,
        options: dict[str, Any],
        *,
        python: str | None,
        threads: int,
        family: bool,
    ) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.family, self.errors, self.seen = (
            family,
            Path(self.folder.name) / "errors.txt",
            set[watched.Process](),
        )
        command = [
            python or sys.executable,
            str(HERE / "contenders" / file),
            str(plan),
            json.dumps(options),
        ]
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command, env=environment(threads), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, text=True
            )  # fmt: skip
        try:
            self.versions: dict[str, str] = self._answer()["versions"]
        except Stopped:
            self.close()
            raise

    def __enter__(self) -> "Contender":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def ask(self, rounds: int) -> Answer:
        """Let it train for some rounds."""
        out, pid = Path(self.folder.name) / "model.npz", self.process.pid
        watch = Watch(pid, self.seen) if self.family else None
        before = machine.ticks(os.getpid(), pid)
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"rounds": rounds, "out": str(out)}) + "\n")
        self.process.stdin.flush()
        facts = self._answer()
        others = None if watch else machine.others(before, machine.ticks(os.getpid(), pid))
        megabytes = watch.end() if watch else facts["megabytes"]
        with np.load(out) as file:
            model = [file[name] for name in file.files]
        return Answer(facts.pop("seconds"), facts.pop("rounds"), megabytes, others, model, facts)

    def close(self) -> None:
        assert self.process.stdin
        self.seen |= watched.tree(self.process.pid)
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        watched.end_all(self.seen)
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()
        self.folder.cleanup()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        late = threading.Timer(LIMIT, self.process.kill)
        late.start()
        line = self.process.stdout.readline()
        late.cancel()
        if not line:
            raise Stopped(last_words(self.errors.read_text()))
        return json.loads(line)


class Watch(threading.Thread):
    """Adds up the memory of a process and of all that it starts, for as long as it is asked to."""

    def __init__(self, root: int, seen: set[watched.Process]) -> None:
        super().__init__(daemon=True)
        self.root, self.seen, self.peak, self.over = root, seen, 0.0, threading.Event()
        self.start()

    def run(self) -> None:
        while not self.over.wait(watched.OFTEN):
            now, megabytes = watched.memory(self.root)
            self.seen |= now
            self.peak = max(self.peak, megabytes)

    def end(self) -> float:
        self.over.set()
        self.join()
        return self.peak


def last_words(errors: str) -> str:
    """The line that says what went wrong, without the folders of this machine.

    >>> last_words("Traceback:\\nFileNotFoundError: '/some/where/plan.npz'\\n")
    "FileNotFoundError: 'plan.npz'"
    """
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return (
        re.sub(r"(?<![\w.:/])/(?:[^\s/'\"]+/)*", "", lines[-1])
        if lines
        else "It stopped without a word."
    )

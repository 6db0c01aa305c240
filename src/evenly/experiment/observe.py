"""Report on a running experiment: a point for every evaluation of every run, progress, and the file
`live.jsonl`.
"""

import fcntl
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.algorithms import Variant
from evenly.data.federation import Federation
from evenly.data.splits import CENTRAL, SPLITS
from evenly.experiment.comparison import compared_split, live_metrics
from evenly.experiment.plan import Plan, Program
from evenly.experiment.promises import shared_splits, withholds
from evenly.simulate.traces import Observe
from evenly.types import Trace

# The file live.jsonl, which `evenly watch` reads. Its first line describes the execution. Every
# other line has a `time` and one of these groups of fields:
#
#     label, seed, round, values   metrics of an evaluation: values[split][metric]
#     done, total                  rounds of training, over all programs
#     started or failed            runs [[label, seed]] trained together; failed has an `error`
#     end                          finished, stopped or failed: the last line
#
# Only whole lines are appended. After a kill the last line may be incomplete and is ignored. Every
# execution starts a new file with the evaluations of earlier ones. The process that writes the file
# holds a lock on it.

LIVE_FILE = "live.jsonl"
LIVE_FORMAT = 1
MOST_EVALUATIONS = 200  # of one run that are written down: a screen shows no more
# about; where there are very many runs, fewer evaluations of each are written down
MOST_LINES = 20_000
# seconds between two notes of progress; of a long run, at most about one in so many parts of its
# time
PAUSE, SHARE = 0.5, 400

RunName = tuple[str, int]  # label and seed


class Live:
    """Writes `live.jsonl` for one execution. If the disk is full, it stops writing, and training
    continues.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any], runs: Sequence[RunName]) -> None:
        self._lock, self._began, self._noted = threading.Lock(), time.monotonic(), -PAUSE
        self._rounds, self._splits = about["rounds"], about["splits"]
        most = min(MOST_EVALUATIONS, max(4, MOST_LINES // len(runs)))
        self._stride = about["every"] * -(-about["rounds"] // (about["every"] * most))
        head = {
            "live": LIVE_FORMAT,
            "time": time.time(),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            **about,
            "runs": runs,
        }
        self._file: int | None = None
        with suppress(OSError):
            self._file = _create_live_file(folder / LIVE_FILE, _line(head))

    def wants(self, done: int) -> bool:
        """Whether to write the evaluation after `done` rounds. The first and the last evaluation
        are always written.
        """
        # some methods end with one more round than planned
        return done % self._stride == 0 or done >= self._rounds

    def point(
        self, label: str, seed: int, done: int, values: Mapping[str, Mapping[str, float]]
    ) -> None:
        """Write the metrics of an evaluation after `done` rounds."""
        if not self.wants(done):
            return
        shown = {
            split: {m: float(f"{v:.5g}") for m, v in values[split].items()}
            for split in self._splits
            if split in values
        }
        self._write({"label": label, "seed": seed, "round": done, "values": shown})

    def progress(self, done: int, total: int) -> None:
        """Write the progress, at most every `PAUSE` seconds and at the end."""
        now = time.monotonic() - self._began
        if now - self._noted >= max(PAUSE, now / SHARE) or done == total:
            self._noted = now
            self._write({"done": done, "total": total})

    def mark(self, what: str, runs: Sequence[RunName], error: str = "") -> None:
        """Write an event of runs that are trained together: "started" or "failed"."""
        self._write({what: runs, **({"error": error} if error else {})})

    def end(self, how: str, error: str = "") -> None:
        """Write how the execution ended, and close the file."""
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
    """Whether the process that writes a live file is running. True if the file system has no locks
    and this is unknown.
    """
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _line(fields: Mapping[str, Any]) -> bytes:
    return (
        json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
        + b"\n"
    )


def _create_live_file(path: Path, head: bytes) -> int:
    """Create the file, locked, and replace an older one."""
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


# Followers: functions that receive the points and the progress of an execution.

Progress = Callable[[int, int], None]
EVALUATED = ("rounds", "tables", "losses", "central")  # what a trace has of each evaluation


class RunId(NamedTuple):
    """One variant on one seed."""

    experiment: str
    label: str
    seed: int


class Point(NamedTuple):
    """The metrics of one run at one evaluation."""

    run: RunId
    round: int  # rounds done
    rounds: int  # rounds in all
    values: dict[str, dict[str, float]]  # split -> metric -> value; what is undefined is not there
    params: dict[str, Any]  # settings of the run: its method, data and seed


Log = Callable[[Point], None]


class Followers:
    """Passes evaluations and progress of a plan to the live file and to a log function.

    Programs report from several threads; followers are called by one thread at a time. An error in
    a follower never stops training: the follower is not called again, and a warning is printed.
    """

    def __init__(
        self,
        plan: Plan,
        variants: Sequence[Variant],
        federation: Federation,
        folder: Path | None = None,
        log: Log | None = None,
    ) -> None:
        self._plan, self._variants, self._federation, self._folder = (
            plan,
            variants,
            federation,
            folder,
        )
        self._logs, self._live = [log] if log else [], None
        self._lock, self._progress, self._disabled = threading.Lock(), (0, 0), False
        self._reported: dict[Program, int] = {}  # the last round told of each program
        ends = np.cumsum([len(v.members) for v in variants]).tolist()
        self._members = [
            range(end - len(v.members), end) for v, end in zip(variants, ends, strict=True)
        ]
        self._shown = [compared_split(federation), CENTRAL]
        self._splits = [*SPLITS, CENTRAL] if log else self._shown

    @contextmanager
    def session(self, finished: Mapping[Program, list[Trace]], left: int) -> Iterator[None]:
        """Context in which jobs run: it starts the live file with `finished` programs, and writes
        how the execution ended.
        """
        if self._folder and left:
            runs = [(v.label, seed) for v in self._variants for seed in self._plan.seeds]
            about = {
                "name": self._plan.name,
                "data": self._federation.name,
                "rounds": self._plan.rounds,
                "every": self._plan.evaluations,
                "splits": self._shown,
            }
            self._live = Live(self._folder, about, runs)
            self._live.progress(*self._progress)
        for program, traces in finished.items():
            self.report_traces(program, traces)
        try:
            yield
        except Exception as error:
            self._end("failed", str(error) or type(error).__name__)
            raise
        except BaseException:
            self._end("stopped")
            raise
        self._end("finished")

    def progress(self, further: Progress | None, total: int) -> Progress:
        """A progress function that records the progress and calls `further`, if given."""
        self._progress = (0, total)

        def report(done: int, total: int) -> None:
            self._progress = (done, total)
            if self._live:
                self._live.progress(done, total)
            if further:
                further(done, total)

        return report

    def begin(self, program: Program) -> Observe | None:
        """Report the start of a program, and return the function that takes its evaluations, if
        there are followers.
        """
        if self._live:
            self._live.mark("started", self._runs(program))
        return (lambda traces: self._report(program, traces)) if self.active else None

    @property
    def active(self) -> bool:
        """Whether there are followers."""
        return bool(self._live or self._logs)

    def report_failure(self, program: Program, error: Exception) -> None:
        """Report that a program failed."""
        if self._live:
            self._live.mark("failed", self._runs(program), str(error))

    def report_traces(self, program: Program, traces: Sequence[Trace]) -> None:
        """Report all evaluations of a finished program that were not reported before."""
        if self.active:
            self._report(program, traces)

    def _report(self, program: Program, traces: Sequence[Trace]) -> None:
        """Report evaluations. An error disables reporting; training continues."""
        if self._disabled:
            return
        try:
            self._pass_on(program, traces)
        except Exception as error:
            self._disabled = True
            warn(
                f"Progress reporting failed and is off ({type(error).__name__}: {error}). Training"
                " continues."
            )

    def _pass_on(self, program: Program, traces: Sequence[Trace]) -> None:
        """Report new evaluations to all followers. Methods whose members are in several programs
        are reported at the end only.
        """
        rounds, last = traces[0].rounds.tolist(), self._reported.get(program, -1)
        self._reported[program] = max(last, rounds[-1])  # one that starts again tells nothing twice
        wanted = [
            i
            for i, done in enumerate(rounds)
            if done > last and (self._logs or (self._live and self._live.wants(done)))
        ]
        if not wanted:
            return
        by_member = dict(
            zip(program.members, (_select(trace, wanted) for trace in traces), strict=True)
        )
        for point in self._points(program, by_member):
            with self._lock:
                if self._live:
                    self._live.point(point.run.label, point.run.seed, point.round, point.values)
                self._logs = [log for log in self._logs if _accepts(log, point)]

    def _points(self, program: Program, by_member: dict[int, Trace]) -> Iterator[Point]:
        """The points of all runs of a program. Their metrics are computed together, which is faster
        than run by run.
        """
        variants, traces = [self._variants[i] for i in self._variants_of(program)], []
        for variant, own in zip(
            variants, (self._members[i] for i in self._variants_of(program)), strict=True
        ):
            members = [by_member[member] for member in own]
            traces.append(variant.method.combine(members) if variant.method.combine else members[0])
        if not traces:
            return
        every = traces[0]._replace(
            **{
                name: np.concatenate([getattr(trace, name) for trace in traces])
                for name in EVALUATED
            }
        )
        found = {
            split: {m: v.tolist() for m, v in live_metrics(self._federation, every, split).items()}
            for split in self._told_splits()
        }
        owners = [(variant, params_of(self._plan, variant, program.seed)) for variant in variants]
        of = np.repeat(np.arange(len(variants)), [len(trace.rounds) for trace in traces])
        for i, (done, number) in enumerate(zip(every.rounds.tolist(), of, strict=True)):
            variant, params = owners[number]
            run = RunId(self._plan.name, variant.label, program.seed)
            values = {
                split: {m: v[i] for m, v in each.items() if isfinite(v[i])}
                for split, each in found.items()
            }
            yield Point(
                run,
                done,
                self._plan.rounds + _one_more(variant),
                {split: each for split, each in values.items() if each},
                params,
            )

    def _told_splits(self) -> list[str]:
        """The splits of the points, without those whose figures are withheld."""
        privacy, methods = self._plan.privacy, [v.members[0] for v in self._variants]
        if withholds(privacy, methods):
            return []
        shared = shared_splits(privacy, methods)
        return [split for split in self._splits if split in shared]

    def _variants_of(self, program: Program) -> list[int]:
        inside = set(program.members)
        return [i for i, own in enumerate(self._members) if inside.issuperset(own)]

    def _runs(self, program: Program) -> list[tuple[str, int]]:
        return [(self._variants[i].label, program.seed) for i in self._variants_of(program)]

    def _end(self, how: str, error: str = "") -> None:
        if self._live:
            self._live.end(how, error)
            self._live = None


def log_part(log: Log, part: str) -> Log:
    """A log function for one part of a larger experiment. It adds the name of the part, because
    runs have the same names in every part.
    """
    return lambda point: log(
        point._replace(run=point.run._replace(experiment=f"{point.run.experiment}/{part}"))
    )


def params_of(plan: Plan, variant: Variant, seed: int) -> dict[str, Any]:
    """The settings of a run as flat, plain values, for loggers."""
    rest = {
        "experiment": plan.name,
        "model": plan.model or "auto",
        "rounds": plan.rounds,
        "sampling": plan.sampling,
        "dropout": plan.dropout,
    }
    data = {("data" if k == "name" else f"data.{k}"): v for k, v in plan.data.items()}
    settings = {
        "label": variant.label,
        "method": variant.method.name,
        **{f"method.{k}": v for k, v in variant.settings.items()},
    }
    return {**rest, **data, **settings, "seed": seed}


def _one_more(variant: Variant) -> bool:
    """Whether a method ends with one more round than planned, in which all clients take part."""
    return variant.members[0].rule.final_pass


def _select(trace: Trace, evaluations: list[int]) -> Trace:
    """A trace with some of its evaluations."""
    return trace._replace(**{name: getattr(trace, name)[evaluations] for name in EVALUATED})


def _accepts(log: Log, point: Point) -> bool:
    try:
        log(point)
    except Exception as error:  # whatever a follower does wrong, training goes on
        warn(f"Logging stopped ({type(error).__name__}: {error}). Training continues.")
        return False
    return True


def warn(sentence: str) -> None:
    """Print a warning on stderr. Uses logging, because the warnings module may be configured to
    raise errors.
    """
    logging.getLogger("evenly").warning(sentence)

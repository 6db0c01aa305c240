"""Where jobs report to: how far they are, and what they leave. It is the only thing that a place where jobs run must know."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from evenly.experiment.jobs import Result, Setting
from evenly.experiment.observing import Followers
from evenly.experiment.plan import Plan
from evenly.experiment.programs import Program
from evenly.experiment.store import Store
from evenly.simulate.traces import Observe
from evenly.types import Trace

Progress = Callable[[int, int], None]  # rounds done and rounds in all, over every program of a plan


class StoppedError(Exception):
    """Raised in a job when another failed or the user stopped everything."""


class Ledger:
    """Adds up the progress of jobs that run at once, and keeps every result as soon as it is there."""

    def __init__(
        self, plan: Plan, programs: int, first: Setting, store: Store | None, progress: Progress | None, models: bool, followers: Followers
    ) -> None:
        self.first, self.models = first, models  # the setting of the first seed, which is known already
        self.traces: dict[Program, list[Trace]] = {}
        self._store, self._progress, self._followers = store, followers.progress(progress, plan.rounds * programs), followers
        self._rounds, self._total, self._done = plan.rounds, plan.rounds * programs, 0
        self._lock, self._stopped = threading.Lock(), False

    def find(self, program: Program) -> bool:
        """Whether a program was finished earlier; if so, it counts as done."""
        found = self._store.load_traces(program.keys, self.first.task) if self._store else None
        if found is None:
            return False
        self.traces[program] = found
        self.begin()(self._rounds, self._rounds)
        return True

    def begin(self) -> Progress:
        """What a job tells its rounds to. One that starts again may tell fewer than before."""
        seen = 0

        def report(done: int, of: int) -> None:
            nonlocal seen
            if self._stopped:
                raise StoppedError
            with self._lock:
                self._done += done - seen
                seen = done
                self._progress(self._done, self._total)

        return report

    def checkpoint(self, program: Program) -> Path | None:
        """Where a job on this machine may save itself half-way."""
        return self._store.checkpoint("|".join(program.keys)) if self._store else None

    @contextmanager
    def following(self, program: Program) -> Iterator[Observe | None]:
        """While a job on this machine runs: what it tells its evaluations to, if anybody follows."""
        try:
            yield self.follow(program)
        except StoppedError:
            raise  # it did nothing wrong
        except Exception as error:
            self.failed(program, error)
            raise

    @property
    def followed(self) -> bool:
        """Whether anybody wants to know of evaluations before a job is done."""
        return self._followers.anybody

    def follow(self, program: Program) -> Observe | None:
        """A job begins: what it tells its evaluations to, if anybody follows."""
        return self._followers.begin(program)

    def failed(self, program: Program, error: Exception) -> None:
        self._followers.failed(program, error)

    def keep(self, program: Program, result: Result) -> None:
        """Models first: where there is a file of traces, everything is there."""
        if self._store:
            for name, model in result.models.items():
                self._store.save_model(name, model)
            self._store.save_traces(program.keys, result.traces, models=self.models)
        self.traces[program] = result.traces
        self._followers.finished(program, result.traces)

    def stop(self) -> None:
        """Make every job on this machine stop where it next reports."""
        self._stopped = True


class Where(Protocol):
    """A place where jobs run: it does all of them, tells the ledger, and raises when one cannot be done."""

    def __call__(self, plan: Plan, programs: Sequence[Program], ledger: Ledger) -> None: ...

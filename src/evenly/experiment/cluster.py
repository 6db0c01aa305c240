"""Jobs on a Ray cluster. The machine that asks writes every file, whole, as results come back; workers need no shared folder."""

import logging
import os
import pickle
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evenly.experiment import worker
from evenly.experiment.connection import check_installed, check_reachable, connected
from evenly.experiment.execute import versions
from evenly.experiment.jobs import Result
from evenly.experiment.ledger import Ledger, Where
from evenly.experiment.plan import Plan
from evenly.experiment.programs import Program
from evenly.plugins import sources_of
from evenly.simulate.traces import Observe

ATTEMPTS = 3  # how often a job is started whose worker dies
POLL_SECONDS = 0.5
GRACE_SECONDS = 10.0  # how long workers have to save themselves when everything is stopped
MOST_NAMED = 3
TRAVELS = ("JAX_", "XLA_", "EVENLY_")  # settings that workers share with whoever asks: other flags may give other bits

log = logging.getLogger(__name__)


@contextmanager
def on_ray(address: str | None = None, *, cores: int | None = None) -> Iterator[Where]:
    """A Ray cluster as a place for jobs: the one this process is connected to, the one at an address, or one that is started on
    this machine, with all or some of its cores, and ends when the work is done."""
    check_installed()
    check_reachable(address)
    with ExitStack() as stack:
        connection: list[Any] = []

        def where(plan: Plan, programs: Sequence[Program], ledger: Ledger) -> None:
            if not connection:  # only now: where everything is finished, nothing need be started
                connection.append(stack.enter_context(connected(address, cores)))
            _Driver(connection[0], plan, programs, ledger).run()

        yield where


class _Driver:
    """One plan's jobs on a cluster: what runs, what came back, and what must run again."""

    def __init__(self, ray: Any, plan: Plan, programs: Sequence[Program], ledger: Ledger) -> None:
        self._ray, self._plan, self._programs, self._ledger = ray, plan, programs, ledger
        self._table, self._plugins = _table(ray, plan), sources_of(plan.plugins)
        self._board = ray.remote(worker.Board).options(num_cpus=0, max_restarts=-1).remote()
        self._train = _remote(ray, len(programs))
        self._reports = [ledger.begin() for _ in programs]
        self._begun: dict[int, Observe | None] = {}  # by place among the programs: what its evaluations are told to
        self._running: dict[Any, tuple[int, int]] = {}  # what Ray calls a job -> its place among the programs, and the attempt

    def run(self) -> None:
        try:
            for number in range(len(self._programs)):
                self._start(number, 1)
            while self._running:
                ready, _ = self._ray.wait(list(self._running), timeout=POLL_SECONDS)
                self._read_board()
                for one in ready:
                    self._end(one, *self._running.pop(one))
        except BaseException:
            self._stop()
            raise
        finally:
            self._ray.kill(self._board)

    def _start(self, number: int, attempt: int) -> None:
        job = worker.Job(
            self._plan.to_json(), self._programs[number], self._ledger.models, self._ledger.followed, versions(), self._plugins
        )
        self._running[self._train.remote(job, self._table, number, self._board)] = number, attempt

    def _end(self, one: Any, number: int, attempt: int) -> None:
        """Keep what a job left. Only one attempt of a job is ever under way, so nothing is kept twice."""
        errors, program = self._ray.exceptions, self._programs[number]
        lost = (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.ObjectLostError)
        try:
            result = self._ray.get(one)
        except lost as error:
            self._reports[number](0, self._plan.rounds)
            self._again(number, attempt, error)
        except errors.RayTaskError as error:
            own = self._own_error(program, error)
            self._ledger.failed(program, own)
            raise own from None
        else:
            self._ledger.keep(program, _owned(result))
            self._reports[number](self._plan.rounds, self._plan.rounds)

    def _again(self, number: int, attempt: int, error: Exception) -> None:
        what, why = _called(self._programs[number]), str(error).splitlines()[0]
        if attempt == ATTEMPTS:
            raise ChildProcessError(
                f"{what} was started {ATTEMPTS} times, and its worker died each time ({why}). What else was finished is kept. "
                "See whether the workers have enough memory, then run it again."
            ) from None
        log.warning("%s: its worker died (%s). It runs again, attempt %d of %d.", what, why, attempt + 1, ATTEMPTS)
        self._start(number, attempt + 1)

    def _own_error(self, program: Program, error: Any) -> Exception:
        """A job's error as it would be raised here; where another machine is concerned, that is said."""
        if not isinstance(error.cause, ValueError):
            return error.cause if isinstance(error.cause, Exception) else error
        *_, machine = getattr(error.cause, "__notes__", None) or [platform.node()]
        said = "" if machine == platform.node() else f" (So says the worker on {machine} of {_called(program)}.)"
        return ValueError(f"{error.cause}{said}")

    def _read_board(self) -> None:
        with suppress(self._ray.exceptions.RayActorError):  # lost with its machine, it starts again and is told the next news
            for number, news in self._ray.get(self._board.read.remote()).items():
                if number not in self._begun:
                    self._begun[number] = self._ledger.follow(self._programs[number])
                for seen in news.seen:
                    if observe := self._begun[number]:
                        observe(pickle.loads(seen))
                self._reports[number](news.done, self._plan.rounds)

    def _stop(self) -> None:
        """Let those who have begun save themselves, but not for long, and keep what is whole; the others never begin."""
        left, until = list(self._running), time.monotonic() + GRACE_SECONDS
        with suppress(self._ray.exceptions.RayError):  # what stopped us is what should be told
            self._board.stop.remote()
            for one in left:
                if self._running[one][0] not in self._begun:
                    self._ray.cancel(one)
            while left and time.monotonic() < until:
                done, left = self._ray.wait(left, num_returns=len(left), timeout=POLL_SECONDS)
                for one in done:
                    self._rescue(one)
            for one in left:
                self._ray.cancel(one, force=True)

    def _rescue(self, one: Any) -> None:
        """Keep what a job left that came to its end meanwhile: its worker has no checkpoint of it any more."""
        with suppress(self._ray.exceptions.RayError, OSError):  # it was stopped, too; or the disk is what stopped us
            self._ledger.keep(self._programs[self._running[one][0]], _owned(self._ray.get(one)))


def _remote(ray: Any, jobs: int) -> Any:
    """The function that does a job, with what it may use: a GPU where there are any, else its share of the cores.

    Ray's own retries are off: it would try for ever where memory is short.
    """
    gpus = int(ray.cluster_resources().get("GPU", 0) >= 1 and _gpus_wanted())
    cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    cores = [own for own in cores if own] or [1]
    cpus = 1 if gpus else max(1, min(sum(cores) // jobs, *cores))
    return ray.remote(worker.train_program).options(
        num_cpus=cpus, num_gpus=gpus, max_retries=0, runtime_env={"env_vars": settings_of_workers()}
    )


def settings_of_workers() -> dict[str, str]:
    """The environment of a worker: JAX's flags as they are here, and as many threads of XLA and NumPy, whatever its own cores.

    Both share out large products to their threads, and other shares have other last bits.
    """
    travels = {name: value for name, value in os.environ.items() if name.startswith(TRAVELS)}
    named = (os.environ.get(name) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"))
    threads = next((value for value in named if value), str(_cores()))
    return {**travels, "NPROC": os.environ.get("NPROC") or str(_cores()), "OPENBLAS_NUM_THREADS": threads}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpus_wanted() -> bool:
    wanted = os.environ.get("JAX_PLATFORMS", "")
    return not wanted or any(name in wanted for name in ("cuda", "rocm", "gpu"))


def _table(ray: Any, plan: Plan) -> Any:
    """A user's own table travels, because workers may not have the file; it is sent once, whatever the number of jobs,
    and checked by its hash wherever it is read."""
    if "path" not in plan.data:
        return None
    return ray.put(np.frombuffer(Path(plan.data["path"]).read_bytes(), np.uint8))


def _owned(result: Result) -> Result:
    """Copies: what Ray hands out cannot be written to and would fill its memory for as long as it is looked at."""
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, result)


def _called(program: Program) -> str:
    labels = [key.split("#")[0] for key in program.keys]
    shown = ", ".join(labels[:MOST_NAMED]) + (f" and {len(labels) - MOST_NAMED} more" if len(labels) > MOST_NAMED else "")
    return f"The program of {shown} on seed {program.seed}"

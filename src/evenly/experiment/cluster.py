"""Run jobs on a Ray cluster. The machine that starts them writes all files; workers need no shared
disk.
"""

import logging
import os
import pickle
import platform
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evenly.experiment import worker
from evenly.experiment.execute import Executor, JobResults, Result
from evenly.experiment.folder import versions
from evenly.experiment.plan import Plan, Program
from evenly.plugins import sources_of
from evenly.simulate.traces import Observe

# Connecting to a Ray cluster: an existing one, or one on this machine that ends with the work.

# By default Ray listens on the network and sends usage statistics.
# RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER decides whether a new cluster may have several machines; if not,
# it stays on the loopback address.
ALONE = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
}
# how Ray will behave by default; until it does, it warns at every start
ALWAYS = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# Ray's sockets lie under its folder, and their paths may have about a hundred characters
SHORT = Path("/tmp")
REACHED_SECONDS = 5.0
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}

# Starting a cluster forks, so a process without threads of JAX starts it. The cluster ends when its
# standard input is closed, also if this process is killed.
SERVE = """
import logging, os, shutil, sys
import ray
cores = {"num_cpus": int(sys.argv[2])} if sys.argv[2:] else {}
quiet = dict(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
ray.init(_temp_dir=sys.argv[1], **quiet, **cores)
print(ray.get_runtime_context().gcs_address, flush=True)
nowhere = os.open(os.devnull, os.O_WRONLY)
os.dup2(nowhere, 1), os.dup2(nowhere, 2)  # nobody reads on
sys.stdin.read()
ray.shutdown()
# Ray's last processes may still be writing their logs.
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


def check_installed() -> None:
    """Raise ValueError if Ray is not installed. Ray is not imported, because importing it fixes its
    settings.
    """
    if find_spec("ray") is None:
        raise ValueError(
            "--on ray needs the package ray, which is not installed. Install it with: pip install"
            " 'evenly[ray]'"
        )


def check_reachable(address: str | None) -> None:
    """Raise ValueError if nothing listens at the address. Ray would try for minutes."""
    given = address or os.environ.get("RAY_ADDRESS") or ""
    host, _, port = given.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return  # auto, local, or nothing: Ray knows at once
    try:
        socket.create_connection((host, int(port)), timeout=REACHED_SECONDS).close()
    except OSError as error:
        raise ValueError(_unreachable(given, error.strerror or str(error))) from None


def _unreachable(address: str, why: str) -> str:
    return (
        f"There is no Ray cluster at {address} ({why}). Start one there with `ray start --head`, or"
        " omit --address to use only this machine."
    )


@contextmanager
def connection(address: str | None, cores: int | None = None) -> Iterator[Any]:
    """Context that yields the module `ray`, connected to the cluster of this process, to an
    address, or to a new local cluster.
    """
    alone = address is None and "RAY_ADDRESS" not in os.environ
    early = "ray" in sys.modules and not _token.cache_info().currsize
    with _environment({**ALWAYS, **(ALONE | {"RAY_AUTH_TOKEN": _token()} if alone else {})}):
        import ray
        import ray.exceptions
        import ray.util

        if ray.is_initialized():
            yield ray
        elif alone and early:
            # its settings are fixed when it is imported, and without them its cluster would be open
            # to others
            raise ValueError(
                "Ray was imported before evenly could start its own cluster. Call ray.init() first,"
                " and evenly uses that cluster."
            )
        elif alone:
            with _cluster_here(cores) as own:
                yield from _join(ray, own)
        else:
            yield from _join(ray, address)


def _join(ray: Any, address: str | None) -> Iterator[Any]:
    try:
        ray.init(address, **QUIET)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ValueError(
            _unreachable(address or os.environ["RAY_ADDRESS"], str(error).splitlines()[0])
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def _cluster_here(cores: int | None) -> Iterator[str]:
    """Context that starts a cluster on this machine and yields its address."""
    folder = tempfile.mkdtemp(prefix="evenly-", dir=SHORT if SHORT.is_dir() else None)
    command = [sys.executable, "-c", SERVE, folder, *([] if cores is None else [str(cores)])]
    pipes: Any = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    try:
        # A session of its own: Ctrl-C is for us, and it must not lose the cluster while we still
        # stop its jobs.
        with subprocess.Popen(command, start_new_session=True, **pipes) as server:
            assert server.stdout
            address = server.stdout.readline().strip()
            if not address:
                said = server.communicate()[1].strip().splitlines() or ["no reason was given"]
                raise ValueError(f"A Ray cluster could not be started on this machine: {said[-1]}")
            try:
                yield address
            finally:
                try:
                    server.communicate(timeout=30)
                except subprocess.TimeoutExpired:
                    server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _token() -> str:
    """The secret without which nobody can submit work to this process's clusters. Ray reads it
    once.
    """
    return secrets.token_hex(32)


@contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    """Context that sets environment variables that the user has not set."""
    added = [name for name in settings if name not in os.environ]
    os.environ.update({name: settings[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


# Jobs on the cluster. This machine writes all files when results arrive.

ATTEMPTS = 3  # how often a job is started whose worker dies
POLL_SECONDS = 0.5
GRACE_SECONDS = 10.0  # how long workers have to save themselves when everything is stopped
MOST_NAMED = 3
# settings that workers share with whoever asks: other flags may give other bits
TRAVELS = ("JAX_", "XLA_", "EVENLY_")

log = logging.getLogger(__name__)


@contextmanager
def on_ray(address: str | None = None, *, cores: int | None = None) -> Iterator[Executor]:
    """Context that yields an executor on a Ray cluster: the one this process is connected to, the
    one at an address, or a new one on this machine with all or some of its cores.
    """
    check_installed()
    check_reachable(address)
    with ExitStack() as stack:
        clusters: list[Any] = []

        def where(plan: Plan, programs: Sequence[Program], jobs: JobResults) -> None:
            if not clusters:  # only now: where everything is finished, nothing need be started
                clusters.append(stack.enter_context(connection(address, cores)))
            _Driver(clusters[0], plan, programs, jobs).run()

        yield where


class _Driver:
    """Runs one plan's jobs on a cluster, and restarts jobs whose worker died."""

    def __init__(self, ray: Any, plan: Plan, programs: Sequence[Program], jobs: JobResults) -> None:
        self._ray, self._plan, self._programs, self._jobs = ray, plan, programs, jobs
        self._table, self._plugins = _table(ray, plan), sources_of(plan.plugins)
        self._board = ray.remote(worker.ProgressBoard).options(num_cpus=0, max_restarts=-1).remote()
        self._train = _remote(ray, len(programs))
        self._reports = [jobs.begin() for _ in programs]
        # by place among the programs: what its evaluations are told to
        self._observers: dict[int, Observe | None] = {}
        # what Ray calls a job -> its place among the programs, and the attempt
        self._running: dict[Any, tuple[int, int]] = {}

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
            self._plan.to_json(),
            self._programs[number],
            self._jobs.models,
            self._jobs.has_followers,
            versions(),
            self._plugins,
        )
        self._running[self._train.remote(job, self._table, number, self._board)] = number, attempt

    def _end(self, one: Any, number: int, attempt: int) -> None:
        """Store the result of a job. A job has one attempt at a time, so no result is
        stored twice.
        """
        errors, program = self._ray.exceptions, self._programs[number]
        lost = (
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,
            errors.ObjectLostError,
        )
        try:
            result = self._ray.get(one)
        except lost as error:
            self._reports[number](0, self._plan.rounds)
            self._again(number, attempt, error)
        except errors.RayTaskError as error:
            own = self._own_error(program, error)
            self._jobs.report_failure(program, own)
            raise own from None
        else:
            self._jobs.save(program, _copy_arrays(result))
            self._reports[number](self._plan.rounds, self._plan.rounds)

    def _again(self, number: int, attempt: int, error: Exception) -> None:
        what, why = _describe(self._programs[number]), str(error).splitlines()[0]
        if attempt == ATTEMPTS:
            raise ChildProcessError(
                f"{what} was started {ATTEMPTS} times, and its worker died each time ({why}). All"
                " other finished programs are stored. Check that the workers have enough memory,"
                " then run the command again."
            ) from None
        log.warning(
            "%s: its worker died (%s). It runs again, attempt %d of %d.",
            what,
            why,
            attempt + 1,
            ATTEMPTS,
        )
        self._start(number, attempt + 1)

    def _own_error(self, program: Program, error: Any) -> Exception:
        """A job's error as it would be raised here, with the name of the machine if it is another
        one.
        """
        if not isinstance(error.cause, ValueError):
            return error.cause if isinstance(error.cause, Exception) else error
        *_, machine = getattr(error.cause, "__notes__", None) or [platform.node()]
        origin = (
            ""
            if machine == platform.node()
            else f" (Reported by the worker on {machine}: {_describe(program)}.)"
        )
        return ValueError(f"{error.cause}{origin}")

    def _read_board(self) -> None:
        # lost with its machine, it starts again and is told the next update
        with suppress(self._ray.exceptions.RayActorError):
            for number, update in self._ray.get(self._board.read.remote()).items():
                if number not in self._observers:
                    self._observers[number] = self._jobs.follow(self._programs[number])
                for traces in update.evaluations:
                    if observe := self._observers[number]:
                        observe(pickle.loads(traces))
                self._reports[number](update.done, self._plan.rounds)

    def _stop(self) -> None:
        """Give running jobs a few seconds to write checkpoints, store the results that arrive, and
        cancel the others.
        """
        left, until = list(self._running), time.monotonic() + GRACE_SECONDS
        with suppress(self._ray.exceptions.RayError):  # what stopped us is what should be told
            self._board.stop.remote()
            for one in left:
                if self._running[one][0] not in self._observers:
                    self._ray.cancel(one)
            while left and time.monotonic() < until:
                done, left = self._ray.wait(left, num_returns=len(left), timeout=POLL_SECONDS)
                for one in done:
                    self._rescue(one)
            for one in left:
                self._ray.cancel(one, force=True)

    def _rescue(self, one: Any) -> None:
        """Store the result of a job that finished meanwhile: its worker has removed its
        checkpoint.
        """
        # it was stopped, too; or the disk is what stopped us
        with suppress(self._ray.exceptions.RayError, OSError):
            self._jobs.save(self._programs[self._running[one][0]], _copy_arrays(self._ray.get(one)))


def _remote(ray: Any, jobs: int) -> Any:
    """The remote function that trains a program, with a GPU if there are any, or with a share of
    the cores.

    Ray's retries are off, because it would retry forever if memory is short.
    """
    gpus = int(ray.cluster_resources().get("GPU", 0) >= 1 and _gpus_wanted())
    cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    cores = [own for own in cores if own] or [1]
    cpus = 1 if gpus else max(1, min(sum(cores) // jobs, *cores))
    return ray.remote(worker.train_program).options(
        num_cpus=cpus, num_gpus=gpus, max_retries=0, runtime_env={"env_vars": worker_environment()}
    )


def worker_environment() -> dict[str, str]:
    """Environment variables of a worker: JAX's flags as on this machine, and the same number of
    threads for XLA and NumPy.

    Both split large products among threads, and other splits give other last bits.
    """
    travels = {name: value for name, value in os.environ.items() if name.startswith(TRAVELS)}
    named = (os.environ.get(name) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"))
    threads = next((value for value in named if value), str(_cores()))
    return {
        **travels,
        "NPROC": os.environ.get("NPROC") or str(_cores()),
        "OPENBLAS_NUM_THREADS": threads,
    }


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpus_wanted() -> bool:
    wanted = os.environ.get("JAX_PLATFORMS", "")
    return not wanted or any(name in wanted for name in ("cuda", "rocm", "gpu"))


def _table(ray: Any, plan: Plan) -> Any:
    """The user's table in Ray's object store, because workers may not have the file. Readers check
    its hash.
    """
    if "path" not in plan.data:
        return None
    return ray.put(np.frombuffer(Path(plan.data["path"]).read_bytes(), np.uint8))


def _copy_arrays(result: Result) -> Result:
    """A result with copied arrays. Arrays of Ray's object store are read-only and occupy its
    memory.
    """
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, result)


def _describe(program: Program) -> str:
    labels = [key.split("#")[0] for key in program.keys]
    shown = ", ".join(labels[:MOST_NAMED]) + (
        f" and {len(labels) - MOST_NAMED} more" if len(labels) > MOST_NAMED else ""
    )
    return f"The program of {shown} on seed {program.seed}"

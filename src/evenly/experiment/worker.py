"""Code that runs on the machines of a cluster: training of one program, and the board that collects
progress.

Heavy modules are imported when a program is trained, because the board has a process of its own.
"""

import dataclasses
import pickle
import platform
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    from evenly.experiment.execute import Result, SeedSetting
    from evenly.experiment.plan import Plan, Program
    from evenly.types import Trace

TELL_SECONDS = 0.25  # between two messages to the board
MOST_BYTES = 2**22  # of evaluations that are told on the way; larger ones come with the result

# the data of the latest job; the next is often of the same seed
_latest: "dict[tuple[str, int], SeedSetting]" = {}


class WorkerStoppedError(Exception):
    """Raised in a job when the execution is stopped."""


class Job(NamedTuple):
    """The data that a worker receives: plan, program and the user's plugins. A table of the user is
    sent separately.
    """

    plan: str  # as JSON
    program: "Program"
    models: bool
    observed: bool  # whether evaluations are to be told on the way
    versions: dict[str, str]  # of the machine that sent it
    plugins: dict[str, bytes]  # files of the user's own by hash: workers may not have them


class JobUpdate(NamedTuple):
    """The progress of a job, and its evaluations since the last update."""

    done: int
    evaluations: list[bytes]  # pickled, so that the board needs not know what it is


class ProgressBoard:
    """Collects the updates of all jobs until the driver reads them."""

    def __init__(self) -> None:
        self._updates: dict[int, JobUpdate] = {}
        self._stopped = False

    def tell(self, number: int, update: JobUpdate) -> bool:
        """Add an update of a job. Returns whether the job should stop."""
        before = self._updates[number].evaluations if number in self._updates else []
        self._updates[number] = JobUpdate(update.done, before + update.evaluations)
        return self._stopped

    def read(self) -> dict[int, JobUpdate]:
        """All updates since the last call, by the number of the job."""
        update, self._updates = self._updates, {}
        return update

    def stop(self) -> None:
        self._stopped = True


class _Reporter:
    """Sends the progress and evaluations of one job to the board, at most every `TELL_SECONDS`."""

    def __init__(self, board: Any, number: int, observed: bool) -> None:
        self._board, self._number, self._time = board, number, 0.0
        self.observed, self._evaluations = observed, list[bytes]()

    def progress(self, done: int, of: int) -> None:
        if done in (0, of) or time.monotonic() - self._time > TELL_SECONDS:
            update = JobUpdate(done, self._evaluations)
            self._time, self._evaluations = time.monotonic(), []
            if _send(self._board, self._number, update):
                raise WorkerStoppedError

    def observe(self, traces: "list[Trace]") -> None:
        self.observed = self.observed and sum(trace.tables.nbytes for trace in traces) < MOST_BYTES
        if self.observed:
            self._evaluations.append(pickle.dumps(traces))


def train_program(job: Job, table: "np.ndarray | None", number: int, board: Any) -> "Result":
    """Train the program of one job on this machine and report its progress to the board."""
    from evenly.experiment.execute import run_job
    from evenly.experiment.plan import Plan
    from evenly.plugins import load_planned

    reporter = _Reporter(board, number, job.observed)
    try:
        plan = Plan.from_json(job.plan)
        reporter.progress(0, plan.rounds)
        _check_versions(job.versions)
        load_planned(plan.plugins, job.plugins)
        setting, checkpoint = (
            _setting(plan, job.program.seed, table),
            _checkpoint(plan, job.program),
        )
        result = run_job(
            plan, job.program, setting, progress=reporter.progress,
            observe=reporter.observe if job.observed else None, checkpoint=checkpoint,
            models=job.models,
        )  # fmt: skip
    except ValueError as error:
        error.add_note(platform.node())  # the driver names the machine in its message
        raise
    if checkpoint:
        checkpoint.unlink(missing_ok=True)
        with suppress(OSError):  # others of the same plan may still be there
            checkpoint.parent.rmdir()
    return result


def _send(board: Any, number: int, update: JobUpdate) -> bool:
    import ray
    from ray.exceptions import RayActorError

    with suppress(RayActorError):  # training goes on without a board
        return ray.get(board.tell.remote(number, update))
    return False


def _setting(plan: "Plan", seed: int, table: "np.ndarray | None") -> "SeedSetting":
    """Data and model, loaded from this machine's data folder or from the table that was sent."""
    from evenly.experiment.execute import setting_of

    key = (plan.fingerprint(), seed)
    if key not in _latest:
        _latest.clear()
        if table is None:
            _latest[key] = setting_of(plan, seed)
        else:
            with tempfile.TemporaryDirectory(prefix="evenly-") as folder:
                # results are named after the file
                path = Path(folder) / Path(plan.data["path"]).name
                path.write_bytes(table.tobytes())
                _latest[key] = setting_of(
                    dataclasses.replace(plan, data={**plan.data, "path": str(path)}), seed
                )
    return _latest[key]


def _checkpoint(plan: "Plan", program: "Program") -> Path | None:
    """The checkpoint file of a program in the user's cache folder, or None if the folder cannot be
    written.
    """
    from evenly.datasets.files import cache_folder
    from evenly.experiment.folder import slug

    folder = cache_folder() / "checkpoints" / plan.fingerprint()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder / f"{slug('|'.join(program.keys))}.npz"


def _check_versions(wanted: dict[str, str]) -> None:
    from evenly.experiment.folder import versions

    for name, here in versions().items():
        if here != wanted[name]:
            raise ValueError(
                "All machines of a cluster must have the same versions, because other versions"
                f" give other results: {name} is {wanted[name]} where the experiment was started,"
                f" but {here} on a worker. Install the same version on the worker."
            )

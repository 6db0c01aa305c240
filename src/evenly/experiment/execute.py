"""Run a plan: execute its jobs, skip the ones that are already finished, and collect the results.

A plan is split into *programs*: groups of runs that share data, seed and model structure and are
compiled together. Each program is one job. Jobs run on threads of this machine by default;
`evenly.experiment.cluster` runs them on Ray. Finished jobs are stored atomically, so an interrupted
plan can be resumed with identical results.

`python -m evenly.experiment.execute plan.json OUT [--no-models]` runs a plan where only the core
packages are installed. With `--no-models` it stores traces but no models.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import numpy as np

from evenly.algorithms import Variant
from evenly.data.federation import Federation
from evenly.datasets.load import ASSUMED, load
from evenly.experiment.comparison import Comparison, Run
from evenly.experiment.folder import Store, folder_lock, sweep, training_timer, versions
from evenly.experiment.observe import Followers, Log
from evenly.experiment.plan import (
    Plan,
    Program,
    members_of,
    programs,
    read_fields,
    sampling_facts,
    write_grouping,
)
from evenly.experiment.python_objects import write_federation
from evenly.models.named_models import choose_model
from evenly.plugins import load_planned
from evenly.randomness import generator
from evenly.saved_models import Model, models_of
from evenly.simulate import Advance, SeedBatch, advance, simulate, worth_batching, worth_streaming
from evenly.simulate.choosing import fit_to_data
from evenly.simulate.run import Progress, refuse_without_validation
from evenly.simulate.traces import Observe, split_people
from evenly.types import Algorithm, Seeds, Trace

# Evaluated clients. In large federations a random sample of clients is evaluated, because the
# tables of all clients can need more memory than their data: with ten classes and a million
# clients, 1.2 GB for each evaluation. The mean accuracy of 10,000 clients is within one point of
# the mean over all clients with a probability of 95 %.

MOST_EVALUATED = 10_000
T = TypeVar("T")


def evaluated_clients(federation: Federation) -> np.ndarray | None:
    """The indices of the clients to evaluate, the same for every seed, or None to evaluate all of
    them.
    """
    if federation.clients <= MOST_EVALUATED:
        return None
    return np.sort(
        generator(0, "panel").choice(federation.clients, MOST_EVALUATED, replace=False)
    ).astype(np.int32)


# Jobs. A job is the training of one program, on a thread or on a worker of a cluster. It is built
# from plain data (plan and program), so it gives the same bits on all machines with the same
# hardware.


class SeedSetting(NamedTuple):
    """The federation and the model that all programs of one seed share."""

    federation: Federation
    task: Any  # None only where results are read whose model is not stored


class Result(NamedTuple):
    """The result of a job: one trace for each run, and the trained models by name."""

    traces: list[Trace]
    models: dict[str, Model]


def setting_of(plan: Plan, seed: int) -> SeedSetting:
    """Load the data of one seed and build its model."""
    federation = load(plan.data, seed, plan.objects.data)
    task = plan.objects.model or choose_model(plan.model, federation)
    return SeedSetting(federation, task)


def refuse_unfit(plan: Plan, setting: SeedSetting) -> None:
    """Raise ValueError if a method cannot be trained on these data, for example one that compares
    groups if there is only one group.
    """
    census = setting.federation.census()
    # settings were checked before
    for member in {
        (type(member.rule), member.rule.needs): member for member in members_of(plan)
    }.values():
        refuse_without_validation(member, setting.federation)
        adapt_member(member, setting.federation).rule.begin(census)


def adapt_member(member: Algorithm, federation: Federation) -> Algorithm:
    """The algorithm with the settings that depend on the federation. Where groups of people vote,
    they are clients of their own.
    """
    if member.rule.people:
        federation, _ = split_people(federation, [member])
    return fit_to_data(member, federation.census(), federation.client_group)


def run_job(
    plan: Plan,
    program: Program,
    setting: SeedSetting,
    *,
    progress: Progress | None = None,
    observe: Observe | None = None,
    checkpoint: Path | None = None,
    devices: int = 0,
    models: bool = True,
    advance: Advance = advance,
    leave: Callable[[], None] | None = None,
) -> Result:
    """Train the runs of a program.

    With `models=False` the result holds no models, which are the largest part of a result.
    """
    every = members_of(plan)
    members = [every[i] for i in program.members]
    traces = simulate(
        setting.task,
        setting.federation,
        members,
        plan.rounds,
        seeds=Seeds.all(program.seed),
        evaluate_every=plan.evaluations,
        dropout=plan.dropout,
        progress=progress,
        observe=observe,
        checkpoint=checkpoint,
        devices=devices,
        # Where a method treats groups of people as clients, a sample of the clients cannot
        # represent them.
        panel=(
            None
            if any(getattr(member.rule, "people", False) for member in members)
            else evaluated_clients(setting.federation)
        ),
        advance=advance,
        leave=leave,
    )
    if not models:
        return Result([_without_model(trace) for trace in traces], {})
    return Result(traces, trained_models(members, program.seed, setting, traces))


def trained_models(
    members: Sequence[Algorithm], seed: int, setting: SeedSetting, traces: Sequence[Trace]
) -> dict[str, Model]:
    """The models in the traces of these members, by the names under which a store keeps them:
    `label#seed`, or `label#seed#number`.
    """
    models = {}
    for member, trace in zip(members, traces, strict=True):
        parts = models_of(trace, member.task(setting.task, Seeds.all(seed)), setting.federation)
        for number, model in enumerate(parts):
            models[f"{member.label}#{seed}" + (f"#{number}" if len(parts) > 1 else "")] = model
    return models


def _without_model(trace: Trace) -> Trace:
    return trace._replace(model=jax.tree.map(lambda _: np.zeros(0, np.float32), trace.model))


# Collecting progress and results of jobs.


class StoppedError(Exception):
    """Raised in a job when another job failed or the user stopped the execution."""


class JobResults:
    """Collects progress and results of jobs. Results are stored as soon as they arrive. An executor
    needs no other interface.
    """

    def __init__(
        self,
        plan: Plan,
        programs: int,
        first: SeedSetting,
        *,
        store: Store | None,
        progress: Progress | None,
        models: bool,
        followers: Followers,
    ) -> None:
        # the setting of the first seed, which is known already
        self.first, self.models = first, models
        self.traces: dict[Program, list[Trace]] = {}
        self._store, self._progress, self._followers = (
            store,
            followers.progress(progress, plan.rounds * programs),
            followers,
        )
        self._rounds, self._total, self._done = plan.rounds, plan.rounds * programs, 0
        self._lock, self._stopped = threading.Lock(), False

    def restore(self, program: Program) -> bool:
        """Load the traces of a program that was finished earlier. Returns whether there are any."""
        found = self._store.load_traces(program.keys, self.first.task) if self._store else None
        if found is None:
            return False
        self.traces[program] = found
        self._done += self._rounds
        return True

    def report_restored(self) -> None:
        """Report the rounds that were finished earlier in one step, so that they do not count as
        the speed of this execution.
        """
        if self._done:
            self._progress(self._done, self._total)

    def begin(self) -> Progress:
        """A progress function for a new job. A job that is started again may report fewer rounds
        than before.
        """
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
        """The file in which a job on this machine stores its checkpoints."""
        return self._store.checkpoint("|".join(program.keys)) if self._store else None

    @contextmanager
    def observing(self, program: Program) -> Iterator[Observe | None]:
        """Context of a job on this machine. It yields the function that takes evaluations, if any,
        and reports a failure.
        """
        try:
            yield self.follow(program)
        except StoppedError:
            raise  # it did nothing wrong
        except Exception as error:
            self.report_failure(program, error)
            raise

    @property
    def has_followers(self) -> bool:
        """Whether evaluations are needed before a job has finished."""
        return self._followers.active

    def follow(self, program: Program) -> Observe | None:
        """Report the start of a job, and return the function that takes its evaluations, if any."""
        return self._followers.begin(program)

    def report_failure(self, program: Program, error: Exception) -> None:
        """Report that a job failed."""
        self._followers.report_failure(program, error)

    def save(self, program: Program, result: Result) -> None:
        """Store the result of a job. Models come first: if the file of traces exists, the result is
        complete.
        """
        if self._store:
            for name, model in result.models.items():
                self._store.save_model(name, model)
            self._store.save_traces(program.keys, result.traces, models=self.models)
        self.traces[program] = result.traces
        self._followers.report_traces(program, result.traces)

    def stop(self) -> None:
        """Stop every job on this machine at its next progress report."""
        self._stopped = True


class Executor(Protocol):
    """Trains all programs, reports to the results of jobs, and raises an exception if a program
    cannot be trained.
    """

    def __call__(self, plan: Plan, programs: Sequence[Program], jobs: JobResults) -> None: ...


# Jobs on this machine.


class BatchShare(NamedTuple):
    """The part of a seed batch that is reserved for the seeds of one plan."""

    batch: SeedBatch
    first: int

    def position(self, seed: int, plan: Plan) -> int:
        """The position of a seed in the batch."""
        return self.first + plan.seeds.index(seed)


def on_threads(
    plan: Plan, programs: Sequence[Program], jobs: JobResults, share: BatchShare | None = None
) -> None:
    """Run jobs on this machine: seeds in parallel, each seed's programs one after another.

    Threads suffice, because compiled programs release Python's global lock. With `share`, programs
    of other plans advance in the same seed batch.
    """
    seeds = list(dict.fromkeys(program.seed for program in programs))
    most = max((len(program.members) for program in programs), default=0)
    # seeds whose tables differ in size could not share a program
    apart = worth_streaming(jobs.first.federation, most)
    if share is None and len(seeds) > 1 and not apart and worth_batching(jobs.first.task, most):
        share = BatchShare(SeedBatch(len(plan.seeds)), 0)
    if share:  # seeds that were finished earlier do not come
        share.batch.leave(share.position(seed, plan) for seed in plan.seeds if seed not in seeds)

    def one_seed(seed: int) -> None:
        member = share.batch.join(share.position(seed, plan)) if share else nullcontext(advance)
        # before anything that may fail: the others wait for all members
        with _device_of(plan, seed), member as go:
            setting = jobs.first if seed == plan.seeds[0] else setting_of(plan, seed)
            own = [one for one in programs if one.seed == seed]
            for program in own:
                with jobs.observing(program) as observe:
                    result = run_job(
                        plan,
                        program,
                        setting,
                        progress=jobs.begin(),
                        observe=observe,
                        checkpoint=jobs.checkpoint(program),
                        devices=0 if len(plan.seeds) == 1 else 1,
                        models=jobs.models,
                        advance=go,
                        leave=partial(share.batch.leave, [share.position(seed, plan)])
                        if share and program is own[-1]
                        else None,
                    )
                jobs.save(program, result)

    side_by_side = len(seeds) if share else max(1, min(len(seeds), os.cpu_count() or 1))
    run_threads([partial(one_seed, seed) for seed in seeds], side_by_side, jobs.stop)


def run_threads(
    tasks: Sequence[Callable[[], T]], workers: int, stop: Callable[[], None]
) -> list[T]:
    """Call functions on threads and return their results. If one raises, call `stop`, cancel the
    others and raise its error.
    """
    with ThreadPoolExecutor(max_workers=workers) as pool:
        futures = [pool.submit(task) for task in tasks]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stop()  # running threads end at their next progress report
            pool.shutdown(cancel_futures=True)
            raise
    return [future.result() for future in futures]


def _device_of(plan: Plan, seed: int) -> AbstractContextManager[Any]:
    """The device of a seed. Seeds take turns; a seed uses several devices only if it is the only
    one, because programs that wait for each other's devices would block.
    """
    devices = jax.devices()
    if len(plan.seeds) == 1 or len(devices) == 1:
        return nullcontext()
    return jax.default_device(devices[plan.seeds.index(seed) % len(devices)])


# Execution of a plan.


def execute(
    plan: Plan,
    store: Store | None = None,
    *,
    progress: Progress | None = None,
    command: str = "",
    models: bool = True,
    where: Executor = on_threads,
    log: Log | None = None,
    first: SeedSetting | None = None,
) -> Comparison:
    """Train everything in a plan and return the comparison.

    Args:
        plan: The plan.
        store: Folder for finished runs and checkpoints. An interrupted plan with the same store is
            resumed.
        progress: Called with the number of finished rounds and the total.
        command: Command line to show in reports.
        models: Whether to store trained models, which are the largest part of a folder.
        where: Executor of the jobs.
        log: Called with every evaluation.
        first: Data and model of the first seed, if they are loaded already.
    """
    began = time.monotonic()
    load_planned(plan.plugins)
    variants = plan.variants()
    first = first or setting_of(plan, plan.seeds[0])
    _check_training_rows(first.federation)
    folder = store.folder if store else None
    every = list(programs(plan, first.task, folder))
    followers = Followers(plan, variants, first.federation, folder, log)
    jobs = JobResults(
        plan, len(every), first, store=store, progress=progress, models=models, followers=followers
    )
    left = [program for program in every if not jobs.restore(program)]
    jobs.report_restored()
    with followers.session(jobs.traces, len(left)):
        if folder and plan.objects.data is not None:
            write_federation(first.federation, folder)
        if left and folder:
            write_grouping(every, folder)
        if left:
            where(plan, left, jobs)
    runs = _collect_runs(plan, variants, jobs.traces, first.federation)
    return _comparison(plan, first, runs)._replace(
        command=command, seconds=time.monotonic() - began
    )


def _comparison(plan: Plan, first: SeedSetting, runs: list[Run]) -> Comparison:
    panel = runs[0].trace.panel
    return Comparison(
        name=plan.name,
        federation=first.federation if panel is None else first.federation.only(panel),
        registered=None if panel is None else first.federation,
        partition=first.federation.partition,
        model=plan.own["model"]["name"] if "model" in plan.own else type(first.task).__name__,
        runs=runs,
        rounds=plan.rounds,
        command="",
        seconds=0.0,
        versions=versions(),
        sampling=plan.sampling,
        sizes=" ".join(fact.text for fact in sampling_facts(plan, first.federation)),
        assumed=tuple(plan.data.get(ASSUMED, ())),
        privacy=plan.privacy,
    )


def _collect_runs(
    plan: Plan,
    variants: list[Variant],
    traces: dict[Program, list[Trace]],
    federation: Federation,
) -> list[Run]:
    """All runs of a plan, variant by variant and within each seed by seed."""
    by_seed: dict[int, dict[int, Trace]] = {seed: {} for seed in plan.seeds}
    for program, each in traces.items():
        by_seed[program.seed].update(zip(program.members, each, strict=True))
    runs = [_runs(variants, by_seed[seed], seed) for seed in plan.seeds]
    named = [own[i] for i in range(len(variants)) for own in runs]
    return [run._replace(trace=_with_names(run, federation)) for run in named]


def _with_names(run: Run, federation: Federation) -> Trace:
    """The trace of a run with the names that are not stored."""
    panel, names = run.trace.panel, federation.names
    clients = names if panel is None else tuple(names[k] for k in panel.tolist())
    return run.trace._replace(method=run.label, clients=clients, groups=federation.groups)


def _runs(variants: list[Variant], traces: dict[int, Trace], seed: int) -> list[Run]:
    """One run for each variant. The members of a method that has several are combined."""
    runs, at = [], 0
    for variant in variants:
        own = [traces[i] for i in range(at, at + len(variant.members))]
        at += len(own)
        trace = variant.method.combine(own) if variant.method.combine else own[0]
        runs.append(
            Run(
                variant.label,
                variant.method.name,
                variant.settings,
                seed,
                trace,
                variant.members[0].needs,
            )
        )
    return runs


def _check_training_rows(federation: Federation) -> None:
    empty = np.flatnonzero(federation.train.counts == 0)
    if len(empty):
        raise ValueError(
            f"Every client needs training rows, but {federation.names[empty[0]]!r} has none. Drop"
            " it or give it rows."
        )


def with_promises(plan: Plan) -> Plan:
    """The plan with what its private methods promise, which it may lack if it was written by hand:
    figures of evaluations are withheld because of it.
    """
    private = [variant for variant in plan.variants() if variant.members[0].privacy]
    if all(variant.label in plan.privacy for variant in private):
        return plan
    return plan.calibrated(setting_of(plan, plan.seeds[0]).federation.clients)


def main() -> None:
    """Run `python -m evenly.experiment.execute plan.json OUT [--no-models]`."""
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["--no-models"]):
        sys.exit("usage: python -m evenly.experiment.execute plan.json OUT [--no-models]")
    text, folder = Path(sys.argv[1]).read_text(), Path(sys.argv[2])
    report = lambda done, total: print(f"{done}/{total} rounds", file=sys.stderr)  # noqa: E731
    with folder_lock(folder):
        sweep(folder)
        if "cells" in read_fields(text):
            # a study is made of what is here
            from evenly.experiment.study import StudyPlan, execute_study, study_with_promises

            study = StudyPlan.from_json(text)
            load_planned(record for own in study.cells.values() for record in own.plugins)
            study = study_with_promises(study)
            Store(folder, study)
            execute_study(study, folder, progress=report)
        else:
            plan = Plan.from_json(text)
            load_planned(plan.plugins)
            plan = with_promises(plan)
            store = Store(folder, plan)
            with training_timer(
                folder,
                folder / "traces",
                command=f"python -m evenly.experiment.execute {' '.join(sys.argv[1:])}",
            ):
                execute(plan, store, progress=report, models=not sys.argv[3:])


if __name__ == "__main__":
    main()

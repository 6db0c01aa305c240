"""Execute a plan: seeds side by side, each seed's runs in as few programs as possible, finished runs never again.

`python -m evenly.experiment.execute plan.json OUT` does it where only the core packages are installed; with `--no-models` after
it, only what results are made of is kept.
"""

import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evenly import __version__
from evenly.algorithms import Variant
from evenly.experiment.plan import ALL_MODELS, Plan
from evenly.experiment.results import Comparison, Run
from evenly.experiment.sources import load
from evenly.experiment.store import Store
from evenly.federation import Federation
from evenly.notation import parse, unknown
from evenly.records import replace
from evenly.saving import models_of
from evenly.simulate import companions, simulate
from evenly.types import Algorithm, Seeds, Task, Trace

Progress = Callable[[int, int], None]  # rounds done and rounds in all, over every program of the plan


def execute(
    plan: Plan, store: Store | None = None, *, progress: Progress | None = None, command: str = "", models: bool = True
) -> Comparison:
    """Train everything in a plan. With a store, every finished run is kept, and an interrupted one resumes. Unless told
    otherwise, so are its models, in the trace and for `evenly.load`: large ones are most of a folder's size."""
    began = time.monotonic()
    variants = plan.variants()
    members = [member for v in variants for member in v.members]
    first = load(plan.data, plan.seeds[0])
    _check(first)
    groups = companions(members, choose_model(plan.model, first))
    meter = _Meter(progress, plan.rounds * len(groups) * len(plan.seeds))

    def one_seed(seed: int) -> list[Run]:
        federation = first if seed == plan.seeds[0] else load(plan.data, seed)
        task = choose_model(plan.model, federation)
        with _own_device(plan, seed):
            traces = _train(plan, federation, task, members, groups, seed, store, meter, models)
        if store and models:
            for member, trace in zip(members, traces, strict=True):
                own = models_of(trace, member.task(task, Seeds.all(seed)), federation)
                for number, model in enumerate(own):
                    store.save_model(f"{member.label}#{seed}" + (f"#{number}" if len(own) > 1 else ""), model)
        return _runs(variants, traces, seed)

    # Threads, not processes: the compiled programs run outside Python's lock and are shared.
    with ThreadPoolExecutor(max_workers=min(len(plan.seeds), os.cpu_count() or 1)) as pool:
        futures = [pool.submit(one_seed, seed) for seed in plan.seeds]
        try:
            by_seed = [future.result() for future in futures]
        except BaseException:
            meter.stop()  # the other threads end at their next block instead of training on
            pool.shutdown(cancel_futures=True)
            raise
    runs = [by_seed[s][i] for i in range(len(variants)) for s in range(len(plan.seeds))]
    return Comparison(
        name=plan.name,
        federation=first,
        partition=plan.data.get("client", "natural"),
        model=type(choose_model(plan.model, first)).__name__,
        runs=runs,
        rounds=plan.rounds,
        command=command,
        seconds=time.monotonic() - began,
        versions=versions(),
        sampling=plan.sampling,
    )


def choose_model(name: str, federation: Federation) -> Task:
    """The named model, settings in brackets, or the plainest that fits: logistic for two classes, softmax for more."""
    (part,) = parse(name or ("logistic" if len(federation.labels) == 2 else "softmax"))
    task = ALL_MODELS[part.name](federation)
    known = [field.name for field in dataclasses.fields(task)]  # pyright: ignore[reportArgumentType]
    for setting in part.settings:
        if setting not in known:
            raise ValueError(f"{part.name}: {unknown('setting', setting, known)}")
    return replace(task, **{k: tuple(v) if isinstance(v, list) else v for k, v in part.settings.items()})


def versions() -> dict[str, str]:
    return {"evenly": __version__, "python": sys.version.split()[0], "jax": jax.__version__, "numpy": np.__version__}


def _train(
    plan: Plan,
    federation: Federation,
    task: Task,
    members: list[Algorithm],
    groups: list[list[int]],
    seed: int,
    store: Store | None,
    meter: "_Meter",
    models: bool,
) -> list[Trace]:
    traces: dict[int, Trace] = {}
    for group in groups:
        keys = [f"{members[i].label}#{i}#{seed}" for i in group]
        found = store.load_traces(keys, task) if store else None
        if found is None:
            report = meter.start(plan.rounds)
            found = simulate(
                task,
                federation,
                [members[i] for i in group],
                plan.rounds,
                seeds=Seeds.all(seed),
                evaluate_every=plan.evaluations,
                dropout=plan.dropout,
                progress=report,
                checkpoint=store.checkpoint("|".join(keys)) if store else None,
                devices=0 if len(plan.seeds) == 1 else 1,
            )
            if store:
                store.save_traces(keys, found, models=models)
        else:
            meter.start(plan.rounds)(plan.rounds, plan.rounds)
        traces.update(zip(group, found, strict=True))
    return [traces[i] for i in range(len(members))]


def _own_device(plan: Plan, seed: int) -> AbstractContextManager[Any]:
    """Seeds take turns on the devices. A seed does not use several while others run: programs that wait for each other's devices
    would wait for ever."""
    devices = jax.devices()
    if len(plan.seeds) == 1 or len(devices) == 1:
        return nullcontext()
    return jax.default_device(devices[plan.seeds.index(seed) % len(devices)])


def _runs(variants: list[Variant], traces: list[Trace], seed: int) -> list[Run]:
    """One run per row of the comparison: methods made of several models are combined into one."""
    runs, at = [], 0
    for variant in variants:
        own = traces[at : at + len(variant.members)]
        at += len(own)
        trace = variant.method.combine(own) if variant.method.combine else own[0]
        runs.append(Run(variant.label, variant.method.name, variant.settings, seed, trace, variant.members[0].needs))
    return runs


def _check(federation: Federation) -> None:
    empty = np.flatnonzero(federation.train.counts == 0)
    if len(empty):
        raise ValueError(f"Every client needs training rows, but {federation.names[empty[0]]!r} has none. Drop it or give it rows.")


class _StoppedError(Exception):
    """Raised in a thread when another failed or the user stopped the program."""


class _Meter:
    """Adds up the progress of programs that run in several threads."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self._lock, self._stopped = threading.Lock(), False

    def stop(self) -> None:
        """Make every thread stop where it next reports."""
        self._stopped = True

    def start(self, rounds: int) -> Progress:
        seen = 0

        def report(done: int, of: int) -> None:
            nonlocal seen
            if self._stopped:
                raise _StoppedError
            with self._lock:
                self._done += done - seen
                seen = done
                if self._progress:
                    self._progress(self._done, self._total)

        return report


def main() -> None:
    """`python -m evenly.experiment.execute plan.json OUT [--no-models]`"""
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["--no-models"]):
        sys.exit("usage: python -m evenly.experiment.execute plan.json OUT [--no-models]")
    text, folder = Path(sys.argv[1]).read_text(), Path(sys.argv[2])
    report = lambda done, total: print(f"{done}/{total} rounds", file=sys.stderr)  # noqa: E731
    if "cells" in json.loads(text):
        from evenly.experiment.study import StudyPlan, execute_study  # a study is made of what is here

        study = StudyPlan.from_json(text)
        Store(folder, study)
        execute_study(study, folder, progress=report)
    else:
        plan = Plan.from_json(text)
        execute(plan, Store(folder, plan), progress=report, models=not sys.argv[3:])


if __name__ == "__main__":
    main()

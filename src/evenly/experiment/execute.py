"""Execute a plan: its programs are jobs, finished ones are never done again, and the rest run somewhere, here unless told otherwise.

`python -m evenly.experiment.execute plan.json OUT` does it where only the core packages are installed; with `--no-models` after
it, only what results are made of is kept.
"""

import sys
import time
from pathlib import Path

import jax
import numpy as np

from evenly import __version__
from evenly.algorithms import Variant
from evenly.data.federation import Federation
from evenly.experiment.jobs import Setting, setting_of
from evenly.experiment.ledger import Ledger, Progress, Where
from evenly.experiment.lock import held
from evenly.experiment.observing import Followers, Log
from evenly.experiment.plan import Plan, plain
from evenly.experiment.programs import keep, programs
from evenly.experiment.results import Comparison, Run
from evenly.experiment.store import Store, sweep
from evenly.experiment.threads import on_threads
from evenly.plugins import load_planned
from evenly.types import Trace


def execute(
    plan: Plan,
    store: Store | None = None,
    *,
    progress: Progress | None = None,
    command: str = "",
    models: bool = True,
    where: Where = on_threads,
    log: Log | None = None,
    first: Setting | None = None,
) -> Comparison:
    """Train everything in a plan. With a store, every finished run is kept, and an interrupted one resumes. Unless told
    otherwise, so are its models, in the trace and for `evenly.load`: large ones are most of a folder's size. `first` is the
    first seed's data and model, where they are loaded already."""
    began = time.monotonic()
    load_planned(plan.plugins)
    variants = plan.variants()
    first = first or setting_of(plan, plan.seeds[0])
    _check(first.federation)
    every = list(programs(plan, first.task, store.folder if store else None))
    followers = Followers(plan, variants, first.federation, store.folder if store else None, log)
    ledger = Ledger(plan, len(every), first, store, progress, models, followers)
    left = [program for program in every if not ledger.find(program)]
    with followers.told(ledger.traces, len(left)):
        if left:
            if store:
                keep(every, store.folder)
            where(plan, left, ledger)
    by_seed: dict[int, dict[int, Trace]] = {seed: {} for seed in plan.seeds}
    for program, traces in ledger.traces.items():
        by_seed[program.seed].update(zip(program.members, traces, strict=True))
    each = [_runs(variants, by_seed[seed], seed) for seed in plan.seeds]
    panel = each[0][0].trace.panel
    return Comparison(
        name=plan.name,
        federation=first.federation if panel is None else first.federation.only(panel),
        registered=None if panel is None else first.federation,
        partition=first.federation.partition,
        model=type(first.task).__name__,
        runs=[runs[i] for i in range(len(variants)) for runs in each],
        rounds=plan.rounds,
        command=command,
        seconds=time.monotonic() - began,
        versions=versions(),
        sampling=plan.sampling,
    )


def versions() -> dict[str, str]:
    return {"evenly": __version__, "python": sys.version.split()[0], "jax": jax.__version__, "numpy": np.__version__}


def _runs(variants: list[Variant], traces: dict[int, Trace], seed: int) -> list[Run]:
    """One run per row of the comparison: methods made of several models are combined into one."""
    runs, at = [], 0
    for variant in variants:
        own = [traces[i] for i in range(at, at + len(variant.members))]
        at += len(own)
        trace = variant.method.combine(own) if variant.method.combine else own[0]
        runs.append(Run(variant.label, variant.method.name, variant.settings, seed, trace, variant.members[0].needs))
    return runs


def _check(federation: Federation) -> None:
    empty = np.flatnonzero(federation.train.counts == 0)
    if len(empty):
        raise ValueError(f"Every client needs training rows, but {federation.names[empty[0]]!r} has none. Drop it or give it rows.")


def main() -> None:
    """`python -m evenly.experiment.execute plan.json OUT [--no-models]`"""
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["--no-models"]):
        sys.exit("usage: python -m evenly.experiment.execute plan.json OUT [--no-models]")
    text, folder = Path(sys.argv[1]).read_text(), Path(sys.argv[2])
    report = lambda done, total: print(f"{done}/{total} rounds", file=sys.stderr)  # noqa: E731
    with held(folder):
        sweep(folder)
        if "cells" in plain(text):
            from evenly.experiment.study import StudyPlan, execute_study  # a study is made of what is here

            study = StudyPlan.from_json(text)
            load_planned(record for own in study.cells.values() for record in own.plugins)
            Store(folder, study)
            execute_study(study, folder, progress=report)
        else:
            from evenly.experiment.record import timed  # it knows the versions from here

            plan = Plan.from_json(text)
            load_planned(plan.plugins)
            store = Store(folder, plan)
            with timed(folder, folder / "traces", command=f"python -m evenly.experiment.execute {' '.join(sys.argv[1:])}"):
                execute(plan, store, progress=report, models=not sys.argv[3:])


if __name__ == "__main__":
    main()

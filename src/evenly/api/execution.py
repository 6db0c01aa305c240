"""Run plans, studies and papers: in memory, or into a folder that can be resumed, with progress."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from evenly.api.results import Results
from evenly.api.study_results import StudyResults
from evenly.experiment.comparison import Comparison
from evenly.experiment.config import Experiment
from evenly.experiment.estimate import refuse_large_models
from evenly.experiment.execute import (
    Executor,
    JobResults,
    Progress,
    Result,
    SeedSetting,
    execute,
    refuse_unfit,
    setting_of,
    trained_models,
)
from evenly.experiment.folder import (
    RunRecord,
    Store,
    add_training,
    begin,
    finish,
    folder_lock,
    sweep,
    training_timer,
    with_record,
    write_csv,
    write_result_rows,
    write_results,
)
from evenly.experiment.loggers import logging_to
from evenly.experiment.observe import Log
from evenly.experiment.paper import Paper, paper_lines, side_by_side
from evenly.experiment.plan import Plan, Program, members_of
from evenly.experiment.promises import privacy_record
from evenly.experiment.study import (
    Study,
    StudyPlan,
    execute_study,
    method_rows,
    study_with_promises,
)
from evenly.models import check_task
from evenly.papers.thesis import study_rows

Bar = Callable[[str], AbstractContextManager[Progress | None]]
Announce = Callable[[Mapping[str, Plan], Path, SeedSetting], None]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, and remove what a killed process left in it."""
    with folder_lock(folder, "folder with out="):
        sweep(folder)
        yield


class ExecutionSettings(NamedTuple):
    """How a plan is run, besides what it computes."""

    force: bool = False  # replace results of other settings
    where: Executor | None = None  # None: on this machine
    loggers: tuple[str, ...] = ()
    log: Log | None = None  # a logger of the user's own, in place of named ones
    bar: Bar = lambda what: nullcontext()  # context that yields a function for progress
    announce: Announce | None = None  # called before training
    working: Callable[[Path], AbstractContextManager[None]] = locked  # context of work in a folder

    @contextmanager
    def arguments(self, what: str, folder: Path | None) -> Iterator[dict[str, Any]]:
        """Arguments of `execute`, while the bar and the loggers are open."""
        with ExitStack() as stack:
            found: dict[str, Any] = {"progress": stack.enter_context(self.bar(what))}
            if self.loggers:
                if folder is None:
                    raise ValueError("Loggers write into a folder. Choose one with out=.")
                found["log"] = stack.enter_context(logging_to(self.loggers, folder))
            if self.log is not None:
                found["log"] = self.log
            if self.where is not None:
                found["where"] = self.where
            yield found


def run_plan(
    plan: Plan, about: RunRecord, folder: Path | None, options: ExecutionSettings
) -> Results:
    """Execute a plan, in memory or into a folder: traces, models, rows and the report."""
    plan.variants()  # mistakes are reported before anything is written
    if options.where is not None and (plan.own or plan.in_memory):
        raise ValueError(
            "Data, models and algorithms from Python cannot be sent to a cluster. Use a table in a"
            " file, names of models, and methods from a plugin."
        )
    if folder is None:
        return _in_memory(plan, about, options)
    with options.working(folder):
        plan, first = _checked(plan)
        store = Store(folder, plan, force=options.force)
        begin(folder, dataclasses.replace(about, privacy=plan.privacy))
        if options.announce:
            options.announce({"": plan}, folder, first)
        with (
            training_timer(folder, folder / "traces"),
            options.arguments(_words(plan), folder) as arguments,
        ):
            comparison = execute(plan, store, first=first, **arguments)
        return _complete(comparison, plan, store)


def _complete(comparison: Comparison, plan: Plan, store: Store) -> Results:
    """Write what follows from finished runs: rows and the report."""
    comparison = with_record(comparison, store.folder)
    paper = paper_lines(comparison, store.folder)
    results = Results(comparison, plan=plan, folder=store.folder, paper=paper)
    write_results(store, comparison)
    results.report(store.folder / "report.html")
    finish(store.folder, privacy_record(comparison))
    return results


def store_results(
    comparison: Comparison, plan: Plan, about: RunRecord, folder: Path, *, force: bool
) -> None:
    """Write a comparison in memory into a folder, as if it had been computed there."""
    variants = plan.variants()
    if comparison.labels != [variant.label for variant in variants]:
        raise ValueError("These are only some methods of a comparison. Save all of them.")
    for variant in variants:
        if variant.method.combine:
            raise ValueError(
                f"{variant.label} combines several models, which are stored only with out=FOLDER."
            )
    with locked(folder):
        store = Store(folder, plan, force=force)
        begin(folder, dataclasses.replace(about, privacy=plan.privacy))
        execute(plan, store, where=partial(_from_memory, comparison))
        add_training(folder, comparison.seconds)
        _complete(comparison, plan, store)


def _from_memory(
    comparison: Comparison, plan: Plan, programs: Sequence[Program], jobs: JobResults
) -> None:
    """An executor that has the results already."""
    traces = {(run.label, run.seed): run.trace for run in comparison.runs}
    every = members_of(plan)
    labels = [variant.label for variant in plan.variants()]
    for program in programs:
        own = [traces[labels[i], program.seed] for i in program.members]
        members, setting = [every[i] for i in program.members], setting_of(plan, program.seed)
        models = trained_models(members, program.seed, setting, own)
        jobs.save(program, Result(own, models))


def _in_memory(plan: Plan, about: RunRecord, options: ExecutionSettings) -> Results:
    plan, first = _checked(plan)
    with options.arguments(_words(plan), None) as arguments:
        comparison = execute(plan, first=first, **arguments)
    facts = {"command": about.command, "title": about.title, "notes": about.notes}
    comparison = comparison._replace(**facts)
    paper = side_by_side(comparison, Paper.model_validate(about.paper)) if about.paper else []
    return Results(comparison, plan=plan, paper=paper, record=about)


def _checked(plan: Plan) -> tuple[Plan, SeedSetting]:
    """The plan with the noise of private methods, and data and model of the first seed. Mistakes
    are reported before anything is written.
    """
    first = setting_of(plan, plan.seeds[0])
    plan = plan.calibrated(first.federation.clients)
    check_task(first.task, first.federation)
    refuse_unfit(plan, first)
    refuse_large_models(plan, first)
    return plan, first


def _words(plan: Plan) -> str:
    methods, seeds = len(plan.variants()), len(plan.seeds)
    return f"training {methods} method{'s' * (methods > 1)} on {seeds} seed{'s' * (seeds > 1)}"


def run_study(
    plan: StudyPlan, about: RunRecord, folder: Path, options: ExecutionSettings
) -> StudyResults:
    """Execute a study into a folder: its runs go to cells/, and study.csv has its own columns."""
    plan = study_with_promises(plan)  # mistakes are reported before anything is written
    task = f"{plan.name}: {len(method_rows(plan))} methods on {len(plan.cells)} partitions"
    with options.working(folder):
        first_plan = next(iter(plan.cells.values()))
        first = setting_of(first_plan, first_plan.seeds[0])
        refuse_large_models(first_plan, first)
        store = Store(folder, plan, force=options.force)
        promises = {name: cell.privacy for name, cell in plan.cells.items() if cell.privacy}
        record = begin(folder, dataclasses.replace(about, privacy=promises))
        if options.announce:
            options.announce(plan.cells, folder, first)
        with options.arguments(task, folder) as arguments:
            study = execute_study(plan, folder, command=record.command, **arguments)
        results = StudyResults(study, folder, title=record.title, notes=record.notes)
        write_result_rows(store, results.rows)
        write_csv(store, "study.csv", list(study_rows(study)))
        results.report(folder / "report.html")
        own = {name: privacy_record(cell) for name, cell in study.cells.items() if cell.privacy}
        finish(folder, own)
    return results


def experiment_record(experiment: Experiment, command: str, *, short: bool = False) -> RunRecord:
    """The run record of an experiment file."""
    return RunRecord(
        command=command,
        title=f"{experiment.title} (short version)" if short else experiment.title,
        notes=experiment.notes,
        paper=experiment.paper.model_dump() if experiment.paper else None,
        short=short,
    )


# The experiments of a paper, for `evenly.reproduce` and for the command of that name.

T = TypeVar("T")


def paper_folder(paper: str, short: Mapping[str, Any]) -> Path:
    """The folder of a paper's results, unless the user chooses another.

    The settings are part of the name, so that the same call finds its finished experiments again.
    """
    settings = [key if value is True else f"{key}{value}" for key, value in short.items() if value]
    return Path("results") / "-".join([paper, *settings])


def run_each(
    experiments: Mapping[str, Callable[[], T]], warn: Callable[[str], None]
) -> dict[str, T]:
    """Run the experiments and return the results of those that succeeded. The others are passed to
    `warn`, as a sentence.
    """
    results = {}
    for name, run in experiments.items():
        try:
            results[name] = run()
        except (ValueError, OSError) as error:
            warn(f"{name} was not run. {error}")
    return results


def joint_report(studies: Sequence[Study], paper: str, folder: Path) -> Path | None:
    """Report the studies of a paper together, if there are several."""
    if len(studies) < 2:
        return None
    from evenly.papers.study_page import write_study_report  # Altair is slow to import

    return write_study_report(studies, folder / "report.html", f"All studies of {paper} together")

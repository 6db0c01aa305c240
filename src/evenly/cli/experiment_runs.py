"""Run a plan, a study or an experiment into its folder: traces, rows, models and the report.

This module imports most of the library. Commands import it when they run, so that `evenly --help`
starts quickly.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rich.console import Console

from evenly.cli.interruption import working_in
from evenly.cli.options import Execution
from evenly.cli.terminal import plain_console, print_json, this_command
from evenly.cli.terminal_tables import (
    best_table,
    findings_text,
    opening_of,
    progress,
    reproduction_table,
    results_table,
    show_plan,
    warnings_of,
)
from evenly.experiment.comparison import Comparison
from evenly.experiment.config import Experiment
from evenly.experiment.estimate import refuse_large_models
from evenly.experiment.execute import execute, refuse_unfit, setting_of
from evenly.experiment.folder import (
    RunRecord,
    Store,
    begin,
    finish,
    read_record,
    training_timer,
    with_record,
    write_csv,
    write_result_rows,
    write_results,
)
from evenly.experiment.paper import paper_lines
from evenly.experiment.plan import Plan
from evenly.experiment.study import Study, StudyPlan, execute_study, method_rows
from evenly.papers.study_findings import Finding, findings
from evenly.papers.study_page import write_study_report
from evenly.papers.thesis import study_rows, tidy_study
from evenly.report.page import write_report
from evenly.report.setup_sections import SPREADS


class AnyPlan(Protocol):
    """A plan of a comparison, a study or a search."""

    @property
    def name(self) -> str: ...
    def fingerprint(self) -> str: ...


def default_folder(plan: AnyPlan) -> Path:
    """Return the folder of a plan's results, unless the user chooses another."""
    return Path("results") / f"{plan.name.replace('/', '-')}-{plan.fingerprint()[:8]}"


class RunOptions(NamedTuple):
    """Where a plan's results go, and how it is executed."""

    out: Path | None = None  # None: its default folder
    force: bool = False  # replace results of other settings
    execution: Execution = Execution()
    same_command_out: Path | None = None  # see `working_in`


class RunResult(NamedTuple):
    """An experiment that was run into its folder."""

    folder: Path
    rows: list[dict[str, Any]]
    tables: list[Any]  # printed in the terminal
    study: Study | None = None
    findings: tuple[Finding, ...] = ()


def run_plan(
    plan: Plan, options: RunOptions, about: RunRecord | None = None
) -> tuple[Comparison, Path, list[dict[str, Any]]]:
    """Execute a plan into its folder and return the comparison, the folder and the result rows."""
    plan.variants()  # mistakes are reported before anything is written
    folder, console = options.out or default_folder(plan), Console(stderr=True)
    with working_in(folder, options.same_command_out):
        first = setting_of(plan, plan.seeds[0])
        refuse_unfit(plan, first)
        refuse_large_models(plan, first)
        store = Store(folder, plan, force=options.force)
        begin(folder, about or RunRecord(command=this_command()))
        show_plan(console, {"": plan}, folder, first)
        task = f"training {len(plan.variants())} methods on {len(plan.seeds)} seeds"
        arguments = options.execution.arguments(folder)
        with (
            progress(console, task) as report,
            training_timer(folder, folder / "traces"),
            arguments as where_and_log,
        ):
            comparison = execute(plan, store, progress=report, first=first, **where_and_log)
        comparison = with_record(comparison, folder)
        rows = write_results(store, comparison)
        write_report(comparison, folder / "report.html", paper_lines(comparison, folder))
        finish(folder)
    return comparison, folder, rows


def run_study(plan: StudyPlan, about: RunRecord, options: RunOptions) -> RunResult:
    """Execute a study: its runs go to cells/, and study.csv has the columns of the thesis."""
    for cell in plan.cells.values():
        cell.variants()  # mistakes are reported before anything is written
    folder, console = options.out or default_folder(plan), Console(stderr=True)
    with working_in(folder, options.same_command_out):
        first_plan = next(iter(plan.cells.values()))
        first = setting_of(first_plan, first_plan.seeds[0])
        refuse_large_models(first_plan, first)
        store = Store(folder, plan, force=options.force)
        record = begin(folder, about)
        show_plan(console, plan.cells, folder, first)
        task = f"{plan.name}: {len(method_rows(plan))} methods on {len(plan.cells)} partitions"
        with (
            progress(console, task) as report,
            options.execution.arguments(folder) as where_and_log,
        ):
            study = execute_study(
                plan, folder, progress=report, command=record.command, **where_and_log
            )
        rows = write_result_rows(store, list(tidy_study(study)))
        write_csv(store, "study.csv", list(study_rows(study)))
        write_study_report([study], folder / "report.html", record.title, record.notes)
        finish(folder)
    answers = tuple(findings([study]))
    warnings = [
        warning for name, cell in study.cells.items() for warning in warnings_of(cell, name)
    ]
    return RunResult(
        folder, rows, [best_table(study), findings_text(answers), *warnings], study, answers
    )


def run_experiment(plan: Plan | StudyPlan, about: RunRecord, options: RunOptions) -> RunResult:
    """Run a comparison or a study into its folder, or finish the one that is there."""
    if isinstance(plan, StudyPlan):
        return run_study(plan, about, options)
    comparison, folder, rows = run_plan(plan, options, about)
    tables = [results_table(comparison), *opening_of(comparison)]
    if lines := paper_lines(comparison, folder):
        quick = " (not comparable)" if about.short else ""
        tables.append(reproduction_table(lines, f"{about.title}{quick}. {SPREADS}"))
    return RunResult(folder, rows, [*tables, *warnings_of(comparison)])


def experiment_record(experiment: Experiment, *, short: bool) -> RunRecord:
    """Return the metadata of an experiment that is stored beside its plan."""
    return RunRecord(
        command=this_command(),
        title=f"{experiment.title} (short version)" if short else experiment.title,
        notes=experiment.notes,
        paper=experiment.paper.model_dump() if experiment.paper else None,
        short=short,
    )


def show_result(result: RunResult, *, as_json: bool, answers: Sequence[Finding] = ()) -> None:
    """Print the tables of a result, its files, and the time that it took. `answers` are added to
    the JSON.
    """
    console = Console(stderr=as_json)
    for table in result.tables:
        console.print(table)
    report = result.folder / "report.html"
    if as_json:
        print_json(
            result.rows,
            {
                "report": str(report),
                **({"findings": [one._asdict() for one in answers]} if answers else {}),
            },
        )
    plain = plain_console(stderr=as_json)
    plain.print(f"Results: {result.folder / 'results.csv'}\nReport:  {report}")
    if (record := read_record(result.folder)) and record.seconds:
        plain.print(f"Time:    {record.seconds:.1f} s, of which {record.compiling:.1f} s compiling")


# `evenly reproduce` with the name of a paper


def run_paper(
    experiments: Mapping[str, Callable[[Path], RunResult]], paper: str, *, out: Path, as_json: bool
) -> bool:
    """Run every experiment of a paper, each into its folder below `out`. Return whether all of them
    succeeded.

    `experiments` has a function for each experiment that runs it into a folder. One that fails is
    reported, and the others still run.
    """
    console, results = Console(stderr=as_json), dict[str, RunResult]()
    for name, run in experiments.items():
        try:
            results[name] = run(out / name.partition("/")[2])
        except (ValueError, OSError) as error:
            plain_console(stderr=as_json).print(f"error: {name} was not run. {error}", style="red")
            continue
        for table in results[name].tables:
            console.print(table)
    reports = {name: str(result.folder / "report.html") for name, result in results.items()}
    joint = _joint_report(
        [result.study for result in results.values() if result.study], out, paper, console
    )
    if as_json:
        print_json(
            [row for result in results.values() for row in result.rows],
            {"report": None, "reports": reports, **joint},
        )
    for report in dict.fromkeys([*reports.values(), *([joint["report"]] if joint else [])]):
        plain_console(stderr=as_json).print(f"Report:  {report}")
    return len(results) == len(experiments)


def _joint_report(
    studies: list[Study], folder: Path, paper: str, console: Console
) -> dict[str, Any]:
    """Print and write the findings of several studies together, and return them for JSON."""
    if len(studies) < 2:
        return {}
    answers = findings(studies)
    console.print(f"[bold]{len(studies)} studies together[/bold]\n")
    console.print(findings_text(answers))
    report = write_study_report(studies, folder / "report.html", f"All studies of {paper} together")
    return {"report": str(report), "findings": [one._asdict() for one in answers]}

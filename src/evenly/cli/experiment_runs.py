"""Run a plan, a study or an experiment into its folder: traces, rows, models and the report.

This module imports most of the library. Commands import it when they run, so that `evenly --help`
starts quickly.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from evenly.api import execution
from evenly.api.execution import joint_report, run_each
from evenly.api.experiments import default_folder
from evenly.api.progress import progress_bar
from evenly.api.results import Results
from evenly.api.study_results import StudyResults
from evenly.cli.interruption import working_in
from evenly.cli.options import Execution
from evenly.cli.terminal import plain_console, print_json, this_command
from evenly.cli.terminal_tables import (
    best_table,
    findings_text,
    opening_of,
    reproduction_table,
    results_table,
    show_plan,
    warnings_of,
)
from evenly.experiment.folder import (
    RunRecord,
    read_record,
)
from evenly.experiment.paper import paper_lines
from evenly.experiment.plan import Plan
from evenly.experiment.study import Study, StudyPlan
from evenly.papers.study_findings import Finding, findings
from evenly.report.setup_sections import SPREADS


class RunTarget(NamedTuple):
    """Where a plan's results go, and how it is executed."""

    out: Path | None = None  # None: its default folder
    force: bool = False  # replace results of other settings
    place: Execution = Execution()
    same_command_out: Path | None = None  # see `working_in`

    def settings(self) -> execution.ExecutionSettings:
        """Return how plans are run from the command line."""
        console = Console(stderr=True)
        return execution.ExecutionSettings(
            self.force,
            self.place.where,
            self.place.loggers,
            bar=partial(progress_bar, console=console),
            announce=partial(show_plan, console),
            working=partial(working_in, same_command_out=self.same_command_out),
        )


class RunResult(NamedTuple):
    """An experiment that was run into its folder."""

    folder: Path
    rows: list[dict[str, Any]]
    tables: list[Any]  # printed in the terminal
    study: Study | None = None
    findings: tuple[Finding, ...] = ()


def run_plan(plan: Plan, target: RunTarget, about: RunRecord | None = None) -> Results:
    """Run a plan into its folder, with the plan and its progress in the terminal."""
    folder = target.out or default_folder(plan)
    record = about or RunRecord(command=this_command())
    return execution.run_plan(plan, record, folder, target.settings())


def run_experiment(plan: Plan | StudyPlan, about: RunRecord, target: RunTarget) -> RunResult:
    """Run a comparison or a study into its folder, or finish the one that is there."""
    if isinstance(plan, StudyPlan):
        folder = target.out or default_folder(plan)
        return _study_result(execution.run_study(plan, about, folder, target.settings()))
    results = run_plan(plan, target, about)
    assert results.folder is not None
    tables = [results_table(results.comparison), *opening_of(results.comparison)]
    if lines := paper_lines(results.comparison, results.folder):
        quick = " (not comparable)" if about.short else ""
        tables.append(reproduction_table(lines, f"{about.title}{quick}. {SPREADS}"))
    return RunResult(results.folder, results.rows, [*tables, *warnings_of(results.comparison)])


def _study_result(results: StudyResults) -> RunResult:
    study, answers = results.study, results.findings
    warnings = [
        warning for name, cell in study.cells.items() for warning in warnings_of(cell, name)
    ]
    tables = [best_table(study), findings_text(answers), *warnings]
    return RunResult(results.folder, results.rows, tables, study, answers)


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
    console, plain = Console(stderr=as_json), plain_console(stderr=as_json)

    def one(name: str) -> RunResult:
        result = experiments[name](out / name.partition("/")[2])
        for table in result.tables:
            console.print(table)
        return result

    results = run_each(
        {name: partial(one, name) for name in experiments},
        lambda sentence: plain.print(f"error: {sentence}", style="red"),
    )
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
        plain.print(f"Report:  {report}")
    return len(results) == len(experiments)


def _joint_report(
    studies: list[Study], folder: Path, paper: str, console: Console
) -> dict[str, Any]:
    """Print and write the findings of several studies together, and return them for JSON."""
    report = joint_report(studies, paper, folder)
    if report is None:
        return {}
    answers = findings(studies)
    console.print(f"[bold]{len(studies)} studies together[/bold]\n")
    console.print(findings_text(answers))
    return {"report": str(report), "findings": [one._asdict() for one in answers]}

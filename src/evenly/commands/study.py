"""A study as a command runs it: into its folder, and show what it says in a terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from evenly.commands.planned import show_plan
from evenly.commands.running import How, working_in
from evenly.experiment.estimate import refuse_large_models
from evenly.experiment.execute import setting_of
from evenly.experiment.folder import Record, Store, begin, finish, write_csv, write_tidy
from evenly.experiment.study import Study, StudyPlan, execute_study, rows_of
from evenly.papers.findings import Finding, best, best_in_paper, findings
from evenly.papers.study_page import write_study_report
from evenly.papers.thesis import score, study_rows, tidy_study, views
from evenly.report.values import spread_words
from evenly.terminal import progress, warnings_of

TOP = 5


class Reproduced(NamedTuple):
    """An experiment that was run into its folder."""

    folder: Path
    rows: list[dict[str, Any]]
    shown: list[Any]  # what the terminal prints
    study: Study | None = None
    found: tuple[Finding, ...] = ()


def run_study(plan: StudyPlan, about: Record, folder: Path, force: bool, again: Path | None, how: How | None = None) -> Reproduced:
    """Execute a study: runs under cells/, study.csv in the thesis' columns, tidy rows and the report."""
    for own in plan.cells.values():
        own.variants()  # mistakes are reported before anything is written
    console = Console(stderr=True)
    with working_in(folder, again):
        first = setting_of(next(iter(plan.cells.values())), next(iter(plan.cells.values())).seeds[0])
        refuse_large_models(next(iter(plan.cells.values())), first)
        store = Store(folder, plan, force=force)
        known = begin(folder, about)
        what = f"{plan.name}: {len(rows_of(plan))} methods on {len(plan.cells)} partitions"
        show_plan(console, plan.cells, folder, first)
        with progress(console, what) as report, (how or How()).given(folder) as options:
            study = execute_study(plan, folder, progress=report, command=known.command, **options)
        rows = write_tidy(store, list(tidy_study(study)))
        write_csv(store, "study.csv", list(study_rows(study)))
        write_study_report([study], folder / "report.html", known.title, known.notes)
        finish(folder)
    found = findings([study])
    shown = [best_table(study), findings_text(found), *(words for name, own in study.cells.items() for words in warnings_of(own, name))]
    return Reproduced(folder, rows, shown, study, tuple(found))


def best_table(study: Study) -> Table:
    """The best methods by FAS, averaged over partitions: chosen honestly, as the study chooses, and in the paper."""
    seen = views([study])
    seeds = len(next(iter(study.plan.cells.values())).seeds)
    title = f"{study.plan.name}: the best by FAS over {len(seen)} partitions; {spread_words(seeds)}"
    honest, chosen = best(seen, "honest", "fas_abs")[:TOP], best(seen, "study", "fas_thesis")[:TOP]
    columns = {
        "honest protocol, FAS": [f"{m} {score(s)}" for m, s in honest],
        "study's protocol, FAS (thesis)": [f"{m} {score(s)}" for m, s in chosen],
        "the paper, FAS (thesis)": [f"{m} {mean:.3f}" for m, mean in best_in_paper(seen, "fas_thesis")[:TOP]],
    }
    table = Table(title=title, title_justify="left")
    table.add_column("", justify="right")
    shown = {name: own for name, own in columns.items() if own}
    for name in shown:
        table.add_column(name, overflow="fold")
    for i, cells in enumerate(zip(*shown.values(), strict=False)):
        table.add_row(str(i + 1), *cells)
    return table


def findings_text(found: Sequence[Finding]) -> Group:
    """Questions and answers, with what the thesis says."""
    lines = []
    for one in found:
        said = [Text(f"The thesis: {one.thesis}", style="dim")] if one.thesis else []
        lines += [Text(one.question, style="bold"), Text(one.answer), *said, Text()]
    return Group(*lines)


def findings_json(found: Sequence[Finding]) -> list[dict[str, Any]]:
    """The same for machines, with the numbers."""
    return [one._asdict() for one in found]


def write_joint_report(studies: list[Study], folder: Path, name: str) -> Path:
    """What several studies of a paper say together."""
    return write_study_report(studies, folder / "report.html", f"All studies of {name} together")

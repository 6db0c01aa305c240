"""Experiments and studies as `run`, `resume` and `reproduce` do them, and the plan that is shown first.

Imported when one is run: it needs the whole library, and `evenly --help` must be quick.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from evenly.cli.running import How, folder_of, run_plan, this_command, working_in
from evenly.cli.tables import opening_of, progress, reproduction_table, results_table, warnings_of
from evenly.data.columns import Fact, column_facts
from evenly.data.federation import Federation, side_facts
from evenly.datasets.load import ASSUMED, available, size
from evenly.experiment.config import Experiment
from evenly.experiment.estimate import PlanEstimate, estimate, refuse_large_models
from evenly.experiment.execute import SeedSetting, setting_of
from evenly.experiment.folder import RunRecord, Store, begin, finish, read_record, slug, write_csv, write_tidy
from evenly.experiment.paper import lines_of
from evenly.experiment.plan import Plan
from evenly.experiment.study import Study, StudyPlan, execute_study, rows_of
from evenly.papers.findings import Finding, best, best_in_paper, findings
from evenly.papers.study_page import write_study_report
from evenly.papers.thesis import score, study_rows, tidy_study, views
from evenly.report.facts import SPREADS
from evenly.report.values import spread_words

# The plan that is shown before a long run, and alone by `--plan`.


def show_plan(console: Console, plans: Mapping[str, Plan], folder: Path, first: SeedSetting) -> None:
    """What will be trained, of which how much is done, and what it takes; `plans` are the partitions of a study, or one plan.

    Partitions of a study share data and methods, so the first, which is loaded, stands for all.
    """
    known = read_record(folder)
    many = len(plans) > 1
    parts = [estimate(plan, first, folder / "cells" / slug(name) if name else folder) for name, plan in plans.items()]
    one, done, total = parts[0], sum(part.finished for part in parts), sum(part.programs for part in parts)
    table = facts_table()
    study = f"{len(parts)} partitions, " if many else ""
    table.add_row("train", f"{study}{_count(one.methods, 'method')}, {_count(one.seeds, 'seed')}, {_count(one.rounds, 'round')}")
    table.add_row("programs", _programs(parts, done, total))
    table.add_row("data", f"{_count(one.clients, 'client')}, {_count(one.rows, 'row')}; models of {_count(one.parameters, 'number')}")
    _add(table, facts_of(first.federation, next(iter(plans.values())).data))
    table.add_row("memory", _memory(one))
    table.add_row("time", _time(known.seconds if known else 0.0, done, total))
    table.add_row("into", str(folder))
    console.print(table, highlight=False)


def facts_of(federation: Federation, data: Mapping[str, Any]) -> list[Fact]:
    """Whom fairness is about and, of a table of the user's own, what became of its columns; `data` are a plan's."""
    columns = column_facts(federation.encoder, federation.x) if federation.encoder is not None else []
    return [*side_facts(federation, data.get(ASSUMED, ())), *columns]


def facts_table(facts: Sequence[Fact] = ()) -> Table:
    """Lines of what something is about and what is said of it."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    _add(table, facts)
    return table


def _add(table: Table, facts: Sequence[Fact]) -> None:
    for fact in facts:
        table.add_row(fact.about, Text(fact.text, style="yellow" if fact.warning else ""))


def _programs(parts: list[PlanEstimate], done: int, total: int) -> str:
    if done == total:
        return f"all {total} are finished"
    compiled = max(part.compiled for part in parts)  # partitions of the same rows share them
    return f"{total - done:,} to run, {compiled:,} to compile" + (f"; {done:,} of {total:,} are finished" if done else "")


def _memory(one: PlanEstimate) -> str:
    each = f" for each of {one.at_once} seeds at once" if one.at_once > 1 else ""
    parts = f"data {size(one.data_bytes)} and models {size(one.state_bytes)}{each}"
    return f"about {size(one.bytes)}, and what batches need: {parts}; {size(available())} are free"


def _time(spent: float, done: int, total: int) -> str:
    """Programs differ, so what the finished ones took is all that can be said of the others."""
    if done == total:
        return "nothing is left to train"
    if not (spent and done):
        return "not known before the first rounds"
    return f"about {duration(spent / done * (total - done))}, if the rest is like what is finished"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    for unit, many in (("days", 172800), ("hours", 7200), ("minutes", 120)):
        if seconds >= many:
            return f"{seconds / {'days': 86400, 'hours': 3600, 'minutes': 60}[unit]:.1f} {unit}"
    return f"{max(1, round(seconds))} seconds"


# A study as a command runs it: into its folder, and show what it says in a terminal.

TOP = 5


class Reproduced(NamedTuple):
    """An experiment that was run into its folder."""

    folder: Path
    rows: list[dict[str, Any]]
    shown: list[Any]  # what the terminal prints
    study: Study | None = None
    found: tuple[Finding, ...] = ()


def run_study(plan: StudyPlan, about: RunRecord, folder: Path, force: bool, again: Path | None, how: How | None = None) -> Reproduced:
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


# An experiment as `reproduce`, `run` and `resume` do it: a comparison, or a study of several partitions.


def about(experiment: Experiment, *, short: bool) -> RunRecord:
    """What an experiment's folder says of it besides the plan."""
    return RunRecord(
        command=this_command(),
        title=f"{experiment.title} (short version)" if short else experiment.title,
        notes=experiment.notes,
        paper=experiment.paper.model_dump() if experiment.paper else None,
        short=short,
    )


def run_experiment(
    plan: Plan | StudyPlan, known: RunRecord, out: Path | None, force: bool, again: Path | None = None, how: How | None = None
) -> Reproduced:
    """Run it into its folder, or finish what is there. `again` is as in `working_in`."""
    if isinstance(plan, StudyPlan):
        return run_study(plan, known, out or folder_of(plan), force, again, how)
    comparison, folder, rows = run_plan(plan, out, force, known, again, how)
    lines = lines_of(comparison, folder)
    shown = [results_table(comparison), *opening_of(comparison)]
    if lines:
        quick = " (not comparable)" if known.short else ""
        shown.append(reproduction_table(lines, f"{known.title}{quick}. {SPREADS}"))
    return Reproduced(folder, rows, [*shown, *warnings_of(comparison)])

"""Tables, warnings and progress bars in the terminal.

This module imports most of the library. Commands import it when they run, so that `evenly --help`
starts quickly.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from evenly.cli.terminal import titled_table
from evenly.data.columns import Fact, column_facts
from evenly.data.federation import Federation
from evenly.data.sides import side_facts
from evenly.datasets.load import ASSUMED, available, size
from evenly.experiment.comparison import Comparison
from evenly.experiment.estimate import PlanEstimate, estimate
from evenly.experiment.execute import SeedSetting
from evenly.experiment.folder import read_record, slug
from evenly.experiment.paper import PaperLine, paper_rows
from evenly.experiment.plan import Plan, sampling_facts
from evenly.experiment.study import Study
from evenly.papers.study_findings import Finding, best_in_paper, best_methods
from evenly.papers.thesis import score, study_views
from evenly.report import values as results
from evenly.report.setup_sections import WHO, paper_figures
from evenly.report.setup_sections import metric_title as title_of
from evenly.report.summary import main_table, table_title, warning_sentences, whom_sentences
from evenly.report.values import spread_words

TOP = 5  # methods in the table of a study
# the report's folder and --json have every figure
MAIN = ("average", "average_devices", "worst10", "variance", "std")


class StyledTable(Table):
    """A table whose caption explains its styles. The caption is left out where there are none: in
    files, pipes and terminals without styles.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        caption = self.caption
        self.caption = caption if console.color_system else None
        try:
            yield from super().__rich_console__(console, options)
        finally:
            self.caption = caption


def results_table(comparison: Comparison) -> Table:
    """Return one row per method and one column per metric. The best figure is bold, those not
    clearly worse are underlined.
    """
    figures, titles = main_table(comparison)
    title = table_title(comparison, figures, spread_words(figures.seeds))
    table = titled_table(
        title, "method", numbers=list(titles.values()), caption=_marks(figures), kind=StyledTable
    )
    for row in figures.rows:
        cells = (
            Text(c.text, style="bold" if c.best else "underline" if c.near else "")
            for c in row.cells.values()
        )
        table.add_row(row.label, *cells)
    return table


def _marks(figures: results.Table) -> str | None:
    """Return the meaning of bold and underlined figures."""
    if len(figures.rows) < 2:
        return None
    return "bold: best" + (
        ", underlined: not clearly worse"
        if figures.seeds > 1
        else "; with one seed nothing is clearly better"
    )


def opening_of(comparison: Comparison) -> list[Text]:
    """Return the sentences on whom a method serves worst, as the report opens with them."""
    sentences = whom_sentences(comparison)
    return [Text(" ".join(sentences))] if sentences else []


def warnings_of(comparison: Comparison, name: str = "") -> list[Text]:
    """Return warnings about the tables. `name` distinguishes several comparisons."""
    warnings = warning_sentences(comparison)
    return [Text(f"! {name and f'{name}: '}{words}", style="yellow") for words in warnings]


def reproduction_table(lines: list[PaperLine], title: str) -> Table:
    """Return the paper's figures, ours and the difference: three rows per method and split, one
    column per main metric.
    """
    main = [line for line in lines if line.metric in MAIN or line.metric.startswith("client:")]
    metrics, rows = paper_rows(main or lines)
    table = titled_table(title, "method", "", numbers=[title_of(name) for name in metrics])
    for row in rows:
        cells = [paper_figures(line) for line in row.lines]
        for i, source in enumerate(WHO):
            table.add_row(
                (row.label, row.split, "")[i],
                source,
                *(cell[i] for cell in cells),
                end_section=i == 2,
            )
    return table


# Studies


def best_table(study: Study) -> Table:
    """Return the best methods by FAS, averaged over partitions: honest protocol, study's protocol,
    and the paper.
    """
    partitions = study_views([study])
    seeds = len(next(iter(study.plan.cells.values())).seeds)
    title = (
        f"{study.plan.name}: the best by FAS over {len(partitions)} partitions;"
        f" {spread_words(seeds)}"
    )
    honest, chosen = (
        best_methods(partitions, "honest", "fas_abs")[:TOP],
        best_methods(partitions, "study", "fas_thesis")[:TOP],
    )
    columns = {
        "honest protocol, FAS": [f"{m} {score(s)}" for m, s in honest],
        "study's protocol, FAS (thesis)": [f"{m} {score(s)}" for m, s in chosen],
        "the paper, FAS (thesis)": [
            f"{m} {mean:.3f}" for m, mean in best_in_paper(partitions, "fas_thesis")[:TOP]
        ],
    }
    table = Table(title=title, title_justify="left")
    table.add_column("", justify="right")
    shown = {name: cells for name, cells in columns.items() if cells}
    for name in shown:
        table.add_column(name, overflow="fold")
    for i, row in enumerate(zip(*shown.values(), strict=False)):
        table.add_row(str(i + 1), *row)
    return table


def findings_text(findings: Sequence[Finding]) -> Group:
    """Return questions and answers, with the statement of the thesis."""
    lines = []
    for one in findings:
        thesis = [Text(f"The thesis: {one.thesis}", style="dim")] if one.thesis else []
        lines += [Text(one.question, style="bold"), Text(one.answer), *thesis, Text()]
    return Group(*lines)


# The plan that is shown before training, and alone with `--plan`


def show_plan(
    console: Console, plans: Mapping[str, Plan], folder: Path, first: SeedSetting
) -> None:
    """Print what will be trained, how much of it is finished, and its cost. `plans` has one plan,
    or the partitions of a study.

    Partitions of a study share data and methods, so the facts of the first one, which is loaded,
    hold for all.
    """
    record = read_record(folder)
    parts = [
        estimate(plan, first, folder / "cells" / slug(name) if name else folder)
        for name, plan in plans.items()
    ]
    one, done, total = (
        parts[0],
        sum(part.finished for part in parts),
        sum(part.programs for part in parts),
    )
    study = f"{len(parts)} partitions, " if len(parts) > 1 else ""
    table = facts_table()
    table.add_row(
        "train",
        f"{study}{_count(one.methods, 'method')}, {_count(one.seeds, 'seed')},"
        f" {_count(one.rounds, 'round')}",
    )
    table.add_row("programs", _programs(parts, done, total))
    table.add_row(
        "data",
        f"{_count(one.clients, 'client')}, {_count(one.rows, 'row')}; models of"
        f" {_count(one.parameters, 'number')}",
    )
    plan = next(iter(plans.values()))
    _add(table, sampling_facts(plan, first.federation))
    _add(table, facts_of(first.federation, plan.data))
    table.add_row("memory", _memory(one))
    table.add_row("time", _time(record.seconds if record else 0.0, done, total))
    table.add_row("into", str(folder))
    console.print(table, highlight=False)


def facts_of(federation: Federation, data: Mapping[str, Any]) -> list[Fact]:
    """Return the favourable label, the unprivileged groups and, for the user's own table, the use
    of its columns. `data` is a plan's.
    """
    sides = side_facts(federation, data.get(ASSUMED, ()))
    if federation.encoder is None:
        return sides
    sensitive = [attribute.name for attribute in federation.attributes]
    return [*sides, *column_facts(federation.encoder, federation.x, sensitive)]


def facts_table(facts: Sequence[Fact] = ()) -> Table:
    """Return a table of two columns without borders: topic and text."""
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
    return f"{total - done:,} to run, {compiled:,} to compile" + (
        f"; {done:,} of {total:,} are finished" if done else ""
    )


def _memory(one: PlanEstimate) -> str:
    each = f" for each of {one.at_once} seeds at once" if one.at_once > 1 else ""
    parts = f"data {size(one.data_bytes)} and models {size(one.state_bytes)}{each}"
    return f"about {size(one.bytes)}, and what batches need: {parts}; {size(available())} are free"


def _time(spent: float, done: int, total: int) -> str:
    """Return the time that the rest takes if its programs take as long as the finished ones."""
    if done == total:
        return "nothing is left to train"
    if not (spent and done):
        return "not known before the first rounds"
    return f"about {duration(spent / done * (total - done))}, if the rest is like what is finished"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a time in its natural unit."""
    for unit, many in (("days", 172800), ("hours", 7200), ("minutes", 120)):
        if seconds >= many:
            return f"{seconds / {'days': 86400, 'hours': 3600, 'minutes': 60}[unit]:.1f} {unit}"
    return f"{max(1, round(seconds))} seconds"

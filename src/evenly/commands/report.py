"""`evenly report`: the report of finished results, written again, and its charts as files."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from evenly.commands.options import Plugins
from evenly.mistakes import sentences

if TYPE_CHECKING:
    from evenly.experiment.study import StudyPlan


class Format(StrEnum):
    """Of the figures."""

    png = "png"
    svg = "svg"
    pdf = "pdf"


def report(
    folder: Annotated[Path, typer.Argument(help="A folder of finished results.", metavar="DIR")],
    out: Annotated[Path | None, typer.Option(help="The HTML file; by default report.html in the folder.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Also write every chart into this folder.")] = None,
    format: Annotated[Format | None, typer.Option("--format", help="Of the figures; svg unless given.")] = None,
    min_cell: Annotated[int, typer.Option("--min-cell", help="Hide what rests on fewer people than that; 0 hides nothing.", min=0)] = 0,
    plugin: Plugins = None,
) -> None:
    """Write the report of finished results again. Its charts can be saved as files, and small numbers hidden."""
    with sentences():
        from evenly.experiment.reopen import read_plan
        from evenly.experiment.study import StudyPlan
        from evenly.report.html import write_figures

        if format and not figures:
            raise ValueError("--format is that of figures, but none are asked for. Say where to write them with --figures DIR.")
        plan, path = read_plan(folder), out or folder / "report.html"
        specs, warnings = _study(folder, path, plan, min_cell) if isinstance(plan, StudyPlan) else _comparison(folder, path, min_cell)
        drawn = write_figures(specs, figures, (format or Format.svg).value) if figures else []
        console = Console()
        for warning in warnings:
            console.print(warning)
        console.print(f"Report:  {path}", soft_wrap=True, highlight=False, markup=False)
        if drawn:
            console.print(f"Figures: {len(drawn)} files in {figures}", soft_wrap=True, highlight=False, markup=False)


def _comparison(folder: Path, path: Path, least: int) -> tuple[dict[str, Any], list[Text]]:
    """Write the report of one comparison; its charts, and what to warn of."""
    from evenly.experiment.paper import lines_of
    from evenly.experiment.reopen import open_results
    from evenly.report.page import build, write_built
    from evenly.terminal import warnings_of

    comparison = open_results(folder)
    built = build(comparison, lines_of(comparison, folder), least=least)
    write_built(comparison, built, path)
    return built.specs, warnings_of(comparison)


def _study(folder: Path, path: Path, plan: "StudyPlan", least: int) -> tuple[dict[str, Any], list[Text]]:
    """Write the report of a study; its charts, and what to warn of."""
    from evenly.experiment.folder import Record, read_record
    from evenly.experiment.reopen import open_study
    from evenly.papers.study_page import study_charts, write_study_report
    from evenly.papers.thesis import views
    from evenly.terminal import warnings_of

    if least > 1:
        raise ValueError(
            f"--min-cell is for the report of one comparison, but {str(folder)!r} holds a study of {len(plan.cells)} partitions, whose "
            "report shows figures of all clients together. Leave --min-cell out."
        )
    study, known = open_study(folder), read_record(folder) or Record()
    write_study_report([study], path, known.title or plan.name, known.notes)
    return study_charts(views([study])).specs, [words for name, own in study.cells.items() for words in warnings_of(own, name)]

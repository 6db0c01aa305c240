"""Commands for finished results: `evenly report`, `export`, `diff` and `watch`."""

import json
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evenly.cli.running import Plugins, sentences

if TYPE_CHECKING:
    from evenly.experiment.reopen import Difference
    from evenly.experiment.study import StudyPlan


# `evenly report`: the report of finished results, written again, and its charts as files.


class ChartFormat(StrEnum):
    """Of the figures."""

    png = "png"
    svg = "svg"
    pdf = "pdf"


def report(
    folder: Annotated[Path, typer.Argument(help="A folder of finished results.", metavar="DIR")],
    out: Annotated[Path | None, typer.Option(help="The HTML file; by default report.html in the folder.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Also write every chart into this folder.")] = None,
    format: Annotated[ChartFormat | None, typer.Option("--format", help="Of the figures; svg unless given.")] = None,
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
        drawn = write_figures(specs, figures, (format or ChartFormat.svg).value) if figures else []
        console = Console()
        for warning in warnings:
            console.print(warning)
        console.print(f"Report:  {path}", soft_wrap=True, highlight=False, markup=False)
        if drawn:
            console.print(f"Figures: {len(drawn)} files in {figures}", soft_wrap=True, highlight=False, markup=False)


def _comparison(folder: Path, path: Path, least: int) -> tuple[dict[str, Any], list[Text]]:
    """Write the report of one comparison; its charts, and what to warn of."""
    from evenly.cli.tables import warnings_of
    from evenly.experiment.paper import lines_of
    from evenly.experiment.reopen import open_results
    from evenly.report.page import build, write_built

    comparison = open_results(folder)
    built = build(comparison, lines_of(comparison, folder), least=least)
    write_built(comparison, built, path)
    return built.specs, warnings_of(comparison)


def _study(folder: Path, path: Path, plan: "StudyPlan", least: int) -> tuple[dict[str, Any], list[Text]]:
    """Write the report of a study; its charts, and what to warn of."""
    from evenly.cli.tables import warnings_of
    from evenly.experiment.folder import RunRecord, read_record
    from evenly.experiment.reopen import open_study
    from evenly.papers.study_charts import study_charts
    from evenly.papers.study_page import write_study_report
    from evenly.papers.thesis import views

    if least > 1:
        raise ValueError(
            f"--min-cell is for the report of one comparison, but {str(folder)!r} holds a study of {len(plan.cells)} partitions, whose "
            "report shows figures of all clients together. Leave --min-cell out."
        )
    study, known = open_study(folder), read_record(folder) or RunRecord()
    write_study_report([study], path, known.title or plan.name, known.notes)
    return study_charts(views([study])).specs, [words for name, own in study.cells.items() for words in warnings_of(own, name)]


# `evenly export`: results for other programs and for a paper.


class Format(StrEnum):
    """What results can be written as."""

    csv = "csv"
    latex = "latex"
    parquet = "parquet"


def export(
    folder: Annotated[Path, typer.Argument(help="A finished folder of results.")],
    form: Annotated[
        Format, typer.Option("--format", help="csv and parquet: every row; latex: a table of methods and metrics.")
    ] = Format.csv,
    out: Annotated[Path | None, typer.Option(help="File to write; csv and latex are printed by default.")] = None,
    metrics: Annotated[str, typer.Option(help="Columns of the LaTeX table, separated by commas; by default the main ones.")] = "",
    plugin: Plugins = None,
) -> None:
    """Write results as tidy rows or as a LaTeX table. It has mean ± half of the 95 % interval; bold is clearly best."""
    with sentences():
        from evenly.writing import write_whole

        if form == Format.parquet and out is None:
            raise ValueError("Parquet is not text and cannot be printed; say where to write it with --out FILE.")
        if metrics and form != Format.latex:
            raise ValueError(f"--metrics chooses the columns of a LaTeX table; {form} has all of them.")
        content = _latex(folder, metrics) if form == Format.latex else _rows(folder, form)
        if out is None:
            print(content.decode(), end="")
        else:
            write_whole(out, lambda file: file.write(content))
            Console(stderr=True).print(f"Written: {out}", soft_wrap=True, highlight=False)


def _latex(folder: Path, metrics: str) -> bytes:
    from evenly.cli.tables import about, main_table
    from evenly.experiment.reopen import open_results
    from evenly.report.tables import latex
    from evenly.report.values import spread_words

    comparison = open_results(folder)
    table, names = main_table(comparison, [name.strip() for name in metrics.split(",") if name.strip()])
    about_it = f"{about(comparison, table, spread_words(table.seeds))}. Bold: best in its column, and every other method is clearly worse"
    return latex(table, names, about_it).encode()


def _rows(folder: Path, form: Format) -> bytes:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    from evenly.experiment.folder import csv_table

    rows, sink = _tidy(folder), pa.BufferOutputStream()
    if form == Format.csv:
        pyarrow.csv.write_csv(csv_table(rows), sink)
    else:
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue().to_pybytes()


def _tidy(folder: Path) -> list[dict[str, Any]]:
    from evenly.experiment.comparison import tidy
    from evenly.experiment.reopen import open_results, open_study, read_plan
    from evenly.experiment.study import StudyPlan
    from evenly.papers.thesis import tidy_study

    if isinstance(read_plan(folder), StudyPlan):
        return list(tidy_study(open_study(folder)))
    return list(tidy(open_results(folder)))


# `evenly diff`: what is not the same in two folders of results.

MAIN = ("average", "average_devices", "worst10", "variance", "accuracy", "eod_abs", "spd_abs")
MOST = 30  # figures shown in a terminal; --json has all


def diff(
    first: Annotated[Path, typer.Argument(help="A finished folder of results.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
    tolerance: Annotated[float, typer.Option(help="How much a figure may differ and still be the same.")] = 0.0,
    plugin: Plugins = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything that differs as JSON.")] = False,
) -> None:
    """Compare two folders: settings, methods and results. Exit code 0: the same; 1: not; 2: they cannot be compared."""
    with sentences():
        from evenly.experiment.reopen import diff as differences

        found = differences(first, second, tolerance=tolerance)
        if as_json:
            print(json.dumps(_plain(found)))
        else:
            _show(found, first, second)
        if not found.same:
            raise typer.Exit(1)


def _show(found: "Difference", first: Path, second: Path) -> None:
    console = Console()
    if found.same:
        console.print(f"The same: settings, methods and all {found.compared:,} figures.", highlight=False)
        return
    if found.settings:
        table = _table("settings that differ", "setting", str(first), str(second))
        for setting in found.settings:
            table.add_row(setting.key, _brief(setting.first), _brief(setting.second))
        console.print(table)
    for folder, only in ((first, found.only_first), (second, found.only_second)):
        if only:
            console.print(f"only in {folder}: {', '.join(only)}", highlight=False, markup=False)
    if not found.figures:
        console.print(f"All {found.compared:,} figures that both have are the same.", highlight=False)
        return
    shown = [one for one in found.figures if one.metric in MAIN and one.split not in ("train", "valid")] or found.figures
    table = _table("figures that differ, means over seeds", "method", "rows", "metric", str(first), str(second), "difference")
    for figure in shown[:MOST]:
        where = f"{figure.cell}: {figure.split}" if figure.cell else figure.split
        values = (f"{value:.6g}" for value in (figure.first, figure.second, figure.difference))
        table.add_row(figure.label, where, figure.metric, *values)
    console.print(table)
    more = "" if len(found.figures) == len(shown[:MOST]) else f"; {len(shown[:MOST])} are shown, --json has all"
    console.print(f"{len(found.figures):,} of {found.compared:,} figures differ{more}.", highlight=False)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _brief(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _plain(found: "Difference") -> dict[str, Any]:
    figures = [
        {key: value if not isinstance(value, float) or isfinite(value) else None for key, value in fields.items()}
        for fields in ({**figure._asdict(), "difference": figure.difference} for figure in found.figures)
    ]
    return {"schema": 1, "same": found.same, **found._asdict(), "settings": [one._asdict() for one in found.settings], "figures": figures}


# `evenly watch`: follow a running experiment in the browser.


def watch(
    folder: Annotated[Path, typer.Argument(help="Folder of an experiment that runs, has run or will run.")],
    port: Annotated[int, typer.Option(help="Port on this machine; 0: any that is free.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
) -> None:
    """Follow a running experiment on a page of this machine. It shows progress, time left and every method's figures so far."""
    with sentences():
        from evenly.watch import Watch

        try:
            server = Watch(folder, port)
        except OSError as error:
            raise ValueError(f"Port {port} cannot be used: {error.strerror}. Choose another --port, or 0 for any that is free.") from None
        console = Console(soft_wrap=True)
        console.print(f"Following {folder} at {server.url}\nCtrl-C ends it; the experiment goes on.", highlight=False, markup=False)
        try:
            if browser:
                import webbrowser

                webbrowser.open(server.url)
            server.serve()
        except KeyboardInterrupt:
            console.print("\nEnded.")
        finally:
            server.close()

"""Commands for finished results: `evenly report`, `export`, `diff` and `watch`."""

import json
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenly.cli.options import Plugins
from evenly.cli.terminal import plain_console, styled_console, titled_table

if TYPE_CHECKING:
    from rich.text import Text

    from evenly.experiment.reopen import Difference
    from evenly.experiment.study import StudyPlan


class ChartFormat(StrEnum):
    """File formats of charts."""

    png = "png"
    svg = "svg"
    pdf = "pdf"


def report(
    *,
    folder: Annotated[Path, typer.Argument(help="A folder of finished results.", metavar="DIR")],
    out: Annotated[
        Path | None,
        typer.Option(help="The HTML file to write; by default report.html in the folder."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write every chart into this folder.")
    ] = None,
    format: Annotated[
        ChartFormat | None, typer.Option("--format", help="Format of the charts; by default svg.")
    ] = None,
    min_cell: Annotated[
        int,
        typer.Option(
            help="Hide figures that are based on fewer people than this; 0 hides nothing.", min=0
        ),
    ] = 0,
    plugin: Plugins = None,
) -> None:
    """Write the report of finished results again. It can save its charts as files, and hide small
    numbers.
    """
    from evenly.report.html import write_figures

    if format and not figures:
        raise ValueError(
            "--format is the format of charts, but no charts are written. Choose a folder for them"
            " with --figures DIR."
        )
    path = out or folder / "report.html"
    specs, warnings = _write_report(folder, path, min_cell)
    files = write_figures(specs, figures, (format or ChartFormat.svg).value) if figures else []
    for warning in warnings:
        styled_console().print(warning)
    plain_console().print(
        f"Report:  {path}" + (f"\nFigures: {len(files)} files in {figures}" if files else "")
    )


def _write_report(folder: Path, path: Path, min_cell: int) -> "tuple[dict[str, Any], list[Text]]":
    """Write the report of a folder, and return its charts and warnings."""
    from evenly.experiment.reopen import read_plan
    from evenly.experiment.study import StudyPlan

    plan = read_plan(folder)
    return (
        _study(folder, path, plan, min_cell)
        if isinstance(plan, StudyPlan)
        else _comparison(folder, path, min_cell)
    )


def _comparison(folder: Path, path: Path, least: int) -> "tuple[dict[str, Any], list[Text]]":
    """Write the report of one comparison, and return its charts and warnings."""
    from evenly.cli.terminal_tables import warnings_of
    from evenly.experiment.paper import paper_lines
    from evenly.experiment.reopen import open_results
    from evenly.report.page import build

    comparison = open_results(folder)
    built = build(comparison, paper_lines(comparison, folder), least=least)
    built.write(path)
    return built.specs, warnings_of(comparison)


def _study(
    folder: Path, path: Path, plan: "StudyPlan", least: int
) -> "tuple[dict[str, Any], list[Text]]":
    """Write the report of a study, and return its charts and warnings."""
    from evenly.cli.terminal_tables import warnings_of
    from evenly.experiment.folder import RunRecord, read_record
    from evenly.experiment.reopen import open_study
    from evenly.papers.study_charts import study_charts
    from evenly.papers.study_page import write_study_report
    from evenly.papers.thesis import study_views

    if least > 1:
        raise ValueError(
            f"--min-cell is for the report of one comparison, but {str(folder)!r} holds a study of"
            f" {len(plan.cells)} partitions, whose report shows figures of all clients together."
            " Leave --min-cell out."
        )
    study, record = open_study(folder), read_record(folder) or RunRecord()
    write_study_report([study], path, record.title or plan.name, record.notes)
    return study_charts(study_views([study])).specs, [
        words for name, cell in study.cells.items() for words in warnings_of(cell, name)
    ]


class Format(StrEnum):
    """Formats of exported results."""

    csv = "csv"
    latex = "latex"
    parquet = "parquet"


def export(
    *,
    folder: Annotated[Path, typer.Argument(help="A finished folder of results.")],
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="csv and parquet have every row; latex is a table of methods and metrics.",
        ),
    ] = Format.csv,
    out: Annotated[
        Path | None, typer.Option(help="File to write. By default csv and latex are printed.")
    ] = None,
    metrics: Annotated[
        str,
        typer.Option(
            help="Columns of the LaTeX table, separated by commas; by default the main ones."
        ),
    ] = "",
    plugin: Plugins = None,
) -> None:
    """Write results as tidy rows or as a LaTeX table. The table has means ± half of the 95 %
    interval; bold is clearly best.
    """
    from evenly.writing import write_whole

    if form == Format.parquet and out is None:
        raise ValueError(
            "Parquet is a binary format and cannot be printed. Choose a file with --out FILE."
        )
    if metrics and form != Format.latex:
        raise ValueError(
            f"--metrics chooses the columns of a LaTeX table, but --format is {form}, which has all"
            " metrics. Omit --metrics."
        )
    content = _latex(folder, metrics) if form == Format.latex else _rows(folder, form)
    if out is None:
        print(content.decode(), end="")
    else:
        write_whole(out, lambda file: file.write(content))
        plain_console(stderr=True).print(f"Written: {out}")


def _latex(folder: Path, metrics: str) -> bytes:
    from evenly.api.results import Results
    from evenly.experiment.promises import withholds
    from evenly.experiment.reopen import open_results

    names = [name.strip() for name in metrics.split(",") if name.strip()]
    comparison = open_results(folder)
    if withholds(comparison.privacy):
        raise ValueError(
            "A method of this comparison is private for clients, so that figures without noise are"
            " not exported. --format csv has what it promises; whoever trained has the figures in"
            " Python (evenly.Results)."
        )
    return Results(comparison).latex(names).encode()


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
    from evenly.experiment.promises import shared_rows
    from evenly.experiment.reopen import open_results, open_study, read_plan
    from evenly.experiment.study import StudyPlan
    from evenly.papers.thesis import tidy_study

    if isinstance(read_plan(folder), StudyPlan):
        return list(tidy_study(open_study(folder)))
    return shared_rows(open_results(folder))


MAIN = ("average", "average_devices", "worst10", "variance", "accuracy", "eod_abs", "spd_abs")
MOST = 30  # figures printed in a terminal; --json has all


def diff(
    first: Annotated[Path, typer.Argument(help="A finished folder of results.")],
    second: Annotated[Path, typer.Argument(help="Another folder of results.")],
    tolerance: Annotated[
        float, typer.Option(help="Largest difference of figures that count as equal.")
    ] = 0.0,
    plugin: Plugins = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all differences as JSON.")] = False,
) -> None:
    """Compare two folders: settings, methods and results. Exit code 0: equal; 1: different; 2: they
    cannot be compared.
    """
    from evenly.experiment.reopen import diff as differences

    difference = differences(first, second, tolerance=tolerance)
    if as_json:
        print(json.dumps(_difference_json(difference)))
    else:
        _show_difference(difference, first, second)
    if not difference.same:
        raise typer.Exit(1)


def _show_difference(difference: "Difference", first: Path, second: Path) -> None:
    console, plain = styled_console(), plain_console()
    if difference.same:
        plain.print(f"The same: settings, methods and all {difference.compared:,} figures.")
        return
    if difference.settings:
        table = titled_table("settings that differ", "setting", str(first), str(second))
        for setting in difference.settings:
            table.add_row(setting.key, _brief(setting.first), _brief(setting.second))
        console.print(table)
    for folder, methods in ((first, difference.only_first), (second, difference.only_second)):
        if methods:
            console.print(f"only in {folder}: {', '.join(methods)}", highlight=False, markup=False)
    if not difference.figures:
        plain.print(f"All {difference.compared:,} figures that both have are the same.")
        return
    main = [
        one
        for one in difference.figures
        if one.metric in MAIN and one.split not in ("train", "valid")
    ]
    shown = (main or difference.figures)[:MOST]
    table = titled_table(
        "figures that differ, means over seeds",
        "method",
        "rows",
        "metric",
        str(first),
        str(second),
        "difference",
    )
    for figure in shown:
        where = f"{figure.cell}: {figure.split}" if figure.cell else figure.split
        values = (f"{value:.6g}" for value in (figure.first, figure.second, figure.difference))
        table.add_row(figure.label, where, figure.metric, *values)
    console.print(table)
    more = (
        "" if len(difference.figures) == len(shown) else f"; {len(shown)} are shown, --json has all"
    )
    plain.print(f"{len(difference.figures):,} of {difference.compared:,} figures differ{more}.")


def _brief(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _difference_json(difference: "Difference") -> dict[str, Any]:
    settings = [setting._asdict() for setting in difference.settings]
    figures = [
        {
            key: value if not isinstance(value, float) or isfinite(value) else None
            for key, value in fields.items()
        }
        for fields in (
            {**figure._asdict(), "difference": figure.difference} for figure in difference.figures
        )
    ]
    return {
        "schema": 1,
        "same": difference.same,
        **difference._asdict(),
        "settings": settings,
        "figures": figures,
    }


def watch(
    folder: Annotated[
        Path, typer.Argument(help="Folder of an experiment: running, finished or not yet started.")
    ],
    port: Annotated[
        int, typer.Option(help="Port on this machine; 0 chooses a free one.", min=0, max=65535)
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = True,
) -> None:
    """Follow a running experiment in the browser. The page shows progress, remaining time and the
    figures so far.
    """
    from evenly.watch import Watch

    try:
        server = Watch(folder, port)
    except OSError as error:
        raise ValueError(
            f"Port {port} cannot be used: {error.strerror}. Choose another --port, or 0 for a free"
            " one."
        ) from None
    console = plain_console()
    console.print(
        f"Following {folder} at {server.url}\nCtrl-C stops following; the experiment continues."
    )
    try:
        if browser:
            import webbrowser

            webbrowser.open(server.url)
        server.serve()
    except KeyboardInterrupt:
        console.print("\nEnded.")
    finally:
        server.close()

"""`evenly export`: results for other programs and for a paper."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from evenly.commands.options import Plugins
from evenly.mistakes import sentences


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
    from evenly.experiment.reopen import open_results
    from evenly.report.tables import latex
    from evenly.report.values import spread_words
    from evenly.terminal import about, main_table

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
    from evenly.experiment.reopen import open_results, open_study, read_plan
    from evenly.experiment.results import tidy
    from evenly.experiment.study import StudyPlan
    from evenly.papers.thesis import tidy_study

    if isinstance(read_plan(folder), StudyPlan):
        return list(tidy_study(open_study(folder)))
    return list(tidy(open_results(folder)))

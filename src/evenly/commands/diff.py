"""`evenly diff`: what is not the same in two folders of results."""

import json
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from evenly.commands.options import Plugins
from evenly.mistakes import sentences

if TYPE_CHECKING:
    from evenly.experiment.reopen import Difference

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

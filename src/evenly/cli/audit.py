"""`evenly audit`: how evenly any model's predictions serve clients and groups of people."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from evenly.cli.running import Favourable, Json, Plugins, Unprivileged, sentences, this_command

if TYPE_CHECKING:
    from evenly.auditing import Audit

OWN = ("audit.csv", "audit.json", "report.html")  # what an audit writes


def audit(
    predictions: Annotated[Path, typer.Argument(help="A .csv, .csv.gz or .parquet file with one row per person.")],
    label: Annotated[str, typer.Option(help="Column of what is true.")],
    prediction: Annotated[str, typer.Option(help="Column of what the model decided, in the same words.")],
    client: Annotated[str | None, typer.Option(help="Column that names the client of each row: hospital, branch, device.")] = None,
    score: Annotated[str | None, typer.Option(help="Column of the probability of the favourable label, from 0 to 1.")] = None,
    sensitive: Annotated[str | None, typer.Option(help="Sensitive columns, separated by commas.")] = None,
    favourable: Favourable = None,
    unprivileged: Unprivileged = None,
    min_cell: Annotated[int, typer.Option(help="Hide figures that rest on fewer people than this.", min=0)] = 10,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="Give clients numbers instead of names.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the report; by default results/audit- and the file's name.")] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Audit how evenly predictions serve clients and groups. Writes a report that holds no rows."""
    with sentences():
        columns = [column.strip() for column in (sensitive or "").split(",") if column.strip()]
        folder = out or Path("results") / f"audit-{predictions.name.partition('.')[0]}"
        _check_folder(folder, predictions)
        from evenly.auditing import audit_file

        found = audit_file(
            predictions,
            label=label,
            prediction=prediction,
            client=client,
            score=score,
            sensitive=columns,
            favourable=favourable,
            unprivileged=_sides(unprivileged, columns),
            min_cell=min_cell,
            anonymous=anonymous,
        )
        found = found._replace(about=found.about._replace(command=this_command()))
        found.write(folder)
        if as_json:
            print(json.dumps({**found.json(), "report": str(folder / "report.html")}, allow_nan=False))
        _show(found, folder, Console(stderr=as_json))


def _check_folder(folder: Path, predictions: Path) -> None:
    """Nothing but an earlier audit is ever replaced."""
    there = [name for name in OWN if (folder / name).exists()]
    if there and not (folder / "audit.json").exists():
        raise ValueError(f"{folder} holds a {there[0]} that is not of an audit. Choose another folder with --out.")
    if any((folder / name).resolve() == predictions.resolve() for name in there):
        raise ValueError(f"{predictions} would be replaced by the audit. Choose another folder with --out.")


def _sides(given: Sequence[str] | None, columns: list[str]) -> "dict[str, str] | str | None":
    """COLUMN=VALUE as a dict; a bare value is of the only sensitive column."""
    if not given:
        return None
    pairs = [next(((c, text.removeprefix(f"{c}=")) for c in columns if text.startswith(f"{c}=")), (None, text)) for text in given]
    named = {column: value for column, value in pairs if column is not None}
    if len(named) == len(given):
        return named
    if len(given) > 1:
        raise ValueError(f"--unprivileged must be given once for each sensitive column, as COLUMN=VALUE; got {', '.join(given)}.")
    return given[0]


def _show(found: "Audit", folder: Path, console: Console) -> None:
    for sentence in found.sentences:
        console.print(f"• {sentence}", soft_wrap=True, highlight=False, markup=False)
    for sentence in found.warnings:
        console.print(f"! {sentence}", style="yellow", soft_wrap=True, highlight=False, markup=False)
    console.print(f"Figures: {folder / 'audit.csv'}\nReport:  {folder / 'report.html'}", soft_wrap=True, highlight=False, markup=False)

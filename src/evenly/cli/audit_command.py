"""`evenly audit`: measure how evenly the predictions of any model serve clients and groups of
people.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from evenly.cli.options import Favourable, Json, Plugins, Sensitive
from evenly.cli.terminal import plain_console, this_command

if TYPE_CHECKING:
    from evenly.auditing import Audit

Required = Annotated[
    list[str] | None,
    typer.Option(
        help=(
            "A requirement such as impact_ratio>=0.8; may be given several times. If one is not"
            " met, the exit status is 1."
        )
    ),
]
NOT_MET = 1  # the exit status if a requirement is not met


class AuditOptions(NamedTuple):
    """What the columns of a table of predictions mean, and what the report must hide."""

    label: Annotated[str, typer.Option(help="Column with the true label.")]
    prediction: Annotated[
        str, typer.Option(help="Column with the predicted label, in the same words.")
    ]
    client: Annotated[
        str | None,
        typer.Option(help="Column that names the client of each row: hospital, branch, device."),
    ] = None
    score: Annotated[
        str | None,
        typer.Option(help="Column with the probability of the favourable label, from 0 to 1."),
    ] = None
    sensitive: Sensitive = None
    favourable: Favourable = None
    unprivileged: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "The value of a sensitive column that is compared with all other values, or"
                " COLUMN=VALUE. By default every value is compared with all others."
            )
        ),
    ] = None
    min_cell: Annotated[
        int, typer.Option(help="Hide figures that are based on fewer people than this.", min=0)
    ] = 10
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Give clients numbers instead of names.")
    ] = False

    def arguments(self) -> dict[str, Any]:
        """Return the options as arguments of `audit`."""
        from evenly.datasets.load import column_names

        sensitive = column_names(self.sensitive)
        return {
            **self._asdict(),
            "sensitive": sensitive,
            "unprivileged": _sides(self.unprivileged, sensitive),
        }


def audit(
    *,
    predictions: Annotated[
        Path, typer.Argument(help="A .csv, .csv.gz or .parquet file with one row per person.")
    ],
    options: AuditOptions,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the report; by default results/audit- and the file's name."),
    ] = None,
    require: Required = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Audit how evenly predictions serve clients and groups. The report holds no rows."""
    folder = out or Path("results") / f"audit-{predictions.name.partition('.')[0]}"
    import evenly
    from evenly.auditing.result import FILES, refuse_replacing

    refuse_replacing(folder)
    if any((folder / name).resolve() == predictions.resolve() for name in FILES):
        raise ValueError(
            f"The audit would replace {predictions}. Choose another folder with --out."
        )
    result = evenly.audit(predictions, **options.arguments(), require=require or ())
    result = result._replace(about=result.about._replace(command=this_command()))
    result.write(folder)
    if as_json:
        print(json.dumps({**result.json(), "report": str(folder / "report.html")}, allow_nan=False))
    show_audit(result, folder, as_json=as_json)


def _sides(texts: Sequence[str] | None, columns: list[str]) -> "dict[str, str] | str | None":
    """Return COLUMN=VALUE texts as a dict. A text without a column is a value of the only sensitive
    column.
    """
    if not texts:
        return None
    pairs = [
        next(
            ((c, text.removeprefix(f"{c}=")) for c in columns if text.startswith(f"{c}=")),
            (None, text),
        )
        for text in texts
    ]
    values = {column: value for column, value in pairs if column is not None}
    if len(values) == len(texts):
        return values
    if len(texts) > 1:
        raise ValueError(
            "--unprivileged must be given once for each sensitive column, as COLUMN=VALUE; got"
            f" {', '.join(texts)}."
        )
    return texts[0]


def show_audit(result: "Audit", folder: Path, *, as_json: bool) -> None:
    """Print the findings and the requirements. Exits with status 1 if one is not met."""
    console, checks = plain_console(stderr=as_json), result.check()
    for sentence in result.sentences:
        console.print(f"• {sentence}")
    for sentence in result.warnings:
        console.print(f"! {sentence}", style="yellow")
    for check in checks:
        console.print(check.sentence, style="" if check.met else "bold red")
    console.print(f"Figures: {folder / 'audit.csv'}\nReport:  {folder / 'report.html'}")
    if not all(check.met for check in checks):
        raise typer.Exit(NOT_MET)

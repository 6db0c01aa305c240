"""The command line, put together: one line for each command. Every command is a short call of the library."""

from typing import Annotated

import typer

from evenly import __version__
from evenly.cli import audit, data, doctor, flower, listing, results, train, tune
from evenly.cli.running import Commands
from evenly.compilation import set_flags

app = Commands("Fair federated learning: train one model that works for every client, and see whom it fails.")

app.command()(train.compare)
app.command()(train.run)
app.command()(train.resume)
app.command()(results.report)
app.command()(results.export)
app.command()(results.diff)
app.command()(results.watch)
app.command()(train.reproduce)
app.command()(tune.tune)
app.command("list")(listing.list_all)
app.command()(listing.describe)
app.command()(audit.audit)
app.command()(doctor.doctor)
app.add_typer(data.app, name="data")
app.add_typer(flower.app, name="flower")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"evenly {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")] = False,
) -> None:
    """Options that stand before a command."""


def main() -> None:
    """Entry point. Some commands ask JAX what it computes on before they train; its flags must be set by then."""
    set_flags()
    app()

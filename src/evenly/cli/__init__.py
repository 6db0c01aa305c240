"""The command line: one line for each command. Every command is a short call of the library.

`<family>_commands` has the commands of a family, `options` the options that several commands share,
and `terminal` their behaviour in a terminal. These modules import the library inside functions, so
that `evenly --help` starts quickly. `experiment_runs` and `terminal_tables` import it as usual;
commands load them when they run.
"""

from typing import Annotated

import typer

from evenly import __version__
from evenly.cli import doctor
from evenly.cli.audit_command import audit
from evenly.cli.catalogue_commands import cite, describe, list_all
from evenly.cli.data_commands import app as data_app
from evenly.cli.experiment_commands import compare, reproduce, resume, run
from evenly.cli.flower_commands import app as flower_app
from evenly.cli.privacy_command import privacy
from evenly.cli.result_commands import diff, export, report, watch
from evenly.cli.terminal import Commands
from evenly.cli.tuning_command import tune
from evenly.xla_flags import set_flags

app = Commands(
    "Fair federated learning: train one model that works for every client, and see whom it fails."
)

for command in (compare, run, resume, report, export, diff, watch, reproduce, tune):
    app.command()(command)
app.command("list")(list_all)
for command in (describe, cite, audit, privacy, doctor.doctor):
    app.command()(command)
app.add_typer(data_app, name="data")
app.add_typer(flower_app, name="flower")


def _print_version(requested: bool) -> None:
    if requested:
        print(f"evenly {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options before the name of a command."""


def main() -> None:
    """Run the command line. Some commands query JAX's devices before they train, so XLA's flags are
    set first.
    """
    set_flags()
    app()

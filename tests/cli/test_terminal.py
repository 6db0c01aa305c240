"""Records as options of a command, and errors in one line."""

import io
from typing import Annotated, NamedTuple

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from evenly.cli.terminal import Commands, titled_table
from evenly.cli.terminal_tables import StyledTable

runner = CliRunner()


class Sizes(NamedTuple):
    """Options with and without a default."""

    width: Annotated[int, typer.Option(help="Required.")]
    height: Annotated[int, typer.Option(help="Optional.")] = 3


def application(error: Exception | None = None) -> Commands:
    app = Commands("Two commands, so that each needs its name.")

    @app.command()
    def area(*, name: Annotated[str, typer.Argument()], sizes: Sizes, unit: str = "m") -> None:
        if error:
            raise error
        print(f"{name}: {sizes.width * sizes.height} {unit}")

    @app.command()
    def other() -> None:
        pass

    return app


def test_the_fields_of_a_record_are_options_of_the_command():
    assert runner.invoke(application(), ["area", "a", "--width", "5"]).output == "a: 15 m\n"
    assert (
        runner.invoke(
            application(), ["area", "a", "--width", "5", "--height", "2", "--unit", "km"]
        ).output
        == "a: 10 km\n"
    )
    help_text = runner.invoke(application(), ["area", "--help"]).output
    assert help_text.index("--width") < help_text.index("--height") < help_text.index("--unit")
    assert "[default: 3]" in help_text


def test_a_field_without_a_default_is_required():
    result = runner.invoke(application(), ["area", "a"])
    assert result.exit_code == 2
    assert "Missing option '--width'" in result.output


@pytest.mark.parametrize(
    "error, line",
    [
        (ValueError("Width must be positive."), "error: Width must be positive.\n"),
        (
            FileExistsError(17, "File exists", "out"),
            "error: 'out' must be a folder, but it is a file. Choose another place.\n",
        ),
        (
            PermissionError(13, "Permission denied", "out"),
            "error: Permission denied: out. Nothing already written was lost.\n",
        ),
        (
            ImportError("Install it with `pip install 'evenly[flower]'`."),
            "error: Install it with `pip install 'evenly[flower]'`.\n",
        ),
    ],
)
def test_errors_of_the_user_are_one_line_with_exit_code_two(error: Exception, line: str):
    result = runner.invoke(application(error), ["area", "a", "--width", "5"])
    assert (result.exit_code, result.stderr) == (2, line)


def test_other_errors_are_not_hidden():
    result = runner.invoke(
        application(ImportError("No module named 'numpy'")), ["area", "a", "--width", "5"]
    )
    assert isinstance(result.exception, ImportError)


def test_a_caption_that_explains_styles_is_printed_where_there_are_styles():
    """A pipe got "bold: best, underlined: not clearly worse", and neither of them."""
    table = titled_table("title", "method", caption="bold: best", kind=StyledTable)
    table.add_row("fedavg")
    pipe = Console(file=io.StringIO())
    terminal = Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    for console in (pipe, terminal, pipe):
        with console.capture() as printed:
            console.print(table)
        assert ("bold: best" in printed.get()) == (console is terminal)

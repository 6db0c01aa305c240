"""How every command behaves in a terminal: plain help, options in records, errors in one line, and
JSON for other programs.

Rich takes a quarter of the time of `evenly --help`, which does not need it. Functions of these
modules import it when they print.
"""

import inspect
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from math import isfinite
from typing import TYPE_CHECKING, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


class Command(TyperCommand):
    """A command with plain help."""

    def get_help(self, ctx: Any) -> str:
        return _plain(super().get_help(ctx))


class Group(TyperGroup):
    """A group of commands with plain help."""

    def get_help(self, ctx: Any) -> str:
        return _plain(super().get_help(ctx))


def _plain(text: str) -> str:
    """Return help without the backslash of "\\[default: ...]".

    Typer escapes this for Rich whenever Rich is installed. Rich's markup is off here, so nothing
    removes the backslash again.
    """
    return text.replace("\\[", "[")


class Commands(typer.Typer):
    """An application, or a group of its commands.

    A parameter of a command may be a NamedTuple: each of its fields becomes an option, and the
    command receives the record. Commands report mistakes of the user and limits of the machine in
    one line, with exit code 2.
    """

    def __init__(self, help: str) -> None:
        super().__init__(
            cls=Group, help=help, no_args_is_help=True, add_completion=False, rich_markup_mode=None,
            pretty_exceptions_enable=False
        )  # fmt: skip

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        register = super().command(name, **{"cls": Command, **options})
        return lambda function: register(_with_flat_options(function))


def _with_flat_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the fields of its records as options of their own, and reports
    errors in one line.
    """
    records: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        record = hints[name]
        if isinstance(record, type) and hasattr(record, "_fields"):
            records[name] = record
            for field, hint in get_type_hints(record, include_extras=True).items():
                default = record._field_defaults.get(field, parameter.empty)
                parameters.append(
                    inspect.Parameter(
                        field, parameter.KEYWORD_ONLY, default=default, annotation=hint
                    )
                )
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=record))

    @wraps(function)
    def command(**values: Any) -> None:
        for name, record in records.items():
            values[name] = record(**{field: values.pop(field) for field in record._fields})
        with one_line_errors():
            function(**values)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Print errors of the user, of files, of memory and of missing packages as one line on stderr,
    and exit with code 2.
    """
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        _stop(f"{str(error.filename)!r} must be a folder, but it is a file. Choose another place.")
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _stop(
            f"{error.strerror}{where}. Nothing already written was lost."
            if error.strerror
            else str(error)
        )
    except ValueError as error:
        _stop(str(error))
    except MemoryError:
        _stop(
            "There is not enough memory for this. Choose fewer clients, rows, seeds or methods, or"
            " a smaller model."
        )
    except ImportError as error:
        # the name of an extra that would install the missing package
        if "evenly[" not in str(error):
            raise
        _stop(str(error))


def _stop(sentence: str) -> None:
    plain_console(stderr=True).print(f"error: {sentence}", style="red")
    raise typer.Exit(2) from None


def styled_console(*, stderr: bool = False) -> "Console":
    """Return a console that prints tables, and text with Rich's markup."""
    from rich.console import Console

    return Console(stderr=stderr)


def plain_console(*, stderr: bool = False) -> "Console":
    """Return a console that prints text as it is: no markup, no highlighting, no wrapping."""
    from rich.console import Console

    return Console(stderr=stderr, soft_wrap=True, highlight=False, markup=False)


def titled_table(
    title: str,
    *columns: str,
    numbers: Sequence[str] = (),
    caption: str | None = None,
    kind: "type[Table] | None" = None,
) -> "Table":
    """Return an empty table: columns of text, which fold where they are too wide, then
    right-aligned columns of numbers.
    """
    from rich.table import Table

    kind = kind or Table
    table = kind(title=title, caption=caption, title_justify="left", caption_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right")
    return table


def this_command() -> str:
    """Return the command line of this process."""
    return shlex.join(["evenly", *sys.argv[1:]])


def print_json(rows: list[dict[str, Any]], rest: dict[str, Any]) -> None:
    """Print result rows and further entries as JSON. Values that are not finite become null."""
    plain = [{**row, "value": row["value"] if isfinite(row["value"]) else None} for row in rows]
    print(json.dumps({"schema": 1, "rows": plain, **rest}))

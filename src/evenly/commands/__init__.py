"""The commands, one module for each or for a natural pair: a short call of the library; imports wait until a command runs."""

from collections.abc import Callable
from typing import Any

import click
import typer
from typer.core import TyperCommand, TyperGroup


class PlainHelp(click.Command):
    """Help in plain text.

    Typer escapes "[default: ...]" for Rich whenever Rich is installed, also where Rich's markup is off and nobody takes the backslash
    away again.
    """

    def get_help(self, ctx: click.Context) -> str:
        return super().get_help(ctx).replace("\\[", "[")


class Command(PlainHelp, TyperCommand):
    """A command with plain help."""


class Group(PlainHelp, TyperGroup):
    """A group of commands with plain help."""


class Commands(typer.Typer):
    """An application, or a part of one, all of whose commands have plain help."""

    def __init__(self, help: str) -> None:
        super().__init__(
            cls=Group, help=help, no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )  # fmt: skip

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        return super().command(name, **{"cls": Command, **options})

"""`evenly list`, `evenly describe` and `evenly cite`: methods, their parts, models, data sets,
metrics and experiments.
"""

from typing import Annotated

import typer

from evenly.cli.options import Plugins
from evenly.cli.terminal import styled_console


def list_all(plugin: Plugins = None) -> None:
    """List methods, samplings, models, data sets and metrics. The experiments of papers are listed,
    too.
    """
    import evenly

    styled_console().print(evenly.describe())


def describe(
    name: Annotated[
        str, typer.Argument(help="A method, part, model, data set, metric or experiment.")
    ],
    plugin: Plugins = None,
) -> None:
    """Describe a method, data set, metric or any other name. For a method, prints its formula, its
    settings and the information that clients reveal.
    """
    import evenly

    styled_console().print(evenly.describe(name))


def cite(
    names: Annotated[
        list[str] | None, typer.Argument(help="Methods. Without any, only evenly itself is cited.")
    ] = None,
    plugin: Plugins = None,
) -> None:
    """Print the BibTeX of evenly and of the papers of methods."""
    import evenly

    print(evenly.cite(*names or ()))

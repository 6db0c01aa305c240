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
    from evenly.cli.terminal_tables import methods_table
    from evenly.datasets import DATASETS
    from evenly.experiment.config import packaged_experiments
    from evenly.experiment.plan import ALL_MODELS
    from evenly.metrics import EVERY_METRIC
    from evenly.parts.optimisers import optimiser_parts
    from evenly.parts.sampling import SAMPLINGS
    from evenly.parts.work import PREPARES
    from evenly.privacy import PRIVACIES

    console = styled_console()
    console.print(methods_table())
    parts = {
        "sampling": SAMPLINGS,
        "before the first round": PREPARES,
        "privacy": PRIVACIES,
        "server and local optimisers": optimiser_parts(),
        "models": ALL_MODELS,
        "data sets": [*DATASETS, "any .csv or .parquet file"],
        "metrics": EVERY_METRIC,
        "experiments": packaged_experiments(),
    }
    for title, names in parts.items():
        console.print(f"[bold]{title}[/bold]: {', '.join(names)}")
    console.print("Details: evenly describe NAME. Publications: evenly cite METHOD.")


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

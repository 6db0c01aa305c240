"""`evenly list` and `evenly describe`: methods, their parts, models, data sets, metrics and
experiments.
"""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from evenly.cli.options import Plugins

if TYPE_CHECKING:
    from evenly.algorithms import Method
    from evenly.metrics import Metric


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

    console = Console()
    console.print(methods_table())
    parts = {
        "sampling": SAMPLINGS,
        "before the first round": PREPARES,
        "server and local optimisers": optimiser_parts(),
        "models": ALL_MODELS,
        "data sets": [*DATASETS, "any .csv or .parquet file"],
        "metrics": EVERY_METRIC,
        "experiments": packaged_experiments(),
    }
    for title, names in parts.items():
        console.print(f"[bold]{title}[/bold]: {', '.join(names)}")
    console.print("Details: evenly describe NAME")


def describe(
    name: Annotated[str, typer.Argument(help="A method, sampling or metric.")],
    plugin: Plugins = None,
) -> None:
    """Describe one method, sampling or metric. Prints its formula, its settings and the information
    that clients reveal.
    """
    from evenly.algorithms import METHODS
    from evenly.metrics import EVERY_METRIC
    from evenly.notation import unknown
    from evenly.parts.sampling import SAMPLINGS
    from evenly.parts.work import PREPARES

    parts = {**SAMPLINGS, **PREPARES}
    if name in METHODS:
        _describe_method(METHODS[name])
    elif name in parts:
        _describe_part(name, parts[name])
    elif name in EVERY_METRIC:
        _describe_metric(EVERY_METRIC[name])
    else:
        raise unknown("method, sampling or metric", name, [*METHODS, *parts, *EVERY_METRIC])


def _describe_method(method: "Method") -> None:
    from evenly.cli.terminal_tables import meanings, reveals, settings_table, trial
    from evenly.parts.sampling import Full

    console = Console()
    console.print(
        f"[bold]{method.title}[/bold] ({method.reference})\n\n  {method.formula}\n", highlight=False
    )
    console.print(settings_table(method))
    usual, full = reveals(method), reveals(method, Full())
    console.print(f"Clients reveal, besides their update: {usual}.", highlight=False)
    if full != usual:
        console.print(f"With --sampling full, they reveal: {full}.", highlight=False)
    for words in meanings(f"{usual}, {full}"):
        console.print(words, highlight=False)
    console.print(f"Try it: {trial(method)}", highlight=False)


def _describe_part(name: str, part: type) -> None:
    from evenly.cli.terminal_tables import part_table, sampling_reveals
    from evenly.parts.sampling import SAMPLINGS
    from evenly.registry import description

    console = Console()
    console.print(description(part), highlight=False)
    console.print(part_table(name, part))
    if name in SAMPLINGS:
        console.print(f"For the sampling, clients reveal: {sampling_reveals(SAMPLINGS[name]())}.")


def _describe_metric(metric: "Metric") -> None:
    from evenly.metrics.metric import RESTS_ON

    console = Console()
    console.print(
        f"[bold]{metric.title}[/bold]\n\n  {metric.formula}\n\n{metric.range}; {metric.direction}.",
        highlight=False,
    )
    console.print(f"{metric.doc}\nComputed from {RESTS_ON[metric.rests_on]}.", highlight=False)

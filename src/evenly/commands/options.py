"""Options that several commands share, and what they mean for a plan."""

from pathlib import Path
from typing import Annotated, Any

import typer

from evenly.mistakes import sentences

Data = Annotated[str, typer.Option(help="A data set such as synthetic or synthetic(kind=hybrid), or a .csv or .parquet file.")]
Client = Annotated[str | None, typer.Option(help="Column of your table that names the client of each row.")]
Label = Annotated[str | None, typer.Option(help="Column to be predicted.")]
Sensitive = Annotated[str | None, typer.Option(help="Sensitive columns, separated by commas.")]
Favourable = Annotated[str | None, typer.Option(help="The label that people want to get; assumed of two numbers or yes and no.")]
Unprivileged = Annotated[
    list[str] | None,
    typer.Option(help="Value of a sensitive column that is compared with all others, or COLUMN=VALUE; by default the least favoured."),
]
Features = Annotated[str | None, typer.Option(help="Columns to learn from, separated by commas; by default all others.")]
Drop = Annotated[str | None, typer.Option(help="Columns to leave out, separated by commas, such as ids and dates.")]
Rounds = Annotated[int, typer.Option(help="Rounds of training.")]
Seeds = Annotated[int, typer.Option(help="How many seeds: splits, cohorts and batches drawn anew.")]
LearningRate = Annotated[float, typer.Option(help="Local step size, where a method does not set its own.")]
BatchSize = Annotated[int, typer.Option(help="Rows in a local step.")]
Out = Annotated[Path | None, typer.Option(help="Folder for results; by default results/ and a name made from the settings.")]
Force = Annotated[bool, typer.Option("--force", help="Replace evenly's results of other settings in the output folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print rows as JSON on stdout and everything else on stderr.")]

LogTo = Annotated[
    list[str] | None,
    typer.Option("--log", help="tensorboard, mlflow or wandb: every evaluation is logged there too. May be given several times."),
]


def _loaded(paths: list[Path] | None) -> list[Path]:
    """Every command that reads registries has the option, so what is installed is loaded here as well."""
    with sentences():
        from evenly.plugins import load_files, load_installed

        load_installed()
        load_files(paths or ())
    return paths or []


Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        help="A Python file that registers methods, metrics or data sets of your own. May be given several times. Experimental.",
        callback=_loaded,
    ),
]


def plugin_records(paths: list[Path] | None) -> tuple[dict[str, str], ...]:
    """What a plan keeps of plugins."""
    from evenly.plugins import load_files

    return load_files(paths or ())


def source(data: str, **columns: Any) -> dict[str, Any]:
    """A plan's `data`: a data set with its settings, or a user's own table and what its columns mean."""
    from evenly.datasets.load import is_table, table_source
    from evenly.notation import parse_one

    if is_table(data):
        return table_source(data, **columns)
    if given := [f"--{name}" for name, value in columns.items() if value]:
        verb = "is" if len(given) == 1 else "are"
        raise ValueError(f"{' and '.join(given)} {verb} for a table of your own, but --data is {data!r}. Give a .csv or .parquet file.")
    part = parse_one(data, "data set")
    return {"name": part.name, **part.settings}


def seeds_of(count: int) -> tuple[int, ...]:
    """The first so many seeds."""
    if count < 1:
        raise ValueError(f"seeds must be at least 1, got {count}.")
    from evenly.experiment.plan import check_seeds

    check_seeds(count)
    return tuple(range(count))


def loggers(names: list[str] | None) -> tuple[str, ...]:
    """The loggers asked for; one that cannot be used is refused before anything is written."""
    if not names:
        return ()
    from evenly.experiment.loggers import check_loggers

    check_loggers(names)
    return tuple(names)

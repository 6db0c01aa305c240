"""Options that several commands share, and the values that commands make of them.

What determines a result is an option of `compare` and `tune`, and a field of an experiment file
(`evenly.experiment.config`) for `run`. The Python interface has the same settings
(`evenly.api.settings`). Where results go and how they are shown is an option of all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from evenly.cli.terminal import one_line_errors

if TYPE_CHECKING:
    from evenly.experiment.execute import Executor

Data = Annotated[
    str,
    typer.Option(
        help=(
            "A data set such as synthetic or synthetic(kind=hybrid), a .csv or .parquet file, or a"
            " folder of Parquet files."
        )
    ),
]
Favourable = Annotated[
    str | None,
    typer.Option(
        help="The label that people want to get. Detected for yes/no and for two numbers."
    ),
]
Unprivileged = Annotated[
    list[str] | None,
    typer.Option(
        help=(
            "The value of a sensitive column that is compared with all other values, or"
            " COLUMN=VALUE. By default the value with the lowest share of favourable labels."
        )
    ),
]
Sensitive = Annotated[str | None, typer.Option(help="Sensitive columns, separated by commas.")]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print the result rows as JSON on stdout, and everything else on stderr."
    ),
]
LogTo = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        help=(
            "Log every evaluation to tensorboard, mlflow or wandb, too. May be given several times."
        ),
    ),
]


class TableColumns(NamedTuple):
    """Columns of the user's own table: options of compare, tune and flower new."""

    client: Annotated[
        str | None, typer.Option(help="Column of your table that names the client of each row.")
    ] = None
    label: Annotated[str | None, typer.Option(help="Column to be predicted.")] = None
    sensitive: Sensitive = None
    favourable: Favourable = None
    unprivileged: Unprivileged = None
    features: Annotated[
        str | None,
        typer.Option(help="Columns to learn from, separated by commas; by default all others."),
    ] = None
    drop: Annotated[
        str | None,
        typer.Option(help="Columns to exclude, separated by commas, such as ids and dates."),
    ] = None


class RowColumns(NamedTuple):
    """Further columns of the user's own table: options of compare and tune."""

    split: Annotated[
        str | None,
        typer.Option(
            help="Column with train, valid, test or central; by default rows are split at random."
        ),
    ] = None
    client_group: Annotated[
        str | None, typer.Option(help="Column that names the group of each client.")
    ] = None


class TrainingOptions(NamedTuple):
    """How methods are trained: options of compare and tune."""

    rounds: Annotated[int, typer.Option(help="Number of communication rounds.")] = 2000
    seeds: Annotated[
        int,
        typer.Option(
            help=(
                "Number of seeds. Each draws new cohorts and batches, and new splits unless there"
                " is a split column."
            )
        ),
    ] = 3
    model: Annotated[
        str,
        typer.Option(
            help=(
                "softmax, logistic, svm or mlp; for images and text lenet, cnn, resnet18 or"
                " char-lstm. Add +crop-flip to crop and mirror images at random in training. By"
                " default the simplest that fits the data."
            )
        ),
    ] = ""
    learning_rate: Annotated[
        float, typer.Option(help="Local learning rate of methods that do not set their own.")
    ] = 0.1
    batch_size: Annotated[int, typer.Option(help="Rows per local step.")] = 10
    sampling: Annotated[
        str,
        typer.Option(
            help="How the cohort of a round is sampled, for methods that do not set their own."
        ),
    ] = "weighted(clients=10)"

    epochs: Annotated[int, typer.Option(help="Passes over a client's rows per round.")] = 1
    dropout: Annotated[
        float, typer.Option(help="Probability that a sampled client does not return.")
    ] = 0.0
    evaluate_every: Annotated[
        int,
        typer.Option(help="Rounds between evaluations. With 0, about fifty evaluations in all."),
    ] = 0


class ShortOptions(NamedTuple):
    """How an experiment is shortened: options of run and reproduce."""

    quick: Annotated[
        bool,
        typer.Option("--quick", help="Run the experiment's short version, to see that it works."),
    ] = False
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds, instead of the experiment's.")
    ] = None
    rounds: Annotated[
        int | None, typer.Option(help="Number of rounds, instead of the experiment's.", min=1)
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the options as arguments of `Experiment.plan`."""
        return {
            **self._asdict(),
            "seeds": None if self.seeds is None else len(seed_range(self.seeds)),
        }


class OutputOptions(NamedTuple):
    """Where results are written: options of compare, tune, run and reproduce."""

    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for results. By default results/ and a name made from the settings."
        ),
    ] = None
    force: Annotated[
        bool, typer.Option("--force", help="Replace results of other settings in the folder.")
    ] = False
    as_json: Json = False


class ExecutionOptions(NamedTuple):
    """Where programs are trained and evaluations logged: options of run, resume and reproduce."""

    on: Annotated[
        str | None,
        typer.Option(
            "--on", help="ray: run the programs on a Ray cluster instead of this machine."
        ),
    ] = None
    address: Annotated[
        str | None,
        typer.Option(
            help=(
                "Address of the Ray cluster: auto or 10.0.0.1:6379. By default a new one on this"
                " machine."
            )
        ),
    ] = None
    log: LogTo = None

    @contextmanager
    def open(self) -> "Iterator[Execution]":
        """Yield the place and the loggers, after checking that both can be used. A cluster is
        closed at the end.
        """
        loggers = checked_loggers(self.log)
        if self.on is None:
            if self.address is not None:
                raise ValueError(
                    f"--address {self.address} is the address of a Ray cluster, so it needs --on"
                    " ray."
                )
            yield Execution(None, loggers)
            return
        if self.on != "ray":
            from evenly.notation import unknown

            raise unknown("place for --on", self.on, ["ray"])
        from evenly.experiment.cluster import on_ray

        with on_ray(self.address) as where:
            yield Execution(where, loggers)


class Execution(NamedTuple):
    """Where a plan is executed, and which loggers follow it."""

    where: "Executor | None" = None  # None: on this machine
    loggers: tuple[str, ...] = ()


def checked_loggers(names: list[str] | None) -> tuple[str, ...]:
    """Return the loggers. Raise a ValueError for one that cannot be used, before anything is
    written.
    """
    if not names:
        return ()
    from evenly.experiment.loggers import check_loggers

    check_loggers(names)
    return tuple(names)


def _load_plugins(paths: list[Path] | None) -> list[Path]:
    """Load plugin files and installed plugins. Every command that reads a registry has
    this option.
    """
    with one_line_errors():
        from evenly.plugins import load_files, load_installed

        load_installed()
        load_files(paths or ())
    return paths or []


Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        help=(
            "A Python file that registers your own methods, metrics or data sets. May be given"
            " several times. Experimental."
        ),
        callback=_load_plugins,
    ),
]


def plugin_records(paths: list[Path] | None) -> tuple[dict[str, str], ...]:
    """Return path and hash of plugin files, as a plan stores them."""
    from evenly.plugins import load_files

    return load_files(paths or ())


def data_source(data: str, columns: TableColumns, rows: RowColumns) -> dict[str, Any]:
    """Return a plan's `data`: a data set with its settings, or the user's own table with the
    meaning of its columns.
    """
    from evenly.datasets.load import is_table, table_source
    from evenly.notation import parse_one

    if is_table(data):
        return table_source(data, **columns._asdict(), **rows._asdict())
    for own in (columns, rows):
        refuse_without_table(own, f"--data is {data!r}")
    part = parse_one(data, "data set")
    return {"name": part.name, **part.settings}


def refuse_without_table(columns: "TableColumns | RowColumns", reason: str) -> None:
    """Raise a ValueError if a column is given although there is no table."""
    given = [name for name, value in columns._asdict().items() if value]
    if names := [f"--{name.replace('_', '-')}" for name in given]:
        be = "is" if len(names) == 1 else "are"
        raise ValueError(
            f"{' and '.join(names)} {be} for a table of your own, but {reason}. Pass a .csv or"
            " .parquet file with --data."
        )


def seed_range(count: int) -> tuple[int, ...]:
    """Return the seeds 0 to count - 1."""
    from evenly.experiment.plan import seeds_of

    return seeds_of(count)

"""What commands share: options, running a plan into its folder, showing its end, and errors as one sentence with exit code 2."""

import errno
import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

import click
import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from evenly.experiment.comparison import Comparison
    from evenly.experiment.execute import Where
    from evenly.experiment.folder import RunRecord
    from evenly.experiment.plan import Plan


# Run a plan into its folder: traces, rows, models and the report. Whatever stops it, it says how to go on.

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
SAME_SECONDS = 0.5  # what started us may pass on the Ctrl-C that we were given, too


def this_command() -> str:
    """What the user typed."""
    return shlex.join(["evenly", *sys.argv[1:]])


class AnyPlan(Protocol):
    """A plan of any kind."""

    @property
    def name(self) -> str: ...
    def fingerprint(self) -> str: ...


def folder_of(plan: AnyPlan) -> Path:
    """Where a plan's results go, unless the user says."""
    return Path("results") / f"{plan.name.replace('/', '-')}-{plan.fingerprint()[:8]}"


@contextmanager
def working_in(folder: Path, again: Path | None = None) -> Iterator[None]:
    """Keep a folder for this process, tidy up after one that was killed, and say how to go on if this one is stopped.

    `again` is the folder that the same command continues when it is given as --out, where there is more to do than this folder's run.
    """
    from evenly.experiment.folder import held, sweep

    how = f"the same command with --out {again}" if again else f"`evenly resume {shlex.quote(str(folder))}`"
    with held(folder), _said_at_once():
        sweep(folder)
        try:
            yield
        except KeyboardInterrupt:
            said = f"Stopped. What was finished is kept in {folder}; {how} goes on from there."
            Console(stderr=True).print(said, soft_wrap=True, highlight=False, markup=False)
            raise typer.Exit(130) from None
        except OSError as error:
            if error.errno not in FULL:
                raise
            kept = f"What was finished is kept in {folder}; make room, and {how} goes on from there."
            raise OSError(f"{error.strerror}: {error.filename}. {kept}") from None


@contextmanager
def _said_at_once() -> Iterator[None]:
    """Answer the first Ctrl-C before training has come to where it can stop; a second one does not wait for that."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears of signals
        return

    first = 0.0

    def end(number: int, frame: Any) -> None:
        if time.monotonic() - first < SAME_SECONDS:
            return
        if sys.stderr.isatty():
            print("\033[?25h", end="", file=sys.stderr, flush=True)  # a progress bar hides the cursor
        os._exit(130)  # anything milder would wait for the threads that train; files are whole, and the lock ends with us

    def stop(number: int, frame: Any) -> None:
        nonlocal first
        first = time.monotonic()
        signal.signal(signal.SIGINT, end)
        with suppress(RuntimeError):  # it came in the middle of another print
            print("Stopping as soon as what is trained so far is kept.", file=sys.stderr)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class How(NamedTuple):
    """How a plan is executed, besides what it says itself."""

    where: "Where | None" = None  # None: on this machine
    logs: Sequence[str] = ()  # loggers by name

    @contextmanager
    def given(self, folder: Path) -> Iterator[dict[str, Any]]:
        """As arguments of `execute`, without what is left open; loggers are open meanwhile."""
        from evenly.experiment.loggers import logging_to

        with logging_to(self.logs, folder) as log:
            yield {name: value for name, value in (("where", self.where), ("log", log)) if value is not None}


def run_plan(
    plan: "Plan", out: Path | None, force: bool, about: "RunRecord | None" = None, again: Path | None = None, how: How | None = None
) -> "tuple[Comparison, Path, list[dict[str, Any]]]":
    """Execute a plan into its folder: traces, rows, models and the report, which says what experiment it is of, if any."""
    from evenly.cli.experiment import show_plan
    from evenly.cli.tables import progress
    from evenly.experiment.estimate import refuse_large_models
    from evenly.experiment.execute import execute, refuse_unfit, setting_of
    from evenly.experiment.folder import RunRecord, Store, begin, finish, timed, with_record, write_rows
    from evenly.experiment.paper import lines_of
    from evenly.report.page import write_report

    plan.variants()  # mistakes are reported before anything is written
    folder, console = out or folder_of(plan), Console(stderr=True)
    with working_in(folder, again):
        first = setting_of(plan, plan.seeds[0])
        refuse_unfit(plan, first)
        refuse_large_models(plan, first)
        store = Store(folder, plan, force=force)
        begin(folder, about or RunRecord(command=this_command()))
        show_plan(console, {"": plan}, folder, first)
        what = f"training {len(plan.variants())} methods on {len(plan.seeds)} seeds"
        given = (how or How()).given(folder)
        with progress(console, what) as report, timed(folder, folder / "traces"), given as options:
            trained = execute(plan, store, progress=report, first=first, **options)
        comparison = with_record(trained, folder)
        rows = write_rows(store, comparison)
        write_report(comparison, folder / "report.html", lines_of(comparison, folder))
        finish(folder)
    return comparison, folder, rows


# The end of a command: tables for people, JSON for machines, and where everything is.


def finish(folder: Path, rows: list[dict[str, Any]], as_json: bool, *tables: Any, extra: dict[str, Any] | None = None) -> None:
    """Show the tables, say where everything is and what it took."""
    from evenly.experiment.folder import read_record

    console = Console(stderr=as_json)
    for table in tables:
        console.print(table)
    report = folder / "report.html"
    if as_json:
        print_json(rows, {"report": str(report), **(extra or {})})
    console.print(f"Results: {folder / 'results.csv'}\nReport:  {report}", soft_wrap=True, highlight=False)
    if (known := read_record(folder)) and known.seconds:
        console.print(f"Time:    {known.seconds:.1f} s, of which {known.compiling:.1f} s compiling", highlight=False)


def print_json(rows: list[dict[str, Any]], rest: dict[str, Any]) -> None:
    """Rows for machines, and what else there is to say."""
    plain = [{**row, "value": row["value"] if isfinite(row["value"]) else None} for row in rows]  # JSON has no NaN
    print(json.dumps({"schema": 1, "rows": plain, **rest}))


# `--on` and `--address`: where an experiment's programs are trained.

On = Annotated[str | None, typer.Option("--on", help="ray: spread the programs over a Ray cluster. By default they are trained here.")]
Address = Annotated[
    str | None, typer.Option("--address", help="Of the Ray cluster, as auto or 10.0.0.1:6379. By default one is started on this machine.")
]
PLACES = ("ray",)


@contextmanager
def place(on: str | None, address: str | None) -> "Iterator[Where | None]":
    """Where programs are to be trained, for as long as they are; None: here."""
    from evenly.notation import unknown

    if on is None:
        if address is not None:
            raise ValueError(f"--address {address} is of a Ray cluster, so it needs --on ray.")
        yield None
        return
    if on not in PLACES:
        raise unknown("place for --on", on, PLACES)
    from evenly.experiment.cluster import on_ray

    with on_ray(address) as where:
        yield where


# The user's mistakes and the machine's limits, in one sentence and with exit code 2.


@contextmanager
def sentences() -> Iterator[None]:
    """Around the body of a command: ValueError and OSError become one line on stderr."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        _stop(f"A folder is needed at {str(error.filename)!r}, but there is a file. Choose another place.")
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _stop(f"{error.strerror}{where}. Nothing already written was lost." if error.strerror else str(error))
    except ValueError as error:
        _stop(str(error))
    except MemoryError:
        _stop("There is not enough memory for this. Choose fewer clients, rows, seeds or methods, or a smaller model.")


def _stop(sentence: str) -> None:
    Console(stderr=True).print(f"error: {sentence}", style="red", soft_wrap=True, highlight=False, markup=False)
    raise typer.Exit(2) from None


# Options that several commands share, and what they mean for a plan.

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

"""Run a plan into its folder: traces, rows, models and the report. Whatever stops it, it says how to go on."""

import errno
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import typer
from rich.console import Console

if TYPE_CHECKING:
    from evenly.experiment.execute import Where
    from evenly.experiment.folder import Record
    from evenly.experiment.plan import Plan
    from evenly.experiment.results import Comparison

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
SAME_SECONDS = 0.5  # what started us may pass on the Ctrl-C that we were given, too


def this_command() -> str:
    """What the user typed."""
    return shlex.join(["evenly", *sys.argv[1:]])


class Named(Protocol):
    """A plan of any kind."""

    @property
    def name(self) -> str: ...
    def fingerprint(self) -> str: ...


def folder_of(plan: Named) -> Path:
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
    plan: "Plan", out: Path | None, force: bool, about: "Record | None" = None, again: Path | None = None, how: How | None = None
) -> "tuple[Comparison, Path, list[dict[str, Any]]]":
    """Execute a plan into its folder: traces, rows, models and the report, which says what experiment it is of, if any."""
    from evenly.commands.planned import show_plan
    from evenly.experiment.estimate import refuse_large_models
    from evenly.experiment.execute import execute, refuse_unfit, setting_of
    from evenly.experiment.folder import Record, Store, begin, finish, timed, with_record, write_rows
    from evenly.experiment.paper import lines_of
    from evenly.report.page import write_report
    from evenly.terminal import progress

    plan.variants()  # mistakes are reported before anything is written
    folder, console = out or folder_of(plan), Console(stderr=True)
    with working_in(folder, again):
        first = setting_of(plan, plan.seeds[0])
        refuse_unfit(plan, first)
        refuse_large_models(plan, first)
        store = Store(folder, plan, force=force)
        begin(folder, about or Record(command=this_command()))
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

"""Progress with the remaining time, in terminals, in notebooks and in logs."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from evenly.experiment.execute import Progress as Report

PAUSE = 0.2  # seconds between two updates of a notebook
LOG_PAUSE = 30.0  # seconds between two lines of a log


@contextmanager
def progress_bar(what: str, console: Console | None = None) -> Iterator[Report]:
    """Show a progress bar with the remaining time, and remove it at the end. Until the first report
    it says that programs are being compiled. Where there is neither a terminal nor a notebook, a
    line is written every half minute.
    """
    console = console or Console(stderr=True)
    if console.is_jupyter:
        with _in_notebook(what) as report:
            yield report
    elif console.is_terminal:
        with _in_terminal(what, console) as report:
            yield report
    else:
        line = lambda done, total, left: console.print(  # noqa: E731
            f"{what}: {done:,} of {total:,} rounds, {left}", soft_wrap=True, highlight=False
        )
        yield _estimating(line, LOG_PAUSE, first=LOG_PAUSE)


class TimeColumn(ProgressColumn):
    """The remaining time or, while it is unknown, the time that has passed."""

    def render(self, task: Task) -> Text:
        known = task.time_remaining is not None
        time, word = (TimeRemainingColumn(), "left") if known else (TimeElapsedColumn(), "so far")
        return time.render(task).append(f" {word}")


@contextmanager
def _in_terminal(what: str, console: Console) -> Iterator[Report]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeColumn(Column(no_wrap=True)),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"{what} (compiling)", total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield report


@contextmanager
def _in_notebook(what: str) -> Iterator[Report]:
    """A line of HTML that is replaced. It needs no widgets, which notebooks may lack."""
    from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

    handle: Any = display(HTML(f"{escape(what)} (compiling)"), display_id=True)

    def show(done: int, total: int, left: Text) -> None:
        bar = f'<progress value="{done}" max="{total}"></progress>'
        handle.update(HTML(f"{escape(what)} {bar} {done:,} of {total:,} rounds, {left}"))

    try:
        yield _estimating(show, PAUSE, first=0.0)
    finally:
        handle.update(HTML(""))


def _estimating(show: Callable[[int, int, Text], None], pause: float, first: float) -> Report:
    """A report that also shows the remaining time: after `first` seconds, then after each pause."""
    due = time.monotonic() + first
    # never drawn: it estimates the remaining time, as in terminals
    estimate = Progress(disable=True, get_time=time.monotonic)
    task = estimate.add_task("", total=None)

    def report(done: int, total: int) -> None:
        nonlocal due
        estimate.update(task, completed=done, total=total)
        if time.monotonic() >= due:
            due = time.monotonic() + pause
            show(done, total, TimeColumn().render(estimate.tasks[0]))

    return report

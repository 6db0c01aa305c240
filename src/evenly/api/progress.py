"""Progress with the remaining time, in terminals and in notebooks."""

import time
from collections.abc import Iterator
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


@contextmanager
def progress_bar(what: str, console: Console | None = None) -> Iterator[Report]:
    """Show a progress bar with the remaining time, and remove it at the end. Until the first report
    it says that programs are being compiled.
    """
    console = console or Console(stderr=True)
    with _in_notebook(what) if console.is_jupyter else _in_terminal(what, console) as report:
        yield report


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
    hidden = not console.is_terminal  # it would leave an empty line in a log
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(f"{what} (compiling)", total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield report


@contextmanager
def _in_notebook(what: str) -> Iterator[Report]:
    """A line of HTML that is replaced. It needs no widgets, which notebooks may lack."""
    from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

    shown = 0.0
    handle: Any = display(HTML(f"{escape(what)} (compiling)"), display_id=True)
    # never drawn: it estimates the remaining time, as in terminals
    estimate = Progress(disable=True, get_time=time.monotonic)
    task = estimate.add_task(what, total=None)

    def report(done: int, total: int) -> None:
        nonlocal shown
        estimate.update(task, completed=done, total=total)
        now = time.monotonic()
        if now - shown > PAUSE or done == total:
            shown = now
            bar = f'<progress value="{done}" max="{total}"></progress>'
            left = TimeColumn().render(estimate.tasks[0])
            handle.update(HTML(f"{escape(what)} {bar} {done:,} of {total:,} rounds, {left}"))

    try:
        yield report
    finally:
        handle.update(HTML(""))

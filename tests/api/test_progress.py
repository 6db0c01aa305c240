import io
import re
import sys
import time
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from evenly.api import progress
from evenly.api.progress import progress_bar


def shown(console: Console) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())  # type: ignore[attr-defined]


def test_only_a_remaining_time_is_called_left():
    """While programs compile, only the time that has passed is known."""
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with progress_bar("training 3 methods on 2 seeds", console) as report:
        time.sleep(0.2)
        assert re.search(r"0/\? rounds \d:\d\d:\d\d so far", shown(console))
        assert "left" not in shown(console)
        for done in (10, 20, 30):
            report(done, 100)
            time.sleep(0.2)
    assert re.search(r"(20|30)/100 rounds \d:\d\d:\d\d left", shown(console))


def test_a_log_gets_a_line_every_half_minute_and_no_empty_one(monkeypatch: pytest.MonkeyPatch):
    console, now = Console(file=io.StringIO(), width=20), [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress_bar("training 3 methods on 2 seeds", console) as report:
        for done in (10, 20, 30, 40, 50):
            now[0] += 14.0
            report(100 * done, 10_000)
    assert shown(console) == (
        "training 3 methods on 2 seeds: 3,000 of 10,000 rounds, 0:01:38 left\n"
    )


def test_a_short_run_leaves_nothing_in_a_log():
    console = Console(file=io.StringIO(), width=80)
    with progress_bar("training 3 methods on 2 seeds", console) as report:
        report(100, 100)
    assert shown(console) == ""


class Display:
    """What a notebook shows at the place of a display."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, html: str) -> None:
        self.shown.append(html)


@pytest.fixture
def display(monkeypatch: pytest.MonkeyPatch) -> Display:
    place, module = Display(), ModuleType("IPython.display")

    def show(html: str, *, display_id: bool) -> Display:
        place.update(html)
        return place

    contents: dict[str, Any] = {"HTML": str, "display": show}
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return place


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, which only the test moves."""
    now = [100.0]
    for name in ("monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, lambda: now[0])
    return now


def test_a_notebook_does_not_count_finished_rounds_as_the_speed(
    display: Display, clock: list[float]
):
    """A resumed experiment reports at once what was finished earlier."""
    with progress_bar("training", Console(force_jupyter=True)) as report:
        clock[0] += 1
        report(900, 1000)  # of an earlier run
        assert "0:00:01 so far" in display.shown[-1]
        assert "left" not in display.shown[-1]
        clock[0] += 10
        report(910, 1000)
        assert "910 of 1,000 rounds, 0:01:30 left" in display.shown[-1]


def test_a_notebook_shows_no_remaining_time_before_the_first_round(display: Display):
    with progress_bar("training", Console(force_jupyter=True)) as report:
        report(0, 100)
        assert "0 of 100 rounds" in display.shown[-1]
        assert "left" not in display.shown[-1]


def test_the_bar_of_a_notebook_disappears_after_an_error(display: Display):
    def interrupted():
        with progress_bar("training", Console(force_jupyter=True)) as report:
            report(1, 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert display.shown[-1] == ""

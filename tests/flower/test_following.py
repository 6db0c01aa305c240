"""How far a run is, from what its log says. Time is counted, not waited for."""

from typing import Any

import pytest

from evenly.flower.deploy import loopback
from evenly.flower.deploy.loopback import LOOK, RunProgress, follow


class Run:
    """A run whose log grows by one of these lines with every look; it has ended when the last one
    is there.
    """

    def __init__(self, *lines: str, step: float) -> None:
        self.lines, self.step, self.looks, self.now = lines, step, 0, 5000.0

    @property
    def running(self) -> bool:
        return self.looks + 1 < len(self.lines)

    def text(self) -> str:
        self.looks += 1
        return "\n".join(self.lines[: self.looks])

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds == LOOK
        self.now += self.step


def stands(
    monkeypatch: pytest.MonkeyPatch, *lines: str, rounds: int, step: float = 4.0
) -> list[RunProgress]:
    run: Any = Run(*lines, step=step)
    monkeypatch.setattr(loopback, "time", run)
    meant: list[int] = []
    found = [*follow(run, rounds, lambda: meant.append(1))]
    assert len(meant) == run.looks == len(lines)  # as often as it looks, and until the end
    return found


def waits(connected: int, least: int) -> str:
    return f"INFO: Waiting for nodes to connect: {connected} connected (minimum required: {least})."


def test_rounds_are_told_with_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch):
    told = stands(
        monkeypatch,
        "begins",
        "[ROUND 1/5]",
        "[ROUND 2/5]",
        "trains",
        "[ROUND 3/5]",
        "[ROUND 5/5]",
        "ends",
        rounds=5,
    )
    # 4 seconds for one round, 12 for two, 16 for four.
    assert told == [(0, 5, None, None), (1, 5, 16.0, None), (2, 5, 18.0, None), (4, 5, 4.0, None)]


def test_time_is_counted_from_the_round_in_which_a_run_goes_on(monkeypatch: pytest.MonkeyPatch):
    told = stands(monkeypatch, "[ROUND 7/10]", "[ROUND 8/10]", "[ROUND 9/10]", rounds=10, step=3.0)
    assert told == [(6, 10, None, None), (7, 10, 9.0, None), (8, 10, 6.0, None)]


def test_clients_that_are_waited_for_are_told_when_they_change_and_before_the_first_round(
    monkeypatch: pytest.MonkeyPatch,
):
    lines = [waits(0, 4), waits(0, 4), waits(3, 4), "[ROUND 1/2]", waits(1, 4)]
    told = stands(monkeypatch, *lines, rounds=2)
    assert told == [(0, 2, None, (0, 4)), (0, 2, None, (3, 4)), (0, 2, None, None)]


def test_a_run_that_says_nothing_of_rounds_has_no_stand(monkeypatch: pytest.MonkeyPatch):
    assert stands(monkeypatch, "cannot begin", rounds=2) == []


def test_a_run_that_goes_on_in_its_second_round_has_done_one(monkeypatch: pytest.MonkeyPatch):
    assert stands(monkeypatch, "[ROUND 2/3]", "[ROUND 3/3]", rounds=3) == [
        (1, 3, None, None),
        (2, 3, 4.0, None),
    ]

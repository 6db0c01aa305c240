"""How long a process may take: to come to something, and to end. Time is counted, not
waited for.
"""

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from evenly.flower.deploy import loopback
from evenly.flower.deploy.loopback import (
    GRACE,
    Process,
    ProcessError,
    free_ports,
    interruptible,
    signals_ignored,
    start,
    stop,
    wait_until,
)


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


class Stubborn:
    """A process that ends so many seconds after SIGTERM, or at once after SIGKILL; everything that
    reaches it is noted.
    """

    pid = 12345

    def __init__(self, clock: Clock, needs: float) -> None:
        self.clock, self.needs = clock, needs
        self.got: list[tuple[int, float]] = []

    def receive(self, number: int) -> None:
        if not self.alive:
            raise ProcessLookupError
        if number:
            self.got.append((number, self.clock.now - 1000.0))

    @property
    def alive(self) -> bool:
        asked = next((at for number, at in self.got if number == signal.SIGTERM), None)
        killed = any(number == signal.SIGKILL for number, _ in self.got)
        return not killed and (asked is None or self.clock.now - 1000.0 < asked + self.needs)

    def poll(self) -> int | None:
        return None if self.alive else 0

    def wait(self) -> int:
        assert not self.alive
        return -9

    returncode = 3


@pytest.fixture
def made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[float], tuple[Process, Stubborn, Clock]]:
    def make(needs: float) -> tuple[Process, Stubborn, Clock]:
        clock = Clock()
        popen = Stubborn(clock, needs)
        monkeypatch.setattr(loopback, "time", clock)
        monkeypatch.setattr(
            loopback.os,
            "killpg",
            lambda group, number: popen.receive(number) if group == popen.pid else None,
        )
        (tmp_path / "log").write_text("what it said\n")
        anything: Any = popen
        return Process("node", anything, tmp_path / "log"), popen, clock

    return make


def test_a_process_that_ends_in_time_is_not_killed(made: Any):
    process, popen, clock = made(GRACE - 0.5)
    stop([process])
    assert [number for number, _ in popen.got] == [signal.SIGTERM]
    assert GRACE - 0.5 <= clock.now - 1000.0 < GRACE


def test_a_process_that_takes_longer_than_its_grace_is_killed_then_and_not_before(made: Any):
    process, popen, _ = made(GRACE + 60)
    stop([process])
    (first, asked), (last, killed) = popen.got
    assert (first, last) == (signal.SIGTERM, signal.SIGKILL)
    assert asked == 0
    assert GRACE <= killed < GRACE + 0.2


def test_grace_can_be_shorter(made: Any):
    process, popen, _ = made(60)
    stop([process], grace=1.0)
    assert 1.0 <= popen.got[-1][1] < 1.2


def test_a_process_that_has_ended_is_left_alone(made: Any):
    process, popen, clock = made(0)
    popen.receive(signal.SIGTERM)
    stop([process])
    assert len(popen.got) == 1
    assert clock.now == 1000.0


def test_what_does_not_come_in_time_is_told_with_the_log(made: Any):
    process, _, clock = made(60)
    with pytest.raises(
        ProcessError,
        match=(
            r"node did not reach this point within 5 seconds: listening\. Read .*log, which ends"
            r" with:\n  what"
        ),
    ):
        wait_until(lambda: False, process, 5.0, "listening")
    assert 5.0 < clock.now - 1000.0 < 5.2


def test_what_comes_late_but_in_time_is_waited_for(made: Any):
    process, _, clock = made(60)
    wait_until(lambda: clock.now >= 1004.9, process, 5.0, "listening")
    assert clock.now - 1000.0 < 5.0


def test_a_process_that_ends_before_is_told_at_once(made: Any):
    process, popen, clock = made(0)
    popen.receive(signal.SIGTERM)
    with pytest.raises(ProcessError, match=r"node ended \(exit code 3\) before listening"):
        wait_until(lambda: False, process, 5.0, "listening")
    assert clock.now == 1000.0
    said = iter([False, True, True])
    # what it said last may be what was waited for
    wait_until(lambda: next(said), process, 5.0, "listening")


def test_a_real_process_and_what_it_started_are_stopped(tmp_path: Path):
    process = start(
        "shell",
        ["/bin/sh", "-c", "sleep 60 & echo ready; wait"],
        tmp_path / "log",
        {"PATH": "/usr/bin:/bin"},
    )
    try:
        wait_until(lambda: "ready" in process.text(), process, 20.0, "being ready")
    finally:
        stop([process])
    assert not process.running
    assert process.text().startswith("$ /bin/sh -c")


def test_an_error_shows_the_last_lines_of_the_log_or_says_that_it_is_empty(made: Any):
    process, _, _ = made(60)
    process.log.write_text("".join(f"line {k}\n" for k in range(40)))
    said = str(process.failed("It broke."))
    assert said.startswith(f"It broke. Read {process.log}, which ends with:\n  line 25\n")
    assert said.endswith("  line 39")
    process.log.write_text("\n")
    assert str(process.failed("It broke.")) == f"It broke. Its log, {process.log}, is empty."


def test_signals_are_held_back_in_the_main_thread_and_then_as_before():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with signals_ignored():
        assert [signal.getsignal(number) for number in numbers] == [signal.SIG_IGN] * 3
        other = ThreadPoolExecutor(1)
        assert other.submit(lambda: [None for _ in range(2) if _entered(interruptible)]).result(
            5
        ) == [None, None]
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    with interruptible():
        assert (
            signal.getsignal(signal.SIGTERM)
            == signal.getsignal(signal.SIGHUP)
            == signal.default_int_handler
        )
        assert signal.getsignal(signal.SIGINT) == before[0]
    assert [signal.getsignal(number) for number in numbers] == before


def _entered(context: Callable[[], Any]) -> bool:
    with context():
        return True


def test_ports_are_those_of_the_loopback_that_were_bound():
    ports = free_ports(3)
    assert len({*ports}) == 3
    assert all(1024 <= port < 2**16 for port in ports)
    assert free_ports(0) == []

"""Processes with a log: started with their pid kept, waited for with a bound, stopped with everything they started.

Each process leads a session of its own, so that a Ctrl-C in the terminal reaches only us, and so that whatever it starts can be
stopped with it.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

GRACE = 8.0  # seconds to end by itself after SIGTERM; Flower ends itself by force after 5
STEP = 0.05
TAIL = 15  # lines of a log that an error shows
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class ProcessError(ValueError):
    """A process ended, or did not do what it should in time; the sentence says which log to read."""


class Process(NamedTuple):
    """A process that we started."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    since: int = 0  # where in the log it begins; what is before is of an earlier process

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def text(self) -> str:
        """Its log so far, without colours."""
        with open(self.log, "rb") as file:
            file.seek(self.since)
            return COLOURS.sub("", file.read().decode(errors="replace"))

    def failed(self, what: str) -> ProcessError:
        """An error that says what is wrong, shows the end of the log and names its file."""
        last = "\n".join(f"  {line}" for line in self.text().rstrip().splitlines()[-TAIL:])
        return ProcessError(f"{what} Read {self.log}, which ends with:\n{last}" if last else f"{what} Its log, {self.log}, is empty.")


def program(name: str) -> str:
    """The path of one of Flower's programs in this environment."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise ValueError(f'Flower\'s program {name} is needed beside {sys.executable}. Run `pip install "evenly[flower]"`.')
    return str(path)


def start(name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> Process:
    """Start a process; everything that it says goes to its log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as file:
        since = file.tell()
        file.write(f"$ {shlex.join(command)}\n".encode())
        file.flush()
        popen = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=dict(env), start_new_session=True
        )
    return Process(name, popen, log, since)


def wait_until(ready: Callable[[], bool], process: Process, seconds: float, what: str) -> None:
    """Wait until something holds that a process brings about; raise if it ends before, or does not come to it in time."""
    end = time.monotonic() + seconds
    while not ready():
        if not process.running and not ready():  # what it said last may be what was waited for
            raise process.failed(f"The {process.name} ended (exit code {process.popen.returncode}) before {what}.")
        if time.monotonic() > end:
            raise process.failed(f"The {process.name} should have come to {what} within {seconds:g} seconds and did not.")
        time.sleep(STEP)


def stop(processes: Iterable[Process], grace: float = GRACE) -> None:
    """Stop processes and all that they started: first politely, then for good."""
    rest = [process for process in processes if _alive(process)]
    for process in rest:
        _signal(process, signal.SIGTERM)
    end = time.monotonic() + grace
    while rest and time.monotonic() < end:
        time.sleep(STEP)
        rest = [process for process in rest if _alive(process)]
    for process in rest:
        kill(process)


def kill(process: Process) -> None:
    """End a process and all that it started at once, as a power cut would."""
    _signal(process, signal.SIGKILL)
    process.popen.wait()


@contextmanager
def interruptible() -> Iterator[None]:
    """Being told to end (by SIGTERM, or because the terminal was closed) is a Ctrl-C here, so that what was started is stopped."""
    with _signals((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler):
        yield


@contextmanager
def unhurried() -> Iterator[None]:
    """Nothing milder than SIGKILL ends us here."""
    with _signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), signal.SIG_IGN):
        yield


@contextmanager
def _signals(numbers: Sequence[signal.Signals], handler: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears of signals
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, own in before.items():
            signal.signal(number, own)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _signal(process: Process, number: int) -> None:
    """To everything that a process started; what it leads is its own group, whose number stays taken until the last has ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.popen.pid, number)


def _alive(process: Process) -> bool:
    """Whether the process, or something that it started, is still there."""
    process.popen.poll()  # an ended child would be counted until somebody asks for its exit code
    try:
        os.killpg(process.popen.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True

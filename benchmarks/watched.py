"""Run a command with everything that it starts in sight: its peak memory is added up, and what it
leaves behind is ended.

A peer that starts processes of its own (Ray does) is neither measured nor stopped by looking at the
first one. Processes are told apart by number and start time, so that a number that was given away
again is never touched. Linux only.
"""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
OFTEN = 0.5  # seconds between looks


class Process(NamedTuple):
    """One process, for as long as it lives."""

    pid: int
    started: int  # clock ticks since the machine started


class Watched(NamedTuple):
    """What is known once the command has ended."""

    returncode: int
    errors: str
    megabytes: float  # largest sum over its processes; memory that they share is counted once
    left: int  # processes that had to be ended


def run(command: list[str], environment: dict[str, str], limit: float) -> Watched:
    """Run a command for at most `limit` seconds, then make sure that nothing of it goes on."""
    peak, seen = 0.0, set[Process]()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as child:
        end = time.monotonic() + limit
        errors = ""
        while True:
            now, megabytes = memory(child.pid)
            seen |= now
            peak = max(peak, megabytes)
            try:
                _, errors = child.communicate(timeout=OFTEN)
            except subprocess.TimeoutExpired:
                if time.monotonic() < end:
                    continue
                errors = f"It did not end within {limit:.0f} s."
            break
        left = end_all(seen)
    return Watched(child.returncode, errors, peak, left)


def tree(root: int) -> set[Process]:
    """A process and all that it started, directly or not."""
    children: dict[int, list[Process]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(
                Process(int(entry.name), int(fields[19]))
            )
    fields = _fields(root)
    found, todo = set[Process](), [Process(root, int(fields[19]))] if fields else []
    while todo:
        one = todo.pop()
        found.add(one)
        todo += children.get(one.pid, [])
    return found


def memory(root: int) -> tuple[set[Process], float]:
    """A process and all that it started, and the megabytes of them together; memory that they share
    is counted once.
    """
    now = tree(root)
    return now, sum(_megabytes(process.pid) for process in now)


def end_all(processes: set[Process], patience: float = 5.0) -> int:
    """End those that still live, politely and then not; returns how many there were."""
    left = [process for process in processes if alive(process)]
    for how in (signal.SIGTERM, signal.SIGKILL):
        for process in filter(alive, left):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, how)
        end = time.monotonic() + patience
        while any(map(alive, left)) and time.monotonic() < end:
            time.sleep(0.1)
    return len(left)


def alive(process: Process) -> bool:
    fields = _fields(process.pid)
    return bool(fields) and int(fields[19]) == process.started and fields[0] != "Z"


def _fields(pid: int) -> list[str]:
    """The kernel's line about a process, after its name; empty once it is gone."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _megabytes(pid: int) -> float:
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)

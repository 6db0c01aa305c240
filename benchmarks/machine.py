"""What a benchmark should know of the machine it runs on: is it quiet, what is it, how much memory
was used.
"""

import importlib.metadata
import os
import platform
import resource
import sys
import time
from pathlib import Path
from typing import NamedTuple

QUIET = 0.15  # share of all CPU time


class Ticks(NamedTuple):
    """Clock ticks since the machine started: of all CPUs, idle, and of the given processes."""

    total: int
    idle: int
    own: int


def ticks(*processes: int) -> Ticks:
    """Read the kernel's counters. On systems without them, such as macOS, all are 0."""
    if not Path("/proc/stat").exists():
        return Ticks(0, 0, 0)
    first = [int(v) for v in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return Ticks(sum(first[:8]), first[3] + first[4], sum(_used(pid) for pid in processes))


def _used(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])  # user and system time


def others(before: Ticks, after: Ticks) -> float:
    """Share of all CPU time that other processes used between two readings."""
    total = after.total - before.total
    if total <= 0:  # too short to count, or no counters: nothing is known of others
        return 0.0
    busy = total - (after.idle - before.idle)
    return max(0.0, (busy - (after.own - before.own)) / total)


def wait_for_quiet(patience: float) -> float:
    """Wait until CPU use over a second is small, for at most `patience` seconds; returns the last
    reading.
    """
    end = time.monotonic() + patience
    while True:
        before = ticks()
        time.sleep(1.0)
        share = others(before, ticks())
        if share < QUIET or time.monotonic() > end:
            return share


def peak_megabytes() -> float:
    """The largest resident memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count the parent's memory after a fork
        return (
            next(
                int(line.split()[1])
                for line in status.read_text().splitlines()
                if line.startswith("VmHWM")
            )
            / 1024
        )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 if sys.platform == "darwin" else 1024
    )


def description() -> dict[str, object]:
    """The processor and the number of cores; no names and no paths."""
    info = Path("/proc/cpuinfo")
    models = (
        [
            line.partition(":")[2].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        if info.exists()
        else []
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": cores,
        "system": platform.system(),
    }


def versions(*packages: str) -> dict[str, str]:
    """The versions of Python and of the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found

"""How much memory this machine has, and what would not fit into it: seen before anything is built.

Estimates are of what must be there at once at the least. Training takes more: batches, gradients and what compiled code needs.
"""

import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenly.datasets.card import DatasetCard

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container, in both versions


def available() -> float:
    """Bytes that can be taken: what is free or can be freed, and not more than a container may have. Infinite where nobody says."""
    limits = [_free(), *(_number(Path(path)) for path in LIMITS)]
    return min((limit for limit in limits if limit is not None), default=float("inf"))


def _free() -> float | None:
    """What Linux says is available; elsewhere all memory there is."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (OSError, ValueError, AttributeError):
        return None


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):  # no container, or "max": no limit
        return None


def refuse_large(needed: float, what: str, instead: str) -> None:
    """Refuse what needs more memory than can be taken; `instead` says what to lower."""
    free = available()
    if needed > free:
        raise ValueError(f"{what} needs about {size(needed)} of memory at least, but {size(free)} are free on this machine. {instead}")


def refuse_large_data(card: DatasetCard, settings: Mapping[str, Any]) -> None:
    """Refuse a data set that would not fit with these settings, before any of it is drawn or read."""
    if card.memory is not None:
        given = inspect.signature(card.load).bind_partial(**settings)
        given.apply_defaults()
        refuse_large(card.memory(given.arguments), f"Data set {card.name!r} with these settings", "Choose fewer clients, rows or features.")


def size(number: float) -> str:
    """Bytes as a person says them.

    >>> size(1536), size(3.6e12)
    ('1.5 KiB', '3.27 TiB')
    """
    unit = 0
    while number >= 1024 and unit < len(UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.3g} {UNITS[unit]}" if number < 1000 else f"{number:.0f} {UNITS[unit]}"

"""Follow a run by what its ServerApp says."""

import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from evenly.flower.deploy.processes import Process

ROUND = re.compile(r"\[ROUND (\d+)")
LOOK = 0.2


class Stand(NamedTuple):
    """How far a run is."""

    done: int  # rounds
    rounds: int


def follow(run: Process, rounds: int, meanwhile: Callable[[], None] = lambda: None) -> Iterator[Stand]:
    """How far the run is, each time that changes, until it ends."""
    told = None
    while True:
        ended = not run.running  # asked before the log is read: what it says last is not missed
        meanwhile()
        begun = [int(found[1]) for found in ROUND.finditer(run.text())]
        now = Stand(max(begun[-1] - 1, 0), rounds) if begun else None
        if now is not None and now != told:
            told = now
            yield now
        if ended:
            return
        time.sleep(LOOK)

"""Follow a run by what its ServerApp says."""

import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from evenly.flower.deploy.processes import Process

ROUND = re.compile(r"\[ROUND (\d+)")
WAITING = re.compile(r"Waiting for nodes to connect: (\d+) connected \(minimum required: (\d+)\)")  # what Flower says before the first
LOOK = 0.2


class Stand(NamedTuple):
    """How far a run is."""

    done: int  # rounds
    rounds: int
    left: float | None = None  # seconds, if the other rounds take as long as those since it began; None: nobody can tell yet
    waiting: tuple[int, int] | None = None  # before the first round: how many clients are connected, and how many must be


def follow(run: Process, rounds: int, meanwhile: Callable[[], None] = lambda: None) -> Iterator[Stand]:
    """How far the run is, each time that changes, until it ends."""
    first: tuple[int, float] | None = None  # an earlier server may have done some rounds
    told, waited = -1, None
    while True:
        ended = not run.running  # asked before the log is read: what it says last is not missed
        meanwhile()
        text, now = run.text(), time.monotonic()
        begun, waits = [int(found[1]) for found in ROUND.finditer(text)], WAITING.findall(text)
        if waits and not begun and waits[-1] != waited:
            waited = waits[-1]
            yield Stand(0, rounds, waiting=(int(waited[0]), int(waited[1])))
        if begun and begun[-1] - 1 != told:
            told = begun[-1] - 1
            first = first or (told, now)
            trained = told - first[0]
            yield Stand(told, rounds, (now - first[1]) / trained * (rounds - told) if trained else None)
        if ended:
            return
        time.sleep(LOOK)

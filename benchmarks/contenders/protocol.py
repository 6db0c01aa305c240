"""The one thing that contenders have in common: a process that reads requests from standard input
and answers each with one line.

    {"rounds": 200, "out": "model.npz"}
    -> {"seconds": 0.21, "rounds": 200, "megabytes": 431.0, ...}

It is started as `python with_it.py PLAN.npz OPTIONS`, OPTIONS being JSON, and says once that it is
ready, with the versions it runs on. The model after the last round is left in the file `out`.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TextIO

import numpy as np
from machine import peak_megabytes, versions
from plan import Plan


class Ran(NamedTuple):
    """What a contender leaves behind. Where it takes its own time, it says so; else the whole call
    is taken.
    """

    model: list[np.ndarray]
    seconds: float | None = None
    rounds: int | None = None  # how many of the rounds those seconds are of
    facts: dict[str, Any] = {}  # noqa: RUF012


class Contender(Protocol):
    def run(self, rounds: int) -> Ran:
        """Train from the first model."""
        ...


def serve(make: Callable[..., Contender], *packages: str) -> None:
    """Make the contender and answer until there are no more requests."""
    answers = _only_answers()
    contender = make(Plan(sys.argv[1]), **json.loads(sys.argv[2]))
    _say(answers, {"versions": versions(*packages)})
    for line in sys.stdin:
        request = json.loads(line)
        begun = time.perf_counter()
        ran = contender.run(request["rounds"])
        took = time.perf_counter() - begun
        np.savez(request["out"], *ran.model)
        seconds, rounds = (
            (took, request["rounds"]) if ran.seconds is None else (ran.seconds, ran.rounds)
        )
        _say(
            answers,
            {
                "seconds": seconds,
                "rounds": rounds,
                "call_seconds": took,
                "megabytes": peak_megabytes(),
                **ran.facts,
            },
        )


def _only_answers() -> TextIO:
    """Standard output for ourselves: what a library prints there goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, what: dict[str, Any]) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()

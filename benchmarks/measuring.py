"""Contenders are started, tried with one and two threads, checked against evenly, and then timed in
turn.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import judging
import machine
import numpy as np
import workloads
from environment import NotInstalledError
from lineup import Entry
from process import Answer, Contender, Stopped, last_words
from workloads import Model, Workload

from evenly.data.federation import Federation


class Ready(NamedTuple):
    """A contender that runs, with its better number of threads."""

    entry: Entry
    process: Contender
    rounds: int
    model: Model  # after its first call
    facts: dict[str, Any]


class Check(NamedTuple):
    """What others are compared with: evenly's model after a few rounds, and its accuracy
    after all.
    """

    workload: Workload
    federation: Federation
    early: Model
    accuracy: float


def measure(
    workload: Workload, entries: list[Entry], repeats: int, patience: float, folder: Path
) -> dict[str, Any]:
    """Everything about one workload, ready to be kept."""
    federation, source = workload.data()
    plan = folder / "plan.npz"
    np.savez(plan, **workloads.plan(workload, workload.rounds))
    with contextlib.ExitStack() as stack:
        ready, left_out, check = [], {}, None
        for entry in entries:
            try:
                one = started(stack, entry, workload, plan, patience)
                check = check or reference(one, workload, federation)
                one.facts.update(checked(one, check, plan))
            except (NotInstalledError, Stopped) as error:
                if entry.name == "evenly":
                    raise
                left_out[entry.name] = last_words(str(error))
                say(f"{entry.name} is left out: {error}")
                continue
            ready.append(one)
        assert check
        answers = in_turn(ready, repeats, patience)
    return {
        "workload": workload.name, "data": source, "rounds": workload.rounds,
        "judged_round": workload.judged_round, "band": workload.band,
        "accuracy": {"evenly": check.accuracy, "rounds": workload.rounds},
        "contenders": {one.entry.name: kept(one, answers[one.entry.name]) for one in ready},
        "left_out": left_out,
    }  # fmt: skip


def started(
    stack: contextlib.ExitStack, entry: Entry, workload: Workload, plan: Path, patience: float
) -> Ready:
    """The contender with the number of threads that was faster in a short trial; the other process
    is ended.
    """
    rounds = min(entry.rounds.get(workload.name, workload.rounds), workload.rounds)
    few = rounds if entry.whole or entry.family else max(rounds // 20, 1)
    tried: dict[int, tuple[float, Answer, contextlib.ExitStack, Contender]] = {}
    for threads in [
        n for n in entry.threads if n == entry.threads[0] or n <= (os.cpu_count() or 1)
    ]:
        inner = contextlib.ExitStack()
        process = inner.enter_context(contender(entry, plan, threads, entry.options))
        stack.push(inner)
        first = process.ask(few)
        tried[threads] = first.ms_per_round, first, inner, process
        if len(entry.threads) > 1:
            machine.wait_for_quiet(min(patience, 5))
            tried[threads] = process.ask(few).ms_per_round, first, inner, process
    best = min(tried, key=lambda threads: tried[threads][0])
    for threads, (*_, inner, _) in tried.items():
        if threads != best:
            inner.close()
    _, first, _, process = tried[best]
    trial = (
        {str(n): float(f"{ms / entry.runs:.4g}") for n, (ms, *_) in tried.items()}
        if len(tried) > 1
        else {}
    )
    facts = {
        "threads": best,
        "trial_ms_per_round": trial,
        "first_seconds": round(first.facts.get("first_seconds", first.facts["call_seconds"]), 2),
        "compile_seconds": round(first.facts["compile_seconds"], 2)
        if "compile_seconds" in first.facts
        else None,
        "versions": process.versions,
    }
    say(
        f"{entry.name}: ready with {best} thread(s); ms per round in the trial:"
        f" {trial or 'none was made'}"
    )
    return Ready(entry, process, rounds, first.model, facts)


def contender(entry: Entry, plan: Path, threads: int, options: Any) -> Contender:
    return Contender(
        entry.file, plan, dict(options), python=entry.python(), threads=threads, family=entry.family
    )


def reference(one: Ready, workload: Workload, federation: Federation) -> Check:
    """evenly comes first, and the others are compared with it. Its first call makes all rounds."""
    early = one.process.ask(workload.judged_round).model
    return Check(workload, federation, early, workloads.accuracy(workload, federation, one.model))


def checked(one: Ready, check: Check, plan: Path) -> dict[str, Any]:
    """Whether it learns what evenly learns. By entry.check:

    first: it is evenly. given: it always takes the plan's batches. drawn: it does when asked to.
    Then parameters are compared after a few rounds. accuracy: it draws its own batches, so that
    accuracy is compared after all rounds.
    """
    workload, how, difference, reached = check.workload, one.entry.check, None, None
    if how == "accuracy":
        reached = workloads.accuracy(
            workload, check.federation, one.process.ask(workload.rounds).model
        )
    elif how != "first":
        with asked_for_check(one, plan) as process:
            difference = furthest(process.ask(workload.judged_round).model, check.early)
    agrees = how == "first" or judging.agreement(
        how, difference, None if reached is None else reached - check.accuracy, workload.band
    )
    if not agrees:
        say(
            f"{one.entry.name} did NOT learn the same: difference {difference}, accuracy {reached}"
            f" against {check.accuracy}"
        )
    return {"check": how, "difference": difference, "accuracy": reached, "agrees": agrees}


@contextlib.contextmanager
def asked_for_check(one: Ready, plan: Path) -> Iterator[Contender]:
    """The contender itself, or one that takes the plan's batches."""
    if one.entry.check != "drawn":
        yield one.process
        return
    with contender(
        one.entry, plan, one.facts["threads"], {**one.entry.options, "drawn": True}
    ) as process:
        yield process


def furthest(a: Model, b: Model) -> float:
    """The largest difference between two models' parameters."""
    return max(float(np.abs(x - y).max()) for x, y in zip(a, b, strict=True))


def in_turn(ready: list[Ready], repeats: int, patience: float) -> dict[str, list[Answer]]:
    """One repetition of each contender after another."""
    answers: dict[str, list[Answer]] = {one.entry.name: [] for one in ready}
    for i in range(repeats):
        for one in ready:
            if i < one.entry.repeats:
                machine.wait_for_quiet(patience)
                answers[one.entry.name].append(one.process.ask(one.rounds))
                say(
                    f"{i + 1}/{repeats} {one.entry.name}:"
                    f" {answers[one.entry.name][-1].ms_per_round / one.entry.runs:.3g} ms per round"
                )
    return answers


def kept(one: Ready, answers: list[Answer]) -> dict[str, Any]:
    """What is kept of a contender."""
    entry, last = one.entry, answers[-1]
    whole = [
        float(f"{1e3 * a.facts['whole_seconds'] / one.rounds / entry.runs:.4g}")
        for a in answers
        if entry.options.get("apart")
    ]
    return {
        "title": entry.title, "peer": entry.peer, "runs": entry.runs, "rounds": last.rounds,
        **judging.summary([a.ms_per_round / entry.runs for a in answers]),
        **({"with_evaluations": whole} if whole else {}),
        "megabytes": round(max(a.megabytes for a in answers)),
        "others": [None if a.others is None else round(a.others, 2) for a in answers],
        **one.facts,
    }  # fmt: skip


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

"""How time and memory grow: with the cohort, with the registered clients, with unequal clients,
with the model, with the runs.

    python benchmarks/growth.py [--quick] [--only cohort,clients,sizes,model,runs]
                                [--turns 3] [--json FILE]

Every point is measured in a process of its own, because a peak of memory never falls. A section's
points take turns, because a machine is faster at one time than at another and points are compared
with each other. The clients are those of the data set synthetic-crowd. Timed are rounds: what is
read, compiled and evaluated before the first and after the last is left out and given apart. Of
more than 10,000 clients, 10,000 are evaluated. With --only, other sections that the file already
holds stay. The requirements are judged at the end; one that is missed makes the exit status 1,
except with --quick, whose shapes are too small to judge.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("EVENLY_COMPILED", "off")  # or only the first point of a shape would compile

import growth_summary
import jax
import machine
import numpy as np

from evenly import trees
from evenly.algorithms import algorithm
from evenly.data.federation import Federation
from evenly.data.partition import numbered
from evenly.data.splits import SPLITS, Ragged
from evenly.datasets import synthetic_crowd
from evenly.models import MLP, Softmax
from evenly.simulate import program_cache, simulate
from evenly.simulate.run import Progress
from evenly.types import Task

FEATURES, CLASSES, BATCH = 60, 10, 10
MB = 2**20
FEWEST_BLOCKS = 3  # of rounds, neither the first nor the last, that are timed one by one
PANEL = 10_000  # clients that are evaluated, where there are more


class Point(NamedTuple):
    """One measurement."""

    section: str
    clients: int  # registered
    cohort: int  # clients a round
    rows: float = 14.0  # of a client, on average
    spread: float = 0.8  # of their logarithm
    hidden: int = 0  # width of a perceptron; 0: a softmax
    runs: int = 1
    mapped: bool = False  # whether the features stay in a file
    steps: int = 1_000_000  # local steps to time, about


def points(quick: bool) -> list[Point]:
    """Every section's points, from small to large."""
    if quick:
        few = 2000
        return [
            *(Point("cohort", 40, n, 50, steps=few) for n in (4, 40)),
            *(Point("clients", n, 20, steps=few) for n in (20, 200)),
            Point("clients", 200, 20, mapped=True, steps=few),
            *(Point("sizes", 40, 10, 50, spread, steps=few) for spread in (0.0, 1.2)),
            *(Point("model", 20, 5, hidden=h, steps=few) for h in (4, 40)),
            *(Point("runs", 20, 5, runs=n, steps=few) for n in (1, 4)),
        ]
    widths = (14, 141, 1408, 14_085, 140_845)  # 71 parameters for each unit
    return [
        *(Point("cohort", 10_000, n, 125) for n in (10, 100, 1000, 10_000)),
        *(Point("clients", n, 1000) for n in (100, 1000, 10_000, 100_000, 1_000_000)),
        Point("clients", 1_000_000, 1000, mapped=True),
        *(Point("sizes", 1000, 100, 100, spread) for spread in (0.0, 1.2)),
        *(
            Point("model", 100, 10, hidden=h, steps=max(200, min(200_000, 3_000_000 // h)))
            for h in widths
        ),
        *(
            Point("runs", 100, 10, 125, runs=n, steps=max(2000, 200_000 // n))
            for n in (1, 2, 5, 10, 25, 50, 100, 200)
        ),
    ]


def task_of(point: Point) -> Task:
    if point.hidden:
        return MLP(features=FEATURES, classes=CLASSES, hidden=(point.hidden,))
    return Softmax(features=FEATURES, classes=CLASSES)


def drawn(point: Point) -> Federation:
    return synthetic_crowd(
        point.clients, rows=point.rows, spread=point.spread, features=FEATURES, classes=CLASSES
    )


def keep(federation: Federation, folder: Path) -> None:
    """Write the features as a file that can be mapped, and the rest beside it."""
    np.save(folder / "x.npy", federation.x)
    parts = {
        f"{name}.{field}": getattr(federation.split(name), field)
        for name in SPLITS
        for field in Ragged._fields
    }
    np.savez(folder / "rest.npz", y=federation.y, **parts)


def mapped(point: Point, folder: Path) -> Federation:
    """The same federation with its features in the file: pages of it are in memory only while
    somebody reads them.
    """
    rest = np.load(folder / "rest.npz")
    train, valid, test = (Ragged(rest[f"{name}.rows"], rest[f"{name}.offsets"]) for name in SPLITS)
    return Federation(
        x=np.load(folder / "x.npy", mmap_mode="r"),
        y=rest["y"],
        group=np.zeros(len(rest["y"]), np.int32),
        train=train,
        valid=valid,
        test=test,
        central=np.zeros(0, np.int32),
        names=numbered(point.clients),
        labels=tuple(map(str, range(CLASSES))),
    )


def measure(point: Point, folder: Path | None = None) -> dict[str, Any]:
    """Measure one point here."""
    program_cache.record_compile_times()
    with watched() as memory:
        began, compiling = time.perf_counter(), time.monotonic()
        federation = mapped(point, folder) if folder and point.mapped else drawn(point)
        made = time.perf_counter() - began
        task, before, ready = task_of(point), machine.ticks(os.getpid()), machine.peak_megabytes()
        steps = -(-federation.train.counts // BATCH)
        cohort = min(point.cohort, point.clients)
        timed = pace(
            trainer(point, task, federation), max(3, round(point.steps / (cohort * steps.mean())))
        )
    sizes = federation.train.counts
    per_round = float(steps[timed.cohort].sum(1).mean())
    raw = federation.x.nbytes + federation.y.nbytes
    return {
        **point._asdict(),
        "total_rows": len(federation.y),
        "rows_per_round": round(float(sizes[timed.cohort].sum(1).mean()), 1),
        "smallest_client": int(sizes.min()),
        "largest_client": int(sizes.max()),
        "parameters": trees.size(jax.eval_shape(task.init, jax.random.key(0))),
        "rounds": len(timed.cohort),
        "steps_per_round": round(per_round, 1),
        "ms_per_round": round(1e3 * float(np.median(timed.seconds)), 4),
        "range": [round(1e3 * min(timed.seconds), 4), round(1e3 * max(timed.seconds), 4)],
        "us_per_step": round(1e6 * float(np.median(timed.seconds)) / per_round, 3),
        "timed": len(timed.seconds),
        "making_seconds": round(made, 2),
        "first_block_seconds": round(timed.first, 2),
        "compile_seconds": round(program_cache.compile_seconds(compiling), 2),
        "raw_megabytes": round(raw / MB, 1),
        "ready_megabytes": round(ready),
        "peak_megabytes": round(machine.peak_megabytes()),
        **memory,
        "others": round(machine.others(before, machine.ticks(os.getpid())), 2),
    }


class Timed(NamedTuple):
    """Rounds that were timed."""

    seconds: list[float]  # of one round: in several stretches of rounds, or in several calls
    first: float  # until the first rounds were done: moving data, compiling, the first evaluation
    cohort: np.ndarray  # [rounds, K]


Marks = list[tuple[int, float]]  # rounds done, and when
Train = Callable[[int], tuple[np.ndarray, Marks]]


def trainer(point: Point, task: Task, federation: Federation) -> Train:
    rates = np.linspace(0.05, 0.1, point.runs) if point.runs > 1 else [0.1]
    methods = [
        algorithm(
            f"fedavg(learning_rate={rate}, batch_size={BATCH})+uniform(clients={point.cohort})"
        )
        for rate in rates
    ]
    panel = np.arange(PANEL) * (point.clients // PANEL) if point.clients > PANEL else None

    def train(rounds: int) -> tuple[np.ndarray, Marks]:
        marks: Marks = [(0, time.perf_counter())]
        noted: Progress = lambda done, _: marks.append((done, time.perf_counter()))  # noqa: E731
        traces = simulate(task, federation, methods, rounds, progress=noted, panel=panel)
        marks.append((rounds, time.perf_counter()))
        return traces[0].cohort, marks

    return train


def pace(train: Train, rounds: int) -> Timed:
    """Seconds of a round without what comes before the first and after the last.

    The simulator tells its progress after every block of rounds. Where there are several, those
    between the first, which compiles and evaluates, and the last are timed, but not the short ones
    with which some runs begin. Where all rounds are one block, or nearly, a call with them is timed
    against a call with one round.
    """
    cohort, marks = train(rounds)
    first, blocks = marks[1][1] - marks[0][1], list(pairwise(marks[1:-2]))
    longest = max((after - before for (before, _), (after, _) in blocks), default=0)
    timed = [
        (b - a) / (after - before)
        for (before, a), (after, b) in blocks
        if 2 * (after - before) > longest
    ]
    if len(timed) >= FEWEST_BLOCKS:
        return Timed(timed, first, cohort)
    train(1)
    pairs = [(_whole(train, rounds), _whole(train, 1)) for _ in range(3)]
    return Timed([(many - one) / (rounds - 1) for many, one in pairs], first, cohort)


def _whole(train: Train, rounds: int) -> float:
    _, marks = train(rounds)
    return marks[-1][1] - marks[0][1]


@contextmanager
def watched() -> Iterator[dict[str, int]]:
    """While inside: the most memory of our own, and the most that is pages of files (Linux). Looked
    at ten times a second.
    """
    found: dict[str, int] = {}
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.1):
            for name, most in _resident().items():
                found[name] = max(found.get(name, 0), most)

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        yield found
    finally:
        done.set()
        watching.join()


def _resident() -> dict[str, int]:
    status = Path("/proc/self/status")
    lines = [line.split() for line in status.read_text().splitlines()] if status.exists() else []
    names = {"RssAnon:": "anonymous_megabytes", "RssFile:": "file_megabytes"}
    return {names[line[0]]: int(line[1]) // 1024 for line in lines if line[0] in names}


def elsewhere(point: Point, folder: Path) -> dict[str, Any]:
    """Measure a point in a process of its own; a file that it maps is made by yet another one."""
    own = [sys.executable, __file__, "--folder", str(folder), "--point", json.dumps(point)]
    if point.mapped and not (folder / "x.npy").exists():
        subprocess.run([*own, "--make"], check=True)
    return json.loads(subprocess.run(own, stdout=subprocess.PIPE, text=True, check=True).stdout)


def measured(chosen: Sequence[Point], patience: float, turns: int) -> dict[str, dict[str, Any]]:
    """All points, by section."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for section, own in groupby(chosen, lambda point: point.section):
            lines: dict[Point, list[dict[str, Any]]] = {point: [] for point in own}
            for _ in range(turns):
                for point, seen in lines.items():
                    if patience:
                        machine.wait_for_quiet(patience)
                    seen.append(elsewhere(point, Path(folder)))
                    print(growth_summary.sentence(seen[-1]), file=sys.stderr, flush=True)
            found[section] = {
                "date": datetime.date.today().isoformat(),
                "points": [growth_summary.middle(seen) for seen in lines.values()],
            }
    return found


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how time and memory grow.")
    parser.add_argument("--quick", action="store_true", help="small shapes, to see that it works")
    parser.add_argument(
        "--only", default=",".join(growth_summary.SECTIONS), help="sections, separated by commas"
    )
    parser.add_argument(
        "--turns", type=int, help="how often each point is measured (3; 1 with --quick)"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=20.0,
        help="seconds to wait for a quiet machine before each point",
    )
    parser.add_argument("--json", type=Path, help="where to keep the results")
    for hidden in ("--point", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--make", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    given.only = given.only.split(",")
    given.turns = (1 if given.quick else 3) if given.turns is None else given.turns
    if given.turns < 1:
        parser.error(f"--turns must be at least 1, got {given.turns}.")
    if wrong := [name for name in given.only if name not in growth_summary.SECTIONS]:
        parser.error(
            f"--only must name sections of {', '.join(growth_summary.SECTIONS)}, got"
            f" {', '.join(wrong)}."
        )
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    given = options(arguments)
    if given.point:
        point, folder = Point(*json.loads(given.point)), Path(given.folder)
        if given.make:
            keep(drawn(point), folder)
        else:
            print(json.dumps(measure(point, folder)))
        return 0
    fresh = measured(
        [point for point in points(given.quick) if point.section in given.only],
        given.patience,
        given.turns,
    )
    earlier = (
        json.loads(given.json.read_text())["sections"] if given.json and given.json.exists() else {}
    )
    sections = {
        name: (earlier | fresh)[name] for name in growth_summary.SECTIONS if name in earlier | fresh
    }
    found = {
        "command": "python benchmarks/growth.py" + (" --quick" if given.quick else ""),
        "date": datetime.date.today().isoformat(),
        "machine": machine.description() | {"device": jax.devices()[0].device_kind},
        "versions": machine.versions("evenly", "jax", "jaxlib", "numpy"),
        "sections": sections,
        "judged": growth_summary.judged(sections),
    }
    print(growth_summary.page(found))
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if given.quick or all(one["reached"] for one in found["judged"]) else 1


if __name__ == "__main__":
    sys.exit(main())

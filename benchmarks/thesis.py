"""The group-fairness study on Adult: evenly makes all of its trainings, Flower's simulation engine
makes one of them.

    python benchmarks/thesis.py            all cells and seeds: benchmarks/results/thesis.json
    python benchmarks/thesis.py --quick    to see that it works

evenly executes thesis/adult-dirichlet as `evenly reproduce` does; its time includes reading the
data, compilation and evaluation. Flower trains FedAvg once (5 clients, Dirichlet 0.5 over sex,
logistic regression, batch 32, one epoch, rate 0.1) for a few rounds, from which a round is
extrapolated. The same training is made by evenly too, on the same batches, and the two models are
compared. Where only the core packages are installed, give the study as a file: `--write-plan`
there, `--plan` here.
"""

import argparse
import dataclasses
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["EVENLY_COMPILED"] = "off"  # what compiling costs is the first less the second run

import jax
import machine
import numpy as np
import watched
from environment import NotInstalledError, python_with
from thesis_summary import conclusions, sentences

from evenly.algorithms import algorithm
from evenly.data.federation import Federation
from evenly.datasets.load import load
from evenly.experiment.study import StudyPlan, execute_study
from evenly.models.named_models import choose_model
from evenly.simulate import simulate
from evenly.simulate.schedule import Planner
from evenly.types import Seeds, Trace

HERE = Path(__file__).resolve().parent
STUDY, KEPT = "thesis/adult-dirichlet", HERE / "results" / "thesis.json"
PINS = ("flwr[simulation]==1.41.0", "ray==2.55.1", "numpy==2.4.6")
ALPHA, RATE, LONG, REPEATS, LIMIT = 0.5, 0.1, 100, 3, 900.0
METHOD = f"fedavg(learning_rate={RATE}, batch_size=32)+full"


def study_plan(given: argparse.Namespace) -> StudyPlan:
    """The study, or the part of it that is asked for."""
    if given.plan:
        plan = StudyPlan.from_json(given.plan.read_text())
    else:
        # needs pydantic, which not every machine has
        from evenly.experiment.config import read_packaged

        plan = read_packaged(STUDY).study_plan(STUDY, quick=given.quick)
    cells = dict(list(plan.cells.items())[: given.cells])
    return dataclasses.replace(
        plan,
        cells={k: dataclasses.replace(v, seeds=v.seeds[: given.seeds]) for k, v in cells.items()},
    )


def first_of(plan: StudyPlan) -> StudyPlan:
    """One seed of the first cell: the least that compiles what the study compiles."""
    name, cell = next(iter(plan.cells.items()))
    return dataclasses.replace(plan, cells={name: dataclasses.replace(cell, seeds=cell.seeds[:1])})


def seconds(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def measure_study(plan: StudyPlan, patience: float) -> dict[str, Any]:
    """The whole study in one call, compilation included; what of it is compilation is found on a
    small part beforehand.
    """
    small = first_of(plan)
    first, again = (seconds(lambda: execute_study(small)) for _ in range(2))
    jax.clear_caches()  # the study compiles once more
    machine.wait_for_quiet(patience)
    before, begun = machine.ticks(os.getpid()), time.perf_counter()
    study = execute_study(plan, progress=progress())
    took, after = time.perf_counter() - begun, machine.ticks(os.getpid())
    trainings = sum(len(cell.runs) for cell in study.cells.values())
    rounds = sum(len(cell.runs) * cell.rounds for cell in study.cells.values())
    return {
        "cells": len(plan.cells), "seeds": len(next(iter(plan.cells.values())).seeds),
        "trainings": trainings, "training_rounds": rounds, "seconds": round(took, 2),
        "compile_seconds": round(first - again, 2), "ms_per_round": round(1e3 * took / rounds, 4),
        "megabytes": round(machine.peak_megabytes()),
        "others": round(machine.others(before, after), 2),
    }  # fmt: skip


def progress() -> Callable[[int, int], None]:
    """Says every ten seconds how far it is."""
    said = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() > said + 10:
            said = time.monotonic()
            say(f"{done}/{total} rounds of programs")

    return report


class One:
    """The training that both make, as evenly makes it."""

    def __init__(self, plan: StudyPlan) -> None:
        cell = next(iter(plan.cells.values()))
        self.seed, self.method = cell.seeds[0], algorithm(METHOD)
        self.federation = load(cell.data | {"alpha": ALPHA}, self.seed)
        self.task = choose_model(cell.model, self.federation)

    def train(self, rounds: int) -> Trace:
        return simulate(
            self.task, self.federation, [self.method], rounds, seeds=Seeds.all(self.seed)
        )[0]

    def measure(self, rounds: int, patience: float) -> dict[str, Any]:
        self.train(rounds)  # compiles
        machine.wait_for_quiet(patience)
        before = machine.ticks(os.getpid())
        ms = sorted(1e3 * seconds(lambda: self.train(rounds)) / rounds for _ in range(REPEATS))
        others = machine.others(before, machine.ticks(os.getpid()))
        return {
            "rounds": rounds,
            "ms_per_round": round(ms[len(ms) // 2], 3),
            "range": [round(ms[0], 3), round(ms[-1], 3)],
            "others": round(others, 2),
        }

    def batches(self, rounds: int) -> dict[str, Any]:
        """What evenly will draw, for Flower's clients to use."""
        planner = Planner(
            self.federation,
            self.method.work,
            [self.method.select],
            seeds=Seeds.all(self.seed),
            dropout=0.0,
        )
        none = np.zeros(0, np.int32)
        block = planner.block(
            0,
            rounds,
            rounds=rounds,
            steps=rounds * planner.most_steps_per_round,
            stops=none,
            evaluate=none,
        )
        return {
            "x": self.federation.x,
            "y": self.federation.y.astype(np.float32),
            "rate": np.float32(RATE),
            "cohort": block.cohort,
            "first_step": block.first_step,
            "rows": block.rows,
        }


def measure_flower(one: One, rounds: int, patience: float) -> dict[str, Any]:
    """One simulation by Flower. The first round, in which workers start, is given apart."""
    python = python_with("flower", PINS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "plan.npz", **one.batches(rounds))
        inherited = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
        environment = {**inherited, "PYTHONPATH": str(HERE), "FLWR_HOME": str(folder / "flwr")}
        machine.wait_for_quiet(patience)
        begun = time.perf_counter()  # the same clock in all processes
        files = [str(folder / "plan.npz"), str(folder / "out.npz")]
        ended = watched.run(
            [str(python), str(HERE / "flower_adult.py"), *files], environment, LIMIT
        )
        if ended.returncode != 0 or not (folder / "out.npz").exists():
            raise RuntimeError(
                f"Flower's simulation failed with {ended.returncode}:"
                f" {ended.errors.strip()[-2000:]}"
            )
        with np.load(folder / "out.npz") as file:
            stamps, impatient, model = (
                file["stamps"],
                file["impatient"],
                {"w": file["w"], "b": file["b"]},
            )
    ms = np.sort(1e3 * np.diff(stamps)[1:])
    ours = one.train(rounds)
    return {
        "rounds": rounds,
        "ms_per_round": round(float(np.median(ms)), 1),
        "range": [round(ms[0].item(), 1), round(ms[-1].item(), 1)],
        "impatient_ms_per_round": round(1e3 * float(np.median(np.diff(impatient)[1:])), 1),
        "first_seconds": round(stamps[1].item() - begun, 1),
        "megabytes": round(ended.megabytes),
        "left_processes": ended.left,
        "accuracy": {
            "evenly": accuracy(one.federation, ours.model),
            "flower": accuracy(one.federation, model),
        },
        "difference": max(
            float(np.abs(np.asarray(ours.model[name]) - model[name]).max()) for name in model
        ),
    }


def accuracy(federation: Federation, model: dict[str, Any]) -> float:
    """Percent of the central test set that a logistic model predicts right."""
    rows = federation.central
    said = federation.x[rows] @ np.asarray(model["w"]) + np.asarray(model["b"]) > 0
    return round(100 * float((said == federation.y[rows]).mean()), 2)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Time the group-fairness study on Adult beside one training in Flower."
    )
    parser.add_argument(
        "--quick", action="store_true", help="a small part of the study, to see that it works"
    )
    parser.add_argument("--cells", type=int, help="how many partitions; by default all")
    parser.add_argument("--seeds", type=int, help="how many seeds; by default all")
    parser.add_argument(
        "--flower-rounds", type=int, default=10, help="rounds of Flower's one training, at least 2"
    )
    parser.add_argument("--only", choices=("evenly", "flower"))
    parser.add_argument("--plan", type=Path, help="read the study from this file")
    parser.add_argument("--write-plan", type=Path, help="write the study to this file and stop")
    parser.add_argument(
        "--patience",
        type=float,
        default=20.0,
        help="seconds to wait for a quiet machine before each measurement",
    )
    parser.add_argument(
        "--json",
        type=Path,
        help="where to keep the results; by default results/thesis.json if nothing is left out",
    )
    given = parser.parse_args()
    if given.flower_rounds < 2:
        parser.error(
            "--flower-rounds must be at least 2, because the first round is given apart, got"
            f" {given.flower_rounds}."
        )
    return given


def measure(given: argparse.Namespace, plan: StudyPlan) -> dict[str, Any]:
    found, one = {}, One(plan)
    if given.only != "flower":
        found["study"] = measure_study(plan, given.patience)
        found["one"] = one.measure(20 if given.quick else LONG, given.patience)
    if given.only != "evenly":
        try:
            found["flower"] = measure_flower(one, given.flower_rounds, given.patience)
        except (NotInstalledError, RuntimeError) as error:
            say(f"Flower is left out: {error}")
    return found


def main() -> None:
    given = options()
    plan = study_plan(given)
    if given.write_plan:
        given.write_plan.write_text(plan.to_json())
        return
    load_average = round(os.getloadavg()[0], 2)
    found = {
        "command": " ".join(["python benchmarks/thesis.py", *_asked(given)]),
        "date": datetime.date.today().isoformat(),
        "machine": (
            machine.description()
            | {
                "device": jax.devices()[0].device_kind,
                "load_average": load_average,
            }
        ),
        "versions": machine.versions("evenly", "jax", "jaxlib", "numpy"),
        "settings": {"XLA_FLAGS": os.environ["XLA_FLAGS"], "flower": list(PINS)},
        **measure(given, plan),
    }
    found["ratios"] = conclusions(found)
    print(sentences(found))
    whole = (
        not (given.quick or given.cells or given.seeds or given.only or given.plan)
        and "flower" in found
    )
    if path := given.json or (KEPT if whole else None):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")


def _asked(given: argparse.Namespace) -> list[str]:
    """The options that change what is measured, as they were given."""
    words = [
        f"--{name} {getattr(given, name)}"
        for name in ("cells", "seeds", "only")
        if getattr(given, name)
    ]
    return [*(["--quick"] if given.quick else []), *words, f"--flower-rounds {given.flower_rounds}"]


if __name__ == "__main__":
    main()

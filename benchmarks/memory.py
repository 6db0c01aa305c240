"""Peak memory of one round: data are held once, and what grows with lanes is the model, not the
number of clients.

    python benchmarks/memory.py [--quick] [--json FILE]

Every line is measured in a process of its own, because a peak never falls. Beside the peak, which
contains Python and what the compiler left, stands what the compiled program holds at once, as XLA
planned it: data, state and temporary arrays. The data are images of CIFAR-10's shape, with a
perceptron of 512 hidden units, and the roles of Shakespeare's plays (unequal clients), with a
character LSTM. Where EVENLY_DATA has not the files, random arrays of the same shape take their
place, and the line says so. Clients take two local steps: more need no more memory.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

# or a GPU's memory would all be taken at once
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("EVENLY_COMPILED", "off")  # or only the first line of a kind would compile

import jax
import machine
import numpy as np

from evenly import trees
from evenly.algorithms import algorithm
from evenly.data.federation import Federation
from evenly.datasets import cifar10, shakespeare
from evenly.datasets.files import MissingData
from evenly.models import MLP, CharLSTM
from evenly.simulate import program_cache, simulate
from evenly.simulate.program import compiled
from evenly.types import Task

IMAGES, ROLES = 60_000, 100
MB = 2**20


class Case(NamedTuple):
    """One measurement."""

    data: str
    clients: int
    cohort: int
    lanes: int
    rows: int = IMAGES


def cases(quick: bool) -> list[Case]:
    """From one case in three directions: more lanes, more clients, larger cohorts; then unequal
    clients.
    """
    if quick:
        return [
            Case("cifar10", 50, 8, 1, 2000),
            Case("cifar10", 50, 8, 8, 2000),
            Case("cifar10", 500, 8, 1, 2000),
        ]
    lanes = [Case("cifar10", 100, 64, n) for n in (1, 4, 16, 64)]
    clients = [Case("cifar10", n, 64, 1) for n in (1000, 10_000)]
    cohorts = [Case("cifar10", 1000, n, 1) for n in (10, 1000)]
    return [*lanes, *clients, *cohorts, *(Case("shakespeare", ROLES, 10, n) for n in (1, 4))]


def images(case: Case) -> tuple[Federation, str]:
    """Images dealt to clients in turn; a sixth is the central test set."""
    try:
        federation = cifar10()
        x, y, found = federation.x[: case.rows], federation.y[: case.rows], "cifar10"
    except MissingData:
        draw = np.random.default_rng(0)
        x, y, found = (
            draw.integers(0, 256, (case.rows, 32, 32, 3), np.uint8),
            draw.integers(0, 10, case.rows),
            "random",
        )
    trained = case.rows * 5 // 6
    client = np.append(np.arange(trained) % case.clients, np.zeros(case.rows - trained, int))
    split = ["train"] * trained + ["central"] * (case.rows - trained)
    return Federation.from_arrays(x, y, client, split=split, name="cifar10"), found


def roles(case: Case) -> tuple[Federation, str]:
    """Shakespeare's roles, or as many invented ones of lengths as unequal."""
    try:
        return shakespeare(roles=case.clients, stride=50), "shakespeare"
    except MissingData:
        draw = np.random.default_rng(0)
        sizes = np.maximum(10, draw.lognormal(4.5, 1.2, case.clients)).astype(int)
        x, y = (
            draw.integers(0, 80, (sizes.sum(), 80)).astype(np.int32),
            draw.integers(0, 80, sizes.sum()),
        )
        return (
            Federation.from_arrays(
                x, y, np.repeat(np.arange(case.clients), sizes), name="shakespeare"
            ),
            "random",
        )


def measure(case: Case) -> dict[str, Any]:
    """Run one round here, and say what it took."""
    federation, found = images(case) if case.data == "cifar10" else roles(case)
    task: Task = (
        MLP(features=3072, classes=10, hidden=(512,))
        if case.data == "cifar10"
        else CharLSTM(symbols=80)
    )
    method = algorithm(
        f"fedavg(learning_rate=1e-6, batch_size=10, max_steps=2)+uniform(clients={case.cohort})"
    )
    model = 4 * trees.size(jax.eval_shape(task.init, jax.random.key(0)))
    before = machine.peak_megabytes()
    program_cache.record_compile_times()
    begun = time.monotonic()
    planned: list[float] = []
    simulate(task, federation, [method], 1, lanes=case.lanes, advance=watched(planned))
    stats = jax.devices()[0].memory_stats() or {}
    sizes = federation.train.counts
    return {
        **case._asdict(),
        "rows": len(federation.y),
        "found": found,
        "smallest_client": int(sizes.min()),
        "largest_client": int(sizes.max()),
        "data_megabytes": round(federation.x.nbytes / MB, 1),
        "model_megabytes": round(model / MB, 2),
        "before_megabytes": round(before),
        "program_megabytes": round(max(planned), 1),
        "peak_megabytes": round(machine.peak_megabytes()),
        "compile_seconds": round(program_cache.compile_seconds(begun), 1),
        **(
            {"device_peak_megabytes": round(stats["peak_bytes_in_use"] / MB)}
            if "peak_bytes_in_use" in stats
            else {}
        ),
    }


def watched(planned: list[float]) -> Any:
    """The simulator's compiled program, which first notes how much memory XLA planned for it."""

    def noting(shape: Any, *rest: Any) -> Any:
        program = compiled(shape.fused).lower(shape, *rest).compile()
        plan = program.memory_analysis()
        planned.append(
            (
                plan.argument_size_in_bytes
                + plan.output_size_in_bytes
                - plan.alias_size_in_bytes
                + plan.temp_size_in_bytes
            )
            / MB
        )
        return program(*rest)

    return noting


def elsewhere(case: Case) -> dict[str, Any]:
    """Measure a case in a process of its own."""
    command = [sys.executable, __file__, "--case", json.dumps(case)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    line = json.loads(done.stdout)
    print(sentence(line), flush=True)
    return line


def sentence(line: dict[str, Any]) -> str:
    device = (
        f", {line['device_peak_megabytes']} MB on the device"
        if "device_peak_megabytes" in line
        else ""
    )
    return (
        f"{line['data']} ({line['found']}): {line['clients']} clients of {line['smallest_client']}"
        f" to {line['largest_client']} rows, {line['cohort']} a round, {line['lanes']} lanes:"
        f" program {line['program_megabytes']} MB, peak {line['peak_megabytes']} MB{device},"
        f" {line['compile_seconds']} s of compiling; {line['before_megabytes']} MB before the"
        f" round, {line['data_megabytes']} MB of it data; a model has {line['model_megabytes']} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the peak memory of a round.")
    parser.add_argument(
        "--quick", action="store_true", help="few rows and three cases, to see that it works"
    )
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="where to keep the results")
    given = parser.parse_args()
    if given.case:
        print(json.dumps(measure(Case(*json.loads(given.case)))))
        return
    found = {
        "command": "python benchmarks/memory.py" + (" --quick" if given.quick else ""),
        "date": datetime.date.today().isoformat(),
        "machine": machine.description() | {"device": jax.devices()[0].device_kind},
        "versions": machine.versions("evenly", "jax", "jaxlib", "numpy"),
        "cases": [elsewhere(case) for case in cases(given.quick)],
    }
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

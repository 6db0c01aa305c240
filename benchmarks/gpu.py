"""What one GPU does: a whole study, 720 trainings of one partition of it, rounds of 25 LeNet
clients side by side, and three networks beside PyTorch.

    python benchmarks/thesis.py --write-plan plan.json        where everything is installed
    # on the machine with the GPU:
    python benchmarks/gpu.py plan.json [--only study,cell,rotate,same,same-rotate] [--json FILE]
    python benchmarks/gpu.py --only resnet,lstm,pfl [--json FILE]                  needs no plan
    python benchmarks/gpu.py --only resnet,lstm,pfl --quick          on a CPU, to see that it works

The machine with the GPU needs only evenly's core packages, and PyTorch if it is to be timed, too;
data are read from EVENLY_DATA (Adult, MNIST and CIFAR-10). Every part is a process of its own, so
that its peak of memory is its own and it starts without compiled programs:

- `study`: all 3,600 trainings of thesis/adult-dirichlet with a results folder, from the start of
  the process to its end.
- `cell`: the 720 trainings of one of its partitions, again and again in one process; the first call
  compiles.
- `rotate`: FedAvg on FairMNISTRotate (25 of 1,000 clients a round, 60 images, 2 epochs, batch 8),
  with and without momentum. Time of many rounds less that of few, so that evaluations are left out.
- `same`: the cell's accuracies after 20 rounds, of the GPU and of this machine's CPU, for two
  seeds.
- `same-rotate`: those of FedAvg on FairMNISTRotate, after 10 rounds, for three seeds: how far apart
  the two devices are beside how far apart seeds are.
- `resnet`: milliseconds of a client's step of ResNet-18 in bfloat16 (ten clients, batch 64), and
  the share of PyTorch's time.
- `lstm`: milliseconds of a step of ten clients with two LSTM layers of 256, and the share.
- `pfl`: seconds of 1,500 rounds of pfl's own workload with evaluations, the share, and the points
  between both accuracies at the end.
"""

import argparse
import dataclasses
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import networks
import numpy as np

PARTITION, REPEATS = "0.5", 5
FEW, MANY = 50, 350  # rounds
FEDAVG = ("fedavg(learning_rate=0.01)", "fedavg(learning_rate=0.01)+local-momentum")
ROUNDS = 20  # of `same`
# of `same-rotate`: rounds, seeds, and clients that are evaluated; a CPU takes minutes for them
ROTATED, SEEDS, WATCHED = 10, 3, 50
# seconds, seconds, ms, points, times a seed's
TARGETS = {
    "study": 60.0, "cell": 1.2, "rotate": 7.5, "same": 0.5, "same-rotate": 1.0,
    "resnet": 1.6, "lstm": 3.0, "pfl": 1.0,  # ms, ms, PyTorch's time
    "resnet-share": 0.25,  # of PyTorch's time
    "pfl-accuracy": 2.0,  # points between evenly and PyTorch, which draw batches of their own
}  # fmt: skip
EARLIER = {"cell": 3.0, "rotate": 10.0}  # the targets before these, in the same units
NETWORKS = {"resnet": networks.resnet, "lstm": networks.lstm, "pfl": networks.pfl}


def study(plan: Path) -> dict[str, Any]:
    from evenly.experiment.study import StudyPlan, execute_study

    with tempfile.TemporaryDirectory() as folder:
        found = execute_study(StudyPlan.from_json(plan.read_text()), Path(folder))
    return {"trainings": sum(len(cell.runs) for cell in found.cells.values())}


def cell(plan: Path) -> dict[str, Any]:
    from evenly.experiment.execute import execute
    from evenly.experiment.study import StudyPlan

    one = StudyPlan.from_json(plan.read_text()).cells[PARTITION]
    first, *rest = (_seconds(lambda: execute(one, models=False)) for _ in range(1 + REPEATS))
    return {
        "first_seconds": round(first, 2),
        "all": [round(s, 3) for s in rest],
        "median_seconds": round(float(np.median(rest)), 3),
    }


def rotate(plan: Path) -> dict[str, Any]:
    from evenly.algorithms import algorithm
    from evenly.datasets import fair_mnist_rotate
    from evenly.models import LeNet
    from evenly.simulate import simulate

    federation, task, found = fair_mnist_rotate(), LeNet(bias=False), {}
    for name in FEDAVG:
        method = algorithm(f"{name}+uniform(clients=25)", epochs=2, batch_size=8)
        go = [
            lambda rounds=rounds, method=method: simulate(task, federation, [method], rounds)
            for rounds in (FEW, MANY)
        ]
        first = _seconds(go[0]) + _seconds(go[1])
        times = [(_seconds(go[0]), _seconds(go[1])) for _ in range(3)]
        ms = [1e3 * (many - few) / (MANY - FEW) for few, many in times]
        found[name] = {
            "ms_per_round": round(float(np.median(ms)), 2),
            "all": [round(m, 2) for m in ms],
            "first_seconds": round(first, 2),
        }
    return found


def same(plan: Path) -> dict[str, Any]:
    """Accuracy of every method, here; the caller asks on both kinds of device."""
    from evenly.experiment.execute import execute
    from evenly.experiment.study import StudyPlan

    one = StudyPlan.from_json(plan.read_text()).cells[PARTITION]
    short = execute(dataclasses.replace(one, rounds=ROUNDS, seeds=one.seeds[:2]), models=False)
    tables = [run.trace.central[-1].sum(0) for run in short.runs]
    return {"accuracies": [round(100 * float(np.trace(t) / t.sum()), 4) for t in tables]}


def same_rotate(plan: Path) -> dict[str, Any]:
    """Accuracy after each seed's training, here; the caller asks on both kinds of device."""
    from evenly.algorithms import algorithm
    from evenly.datasets import fair_mnist_rotate
    from evenly.models import LeNet
    from evenly.simulate import simulate
    from evenly.types import Seeds

    federation, task = fair_mnist_rotate(), LeNet(bias=False)
    method, watched = (
        algorithm(f"{FEDAVG[0]}+uniform(clients=25)", epochs=2, batch_size=8),
        np.arange(WATCHED),
    )
    runs = [
        simulate(task, federation, [method], ROTATED, seeds=Seeds.all(seed), panel=watched)[0]
        for seed in range(SEEDS)
    ]
    tables = [run.tables[-1, -1].sum((0, 1)) for run in runs]  # of the clients' test rows
    return {"accuracies": [round(100 * float(np.trace(t) / t.sum()), 4) for t in tables]}


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "study": study, "cell": cell, "rotate": rotate, "same": same, "same-rotate": same_rotate,
}  # fmt: skip
WITHOUT_PLAN = {"rotate", "same-rotate", *NETWORKS}


def _seconds(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def in_its_own_process(
    part: str, plan: Path | None, *, quick: bool = False, **environment: str
) -> dict[str, Any]:
    """What a part found, with the seconds and the peaks of memory of its process."""
    begun = time.perf_counter()
    done = subprocess.run(
        [
            sys.executable, __file__, *([] if plan is None else [str(plan)]), "--here", part,
            *["--quick"] * quick,
        ],
        env={**os.environ, "EVENLY_COMPILED": "off", **environment}, stdout=subprocess.PIPE,
        text=True, check=True, timeout=900,
    )  # fmt: skip
    return {
        "process_seconds": round(time.perf_counter() - begun, 2),
        **json.loads(done.stdout.splitlines()[-1]),
    }


def here(part: str, plan: Path | None, *, quick: bool) -> dict[str, Any]:
    import jax

    found = NETWORKS[part](quick=quick) if part in NETWORKS else PARTS[part](plan)
    stats = jax.devices()[0].memory_stats() or {}
    return {
        **found, "device": jax.devices()[0].device_kind,
        "megabytes": round(machine.peak_megabytes()),
        "device_megabytes": round(stats.get("peak_bytes_in_use", 0) / 2**20),
    }  # fmt: skip


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The largest difference between two lists of accuracies, in points."""
    return round(float(np.abs(np.subtract(one["accuracies"], other["accuracies"])).max()), 3)


def judged(found: dict[str, Any]) -> dict[str, Any]:
    """Each part's figure beside its target."""
    figures: dict[str, float] = {}
    if "study" in found:
        figures["study"] = found["study"]["process_seconds"]
    if "cell" in found:
        figures["cell"] = found["cell"]["median_seconds"]
    if "rotate" in found:
        figures["rotate"] = found["rotate"][FEDAVG[0]]["ms_per_round"]
    if "same" in found:
        figures["same"] = found["same"]["points_apart"]
    if "same-rotate" in found:
        figures["same-rotate"] = round(
            found["same-rotate"]["points_apart"] / found["same-rotate"]["seeds_apart"], 3
        )
    for name in ("resnet", "lstm"):
        if name in found:
            figures[name] = found[name]["evenly"]["ms"]
    for name, own in (("pfl", "pfl"), ("resnet-share", "resnet")):
        if "share" in found.get(own, {}):  # where PyTorch is installed
            figures[name] = found[own]["share"]
    if "PyTorch" in found.get("pfl", {}):
        both = [found["pfl"][side]["accuracy"] for side in ("evenly", "PyTorch")]
        figures["pfl-accuracy"] = round(abs(both[0] - both[1]), 3)
    return {name: _judge(name, value) for name, value in figures.items()}


def _judge(name: str, value: float) -> dict[str, Any]:
    earlier = {"earlier": EARLIER[name]} if name in EARLIER else {}
    target = TARGETS[name]
    return {"found": value, "target": target, "reached": value < target, **earlier}


def measure(parts: list[str], plan: Path | None, *, quick: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in parts:
        print(f"{part} ...", file=sys.stderr, flush=True)
        found[part] = in_its_own_process(part, plan, quick=quick)
        if part.startswith("same"):
            cpu = in_its_own_process(part, plan, JAX_PLATFORMS="cpu")
            found[part] |= {
                "runs": len(cpu["accuracies"]),
                "points_apart": apart(found[part], cpu),
                "cpu_seconds": cpu["process_seconds"],
            }
            own = found[part].pop("accuracies")
            if part == "same-rotate":
                found[part] |= {
                    "accuracies": {"gpu": own, "cpu": cpu["accuracies"]},
                    "seeds_apart": round(float(np.ptp(cpu["accuracies"])), 3),
                }
        print(json.dumps(found[part]), file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Time what a GPU does.")
    parser.add_argument(
        "plan",
        type=Path,
        nargs="?",
        help=(
            "the study thesis/adult-dirichlet as a file: python benchmarks/thesis.py --write-plan"
            " FILE"
        ),
    )
    every = [*PARTS, *NETWORKS]
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=every,
        help=f"parts, of {', '.join(every)}",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"small networks and few rounds, for {', '.join(NETWORKS)}",
    )
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument("--here", choices=every, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := set(given.only) - set(every):
        parser.error(
            f"--only must name parts among {', '.join(every)}, got {', '.join(sorted(unknown))}."
        )
    if given.here:
        print(json.dumps(here(given.here, given.plan, quick=given.quick)))
        return
    if given.quick and not set(given.only) <= set(NETWORKS):
        parser.error(f"--quick is for the parts {', '.join(NETWORKS)}; name them with --only.")
    if not set(given.only) <= WITHOUT_PLAN and not (given.plan and given.plan.is_file()):
        parser.error(
            f"there is no file {given.plan}; write it with: python benchmarks/thesis.py"
            f" --write-plan {given.plan or 'plan.json'}"
        )
    found = {
        "command": f"python benchmarks/gpu.py {given.plan or ''} --only {','.join(given.only)}"
        + " --quick" * given.quick,
        "date": datetime.date.today().isoformat(),
        "machine": machine.description(),
        "versions": machine.versions("evenly", "jax", "jaxlib", "numpy"),
        **measure(given.only, given.plan, quick=given.quick),
    }
    found["targets"] = judged(found)
    for name, target in found["targets"].items():
        print(
            f"{name}: {target['found']} (target: below {target['target']:g},"
            f" {'reached' if target['reached'] else 'NOT reached'})"
        )
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

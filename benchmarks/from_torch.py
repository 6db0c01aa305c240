"""Translated PyTorch modules: how fast is a LeNet, and how exact are ten modules?

    python benchmarks/from_torch.py [--rounds N] [--json FILE]
    python benchmarks/from_torch.py --agreement [--json FILE [--resume]]

The first command compares a translated LeNet with the built-in one and with the same rounds written
in PyTorch: FedAvg, ten clients of 60 pictures each, batches of ten, one epoch. The three take turns
in one process, so that the load of the machine is the same for all. A round of the simulator is the
difference between a run of one round and a run of more, so that the evaluations at both ends do not
count. PyTorch uses a GPU if it finds one, as JAX does.

The second command needs the tests of a copy of the sources, but no test runner: distances between
each module of `tests/from_torch/modules.py` in PyTorch on the CPU and its translation on JAX's
default device, relative to one plus the size of a number. It ends with an error if one is larger
than promised. Products are computed in full float32 (`jax_default_matmul_precision`), which GPUs
otherwise round. Every module is kept in the file once it is measured, and `--resume` measures only
those that are not there.
"""

import argparse
import copy
import datetime
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import machine
import numpy as np
import torch
from torch import nn

import evenly
from evenly.models import LeNet
from evenly.types import Task

CLIENTS, ROWS, BATCH, RATE, TURNS = 10, 60, 10, 0.01, 5
METHOD = f"fedavg(learning_rate={RATE}, batch_size={BATCH}, shuffle=false)+full"
# PyTorch in float64 against the translation in float64 and in float32
EXACT, OUTPUTS, STEPS = 1e-8, 1e-5, 1e-3
FOLDER = Path(__file__).resolve().parents[1]


# Speed.


def network() -> nn.Module:
    """The built-in LeNet in PyTorch."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def loop(x: np.ndarray, y: np.ndarray, device: str) -> Callable[[int], object]:
    """The rounds in PyTorch: a copy of the model for each client, and a mean."""
    pictures, labels = torch.from_numpy(x).to(device), torch.from_numpy(y).long().to(device)
    model = network().to(device)

    def train(rounds: int) -> None:
        for _ in range(rounds):
            received = copy.deepcopy(model.state_dict())
            total = {key: torch.zeros_like(value) for key, value in received.items()}
            for k in range(CLIENTS):
                model.load_state_dict(received)
                optimiser = torch.optim.SGD(model.parameters(), RATE)
                for begin in range(k * ROWS, (k + 1) * ROWS, BATCH):
                    rows = slice(begin, begin + BATCH)
                    optimiser.zero_grad()
                    nn.functional.cross_entropy(model(pictures[rows]), labels[rows]).backward()
                    optimiser.step()
                for key, value in model.state_dict().items():
                    total[key] += value / CLIENTS
            model.load_state_dict(total)
        if device != "cpu":
            torch.cuda.synchronize()

    return train


def seconds(run: Callable[[int], object], rounds: int) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    run(rounds)
    return time.perf_counter() - began


def speed(rounds: int) -> dict[str, Any]:
    """Milliseconds per round of each contender, and seconds of what happens once."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(CLIENTS * ROWS, 28, 28)).astype(np.float32)
    y, client = np.arange(len(x)) % 10, np.repeat(np.arange(CLIENTS), ROWS)
    split = ["train"] * len(x)

    def simulated(task: Task, rows: np.ndarray) -> Callable[[int], object]:
        data = evenly.Federation.from_arrays(rows, y, client, split=split)
        return lambda rounds: evenly.train(task, data, METHOD, rounds=rounds)

    began = time.perf_counter()
    task = evenly.from_torch(network, x[:2, None])
    translation = time.perf_counter() - began
    device = "cuda" if torch.cuda.is_available() else "cpu"
    contenders = {
        "from_torch": simulated(task, x[:, None]),
        "built-in": simulated(LeNet(classes=10), x),
        "PyTorch": loop(x[:, None], y, device),
    }
    first = {name: seconds(run, 1) for name, run in contenders.items()}
    for run in contenders.values():
        run(1 + rounds)
    found: dict[str, list[float]] = {name: [] for name in contenders}
    before = machine.ticks(os.getpid())
    for _ in range(TURNS):
        for name, run in contenders.items():
            both = seconds(run, 1 + rounds) - seconds(run, 1)
            found[name].append(1000 * both / rounds)
    return {
        "translation_seconds": round(translation, 2),
        "first_round_seconds": {name: round(value, 2) for name, value in first.items()},
        "milliseconds": {name: [round(v, 2) for v in own] for name, own in found.items()},
        "rounds": rounds,
        "device": jax.devices()[0].device_kind,
        "pytorch_device": device,
        "others": round(machine.others(before, machine.ticks(os.getpid())), 3),
    }


def show_speed(result: dict[str, Any]) -> bool:
    """Print a table."""
    medians = {name: float(np.median(own)) for name, own in result["milliseconds"].items()}
    print(f"translation {result['translation_seconds']:.1f} s")
    for name, own in result["milliseconds"].items():
        ratio = medians[name] / medians["from_torch"]
        print(
            f"{name:12} {medians[name]:8.2f} ms per round ({min(own):.2f} to {max(own):.2f}),"
            f" {ratio:.2f} times from_torch; first round"
            f" {result['first_round_seconds'][name]:.1f} s"
        )
    print(f"other processes used {result['others']:.0%} of the machine")
    return True


# Agreement.


def agreement(file: Path | None, *, resume: bool) -> dict[str, Any]:
    """Distances of each module in both precisions, of a network that rounding moves far, and of a
    whole run.
    """
    sys.path.append(str(FOLDER))
    from tests.from_torch.agreement import UNSTABLE, distances, drift
    from tests.from_torch.modules import CASES
    from tests.from_torch.whole_run import distance_after_three_rounds

    jax.config.update("jax_default_matmul_precision", "highest")
    modules = stored(file).get("agreement", {}).get("modules", {}) if resume else {}
    result = {"device": jax.devices()[0].device_kind, "modules": modules}
    for name in CASES:
        if name in modules:
            continue
        found = {f"float{bits}": distances(name, double=bits == 64) for bits in (64, 32)}
        modules[name] = {key: value._asdict() for key, value in found.items()}
        print(name, modules[name], flush=True)
        keep(file, "agreement", result)
    ours, theirs = drift(UNSTABLE, steps=3)
    result["unstable"] = {"name": UNSTABLE, "steps": 3, "translation": ours, "PyTorch": theirs}
    result["three_rounds"] = distance_after_three_rounds()
    return result


def show_agreement(result: dict[str, Any]) -> bool:
    """Print what is farther away than promised."""
    unstable, late = result["unstable"], []
    for name, found in result["modules"].items():
        double, single = found["float64"], found["float32"]
        checks = {
            "float64": max(double.values()) <= EXACT,
            "float32 outputs": max(single["outputs"], single["back"]) <= OUTPUTS,
            "float32 steps": single["steps"] <= STEPS or name == unstable["name"],
        }
        late += [f"{name}: {what}" for what, holds in checks.items() if not holds]
    if not unstable["translation"] < 3 * unstable["PyTorch"]:
        late.append(f"{unstable['name']}: rounding moves it farther than PyTorch")
    if not result["three_rounds"] <= 1e-4:
        late.append("a whole run")
    print(f"from PyTorch in float64 after {unstable['steps']} steps in float32: {unstable}")
    print(f"after three rounds of FedAvg: {result['three_rounds']:.1e}")
    print("\n".join(f"TOO FAR: {line}" for line in late) or "everything is as near as promised")
    return not late


def stored(file: Path | None) -> dict[str, Any]:
    """What a file of results holds so far."""
    return json.loads(file.read_text()) if file and file.exists() else {}


def keep(file: Path | None, part: str, result: dict[str, Any]) -> None:
    """Write a part of the results."""
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({**stored(file), part: result}, indent=1) + "\n")


def main() -> None:
    """Measure, print, and keep the results."""
    parser = argparse.ArgumentParser(description="Measure translated PyTorch modules.")
    parser.add_argument("--agreement", action="store_true", help="compare numbers, not times")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of a timed run")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument("--resume", action="store_true", help="measure only what is not kept")
    given = parser.parse_args()
    result = agreement(given.json, resume=given.resume) if given.agreement else speed(given.rounds)
    holds = show_agreement(result) if given.agreement else show_speed(result)
    options = "--agreement" if given.agreement else f"--rounds {given.rounds}"
    result |= {
        "command": f"python benchmarks/from_torch.py {options}",
        "date": datetime.date.today().isoformat(),
        "machine": machine.description(),
        "versions": machine.versions("evenly", "torch", "jax", "jaxlib", "numpy"),
    }
    keep(given.json, "agreement" if given.agreement else "speed", result)
    if not holds:
        sys.exit(1)


if __name__ == "__main__":
    main()

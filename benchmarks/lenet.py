"""Rounds of FedAvg with LeNet: evenly beside a plain PyTorch loop, on the CPU or, where both libraries see one, a GPU.

    python benchmarks/lenet.py [--rounds 2] [--repeats 3] [--json FILE]

25 clients with 60 MNIST images each (random ones where EVENLY_DATA has no MNIST), 2 epochs, batches of 8, rate 0.01. Both start
from the same parameters and use the same batches in the same order. evenly evaluates before the first round and after the last;
to leave that out, the time of a round is that of `rounds` + 1 rounds less that of one, over `rounds`.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # a GPU is shared with PyTorch

import jax
import machine
import numpy as np

from evenly.algorithms import algorithm
from evenly.datasets.files import MissingData
from evenly.datasets.idx import read_set
from evenly.datasets.mnist import LAYOUT
from evenly.federation import Federation
from evenly.models import LeNet
from evenly.models.convolution import standardised
from evenly.simulate import simulate
from evenly.simulate.plan import Planner
from evenly.types import Seeds, Trace

CLIENTS, IMAGES, TESTED, EPOCHS, BATCH, RATE = 25, 60, 2000, 2, 8, 0.01
METHOD = f"fedavg(learning_rate={RATE}, epochs={EPOCHS}, batch_size={BATCH})+full"


class Torch:
    """The loop's process, which sleeps while evenly is timed."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self.out = folder / "torch.npz"
        np.savez(folder / "plan.npz", **plan)
        command = [sys.executable, str(Path(__file__).with_name("lenet_torch.py")), str(folder / "plan.npz")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, rounds: int, threads: int) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"rounds": rounds, "threads": threads, "out": str(self.out)}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("The PyTorch loop stopped; its message is above.")
        return json.loads(line)

    def model(self) -> list[np.ndarray]:
        with np.load(self.out) as file:
            return [file[name] for name in file.files]

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def images() -> tuple[np.ndarray, np.ndarray, str]:
    """Bytes [n, 28, 28] and labels, training images first, and where they come from."""
    trained = CLIENTS * IMAGES
    try:
        x, y, tested = read_set(LAYOUT)
    except MissingData:
        draw = np.random.default_rng(0)
        return draw.integers(0, 256, (trained + TESTED, 28, 28), np.uint8), draw.integers(0, 10, trained + TESTED), "random"
    rows = np.concatenate([np.flatnonzero(~tested)[:trained], np.flatnonzero(tested)[:TESTED]])
    return x[rows, :, :, 0], y[rows], "mnist"


class Evenly:
    """The simulator on this task, and the plan that it will follow."""

    def __init__(self) -> None:
        x, y, self.data = images()
        client = [f"client {k:02}" for k in np.repeat(np.arange(CLIENTS), IMAGES)] + ["nobody"] * TESTED
        split = ["train"] * (CLIENTS * IMAGES) + ["central"] * TESTED
        self.federation = Federation.from_arrays(x, y, client, split=split, name="mnist")
        self.task, self.method = LeNet(), algorithm(METHOD)
        self.trace: Trace | None = None

    def seconds(self, rounds: int) -> float:
        begun = time.perf_counter()
        [self.trace] = simulate(self.task, self.federation, [self.method], rounds)
        return time.perf_counter() - begun

    def plan(self, rounds: int) -> dict[str, Any]:
        planner, none = Planner(self.federation, self.method.work, self.method.select, seeds=Seeds(), dropout=0.0), np.zeros(0, np.int32)
        block = planner.block(0, rounds, rounds=rounds, steps=rounds * planner.steps_per_round(), stops=none, evaluate=none)
        x = standardised(jax.numpy.asarray(self.federation.x), self.task.mean, self.task.deviation)[..., 0]
        start = in_torch_order(self.task.init(jax.random.key(Seeds().model)))
        return {
            "x": np.asarray(x), "y": self.federation.y, "rows": block.rows, "first_step": block.first_step, "clients": CLIENTS, "rate": RATE,
            **{f"start{i}": value for i, value in enumerate(start)},
        }  # fmt: skip

    def accuracy(self) -> float:
        """Percent of the central test images, of the model that the last call left."""
        assert self.trace
        table = self.trace.central[-1].sum(0)  # [labels, outcomes]
        return 100 * float(np.trace(table) / table.sum())


def in_torch_order(model: dict[str, Any]) -> list[np.ndarray]:
    """LeNet's parameters as PyTorch lays them: channels first, outputs before inputs."""
    w = {name: np.asarray(layer["w"]) for name, layer in model.items()}
    w |= {name: w[name].transpose(3, 2, 0, 1) for name in ("conv1", "conv2")}
    w["dense1"] = w["dense1"].reshape(14, 14, 64, 128).transpose(3, 2, 0, 1).reshape(128, -1)
    w["dense2"] = w["dense2"].T
    return [value for name in ("conv1", "conv2", "dense1", "dense2") for value in (w[name].copy(), np.asarray(model[name]["b"]))]


class Benchmark:
    """Both contenders, timed in turn."""

    def __init__(self, rounds: int, folder: Path) -> None:
        self.rounds, self.evenly = rounds, Evenly()
        self.first = self.evenly.seconds(1)
        self.torch = Torch(folder, self.evenly.plan(rounds)) if has_torch() else None

    def agreement(self) -> dict[str, Any]:
        """After one round: the time to compile, test accuracy and, with PyTorch, the largest difference and the better threads."""
        again = self.evenly.seconds(1)
        found: dict[str, Any] = {"compile_seconds": round(self.first - again, 1), "accuracy": round(self.evenly.accuracy(), 2)}
        if self.torch and self.evenly.trace:
            tries = {threads: self.torch.run(1, threads)["seconds"] for threads in (1, os.cpu_count() or 1)}
            own = in_torch_order(self.evenly.trace.model)
            found["difference"] = max(float(np.abs(a - b).max()) for a, b in zip(own, self.torch.model(), strict=True))
            found["torch_threads"] = min(tries, key=lambda threads: tries[threads])
        return found

    def timed(self, name: str, threads: int) -> dict[str, float]:
        """Seconds per round, and the share of the machine that others used meanwhile."""
        processes = [os.getpid(), *([self.torch.process.pid] if self.torch else [])]
        before = machine.ticks(*processes)
        if name == "torch":
            assert self.torch
            seconds = self.torch.run(self.rounds, threads)["seconds"]
        else:
            seconds = self.evenly.seconds(self.rounds + 1) - self.evenly.seconds(1)
        return {"seconds": seconds / self.rounds, "others": machine.others(before, machine.ticks(*processes))}


def measure(bench: Benchmark, repeats: int, patience: float) -> dict[str, Any]:
    found = bench.agreement()
    names = ["evenly", *(["torch"] if bench.torch else [])]
    timed: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            machine.wait_for_quiet(patience)
            timed[name].append(bench.timed(name, found.get("torch_threads", 1)))
            print(f"{name}: {timed[name][-1]['seconds']:.2f} s per round", file=sys.stderr, flush=True)
    for name in names:
        seconds = sorted(t["seconds"] for t in timed[name])
        range_ = [round(seconds[0], 3), round(seconds[-1], 3)]
        others = round(max(t["others"] for t in timed[name]), 2)
        found[name] = {"seconds_per_round": round(float(np.median(seconds)), 3), "range": range_, "others": others}
    found["evenly"]["megabytes"] = round(machine.peak_megabytes())
    if bench.torch:
        found["torch"] |= {"megabytes": round(bench.torch.run(0, 1)["megabytes"])}
        found["faster"] = round(found["torch"]["seconds_per_round"] / found["evenly"]["seconds_per_round"], 2)
        bench.torch.close()
    return found


def has_torch() -> bool:
    found = "torch" in machine.versions("torch")
    if not found:
        print("PyTorch is not installed, so only evenly is timed. `pip install torch` adds the comparison.", file=sys.stderr)
    return found


def sentences(found: dict[str, Any]) -> str:
    lines = []
    for name in ("evenly", "torch"):
        if name in found:
            low, high = found[name]["range"]
            used = f"{found[name]['megabytes']} MB, others used up to {found[name]['others']:.0%} of the machine"
            lines.append(f"{name}: {found[name]['seconds_per_round']:.2f} s per round ({low:.2f} to {high:.2f}), {used}")
    lines.append(f"evenly compiled in {found['compile_seconds']:.1f} s; {found['accuracy']:.1f} % right after one round ({found['data']})")
    if "faster" in found:
        lines.append(
            f"evenly is {found['faster']:.2f} times as fast; parameters after one round differ by {found['difference']:.1e} at most"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time FedAvg with LeNet.")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--patience", type=float, default=20.0, help="seconds to wait for a quiet machine before each repetition")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Benchmark(given.rounds, Path(folder))
        found = {
            "command": f"python benchmarks/lenet.py --rounds {given.rounds} --repeats {given.repeats}",
            "date": datetime.date.today().isoformat(),
            "machine": machine.description() | {"device": jax.devices()[0].device_kind},
            "versions": machine.versions("evenly", "jax", "jaxlib", "numpy", "torch"),
            "data": bench.evenly.data,
            **measure(bench, given.repeats, given.patience),
        }
    print(sentences(found))
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Rounds of FedAvg with LeNet: evenly beside a plain PyTorch loop, on the CPU or, where both libraries see one, a GPU.

    python benchmarks/lenet.py [--rounds 2] [--repeats 3] [--json FILE]

25 clients with 60 MNIST images each (random ones where EVENLY_DATA has no MNIST), 2 epochs, batches of 8, rate 0.01. Both start
from the same parameters and use the same batches in the same order. evenly evaluates before the first round and after the last;
to leave that out, the time of a round is that of `rounds` + 1 rounds less that of one, over `rounds`; of one, the least so far, because
a slow one would flatter evenly. On a busy machine wall times say little, so the best repetitions are compared; the CPU time of all
threads is given too.
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

    def seconds(self, rounds: int) -> np.ndarray:
        """Wall time and CPU time of all threads."""
        begun = np.array([time.perf_counter(), time.process_time()])
        self.trace: Trace = simulate(self.task, self.federation, [self.method], rounds)[0]
        return np.array([time.perf_counter(), time.process_time()]) - begun

    def plan(self, rounds: int) -> dict[str, Any]:
        planner, none = Planner(self.federation, self.method.work, [self.method.select], seeds=Seeds(), dropout=0.0), np.zeros(0, np.int32)
        block = planner.block(0, rounds, rounds=rounds, steps=rounds * planner.steps_per_round(), stops=none, evaluate=none)
        x = standardised(jax.numpy.asarray(self.federation.x), self.task.mean, self.task.deviation)[..., 0]
        start = in_torch_order(self.task.init(jax.random.key(Seeds().model)))
        return {
            "x": np.asarray(x), "y": self.federation.y, "rows": block.rows, "first_step": block.first_step,
            "clients": CLIENTS, "rate": RATE, **{f"start{i}": value for i, value in enumerate(start)},
        }  # fmt: skip


def in_torch_order(model: dict[str, Any]) -> list[np.ndarray]:
    """LeNet's parameters as PyTorch lays them: channels first, outputs before inputs."""
    w = {name: np.asarray(layer["w"]) for name, layer in model.items()}
    w |= {name: w[name].transpose(3, 2, 0, 1) for name in ("conv1", "conv2")}
    w["dense1"] = w["dense1"].reshape(14, 14, 64, 128).transpose(3, 2, 0, 1).reshape(128, -1)
    w["dense2"] = w["dense2"].T
    return [value for name in ("conv1", "conv2", "dense1", "dense2") for value in (w[name].copy(), np.asarray(model[name]["b"]))]


class Benchmark:
    """evenly, and PyTorch with one thread and with as many as there are cores, timed in turn."""

    def __init__(self, rounds: int, folder: Path) -> None:
        self.rounds, self.evenly = rounds, Evenly()
        first, again = self.evenly.seconds(1), self.evenly.seconds(1)
        self.one = again
        table = self.evenly.trace.central[-1].sum(0)  # [labels, outcomes]
        self.found: dict[str, Any] = {"compile_seconds": round((first - again)[0], 1), "accuracy": 100 * float(table.trace() / table.sum())}
        self.torch, self.threads = None, {}
        if "torch" in machine.versions("torch"):
            self.torch = Torch(folder, self.evenly.plan(rounds))
            self.threads = {f"torch, {n} threads": n for n in sorted({1, os.cpu_count() or 1})}
            self.torch.run(1, 1)
            pairs = zip(in_torch_order(self.evenly.trace.model), self.torch.model(), strict=True)
            self.found["difference"] = max(float(np.abs(a - b).max()) for a, b in pairs)
        self.evenly.seconds(rounds + 1)  # another number of rounds may be another program

    def timed(self, name: str) -> list[float]:
        """Seconds per round, CPU seconds per round, and the share of the machine that others used meanwhile."""
        processes = [os.getpid(), *([self.torch.process.pid] if self.torch else [])]
        before = machine.ticks(*processes)
        if self.torch and name in self.threads:
            seconds = np.array(self.torch.run(self.rounds, self.threads[name])["seconds"])
        else:
            self.one = np.minimum(self.one, self.evenly.seconds(1))
            seconds = self.evenly.seconds(self.rounds + 1) - self.one
        return [*(seconds / self.rounds).tolist(), machine.others(before, machine.ticks(*processes))]

    def measure(self, repeats: int, patience: float) -> dict[str, Any]:
        timed: dict[str, list[list[float]]] = {name: [] for name in ("evenly", *self.threads)}
        for _ in range(repeats):
            for name, times in timed.items():
                machine.wait_for_quiet(patience)
                times.append(self.timed(name))
                print(f"{name}: {times[-1][0]:.2f} s per round", file=sys.stderr, flush=True)
        contenders = {name: summary(times) for name, times in timed.items()}
        contenders["evenly"]["megabytes"] = round(machine.peak_megabytes())
        if self.torch:
            best = min(contenders[name]["best"] for name in self.threads)
            self.found |= {
                "faster": round(best / contenders["evenly"]["best"], 2),
                "torch_megabytes": round(self.torch.run(0, 1)["megabytes"]),
            }
            self.torch.close()
        return {**self.found, "seconds_per_round": contenders}


def summary(times: list[list[float]]) -> dict[str, Any]:
    wall, cpu, others = np.round(np.array(times).T, 3)
    return {"best": wall.min().item(), "all": wall.tolist(), "cpu": cpu.min().item(), "others": others.tolist()}


def sentences(found: dict[str, Any]) -> str:
    lines = [f"evenly compiled in {found['compile_seconds']:.1f} s; {found['accuracy']:.1f} % right after one round ({found['data']})"]
    for name, one in found["seconds_per_round"].items():
        noise = f"others used {min(one['others']):.0%} to {max(one['others']):.0%} of the machine"
        lines.append(
            f"{name}: at best {one['best']:.2f} s per round ({max(one['all']):.2f} at worst), CPU time {one['cpu']:.2f} s; {noise}"
        )
    if "faster" not in found:
        return "\n".join([*lines, "PyTorch is not installed, so only evenly was timed. `pip install torch` adds the comparison."])
    lines.append(f"Best against best, evenly is {found['faster']:.2f} times as fast.")
    return "\n".join([*lines, f"Parameters after one round differ by {found['difference']:.1e} at most."])


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
            **bench.measure(given.repeats, given.patience),
        }
    print(sentences(found))
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""q-FedAvg on the synthetic federation: evenly beside a plain PyTorch loop, and 25 runs together beside one.

    python benchmarks/synthetic.py [--rounds 200] [--repeats 5] [--json FILE]

Both learn the same thing: the same rows, the same cohorts, the same batches in the same order, from zero. What is timed
differs in PyTorch's favour: its batches are drawn beforehand, while evenly's time includes drawing them, moving the data
and evaluating every client before the first round and after the last.
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

# Small steps lose more to a second thread than they gain. Both must be set before JAX is imported.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("NPROC", "1")  # threads of XLA's CPU pool

import machine
import numpy as np
from summary import COMPARED_ROUNDS, Timed, conclusions, sentences, summary, table

from evenly.algorithms import algorithm
from evenly.datasets import synthetic
from evenly.federation import Federation
from evenly.models import Softmax
from evenly.simulate import simulate
from evenly.simulate.plan import Planner
from evenly.types import Algorithm, Seeds, Trace

CLIENTS, BATCH, RATE, Q = 10, 10, 0.1, 1.0
GRID_Q, GRID_RATE = (0.0, 0.1, 1.0, 2.0, 5.0), (0.01, 0.03, 0.1, 0.2, 0.3)


class Torch:
    """The PyTorch loop in its own process, which sleeps while evenly is timed."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        np.savez(folder / "plan.npz", **plan)
        command = [sys.executable, str(Path(__file__).with_name("torch_loop.py")), str(folder / "plan.npz")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def run(self, rounds: int, threads: int) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"rounds": rounds, "threads": threads}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("The PyTorch loop stopped; its message is above.")
        return json.loads(line)


def method(q: float, rate: float) -> Algorithm:
    return algorithm(f"q-fedavg(q={q}, learning_rate={rate}, batch_size={BATCH})+weighted(clients={CLIENTS})")


def plan(federation: Federation, rounds: int) -> dict[str, Any]:
    """The cohorts and batches that evenly will draw, for the loop to use."""
    one = method(Q, RATE)
    planner = Planner(federation, one.work, [one.select], seeds=Seeds(), dropout=0.0)
    nothing = np.zeros(0, np.int32)
    block = planner.block(0, rounds, rounds=rounds, steps=rounds * planner.steps_per_round(), stops=nothing, evaluate=nothing)
    return {
        "x": federation.x, "y": federation.y, "classes": len(federation.labels), "rate": RATE, "q": Q, "batch": BATCH,
        "train": federation.train.rows, "offsets": federation.train.offsets,
        "cohort": block.cohort, "first_step": block.first_step, "rows": block.rows,
    }  # fmt: skip


def accuracies(federation: Federation, model: dict[str, Any]) -> dict[str, float]:
    """Percent of test rows predicted right: over rows, and mean and variance over clients."""
    right = (federation.x @ np.asarray(model["w"]) + np.asarray(model["b"])).argmax(1) == federation.y
    each = np.array([100 * right[federation.test.of(k)].mean() for k in range(federation.clients)])
    return {"rows": 100 * float(right[federation.test.rows].mean()), "clients": float(each.mean()), "variance": float(each.var())}


def largest_difference(a: dict[str, Any], b: dict[str, Any]) -> float:
    return max(float(np.abs(np.asarray(a[name]) - np.asarray(b[name])).max()) for name in ("w", "b"))


class Benchmark:
    """The contenders, set up once and then timed in turn."""

    def __init__(self, rounds: int, torch: Torch | None, federation: Federation) -> None:
        self.rounds, self.torch, self.federation = rounds, torch, federation
        self.task = Softmax(features=federation.x.shape[1], classes=len(federation.labels))
        self.one, self.many = [method(Q, RATE)], [method(q, rate) for q in GRID_Q for rate in GRID_RATE]
        self.models: dict[str, dict[str, Any]] = {}
        self.memory: dict[str, float] = {}

    def evenly(self, algorithms: list[Algorithm], rounds: int) -> list[Trace]:
        return simulate(self.task, self.federation, algorithms, rounds)

    def first(self, algorithms: list[Algorithm]) -> float:
        """Seconds of a first call, compilation included."""
        start = time.perf_counter()
        self.evenly(algorithms, self.rounds)
        return time.perf_counter() - start

    def timed(self, name: str, threads: int) -> Timed:
        processes = [os.getpid(), *([self.torch.process.pid] if self.torch else [])]
        before, start = machine.ticks(*processes), time.perf_counter()
        seconds = None
        if name == "torch":
            assert self.torch
            reply = self.torch.run(self.rounds, threads=threads)
            seconds, self.models["torch"], self.memory["torch"] = reply["seconds"], reply, reply["megabytes"]
        else:
            traces = self.evenly(self.one if name == "evenly" else self.many, self.rounds)
            self.models[name] = traces[0].model
        seconds = time.perf_counter() - start if seconds is None else seconds
        return Timed(seconds, machine.others(before, machine.ticks(*processes)))

    def differences(self) -> dict[str, float]:
        """The largest difference between the two libraries' parameters after some rounds."""
        assert self.torch
        return {
            str(rounds): largest_difference(self.evenly(self.one, rounds)[0].model, self.torch.run(rounds, threads=1))
            for rounds in COMPARED_ROUNDS
            if rounds <= self.rounds
        }

    def better_threads(self) -> dict[str, Any]:
        """Try PyTorch with one and two threads over a few rounds; the better goes on."""
        assert self.torch
        rounds = min(5, self.rounds)
        self.torch.run(rounds, threads=1)  # warm up
        trial = {threads: 1e3 * self.torch.run(rounds, threads=threads)["seconds"] / rounds for threads in (1, 2)}
        return {
            "threads": min(trial, key=lambda threads: trial[threads]),
            "trial_ms_per_round": {str(k): round(v, 2) for k, v in trial.items()},
        }


def measure(bench: Benchmark, repeats: int, patience: float) -> dict[str, Any]:
    """Time everything, one repetition of each contender after another."""
    first = {"evenly": round(bench.first(bench.one), 2)}
    bench.memory["evenly"] = machine.peak_megabytes()
    first["evenly25"] = round(bench.first(bench.many), 2)
    bench.memory["evenly25"] = machine.peak_megabytes()
    found: dict[str, Any] = {"differences": bench.differences(), "torch_threads": bench.better_threads()} if bench.torch else {}
    names = ["evenly", *(["torch"] if bench.torch else []), "evenly25"]
    threads = found["torch_threads"]["threads"] if bench.torch else 1
    timed: dict[str, list[Timed]] = {name: [] for name in names}
    for i in range(repeats):
        for name in names:
            machine.wait_for_quiet(patience)
            timed[name].append(bench.timed(name, threads))
            say(f"{i + 1}/{repeats} {name}: {1e3 * timed[name][-1].seconds / bench.rounds:.2f} ms per round")
    for name in names:
        found[name] = {**summary(bench.rounds, timed[name]), "first_seconds": first.get(name), "megabytes": round(bench.memory[name])}
    found["accuracy"] = {name: accuracies(bench.federation, model) for name, model in bench.models.items() if name != "evenly25"}
    return found


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def has_torch() -> bool:
    found = "torch" in machine.versions("torch")
    if not found:
        say("PyTorch is not installed, so only evenly is timed. `pip install torch` in this environment adds the comparison.")
    return found


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time q-FedAvg on the synthetic federation.")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--patience", type=float, default=20.0, help="seconds to wait for a quiet machine before each repetition")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    return parser.parse_args()


def main() -> None:
    given = options()
    federation = synthetic()
    with tempfile.TemporaryDirectory() as folder:
        torch = Torch(Path(folder), plan(federation, given.rounds)) if has_torch() else None
        found = measure(Benchmark(given.rounds, torch, federation), given.repeats, given.patience)
        if torch:
            torch.close()
    found = {
        "command": f"python benchmarks/synthetic.py --rounds {given.rounds} --repeats {given.repeats}",
        "date": datetime.date.today().isoformat(),
        "machine": machine.description(),
        "versions": machine.versions("evenly", "jax", "jaxlib", "numpy", "torch"),
        "settings": {name: os.environ[name] for name in ("XLA_FLAGS", "NPROC")},
        "rounds": given.rounds,
        **found,
    }
    found["ratios"] = conclusions(found)
    print(f"{table(found)}\n\n{sentences(found)}")
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What differential privacy costs in time: a round with `+dp` beside the same round without it, and
DP-SGD beside Opacus.

    python benchmarks/privacy.py --json benchmarks/results/privacy.json
    python benchmarks/privacy.py --only synthetic --unit client --repeats 3

- unit=client: the synthetic and the LeNet workload of `peers.py`, with and without
  `+dp(unit=client)` and its adaptive clip, in turns in one process. CPU time of all threads is
  compared, because it says more than the clock where others use the machine.
- unit=row: DP-SGD of the clients of the same two models, with batches drawn by Poisson sampling.
  Opacus trains them one after another in a process of its own, with batches of the same rate. The
  clock is compared.

Each time is that of all rounds less that of one round, so that evaluations and what is done once do
not count. Each repetition gives one ratio.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("EVENLY_COMPILED", "off")

import lineup
import machine
import numpy as np
import workloads
from environment import NotInstalledError
from process import Contender, Stopped, last_words
from workloads import Workload

from evenly.algorithms import algorithm
from evenly.simulate import simulate
from evenly.types import Algorithm

NOISE, LIMIT = 1.0, 1.3  # noise multiplier; the ratio that a private round may reach
OPACUS = lineup.Entry(
    "opacus", "Opacus 1.6.0", "with_opacus.py",
    ("opacus==1.6.0", lineup.TORCH, lineup.NUMPY, "opt_einsum==3.4.0", "scipy==1.17.0"),
    here="opacus",
)  # fmt: skip


Clock = Callable[[], float]


class Case(NamedTuple):
    """A workload, and the method that is trained privately."""

    workload: str
    rounds: int  # of a repetition
    method: str
    sampling: str
    clients: int  # of a round, for unit=row
    rate: float  # of rows, for unit=row: a batch has as many rows as the workload's on average

    @property
    def plain(self) -> str:
        return f"{self.method}+{self.sampling}"


CASES = (
    Case("synthetic", 200, "q-fedavg(q=1, learning_rate=0.1, batch_size=10)",
         "weighted(clients=10)", 10, 0.05),
    Case("lenet", 3, "fedavg(learning_rate=0.01, epochs=2, batch_size=8)", "full", 3, 8 / 60),
)  # fmt: skip


def options(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time rounds with differential privacy.")
    parser.add_argument("--only", choices=[case.workload for case in CASES])
    parser.add_argument("--unit", choices=("client", "row"), help="by default both")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--rounds", type=int, help="of a repetition, at most")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds to wait for quiet")
    parser.add_argument("--opacus", help="interpreter of an environment that has Opacus")
    parser.add_argument("--json", type=Path, help="what is not measured now is kept")
    return parser.parse_args(words)


class Simulation:
    """The rounds of one method, without what a run does once."""

    def __init__(self, workload: Workload, made: Algorithm, rounds: int, clock: Clock) -> None:
        self.federation, _ = workload.data()
        self.clock = clock
        self.task, self.made, self.rounds = workload.task(self.federation), made, rounds
        self.least = float("inf")
        for count in (1, rounds):
            self.seconds(count)

    def seconds(self, rounds: int) -> float:
        begun = self.clock()
        simulate(self.task, self.federation, [self.made], rounds)
        return self.clock() - begun

    def ms_per_round(self) -> float:
        """Of a run with one round the least so far, because a slow one would flatter."""
        self.least = min(self.least, self.seconds(1))
        return 1e3 * (self.seconds(self.rounds) - self.least) / (self.rounds - 1)


def in_turns(timed: dict[str, Callable[[], float]], given: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of each, in turns, and how many times as long the second takes as the first."""
    found: dict[str, list[float]] = {name: [] for name in timed}
    before = machine.ticks(os.getpid())
    for i in range(given.repeats):
        machine.wait_for_quiet(given.patience)
        for name in list(timed) if i % 2 else list(timed)[::-1]:
            found[name].append(float(f"{timed[name]():.4g}"))
        say(f"{i + 1}/{given.repeats} " + ", ".join(f"{n} {v[-1]} ms" for n, v in found.items()))
    first, second = found.values()
    ratios = [b / a for a, b in zip(first, second, strict=True)]
    return {
        **{name: {"median": statistics.median(all_), "all": all_} for name, all_ in found.items()},
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(one, 3) for one in sorted(ratios)],
        "others": round(machine.others(before, machine.ticks(os.getpid())), 2),
    }


def of_clients(case: Case, given: argparse.Namespace) -> dict[str, Any]:
    """A round with and without privacy for clients."""
    workload, rounds = workloads.WORKLOADS[case.workload], min(case.rounds, given.rounds or 10**9)
    private = f"{case.plain}+dp(noise_multiplier={NOISE}, forced=true)"
    both = {
        name: Simulation(workload, algorithm(text), rounds, time.process_time)
        for name, text in (("plain", case.plain), ("private", private))
    }
    say(f"{case.workload}: {private}")
    timed = {name: one.ms_per_round for name, one in both.items()}
    return {"method": private, "rounds": rounds, **in_turns(timed, given)}


def opacus_process(plan: Path, python: str | None, threads: int) -> Contender:
    return Contender(OPACUS.file, plan, {}, python=python, threads=threads, family=False)


def quicker_threads(plan: Path, python: str | None) -> int:
    """The number of threads with which a round of Opacus takes less time, after a first one."""
    times = {}
    for threads in OPACUS.threads:
        with opacus_process(plan, python, threads) as one:
            one.ask(1)
            times[threads] = one.ask(1).ms_per_round
    return min(times, key=lambda threads: times[threads])


def of_rows(case: Case, given: argparse.Namespace) -> dict[str, Any]:
    """DP-SGD here and in Opacus: milliseconds for each local step of a client."""
    workload = workloads.WORKLOADS[case.workload]
    rounds = max(3, min(case.rounds // 10, given.rounds or 10**9))
    text = (
        f"{case.method}+uniform(clients={case.clients})"
        f"+dp(unit=row, noise_multiplier={NOISE}, clip=1, rate={case.rate!r})"
    )
    made = algorithm(text)
    steps = case.clients * round(made.work.epochs / case.rate)
    plan = workloads.plan(workload, rounds)
    plan.update(dp_rate=case.rate, dp_noise=NOISE, dp_clients=case.clients)
    python = given.opacus or OPACUS.python()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.npz"
        np.savez(path, **plan)
        with opacus_process(path, python, quicker_threads(path, python)) as opacus:
            opacus.ask(1)
            say(f"{case.workload}: {text}")
            ours = Simulation(workload, made, rounds, time.perf_counter)
            timed = {
                "evenly": lambda: ours.ms_per_round() / steps,
                "opacus": lambda: opacus.ask(rounds).ms_per_round / steps,
            }
            load = round(os.getloadavg()[0], 1)  # of everybody's programs
            found = in_turns(timed, given)
            return {
                "method": text, "steps": steps, **found, "load": load,
                "date": datetime.date.today().isoformat(), "machine": machine.description(),
                "versions": opacus.versions,
            }  # fmt: skip


def measured(given: argparse.Namespace) -> dict[str, Any]:
    cases = [case for case in CASES if given.only in (None, case.workload)]
    rows: dict[str, Any] = {}
    for case in cases if given.unit != "client" else []:
        try:
            rows[case.workload] = of_rows(case, given)
        except (NotInstalledError, Stopped) as error:
            say(f"Opacus is left out: {last_words(str(error))}")
    return {
        "command": "python benchmarks/privacy.py",
        "date": datetime.date.today().isoformat(),
        "machine": machine.description(),
        "versions": machine.versions("evenly", "jax", "jaxlib", "numpy"),
        "limit": LIMIT,
        "client": {case.workload: of_clients(case, given) for case in cases if given.unit != "row"},
        "row": rows,
        "opacus": next(
            ({k: v for k, v in one["versions"].items() if k != "python"} for one in rows.values()),
            {},
        ),
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    given = options()
    found = measured(given)
    if given.json:
        before = json.loads(given.json.read_text()) if given.json.exists() else {}
        kept = {part: before.get(part, {}) | found[part] for part in ("client", "row", "opacus")}
        about = found if found["client"] or not before else before  # date and machine of clients
        given.json.write_text(json.dumps(about | kept, indent=1) + "\n")
    for name, one in found["client"].items():
        print(f"{name}: a round with +dp(unit=client) takes {one['ratio']:.2f} times as long")
    for name, one in found["row"].items():
        print(f"{name}: a step with +dp(unit=row) takes 1/{one['ratio']:.2f} of Opacus's time")
    return int(any(one["ratio"] > LIMIT for one in found["client"].values()))


if __name__ == "__main__":
    sys.exit(main())

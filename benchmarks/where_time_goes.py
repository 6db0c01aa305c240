"""Where the time of a simulation goes: every part is timed alone, or is what a run is shorter by
without it.

    python benchmarks/where_time_goes.py [--repeats 7] [--only synthetic,adult,lenet]
                                         [--quick] [--json FILE]

The workloads are those of `peers.py`: one run, and for linear models 144 runs together. CPU time of
all threads is given, because it says more than the clock where others use the machine; the least of
all repetitions, in which all parts take turns. A program is called again with the very blocks of
rounds of a whole run, but told to leave something out: evaluations, local steps, or the look at the
rows before training. Two other models tell the parts of a local step apart: one whose loss reads
the rows and does nothing with them, and one whose loss does not even read them.
"""

import argparse
import datetime
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

# or a second call would not say how long compiling takes
os.environ.setdefault("EVENLY_COMPILED", "off")

import jax
import jax.numpy as jnp
import machine
import numpy as np
from where_time_table import table
from workloads import TOGETHER, WORKLOADS, Workload

from evenly.data.federation import Shard
from evenly.datasets.files import MissingData
from evenly.models.linear import flat
from evenly.records import record, static
from evenly.simulate import advance, program_cache, simulate
from evenly.simulate.measuring import device_data
from evenly.simulate.schedule import Blocks, Planner, block_rounds
from evenly.types import Algorithm, Seeds, Task, Tree

CACHE_LINE = 64  # bytes


class Case(NamedTuple):
    """A workload, and how many runs of it are made together."""

    workload: Workload
    runs: int
    rounds: int

    @property
    def title(self) -> str:
        return self.workload.name if self.runs == 1 else f"{self.workload.name}, {self.runs} runs"


def cases(names: list[str], quick: bool) -> list[Case]:
    """Fewer rounds where they are long: parts are given per round."""
    one = [
        Case(WORKLOADS[name], 1, {"synthetic": 200, "adult": 100, "lenet": 1}[name])
        for name in names
    ]
    many = [
        Case(WORKLOADS[name], TOGETHER, {"synthetic": 40, "adult": 10}[name])
        for name in names
        if name != "lenet"
    ]
    return (
        [case._replace(rounds=2, runs=min(case.runs, 12)) for case in one + many]
        if quick
        else one + many
    )


class Recorder:
    """Calls the program, and keeps what it was called with: the state as a copy, because the
    program may use its memory.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *given: Any) -> Any:
        self.calls.append((*given[:-1], jax.tree.map(np.array, given[-1])))
        return advance(*given)

    def again(
        self,
        leave_out: Callable[[Any, Any], tuple[Any, Any]],
        model: Callable[[Task], Task] = lambda task: task,
    ) -> None:
        """All blocks, with the data, the block and the model changed."""
        for shape, inputs, block, state in self.calls:
            data, block = leave_out(inputs.data, block)
            changed = inputs._replace(task=model(inputs.task), data=data)
            jax.block_until_ready(advance(shape, changed, block, jax.tree.map(jnp.array, state)))


@record
class Unproductive:
    """A model with the parameters of another, and a loss without products. Its gradient is all but
    zero.
    """

    task: Task
    reads: bool = static()  # whether the loss reads the rows

    joint = property(lambda self: self.task.joint)
    reduction = property(lambda self: self.task.reduction)

    def losses(self, params: Tree, shard: Shard) -> jax.Array:
        read = shard.weight  # with nothing at all, no loop would be left
        # one number of every line of the cache: adding up all of them would take longer than
        # reading them
        if self.reads:
            read = read * flat(shard.x)[:, :: CACHE_LINE // shard.x.dtype.itemsize].astype(
                jnp.float32
            ).sum(1)
        own, given = (
            jax.tree.leaves(tree)[0]
            for tree in (jax.eval_shape(self.task.init, jax.random.key(0)), params)
        )
        one = given.reshape(-1, *given.shape[own.ndim :])[0]  # a number, or one for each run
        return 1e-9 * read.reshape(-1, *[1] * one.ndim) * one

    def penalty(self, params: Tree) -> float:
        return 0.0

    def init(self, key: jax.Array) -> Tree:
        return self.task.init(key)

    def predict(self, params: Tree, x: jax.Array) -> jax.Array:
        return self.task.predict(params, x)


def idle(task: Task) -> Any:
    return Unproductive(task=task, reads=False)


def reading(task: Task) -> Any:
    return Unproductive(task=task, reads=True)


def nothing(data: Any, block: Any) -> tuple[Any, Any]:
    return data, block


def evaluations(data: Any, block: Any) -> tuple[Any, Any]:
    return data, block._replace(evaluate=np.zeros_like(block.evaluate))


def steps(data: Any, block: Any) -> tuple[Any, Any]:
    data, block = evaluations(data, block)
    return data, block._replace(first_step=np.zeros_like(block.first_step))


def looking(data: Any, block: Any) -> tuple[Any, Any]:
    data, block = steps(data, block)
    return data._replace(train_start=jnp.zeros_like(data.train_start)), block


class Spent(NamedTuple):
    """Seconds, at best."""

    clock: float
    cpu: float  # of all threads


def least(repeats: int, functions: dict[str, Callable[[], Any]]) -> dict[str, Spent]:
    """All of them, taking turns: parts are differences, and a machine that others use is slower at
    one time than at another.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in functions}
    for _ in range(1 + repeats):
        for name, function in functions.items():
            before = time.perf_counter(), time.process_time()
            function()
            found[name].append((time.perf_counter() - before[0], time.process_time() - before[1]))
    return {
        name: Spent(*(min(times) for times in zip(*pairs[1:], strict=True)))
        for name, pairs in found.items()
    }


def measure(case: Case, repeats: int) -> dict[str, Any]:
    """Milliseconds of CPU time per round for every part, and seconds for compiling."""
    federation, found = case.workload.data()
    task, algorithms = case.workload.task(federation), case.workload.algorithms(case.runs)
    recorder, begun = Recorder(), time.monotonic()
    simulate(task, federation, algorithms, case.rounds, advance=recorder, stream=False)
    compiling = program_cache.compile_seconds(begun)
    small = recorder.calls[0][0].fused
    spent = least(
        repeats,
        {
            "all": lambda: simulate(task, federation, algorithms, case.rounds, stream=False),
            "full": lambda: recorder.again(nothing),
            "unevaluated": lambda: recorder.again(evaluations),
            "untrained": lambda: recorder.again(steps),
            "blind": lambda: recorder.again(looking),
            "idle": lambda: recorder.again(evaluations, idle),
            "idle untrained": lambda: recorder.again(steps, idle),
            "reading": lambda: recorder.again(evaluations, reading),
            "reading untrained": lambda: recorder.again(steps, reading),
            "drawing": lambda: draw(federation, algorithms[0], case, small),
            "moving": lambda: jax.block_until_ready(device_data(federation, None, 1024)),
        },
    )
    cpu = {name: times.cpu for name, times in spent.items()}
    loop, gathered = (cpu[name] - cpu[f"{name} untrained"] for name in ("idle", "reading"))
    parts = {
        "products": cpu["unevaluated"] - cpu["untrained"] - gathered,
        "gathering": gathered - loop,
        "loop": loop,
        "measuring": cpu["untrained"] - cpu["blind"],
        "rest of a round": cpu["blind"],
        "evaluating": cpu["full"] - cpu["unevaluated"],
        "drawing": cpu["drawing"],
        "moving": cpu["moving"],
        "around": cpu["all"] - cpu["full"] - cpu["drawing"] - cpu["moving"],
    }
    per_round = 1e3 / case.rounds
    return {
        "runs": case.runs,
        "rounds": case.rounds,
        "repeats": repeats,
        "data": found,
        "whole": small,
        "compile_seconds": round(compiling, 1),
        "clock_ms": round(spent["all"].clock * per_round, 3),
        "cpu_ms": round(cpu["all"] * per_round, 3),
        "parts_ms": {
            name: round(max(seconds, 0.0) * per_round, 3) for name, seconds in parts.items()
        },
    }


def draw(federation: Any, algorithm: Algorithm, case: Case, small: bool) -> None:
    """All blocks of a run, drawn and thrown away."""
    planner = Planner(federation, algorithm.work, [algorithm.select], seeds=Seeds(), dropout=0.0)
    blocks = Blocks(
        planner,
        rounds=case.rounds,
        every=0,
        runs=case.runs,
        cells=1,
        most=block_rounds(case.rounds, small),
    )
    start: int | None = 0
    while start is not None and (ahead := blocks.next(start)):
        start = ahead.stop


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the parts of a simulation.")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--only", default=",".join(WORKLOADS), help="workloads, separated by commas"
    )
    parser.add_argument(
        "--quick", action="store_true", help="two rounds and few runs, to see that it works"
    )
    parser.add_argument("--json", type=Path, help="where to keep the results")
    given = parser.parse_args()
    program_cache.record_compile_times()
    found: dict[str, Any] = {}
    for case in cases(given.only.split(","), given.quick):
        try:
            found[case.title] = measure(case, given.repeats)
        except MissingData as error:
            print(f"{case.title}: {error}")
            continue
        print(f"{case.title}: {found[case.title]}", flush=True)
    kept = {
        "command": "python benchmarks/where_time_goes.py",
        "date": datetime.date.today().isoformat(),
        "machine": machine.description() | {"device": jax.devices()[0].device_kind},
        "versions": machine.versions("evenly", "jax", "jaxlib", "numpy"),
        "cases": found,
    }
    print(table(kept))
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()

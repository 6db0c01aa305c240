"""evenly: one run, or a sweep in one call. Everything that `simulate` does is timed: drawing
cohorts and batches, moving the data, and evaluating every client before the first round and after
the last.

`apart`: the workload has few rounds, so that two evaluations would be most of what is timed. The
time is then that of all rounds less that of one round, which evaluates as often; of one, the least
so far, because a slow one would flatter evenly.
"""

import os
import time

os.environ["EVENLY_COMPILED"] = "off"  # programs kept from before would hide what compiling takes

import jax
import workloads
from plan import Plan
from protocol import Ran, serve

from evenly.simulate import simulate

COMPILING = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)


class Evenly:
    def __init__(self, plan: Plan, runs: int = 1, every: int = 0, apart: bool = False) -> None:
        workload = workloads.WORKLOADS[plan.workload]
        self.kind, self.every, self.apart, self.least = workload.kind, every, apart, float("inf")
        self.federation, _ = workload.data()
        self.task, self.algorithms = workload.task(self.federation), workload.algorithms(runs)
        self.compiling = 0.0
        jax.monitoring.register_event_duration_secs_listener(self.hear)

    def hear(self, event: str, seconds: float, **_: object) -> None:
        self.compiling += seconds * (event in COMPILING)

    def run(self, rounds: int) -> Ran:
        if self.apart and rounds > 1:
            self.least = min(self.least, self.trained(1)[1])
        model, whole, compiling = self.trained(rounds)
        facts = {"whole_seconds": whole, "compile_seconds": compiling}
        return (
            Ran(model, whole - self.least, rounds - 1, facts)
            if self.apart and rounds > 1
            else Ran(model, whole, rounds, facts)
        )

    def trained(self, rounds: int) -> tuple[list, float, float]:
        """The model, the seconds that it took, and how many of them were spent compiling."""
        self.compiling, begun = 0.0, time.perf_counter()
        trace = simulate(
            self.task, self.federation, self.algorithms, rounds, evaluate_every=self.every
        )[0]
        seconds = time.perf_counter() - begun
        return workloads.parts(self.kind, trace.model), seconds, self.compiling


if __name__ == "__main__":
    serve(Evenly, "evenly", "jax", "jaxlib", "numpy")

"""Who takes part: one entry for each contender, its file in `contenders/`, and the packages that it
is pinned to.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import machine
from environment import python_with
from workloads import TOGETHER

TORCH, NUMPY = "torch==2.13.0", "numpy==2.4.6"
EVERYWHERE, LINEAR = ("synthetic", "adult", "lenet"), ("synthetic", "adult")


class Entry(NamedTuple):
    """One contender."""

    name: str
    title: str
    file: str
    pins: tuple[str, ...] = ()  # of an environment of its own; none: this one
    here: str = ""  # a package that makes the environment unnecessary where it is installed already
    options: Mapping[str, Any] = {}
    workloads: tuple[str, ...] = LINEAR
    peer: bool = True  # a framework or PyTorch, that evenly is compared with
    short: bool = True  # fast enough for `--short`
    threads: tuple[int, ...] = (1, 2)
    check: str = "given"  # how it is shown to learn the same: see `measuring.checked`
    # it compiles for what it meets, so that its first call and its trial have as many rounds as a
    # repetition
    whole: bool = False
    family: bool = False  # it starts processes of its own
    # of a repetition, where it is too slow for the workload's own number
    rounds: Mapping[str, int] = {}
    repeats: int = 100  # at most

    @property
    def runs(self) -> int:
        return self.options.get("runs", 1)

    def python(self) -> str | None:
        """The interpreter of its environment; None: this one."""
        needed = self.pins and not (self.here and self.here in machine.versions(self.here))
        return (
            str(python_with(self.name if not self.here else self.here, self.pins))
            if needed
            else None
        )


def torch(name: str, title: str, **more: Any) -> Entry:
    return Entry(name, title, f"{name}.py", (TORCH, NUMPY), here="torch", **more)


FEWER = {"adult": 20}
EVENLY = {"peer": False, "whole": True}
LINEUP = (
    Entry("evenly", "evenly, one run", "with_evenly.py", workloads=LINEAR, check="first", **EVENLY),
    Entry(
        "evenly",
        "evenly",
        "with_evenly.py",
        workloads=("lenet",),
        check="first",
        options={"apart": True},
        threads=(2,),
        **EVENLY,
    ),
    Entry(
        f"evenly{TOGETHER}",
        f"evenly, each of {TOGETHER} runs together",
        "with_evenly.py",
        options={"runs": TOGETHER},
        **EVENLY,
    ),
    Entry(
        "evenly_evaluating",
        "evenly, evaluating after every round",
        "with_evenly.py",
        options={"every": 1},
        workloads=("adult",),
        short=False,
        **EVENLY,
    ),
    Entry("c", "C, one core, one run", "with_c.py", peer=False, threads=(1,), check="drawn"),
    Entry(
        "fedjax",
        "fedjax 0.0.17",
        "with_fedjax.py",
        (
            "fedjax==0.0.17",
            "jax==0.4.30",
            "jaxlib==0.4.30",
            "optax==0.2.3",
            "dm-haiku==0.0.12",
            "numpy==1.26.4",
            "scipy==1.13.1",
        ),
        workloads=EVERYWHERE,
        check="drawn",
        whole=True,
        rounds={"lenet": 1},
    ),
    torch("torch_batched", "PyTorch, clients batched by hand", rounds={"adult": 50}),
    torch("torch_lean", "PyTorch, lean loop", rounds=FEWER),
    torch("torch_optimiser", "PyTorch, plain loop", workloads=EVERYWHERE, rounds=FEWER),
    torch(
        "torch_vmap",
        "PyTorch, torch.func vmap",
        workloads=EVERYWHERE,
        short=False,
        rounds={"adult": 10, "lenet": 1},
    ),
    Entry(
        "pfl",
        "pfl 0.6.0",
        "with_pfl.py",
        ("pfl==0.6.0", TORCH, NUMPY),
        short=False,
        rounds={"synthetic": 50, "adult": 10},
        repeats=3,
    ),
    Entry(
        "flgo",
        "flgo 0.4.4",
        "with_flgo.py",
        ("flgo==0.4.4", TORCH, NUMPY),
        short=False,
        check="accuracy",
        rounds={"synthetic": 40, "adult": 10},
        repeats=3,
    ),
    Entry(
        "flower",
        "Flower 1.41, simulation on Ray",
        "with_flower.py",
        ("flwr[simulation]==1.41.0", "ray==2.55.1", NUMPY),
        short=False,
        threads=(2,),
        family=True,
        rounds={"synthetic": 10, "adult": 10},
        repeats=2,
    ),
    Entry(
        "fluke",
        "fluke 0.8.1",
        "with_fluke.py",
        ("fluke-fl==0.8.1", TORCH, NUMPY),
        workloads=("adult",),
        short=False,
        check="accuracy",
        rounds={"adult": 10},
        repeats=3,
    ),
)


def of(workload: str, only: set[str] | None = None, *, short: bool = False) -> list[Entry]:
    """The contenders of a workload, or those of them that are asked for."""
    known = {entry.name for entry in LINEUP}
    if only and only - known:
        raise ValueError(
            f"Contenders must be some of {', '.join(sorted(known))}, got"
            f" {', '.join(sorted(only - known))}."
        )
    there = [entry for entry in LINEUP if workload in entry.workloads]
    return [
        entry
        for entry in there
        if entry.name == "evenly" or (entry.name in only if only else entry.short or not short)
    ]

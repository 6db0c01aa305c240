"""Simulations that tests share, and how two of them are compared."""

from typing import Any

import jax
import numpy as np

from evenly.algorithms import METHODS, variants
from evenly.data.federation import Federation
from evenly.models import MLP
from evenly.notation import parse_list
from evenly.parts.sampling import Weighted
from evenly.simulate import simulate
from evenly.types import Algorithm, Seeds, Task, Trace

COHORT = Weighted(clients=3)  # of six: small enough that rounds differ
COMMON = {"batch_size": 5}  # several batches for most clients, the last one partial


def algorithms(text: str) -> list[Algorithm]:
    """Every run that the notation stands for, with the sampling and batches of the tests unless it
    names others.
    """
    return [
        m
        for composition in parse_list(text)
        for v in variants(composition, COMMON, COHORT)
        for m in v.members
    ]


def task_for(name: str, task: Task, federation: Federation) -> Task:
    """The task, or for methods that rank edges a small network that has nothing but edges."""
    if METHODS[name].network is None:
        return task
    return MLP(
        features=federation.x.shape[1], classes=len(federation.labels), hidden=(6,), bias=False
    )


class Simulated:
    """simulated(text, rounds=...) is the trace of one run; simulated.all(...) those of several runs
    made together.
    """

    def __init__(self, task: Task, federation: Federation) -> None:
        self.task, self.federation = task, federation
        self._made: dict[str, list[Trace]] = {}

    def __call__(self, text: str, rounds: int, **options: Any) -> Trace:
        (trace,) = self.all(text, rounds, **options)
        return trace

    def all(self, text: str, rounds: int, **options: Any) -> list[Trace]:
        name = f"{text} {rounds} {options}"
        if name not in self._made:
            self._made[name] = simulate(
                self.task,
                self.federation,
                algorithms(text),
                rounds,
                **{"seeds": Seeds(), **options},
            )
        return self._made[name]


def flat(model: Any) -> np.ndarray:
    """A model as one vector; for softmax regression the weights, row by row, then the biases."""
    leaves = model if isinstance(model, list) else [model]
    ordered = [leaf[name] for leaf in leaves for name in ("w", "b") if name in leaf]
    return np.concatenate([np.asarray(a, np.float64).ravel() for a in ordered])


def same_bits(a: Trace, b: Trace, *, stored: bool = False) -> None:
    """Fail unless two traces are equal to the last bit, everywhere but in the names of their
    methods; with `stored`, in all that folders keep.
    """
    gone = {"returned": None, "public": ()} if stored else {}
    a, b = (trace._replace(method="", **gone) for trace in (a, b))
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for name in Trace._fields:
        for x, y in zip(
            jax.tree.leaves(getattr(a, name)), jax.tree.leaves(getattr(b, name)), strict=True
        ):
            np.testing.assert_array_equal(x, y, err_msg=name)
            assert np.asarray(x).dtype == np.asarray(y).dtype, name

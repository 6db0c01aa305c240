"""Estimate what a plan needs before it runs: the number of programs, and memory from the shapes of
arrays.

Training time is not estimated, because it is unknown until something was trained.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from evenly.datasets.load import refuse_large
from evenly.experiment.execute import SeedSetting, adapt_member
from evenly.experiment.folder import Store
from evenly.experiment.plan import Plan, Program, members_of, programs
from evenly.models.task import skeleton
from evenly.simulate import worth_batching
from evenly.types import Algorithm, Seeds, Task


class PlanEstimate(NamedTuple):
    """Sizes that are shown before a long run."""

    methods: int
    seeds: int
    rounds: int
    programs: int
    finished: int  # programs that are there already
    compiled: int  # programs that must be compiled: the same one serves all seeds
    clients: int
    rows: int
    data_bytes: int  # of one seed
    parameters: int  # of the largest model
    state_bytes: int  # models and what clients remember, of the largest program
    at_once: int  # programs that run side by side

    @property
    def bytes(self) -> int:
        """Memory of all programs that run in parallel, without batches and temporary arrays of
        compiled code.
        """
        return self.at_once * (self.data_bytes + self.state_bytes)


def estimate(plan: Plan, first: SeedSetting, folder: Path | None = None) -> PlanEstimate:
    """Estimate a plan whose first seed is loaded. Programs that are stored in `folder` count as
    finished.
    """
    every = list(programs(plan, first.task, folder))
    left = [
        program
        for program in every
        if not (folder and Store.traces_in(folder, program.keys).exists())
    ]
    members = [adapt_member(member, first.federation) for member in members_of(plan)]
    return PlanEstimate(
        methods=len(plan.variants()),
        seeds=len(plan.seeds),
        rounds=plan.rounds,
        programs=len(every),
        finished=len(every) - len(left),
        compiled=len({program.members for program in left}),
        clients=first.federation.clients,
        rows=len(first.federation.y),
        data_bytes=_bytes(first.federation),
        parameters=max(_numbers(_model(first.task, member)) for member in members),
        state_bytes=max((_state(first, members, program) for program in every), default=0),
        at_once=_at_once(plan, first.task, max(len(program.members) for program in every)),
    )


def refuse_large_models(plan: Plan, first: SeedSetting) -> None:
    """Raise ValueError if models and client states do not fit into the memory that is left beside
    the data.
    """
    if jax.default_backend() != "cpu":
        return  # they lie on the device, which says itself what it can hold
    needed = estimate(plan, first).state_bytes
    refuse_large(
        needed,
        "Training these methods",
        "Choose a smaller model, fewer clients, or methods whose clients keep no model of their"
        " own.",
    )


def _at_once(plan: Plan, task: Task, runs: int) -> int:
    """Seeds that train in parallel: one per core, or all of them if they advance together."""
    cores = len(plan.seeds) if worth_batching(task, runs) else os.cpu_count() or 1
    return min(len(plan.seeds), cores)


def _state(first: SeedSetting, members: Sequence[Algorithm], program: Program) -> int:
    """Bytes of the models of a program and of the state that each client keeps."""
    total = 0
    for i in program.members:
        model = _model(first.task, members[i])
        memory = jax.eval_shape(members[i].work.remember, model)
        models = (members[i].rule.groups or 1) * _bytes(model)
        total += models + first.federation.clients * _bytes(memory)
    return total


def _model(task: Task, member: Algorithm) -> Any:
    return skeleton(member.task(task, Seeds()))


def _bytes(tree: Any) -> int:
    return sum(
        int(np.prod(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
        if hasattr(leaf, "dtype")
    )


def _numbers(tree: Any) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))

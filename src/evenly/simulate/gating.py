"""The gates of runs that are private for clients: one for each rule group."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from evenly import trees
from evenly.data.federation import Census
from evenly.models.task import skeleton
from evenly.privacy import gate
from evenly.privacy.claims import gate_of
from evenly.privacy.gate import ClientGate, Guard, round_key
from evenly.simulate.layout import GateRecord, RuleGroup
from evenly.simulate.training import Cohort, CohortUpdate
from evenly.types import Algorithm, Array, Task, Tree


def gates_of(
    task: Task, algorithms: Sequence[Algorithm], census: Census, rounds: int
) -> list[ClientGate | None]:
    """The gate of each run; None without privacy for clients.

    Raises:
        ValueError: If a method cannot be private, or the model has running statistics.
    """
    gates = [gate_of(algorithm, census, rounds) for algorithm in algorithms]
    if any(gates) and isinstance(skeleton(task), trees.Stateful):
        raise ValueError(
            "The model has running statistics, which are averaged without bounds or noise, so that"
            " +dp(unit=client) cannot protect clients. Choose a model without batch norm."
        )
    return gates


def first_gates(groups: Sequence[RuleGroup], publics: Sequence[Tree]) -> tuple[Tree, ...]:
    """The state of each rule group's gate before the first round; () where it has none."""
    first = tuple(
        () if group.gate is None else jax.vmap(gate.begin)(group.gate, group.rule, public)
        for group, public in zip(groups, publics, strict=True)
    )
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), first)


def clips(cohort: Cohort) -> Array | None:
    """The largest length of a vector in each run, infinite without a gate [runs]; None if no run
    has one.
    """
    groups, states = cohort.inputs.parts.rules, cohort.state.gates
    if not any(group.gate for group in groups):
        return None
    now = {id(group.gate): own.clip for group, own in zip(groups, states, strict=True) if own}
    return _of_gates(cohort, lambda gate: now[id(gate)])


def guards_of(cohort: Cohort) -> list[Guard | None]:
    """The gate of each rule group in this round, stacked over its runs."""
    number = cohort.block.start + cohort.t
    keys = jax.vmap(lambda tag: round_key(cohort.block.seed, number, tag))
    return [
        None if group.gate is None else Guard(group.gate, state, keys(group.gate.tag))
        for group, state in zip(cohort.inputs.parts.rules, cohort.state.gates, strict=True)
    ]


def what_gates_did(
    cohort: Cohort, weight: Array, trained: CohortUpdate, counts: Array
) -> GateRecord | None:
    """The clip of each run, and whose vector or weight was cut."""
    limit = clips(cohort)
    if limit is None:
        return None
    weight = weight if weight.ndim == 2 else weight.max(1)
    norm = jnp.sqrt(jnp.where(counts, trained.square_norm, 0.0))
    # where all weights are equal, they are at their bound and nothing is cut
    most = _of_gates(cohort, lambda gate: jnp.where(gate.equal, jnp.inf, gate.weight))
    cut = (norm > limit) + 2 * (counts & (weight >= most))
    return GateRecord(jnp.where(jnp.isfinite(limit), limit, 0.0), cut.astype(jnp.int8))


def _of_gates(cohort: Cohort, number: Callable[[ClientGate], Array]) -> Array:
    """A number of the gate of each run, infinite in runs without one. [runs]"""
    shape, groups = cohort.shape, cohort.inputs.parts.rules
    sizes = [shape.bounds[i + 1] - shape.bounds[i] for i in range(len(groups))]
    return jnp.concatenate(
        [
            jnp.broadcast_to(jnp.inf if group.gate is None else number(group.gate), size)
            for group, size in zip(groups, sizes, strict=True)
        ]
    )

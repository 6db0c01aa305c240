"""Signals of clients whose rows are private: noised, and kept until they are measured anew.

A client releases its signals when it takes part for the first time, and again when its last release
is `every` rounds old. In between, the rule reads what was released last. Numbers that never change
are released once: their noise has a key that does not depend on the round.

`evenly.parts.row_privacy` says how much noise there is. Deployed clients do the same with random
numbers of their own (`evenly.flower.clients.private`); here they follow from the seed of the
batches, so that a simulation can be repeated.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from evenly.parts.row_privacy import (
    ONCE,
    PrivateTraining,
    SignalNoise,
    noised_signals,
    signal_key,
)
from evenly.randomness import gaussian
from evenly.simulate.layout import RunParts, Shape
from evenly.types import Array, Signals, Tree, Work

NEVER_RELEASED = -(2**30)


class Released(NamedTuple):
    """The last release of each client in the runs of a rule group."""

    round: Array  # int32 [clients, runs], or [runs] of one client
    values: dict[str, Array]  # [clients, ..., runs] by name, without those that never change


def noise_of(work: Work) -> SignalNoise | None:
    """How the signals of clients are noised; None: they are not."""
    return work.signals if isinstance(work, PrivateTraining) else None


def bounded_losses(work: Work, losses: Array) -> Array:
    """Losses of rows [n, runs], between 0 and the bound where rows are private."""
    noise = noise_of(work)
    if noise is None:
        return losses
    bound = jnp.asarray(noise.loss_bound)[-losses.shape[1] :]
    return jnp.clip(jnp.where(jnp.isnan(losses), bound, losses), 0.0, bound)


def first(parts: RunParts, shape: Shape) -> tuple[Tree, ...]:
    """The releases of a client that has not taken part yet, for each rule group."""
    if noise_of(parts.work) is None:
        return tuple(() for _ in parts.rules)
    forms = {
        "loss": (), "cell_loss": (shape.groups, shape.labels),
        "table": (shape.groups, shape.labels, shape.labels),
        "valid_table": (shape.groups, shape.labels, shape.labels),
    }  # fmt: skip
    released = []
    for i, group in enumerate(parts.rules):
        runs = shape.runs_of(i).stop - shape.runs_of(i).start
        values = {
            name: jnp.zeros((*forms[name], runs))
            for name in noised_signals(group.rule.needs)
            if name not in ONCE
        }
        released.append(Released(jnp.full(runs, NEVER_RELEASED, jnp.int32), values))
    return tuple(released)


def release(cohort: Any, i: int, signals: Signals, axes: Any) -> tuple[Signals, Any, Tree]:
    """The signals of rule group i as clients release them, with the axes of their runs and the
    releases of all clients.
    """
    noise = noise_of(cohort.inputs.parts.work)
    if noise is None:
        return signals, axes, ()
    before, names = (
        cohort.state.memory.released[i],
        noised_signals(cohort.inputs.parts.rules[i].rule.needs),
    )
    if not names:
        return signals, axes, before
    runs = cohort.shape.runs_of(i)
    noise = jax.tree.map(lambda leaf: leaf[runs], noise)
    number, position = cohort.block.start + cohort.t, cohort.block.position[cohort.t]
    due = number - before.round[position] >= noise.every  # [K, runs]
    fresh = {}
    for j, name in enumerate(names):
        value = getattr(signals, name)
        if getattr(axes, name) is None:
            value = jnp.repeat(value[..., None], runs.stop - runs.start, -1)
        keys = _keys(cohort, j, 0 if name in ONCE else number)
        draw = jax.vmap(lambda key, own: gaussian(key, own.shape[:-1]))(keys, value)
        scale = noise.deviation(name, len(names))
        if name == "loss" and cohort.inputs.task.reduction == "mean":
            scale = scale / jnp.maximum(signals.examples, 1.0)[:, None]
        fresh[name] = jnp.maximum(value + scale * draw[..., None], 0.0)
    took_part = signals.returned
    kept = {
        name: jnp.where(_along(due, fresh[name]), fresh[name], values[position])
        for name, values in before.values.items()
    }
    at = jnp.where(took_part.any(-1), position, cohort.shape.clients)
    put = lambda leaf, new: leaf.at[at].set(new, mode="drop")  # noqa: E731
    stays = lambda leaf, new: jnp.where(_along(took_part, new), new, leaf[position])  # noqa: E731
    last = jnp.where(due, number, before.round[position]).astype(jnp.int32)
    after = Released(
        put(before.round, stays(before.round, last)),
        {name: put(before.values[name], stays(before.values[name], kept[name])) for name in kept},
    )
    sent = {name: kept.get(name, fresh[name]) for name in names}
    return signals._replace(**sent), axes._replace(**dict.fromkeys(names, -1)), after


def _keys(cohort: Any, place: int, number: Any) -> Array:
    """A key for each slot of the cohort. All runs share its random numbers."""
    clients = cohort.block.cohort[cohort.t]
    return jax.vmap(lambda client: signal_key(cohort.block.seed, number, client, place))(clients)


def _along(condition: Array, values: Array) -> Array:
    """A condition [K, runs], shaped so that it broadcasts against values [K, ..., runs]."""
    middle = (1,) * (values.ndim - 2)
    return condition.reshape(condition.shape[0], *middle, condition.shape[1])

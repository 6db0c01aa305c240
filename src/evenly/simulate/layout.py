"""How the arrays of a compiled program lie: the data, the block of rounds, the runs."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from evenly.types import Array, Rule, Server, Shard, Tree, Work


class Parts(NamedTuple):
    """The parts of an algorithm that run on the device, leaves stacked over runs."""

    work: Work
    rule: Rule
    server: Server | None


class Data(NamedTuple):
    """The federation on the device. The last row of every table is padding."""

    x: Array
    y: Array
    group: Array
    weight: Array | None
    train_rows: Array  # [train]
    train_start: Array  # [clients + 1]
    eval_rows: Array  # [evaluated rows]
    eval_owner: Array  # [evaluated rows] split * clients + client; the central test set comes last
    eval_start: Array  # [owners + 1]
    examples: Array  # [clients] training rows, float


class State(NamedTuple):
    """Everything that one round hands to the next."""

    model: Tree
    rule: Tree
    server: Tree
    memory: Tree
    excluded: Array  # int32 [clients, runs]
    broken: Array  # int32 [runs] first round whose weights were not finite, or a huge number


class Shape(NamedTuple):
    """What shapes the program; hashable."""

    runs: int
    axis: int  # of the runs in every parameter: -1 (joint) or 0
    clients: int
    groups: int
    labels: int
    lanes: int  # clients that train side by side
    chunk: int  # rows read at a time when clients measure their loss
    eval_chunk: int

    @property
    def owners(self) -> int:
        return 3 * self.clients + 1


NEVER = 2**31 - 1


def shard(data: Data, rows: Array) -> Shard:
    """The rows with these numbers; padding has mask 0."""
    mask = (rows < data.y.shape[0] - 1).astype(jnp.float32)
    weight = jnp.ones_like(mask) if data.weight is None else data.weight[rows]
    return Shard(data.x[rows], data.y[rows], data.group[rows], weight, mask)


def plain(batch: Shard) -> Shard:
    """The same rows without their weights: losses that are reported are never reweighed."""
    return batch._replace(weight=jnp.ones(batch.mask.shape))


def each(function: Any, shape: Shape, parts: Parts, *per_run: Tree) -> Tree:
    """Apply a function of (parts, parameters...) to every run: directly where the model is joint, else vmapped."""
    if shape.axis == -1:
        return function(parts, *per_run)
    return jax.vmap(function, (0, *(0 for _ in per_run)))(parts, *per_run)


def runs_last(value: Array, shape: Shape) -> Array:
    return value if shape.axis == -1 else jnp.moveaxis(value, 0, -1)

"""Clients look at the model they received, before training: its loss, and its counts by group, label and outcome."""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from evenly.models.linear import over_runs
from evenly.simulate.layout import Data, Shape, each, plain, runs_last, shard
from evenly.simulate.multidevice import shared_loop
from evenly.types import Array, Rule, Task, Tree

ON_TRAINING_ROWS = frozenset({"loss", "table", "cell_loss"})  # signals that take a look at every training row
MEASURED = ON_TRAINING_ROWS | {"valid_table"}  # or at every validation row
MOST_CELLS = 512  # up to here a product with a one-hot is cheaper than a scatter


class Measured(NamedTuple):
    """What a cohort measured. Runs come last; what nobody needs is None."""

    loss: Array | None  # [K, runs] mean (or summed) loss
    table: Array | None  # [K, groups, labels, outcomes, runs] counts
    cell_loss: Array | None  # [K, groups, labels, runs] summed losses
    valid_table: Array | None = None  # [K, groups, labels, outcomes, runs] counts of validation rows


class Lists(NamedTuple):
    """Which rows are whose."""

    rows: Array  # [rows] end to end
    start: Array  # [clients + 1]


def uses_validation(rules: Iterable[Rule]) -> bool:
    """Whether any of these rules makes clients look at validation rows."""
    return any("valid_table" in rule.needs for rule in rules)


def measured(task: Task, shape: Shape, data: Data, model: Tree, cohort: Array, needs: frozenset[str]) -> Measured:
    """What these needs ask for, of the models that each client received, on all its training rows and all its validation rows."""
    found, training = Measured(None, None, None), needs & ON_TRAINING_ROWS
    if training:
        found = _looked(task, shape, data, Lists(data.train_rows, data.train_start), model, cohort, training)
    if "valid_table" in needs:
        assert data.valid_rows is not None and data.valid_start is not None  # noqa: PT018
        held_out = Lists(data.valid_rows, data.valid_start)
        found = found._replace(valid_table=_looked(task, shape, data, held_out, model, cohort, frozenset({"table"})).table)
    return found


def _looked(task: Task, shape: Shape, data: Data, lists: Lists, model: Tree, cohort: Array, needs: frozenset[str]) -> Measured:
    """The cohort's rows are read as one list, in chunks that may span several clients."""
    slots, runs = cohort.shape[0], _runs(shape, model)
    counts = lists.start[cohort + 1] - lists.start[cohort]
    ends = jnp.cumsum(counts)
    cells = slots * shape.groups * shape.labels
    # A scatter also keeps this loop from being compiled as one function, in which products of so many rows are slow.
    summed = partial(summed_by, scatter=shape.whole)

    def chunk(i: Array, sums: Measured) -> Measured:
        at = i * shape.chunk + jnp.arange(shape.chunk)
        slot = jnp.searchsorted(ends, at, side="right")  # K past the last row
        owner = jnp.minimum(slot, slots - 1)
        row = lists.rows[jnp.minimum(lists.start[cohort[owner]] + at - (ends - counts)[owner], lists.rows.shape[0] - 1)]
        batch = plain(shard(data, jnp.where(at < ends[-1], row, data.y.shape[0] - 1)))
        cell = (slot * shape.groups + batch.group) * shape.labels + batch.y
        loss, table, cell_loss, _ = sums
        if loss is not None or cell_loss is not None:
            own = runs_last(each(lambda m: task.losses(m, batch), shape.axis, model), shape.axis)  # [chunk, runs]
            own = own * over_runs(batch.mask, own)
            loss = None if loss is None else loss + jax.ops.segment_sum(own, slot, slots)
            cell_loss = None if cell_loss is None else cell_loss + summed(cell, own, cells)
        if table is not None:
            outcome = runs_last(each(lambda m: task.predict(m, batch.x), shape.axis, model), shape.axis)
            hot = (outcome[:, None, :] == jnp.arange(shape.labels)[:, None]) & (batch.mask > 0)[:, None, None]
            table = table + summed(cell, hot.astype(jnp.float32), cells)
        return Measured(loss, table, cell_loss)

    zeros = Measured(
        jnp.zeros((slots, runs)) if "loss" in needs else None,
        jnp.zeros((cells, shape.labels, runs)) if "table" in needs else None,
        jnp.zeros((cells, runs)) if "cell_loss" in needs else None,
    )
    loss, table, cell_loss, _ = shared_loop(shape, (ends[-1] + shape.chunk - 1) // shape.chunk, chunk, zeros)
    if loss is not None:
        penalty = jnp.broadcast_to(each(lambda m: jnp.asarray(task.penalty(m), jnp.float32), shape.axis, model), (runs,))
        loss = (loss / counts[:, None] if task.reduction == "mean" else loss) + penalty
    by_cell = (slots, shape.groups, shape.labels)
    return Measured(
        loss,
        None if table is None else table.reshape(*by_cell, shape.labels, runs),
        None if cell_loss is None else cell_loss.reshape(*by_cell, runs),
    )


def summed_by(cell: Array, values: Array, cells: int, *, scatter: bool = False) -> Array:
    """Sums of values [n, ...] by the cell of each row; rows of no cell are left out. Counts below 2**24 stay exact."""
    if scatter or cells > MOST_CELLS:
        return jax.ops.segment_sum(values, cell, cells)
    hot = (cell == jnp.arange(cells)[:, None]).astype(jnp.float32)
    flat = jnp.dot(hot, values.reshape(values.shape[0], -1), precision="highest")
    return flat.reshape(cells, *values.shape[1:])


def _runs(shape: Shape, model: Tree) -> int:
    return jax.tree.leaves(model)[0].shape[shape.axis]

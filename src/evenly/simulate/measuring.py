"""Clients look at the model they received, before training."""

import jax
import jax.numpy as jnp
from jax import lax

from evenly.models.linear import over_runs
from evenly.simulate.layout import Data, Parts, Shape, each, plain, runs_last, shard
from evenly.types import Array, Task, Tree


def measured_losses(task: Task, shape: Shape, parts: Parts, data: Data, model: Tree, cohort: Array) -> Array:
    """Each client's loss of the model it received, on all its training rows. [K, runs]

    The cohort's rows are read as one list, in chunks that may span several clients.
    """
    counts = data.train_start[cohort + 1] - data.train_start[cohort]
    ends = jnp.cumsum(counts)

    def chunk(i: Array, total: Array) -> Array:
        at = i * shape.chunk + jnp.arange(shape.chunk)
        slot = jnp.searchsorted(ends, at, side="right")  # K past the last row
        owner = jnp.minimum(slot, cohort.shape[0] - 1)
        row = data.train_rows[jnp.minimum(data.train_start[cohort[owner]] + at - (ends - counts)[owner], data.train_rows.shape[0] - 1)]
        batch = plain(shard(data, jnp.where(at < ends[-1], row, data.y.shape[0] - 1)))
        loss = runs_last(each(lambda _, m: task.losses(m, batch), shape, parts, model), shape)  # [chunk, runs]
        return total + jax.ops.segment_sum(loss * over_runs(batch.mask, loss), slot, cohort.shape[0])

    total = lax.fori_loop(0, (ends[-1] + shape.chunk - 1) // shape.chunk, chunk, jnp.zeros((cohort.shape[0], shape.runs)))
    penalty = jnp.broadcast_to(each(lambda _, m: jnp.asarray(task.penalty(m), jnp.float32), shape, parts, model), (shape.runs,))
    return (total / counts[:, None] if task.reduction == "mean" else total) + penalty

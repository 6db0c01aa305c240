"""Clients look at the model they received, before training."""

import jax.numpy as jnp
from jax import lax

from evenly.clients.local_training import summed_loss
from evenly.simulate.layout import Data, Parts, Shape, each, plain, shard
from evenly.types import Array, Task, Tree


def measured_losses(task: Task, shape: Shape, parts: Parts, data: Data, model: Tree, cohort: Array) -> Array:
    """Each client's loss of the model it received, on all its training rows. [K, runs]"""

    def chunk(i: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        total, start, stop = carry
        at = start + i * shape.chunk + jnp.arange(shape.chunk)
        rows = jnp.where(at < stop, data.train_rows[jnp.minimum(at, stop - 1)], data.y.shape[0] - 1)
        batch = plain(shard(data, rows))
        return total + each(lambda _, m: summed_loss(task, m, batch), shape, parts, model), start, stop

    def client(k: Array) -> Array:
        start, stop = data.train_start[k], data.train_start[k + 1]
        chunks = (stop - start + shape.chunk - 1) // shape.chunk
        total, _, _ = lax.fori_loop(0, chunks, chunk, (jnp.zeros(shape.runs), start, stop))
        return total / (stop - start) if task.reduction == "mean" else total

    penalty = jnp.broadcast_to(each(lambda _, m: jnp.asarray(task.penalty(m), jnp.float32), shape, parts, model), (shape.runs,))
    return lax.map(client, cohort) + penalty

"""Count what the served models predict: by split, client, group, label and outcome."""

import jax
import jax.numpy as jnp
from jax import lax

from evenly import trees
from evenly.simulate.layout import Data, Parts, Shape, State, each, plain, runs_last, shard
from evenly.simulate.multidevice import shared_loop
from evenly.types import Array, Task, Tree

Counts = tuple[Array, Array]  # tables [cells, outcomes, runs] and summed losses [owners, runs]


def evaluated(task: Task, shape: Shape, parts: Parts, data: Data, state: State) -> Counts:
    """Tables by owner, group, label and outcome, and summed losses by owner, on all evaluated rows."""
    cells = shape.owners * shape.groups * shape.labels
    empty = jnp.zeros((cells, shape.labels, shape.runs), jnp.int32), jnp.zeros((shape.owners, shape.runs))
    model = served(shape, parts, state)
    if jax.tree.leaves(state.memory):
        tables, losses = _client_by_client(task, shape, parts, data, state, model, empty)
    else:
        tables, losses = _all_at_once(task, shape, data, model, empty)
    return tables.reshape(shape.owners, shape.groups, shape.labels, shape.labels, shape.runs), losses


def served(shape: Shape, parts: Parts, state: State) -> Tree:
    """The shared model that clients are given to use: the last one, or what the server makes of all."""
    if all(band.server is None for band in parts.bands):
        return state.model
    serve = jax.vmap(lambda server, model, own: server.serve(model, own), (0, shape.axis, 0), shape.axis)
    models = [trees.cut(state.model, shape.band(i), shape.axis) for i in range(len(parts.bands))]
    given = zip(parts.bands, models, state.server, strict=True)
    return trees.join([model if band.server is None else serve(band.server, model, own) for band, model, own in given], shape.axis)


def _all_at_once(task: Task, shape: Shape, data: Data, model: Tree, empty: Counts) -> Counts:
    """One model for everybody: rows in large chunks, whoever owns them."""

    def chunk(i: Array, carry: Counts) -> Counts:
        at = i * shape.eval_chunk + jnp.arange(shape.eval_chunk)
        return _count(task, shape, data, model, data.eval_rows[at], data.eval_owner[at], carry)

    return shared_loop(shape, data.eval_rows.shape[0] // shape.eval_chunk, chunk, empty)


def _client_by_client(task: Task, shape: Shape, parts: Parts, data: Data, state: State, model: Tree, empty: Counts) -> Counts:
    """Every client its own model; the central test set (the last owner) sees the shared one."""
    last = data.eval_rows.shape[0] - 1

    def owner(who: Array, carry: Counts) -> Counts:
        memory = jax.tree.map(lambda leaf: leaf[who % shape.clients], state.memory)
        own = each(lambda work, m, mine: work.deploy(m, mine), shape.axis, parts.work, model, memory)
        mine = jax.tree.map(lambda a, b: jnp.where(who < 3 * shape.clients, a, b), own, model)
        start, stop = data.eval_start[who], data.eval_start[who + 1]

        def chunk(i: Array, inner: Counts) -> Counts:
            at = start + i * shape.chunk + jnp.arange(shape.chunk)
            rows = jnp.where(at < stop, data.eval_rows[jnp.minimum(at, last)], data.y.shape[0] - 1)
            return _count(task, shape, data, mine, rows, jnp.where(at < stop, who, shape.owners), inner)

        return lax.fori_loop(0, (stop - start + shape.chunk - 1) // shape.chunk, chunk, carry)

    return shared_loop(shape, shape.owners, owner, empty)


def _count(task: Task, shape: Shape, data: Data, model: Tree, rows: Array, owner: Array, counts: Counts) -> Counts:
    tables, losses = counts
    batch = plain(shard(data, rows))
    outcome = runs_last(each(lambda m: task.predict(m, batch.x), shape.axis, model), shape.axis)  # [n, runs]
    loss = runs_last(each(lambda m: task.losses(m, batch), shape.axis, model), shape.axis)
    hot = (outcome[:, None, :] == jnp.arange(shape.labels)[:, None]) & (batch.mask > 0)[:, None, None]
    cell = (owner * shape.groups + batch.group) * shape.labels + batch.y
    # Rows of padding have no owner: their index is out of range and dropped.
    return tables.at[cell].add(hot.astype(jnp.int32), mode="drop"), losses.at[owner].add(loss, mode="drop")

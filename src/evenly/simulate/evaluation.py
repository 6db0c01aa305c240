"""Count what the served models predict: by split, client, group, label and outcome.

Rows are read list by list; owners that share a list of rows, and a model, are given the same counts.
"""

import jax
import jax.numpy as jnp
from jax import lax

from evenly import trees
from evenly.models.task import judged
from evenly.simulate.layout import Data, Parts, Shape, State, each, plain, runs_last, shard
from evenly.simulate.multidevice import shared_loop
from evenly.types import Array, Task, Tree

Counts = tuple[Array, Array]  # tables [cells, outcomes, runs] and summed losses [lists, runs]; or by owner


def evaluated(task: Task, shape: Shape, parts: Parts, data: Data, state: State) -> Counts:
    """Tables by owner, group, label and outcome, and summed losses by owner, on all evaluated rows."""
    model = served(shape, parts, state)
    if jax.tree.leaves(state.memory):
        return by_cell(shape, _client_by_client(task, shape, parts, data, state, model))
    tables, losses = by_cell(shape, _all_at_once(task, shape, data, model))
    return (tables, losses) if data.eval_shared is None else (tables[data.eval_shared], losses[data.eval_shared])


def nothing_counted(shape: Shape, lists: int, runs: int) -> Counts:
    cells = lists * shape.groups * shape.labels
    return jnp.zeros((cells, shape.labels, runs), jnp.int32), jnp.zeros((lists, runs))


def by_cell(shape: Shape, counts: Counts) -> Counts:
    """Tables with an axis each for lists, groups, labels and outcomes."""
    tables, losses = counts
    return tables.reshape(-1, shape.groups, shape.labels, shape.labels, losses.shape[-1]), losses


def served(shape: Shape, parts: Parts, state: State) -> Tree:
    """The shared model that clients are given to use: the last one, or what the server makes of all."""
    if all(band.server is None for band in parts.bands):
        return state.model
    serve = jax.vmap(lambda server, model, own: server.serve(model, own), (0, shape.axis, 0), shape.axis)
    models = [trees.cut(state.model, shape.band(i), shape.axis) for i in range(len(parts.bands))]
    given = zip(parts.bands, models, state.server, strict=True)
    return trees.join([model if band.server is None else serve(band.server, model, own) for band, model, own in given], shape.axis)


def _all_at_once(task: Task, shape: Shape, data: Data, model: Tree) -> Counts:
    """One model for everybody: rows in large chunks, whoever owns them."""
    empty = nothing_counted(shape, shape.lists, shape.runs)

    def chunk(i: Array, carry: Counts) -> Counts:
        at = i * shape.eval_chunk + jnp.arange(shape.eval_chunk)
        return counted(task, shape, data, model, data.eval_rows[at], data.eval_list[at], carry)

    return shared_loop(shape, data.eval_rows.shape[0] // shape.eval_chunk, chunk, empty)


def _client_by_client(task: Task, shape: Shape, parts: Parts, data: Data, state: State, model: Tree) -> Counts:
    """Every client its own model; the central test set (the last owner) sees the shared one."""
    empty = nothing_counted(shape, shape.owners, shape.runs)
    last = data.eval_rows.shape[0] - 1

    def owner(who: Array, carry: Counts) -> Counts:
        memory = jax.tree.map(lambda leaf: leaf[who % shape.clients], state.memory)
        own = each(lambda work, m, mine: work.deploy(m, mine), shape.axis, parts.work, model, memory)
        mine = jax.tree.map(lambda a, b: jnp.where(who < 3 * shape.clients, a, b), own, model)
        own_list = who if data.eval_shared is None else data.eval_shared[who]
        start, stop = data.eval_start[own_list], data.eval_start[own_list + 1]

        def chunk(i: Array, inner: Counts) -> Counts:
            at = start + i * shape.chunk + jnp.arange(shape.chunk)
            rows = jnp.where(at < stop, data.eval_rows[jnp.minimum(at, last)], data.y.shape[0] - 1)
            return counted(task, shape, data, mine, rows, jnp.where(at < stop, who, shape.owners), inner)

        return lax.fori_loop(0, (stop - start + shape.chunk - 1) // shape.chunk, chunk, carry)

    return shared_loop(shape, shape.owners, owner, empty)


def counted(task: Task, shape: Shape, data: Data, model: Tree, rows: Array, of_list: Array, counts: Counts) -> Counts:
    """Counts with those of some more rows, each of the list with this number."""
    tables, losses = counts
    batch = plain(shard(data, rows))
    loss, outcome = (runs_last(found, shape.axis) for found in each(lambda m: judged(task, m, batch), shape.axis, model))  # [n, runs]
    hot = (outcome[:, None, :] == jnp.arange(shape.labels)[:, None]) & (batch.mask > 0)[:, None, None]
    cell = (of_list * shape.groups + batch.group) * shape.labels + batch.y
    # Rows of padding are in no list: their index is out of range and dropped.
    return tables.at[cell].add(hot.astype(jnp.int32), mode="drop"), losses.at[of_list].add(loss, mode="drop")

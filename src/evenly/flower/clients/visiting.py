"""One visit to a client in JAX: look at the model that was received, choose among several, train. Nothing here knows Flower.

Batches have one shape, whatever the client, so that each of the functions below is compiled once in a process.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenly import trees
from evenly.flower.clients.batches import PADDING, batches_of
from evenly.flower.clients.data import ClientData, Rows
from evenly.flower.clients.measuring import Look, Seen
from evenly.flower.clients.told import Told
from evenly.groups import chooser
from evenly.ranking import Supernetwork
from evenly.ranking.ballots import DIGIT, Ballot
from evenly.simulate.choosing import MOST_ROWS
from evenly.types import Array, Several, Shard, Task, Tree, Work

CHUNK = 256  # rows read at a time


def looking(task: Task, model: Tree) -> Look:
    """Losses and outcomes of a model, row by row."""

    def look(rows: Rows) -> Seen:
        losses, outcome = [np.zeros(0, np.float32)], [np.zeros(0, np.int32)]
        for start in range(0, rows.size, CHUNK):
            numbers = np.arange(start, start + CHUNK)
            batch = shard(rows, np.where(numbers < rows.size, numbers, PADDING))
            found = _look(task, model, batch)
            losses.append(np.asarray(found[0])[: rows.size - start])
            outcome.append(np.asarray(found[1])[: rows.size - start])
        return Seen(np.concatenate(losses), np.concatenate(outcome))

    return look


def shard(rows: Rows, numbers: np.ndarray) -> Shard:
    """The rows with these numbers; padding has mask 0 and weight 0."""
    there = numbers != PADDING
    at = np.where(there, numbers, 0)
    weight = np.where(there, rows.weight[at], 0).astype(np.float32)
    return Shard(rows.x[at], rows.y[at], rows.group[at], weight, there.astype(np.float32))


def chosen(task: Task, told: Told, offered: Sequence[Tree], client: ClientData) -> int:
    """Which of several models is the client's: given by the server, or the one that serves its training rows best."""
    rule = told.algorithm.rule
    assert isinstance(rule, Several)
    if told.group is not None:
        return told.group
    if rule.inference == "lowest-loss":
        losses = [float(looking(task, model)(client.train).losses.mean()) + penalty(task, model) for model in offered]
        return int(np.argmin(np.where(np.isnan(losses), np.inf, losses)))
    assert isinstance(task, Supernetwork)  # only orders of edges have masks to be mixed
    masks = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(task.masks(model) for model in offered))
    numbers = np.arange(MOST_ROWS)
    first = shard(client.train, np.where(numbers < client.train.size, numbers, PADDING))
    return int(_choose(rule.inference, task, masks, first))


def trained(task: Task, told: Told, client: ClientData, received: Tree, memory: Tree) -> tuple[Tree, Tree]:
    """The vector to send and the memory to keep, after this round's batches. A ballot's vector are its places."""
    work, rows = told.algorithm.work, weighted(told, client)
    local = _start(work, task, received, memory)
    for numbers in batches_of(work, told.batch_seed, told.server_round, told.client, rows.size):
        local = _step(work, task, received, local, shard(rows, numbers))
    vector, new = _finish(work, task, received, local)
    if isinstance(vector, Ballot):
        vector = jax.tree.map(lambda high, low: DIGIT * high + low, vector.high, vector.low)
    whole = bool(trees.all_finite(vector)) and bool(trees.all_finite(new))
    return vector, new if whole else memory  # a client whose training broke keeps what it had


def weighted(told: Told, client: ClientData) -> Rows:
    """The training rows with how much each counts: by the data, by the client's preparation and by what the server says."""
    rows, prepare = client.train, told.algorithm.prepare
    weight = rows.weight
    if prepare is not None:
        weight = weight * prepare.weights(rows.y, rows.group).astype(np.float32)
    if told.row_weights is not None:
        weight = weight * told.row_weights[rows.group, rows.y]
    return rows._replace(weight=weight)


def penalty(task: Task, model: Tree) -> float:
    return float(task.penalty(model))


@jax.jit
def _look(task: Task, model: Tree, batch: Shard) -> tuple[Array, Array]:
    plain = batch._replace(weight=jnp.ones(batch.mask.shape))
    return task.losses(model, plain), task.predict(model, batch.x)


@partial(jax.jit, static_argnums=0)
def _choose(inference: str, task: Supernetwork, masks: Tree, rows: Shard) -> Array:
    return chooser(inference)(task, masks, rows)


@jax.jit
def _start(work: Work, task: Task, received: Tree, memory: Tree) -> Tree:
    return work.start(task, received, memory)


@jax.jit
def _step(work: Work, task: Task, received: Tree, local: Tree, batch: Shard) -> Tree:
    return work.step(task, received, local, batch)


@jax.jit
def _finish(work: Work, task: Task, received: Tree, local: Tree) -> tuple[Any, Tree]:
    return work.finish(task, received, local)

"""A ready Flower client for an evenly task: it trains on the simulator's own batches, with the work
that the method asks for.

    app = evenly.flower.clients.jax.app(federation, task)

The client is the one that `partition-id` in the node's config names, or the one whose own data the
app is given. Batches have one shape, whatever the client, so that every function is compiled once
in a process.
"""

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.clientapp import ClientApp

from evenly import trees
from evenly.data.federation import Shard
from evenly.flower.clients.client import RoundConfig, client_app, weighted_rows
from evenly.flower.clients.rows import (
    PADDING,
    ClientData,
    ClientRows,
    Look,
    RowOutcomes,
    Source,
    batches_of,
)
from evenly.models.linear import Logistic, Softmax
from evenly.models.task import Probabilistic, skeleton, uses_keys
from evenly.parts.client_groups import chooser
from evenly.parts.ranking import DIGIT, Ballot, Supernetwork
from evenly.parts.ranking_work import is_scheduled
from evenly.parts.row_privacy import PrivateTraining
from evenly.randomness import key_data, next_key, visit_key
from evenly.simulate.checkpoints import task_text
from evenly.simulate.choosing import MOST_ROWS
from evenly.types import Algorithm, Array, Seeds, Task, Tree, Work

CHUNK = 256  # rows read at a time


def app(source: Source, task: Task, *, require_policy: bool = False) -> ClientApp:
    """ClientApp for a JAX task. `source` is a Federation, the data of one client, or a function
    from the context to it. With `require_policy`, a node without a policy answers nothing.
    """
    return client_app(source, JaxEngine(task), require_policy=require_policy)


class JaxEngine:
    """Trains and evaluates models of one task, or of the frozen network for methods that rank
    edges.
    """

    clips_rows = True

    def __init__(self, task: Task) -> None:
        self.reduction = task.reduction
        self._network = lru_cache(maxsize=8)(
            lambda algorithm, seed: _network(task, algorithm, seed)
        )

    def task(self, now: RoundConfig) -> Task:
        return self._network(now.algorithm, now.model_seed)

    def text(self, now: RoundConfig) -> str:
        return task_text(self.task(now))

    def form(self, now: RoundConfig, client: ClientData) -> Tree:
        return skeleton(self.task(now))

    def has_one_logit(self, now: RoundConfig) -> bool:
        task = self.task(now)  # a subclass may compute anything
        return type(task) is Logistic or (type(task) is Softmax and task.classes == 2)

    def look(self, now: RoundConfig, model: Tree) -> Look:
        """Function that returns loss and predicted label of each row."""
        task = self.task(now)

        def look(rows: ClientRows) -> RowOutcomes:
            losses, outcome = [np.zeros(0, np.float32)], [np.zeros(0, np.int32)]
            for start in range(0, rows.size, CHUNK):
                found = _look(task, model, first_rows(rows, CHUNK, start))
                losses.append(np.asarray(found[0])[: rows.size - start])
                outcome.append(np.asarray(found[1])[: rows.size - start])
            return RowOutcomes(np.concatenate(losses), np.concatenate(outcome))

        return look

    def penalty(self, now: RoundConfig, model: Tree) -> float:
        return float(self.task(now).penalty(model))

    def probabilities(self, now: RoundConfig, model: Tree, own: ClientRows) -> np.ndarray | None:
        task = self.task(now)
        if not isinstance(task, Probabilistic):
            return None
        parts = [
            np.asarray(_probabilities(task, model, first_rows(own, CHUNK, start).x))
            for start in range(0, own.size, CHUNK)
        ]
        return np.concatenate(parts)[: own.size]

    def most_certain_model(self, now: RoundConfig, models: list[Tree], client: ClientData) -> int:
        task, rule = self.task(now), now.algorithm.rule
        assert isinstance(task, Supernetwork)  # only orders of edges have masks to be mixed
        masks = jax.tree.map(
            lambda *leaves: jnp.stack(leaves), *(task.masks(model) for model in models)
        )
        return int(_choose(rule.inference, task, masks, first_rows(client.train, MOST_ROWS)))

    def train(
        self, now: RoundConfig, client: ClientData, received: Tree, memory: Tree
    ) -> tuple[Tree, Tree]:
        """Return the vector to send and the memory to keep, after the batches of this round."""
        task, work, rows = self.task(now), now.algorithm.work, weighted_rows(now, client)
        local, key = _start(work, task, received, memory), None
        private = isinstance(work, PrivateTraining)
        if uses_keys(task) or private:  # the random numbers of the simulator
            key = visit_key(key_data(now.batch_seed), now.server_round - 1, now.client)
        for numbers in batches_of(work, now.batch_seed, now.server_round, now.client, rows.size):
            key, step_key = (None, None) if key is None else next_key(key)
            batch = shard(rows, numbers)
            if private:
                batch = batch._replace(expected=np.float32(work.rate * rows.size))
            if is_scheduled(work):
                visit = np.array([now.server_round - 1, rows.size], np.float32)
                batch = batch._replace(visit=visit)
            local = _step(work, task, received, local, (batch, step_key))
        vector, new = _finish(work, task, received, local)
        if isinstance(vector, Ballot):
            vector = jax.tree.map(lambda high, low: DIGIT * high + low, vector.high, vector.low)
        whole = bool(trees.all_finite(vector)) and bool(trees.all_finite(new))
        return vector, new if whole else memory  # a client whose training broke keeps what it had


def shard(rows: ClientRows, numbers: np.ndarray) -> Shard:
    """Rows with these numbers; padding has mask 0 and weight 0."""
    there = numbers != PADDING
    at = np.where(there, numbers, 0)
    weight = np.where(there, rows.weight[at], 0).astype(np.float32)
    return Shard(rows.x[at], rows.y[at], rows.group[at], weight, there.astype(np.float32))


def first_rows(rows: ClientRows, count: int, start: int = 0) -> Shard:
    """Rows from a start on, padded to `count`."""
    numbers = np.arange(start, start + count)
    return shard(rows, np.where(numbers < rows.size, numbers, PADDING))


def _network(task: Task, algorithm: Algorithm, seed: int) -> Task:
    return algorithm.task(task, Seeds(model=seed))


@jax.jit
def _look(task: Task, model: Tree, batch: Shard) -> tuple[Array, Array]:
    plain = batch._replace(weight=jnp.ones(batch.mask.shape))
    return task.losses(model, plain), task.predict(model, batch.x)


@jax.jit
def _probabilities(task: Any, model: Tree, x: Array) -> Array:
    return task.probabilities(model, x)


@partial(jax.jit, static_argnums=0)
def _choose(inference: str, task: Supernetwork, masks: Tree, rows: Shard) -> Array:
    return chooser(inference)(task, masks, rows)


@jax.jit
def _start(work: Work, task: Task, received: Tree, memory: Tree) -> Tree:
    return work.start(task, received, memory)


@jax.jit
def _step(
    work: Work, task: Task, received: Tree, local: Tree, batch_and_key: tuple[Shard, Any]
) -> Tree:
    return work.step(task, received, local, *batch_and_key)


@jax.jit
def _finish(work: Work, task: Task, received: Tree, local: Tree) -> tuple[Any, Tree]:
    return work.finish(task, received, local)

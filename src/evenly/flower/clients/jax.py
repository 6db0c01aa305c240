"""A ready Flower client for an evenly task: it trains on the simulator's own batches, with the work that the method asks for.

    app = evenly.flower.clients.jax.app(federation, task)

The client is the one that `partition-id` in the node's config names, or the one whose own data the app is given. It answers the
census, measures the model it received, trains and evaluates. What the method lets a client keep, such as Ditto's personal
model, stays in the node's own state and never leaves it.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from evenly import trees
from evenly.flower import wire
from evenly.flower.clients import measuring, visiting
from evenly.flower.clients.data import ClientData, Source, client_from
from evenly.flower.clients.told import Told, told
from evenly.types import Algorithm, Seeds, Task, Tree

MEMORY = "evenly-memory"  # in the node's own state


class Visit(NamedTuple):
    """What a message brings to a client."""

    told: Told
    client: ClientData
    task: Task  # that is trained: for methods that rank edges, the network that everybody draws from one seed
    model: Tree
    choice: int | None  # which of several models is the client's


def app(source: Source, task: Task) -> ClientApp:
    """A client of a federation, or one with data of its own (or a function that finds them from the context)."""

    @lru_cache(maxsize=8)
    def network(algorithm: Algorithm, seed: int) -> Task:
        return algorithm.task(task, Seeds(model=seed))

    def arrive(message: Message, context: Context) -> Visit:
        now = told(_config(message))
        return _visit(message, now, client_from(source, context), network(now.algorithm, now.model_seed))

    ready = ClientApp()

    @ready.query("census")
    def census(message: Message, context: Context) -> Message:
        client = client_from(source, context)
        return _reply(message, measuring.census(client), {wire.ABOUT: ConfigRecord(measuring.about(client))})

    @ready.query("measure")
    def measure(message: Message, context: Context) -> Message:
        return _reply(message, _signals(arrive(message, context)))

    @ready.train()
    def train(message: Message, context: Context) -> Message:
        visit = arrive(message, context)
        now, memory = visit.told, _memory(visit, context)
        vector, memory = visiting.trained(visit.task, now, visit.client, visit.model, memory)
        if jax.tree.leaves(memory):
            context.state[MEMORY] = wire.to_arrays(memory)
        if now.coefficient is None:
            return _reply(message, _signals(visit), {wire.ARRAYS: wire.to_arrays(_whole(now.algorithm, visit.model, vector))})
        metrics: dict[str, Any] = {wire.EXAMPLES: visit.client.train.size}
        if "square_norm" in now.algorithm.needs:
            metrics[wire.SQUARE_NORM] = float(trees.square_norm(vector))
        return _reply(message, metrics, {wire.ARRAYS: _scaled(vector, now.coefficient)})

    @ready.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        visit = arrive(message, context)
        own = visit.told.algorithm.work.deploy(visit.model, _memory(visit, context))
        return _reply(message, measuring.evaluated(visit.client, visiting.looking(visit.task, own)) | _choice(visit))

    return ready


def _config(message: Message) -> ConfigRecord:
    found = message.content.get(wire.CONFIG)
    if not isinstance(found, ConfigRecord):
        raise ValueError(f"The message must hold a config record {wire.CONFIG!r}, got {', '.join(map(repr, message.content))}.")
    return found


def _visit(message: Message, now: Told, client: ClientData, task: Task) -> Visit:
    """Read the model that was sent; of several, the client's own."""
    arrays = message.content[wire.ARRAYS]
    offered = message.content.get(wire.OFFERED, arrays)
    assert isinstance(arrays, ArrayRecord)
    assert isinstance(offered, ArrayRecord)
    form = jax.eval_shape(task.init, jax.random.key(0))
    models = _models(offered, form)
    choice = None
    if models:
        choice = visiting.chosen(task, now, models, client)
    elif now.group is not None:
        choice = now.group
    served = _models(arrays, form)
    model = wire.from_arrays(arrays, form) if choice is None or not served else served[choice]
    return Visit(now, client, task, model, choice)


def _models(arrays: ArrayRecord, form: Tree) -> list[Tree]:
    """The models of a record that holds several; else none."""
    first = wire.names_of(form)[0]
    count = sum(wire.prefix_of(q) + first in arrays for q in range(len(arrays)))
    return [wire.from_arrays(arrays, form, wire.prefix_of(q)) for q in range(count)]


def _signals(visit: Visit) -> dict[str, Any]:
    look, penalty = visiting.looking(visit.task, visit.model), visiting.penalty(visit.task, visit.model)
    needs = visit.told.algorithm.needs
    return measuring.signals(visit.client, needs, look, penalty=penalty, reduction=visit.task.reduction) | _choice(visit)


def _choice(visit: Visit) -> dict[str, int]:
    return {} if visit.choice is None else {wire.CHOICE: visit.choice}


def _memory(visit: Visit, context: Context) -> Tree:
    """What the client kept; before it ever trained, what the work makes of the first model it is sent, kept from then on."""
    first = visit.told.algorithm.work.remember(visit.model)
    if not jax.tree.leaves(first):
        return first
    if MEMORY not in context.state:
        context.state[MEMORY] = wire.to_arrays(first)
    kept = context.state[MEMORY]
    assert isinstance(kept, ArrayRecord)
    return wire.from_arrays(kept, first)


def _whole(algorithm: Algorithm, model: Tree, vector: Tree) -> Tree:
    """The trained model; for methods that rank edges, the places of all edges as whole numbers."""
    if algorithm.network is None:
        return trees.add(model, vector)
    if not bool(trees.all_finite(vector)):
        return vector  # NaN has no whole number: the server sees that training broke
    return jax.tree.map(lambda places: np.asarray(places, np.int32), vector)


def _scaled(vector: Tree, coefficient: np.ndarray) -> ArrayRecord:
    """Coefficient times vector: all that the server sees of it. With one coefficient for each of several models, one for each."""
    if coefficient.ndim == 0:
        return wire.to_arrays(jax.tree.map(lambda leaf: np.float32(coefficient) * np.asarray(leaf), vector))
    return wire.several([jax.tree.map(lambda leaf, c=c: np.float32(c) * np.asarray(leaf), vector) for c in coefficient])


def _reply(message: Message, metrics: dict[str, Any], more: dict[str, Any] | None = None) -> Message:
    return Message(RecordDict({**(more or {}), wire.METRICS: MetricRecord(metrics)}), reply_to=message)

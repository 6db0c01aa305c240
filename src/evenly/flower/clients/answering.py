"""A ready Flower client: what it answers is the same in every framework; how it looks at a model and trains it is the engine's.

Models are trees of arrays. What a method lets a client keep, such as Ditto's personal model, stays in the node's own state and
never leaves it.
"""

from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from evenly.flower import wire
from evenly.flower.clients import measuring, scaling
from evenly.flower.clients.data import ClientData, Source, client_from
from evenly.flower.clients.measuring import Look, Metrics
from evenly.flower.clients.told import Told, told
from evenly.types import Several, Tree

MEMORY, FIRST = "evenly-memory", "evenly-first"  # in the node's own state


class Engine(Protocol):
    """A framework's part. `told` says which method it is, and so which network is trained."""

    @property
    def reduction(self) -> str: ...  # "mean" or "sum": how losses become one number
    def form(self, now: Told, client: ClientData) -> Tree: ...  # a model, or the shapes of one
    def look(self, now: Told, model: Tree) -> Look: ...
    def penalty(self, now: Told, model: Tree) -> float: ...
    def surest(self, now: Told, models: list[Tree], client: ClientData) -> int: ...  # E2FL's choice by how sure mixtures are
    def train(self, now: Told, client: ClientData, received: Tree, memory: Tree) -> tuple[Tree, Tree]: ...  # vector, memory


class Visit(NamedTuple):
    """What a message brings to a client."""

    told: Told
    client: ClientData
    model: Tree
    choice: int | None  # which of several models is the client's


def answering(source: Source, engine: Engine) -> ClientApp:
    """A client of a federation, or one with data of its own (or a function that finds them from the context)."""
    ready = ClientApp()

    def arrive(message: Message, context: Context) -> Visit:
        return _visit(engine, message, client_from(source, context))

    @ready.query("census")
    def census(message: Message, context: Context) -> Message:
        client = client_from(source, context)
        if wire.ARRAYS in message.content:  # methods whose clients keep a model of their own introduce the first one here
            context.state[FIRST] = message.content[wire.ARRAYS]
        return Message(introduction(client), reply_to=message)

    @ready.query("measure")
    def measure(message: Message, context: Context) -> Message:
        return _reply(message, _signals(engine, arrive(message, context)))

    @ready.train()
    def train(message: Message, context: Context) -> Message:
        visit = arrive(message, context)
        vector, memory = engine.train(visit.told, visit.client, visit.model, _memory(visit, context))
        if jax.tree.leaves(memory):
            context.state[MEMORY] = wire.to_arrays(memory)
        if visit.told.coefficient is None:
            return _reply(message, _signals(engine, visit), {wire.ARRAYS: _trained(visit, vector)})
        metrics = {wire.EXAMPLES: visit.client.train.size} | scaling.said(visit.told, vector)
        return _reply(message, metrics, {wire.ARRAYS: scaling.scaled(vector, visit.told.coefficient)})

    @ready.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        visit = arrive(message, context)
        own = visit.told.algorithm.work.deploy(visit.model, _memory(visit, context))
        return _reply(message, measuring.evaluated(visit.client, engine.look(visit.told, own)) | _choice(visit))

    return ready


def introduction(client: ClientData) -> RecordDict:
    """What a client answers to the census: counts, and what they are called."""
    return RecordDict({wire.ABOUT: ConfigRecord(measuring.about(client)), wire.METRICS: MetricRecord(measuring.census(client))})


def _visit(engine: Engine, message: Message, client: ClientData) -> Visit:
    """Read the model that was sent; of several, the client's own."""
    config, arrays = message.content.get(wire.CONFIG), message.content.get(wire.ARRAYS)
    if not isinstance(config, ConfigRecord) or not isinstance(arrays, ArrayRecord):
        given = ", ".join(map(repr, message.content))
        raise ValueError(f"The message must hold a config record {wire.CONFIG!r} and an array record {wire.ARRAYS!r}, got {given}.")
    offered = message.content.get(wire.OFFERED, arrays)
    assert isinstance(offered, ArrayRecord)
    now = told(config)
    form = engine.form(now, client)
    models, served = _models(offered, form), _models(arrays, form)
    choice = now.group if now.group is not None or not models else _chosen(engine, now, models, client)
    model = wire.from_arrays(arrays, form) if choice is None or not served else served[choice]
    return Visit(now, client, model, choice)


def _models(arrays: ArrayRecord, form: Tree) -> list[Tree]:
    """The models of a record that holds several; else none."""
    first = wire.names_of(form)[0]
    count = sum(wire.prefix_of(q) + first in arrays for q in range(len(arrays)))
    return [wire.from_arrays(arrays, form, wire.prefix_of(q)) for q in range(count)]


def _chosen(engine: Engine, now: Told, models: list[Tree], client: ClientData) -> int:
    """The model that serves the client's training rows best; of equals the first."""
    rule = now.algorithm.rule
    assert isinstance(rule, Several)
    if rule.inference != "lowest-loss":
        return engine.surest(now, models, client)
    losses = [float(engine.look(now, model)(client.train).losses.mean()) + engine.penalty(now, model) for model in models]
    return int(np.argmin(np.where(np.isnan(losses), np.inf, losses)))


def _signals(engine: Engine, visit: Visit) -> Metrics:
    now, model = visit.told, visit.model
    look, penalty = engine.look(now, model), engine.penalty(now, model)
    return measuring.signals(visit.client, now.algorithm.needs, look, penalty=penalty, reduction=engine.reduction) | _choice(visit)


def _choice(visit: Visit) -> Metrics:
    return {} if visit.choice is None else {wire.CHOICE: visit.choice}


def _memory(visit: Visit, context: Context) -> Tree:
    """What the client kept; before it ever trained, what the work makes of the first model, or else of the first that it is sent."""
    first = visit.told.algorithm.work.remember(visit.model)
    if not jax.tree.leaves(first):
        return first
    if MEMORY not in context.state:
        context.state[MEMORY] = context.state.get(FIRST, wire.to_arrays(first))
    kept = context.state[MEMORY]
    assert isinstance(kept, ArrayRecord)
    return wire.from_arrays(kept, first)


def _trained(visit: Visit, vector: Tree) -> ArrayRecord:
    """The trained model; for methods that rank edges, the places of all edges as whole numbers."""
    if visit.told.algorithm.network is None:
        return wire.to_arrays(jax.tree.map(lambda m, v: np.asarray(m) + np.asarray(v), visit.model, vector))
    whole = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(vector))
    # NaN has no whole number: sent as it is, the server sees that training broke.
    return wire.to_arrays(jax.tree.map(lambda places: np.asarray(places, np.int32), vector) if whole else vector)


def _reply(message: Message, metrics: Metrics, more: dict[str, Any] | None = None) -> Message:
    return Message(RecordDict({**(more or {}), wire.METRICS: MetricRecord(metrics)}), reply_to=message)

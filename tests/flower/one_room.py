"""A server and its clients in one room: messages are handed over, not sent. What a round does is
written out once more here, so that clients are tested without the strategy.
"""

import time
from typing import Any

import jax
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, Metadata, RecordDict
from flwr.clientapp import ClientApp

from evenly import round as evenly_round
from evenly import trees
from evenly.algorithms import algorithm
from evenly.data.federation import Federation
from evenly.flower import wire
from evenly.parts.ranking import ballot
from evenly.parts.sampling import Full
from evenly.round import Memory
from evenly.types import Algorithm, RowRule, Rule, Seeds, Signals, Task, Tree


class Room:
    """As many nodes as clients, all with the same app and each with a state of its own."""

    def __init__(self, app: ClientApp, clients: int) -> None:
        self.app = app
        self.contexts = [
            Context(
                run_id=1,
                node_id=k + 1,
                node_config={"partition-id": k, "num-partitions": clients},
                state=RecordDict(),
                run_config={},
            )
            for k in range(clients)
        ]

    def ask(
        self,
        k: int,
        kind: str,
        arrays: ArrayRecord | None = None,
        config: dict[str, Any] | None = None,
        **more: Any,
    ) -> Any:
        content = {
            wire.CONFIG: ConfigRecord(config or {}),
            **more,
            **({} if arrays is None else {wire.ARRAYS: arrays}),
        }
        envelope = Metadata(
            run_id=1, message_id=f"{k}", src_node_id=0, dst_node_id=k + 1, reply_to_message_id="",
            group_id="", created_at=time.time(), ttl=60.0, message_type=kind,
        )  # fmt: skip
        message = Message(content=RecordDict(content), metadata=envelope)  # pyright: ignore[reportCallIssue]
        reply = self.app(message, self.contexts[k])
        assert reply.has_content()
        return reply.content


def config(notation: str, server_round: int, client: int, **more: Any) -> dict[str, Any]:
    return {
        wire.METHOD: notation,
        wire.ROUND: server_round,
        wire.CLIENT: client,
        wire.BATCH_SEED: 0,
        **more,
    }


def plain_rounds(
    notation: str, room: Room, federation: Federation, task: Task, rounds: int, model: Tree = None
) -> Tree:
    """Rounds in which everybody takes part, of a rule that keeps one model: from this one on, or
    from the task's first.
    """
    method: Algorithm = algorithm(notation)
    assert isinstance(method.select, Full)
    census = federation.census()
    model = method.task(task, Seeds()).init(jax.random.key(0)) if model is None else model
    rule, public, memory = method.rule, method.rule.begin(census), None
    server = None if method.server is None else method.server.init(model)
    everyone, form = range(federation.clients), jax.eval_shape(lambda: model)
    for t in range(1, rounds + 1):
        told: dict[str, Any] = {}
        if isinstance(method.rule, RowRule):
            wire.put(told, wire.ROW_WEIGHTS, method.rule.row_weights(public))
        replies = [
            room.ask(k, "train", wire.to_arrays(model), config(notation, t, k, **told))
            for k in everyone
        ]
        vectors = [
            _vector(method, wire.from_arrays(reply[wire.ARRAYS], form), model) for reply in replies
        ]
        said: dict[str, list[Any]] = {
            need: [wire.get(reply[wire.METRICS], name) for reply in replies]
            for need, name in wire.SIGNALS.items()
        }
        signals = Signals(
            client=np.arange(federation.clients), returned=np.ones(federation.clients, bool),
            examples=census.examples,
            **{need: np.stack(values) for need, values in said.items() if values[0] is not None},
        )  # fmt: skip
        # before the first round nobody remembers anything
        memory = memory or Memory(np.zeros(federation.clients, bool), _first(rule, public, signals))
        signals = evenly_round.recall(rule, public, signals, memory)
        weighing = evenly_round.weigh(rule, public, signals)
        total = _summed(np.asarray(weighing.weight), vectors)
        signals = signals._replace(
            square_norm=np.array([trees.square_norm(vector) for vector in vectors])
        )
        summed = evenly_round.sum_up(rule, public, weighing, signals)
        change, public = evenly_round.step(rule, public, summed, total)
        memory = Memory(np.ones(federation.clients, bool), summed.memory)
        model, server = (
            (trees.add(model, change), None)
            if method.server is None
            else method.server.update(change, server, model)
        )
    return model


def _first(rule: Rule, public: Tree, signals: Signals) -> Tree:
    """What each client remembers before it takes part."""
    return jax.vmap(lambda own: rule.remember(public, own))(signals.own)


def _vector(method: Algorithm, sent: Tree, received: Tree) -> Tree:
    return trees.subtract(sent, received) if method.network is None else ballot(sent)


def _summed(coefficients: np.ndarray, vectors: list[Tree]) -> Tree:
    return jax.tree.map(lambda *leaves: np.tensordot(coefficients, np.stack(leaves), 1), *vectors)

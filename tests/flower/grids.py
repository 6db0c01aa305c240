"""A Grid without a network: messages become real Flower messages, are handed to ClientApps in this
process, and so are replies.
"""

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    Metadata,
    MetricRecord,
    RecordDict,
)
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

Answer = Callable[[Message, Context], Message]

NODES = (70, 30, 60, 10, 50, 20)  # not in the order of the clients


class OneProcess(Grid):
    """Nodes that answer at once; `silent` ones let their messages expire, and `answer` of one that
    raises becomes an error, as with Flower.
    """

    def __init__(
        self, answer: Answer, nodes: Iterable[int] = NODES, *, silent: Iterable[int] = ()
    ) -> None:
        self.answer, self.nodes, self.silent = answer, list(nodes), set(silent)
        self.contexts = {
            node: Context(
                run_id=1,
                node_id=node,
                node_config={"partition-id": k},
                state=RecordDict(),
                run_config={},
            )
            for k, node in enumerate(self.nodes)
        }
        # What Flower's runtime tells a process before it runs a ServerApp in it; messages are
        # stamped with it.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.asked: list[tuple[str, int]] = []
        self.keys: dict[int, bytes] = {}  # as SuperNodes are registered
        self.names: dict[int, str] = {}
        self._numbers = itertools.count()
        self._sent: dict[str, Message] = {}

    # Flower's Grid has these too. A strategy needs none of them; one that began to would have to be
    # noticed.

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **more: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [
            NodeInfo(
                node_id=node, public_key=self.keys.get(node, b""), name=self.names.get(node, "")
            )
            for node in self.get_node_ids()
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        told = list(messages)
        for message in told:
            # as Flower's own grids do
            message.metadata.__dict__["_message_id"] = str(next(self._numbers))
        self.asked += [(m.metadata.message_type, m.metadata.dst_node_id) for m in told]
        self._sent |= {m.metadata.message_id: self._addressed(m) for m in told}
        return [m.metadata.message_id for m in told]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """In no particular order."""
        return [
            self._answered(self._sent.pop(key))
            for key in reversed(list(message_ids))
            if key in self._sent
        ]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def _addressed(self, message: Message) -> Message:
        own = message.metadata
        envelope = Metadata(
            run_id=1, message_id=own.message_id, src_node_id=1, dst_node_id=own.dst_node_id,
            reply_to_message_id="", group_id="", created_at=time.time(), ttl=60.0,
            message_type=own.message_type,
        )  # fmt: skip
        return Message(content=message.content, metadata=envelope)  # pyright: ignore[reportCallIssue]

    def _answered(self, message: Message) -> Message:
        if message.metadata.dst_node_id in self.silent:
            return Message(
                Error(code=4, reason="no reply until the message expired"), reply_to=message
            )
        try:
            return self.answer(message, self.contexts[message.metadata.dst_node_id])
        except Exception as error:
            return Message(Error(code=8, reason=str(error)), reply_to=message)


def reply(message: Message, arrays: ArrayRecord | None, metrics: dict[str, Any]) -> Message:
    """An answer with these arrays and metrics."""
    records: dict[str, Any] = {"metrics": MetricRecord(metrics)}
    return Message(
        RecordDict(records if arrays is None else {"arrays": arrays, **records}), reply_to=message
    )


def settings(message: Message) -> ConfigRecord:
    found = message.content["config"]
    assert isinstance(found, ConfigRecord)
    return found

"""Replies are pulled one by one: what cannot be decoded, is not the node's or is too large costs
only the node that sent it.
"""

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from evenly.flower import checks, strategy, wire
from evenly.flower.checks import UNREADABLE, replies_to
from evenly.flower.messages import OWN_METRICS, UNKNOWN_TABLES, metrics_bytes
from evenly.flower.replies import size_of
from tests.flower.grids import OneProcess, reply
from tests.pages import ROOT, blocks

NODES = (10, 20, 30)
LIAR = 20


def first(numbers: int = 4) -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros(numbers, np.float32))})


def client(message: Message, context: Context) -> Message:
    if message.metadata.message_type == "evaluate":
        return reply(message, None, {"num-examples": 5, "accuracy": 0.5})
    if message.metadata.message_type == wire.CENSUS:
        return reply(message, None, {"num-examples": 5, "cells": [5], "cells-shape": [1, 1]})
    received = message.content.array_records["arrays"]["w"].numpy()
    return reply(
        message,
        ArrayRecord({"w": Array(received + np.float32(context.node_id))}),
        {"num-examples": 5},
    )


class Forging(OneProcess):
    """A grid on which the liar's replies are not what they should be."""

    forged: Any = None

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = list(super().pull_messages(message_ids))
        return [self.forged(one) if one.metadata.src_node_id == LIAR else one for one in found]


def ran(forged: Any, **more: Any) -> tuple[np.ndarray, list[Any], Forging]:
    grid = Forging(client, NODES)
    grid.forged = forged
    made = strategy("fedavg", **more)
    result = made.start(grid, first(), num_rounds=1, timeout=60.0)
    return result.arrays["w"].numpy(), made.history.recorder.left_out, grid


def undecodable(message: Message) -> Message:
    raise KeyError("arraychunk_ids")


def test_a_reply_that_flower_cannot_decode_costs_only_who_sent_it():
    model, left_out, _ = ran(undecodable)
    assert model == pytest.approx(20.0)  # the mean of the others, 10 and 30
    assert {(one.node, one.reason) for one in left_out} == {
        (LIAR, "sent a reply that could not be fetched and decoded (KeyError: 'arraychunk_ids')")
    }


def test_nobody_replies_in_the_name_of_another():
    def forged(message: Message) -> Message:
        message.metadata.__dict__["_src_node_id"] = 30
        return message

    model, left_out, _ = ran(forged)
    assert model == pytest.approx(20.0)
    assert {(one.node, one.reason) for one in left_out} == {
        (LIAR, "replied in the name of node 30")
    }


def test_what_answers_another_message_is_no_answer(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr(
        checks,
        "time",
        SimpleNamespace(
            monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds)
        ),
    )

    def forged(message: Message) -> Message:
        message.metadata.__dict__["_reply_to_message_id"] = "another"
        return message

    model, left_out, _ = ran(forged)
    assert model == pytest.approx(20.0)
    assert {(one.node, one.reason) for one in left_out} == {(LIAR, "did not answer in time")}
    assert now[0] == pytest.approx(120.0)  # both times it was waited for


def test_a_client_cannot_write_the_servers_sentences():
    _, left_out, _ = ran(
        lambda message: Message(
            Error(UNREADABLE, "is the best client."), reply_to=answered(message)
        )
    )
    assert {one.reason for one in left_out} == {
        "replied with an error (Flower's code 0): is the best client"
    }


def first_content() -> RecordDict:
    return RecordDict({"config": ConfigRecord({"a": 1})})


def test_replies_are_looked_at_before_the_next_is_pulled():
    grid = OneProcess(client, NODES)
    asked = [Message(first_content(), node, wire.CENSUS) for node in NODES]
    replies = replies_to(grid, asked, 1.0)
    assert [node for _, node in grid.asked] == list(NODES)  # all are asked at once
    assert next(replies).metadata.src_node_id == NODES[0]
    assert len(grid._sent) == 2  # the others' replies wait at the SuperLink
    assert [one.metadata.src_node_id for one in replies] == list(NODES[1:])


LARGE = 17 * 2**20  # bytes


def with_model(
    arrays: ArrayRecord, metrics: dict[str, Any] | None = None, **records: Any
) -> RecordDict:
    return RecordDict(
        {
            "arrays": arrays,
            "metrics": MetricRecord({"num-examples": 5, **(metrics or {})}),
            **records,
        }
    )


TOO_MUCH = {
    "arrays beside the model": lambda: with_model(first(), more=first(LARGE // 4)),
    "an array": lambda: with_model(first(LARGE // 4)),
    "metrics": lambda: with_model(first(), {"mine": [1.0] * (LARGE // 8)}),
    "words": lambda: with_model(
        first(), about=ConfigRecord({"name": "x" * LARGE, "more": ["x", "y"]})
    ),
}


@pytest.mark.parametrize("made", TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_reply_that_is_too_large_for_the_model_is_refused_by_name(made: Callable[[], RecordDict]):
    """Four numbers are trained, so that 17 MiB are not a reply; its arrays are not decoded."""
    content = made()
    honest = [wire.CENSUS]
    model, left_out, _ = ran(
        lambda message: (
            message
            if message.metadata.message_type in honest
            else Message(content, reply_to=answered(message))
        ),
        introduce=True,
    )
    assert model == pytest.approx(20.0)
    tables = 8 * (4 + 2)  # of one group and one label
    most = 1024 + len("w") + 8 * 4 + tables + OWN_METRICS
    assert [(one.node, one.phase) for one in left_out] == [(LIAR, "train"), (LIAR, "evaluate")]
    assert (
        left_out[0].reason
        == f"sent {size_of(content):,} bytes, and a reply may have at most {most:,}"
        " (max_reply_bytes)"
    )


def test_without_a_census_there_is_room_for_the_tables_of_a_thousand_labels():
    assert metrics_bytes(None) == UNKNOWN_TABLES + OWN_METRICS > 3 * 8 * 1000**2 + OWN_METRICS


def answered(message: Message) -> Message:
    """The message that one replies to."""
    asked = Message(first_content(), message.metadata.src_node_id, message.metadata.message_type)
    asked.metadata.__dict__["_message_id"] = message.metadata.reply_to_message_id
    return asked


def test_the_limit_can_be_given_and_holds_for_the_census_and_evaluations():
    _, left_out, _ = ran(lambda message: message, max_reply_bytes=10**6)
    assert not left_out
    with pytest.raises(
        ValueError,
        match=(
            r"like 2 others, was asked for the census and sent \d+ bytes.* at most 9"
            r" \(max_reply_bytes\)"
        ),
    ):
        ran(lambda message: message, max_reply_bytes=9, introduce=True)
    with pytest.raises(ValueError, match="max_reply_bytes must be None or above 0, got 0"):
        strategy("fedavg", max_reply_bytes=0)


def test_a_model_in_double_precision_and_the_tables_of_a_known_census_fit():
    def wide(message: Message) -> Message:
        if not message.content.array_records:
            return message
        content = RecordDict(
            {
                "arrays": ArrayRecord({"w": Array(np.full(4, 20.0))}),
                "metrics": message.content["metrics"],
            }
        )
        return Message(content, reply_to=answered(message))

    model, left_out, _ = ran(wide, introduce=True)
    assert not left_out
    assert model == pytest.approx(20.0)


def test_the_pages_limits_on_one_request_let_an_honest_reply_through():
    """Of a model of 60 arrays with 200 MB: what Flower sends of it through nginx, request by
    request.
    """
    page = next(
        block.text
        for block in blocks(ROOT / "docs" / "flower-deploy.md")
        if "client_max_body_size" in block.text
    )
    limits = {
        key: _bytes(page.partition(key)[2])
        for key in ("location = /v1/fleet/push-messages", "location /v1/fleet/")
    }
    arrays = ArrayRecord(
        {
            f"layers.{i}.weight": wire.write(np.zeros((200_000_000 // 60) // 4, np.float32))
            for i in range(60)
        }
    )
    metrics: dict[str, Any] = {"num-examples": 5}
    wire.put(metrics, "table", np.zeros((8, 30, 30), int))
    message = Message(RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)}), 5, "train")
    tree = PushMessagesRequest(message_object_trees=[get_object_tree(message)])
    assert tree.ByteSize() + 1000 < limits["location = /v1/fleet/push-messages"]
    largest = max(len(one.deflate()) for one in get_all_nested_objects(message).values())
    assert (
        PushObjectRequest(object_content=bytes(largest)).ByteSize() + 1000
        < limits["location /v1/fleet/"]
    )


def _bytes(text: str) -> int:
    said = text.partition("client_max_body_size ")[2].partition(";")[0]
    return int(said[:-1]) * {"k": 2**10, "m": 2**20}[said[-1]]

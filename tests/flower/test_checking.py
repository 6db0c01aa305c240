"""Everything that can be wrong with a reply is a reason to leave its client out, in words that say
what to do.
"""

import time

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Error,
    Message,
    Metadata,
    MetricRecord,
    RecordDict,
)
from hypothesis import given
from hypothesis import strategies as st

from evenly.experiment.deployment import Exclusion
from evenly.flower import wire
from evenly.flower.checks import ReplyError, ReplySpec, is_finite
from evenly.flower.replies import (
    ClientEvaluation,
    Reply,
    check_evaluation,
    check_reply,
    content_of,
    no_answer,
    size_of,
)

MODEL = {"w": np.ones((3, 2), np.float32), "b": np.zeros(2, np.float32)}
TABLE = np.array([[[3, 1], [0, 1]], [[2, 0], [1, 2]]])  # ten rows
ALL = frozenset({"loss", "table", "valid_table", "cell_loss", "unprivileged", "choice"})
GOOD = {
    "num-examples": 10, "loss": 0.7, "table": TABLE.ravel().tolist(), "table-shape": [2, 2, 2],
    "cell-loss": [1.0, 2.0, 3.0, 1.0], "cell-loss-shape": [2, 2], "unprivileged-examples": 5,
    "choice": 1, "valid-table": [1, 0, 0, 0, 0, 0, 0, 2], "valid-table-shape": [2, 2, 2],
}  # fmt: skip


def record(arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def asked() -> Message:
    envelope = Metadata(
        run_id=1, message_id="1", src_node_id=0, dst_node_id=7, reply_to_message_id="", group_id="",
        created_at=time.time(), ttl=60.0, message_type="train",
    )  # fmt: skip
    return Message(content=RecordDict(), metadata=envelope)  # pyright: ignore[reportCallIssue]


def reply(metrics=GOOD, arrays=MODEL, **changes) -> Message:
    metrics = {name: value for name, value in {**metrics, **changes}.items() if value is not None}
    return Message(
        RecordDict({"arrays": record(arrays), "metrics": MetricRecord(metrics)}), reply_to=asked()
    )


def expected(**changes) -> ReplySpec:
    layout = wire.layout_of(record(MODEL))
    given = {
        "node": 7,
        "client": 2,
        "round": 3,
        "method": "q-fedavg(q=1)",
        "needs": ALL,
        "layout": layout,
        "cells": (2, 2),
        "models": 3,
    }
    return ReplySpec(**{**given, **changes})


def reason(message: Message, **changes) -> str:
    found = check_reply(message, expected(**changes))
    assert isinstance(found, Exclusion), found
    assert (found.node, found.client, found.round) == (7, 2, 3)
    return found.reason


def test_a_good_reply_is_used_as_it_is():
    found = check_reply(reply(), expected(examples=10))
    assert isinstance(found, Reply)
    assert found.examples == 10
    assert found.signals["loss"] == pytest.approx(0.7)
    np.testing.assert_array_equal(found.signals["table"], TABLE)
    assert found.signals["choice"] == 1
    assert found.arrays is not None
    assert found.upload > 8 * 4


WRONG_NUMBERS = {
    "no size": (
        {"num-examples": None},
        "sent no 'num-examples'. It must reply with how many training rows it has",
    ),
    "negative size": (
        {"num-examples": -10},
        "sent -10 as 'num-examples', which must be a whole number of at least 0",
    ),
    "no rows": ({"num-examples": 0}, "says that it has no training rows"),
    "part of a row": ({"num-examples": 9.5}, "sent 9.5 as 'num-examples'"),
    "absurd size": (
        {"num-examples": 2**31},
        "sent 2.14748e+09 as 'num-examples', which no client can have",
    ),
    "size not finite": (
        {"num-examples": float("nan")},
        "sent nan as 'num-examples', which must be a finite number",
    ),
    "size is a list": (
        {"num-examples": [10]},
        "sent [10] as 'num-examples', which must be one number",
    ),
    "no loss": (
        {"loss": None},
        (
            "sent no 'loss'. q-fedavg(q=1) needs the mean loss of the model it received, on its"
            " training rows, before"
        ),
    ),
    "negative loss": ({"loss": -0.1}, "sent -0.1 as 'loss', and a loss must be at least 0"),
    "loss not a number": (
        {"loss": float("nan")},
        "sent nan as 'loss', which must be a finite number",
    ),
    "infinite loss": ({"loss": float("inf")}, "sent inf as 'loss'"),
    "loss far outside": (
        {"loss": 3e9},
        "sent 3e+09 as 'loss', far above what a mean loss can be (1e+06)",
    ),
    "no table": (
        {"table": None},
        "sent no 'table'. q-fedavg(q=1) needs counts of the received model's predictions",
    ),
    "table of others": (
        {"table-shape": [4, 2, 1]},
        "sent 'table' with shape [4, 2, 1], where [2, 2, 2] is needed",
    ),
    "table and shape": ({"table-shape": [2, 2, 3]}, "sent 'table' in a form that cannot be read"),
    "table adds up": (
        {"num-examples": 11},
        "sent 'table' that counts 10 rows, but says that there are 11",
    ),
    "parts of rows": (
        {"table": [0.5, 9.5, 0.0, 0, 0, 0, 0, 0]},
        "entries that are not whole numbers",
    ),
    "negative counts": (
        {"table": [11, -1, 0, 0, 0, 0, 0, 0]},
        "entries that are negative or not finite",
    ),
    "cell loss": ({"cell-loss": [1e9, 0.0, 0.0, 0.0]}, "far above what a loss can be"),
    "more than all": (
        {"unprivileged-examples": 11},
        "sent 11 as 'unprivileged-examples', more than its 10 rows",
    ),
    "no such model": ({"choice": 3}, "chose model 3, but there are models 0 to 2"),
    "half a model": ({"choice": 0.5}, "chose model 0.5"),
    "negative norm": ({"square-norm": -1.0}, "negative 'square-norm'"),
}


@pytest.mark.parametrize("changes, words", WRONG_NUMBERS.values(), ids=WRONG_NUMBERS)
def test_wrong_numbers(changes, words):
    typed = {
        name: [float(v) for v in value] if name == "table" and value else value
        for name, value in changes.items()
    }
    assert words in reason(reply(**typed))


def test_another_size_than_in_the_census():
    assert "says 10 training rows, but said 12 before the first round" in reason(
        reply(), examples=12
    )


WRONG_ARRAYS = {
    "NaN": ({"w": np.full((3, 2), np.nan, np.float32)}, "sent NaN or infinity in array 'w'"),
    "infinity": ({"b": np.array([0, np.inf], np.float32)}, "sent NaN or infinity in array 'b'"),
    "shape": (
        {"w": np.ones((2, 3), np.float32)},
        "sent array 'w' with shape [2, 3], where the model has [3, 2]",
    ),
    "type": (
        {"w": np.ones((3, 2), np.int64)},
        "sent array 'w' with numbers of type int64, where the model has float32",
    ),
    "words": ({"w": np.full((3, 2), "x")}, "sent array 'w' with numbers of type <U1"),
}


@pytest.mark.parametrize("changes, words", WRONG_ARRAYS.values(), ids=WRONG_ARRAYS)
def test_wrong_arrays(changes, words):
    assert words in reason(reply(arrays={**MODEL, **changes}))


def test_wrong_number_of_arrays_and_other_names():
    assert (
        reason(reply(arrays={"w": MODEL["w"]}))
        == "sent 1 arrays, where the model has 2: 'b' is missing"
    )
    assert "sent 3 arrays, where the model has 2: 'c' is not one of them" in reason(
        reply(arrays={**MODEL, "c": MODEL["b"]})
    )
    assert "'b' is missing and 'c' is not one of them" in reason(
        reply(arrays={"w": MODEL["w"], "c": MODEL["b"]})
    )
    # the report shows it
    assert len(reason(reply(arrays={**MODEL, "c" * 9000: MODEL["b"]}))) <= 600


def test_no_arrays_and_no_metrics():
    assert "sent 0 models" in reason(
        Message(RecordDict({"metrics": MetricRecord(GOOD)}), reply_to=asked())
    )
    assert "sent 0 records of metrics" in reason(
        Message(RecordDict({"arrays": record(MODEL)}), reply_to=asked())
    )


def test_records_are_found_by_name_or_because_they_are_alone():
    alone = RecordDict({"model": record(MODEL), "numbers": MetricRecord(GOOD)})
    found = check_reply(Message(alone, reply_to=asked()), expected())
    assert isinstance(found, Reply)
    assert found.upload == sum(len(Array(array).data) for array in MODEL.values())
    other = {
        "else": record({"x": np.ones(2, np.float32)}),
        "more": MetricRecord({"num-examples": 1}),
    }
    both = RecordDict({**other, "arrays": record(MODEL), "metrics": MetricRecord(GOOD)})
    found = check_reply(Message(both, reply_to=asked()), expected())
    assert isinstance(found, Reply)
    assert found.arrays is not None
    assert (found.examples, set(found.arrays)) == (10, {"w", "b"})


def test_a_reply_may_be_as_large_as_it_may_be():
    """Arrays in bytes with their names, eight bytes for a number, and the text of keys
    and words.
    """
    content = RecordDict(
        {
            "a": record({"w": np.ones(2, np.float32)}),
            "m": MetricRecord({"xy": [1.0, 2.0], "z": 3}),
            "c": ConfigRecord({"k": ["ab", "c"], "e": [], "s": "word", "b": True}),
        }
    )
    size = (
        1
        + len(Array(np.ones(2, np.float32)).data)
        + (2 + 16)
        + (1 + 8)
        + (1 + 3)
        + 1
        + (1 + 4)
        + (1 + 8)
    )
    assert size_of(content) == size
    message = Message(content, reply_to=asked())
    assert content_of(message, size) is content_of(message) is message.content
    with pytest.raises(
        ReplyError, match=f"sent {size:,} bytes, and a reply may have at most {size - 1:,}"
    ):
        content_of(message, size - 1)


def test_bytes_that_are_no_array():
    broken = record(MODEL)
    broken["w"] = Array(dtype="float32", shape=(3, 2), stype="numpy.ndarray", data=b"rubbish")
    message = Message(
        RecordDict({"arrays": broken, "metrics": MetricRecord(GOOD)}), reply_to=asked()
    )
    assert "sent array 'w' in a form that cannot be read" in reason(message)
    broken["w"] = Array(
        dtype="float32", shape=(3, 2), stype="numpy.ndarray", data=Array(MODEL["w"]).data[:-4]
    )
    assert "sent array 'w' in a form that cannot be read" in reason(message)


def test_a_shape_that_is_only_claimed():
    """What counts is the array that is there."""
    lying = record(MODEL)
    lying["w"] = Array(
        dtype="float32",
        shape=(3, 2),
        stype="numpy.ndarray",
        data=Array(np.ones((1, 2), np.float32)).data,
    )
    message = Message(
        RecordDict({"arrays": lying, "metrics": MetricRecord(GOOD)}), reply_to=asked()
    )
    assert "with shape [1, 2], where the model has [3, 2]" in reason(message)


def test_other_widths_of_the_same_kind_are_fine():
    wide = {name: array.astype(np.float64) for name, array in MODEL.items()}
    assert isinstance(check_reply(reply(arrays=wide), expected()), Reply)


@pytest.mark.parametrize(
    "places, fine", [([2, 0, 1], True), ([2, 0, 2], False), ([0, 1, 3], False), ([-1, 0, 1], False)]
)
def test_an_order_names_every_place_once(places, fine):
    order = {"w": np.array(places, np.int32)}
    found = check_reply(
        reply(arrays=order),
        expected(layout=wire.layout_of(record({"w": np.arange(3, dtype=np.int32)})), ranked=True),
    )
    assert isinstance(found, Reply) == fine


@pytest.mark.parametrize(
    "error, words, kind",
    [
        (
            Error(2, "Traceback\n File x\nRuntimeError: no memory\n"),
            "replied with an error (Flower's code 2): RuntimeError",
            "an error",
        ),
        (
            Error(
                2, "<class 'a.B'>:<'\nException ClientAppException occurred. Message: no disk.'>"
            ),
            "code 2): no disk",
            "an error",
        ),
        (Error(2, "<class 'a.b.NoDisk'>:<'it's full.'>"), "code 2): NoDisk: it's full", "an error"),
        (Error(8, None), "crashed", "an error"),
        (Error(4, "reply unavailable"), "did not answer in time", "no answer"),
        (Error(5, "node gone"), "is not connected any more", "no answer"),
    ],
)
def test_errors_of_flower(error, words, kind):
    found = check_reply(Message(error, reply_to=asked()), expected())
    assert isinstance(found, Exclusion)
    assert words in found.reason
    assert not found.reason.endswith((".", "'>"))
    assert found.kind == kind


def test_nothing_came():
    found = no_answer(expected())
    assert (found.reason, found.kind) == ("did not answer in time", "no answer")


def test_finite_is_exact_where_squares_overflow():
    assert is_finite(np.full(4, 1e30, np.float32))
    assert not is_finite(np.array([1e30, np.nan], np.float32))
    assert is_finite(np.zeros((0, 3), np.float32))
    assert is_finite(np.ones((3, 2), np.float32).T)


def evaluated(metrics, **changes):
    message = Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=asked())
    return check_evaluation(message, expected(phase="evaluate", **changes))


def test_an_accuracy_alone_becomes_whole_rows():
    found = evaluated({"num-examples": 30, "loss": 0.4, "accuracy": 0.8333}, cells=None)
    assert isinstance(found, ClientEvaluation)
    assert found.splits["test"] == {"examples": 30, "loss": 0.4, "table": None, "correct": 25}


def test_tables_of_several_splits():
    told = {
        "num-examples": 10,
        "loss": 0.4,
        "table": TABLE.ravel().tolist(),
        "table-shape": [2, 2, 2],
        "choice": 2,
    }
    told |= {
        "train-table": (2 * TABLE).ravel().tolist(),
        "train-table-shape": [2, 2, 2],
        "train-loss": 0.1,
    }
    found = evaluated(told)
    assert isinstance(found, ClientEvaluation)
    assert found.splits["train"]["examples"] == 20
    assert found.splits["choice"] == 2
    np.testing.assert_array_equal(found.splits["test"]["table"], TABLE)


@pytest.mark.parametrize(
    "metrics, words",
    [
        (
            {"loss": 0.4, "accuracy": 0.5},
            "sent no 'num-examples', the number of rows it evaluated the model on",
        ),
        (
            {"num-examples": 10, "accuracy": 80.0},
            "sent 80 as 'accuracy', which must be a share from 0 to 1",
        ),
        ({"num-examples": 10, "accuracy": float("nan")}, "sent nan as 'accuracy'"),
        ({"num-examples": 10, "loss": -1.0, "accuracy": 0.5}, "a loss must be at least 0"),
        (
            {"num-examples": 0, "train-table": [float("nan")]},
            "sent nan as 'train-table', which must be a finite number",
        ),
        (
            {"num-examples": 10, "accuracy": 0.5},
            "sent no 'table', which is needed because the federation has groups",
        ),
    ],
)
def test_evaluations_that_cannot_be_counted(metrics, words):
    found = evaluated(metrics)
    assert isinstance(found, Exclusion)
    assert words in found.reason
    assert found.phase == "evaluate"


def test_a_client_without_test_rows_has_nothing_to_tell():
    found = evaluated({"num-examples": 0, "loss": float("nan"), "accuracy": float("nan")})
    assert isinstance(found, ClientEvaluation)
    assert found.splits["test"]["examples"] == 0


numbers = st.one_of(st.integers(-(2**62), 2**62), st.floats())


@given(
    st.dictionaries(
        st.sampled_from([*GOOD, *(f"train-{key}" for key in GOOD), "accuracy"]),
        numbers | st.lists(numbers, max_size=8),
    )
)
def test_no_rubbish_ever_ends_the_server(changes):
    """Whatever the metrics hold, a reply is used or left out."""
    one_type = {
        k: [float(x) for x in v] if isinstance(v, list) else v
        for k, v in {**GOOD, **changes}.items()
    }
    message = Message(
        RecordDict({"arrays": record(MODEL), "metrics": MetricRecord(one_type)}), reply_to=asked()
    )
    assert isinstance(check_reply(message, expected()), Reply | Exclusion)
    assert isinstance(
        check_evaluation(message, expected(cells=None, phase="evaluate")),
        ClientEvaluation | Exclusion,
    )

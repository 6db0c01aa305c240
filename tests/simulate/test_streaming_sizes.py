"""How much is moved to the device at a time, at the sizes where the answer changes."""

from itertools import islice
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.data.splits import Ragged
from evenly.models import Softmax
from evenly.records import replace
from evenly.simulate import layout, streaming
from evenly.simulate.layout import ProgramSpec, Shape, group_runs
from evenly.simulate.program import advance
from tests.simulations import algorithms

SIZES = (7, 2, 4)
BYTES = 4 * 13  # of the features


def federation(sizes: tuple[int, ...] = SIZES, dtype: Any = np.float32) -> Federation:
    """Clients whose training rows are in order: the rows of the first, then those of the second."""
    x = np.arange(sum(sizes)).astype(dtype)[:, None]
    made = Federation.from_arrays(
        x, np.arange(len(x)) % 2, np.repeat(np.arange(len(sizes)), sizes), shares=(1.0, 0.0)
    )
    return replace(made, x=x, train=Ragged(np.arange(len(x)), made.train.offsets))


def pretend(patch: pytest.MonkeyPatch, backend: str, memory: Any = None, **limits: float) -> None:
    class Device:
        def memory_stats(self) -> Any:
            return memory

    patch.setattr(jax, "default_backend", lambda: backend)
    patch.setattr(jax, "devices", lambda: [Device()])
    for name, value in limits.items():
        patch.setattr(streaming if hasattr(streaming, name) else layout, name, value)


@pytest.mark.parametrize(
    "backend, memory, resident, worth",
    [
        ("cpu", None, BYTES, False),  # just fits
        ("cpu", None, BYTES - 1, True),
        ("cpu", {"bytes_limit": 10**9}, BYTES - 1, True),  # a CPU's memory is the host's own
        ("gpu", {"bytes_limit": 2 * BYTES}, 1, False),  # half of a GPU's memory
        ("gpu", {"bytes_limit": 2 * BYTES - 1}, 1, True),
        ("gpu", {"bytes_limit": 2}, BYTES, False),
        ("gpu", {}, BYTES - 1, True),
        ("gpu", None, BYTES, False),
    ],
)
def test_data_are_streamed_where_they_do_not_fit(
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    memory: dict[str, int] | None,
    resident: int,
    worth: bool,
):
    pretend(monkeypatch, backend, memory, LARGEST_RESIDENT=resident)
    assert layout.worth_streaming(federation(), 1) == worth


@pytest.mark.parametrize("runs, worth", [(1, False), (2, False), (3, True)])
def test_or_where_the_counts_of_an_evaluation_do_not(
    monkeypatch: pytest.MonkeyPatch, runs: int, worth: bool
):
    # ten owners, one group, two labels and outcomes, for two runs
    pretend(monkeypatch, "cpu", MOST_CELLS=2 * 10 * 4)
    assert layout.worth_streaming(federation(), runs) == worth


def test_small_rows_are_streamed_on_a_cpu_only(monkeypatch: pytest.MonkeyPatch):
    pretend(monkeypatch, "cpu", SCATTERED_BYTES=BYTES - 1, CACHED_BYTES=10**6)
    # 7 * 13 rows trained, 2 * 3 * 13 evaluated
    assert layout.faster_to_stream(federation(), 3, 7, 3)
    assert not layout.faster_to_stream(federation(), 3, 6, 3)
    monkeypatch.setattr(layout, "SCATTERED_BYTES", BYTES)
    assert not layout.faster_to_stream(federation(), 3, 7, 3), "few rows are never far apart"
    pretend(monkeypatch, "cpu", SCATTERED_BYTES=BYTES - 1, CACHED_BYTES=BYTES)
    assert not layout.faster_to_stream(federation(), 3, 7, 3), (
        "a round goes through all that fits into the cache"
    )
    pretend(monkeypatch, "gpu", CACHED_BYTES=10**6)
    assert not layout.faster_to_stream(federation(), 3, 7, 3)


@pytest.mark.parametrize(
    "backend, sizes, dtype, slots, limits, memory, rounds",
    [
        ("cpu", SIZES, np.float32, 3, {"CACHED_BYTES": 5 * BYTES, "PIECE_BYTES": 0}, 0, 5),
        ("cpu", SIZES, np.float32, 3, {"CACHED_BYTES": 5 * BYTES - 1}, 0, 4),
        ("gpu", SIZES, np.float32, 3, {"PIECE_BYTES": 6 * BYTES, "CACHED_BYTES": 0}, 0, 6),
        ("cpu", SIZES, np.float32, 6, {"CACHED_BYTES": 4 * BYTES}, 0, 2),
        ("cpu", SIZES, np.float32, 3, {"CACHED_BYTES": 1}, 0, 1),  # one round at least
        # three memories of ten bytes a round
        ("cpu", SIZES, np.float32, 3, {"CACHED_BYTES": 9 * BYTES, "MEMORY_BYTES": 60}, 10, 2),
        ("cpu", SIZES, np.float32, 3, {"CACHED_BYTES": 9 * BYTES, "MEMORY_BYTES": 8}, 0, 8),
        ("cpu", (1, 1, 1), np.uint8, 3, {"CACHED_BYTES": 12}, 0, 4),  # rows of one byte
        ("cpu", (7, 2, 4), np.uint8, 3, {"CACHED_BYTES": 26}, 0, 2),
    ],
)
def test_as_many_rounds_are_moved_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch, backend: str, sizes: tuple[int, ...], dtype: Any, slots: int,
    limits: dict[str, int], memory: int, rounds: int,
):  # fmt: skip
    pretend(monkeypatch, backend, **limits)
    assert (
        streaming.most_rounds(
            federation(sizes, dtype), slots, np.zeros(memory, np.uint8) if memory else ()
        )
        == rounds
    )


def test_a_gigabyte_stays_on_the_device_and_some_megabytes_are_moved_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
):
    small = federation()
    assert not layout.worth_streaming(small, 2**27 // 40)  # forty cells for each run
    assert layout.worth_streaming(small, 2**27 // 40 + 1)
    for rows, worth in ((2**28, False), (2**28 + 1, True)):
        large: Any = SimpleNamespace(
            x=np.broadcast_to(np.float32(0), (rows, 1)), clients=3, groups=("all",), labels=(0, 1)
        )
        assert layout.worth_streaming(large, 1) == worth
    assert streaming.most_rounds(small, 3, ()) == 2**25 // BYTES
    assert streaming.most_rounds(small, 3, [np.zeros(2**20, np.float32)]) == 2**28 // (
        3 * 4 * 2**20
    )
    pretend(monkeypatch, "gpu")
    assert streaming.most_rounds(small, 3, ()) == 2**26 // BYTES


@pytest.mark.parametrize(
    "form", [{"groups": 2}, {"labels": 3}, {"runs": 5}, {"groups": 2, "labels": 3, "runs": 5}]
)
def test_an_evaluation_has_room_for_the_counts_of_all_runs(
    monkeypatch: pytest.MonkeyPatch, form: dict[str, Any]
):
    cells = 3 * form.get("groups", 1) * form.get("labels", 2) ** 2 * form.get("runs", 1)
    for room, stops in ((2 * cells, [2, 3]), (2 * cells - 1, [1, 2, 3]), (3 * cells, [3])):
        monkeypatch.setattr(streaming, "LARGEST_BLOCK_CELLS", room)
        assert [piece.clients.stop for piece in pieces_of(streamed(federation(), **form))] == stops


def pieces_of(source: streaming.Streamed) -> list[streaming.Piece]:
    """The pieces of an evaluation, and not more than a few where they would never end."""
    return list(islice(source._pieces(), 9))


def streamed(
    whole: Federation, text: str = "fedavg", panel: Any = None, memory: int = 0, **shape: Any
) -> streaming.Streamed:
    form: dict[str, Any] = {
        "runs": 1, "bounds": (0, 1), "axis": 0, "clients": whole.clients, "groups": 1, "labels": 2,
        "lanes": 1, "stride": 1, "unroll": 1, "equal": 0, "devices": 1, "chunk": 4, "eval_chunk": 4,
        "lists": 0,
    }  # fmt: skip
    watched = (
        np.arange(whole.clients, dtype=np.int32) if panel is None else np.array(panel, np.int32)
    )
    parts = group_runs(algorithms(text)).parts
    program = ProgramSpec(Softmax(features=1, classes=2), Shape(**form | shape), parts, advance)
    return streaming.Streamed(whole, whole.weight, watched, program, np.zeros(memory, np.uint8))


def test_a_block_holds_its_clients_rows_in_the_order_of_their_first_visits():
    source = streamed(federation())
    block = source.load_block(np.array([[2, 1], [1, 2]]))
    assert block.clients.tolist() == [2, 1]
    assert block.train.offsets.tolist() == [0, 4, 6]
    assert block.train.rows.tolist() == list(range(6))
    assert block.tables.x[:6, 0].tolist() == [9, 10, 11, 12, 7, 8]
    assert block.tables.y[:6].tolist() == [1, 0, 1, 0, 1, 0]
    assert block.valid is None
    assert block.padding == 7  # a quarter more than six, and a row of padding after them
    assert block.tables.x[7:].tolist() == [[0.0]]


def test_there_is_room_for_a_quarter_more_but_never_for_more_than_all_rows():
    source = streamed(federation())
    assert [source.load_block(np.array([[k]])).padding for k in (1, 2, 1)] == [2, 5, 5]
    assert source.load_block(np.array([[0, 1, 2]])).padding == 13
    assert streamed(federation((40, 3))).load_block(np.array([[0]])).padding == 43


def test_tables_are_used_again_once_the_block_before_last_is_done():
    source = streamed(federation())
    first, second, third, fourth = (source.load_block(np.array([[k]])).tables for k in (0, 1, 2, 1))
    assert first.x is not second.x
    assert third.x is first.x
    assert fourth.x is second.x
    assert source.load_block(np.array([[0, 1, 2]])).tables.x is not first.x, (
        "more rows need a larger table"
    )


def test_validation_rows_come_after_all_training_rows():
    whole = replace(
        federation(),
        train=Ragged(np.arange(9), np.array([0, 5, 6, 9])),
        valid=Ragged(np.arange(9, 13), np.array([0, 2, 3, 4])),
    )
    block = streamed(whole, "fairfed(measured_on=valid)").load_block(np.array([[2, 0]]))
    assert block.train.offsets.tolist() == [0, 3, 8]
    assert block.valid is not None
    assert block.valid.tolist() == [8, 9, 11]
    assert block.tables.x[:11, 0].tolist() == [6, 7, 8, 0, 1, 2, 3, 4, 12, 9, 10]


@pytest.mark.parametrize(
    "limits, memory, panel, central, pieces",
    [
        ({}, 0, None, 0, [(0, 3)]),  # all at once
        # twelve cells for each client
        ({"LARGEST_BLOCK_CELLS": 2 * 12}, 0, None, 0, [(0, 2), (2, 3)]),
        ({"LARGEST_BLOCK_CELLS": 1}, 0, None, 0, [(0, 1), (1, 2), (2, 3)]),
        ({"MEMORY_BYTES": 20}, 10, None, 0, [(0, 2), (2, 3)]),
        ({"MEMORY_BYTES": 20}, 0, None, 0, [(0, 3)]),
        # the rows of the largest, in chunks of four: 8
        ({"PIECE_BYTES": 4}, 0, None, 0, [(0, 1), (1, 3)]),
        ({"PIECE_BYTES": 9 * 4}, 0, None, 0, [(0, 2), (2, 3)]),  # nine rows, in chunks of four: 12
        ({"PIECE_BYTES": 4}, 0, [1, 2], 0, [(0, 1), (1, 2)]),
        ({"PIECE_BYTES": 4}, 0, [2, 1], 5, [(0, 1), (1, 2), 4, 1]),
        ({"PIECE_BYTES": 4}, 0, None, 13, [(0, 1), (1, 3), 8, 5]),
        ({}, 0, None, 13, [(0, 3), 13]),
    ],
)
def test_everybody_is_evaluated_once_as_many_at_a_time_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, int],
    memory: int,
    panel: list[int] | None,
    central: int,
    pieces: list,
):
    for name, value in limits.items():
        monkeypatch.setattr(streaming if hasattr(streaming, name) else layout, name, value)
    whole = replace(federation(), central=np.arange(central, dtype=np.int32))
    found = pieces_of(streamed(whole, panel=panel, memory=memory))
    watched = [
        (piece.clients.start, piece.clients.stop) for piece in found if not len(piece.central)
    ]
    rest = [len(piece.central) for piece in found if len(piece.central)]
    assert [*watched, *rest] == pieces
    assert np.concatenate([piece.central for piece in found]).tolist() == list(range(central))


def test_who_has_not_trained_remembers_what_everybody_did_at_first():
    kept = streaming.HostMemories.empty({"a": np.array([1.0, 2.0], np.float32)}, 4)
    # the last is padding
    kept.put(np.array([3, 1]), {"a": np.array([[5, 6], [7, 8], [9, 9]], np.float32)})
    assert kept.mask.tolist() == [False, True, False, True]
    assert kept.of(np.array([0, 1, 3]), 5)["a"].tolist() == [[1, 2], [7, 8], [5, 6], [1, 2], [1, 2]]
    assert kept.first["a"].tolist() == [1, 2]

"""A run is cut into blocks for memory's sake only: the cuts must not show."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from evenly.models import MLP
from evenly.parts.sampling import Full
from evenly.simulate import advance, run, schedule, simulate
from evenly.simulate.layout import Shape
from evenly.simulate.program import RoundRecord
from evenly.simulate.schedule import Planner
from evenly.simulate.traces import RunHistory
from evenly.types import Seeds
from tests.simulations import Simulated, algorithms, flat, same_bits

TEXT, ROUNDS = "q-fedavg(q=1)", 11


@pytest.mark.parametrize(
    "rows, cells", [(1, 2**22), (700, 2**22), (2**21, 1), (700, 1), (2**21, 2000)]
)
@pytest.mark.parametrize("every", [0, 2])
def test_the_result_does_not_depend_on_the_size_of_blocks(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, rows: int, cells: int, every: int
):
    expected = simulated(TEXT, ROUNDS, evaluate_every=every)
    monkeypatch.setattr(schedule, "LARGEST_BLOCK_ROWS", rows)
    monkeypatch.setattr(schedule, "LARGEST_BLOCK_CELLS", cells)
    seen = []
    (trace,) = simulate(
        simulated.task,
        simulated.federation,
        algorithms(TEXT),
        ROUNDS,
        evaluate_every=every,
        progress=lambda done, _: seen.append(done),
    )
    same_bits(trace, expected)
    assert seen[-1] == ROUNDS
    assert seen == sorted(set(seen)), "every block moves on"
    assert len(seen) > 1 or (every == 0 and rows == 2**21), "the limits took effect"
    if rows == 1:
        assert len(seen) == ROUNDS


@pytest.mark.parametrize(
    "rounds, every, expected",
    [
        (5, 0, [0, 5]),
        (5, 2, [0, 2, 4, 5]),
        (4, 2, [0, 2, 4]),
        (3, 10, [0, 3]),
        (3, 1, [0, 1, 2, 3]),
        (1, 1, [0, 1]),
    ],
)
def test_evaluations_fall_where_they_were_asked_for(
    simulated: Simulated, rounds: int, every: int, expected: list[int]
):
    trace = simulated(TEXT, rounds, evaluate_every=every)
    assert trace.rounds.tolist() == expected
    assert trace.tables.shape == (len(expected), 3, 6, 2, 3, 3)
    assert trace.losses.shape == (len(expected), 3, 6)
    assert trace.central.shape == (len(expected), 2, 3, 3)
    assert trace.cohort.shape == trace.weights.shape == (rounds, 3)


def test_a_shorter_run_is_the_beginning_of_a_longer_one(simulated: Simulated):
    long, short = simulated(TEXT, ROUNDS, evaluate_every=2), simulated(TEXT, 4, evaluate_every=2)
    assert (long.tables[:3] == short.tables).all()
    assert (long.weights[:4] == short.weights).all()


def test_a_run_needs_a_round(simulated: Simulated):
    with pytest.raises(ValueError, match=r"^rounds must be at least 1, got 0\.$"):
        simulate(simulated.task, simulated.federation, algorithms(TEXT), 0)


@pytest.mark.parametrize(
    "text, chunk, eval_chunk",
    [
        (TEXT, 64, 512),
        ("fedfb", 7, 16),
        pytest.param(TEXT, 7, 16, marks=pytest.mark.further),
        pytest.param("fedfb", 64, 512, marks=pytest.mark.further),
    ],
)
def test_nor_on_how_many_rows_are_read_at_a_time(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, text: str, chunk: int, eval_chunk: int
):
    expected = simulated(text, 20)
    monkeypatch.setattr(
        run, "Shape", lambda **given: Shape(**{**given, "chunk": chunk, "eval_chunk": eval_chunk})
    )
    (trace,) = simulate(simulated.task, simulated.federation, algorithms(text), 20)
    np.testing.assert_array_equal(trace.tables, expected.tables)
    np.testing.assert_allclose(trace.losses, expected.losses, rtol=1e-6)
    np.testing.assert_allclose(flat(trace.model), flat(expected.model), atol=1e-6)


def test_blocks_grow_until_they_take_two_seconds():
    pace = schedule.Pace(1, steady=False)
    taken = []
    for _ in range(7):
        taken.append(pace.rounds)
        pace.note(pace.rounds, 0.02 * pace.rounds)
    assert taken == [1, 4, 16, 64, 100, 100, 100]
    pace.note(1, 60.0)
    assert pace.rounds == 1, "however long a round is"


def test_steady_blocks_stay_as_they_are():
    pace = schedule.Pace(8, steady=True)
    pace.note(8, 1e-9)
    assert pace.rounds == 8


def test_slow_rounds_are_told_one_by_one(simulated: Simulated, monkeypatch: pytest.MonkeyPatch):
    task, seen = MLP(features=5, classes=3, hidden=(4,)), []
    monkeypatch.setattr(schedule, "BLOCK_SECONDS", 0.0)
    (slow,) = simulate(
        task, simulated.federation, algorithms(TEXT), 5, progress=lambda done, _: seen.append(done)
    )
    assert seen == [1, 2, 3, 4, 5]
    monkeypatch.undo()
    same_bits(slow, simulate(task, simulated.federation, algorithms(TEXT), 5)[0])


def test_who_advances_side_by_side_with_others_keeps_steady_blocks(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(schedule, "BLOCK_SECONDS", 0.0)
    task, seen = MLP(features=5, classes=3, hidden=(4,)), []
    member = lambda *arguments: advance(*arguments)  # noqa: E731  as a seed batch yields it
    simulate(
        task,
        simulated.federation,
        algorithms(TEXT),
        5,
        advance=member,
        progress=lambda done, _: seen.append(done),
    )
    assert seen in ([5], [4, 5]), "as many as fit"


def test_what_is_kept_of_a_short_block_is_no_more_than_its_rounds(simulated: Simulated):
    block = Planner(
        simulated.federation, algorithms(TEXT)[0].work, [Full()], seeds=Seeds(), dropout=0.0
    ).block(0, 1, rounds=50, steps=100, stops=np.array([1]), evaluate=np.array([False]))
    history = RunHistory.empty()
    weights, nothing = jnp.zeros((50, 6, 1)), jnp.zeros(0)
    history.add_rounds(block, RoundRecord(weights, nothing, nothing, None), 1)
    for (kept,) in (history.cohort, history.weights):
        assert len(kept) == 1
        assert kept.base is None


class Steady:
    """A planner whose rounds are known by heart: five steps each, seven at most, in batches of two,
    for three clients.
    """

    usual_steps_per_round, most_steps_per_round, batch, lanes, slots = 5, 7, 2, 1, 3

    def __init__(self, **other: int) -> None:
        self.__dict__.update(other)

    def fit_rounds(self, start: int, stop: int, steps: int) -> int:
        return min(stop, start + steps // 5)

    def block(self, start: int, stop: int, **given: Any) -> Any:
        return given


def cut(planner: Any = None, **other: Any) -> schedule.Blocks:
    given: Any = planner or Steady()
    return schedule.Blocks(given, **{"rounds": 20, "every": 4, "runs": 1, "cells": 10} | other)


def segment(ahead: schedule.PlannedBlock | None) -> tuple[int, int, list[int], int]:
    """Where a block begins and ends, the ends of its stretches, and how many of the first of them
    are evaluated.
    """
    assert ahead is not None
    made: Any = ahead.block
    stops, count = made["stops"].tolist(), int(made["evaluate"].sum())
    assert made["evaluate"][:count].all()
    assert len(stops) == len(made["evaluate"])
    ends = [stop for stop in stops if stop >= 0]
    assert stops == ends + [-1] * (len(stops) - len(ends)), "what is left of the room"
    return ahead.start, ahead.stop, ends, count


@pytest.mark.parametrize(
    "n, found",
    [(1, 1), (15, 15), (16, 16), (17, 18), (33, 36), (100, 104), (960, 960), (961, 1024)],
)
def test_sizes_are_rounded_up_to_four_bits(n: int, found: int):
    assert schedule.round_up(n) == found


@pytest.mark.parametrize(
    "rows, cells, other, rounds, padded, steps",
    [
        (2**21, 2**22, {}, 20, 32, 160),  # room for the next power of two, and five steps a round
        (40, 2**22, {}, 4, 32, 20),  # room for 20 batches of two
        (2, 2**22, {}, 1, 32, 7),  # one round at least, however long
        (2**21, 25, {"runs": 2}, 4, 4, 160),  # 25 cells, six for each round
        (2**21, 5, {"runs": 2}, 1, 1, 160),
        (2**21, 2**22, {"rounds": 3}, 8, 8, 40),  # a short run shares the program of longer ones
        (2**21, 2**22, {"rounds": 9}, 9, 16, 80),
        (2**21, 2**22, {"rounds": 16}, 16, 16, 80),
        (2**21, 2**22, {"rounds": 17}, 17, 32, 160),
        (2**21, 2**22, {"most": 2}, 2, 2, 10),
        (2**21, 2**22, {"most": 0}, 1, 1, 7),
        (2**21, 2**22, {"rounds": 5000}, 1024, 1024, 5120),
    ],
)
def test_a_block_has_room_for_what_fits(
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    cells: int,
    other: dict[str, Any],
    rounds: int,
    padded: int,
    steps: int,
):
    monkeypatch.setattr(schedule, "LARGEST_BLOCK_ROWS", rows)
    monkeypatch.setattr(schedule, "LARGEST_BLOCK_CELLS", cells)
    made = cut(**other)
    assert made.rounds == rounds
    first: Any = made.next(0)
    assert (first.block["rounds"], first.block["steps"]) == (padded, steps)


def test_lanes_share_the_room_and_rounds_without_steps_are_cut_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schedule, "LARGEST_BLOCK_ROWS", 80)
    assert cut(Steady(lanes=2)).rounds == 4
    empty = Steady(usual_steps_per_round=0, most_steps_per_round=0)
    first: Any = cut(empty).next(0)
    assert (first.block["rounds"], first.block["steps"]) == (32, 32)


def test_evaluations_are_the_ends_of_stretches():
    every = cut()
    assert segment(every.next(0)) == (0, 20, [0, 4, 8, 12, 16, 20], 6)
    assert segment(every.next(8)) == (8, 20, [4, 8, 12], 3)
    assert segment(every.next(0, 3)) == (0, 3, [0, 3], 1)
    assert segment(every.next(3, 3)) == (3, 6, [1, 3], 1)
    assert segment(every.next(4, 3)) == (4, 7, [3], 0)
    assert segment(every.next(19)) == (19, 20, [1], 1)
    assert every.next(20) is None
    first: Any = every.next(0)
    assert len(first.block["stops"]) == 65, "64 evaluations at most, and the end"


def test_a_block_ends_where_no_further_evaluation_fits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schedule, "LARGEST_BLOCK_CELLS", 60)
    for cells, stops in ((60, 2), (31, 2), (20, 3)):
        every, starts, seen = cut(cells=cells), [0], []
        while ahead := every.next(starts[-1]):
            start, stop, ends, count = segment(ahead)
            assert count <= stops
            seen += [start + end for end in ends[:count]]
            starts.append(stop)
        assert seen == [0, 4, 8, 12, 16, 20]
        assert starts == ([0, 4, 12, 20] if stops == 2 else [0, 8, 20])


def test_an_evaluation_that_is_made_elsewhere_ends_a_block():
    apart = cut(cells=0)
    assert segment(apart.next(0)) == (0, 4, [4], 0)
    assert segment(apart.next(4, 2)) == (4, 6, [2], 0)
    assert segment(apart.next(6)) == (6, 8, [2], 0)
    assert segment(cut(cells=0, every=0).next(0)) == (0, 20, [20], 0)

"""What the host decides ahead, on three or four clients whose steps are counted by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from evenly import randomness
from evenly.data.federation import Federation
from evenly.data.splits import Ragged
from evenly.parts.sampling import Full, Uniform, Weighted
from evenly.parts.work import LocalTraining
from evenly.records import replace
from evenly.simulate.schedule import Block, BlockData, Planner, Tables, deal
from evenly.types import Seeds, Select

SIZES = (7, 2, 4)  # in batches of two: 4, 1 and 2 steps
NOBODY = 13  # the row of padding


def federation(sizes: Sequence[int] = SIZES) -> Federation:
    x = np.zeros((sum(sizes), 1), np.float32)
    made = Federation.from_arrays(
        x, np.arange(len(x)) % 2, np.repeat(np.arange(len(sizes)), sizes), shares=(1.0, 0.0)
    )
    return replace(made, train=Ragged(np.arange(len(x)), made.train.offsets))  # in order


def planner(
    *selects: Select,
    sizes: Sequence[int] = SIZES,
    epochs: int = 1,
    max_steps: int = 0,
    dropout: float = 0.0,
    **more: Any,
) -> Planner:
    work = LocalTraining(epochs=epochs, batch_size=2, max_steps=max_steps, shuffle=False)
    return Planner(
        federation(sizes),
        work,
        selects or (Full(),),
        seeds=Seeds(cohort=5),
        dropout=dropout,
        **more,
    )


def block(plan: Planner, start: int, stop: int, rounds: int, steps: int) -> Block:
    return plan.block(
        start,
        stop,
        rounds=rounds,
        steps=steps,
        stops=np.array([stop - start]),
        evaluate=np.array([False]),
    )


@pytest.mark.parametrize(
    "steps, lanes, dealt",
    [
        ([3, 0, 5, 3, 1], 2, [(6, [2, 4]), (6, [0, 3])]),  # nothing to do: dealt to nobody
        ([3, 0, 5, 3, 1], 1, [(12, [2, 0, 3, 4])]),
        ([1, 1], 3, [(1, [0]), (1, [1]), (0, [])]),
        ([2, 4], 2, [(4, [1]), (2, [0])]),
    ],
)
def test_the_longest_visit_goes_first_to_the_lane_with_the_least_to_do(
    steps: list[int], lanes: int, dealt: list
):
    assert deal(np.array(steps), lanes) == dealt


@pytest.mark.parametrize(
    "options, steps",
    [
        ({}, [4, 1, 2]),
        ({"epochs": 3}, [12, 3, 6]),
        ({"max_steps": 2}, [2, 1, 2]),
        ({"max_steps": 5, "epochs": 3}, [5, 3, 5]),
    ],
)
def test_a_clients_steps_are_its_batches_of_all_epochs_up_to_the_limit(
    options: dict[str, Any], steps: list[int]
):
    assert planner(**options).steps.tolist() == steps


@pytest.mark.parametrize(
    "selects, slots",
    [
        ((Full(),), 3),
        ((Uniform(clients=2),), 2),
        # one sampling may have more slots than there are clients
        ((Weighted(clients=9, replace=True),), 9),
        ((Uniform(clients=1), Weighted(clients=1)), 2),
        ((Uniform(clients=2), Weighted(clients=2)), 3),  # everybody, once
        ((Full(), Uniform(clients=1)), 3),
    ],
)
def test_there_is_a_slot_for_everyone_whom_some_sampling_may_choose(
    selects: tuple[Select, ...], slots: int
):
    assert planner(*selects).slots == slots


@pytest.mark.parametrize(
    "select, options, most",
    [
        (Full(), {}, 7),
        (Uniform(clients=2), {}, 6),  # the two longest
        (Uniform(clients=1), {}, 4),
        (Weighted(clients=2, replace=True), {}, 8),  # the longest twice
        (Full(), {"lanes": 2}, 4),  # 4 | 2 + 1
        (Weighted(clients=3, replace=True), {"lanes": 2}, 8),  # 4 + 4 | 4
        (Weighted(clients=3, replace=True), {"lanes": 3}, 4),
        (Weighted(clients=4, replace=True), {"lanes": 2, "devices": 2}, 4),  # four lanes in all
        # on each of two devices one after another: as if on one
        (Full(), {"lanes": 1, "devices": 2}, 7),
    ],
)
def test_the_longest_round_is_that_of_the_longest_clients(
    select: Select, options: dict[str, Any], most: int
):
    assert planner(select, **options).most_steps_per_round == most


def test_a_usual_round_is_a_little_longer_than_the_average_and_never_longer_than_the_longest():
    unequal = (18, 2, 2, 2)  # 9, 1, 1 and 1 steps: 3 on average
    assert (
        planner(Uniform(clients=2), sizes=unequal).usual_steps_per_round
        == int(1.1 * 2 * 3) + 1
        == 7
    )
    assert planner(Uniform(clients=2), sizes=unequal, lanes=2).usual_steps_per_round == 9, (
        "lanes are fitted by the longest round"
    )
    assert planner(Uniform(clients=2), sizes=(4, 4)).usual_steps_per_round == 4
    assert planner(Uniform(clients=1), sizes=(4, 2)).usual_steps_per_round == 2


def test_a_sampling_that_is_one_of_several_chooses_whom_it_would_choose_alone():
    few, two = Uniform(clients=1), Weighted(clients=2)
    both = planner(few, two).cohorts(3, 9)
    alone = [planner(select).cohorts(3, 9).cohort for select in (few, two)]
    assert both.samplings is not None
    idle = 0
    for t in range(6):
        wanted = sorted({int(k) for own in alone for k in own[t]})
        assert both.cohort[t, : len(wanted)].tolist() == wanted
        for i, own in enumerate(alone):
            assert both.samplings[t, :, i].tolist() == [k in own[t] for k in wanted] + [False] * (
                3 - len(wanted)
            )
        assert both.returned[t].tolist() == [True] * len(wanted) + [False] * (3 - len(wanted)), (
            "a slot that nobody needs stays empty"
        )
        idle += 3 - len(wanted)
    assert 0 < idle < 6
    assert planner(few).cohorts(0, 2).samplings is None


def test_slots_that_nobody_chose_take_no_steps():
    selects = (Uniform(clients=1), Weighted(clients=2))
    made = planner(*selects).cohorts(0, 12)
    loads = np.where(made.returned, np.array([4, 1, 2])[made.cohort], 0).sum(1)
    for room in (7, 12, 20):
        stop = planner(*selects).fit_rounds(0, 12, room)
        assert loads[:stop].sum() <= room < loads[: stop + 1].sum()
    padded = block(planner(*selects), 0, 12, 14, 84)
    steps = np.diff(padded.first_step).reshape(14, 3)
    np.testing.assert_array_equal(steps.sum(1), [*loads, 0, 0])
    assert padded.samplings is not None
    np.testing.assert_array_equal(padded.samplings[:12], made.samplings)
    assert padded.samplings.shape == (14, 3, 2)
    assert not padded.samplings[12:].any()


def test_one_round_fits_always_and_all_where_there_is_room_for_the_longest():
    assert planner().fit_rounds(2, 6, 1) == 3
    assert planner().fit_rounds(2, 6, 27) == 5
    assert planner().fit_rounds(2, 6, 28) == 6
    assert planner().fit_rounds(2, 6, 10**6) == 6
    assert planner(lanes=2).fit_rounds(2, 6, 16) == 6, (
        "side by side a round takes four steps at most"
    )


def test_a_block_has_its_clients_rows_in_turn_and_padding_after_them():
    made = block(planner(), 1, 3, rounds=4, steps=20)
    assert made.cohort.tolist() == [[0, 1, 2]] * 2 + [[0, 0, 0]] * 2
    assert made.position.tolist() == made.cohort.tolist()
    assert made.returned.tolist() == [[True] * 3] * 2 + [[False] * 3] * 2
    assert made.first_step.tolist() == [0, 4, 5, 7, 11, 12, 14] + [14] * 6
    one = [[0, 1], [2, 3], [4, 5], [6, NOBODY], [7, 8], [9, 10], [11, 12]]
    assert made.rows.tolist() == one + one + [[NOBODY] * 2] * 6
    assert (made.lanes, made.turns, made.source, made.samplings) == (None, None, None, None)
    expected = [randomness.generator(5, "chance", t).random(2) for t in (1, 2)]
    np.testing.assert_array_equal(made.chance, np.array([*expected, [0, 0], [0, 0]], np.float32))


def test_what_does_not_fit_is_refused_and_what_just_fits_is_not():
    assert block(planner(), 0, 2, rounds=2, steps=14).first_step[-1] == 14
    with pytest.raises(
        ValueError, match=r"^Rounds from 0 take 14 steps, but at most 13 were expected\."
    ):
        block(planner(), 0, 2, rounds=2, steps=13)


def test_lanes_take_the_same_batches_side_by_side():
    made = block(planner(lanes=2), 0, 2, rounds=3, steps=10)
    lanes = made.lanes
    assert lanes is not None
    assert len(made.rows) == 0
    assert lanes.first_step.tolist() == [0, 4, 8, 8]
    # The longest client has the first lane; in the second the one of two steps comes before the one
    # of one.
    assert lanes.slot.tolist() == [[0, 2], [0, 2], [0, 1], [0, 3]] * 2 + [[3, 3]] * 2
    assert (
        lanes.starts.tolist()
        == [[True, True], [False, False], [False, True], [False, False]] * 2 + [[False, False]] * 2
    )
    assert (
        lanes.ends.tolist()
        == [[False, False], [False, True], [False, True], [True, False]] * 2 + [[False, False]] * 2
    )
    second = [[9, 10], [11, 12], [7, 8], [NOBODY, NOBODY]]
    assert (
        lanes.rows[:, 0].tolist()
        == [[0, 1], [2, 3], [4, 5], [6, NOBODY]] * 2 + [[NOBODY, NOBODY]] * 2
    )
    assert lanes.rows[:, 1].tolist() == second * 2 + [[NOBODY, NOBODY]] * 2


@pytest.mark.parametrize(
    "options, turns",
    [
        ({"devices": 2}, [[0, 3, 3], [2, 1, 3]]),
        ({"devices": 3}, [[0, 3, 3], [2, 3, 3], [1, 3, 3]]),
        ({"devices": 4}, [[0, 3, 3], [2, 3, 3], [1, 3, 3], [3, 3, 3]]),
        # the first two of four lanes, and the others
        ({"devices": 2, "lanes": 2}, [[0, 2, 3], [1, 3, 3]]),
    ],
)
def test_each_device_visits_the_clients_of_its_own_lanes(options: dict[str, Any], turns: list):
    made = block(planner(**options), 0, 1, rounds=2, steps=10)
    assert made.turns is not None
    assert made.turns.tolist() == [turns, [[3, 3, 3]] * options["devices"]]


def test_who_drops_out_is_dealt_to_nobody():
    made = planner(dropout=0.5).cohorts(0, 30)
    lost = np.stack([randomness.generator(5, "dropout", t).random(3) < 0.5 for t in range(30)])
    np.testing.assert_array_equal(made.returned, ~lost)
    lanes = block(planner(dropout=0.5, lanes=3), 0, 30, rounds=30, steps=120).lanes
    assert lanes is not None
    for t in range(30):
        own = lanes.slot[lanes.first_step[t] : lanes.first_step[t + 1]]
        assert set(own.ravel().tolist()) - {3} == set(np.flatnonzero(~lost[t]).tolist())


@pytest.mark.parametrize("dropout", [0.0, 0.999])
def test_any_share_below_one_may_drop_out(dropout: float):
    assert planner(dropout=dropout).cohorts(0, 1).returned.all() == (dropout == 0)


def test_rows_that_are_held_for_a_block_are_read_from_their_place():
    """Clients 2 and 0 lie in a table of their own, in the order of their first visits."""
    tables = Tables(np.zeros((12, 1)), np.zeros(12, int), np.zeros(12, int), None)
    held = BlockData(
        np.array([2, 0], np.int32),
        Ragged(np.arange(11, dtype=np.int32), np.array([0, 4, 11])),
        tables,
    )
    assert held.padding == 11
    assert held.position(np.array([[0, 2], [2, 2]])).tolist() == [[1, 0], [0, 0]]

    class These(Full):
        def slots(self, census: Any) -> int:
            return 2

        def __call__(self, state: Any, generator: np.random.Generator) -> tuple[np.ndarray, Any]:
            return np.array([2, 0]), state

    made = block(planner(These(), load_block=lambda cohort: held), 0, 1, rounds=1, steps=7)
    assert made.source is held
    assert made.cohort.tolist() == [[2, 0]]
    assert made.position.tolist() == [[0, 1]]
    assert made.rows.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [11, 11]]


def test_large_clients_are_copied_one_by_one(monkeypatch: pytest.MonkeyPatch):
    expected = block(planner(epochs=2, max_steps=5), 0, 1, rounds=1, steps=20).rows.tolist()
    first, third = [[0, 1], [2, 3], [4, 5], [6, NOBODY]], [[9, 10], [11, 12]]
    assert expected == [*first, first[0], [7, 8], [7, 8], *third, *third] + [[NOBODY] * 2] * 9
    for small in (0, 2, 4, 7):
        monkeypatch.setattr("evenly.simulate.schedule.SMALL", small)
        assert (
            block(planner(epochs=2, max_steps=5), 0, 1, rounds=1, steps=20).rows.tolist()
            == expected
        )


def test_a_last_epoch_that_is_cut_short_leaves_the_padding_alone():
    made = block(planner(sizes=(2, 7), epochs=2, max_steps=5), 0, 1, rounds=1, steps=12)
    own = [[2, 3], [4, 5], [6, 7], [8, 9]]
    assert made.rows.tolist() == [[0, 1], [0, 1], *own[:3], [8, 9], own[0]] + [[9] * 2] * 5


@pytest.mark.parametrize(
    "enough, longest, small, epochs, together",
    [
        (2, 4, 128, 1, [[2, 4]]),
        (3, 4, 128, 1, []),  # too few of them
        (3, 7, 128, 1, [[7, 2, 4]]),
        (1, 3, 128, 1, [[2]]),  # the others are long
        (1, 64, 2, 1, [[2]]),
        (1, 64, 128, 2, []),  # of several epochs one after another
    ],
)
def test_enough_small_clients_are_shuffled_together(
    monkeypatch: pytest.MonkeyPatch,
    enough: int,
    longest: int,
    small: int,
    epochs: int,
    together: list[list[int]],
):
    work = LocalTraining(epochs=epochs, batch_size=2)

    def plan():
        return block(
            Planner(federation(), work, [Full()], seeds=Seeds(), dropout=0.0),
            4,
            5,
            rounds=1,
            steps=14,
        )

    expected, seen, really = plan().rows, [], randomness.shuffle_each
    monkeypatch.setattr("evenly.simulate.schedule.SMALL", small)
    monkeypatch.setattr(randomness, "LONGEST", longest)
    monkeypatch.setattr(randomness, "ENOUGH", enough)
    monkeypatch.setattr(randomness, "like_numpy", lambda: True)
    monkeypatch.setattr(
        randomness,
        "shuffle_each",
        lambda *given, **counter: seen.append(given[3].tolist()) or really(*given, **counter),
    )
    np.testing.assert_array_equal(plan().rows, expected)
    assert seen == together

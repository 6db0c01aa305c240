"""Caps: what one client can claim and count is bounded, the sum stays, and nobody else is touched
more than needed.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evenly.algorithms import algorithm
from evenly.data.federation import Census
from evenly.flower import aggregation
from evenly.flower.caps import NOBODY, Caps, redistribute
from evenly.types import Signals

shares = st.lists(st.floats(0, 1e6), min_size=2, max_size=12).filter(lambda xs: sum(xs) > 1e-3)


def signals(loss: Any = None, examples: Any = None, returned: Any = None, **more: Any) -> Signals:
    count = len(loss if loss is not None else examples if examples is not None else returned)
    returned = np.ones(count, bool) if returned is None else np.asarray(returned, bool)
    loss = None if loss is None else np.asarray(loss, np.float64)
    return Signals(
        np.arange(count),
        returned,
        np.ones(count) if examples is None else np.asarray(examples),
        loss,
        **more,
    )


def cut(coefficients, cap, returned=None):
    coefficients = np.asarray(coefficients, np.float64)
    told = signals(returned=np.ones(len(coefficients), bool) if returned is None else returned)
    return Caps(coefficient=cap).coefficients(coefficients, told)


def test_a_huge_loss_is_cut_to_a_multiple_of_the_median_and_told():
    found, flags = Caps(loss="10x").signals(signals([1.0, 2.0, 3.0, 1e9]))
    # the lower middle, so that a huge one is never averaged in
    assert found.loss.tolist() == [1, 2, 3, 20]
    assert flags == [(3, "loss", 1e9, 20.0)]


def test_a_loss_of_nothing_is_raised_to_a_part_of_the_median():
    found, flags = Caps(loss="10x").signals(signals([1.0, 2.0, 3.0, 1e-9]))
    assert found.loss.tolist() == pytest.approx([1, 2, 3, 0.1])
    assert flags == [(3, "loss", 1e-9, pytest.approx(0.1))]
    assert Caps(loss=10.0).signals(signals([1.0, 2.0, 3.0, 1e-9]))[1] == []


def test_fewer_than_three_replies_have_no_median_to_trust():
    given = signals([1.0, 1e9])
    assert Caps(loss="10x").signals(given) == (given, [])
    assert Caps(loss=5.0).signals(given)[0].loss.tolist() == [1, 5]


def test_a_median_of_nothing_silences_nobody():
    found, flags = Caps(loss="10x", norm="3x").signals(signals([0.0, 0.0, 0.0, 2.0]))
    assert (found.loss.tolist(), flags) == ([0, 0, 0, 2], [])
    assert Caps(loss=1.0).signals(signals([0.0, 0.0, 0.0, 2.0]))[0].loss.tolist() == [0, 0, 0, 1]


def test_without_caps_nothing_is_touched():
    told, coefficients, census = (
        signals([1.0, 1e9]),
        np.array([0.1, 0.9]),
        Census(np.array([1, 9]), np.ones((2, 1, 1))),
    )
    assert Caps().signals(told)[0] is told
    assert Caps().coefficients(coefficients, told)[0] is coefficients
    assert Caps().census(census)[0] is census
    assert Caps().vectors(np.array([4.0, 1e12]), told)[0].tolist() == [1, 1]


def test_who_did_not_return_decides_nothing():
    found, flags = Caps(loss="2x").signals(
        signals([1.0, 1.0, 1.0, 9.0, 1e9], returned=[1, 1, 1, 1, 0])
    )
    assert found.loss.tolist() == [1, 1, 1, 2, 1e9]
    assert [flag.client for flag in flags] == [3]


def test_rows_shrink_with_everything_that_counts_them():
    table = np.ones((3, 1, 2, 2)) * np.array([1, 1, 100])[:, None, None, None]
    told = signals(
        examples=[4, 4, 400],
        table=table,
        unprivileged=np.array([2, 2, 200]),
        cell_loss=table.sum(-1),
    )
    found, flags = Caps(examples="5x").signals(told)
    assert found.examples.tolist() == [4, 4, 20]
    assert found.table.sum((1, 2, 3)).tolist() == [4, 4, 20]
    assert found.unprivileged.tolist() == [2, 2, 10]
    assert found.cell_loss.sum((1, 2)).tolist() == [4, 4, 20]
    assert flags == [(2, "examples", 400.0, 20.0)]


def test_who_claims_many_validation_rows_does_not_decide_what_is_usual():
    table = np.ones((4, 1, 2, 2)) * np.array([1, 1, 0, 2e8])[:, None, None, None]
    told = signals(examples=[40, 40, 40, 40], valid_table=table)
    found, flags = Caps(examples="2x").signals(told)
    assert found.examples.tolist() == [40, 40, 40, 40]
    # who has none says nothing of what is usual
    assert found.valid_table.sum((1, 2, 3)).tolist() == [4, 4, 0, 8]
    assert flags == [(3, "examples", 8e8, 8.0)]
    assert Caps(loss="2x").signals(told)[0] is told


def test_sizes_of_the_census_are_cut_too():
    census, flags = Caps(examples=10).census(
        Census(np.array([5, 40]), np.array([[[5, 0]], [[20, 20]]]))
    )
    assert census.examples.tolist() == [5, 10]
    assert census.cells.sum((1, 2)).tolist() == [5, 10]
    assert [flag.client for flag in flags] == [1]


def test_what_is_cut_goes_to_the_others_in_proportion():
    found, flags = cut([0.1, 0.2, 0.7], 0.5)
    np.testing.assert_allclose(found, [0.5 / 3, 1 / 3, 0.5])
    assert [(flag.client, flag.what) for flag in flags] == [(2, "coefficient")]


def test_what_one_client_alone_had_goes_to_everybody_who_returned():
    np.testing.assert_allclose(
        cut([0.0, 0.0, 1.0, 0.0], 0.4, [1, 1, 1, 0])[0], [0.3, 0.3, 0.4, 0.0]
    )


def test_a_share_that_cannot_hold_makes_all_count_alike_and_is_said():
    found, flags = cut([0.1, 0.9], 0.3)
    np.testing.assert_allclose(found, [0.5, 0.5])
    assert (NOBODY, "coefficient", 0.3, 0.5) in flags
    with pytest.raises(ValueError, match=r"at least 1 / 2 = 0\.5, because 2 clients"):
        Caps(coefficient=0.3).require_feasible(2)
    Caps(coefficient="3x").require_feasible(2)


def test_each_of_several_models_keeps_its_own_clients():
    """Weights need not sum to 1, and flags state shares of those of a model."""
    found, flags = cut([[1.0, 0.0], [9.0, 0.0], [0.0, 1.0], [0.0, 1.0]], 0.6)
    np.testing.assert_allclose(found, [[4, 0], [6, 0], [0, 1], [0, 1]])
    assert flags == [(1, "coefficient", pytest.approx(0.9), pytest.approx(0.6))]


def test_a_client_in_two_slots_is_capped_as_one():
    told = signals(returned=[1, 1, 1, 1])._replace(client=np.array([0, 1, 0, 2]))
    found, _ = Caps(coefficient=0.5).coefficients(np.array([0.4, 0.1, 0.4, 0.1]), told)
    np.testing.assert_allclose(found, [0.25, 0.25, 0.25, 0.25])


def test_long_updates_are_shortened():
    factors, flags = Caps(norm="3x").vectors(
        np.array([1.0, 4.0, 1.0, 900.0]), signals(returned=[1, 1, 1, 1])
    )
    np.testing.assert_allclose(factors, [1, 1, 1, 0.1])
    assert flags == [(3, "norm", 30.0, 3.0)]


@pytest.mark.parametrize("bad", ["ten", "10", -1.0, 0, float("nan"), "-2x", True])
def test_a_bound_that_is_none_is_refused(bad):
    with pytest.raises(
        ValueError, match="caps: loss must be a number above 0, a multiple such as '10x', or None"
    ):
        Caps(loss=bad)


def test_a_share_above_one_and_less_than_an_equal_share_are_refused():
    with pytest.raises(ValueError, match="a share of at most 1"):
        Caps(coefficient=1.5)
    with pytest.raises(ValueError, match="at least one equal share"):
        Caps(coefficient="0.5x")


@given(shares, st.floats(0.05, 1))
def test_the_sum_and_the_order_stay(held, cap):
    held = np.array(held)
    found, _ = cut(held, cap)
    np.testing.assert_allclose(found.sum(), held.sum(), rtol=1e-9)
    order = np.argsort(held, kind="stable")
    assert (np.diff(found[order]) >= -1e-9 * held.sum()).all()
    assert found.max() <= max(cap, 1 / len(held)) * held.sum() * (1 + 1e-9)


@given(shares, st.floats(0.05, 1), st.randoms(use_true_random=False))
def test_the_order_in_which_clients_come_does_not_matter(held, cap, chance):
    order = chance.sample(range(len(held)), len(held))
    held = np.array(held)
    np.testing.assert_allclose(
        cut(held[order], cap)[0], cut(held, cap)[0][order], rtol=1e-9, atol=1e-9
    )


@given(shares, st.floats(0.05, 1))
def test_cutting_twice_is_cutting_once(held, cap):
    once, _ = cut(held, cap)
    np.testing.assert_allclose(cut(once, cap)[0], once, rtol=1e-9, atol=1e-9)


@given(st.lists(st.floats(-1, 2), min_size=2, max_size=8), st.floats(0.2, 1))
def test_coefficients_below_zero_stop_at_the_cap_and_the_sum_stays(held, cap):
    held = np.array(held)
    assume(held.sum() > 0.1 and (held >= 0).sum() * cap > 1)
    limit = cap * held.sum()
    found = redistribute(held, limit, held.sum(), np.ones(len(held), bool))
    np.testing.assert_allclose(found.sum(), held.sum(), rtol=1e-9)
    assert found.min() >= -limit - 1e-9


METHODS = [
    "q-fedavg(q=1)",
    "q-fedavg(q=5)",
    "term(alpha=1, weights=equal)",
    "afl(form=local)",
    "afl",
    "p-fedavg",
    "p-fedavg(family=geometric)",
]


@pytest.mark.parametrize("text", METHODS)
@given(st.floats(1e-9, 1e6), st.sampled_from([4, 12]))  # every other number would be compiled anew
def test_whatever_one_client_reports_it_counts_no_more_than_the_cap(text, lie, clients):
    """Over three rounds in which it lies each time: AFL remembers."""
    made = algorithm(text)
    model = [np.zeros(3, np.float32)]
    state = aggregation.first_state(made, model, census(clients))
    trained = [[np.full(3, k, np.float32)] for k in range(clients)]
    for _ in range(3):
        honest = np.linspace(0.5, 1.0, clients)
        honest[0] = lie
        told = signals(honest.astype(np.float32), examples=np.ones(clients, np.float32))
        free, _ = aggregation.weigh(made, state, told)
        capped, _ = aggregation.weigh(made, state, told, Caps(coefficient=0.3))
        assert capped.weight[0] <= 0.3 * (1 + 1e-5) * free.weight.sum()
        np.testing.assert_allclose(capped.weight.sum(), free.weight.sum(), rtol=1e-5)
        done = aggregation.round_from_replies(made, state, told, trained, Caps(coefficient=0.3))
        assert done.coefficients[0] <= 0.3 * (1 + 1e-5)
        np.testing.assert_allclose(done.coefficients.sum(), 1.0, rtol=1e-5)
        state = done.state


def census(clients: int) -> Census:
    return Census(np.ones(clients), np.ones((clients, 1, 2)))


@pytest.mark.parametrize("text", ["q-fedavg(q=1)", "term(alpha=1, weights=equal)"])
@given(lie=st.floats(1e3, 1e6))
def test_a_cap_on_losses_makes_every_huge_lie_the_same_lie(text, lie):
    """What the client counts does not depend on how huge its claim is."""
    made = algorithm(text)
    state = aggregation.first_state(made, [np.zeros(1, np.float32)], census(5))
    weights = [
        aggregation.weigh(made, state, signals([0.5, 0.6, 0.7, 0.8, said]), Caps(loss="3x"))[0]
        for said in (lie, 1e6)
    ]
    np.testing.assert_array_equal(weights[0].weight, weights[1].weight)


@pytest.mark.parametrize("coefficient", [1, 1.0, 0.001, "1x", "1.5x", "100x", None])
def test_shares_up_to_one_and_multiples_from_one_are_taken(coefficient):
    assert Caps(coefficient=coefficient).coefficient == coefficient


@pytest.mark.parametrize(
    "share, clients",
    [
        (0.5, 2),
        (0.6, 2),
        (1 / 3, 3),
        (0.33333333, 3),
        (1 - 1e-6, 1),
        (1.0, 1),
        ("1x", 2),
        (None, 2),
    ],
)
def test_a_share_that_a_cohort_can_keep_is_feasible(share, clients):
    Caps(coefficient=share).require_feasible(clients)
    assert [flag for flag in cut(np.ones(clients), share)[1] if flag.client == -1] == []


@pytest.mark.parametrize("share, clients", [(0.49, 2), (0.333, 3), (0.99, 1)])
def test_a_share_that_is_a_little_too_small_is_not(share, clients):
    with pytest.raises(ValueError, match=f"because {clients} clients"):
        Caps(coefficient=share).require_feasible(clients)
    assert cut(np.full(clients, 5.0), share)[1] == [
        (-1, "coefficient", pytest.approx(share), 1 / clients)
    ]


def test_the_cells_of_clients_with_one_row_or_none_stay():
    census, _ = Caps(examples=10).census(
        Census(np.array([1, 0, 40]), np.array([[[1]], [[0]], [[40]]]))
    )
    assert census.cells.ravel().tolist() == [1, 0, 10]


def test_validation_rows_of_who_has_none_or_did_not_return_decide_nothing():
    rows = np.array([0, 0, 0, 1, 1, 100, 900.0])
    told = signals(
        examples=np.full(7, 4),
        valid_table=rows[:, None, None, None],
        returned=[1, 1, 1, 1, 1, 1, 0],
    )
    found, flags = Caps(examples="2x").signals(told)
    assert found.valid_table.ravel().tolist() == [0, 0, 0, 1, 1, 2, 900]
    assert flags == [(5, "examples", 100.0, 2.0)]


def test_the_median_of_three_is_the_second_and_only_losses_have_a_least():
    assert Caps(loss="10x").signals(signals([1.0, 2.0, 3e9]))[0].loss.tolist() == [1, 2, 20]
    assert Caps(examples="2x").signals(signals(examples=[0, 4, 4, 400]))[0].examples.tolist() == [
        0,
        4,
        4,
        8,
    ]
    assert Caps(norm="3x").vectors(np.array([0.01, 4.0, 4.0, 144.0]), signals(returned=[1] * 4))[
        0
    ].tolist() == [1, 1, 1, 0.5]
    assert Caps(norm=2.0).vectors(np.array([0.0, 16.0]), signals(returned=[1, 1]))[0].tolist() == [
        1,
        0.5,
    ]


def test_a_multiple_is_one_of_an_equal_share_of_those_who_returned():
    np.testing.assert_allclose(cut([0.1, 0.1, 0.1, 0.7], "2x")[0], [1 / 6, 1 / 6, 1 / 6, 0.5])
    np.testing.assert_allclose(
        cut([1.0, 1.0, 8.0, 0.0, 0.0], "1.5x", [1, 1, 1, 0, 0])[0], [2.5, 2.5, 5, 0, 0]
    )
    assert cut([4.0, 0.0], "1x", [1, 0])[1] == []


@pytest.mark.parametrize("count", range(2, 12))
def test_one_equal_share_each_is_the_same_number_for_all(count):
    found, _ = cut(np.arange(1.0, count + 1) ** 3 / 7, "1x")
    assert np.ptp(found) == 0


@pytest.mark.parametrize("held", [[-1.0, 0.5], [1.0, -1.0], [0.0, 0.0]])
def test_coefficients_that_sum_to_nothing_or_less_have_no_shares(held):
    found, flags = cut(held, 0.3)
    assert (found.tolist(), flags) == (held, [])


def test_the_only_client_of_a_model_keeps_it():
    found, _ = cut([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], 0.5)
    assert found.tolist() == [[0, 1], [1, 0], [0, 1]]


def test_what_a_client_in_two_slots_is_given_is_split_evenly():
    told = signals(returned=[1, 1, 1, 1])._replace(client=np.array([0, 1, 0, 2]))
    found, _ = Caps(coefficient=0.4).coefficients(np.array([0.0, 1.0, 0.0, 0.0]), told)
    np.testing.assert_allclose(found, [0.15, 0.4, 0.15, 0.3])


def test_where_nobody_can_take_what_was_cut_it_is_lost():
    below = redistribute(np.array([-1.0, 3.0]), 1.0, 2.0, np.array([True, False]))
    assert below.tolist() == [-1, 0]
    held = np.array([1.0, 2.0])
    assert redistribute(held, 1.0, 3.0, np.zeros(2, bool)) is held


def test_a_share_of_a_round_in_which_nobody_returned_changes_nothing():
    found, flags = cut([0.0, 0.0], "2x", returned=[False, False])
    assert found.tolist() == [0, 0]
    assert flags == []

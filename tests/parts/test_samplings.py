import re

import numpy as np
import pytest
from scipy.stats import binom

from evenly.data.federation import Census
from evenly.parts.sampling import (
    RARELY,
    Fraction,
    Full,
    Odds,
    Parity,
    Uniform,
    Weighted,
    _owners,
    poisson_slots,
)
from evenly.randomness import Draws
from evenly.types import Select
from tests.oracles import sampling

COUNTS = np.array([1, 2, 3, 6])
P = COUNTS / COUNTS.sum()


def census(counts: np.ndarray = COUNTS) -> Census:
    return Census(counts, counts.reshape(-1, 1, 1))


def drawn(select: Select, rounds: int, counts: np.ndarray = COUNTS) -> np.ndarray:
    draws, state = Draws(3, "cohort"), select.init(census(counts))
    cohorts = []
    for t in range(rounds):
        cohort, state = select(state, draws.at(t))
        cohorts.append(cohort)
    return np.array(cohorts)


def test_weighted_draws_have_the_probabilities_of_drawing_one_by_one():
    # 4000 rounds: the deviation of a frequency is at most sqrt(0.25 / 4000) = 0.008.
    cohorts = drawn(Weighted(clients=2), 4000)
    included = np.array([(cohorts == k).any(1).mean() for k in range(4)])
    np.testing.assert_allclose(included, sampling.inclusion(P, 2), atol=0.03)
    first = np.bincount(cohorts[:, 0], minlength=4) / len(cohorts)
    np.testing.assert_allclose(first, P, atol=0.03)


def test_the_oracles_two_forms_agree():
    generator = np.random.default_rng(0)
    cohorts = np.array([sampling.draw_one_by_one(P, 2, generator) for _ in range(4000)])
    included = np.array([(cohorts == k).any(1).mean() for k in range(4)])
    np.testing.assert_allclose(included, sampling.inclusion(P, 2), atol=0.03)
    assert sampling.inclusion(P, 2).sum() == pytest.approx(2)


def test_with_replacement_a_client_can_be_drawn_twice_and_every_seat_has_probability_p():
    cohorts = drawn(Weighted(clients=3, replace=True), 4000)
    assert (np.sort(cohorts, 1)[:, 1:] == np.sort(cohorts, 1)[:, :-1]).any()
    for seat in range(3):
        np.testing.assert_allclose(np.bincount(cohorts[:, seat], minlength=4) / 4000, P, atol=0.03)


@pytest.mark.parametrize(
    "select", [Uniform(clients=2), Fraction(share=0.5)], ids=["uniform", "fraction"]
)
def test_equal_chances_ignore_sizes(select: Select):
    cohorts = drawn(select, 4000)
    included = np.array([(cohorts == k).any(1).mean() for k in range(4)])
    np.testing.assert_allclose(included, 0.5, atol=0.03)


@pytest.mark.parametrize(
    "share, clients, expected",
    [(0.7, 5, 3), (0.7, 10, 7), (0.1, 5, 1), (0.29, 100, 29), (1.0, 4, 4), (0.001, 10, 1)],
)
def test_a_fraction_is_rounded_down_but_never_to_nobody(share: float, clients: int, expected: int):
    # 0.7 of 5 is 3.5, so 3; 0.7 * 10 and 0.29 * 100 are a hair below 7 and 29 in binary.
    assert Fraction(share=share).slots(census(np.ones(clients, int))) == expected
    assert drawn(Fraction(share=share), 1, np.ones(clients, int)).shape == (1, expected)


@pytest.mark.parametrize("kind", [Uniform, Weighted])
def test_asking_for_more_clients_than_there_are_takes_all(kind: type):
    assert kind(clients=10).slots(census()) == 4
    assert (np.sort(drawn(kind(clients=10), 5), 1) == np.arange(4)).all()


@pytest.mark.parametrize("kind", [Uniform, Weighted])
def test_one_client_is_enough_and_none_is_refused(kind: type):
    cohorts = drawn(kind(clients=1), 400)
    assert cohorts.shape == (400, 1)
    assert set(cohorts.ravel()) == set(range(4))
    for clients in (0, -1, 1.5, "2"):
        with pytest.raises(
            ValueError,
            match=re.escape(f"clients must be a whole number of at least 1, got {clients!r}."),
        ):
            kind(clients=clients)


def test_full_takes_everyone_in_order():
    np.testing.assert_array_equal(drawn(Full(), 3), np.tile(np.arange(4), (3, 1)))


def test_only_weighted_counts_sizes():
    assert Weighted().by_size
    assert not any(select.by_size for select in (Full(), Uniform(), Fraction()))


@pytest.mark.parametrize(("clients", "slots"), [(4, 4), (30, 10), (500, 60), (20_000, 300)])
def test_drawing_by_size_draws_what_numpy_would(clients: int, slots: int):
    sizes = np.floor(np.random.default_rng(clients).lognormal(2, 1.5, clients)).astype(int)
    sizes[: min(slots, clients)] += 1  # some have no rows, but not so many that slots stay empty
    for replaced in (False, True):
        select = Weighted(clients=slots, replace=replaced)
        state, draws, again = select.init(census(sizes)), Draws(0, "cohort"), Draws(0, "cohort")
        for t in range(20):
            expected = again.at(t).choice(clients, slots, replace=replaced, p=sizes / sizes.sum())
            np.testing.assert_array_equal(select(state, draws.at(t))[0], expected)


def test_drawing_by_size_more_clients_than_have_rows_is_refused():
    with pytest.raises(ValueError, match="only 1 of 3 have training rows"):
        Weighted(clients=2).init(census(np.array([0, 5, 0])))


@pytest.mark.parametrize("kind", [Fraction, Parity])
def test_a_share_is_above_0_and_at_most_1(kind: type):
    for share in (1e-9, 0.5, 1, 1.0):
        assert kind(share=share).share == share
    for share in (0, 0.0, -0.1, 1.0000001, 1.5, 2, float("nan")):
        with pytest.raises(
            ValueError, match=re.escape(f"share must be above 0 and at most 1, got {share}.")
        ):
            kind(share=share)


def test_who_is_asked_for_nothing_takes_the_documented_settings():
    assert (Uniform().clients, Weighted().clients, Weighted().replace, Fraction().share) == (
        10,
        10,
        False,
        0.1,
    )
    assert (Parity().p, Parity().share, Parity().accumulate, Parity().prefilled) == (
        0.5,
        0.7,
        False,
        False,
    )


def test_with_replacement_one_client_with_rows_fills_every_seat_and_none_fills_none():
    np.testing.assert_array_equal(
        drawn(Weighted(clients=3, replace=True), 2, np.array([0, 5, 0])), np.ones((2, 3))
    )
    np.testing.assert_array_equal(
        drawn(Weighted(clients=1), 2, np.array([0, 5, 0])), np.ones((2, 1))
    )
    assert Weighted(clients=9, replace=True).slots(census()) == 9
    for replaced in (True, False):
        with pytest.raises(ValueError, match="only 0 of 3 have training rows"):
            Weighted(clients=3, replace=replaced).init(census(np.zeros(3, int)))


def test_as_many_clients_as_have_rows_are_all_drawn():
    np.testing.assert_array_equal(
        np.sort(drawn(Weighted(clients=2), 5, np.array([3, 0, 9])), 1), np.tile([0, 2], (5, 1))
    )


def test_a_place_belongs_to_the_client_whose_rows_lie_there():
    odds = Odds(np.array([2, 0, 3, 0]), np.array([2.0, 2.0, 5.0, 5.0]), 1)
    # the last is a draw rounded up to the very end
    places = np.array([0.0, 1.9, 2.0, 4.9, np.nextafter(5, 0), 5.0])
    np.testing.assert_array_equal(_owners(odds, places), [0, 0, 2, 2, 2, 2])


@pytest.mark.parametrize(("registered", "rate"), [(5, 0.99), (20, 0.9), (300, 0.05), (1, 0.001)])
def test_a_poisson_draw_hardly_ever_exceeds_its_slots(registered: int, rate: float):
    slots = poisson_slots(registered, rate)
    exceeded = [binom.sf(most, registered, rate) for most in (slots, slots - 1)]
    assert exceeded[0] < RARELY
    assert slots == 1 or exceeded[1] >= RARELY

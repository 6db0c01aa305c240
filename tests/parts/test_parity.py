from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.algorithms import algorithm
from evenly.data.federation import Census
from evenly.parts.sampling import Fraction, Parity, Registry, _highest
from evenly.randomness import Draws
from evenly.types import Select
from tests.oracles.groups import parity_choice

# Clients A, B, C, D of the specification: rows, and those of unprivileged people.
N, U = np.array([1000, 1000, 1000, 500]), np.array([200, 500, 330, 450])


def census(n: np.ndarray = N, u: np.ndarray = U) -> Census:
    n, u = np.asarray(n), np.asarray(u)
    return Census(n, np.stack([u, n - u], axis=1)[:, :, None])


def drawn(
    select: Select, rounds: int, of: Census | None = None, seed: int = 3
) -> tuple[np.ndarray, list[Registry]]:
    draws, state = Draws(seed, "cohort"), select.init(of or census())
    cohorts, states = [], [state]
    for t in range(rounds):
        cohort, state = select(state, draws.at(t))
        cohorts.append(cohort)
        states.append(state)
    return np.array(cohorts), states


@st.composite
def people(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n = np.array(draw(st.lists(st.integers(2, 50), min_size=2, max_size=8)))
    u = np.array([draw(st.integers(0, int(rows))) for rows in n])
    u[0], u[1] = 1, n[1] - 1  # both sides exist
    return n, u


def test_worked_example():
    # 1480 unprivileged rows against 2020: those with the most unprivileged rows, B and D.
    for cohort in drawn(Parity(p=1, share=0.5, prefilled=True), 20)[0]:
        assert set(cohort) == {1, 3}
    assert parity_choice(N, U, range(4), 2) == [1, 3]


def test_where_unprivileged_rows_are_the_majority_the_others_are_sought():
    for cohort in drawn(Parity(p=1, share=0.5, prefilled=True), 20, census(u=N - U + 100))[0]:
        assert set(cohort) == {1, 3}  # the richest in privileged rows: 400 and 350


@given(people(), st.floats(0.1, 1), st.integers(0, 5))
def test_p_zero_draws_the_cohorts_of_a_fraction(clients: tuple, share: float, seed: int):
    plain = Fraction(share=share)
    found, _ = drawn(Parity(p=0, share=share), 6, census(*clients), seed)
    np.testing.assert_array_equal(found, drawn(plain, 6, census(*clients), seed)[0])


@given(people(), st.floats(0, 1), st.booleans(), st.booleans())
def test_share_one_is_everyone(clients: tuple, p: float, accumulate: bool, prefilled: bool):
    found, _ = drawn(
        Parity(p=p, share=1, accumulate=accumulate, prefilled=prefilled), 4, census(*clients)
    )
    np.testing.assert_array_equal(np.sort(found, 1), np.tile(np.arange(len(clients[0])), (4, 1)))


@given(people(), st.floats(0.1, 0.9), st.booleans())
def test_with_p_one_the_best_of_those_observed_come_first_and_then_others(
    clients: tuple, share: float, accumulate: bool
):
    n, u = clients
    select = Parity(p=1, share=share, accumulate=accumulate)
    found, states = drawn(select, 8, census(n, u))
    for cohort, before in zip(found, states[:-1], strict=True):
        assert len(set(cohort)) == len(cohort) == select.slots(census(n, u))
        unprivileged, privileged = before.totals
        if unprivileged == privileged:
            continue  # at random
        score = n - u if unprivileged > privileged else u
        known = np.flatnonzero(before.observed)
        taken = [k for k in cohort if k in known]
        assert len(taken) == min(len(known), len(cohort)), "observed clients come first"
        np.testing.assert_array_equal(
            np.sort(score[taken])[::-1], np.sort(score[known])[::-1][: len(taken)]
        )
        if not accumulate:
            expected = parity_choice(n, u, list(known), len(cohort))
            np.testing.assert_array_equal(score[expected], score[taken][np.argsort(-score[taken])])


def test_the_register_counts_a_client_once_or_whenever_it_is_chosen():
    for accumulate in (False, True):
        found, states = drawn(Parity(p=0.5, share=0.5, accumulate=accumulate), 12)
        for t, state in enumerate(states):
            counted = found[:t].ravel() if accumulate else np.unique(found[:t])
            np.testing.assert_array_equal(state.totals, [U[counted].sum(), (N - U)[counted].sum()])
            np.testing.assert_array_equal(np.flatnonzero(state.observed), np.unique(found[:t]))


def test_once_everyone_was_seen_the_choice_is_fixed_unless_sums_accumulate():
    fixed, states = drawn(Parity(p=1, share=0.5, prefilled=True), 30)
    assert {frozenset(cohort) for cohort in fixed} == {frozenset({1, 3})}
    assert states[-1].totals.tolist() == [1480, 2020]
    moving, _ = drawn(Parity(p=1, share=0.5, prefilled=True, accumulate=True), 30)
    assert len({frozenset(cohort) for cohort in moving}) > 1, (
        "B and D bring more unprivileged rows, until they are the majority"
    )


def test_the_first_round_is_random_because_the_register_is_empty():
    firsts = np.array(
        [drawn(Parity(p=1, share=0.25), 1, seed=seed)[0][0, 0] for seed in range(400)]
    )
    np.testing.assert_allclose(np.bincount(firsts, minlength=4) / 400, 0.25, atol=0.08)


def test_ties_are_broken_at_random():
    of = census(np.array([10, 10, 10, 10]), np.array([3, 3, 3, 3]))
    cohorts, _ = drawn(Parity(p=1, share=0.5, prefilled=True), 300, of)
    included = np.array([(cohorts == k).any(1).mean() for k in range(4)])
    np.testing.assert_allclose(included, 0.5, atol=0.1)


def test_p_is_how_often_it_is_chosen_by_parity():
    cohorts, _ = drawn(Parity(p=0.5, share=0.5, prefilled=True), 600)
    by_parity = np.mean([set(cohort) == {1, 3} for cohort in cohorts])
    # one of the six pairs a random draw can give
    assert by_parity == pytest.approx(0.5 + 0.5 / 6, abs=0.07)


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("fedavg+parity(p=2)", r"parity: p must be at least 0 and at most 1, got 2\."),
        ("fedavg+parity(share=0)", r"parity: share must be above 0 and at most 1, got 0\."),
        ("fedavg+parity(prefilled=1)", r"parity: prefilled must be true or false, got 1\."),
        (
            "fedavg+parity(q=1)",
            r"parity: There is no setting 'q'\..* Known: accumulate, p, prefilled, share\.",
        ),
    ],
)
def test_mistakes_are_refused(text: str, sentence: str):
    with pytest.raises(ValueError, match=f"^{sentence}( Meaning: .*)?$"):
        algorithm(text)


@pytest.mark.parametrize("most", [1, 3, 1000])  # all clients tie, many do, none does
def test_the_highest_are_those_of_a_full_sort(most: int):
    draw = np.random.default_rng(most)
    for _ in range(50):
        clients = int(draw.integers(1, 40))
        score, lots, slots = (
            draw.integers(0, most, clients),
            draw.permutation(clients),
            int(draw.integers(1, clients + 1)),
        )
        np.testing.assert_array_equal(
            _highest(score, lots, slots), np.lexsort((lots, -score))[:slots]
        )


def test_p_is_from_0_to_1():
    for p in (0, 0.0, 1e-9, 0.5, 1, 1.0):
        assert Parity(p=p).p == p
    for p in (-1e-9, 1.0000001, 2, float("nan"), "0.5", None):
        with pytest.raises(ValueError, match="p must be at least 0 and at most 1, got"):
            Parity(p=p)  # pyright: ignore[reportArgumentType]


class Chance(np.random.Generator):
    """Decides between parity and chance by a number of the test's choice."""

    number = 0.0

    def random(self, *_args, **_kwargs) -> Any:
        return self.number


@pytest.mark.parametrize(
    ("p", "number", "by_parity"),
    [(0, 0.0, False), (0.5, 0.4999, True), (0.5, 0.5, False), (1, 0.9999, True)],
)
def test_parity_is_chosen_where_the_number_drawn_is_below_p(
    p: float, number: float, by_parity: bool
):
    """Numbers are drawn from 0 up to but without 1, so that p = 0 is never and p = 1 always."""
    select, generator = Parity(p=p, share=0.5, prefilled=True), Chance(np.random.Philox(0))
    generator.number, state = number, select.init(census())
    found = [set(select(state, generator)[0]) for _ in range(30)]
    assert all(cohort == {1, 3} for cohort in found) == by_parity


def test_equal_sums_are_drawn_at_random_even_if_everyone_is_known():
    of = census(np.array([10, 10, 10, 10]), np.array([9, 1, 6, 4]))  # 20 rows of each side
    cohorts, _ = drawn(Parity(p=1, share=0.25, prefilled=True), 100, of)
    assert set(cohorts.ravel()) == {0, 1, 2, 3}


def test_whoever_is_not_known_comes_after_those_known_without_any_such_rows():
    state = Registry(
        np.array([[0, 5, 7], [9, 1, 1]]), np.array([True, False, False]), np.array([0, 9]), 1
    )
    for seed in range(20):
        cohort, _ = Parity(p=1, share=0.4)(state, np.random.default_rng(seed))
        assert cohort.tolist() == [0], (
            "client 0 is known to have no unprivileged rows; of the others nothing is known"
        )


def test_of_many_equal_scores_exactly_those_with_the_lowest_lots_are_taken():
    score, lots = np.array([4, 2, 2, 2, 2, 9]), np.array([0, 5, 1, 4, 2, 3])
    assert _highest(score, lots, 1).tolist() == [5]
    assert _highest(score, lots, 3).tolist() == [5, 0, 2]
    assert _highest(score, lots, 4).tolist() == [5, 0, 2, 4]
    assert _highest(score, lots, 6).tolist() == [5, 0, 2, 4, 3, 1]

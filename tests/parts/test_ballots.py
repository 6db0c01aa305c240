"""Votes: the paper's example, exact sums, and what must not change them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.parts.ranking import (
    DIGIT,
    MOST_BALLOTS,
    MOST_EDGES,
    Ballot,
    ballot,
    elect,
    elect_groups,
    inverse,
    tally,
    vote,
)
from tests.oracles import ranking as oracle

# Figure 2 of E2FL, with ballots of ours where it gives none.
A = [[4, 0, 2, 3, 5, 1], [0, 2, 4, 5, 3, 1], [0, 2, 5, 4, 3, 1]]
B = [[0, 2, 1, 3, 4, 5], [0, 2, 3, 4, 1, 5]]
C = [[5, 3, 1, 0, 2, 4]]
# Two sizes only: every other one would be compiled anew.
BALLOTS = st.one_of(*(st.lists(st.permutations(range(6)), min_size=n, max_size=n) for n in (1, 5)))


def voted(rankings: list, weights: list | None = None) -> list[int]:
    """VOTE on rankings, as a ranking."""
    stacked = jnp.stack([inverse(jnp.array(r)).astype(jnp.float32) for r in rankings])
    return inverse(vote(stacked, None if weights is None else jnp.array(weights))).tolist()


@pytest.mark.parametrize(
    "ballots, sums, expected",
    [
        (A, [1, 15, 4, 11, 5, 9], [0, 2, 4, 5, 3, 1]),
        (B, [0, 6, 2, 5, 7, 10], [0, 2, 3, 1, 4, 5]),
        ([[0, 2, 4, 5, 3, 1], [0, 2, 3, 1, 4, 5], C[0]], [3, 10, 6, 7, 11, 8], [0, 2, 3, 5, 1, 4]),
        (A + B + C, [4, 23, 10, 17, 17, 19], [0, 2, 3, 4, 5, 1]),
        ([[0, 1, 2], [2, 1, 0]], [2, 2, 2], [0, 1, 2]),
    ],
    ids=["group A", "group B", "groups", "clients", "tie"],
)
def test_the_example_of_the_paper(ballots: list, sums: list, expected: list):
    total = tally(jnp.stack([inverse(jnp.array(r)).astype(jnp.float32) for r in ballots]))
    assert (DIGIT * total.high + total.low).tolist() == sums
    assert voted(ballots) == oracle.vote([np.array(r) for r in ballots]).tolist() == expected


@given(BALLOTS)
def test_a_vote_is_the_oracles_and_a_permutation(rankings: list):
    assert voted(rankings) == oracle.vote([np.array(r) for r in rankings]).tolist()
    assert sorted(voted(rankings)) == list(range(6))


@given(BALLOTS, st.randoms())
def test_order_and_copies_of_ballots_do_not_matter(rankings: list, draw):
    shuffled = rankings.copy()
    draw.shuffle(shuffled)
    assert voted(shuffled) == voted(rankings) == voted(rankings * 3)
    assert voted(rankings, [3] * len(rankings)) == voted(rankings)


@given(BALLOTS, st.permutations(range(6)))
def test_who_does_not_return_does_not_count(rankings: list, other: list):
    assert voted([*rankings, other], [1] * len(rankings) + [0]) == voted(rankings)


@given(st.permutations(range(6)), st.sampled_from([1, 5]))
def test_equal_ballots_decide(ranking: list, n: int):
    assert voted([ranking] * n) == list(ranking)


def test_large_layers_are_counted_exactly_where_float32_sums_are_not():
    # 25 ballots on 1.6 million edges, as E2FL has them; most agree, so that near ties are
    # everywhere.
    n, clients, draw = 1_605_632, 25, np.random.default_rng(0)
    common = draw.permutation(n)
    stacked = np.stack(
        [np.argsort(np.argsort(common + 40 * draw.normal(size=n))) for _ in range(2)]
    )
    weights = np.array([13, 12])
    exact = weights @ stacked
    expected = oracle.argsort(oracle.argsort(exact))
    total = Ballot(jnp.zeros(n), jnp.zeros(n))
    plain = np.zeros(n, np.float32)
    for k in range(clients):
        own = stacked[k % 2].astype(np.float32)
        total = jax.tree.map(jnp.add, total, ballot(jnp.asarray(own)))
        plain += own / np.float32(clients)
    np.testing.assert_array_equal(elect(total), expected)
    assert (oracle.argsort(oracle.argsort(plain)) != expected).mean() > 0.01, (
        "a mean in float32 changes the vote"
    )


def test_the_limits_are_exact():
    top = jnp.array([0.0, 1.0, DIGIT - 1, DIGIT, MOST_EDGES - 2, MOST_EDGES - 1])
    one = ballot(top)
    np.testing.assert_array_equal(DIGIT * one.high + one.low, top)
    assert float(max(one.high.max(), one.low.max())) * MOST_BALLOTS <= 2**24
    many = jax.tree.map(lambda part: part * MOST_BALLOTS, one)
    np.testing.assert_array_equal(elect(many), np.arange(6))


def test_fractions_as_weights_only_lose_ties():
    # Weights 0.25 and 0.75 of places (0, 3000, 1, ...) apart by more than rounding.
    a, b = jnp.array([0.0, 5000.0, 3000.0, 1.0]), jnp.array([4000.0, 1.0, 2.0, 3000.0])
    mixed = jax.tree.map(lambda x, y: 0.25 * x + 0.75 * y, ballot(a), ballot(b))
    np.testing.assert_array_equal(
        elect(mixed), oracle.argsort(oracle.argsort(0.25 * np.asarray(a) + 0.75 * np.asarray(b)))
    )


def group_totals(rankings: list, group: list, groups: int) -> Ballot:
    stacked = jnp.stack([inverse(jnp.array(r)).astype(jnp.float32) for r in rankings])
    rows = (jnp.array(group) == jnp.arange(groups)[:, None]).astype(jnp.float32)
    return jax.vmap(tally, (None, 0))(stacked, rows)


@given(
    st.lists(st.tuples(st.permutations(range(6)), st.integers(0, 2)), min_size=4, max_size=4),
    st.booleans(),
)
def test_groups_elect_and_then_have_one_vote_each(cast: list, absent_vote: bool):
    rankings, group = [np.array(r) for r, _ in cast], [g for _, g in cast]
    last = jnp.stack([jnp.arange(6.0)] * 3)
    present = jnp.array([q in group for q in range(3)])
    found = elect_groups(group_totals(rankings, group, 3), present, last, absent_vote=absent_vote)
    overall, own = oracle.e2fl(rankings, group)
    for q in range(3):
        assert inverse(found.groups[q]).tolist() == (
            own[q].tolist() if q in own else list(range(6))
        )
    if absent_vote:
        overall = oracle.vote([own.get(q, np.arange(6)) for q in range(3)])
    assert inverse(found.overall).tolist() == overall.tolist()


def test_the_groups_of_the_example():
    found = elect_groups(
        group_totals(A + B + C, [0, 0, 0, 1, 1, 2], 3), jnp.ones(3, bool), jnp.zeros((3, 6))
    )
    assert inverse(found.overall).tolist() == [0, 2, 3, 5, 1, 4]
    assert [inverse(g).tolist() for g in found.groups] == [
        [0, 2, 4, 5, 3, 1],
        [0, 2, 3, 1, 4, 5],
        [5, 3, 1, 0, 2, 4],
    ]


@given(BALLOTS)
def test_one_group_or_one_client_a_group_is_frl(rankings: list):
    n = len(rankings)
    flat = oracle.vote([np.array(r) for r in rankings]).tolist()
    one = elect_groups(group_totals(rankings, [0] * n, 1), jnp.ones(1, bool), jnp.zeros((1, 6)))
    each = elect_groups(
        group_totals(rankings, list(range(n)), n), jnp.ones(n, bool), jnp.zeros((n, 6))
    )
    assert inverse(one.overall).tolist() == inverse(each.overall).tolist() == flat
    assert inverse(one.groups[0]).tolist() == flat


@given(BALLOTS, st.sampled_from([2, 3]))
def test_copies_of_clients_inside_a_group_change_nothing_globally(rankings: list, copies: int):
    group = [k % 2 for k in range(len(rankings))]
    present = jnp.array([q in group for q in range(2)])
    once = elect_groups(group_totals(rankings, group, 2), present, jnp.zeros((2, 6)))
    more = [r for r, g in zip(rankings, group, strict=True) for _ in range(copies if g == 0 else 1)]
    owner = [g for g in group for _ in range(copies if g == 0 else 1)]
    twice = elect_groups(group_totals(more, owner, 2), present, jnp.zeros((2, 6)))
    assert inverse(once.overall).tolist() == inverse(twice.overall).tolist()

"""What a client says and weighs depends on its own numbers and on sums, and on nobody else.

This holds for every registered method, so that a new one is tested here without a new line. Rules
that must see a whole cohort say so, and are left out.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenly import round as derived
from evenly.algorithms import METHODS
from evenly.data.federation import Census
from evenly.parts.sampling import Full
from evenly.types import Own, Rule, Signals
from tests.aggregation import by_client, memories, start
from tests.conformance.test_methods import FORMS, variant

RULES: dict[str, Rule] = {
    f"{name}, {number}": member.rule
    for name in [*METHODS, *FORMS]
    for number, member in enumerate(variant(name, Full()).members)
    if not member.rule.whole_cohort
}
CLIENTS, GROUPS, LABELS = 12, 2, 3
FEDERATION = np.random.default_rng(4).integers(0, 30, (CLIENTS, GROUPS, LABELS)) + 1
CENSUS = Census(FEDERATION.sum((1, 2)), FEDERATION)


def drawn_clients(seed: int) -> Signals:
    """The numbers of twelve clients in some round, all of which may take part."""
    draw = np.random.default_rng(seed)
    tables = draw.multinomial(FEDERATION, draw.dirichlet(np.ones(LABELS)))
    single = lambda values: np.asarray(values, np.float32)  # noqa: E731
    return Signals(
        client=np.arange(CLIENTS),
        returned=np.ones(CLIENTS, bool),
        examples=single(CENSUS.examples),
        loss=single(draw.gamma(1.5, 1.0, CLIENTS)),
        table=tables,
        valid_table=tables // 3,
        cell_loss=single(FEDERATION * draw.gamma(2.0, 0.5, FEDERATION.shape)),
        unprivileged=single(CENSUS.unprivileged_rows),
        choice=draw.integers(0, 2, CLIENTS),
        square_norm=single(draw.gamma(1.0, 1.0, CLIENTS)),
    )


def of(signals: Any, index: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[np.asarray(index)], signals)


@jax.jit
def first_sums(signals: Signals) -> dict[str, Any]:
    """Public numbers, memories, and the sums over all clients of each rule."""
    found = {}
    for name, rule in RULES.items():
        state = start(rule, CENSUS)
        own = signals._replace(memory=memories(rule, state, signals.examples))
        found[name] = state.public, own.memory, derived.contributions(rule, state.public, own)
    return found


@jax.jit
def sums_of(signals: Signals, told: dict[str, Any]) -> dict[str, Any]:
    """The sums over clients that have these public numbers and memories."""
    return {
        name: derived.contributions(rule, told[name][0], signals._replace(memory=told[name][1]))
        for name, rule in RULES.items()
    }


@jax.jit
def said(own: Own, told: dict[str, Any]) -> dict[str, Any]:
    """What each client of a cohort contributes and weighs, for given sums."""

    def one(rule: Rule, public: Any, memory: Any, sums: tuple) -> Any:
        parts = [
            by_client(
                lambda client, at=at: rule.contribute(public, client, sums[:at]),
                own._replace(memory=memory),
            )
            for at in range(rule.stages)
        ]
        weigh = lambda client: rule.weigh(public, client, sums)  # noqa: E731
        return parts, by_client(weigh, own._replace(memory=memory))

    return {name: one(rule, *told[name]) for name, rule in RULES.items()}


def same_bits(found: Any, expected: Any, name: str) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other), err_msg=name)


def test_every_method_is_here_but_those_that_see_a_whole_cohort():
    here = {name.partition(",")[0].partition("(")[0] for name in RULES}
    assert set(METHODS) - here == {"fedmgda"}
    assert len(RULES) > 30


@st.composite
def cohorts(draw: Any, sizes: tuple[int, ...]) -> tuple[int, list[int]]:
    """A place, and a cohort that has client 0 there."""
    size = draw(st.sampled_from(sizes))
    place = draw(st.integers(0, size - 1))
    others = draw(st.permutations(range(1, CLIENTS)))
    return place, [*others[:place], 0, *others[place : size - 1]]


seeds = st.integers(0, 2**32 - 1)
COMPANY = 4


def in_company(mine: Signals, theirs: Signals, members: list[int]) -> dict[str, Any]:
    """What the clients of a cohort say, for the sums of the cohort of `mine`: client 0 has its own
    numbers and memory, everybody else those of `theirs`.
    """
    told, others = (jax.tree.map(np.asarray, first_sums(s)) for s in (mine, theirs))
    own, other = (s.own._replace(memory=()) for s in (mine, theirs))
    cohort = {
        name: (public, of(but_for_the_first(memory, others[name][1]), members), sums)
        for name, (public, memory, sums) in told.items()
    }
    return said(of(but_for_the_first(own, other), members), cohort)


def but_for_the_first(own: Any, other: Any) -> Any:
    return jax.tree.map(lambda a, b: np.concatenate([a[:1], b[1:]]), own, other)


def said_in_two_cohorts(
    seed: int, other: int, cohort: tuple[int, list[int]]
) -> Iterator[tuple[str, Any, Any]]:
    """What one client says under each rule: in another cohort, and in its own."""
    place, members = cohort
    mine, theirs = drawn_clients(seed), drawn_clients(other)
    expected = in_company(mine, mine, list(range(COMPANY)))
    found = in_company(mine, theirs, members)
    for name in RULES:
        yield name, of(found[name], place), of(expected[name], 0)


# Every rule is tried on every example: drawing one takes longer than a round of all of them.


@given(seeds, seeds, cohorts((COMPANY,)))
def test_a_client_says_the_same_whoever_else_is_there(
    seed: int, other: int, cohort: tuple[int, list[int]]
):
    """The same bits among other members, who have other numbers, and in another slot."""
    for name, found, expected in said_in_two_cohorts(seed, other, cohort):
        same_bits(found, expected, name)


@given(seeds, seeds, cohorts((1, CLIENTS)))
@settings(max_examples=12)
def test_a_client_says_the_same_however_many_are_there(
    seed: int, other: int, cohort: tuple[int, list[int]]
):
    """Up to one rounding: programs for other shapes are compiled differently."""
    for name, found, expected in said_in_two_cohorts(seed, other, cohort):
        for one, same in zip(
            jax.tree.leaves(found),
            jax.tree.leaves(expected),
            strict=True,
        ):
            np.testing.assert_allclose(one, same, rtol=1e-6, atol=1e-7, err_msg=name)


@given(seeds, st.floats(0, 1e6, width=32))
def test_weights_do_not_depend_on_the_length_of_the_vector(seed: int, length: float):
    """It is known only after training, when the weight has been told."""
    mine = drawn_clients(seed)
    told = jax.tree.map(np.asarray, first_sums(mine))
    own = mine.own._replace(memory=())
    longer = own._replace(square_norm=own.square_norm * np.float32(length))
    found, expected = said(longer, told), said(own, told)
    for name in RULES:
        (parts, now), (same_parts, same) = found[name], expected[name]
        same_bits(parts, same_parts, name)
        same_bits(
            (now.weight, now.exponent, now.memory), (same.weight, same.exponent, same.memory), name
        )


@pytest.mark.parametrize("name", [name for name in RULES if name.endswith(", 0")])
@given(seeds)
def test_public_numbers_depend_on_sums_over_the_census_only(name: str, seed: int):
    """Rows may be moved between clients, as long as their sums and the number of clients stay."""
    rule, draw = RULES[name], np.random.default_rng(seed)
    moved = np.stack(
        [
            draw.multinomial(total, draw.dirichlet(np.ones(CLIENTS)))
            for total in FEDERATION.sum(0).ravel()
        ],
        axis=-1,
    ).reshape(FEDERATION.shape)
    assert (moved.sum(0) == FEDERATION.sum(0)).all()
    other = Census(moved.sum((1, 2)), moved)
    same_bits(rule.begin(other), rule.begin(CENSUS), name)
    permuted = FEDERATION[draw.permutation(CLIENTS)]
    same_bits(rule.begin(Census(permuted.sum((1, 2)), permuted)), rule.begin(CENSUS), name)


def test_sums_are_over_the_clients_that_returned():
    signals, here = drawn_clients(3), np.arange(CLIENTS) % 3 != 0
    told = first_sums(signals)
    masked = sums_of(signals._replace(returned=here), {name: told[name][:2] for name in RULES})
    few = np.flatnonzero(here)
    absent = sums_of(
        of(signals, few), {name: (told[name][0], of(told[name][1], few)) for name in RULES}
    )
    for name, rule in RULES.items():
        assert len(masked[name]) == rule.stages, name
        for one, other in zip(*map(jax.tree.leaves, (masked[name], absent[name])), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=name)

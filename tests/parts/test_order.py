"""Places, rankings, the footrule, and the k-th lowest without sorting."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.parts.ranking import dropped, footrule, inverse, kth_lowest, places
from tests.oracles import ranking as oracle

FEW = st.lists(st.sampled_from([-1.5, -0.0, 0.0, 0.25, 1.0, 3e38, -3e38]), min_size=1, max_size=12)
ANY = st.lists(st.floats(width=32, allow_nan=False, allow_subnormal=False), min_size=1, max_size=40)
kth = jax.jit(
    lambda values, k: jnp.stack(
        [jax.vmap(partial(kth_lowest, bits=bits), (None, 0))(values, k) for bits in (1, 4)]
    )
)


@given(st.one_of(FEW, ANY))
def test_places_are_those_of_a_stable_sort(values: list[float]):
    x = np.array(values, np.float32)
    np.testing.assert_array_equal(places(jnp.asarray(x)), oracle.argsort(oracle.argsort(x)))


def test_places_keep_the_shape_and_are_vmapped():
    x = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32)
    found = jax.vmap(places)(jnp.asarray(x))
    assert found.shape == x.shape
    for one, each in zip(x, found, strict=True):
        np.testing.assert_array_equal(
            each, oracle.argsort(oracle.argsort(one.ravel())).reshape(3, 5)
        )


@given(st.permutations(range(9)))
def test_a_ranking_and_its_places_are_each_others_inverse(order: list[int]):
    ranking = jnp.array(order)
    np.testing.assert_array_equal(inverse(inverse(ranking)), order)
    np.testing.assert_array_equal(inverse(ranking), oracle.argsort(np.array(order)))


def test_the_example_of_the_scores_of_a_ranking():
    # Section 2.20 of the specification: R_g deals 0.2, 0.4, ..., 1.2.
    ranking, scores = np.array([2, 3, 0, 5, 1, 4]), 0.2 * np.arange(1, 7)
    np.testing.assert_allclose(oracle.reorder(scores, ranking), [0.6, 1.0, 0.2, 0.4, 1.2, 0.8])
    np.testing.assert_allclose(
        scores[np.asarray(inverse(jnp.asarray(ranking)))], [0.6, 1.0, 0.2, 0.4, 1.2, 0.8]
    )


def test_the_footrule_is_between_places():
    a, b = [0, 2, 4, 5, 3, 1], [0, 2, 3, 1, 4, 5]
    assert (
        float(footrule(inverse(jnp.array(a)), inverse(jnp.array(b)))) == oracle.footrule(a, b) == 8
    )
    assert np.abs(np.array(a) - b).sum() == 10, "the lists as they are would give another number"


@given(st.permutations(range(7)), st.permutations(range(7)))
def test_the_footrule_is_a_distance_over_all_layers(a: list[int], b: list[int]):
    one, two = (
        {"x": inverse(jnp.array(a)), "y": jnp.zeros(3)},
        {"x": inverse(jnp.array(b)), "y": jnp.array([0.0, 2.0, 1.0])},
    )
    assert float(footrule(one, two)) == float(footrule(two, one)) == oracle.footrule(a, b) + 3
    assert float(footrule(one, one)) == 0
    assert oracle.footrule(a, b) <= 7**2 // 2


def test_opposite_orders_are_furthest_apart():
    up = jnp.arange(9.0)
    assert float(footrule(up, up[::-1])) == 9**2 // 2


@pytest.mark.parametrize(
    "edges, k, expected",
    [(10, 0.5, 5), (7, 0.5, 3), (10, 0.9, 1), (10, 0.3, 7), (1_605_632, 0.5, 802_816), (3, 0.7, 0)],
)
def test_how_many_edges_are_left_out(edges: int, k: float, expected: int):
    assert dropped(edges, k) == expected


@given(st.one_of(FEW, ANY))
def test_the_kth_lowest_is_what_sorting_finds(values: list[float]):
    # one shape, so that it is compiled once; repeated values are ties
    x = np.array((values * 40)[:40], np.float32)
    found = np.array(kth(jnp.asarray(x), jnp.arange(len(x))))
    # XLA may take the tiniest numbers for 0, and any of them stands for it
    found[np.abs(found) < np.finfo(np.float32).tiny] = 0
    for each in found:
        np.testing.assert_array_equal(each, np.sort(x))


def test_the_kth_lowest_of_infinities():
    x = np.array([-np.inf, -np.inf, 1.0, np.inf], np.float32)
    for each in kth(jnp.asarray(np.tile(x, 10)), jnp.arange(40)):
        np.testing.assert_array_equal(each, np.sort(np.tile(x, 10)))


def test_the_kth_lowest_of_many():
    x = np.random.default_rng(3).normal(size=20_001).astype(np.float32)
    for k in (0, 10_000, 20_000):
        for bits in (1, 2, 4):
            assert float(kth_lowest(jnp.asarray(x), k, bits=bits)) == np.sort(x)[k]

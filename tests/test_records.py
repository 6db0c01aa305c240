import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly import trees
from evenly.records import is_number, leaf, record, replace, require, static


@record
class Pair:
    """One number that may change and one that shapes the program."""

    rate: float = leaf(default=0.5, doc="a number")
    power: int = static(default=2, doc="a shape")


def test_a_record_is_frozen_and_keyword_only():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Pair().rate = 1.0
    with pytest.raises(TypeError):
        Pair(0.5)


def test_only_leaves_are_leaves():
    assert jax.tree.leaves(Pair(rate=3.0, power=7)) == [3.0]
    assert jax.tree.structure(Pair(rate=1.0)) == jax.tree.structure(Pair(rate=2.0))
    assert jax.tree.structure(Pair(power=1)) != jax.tree.structure(Pair(power=2))


def test_a_new_leaf_does_not_recompile_and_a_new_shape_does():
    compiled = jax.jit(lambda pair: jnp.asarray(pair.rate) ** pair.power)
    assert compiled(Pair(rate=3.0)) == 9
    assert compiled(Pair(rate=4.0)) == 16
    assert compiled._cache_size() == 1
    assert compiled(Pair(rate=2.0, power=3)) == 8
    assert compiled._cache_size() == 2


def test_records_stack_and_unstack():
    stacked = trees.stack([Pair(rate=1.0), Pair(rate=2.0)])
    np.testing.assert_array_equal(stacked.rate, [1, 2])
    assert trees.take(stacked, 1).rate == 2
    np.testing.assert_array_equal(jax.vmap(lambda pair: pair.rate * 10)(stacked), [10, 20])


def test_replace_makes_a_changed_copy():
    before = Pair(rate=1.0, power=3)
    after = replace(before, rate=2.0)
    assert (before.rate, after.rate, after.power) == (1.0, 2.0, 3)


def test_only_concrete_numbers_are_checked():
    assert is_number(1)
    assert is_number(0.5)
    assert is_number(np.float64(0.5))
    assert not any(map(is_number, (True, "1", None, jnp.ones(()), object())))


def test_a_requirement_is_a_sentence():
    require(True, "never seen")
    with pytest.raises(ValueError, match=r"^It must hold\.$"):
        require(False, "It must hold.")


@pytest.mark.parametrize("axis", [0, -1])
def test_trees_are_added_run_by_run(axis: int):
    tree = trees.stack([{"w": jnp.ones((2, 3)), "b": jnp.ones(())}] * 4, axis)
    factor = jnp.arange(4.0)
    total = trees.add_scaled(tree, tree, factor, axis)
    for run in range(4):
        for value in jax.tree.leaves(trees.take(total, run, axis)):
            np.testing.assert_array_equal(value, 1 + run)
    np.testing.assert_array_equal(trees.square_norm(total, axis), 7 * (1 + np.arange(4)) ** 2)
    chosen = trees.where(factor > 1, total, tree, axis)
    np.testing.assert_array_equal(trees.square_norm(chosen, axis), [7, 7, 63, 112])
    assert trees.size(tree) == 28
    assert trees.square_norm(tree) == 28

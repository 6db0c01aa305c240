import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly import trees
from evenly.parts.sampling import Fraction, Weighted
from evenly.records import is_number, leaf, record, replace, require, static


@record
class Pair:
    """One number that may change and one that shapes the program."""

    rate: float = leaf(default=0.5, doc="a number")
    power: int = static(default=2, doc="a shape")


def test_a_record_is_frozen_and_keyword_only():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Pair().rate = 1.0  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        Pair(0.5)  # pyright: ignore[reportCallIssue]


def test_only_leaves_are_leaves():
    assert jax.tree.leaves(Pair(rate=3.0, power=7)) == [3.0]
    assert jax.tree.structure(Pair(rate=1.0)) == jax.tree.structure(Pair(rate=2.0))
    assert jax.tree.structure(Pair(power=1)) != jax.tree.structure(Pair(power=2))


def test_a_new_leaf_does_not_recompile_and_a_new_shape_does():
    traced: list[int] = []

    @jax.jit
    def compiled(pair: Pair) -> jax.Array:
        traced.append(pair.power)
        return jnp.asarray(pair.rate) ** pair.power

    assert compiled(Pair(rate=3.0)) == 9
    assert compiled(Pair(rate=4.0)) == 16
    assert traced == [2]
    assert compiled(Pair(rate=2.0, power=3)) == 8
    assert traced == [2, 3]


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


@record
class Bounded:
    """Fields with every kind of requirement."""

    rate: float = leaf(default=0.5, above=0, most=1, doc="step size")
    pull: float | None = leaf(default=None, least=0, below=2)
    steps: int = static(default=1, least=1)
    share: float = static(default=0.5, above=0)
    order: str = static(default="up", choices=("up", "down"))
    form: str = static(default="a", choices=("a", "b", "c"))
    whole: bool = static(default=False)


@pytest.mark.parametrize(
    "values, sentence",
    [
        ({"rate": 0}, "rate must be above 0 and at most 1, got 0. Meaning: step size."),
        ({"rate": 1.5}, "rate must be above 0 and at most 1, got 1.5. Meaning: step size."),
        (
            {"rate": float("nan")},
            "rate must be above 0 and at most 1, got nan. Meaning: step size.",
        ),
        ({"pull": -1}, "pull must be at least 0 and below 2, got -1."),
        ({"pull": 2}, "pull must be at least 0 and below 2, got 2."),
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0."),
        ({"steps": 1.0}, "steps must be a whole number of at least 1, got 1.0."),
        ({"steps": True}, "steps must be a whole number of at least 1, got True."),
        ({"share": "all"}, "share must be above 0, got 'all'."),
        ({"order": "left"}, "order must be 'up' or 'down', got 'left'."),
        ({"form": ["a"]}, "form must be one of a, b, c, got ['a']."),
        ({"whole": 1}, "whole must be true or false, got 1."),
    ],
)
def test_a_value_that_its_field_does_not_allow_is_refused(values: dict, sentence: str):
    with pytest.raises(ValueError) as caught:
        Bounded(**values)
    assert str(caught.value) == sentence


def test_values_at_the_bounds_are_legal():
    Bounded(rate=1, pull=0, steps=1, share=2, order="down", form="c", whole=True)
    Bounded(rate=1e-9, pull=1.999, share=1e-9)


def test_arrays_in_the_place_of_numbers_are_not_checked():
    stacked = trees.stack([Bounded(rate=0.1, pull=0.0), Bounded(rate=0.2, pull=1.0)])
    np.testing.assert_array_equal(
        jax.vmap(lambda one: -one.rate)(stacked), np.float32([-0.1, -0.2])
    )  # pyright: ignore[reportArgumentType]
    assert replace(stacked, rate=-stacked.rate).rate.tolist() == pytest.approx([-0.1, -0.2])


def test_numbers_and_booleans_of_numpy_are_taken_as_pythons():
    """Settings computed with NumPy, such as a share of clients, need no conversion."""
    assert Fraction(share=np.float32(0.5)).share == 0.5  # pyright: ignore[reportArgumentType]
    assert Weighted(clients=np.int64(3), replace=np.bool_(True)).clients == 3  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="clients must be a whole number"):
        Weighted(clients=True)


@record
class Plus:
    number: float = leaf(default=1.0)
    weights: str = static(default="size")


@record
class Minus:
    number: float = leaf(default=1.0)
    weights: str = static(default="size")


def test_records_of_two_classes_never_share_a_compiled_function():
    one, other = jax.tree.structure(Plus()), jax.tree.structure(Minus())
    assert one != other, "the same fields and values, but another class"
    assert one == jax.tree.structure(Plus(number=2.0))
    assert one != jax.tree.structure(Plus(weights="equal"))


def test_a_record_is_rebuilt_from_its_leaves_and_their_names_are_those_of_its_fields():
    named, structure = jax.tree_util.tree_flatten_with_path(Plus(number=3.0, weights="equal"))
    assert [(jax.tree_util.keystr(path), value) for path, value in named] == [(".number", 3.0)]
    rebuilt = jax.tree.unflatten(structure, [4.0])
    assert (rebuilt.number, rebuilt.weights) == (4.0, "equal")

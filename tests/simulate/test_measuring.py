"""Sums by cell, and products of vectors, against loops."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.simulate import measuring
from evenly.simulate.training import inner_products, weighted_sum


@pytest.mark.parametrize("scatter", [True, False])
@pytest.mark.parametrize("limit", [3, 4])
def test_rows_are_summed_by_cell_either_way(
    monkeypatch: pytest.MonkeyPatch, scatter: bool, limit: int
):
    """Four cells; a row whose cell is past the last is left out."""
    monkeypatch.setattr(measuring, "MOST_CELLS", limit)
    values = np.arange(12.0, dtype=np.float32).reshape(3, 2, 2)
    found = measuring.sum_by_cell(jnp.array([3, 4, 3]), jnp.asarray(values), 4, scatter=scatter)
    expected = np.zeros((4, 2, 2))
    expected[3] = values[0] + values[2]
    np.testing.assert_array_equal(found, expected)


def test_few_cells_are_summed_by_a_product_and_many_by_a_scatter(monkeypatch: pytest.MonkeyPatch):
    used: list[int] = []
    really = measuring.jax.ops.segment_sum
    monkeypatch.setattr(
        measuring.jax.ops, "segment_sum", lambda *given: used.append(given[2]) or really(*given)
    )
    monkeypatch.setattr(measuring, "MOST_CELLS", 4)
    for cells, scatter in ((4, False), (5, False), (4, True)):
        measuring.sum_by_cell(jnp.array([0, 1, 1]), jnp.ones((3, 1)), cells, scatter=scatter)
    assert used == [5, 4]


@pytest.mark.parametrize("axis", [-1, 0])
def test_vectors_of_each_run_are_multiplied_and_added_for_themselves(axis: int):
    """Three vectors of two layers, for two runs that lie last or first."""
    draw = np.random.default_rng(0)
    # [K, runs, ...]
    layers = [draw.integers(-3, 4, (3, 2, *shape)).astype(np.float32) for shape in ((4,), (2, 3))]
    vectors = [
        jnp.asarray(np.moveaxis(layer, 1, axis) if axis == -1 else layer) for layer in layers
    ]
    flat = np.concatenate([layer.reshape(3, 2, -1) for layer in layers], axis=2)
    gram = inner_products(vectors, axis)
    assert gram.shape == (3, 3, 2)
    coefficients = np.array([[1, 2], [0, -1], [3, 1]], np.float32)
    sums = weighted_sum(vectors, jnp.asarray(coefficients), axis)
    for run in range(2):
        np.testing.assert_array_equal(gram[..., run], flat[:, run] @ flat[:, run].T)
        own = np.concatenate([np.take(np.asarray(leaf), run, axis).ravel() for leaf in sums])
        np.testing.assert_array_equal(own, coefficients[:, run] @ flat[:, run])


class Doubling:
    """A server that serves twice the model plus its state."""

    def serve(self, model: jnp.ndarray, own: jnp.ndarray) -> jnp.ndarray:
        return 2 * model + own


jax.tree_util.register_static(Doubling)


@pytest.mark.parametrize("axis", [-1, 0])
def test_the_served_model_comes_from_the_server_where_there_is_one(axis: int):
    """Three runs: the first two have a server, the third has none."""
    models = np.arange(6.0).reshape((2, 3) if axis == -1 else (3, 2))
    shape = SimpleNamespace(axis=axis, runs_of=lambda i: (slice(0, 2), slice(2, 3))[i])
    parts = SimpleNamespace(
        rules=[SimpleNamespace(server=Doubling()), SimpleNamespace(server=None)]
    )
    state = SimpleNamespace(model=jnp.asarray(models), server=[jnp.array([10.0, 20.0]), None])
    served: Any = measuring.served_model(shape, parts, state)  # type: ignore[arg-type]
    expected = np.moveaxis(models.copy(), axis, 0)
    expected[0], expected[1] = 2 * expected[0] + 10, 2 * expected[1] + 20
    np.testing.assert_array_equal(np.moveaxis(np.asarray(served), axis, 0), expected)
    alone = SimpleNamespace(rules=[SimpleNamespace(server=None)])
    assert measuring.served_model(shape, alone, state) is state.model  # type: ignore[arg-type]

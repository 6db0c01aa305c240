"""Half the multiplications give the same convolution, nearly as exactly as patches do, and are used
where they pay.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.models import layers
from evenly.models.layers import by_fewer_products, convolve, fewer_products_pay


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def outputs(x: np.ndarray, w: np.ndarray, pull: np.ndarray) -> list[np.ndarray]:
    """The convolution and its two gradients."""

    @jax.jit
    def all_three(x: jax.Array, w: jax.Array, pull: jax.Array) -> list[jax.Array]:
        value, back = jax.vjp(lambda x, w: convolve(x, {"w": w}), x, w)
        return [value, *back(pull)]

    return [np.asarray(leaf, np.float64) for leaf in all_three(x, w, pull)]


def exact(x: np.ndarray, w: np.ndarray, pull: np.ndarray) -> list[np.ndarray]:
    """The same in float64, one shift after another."""
    x, w, pull = (a.astype(np.float64) for a in (x, w, pull))
    high, wide = x.shape[1:3]
    around = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    value, dx, dw = np.zeros(pull.shape), np.zeros(around.shape), np.zeros(w.shape)
    for i in range(3):
        for j in range(3):
            seen = around[:, i : i + high, j : j + wide]
            value += seen @ w[i, j]
            dw[i, j] = np.tensordot(seen, pull, ((0, 1, 2), (0, 1, 2)))
            dx[:, i : i + high, j : j + wide] += pull @ w[i, j].T
    return [value, dx[:, 1:-1, 1:-1], dw]


@pytest.mark.parametrize(
    "wide", [1, 4, 7, 13, *(pytest.param(wide, marks=pytest.mark.slow) for wide in (2, 3, 6, 8))]
)
def test_outputs_and_gradients_are_nearly_as_exact_as_those_of_patches(
    monkeypatch: pytest.MonkeyPatch, wide: int
):
    given = drawn(0, 3, 6, wide, 16), drawn(1, 3, 3, 16, 5), drawn(2, 3, 6, wide, 5)
    expected = exact(*given)
    monkeypatch.setattr(layers, "fewer_products_pay", lambda w, wide: True)
    fewer = outputs(*given)
    monkeypatch.setattr(layers, "fewer_products_pay", lambda w, wide: False)
    patches = outputs(*given)
    assert any((a != b).any() for a, b in zip(fewer, patches, strict=True)), (
        "both took the same way"
    )
    for a, b, truth in zip(fewer, patches, expected, strict=True):
        scale = np.sqrt((truth**2).mean())
        errors = [np.sqrt(((value - truth) ** 2).mean()) / scale for value in (a, b)]
        assert errors[1] < 1e-6
        assert errors[0] < 5 * errors[1]


def test_a_filter_that_looks_at_one_pixel_gives_that_pixel():
    """With whole numbers for which the transforms hardly round: a wrong coefficient would be off by
    1 or more.
    """
    x = np.arange(2 * 5 * 9 * 1, dtype=np.float32).reshape(2, 5, 9, 1)
    for i in range(3):
        for j in range(3):
            w = np.zeros((3, 3, 1, 1), np.float32)
            w[i, j] = 60.0
            out = np.asarray(by_fewer_products(jnp.asarray(x), jnp.asarray(w)))
            np.testing.assert_allclose(out, 60 * x[:, i : i + 3, j : j + 7], rtol=1e-6, atol=1e-3)


def test_models_side_by_side_have_their_own_gradients():
    """Runs are vmapped over weights, over images, or over both."""
    x, w = jnp.asarray(drawn(0, 3, 2, 6, 9, 4)), jnp.asarray(drawn(1, 3, 3, 3, 4, 5))

    @jax.jit
    def slope(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.grad(lambda x, w: (by_fewer_products(x, w) ** 2).sum(), (0, 1))(x, w)

    for axes in ((0, 0), (None, 0), (0, None)):
        together = jax.vmap(slope, axes)(
            *(a[0] if axis is None else a for a, axis in zip((x, w), axes, strict=True))
        )
        for i in range(3):
            own = slope(
                *(a[0 if axis is None else i] for a, axis in zip((x, w), axes, strict=True))
            )
            for a, b in zip(together, own, strict=True):
                np.testing.assert_allclose(a[i], b, rtol=2e-4, atol=2e-3)


def test_gradients_can_be_differentiated_forwards():
    """Products of a network's Hessian with a vector, as `jax.hessian` makes them."""
    x, w = jnp.asarray(drawn(0, 1, 5, 8, 2)), jnp.asarray(drawn(1, 3, 3, 2, 1))
    of_weights = jax.grad(lambda w: (by_fewer_products(x, w) ** 2).sum())
    _, along = jax.jvp(of_weights, (w,), (w,))
    # of a quadratic function
    np.testing.assert_allclose(along, of_weights(w), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("filters", "wide", "pays"),
    [
        ((3, 3, 32, 64), 28, True),
        ((3, 3, 1, 32), 28, False),  # too few channels
        ((3, 3, 512, 512), 2, False),  # a tile of four would be half empty
        ((5, 5, 32, 64), 28, False),
    ],
)
def test_it_is_used_where_it_was_measured_to_pay(filters: tuple[int, ...], wide: int, pays: bool):
    assert fewer_products_pay(jnp.zeros(filters), wide) is pays

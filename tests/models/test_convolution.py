"""Convolution by patches equals XLA's convolution; pooling and normalisation equal their
definitions.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.models import layers
from evenly.models.layers import (
    check_images,
    convolve,
    dense,
    group_norm,
    in_chunks,
    max_pool,
    standardised,
    uniform_layer,
)

CASES = [
    (size, stride, padding, shape)
    for size, padding, shape in (
        (1, "valid", (2, 8, 7, 3)),
        (3, "same", (2, 8, 7, 3)),
        (3, "valid", (1, 5, 6, 1)),
        (5, "same", (1, 6, 5, 2)),
    )
    for stride in (1, 2, 3)
]


def drawn(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def reference(x: jax.Array, w: jax.Array, stride: int, margin: int) -> jax.Array:
    around = [(margin, margin)] * 2
    return jax.lax.conv_general_dilated(
        x,
        w,
        (stride, stride),
        around,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision=jax.lax.Precision.HIGHEST,
    )


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize(("size", "stride", "padding", "shape"), CASES)
def test_convolution_and_its_gradient_are_those_of_xla(
    size: int,
    stride: int,
    padding: str,
    shape: tuple[int, ...],
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
):
    # each has its own way of finding patches
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    x, w, b = drawn(0, *shape), drawn(1, size, size, shape[-1], 4), drawn(2, 4)
    margin = size // 2 if padding == "same" else 0

    def ours(x: jax.Array, w: jax.Array) -> jax.Array:
        return convolve(x, {"w": w, "b": b}, stride=stride, padding=padding)

    def theirs(x: jax.Array, w: jax.Array) -> jax.Array:
        return reference(x, w, stride, margin) + b

    pull = drawn(3, *jax.eval_shape(theirs, x, w).shape)

    @jax.jit
    def both(x: jax.Array, w: jax.Array) -> Any:
        return [
            (*jax.value_and_grad(lambda x, w, f=f: (f(x, w) * pull).sum(), (0, 1))(x, w), f(x, w))
            for f in (ours, theirs)
        ]

    for a, b_ in zip(*map(jax.tree.leaves, both(x, w)), strict=True):
        np.testing.assert_allclose(a, b_, rtol=1e-4, atol=1e-4)


def test_same_padding_keeps_the_size_and_strides_halve_it():
    def shape(size: int, stride: int) -> tuple[int, ...]:
        return jax.eval_shape(
            partial(convolve, stride=stride),
            drawn(0, 1, 32, 32, 2),
            {"w": drawn(1, size, size, 2, 5)},
        ).shape

    assert shape(3, 1) == (1, 32, 32, 5)
    assert shape(3, 2) == shape(1, 2) == (1, 16, 16, 5)


@pytest.mark.parametrize("shape", [(2, 6, 4, 3), (1, 7, 5, 2)])
def test_max_pool_is_the_largest_of_four(shape: tuple[int, ...]):
    x = drawn(0, *shape)
    n, h, w, c = shape
    expected = (
        np.asarray(x)[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))
    )
    np.testing.assert_array_equal(max_pool(x), expected)


def test_of_equal_pixels_the_first_gets_the_gradient():
    gradient = jax.grad(lambda x: max_pool(x).sum())(jnp.ones((1, 2, 4, 1)))
    np.testing.assert_array_equal(gradient[0, :, :, 0], [[1, 0, 1, 0], [0, 0, 0, 0]])


@pytest.mark.parametrize("at", range(4))
def test_a_pixel_that_is_not_a_number_is_not_hidden_by_pooling(at: int):
    x = jnp.arange(4.0).at[at].set(jnp.nan).reshape(1, 2, 2, 1)
    assert np.isnan(max_pool(x)).all()


def test_group_norm_standardises_each_image_within_groups_of_channels():
    x = 5 + 3 * drawn(0, 2, 4, 3, 6)
    out = np.asarray(group_norm(x, {"w": jnp.full(6, 2.0), "b": jnp.full(6, 0.5)}, groups=2))
    for image in range(2):
        for group in (slice(0, 3), slice(3, 6)):
            part = np.asarray(x, np.float64)[image, :, :, group]
            expected = 0.5 + 2 * (part - part.mean()) / np.sqrt(part.var() + 1e-5)
            np.testing.assert_allclose(out[image, :, :, group], expected, rtol=1e-5, atol=1e-5)


def test_group_norm_of_a_flat_image_is_finite():
    def total(x: jax.Array) -> jax.Array:
        return group_norm(x, {"w": jnp.ones(2), "b": jnp.ones(2)}, groups=1).sum()

    value, gradient = jax.value_and_grad(
        lambda x: group_norm(x, {"w": jnp.ones(2), "b": jnp.ones(2)}, groups=1).sum()
    )(jnp.zeros((1, 3, 3, 2)))
    assert float(value) == 18
    assert np.isfinite(gradient).all()


def test_bytes_are_standardised_and_floats_left_alone():
    raw = np.array([[[0, 255], [51, 102]]], np.uint8)
    np.testing.assert_allclose(
        standardised(jnp.asarray(raw), (0.2,), (0.5,))[0, :, :, 0],
        [[-0.4, 1.6], [0, 0.4]],
        atol=1e-6,
    )
    np.testing.assert_array_equal(
        standardised(jnp.asarray(raw, jnp.float32), (0.2,), (0.5,))[0, :, :, 0], raw[0]
    )
    coloured = standardised(jnp.zeros((1, 2, 2, 3), jnp.uint8), (0.1, 0.2, 0.3), (1.0, 2.0, 3.0))
    np.testing.assert_allclose(coloured[0, 0, 0], [-0.1, -0.1, -0.1], rtol=1e-6)


@pytest.mark.parametrize("n", [4, 5, 8])
def test_chunks_change_neither_values_nor_gradients(n: int):
    x, w = drawn(0, n, 3), drawn(1, 3, 2)

    def total(w: jax.Array, rows: int) -> jax.Array:
        return (in_chunks(lambda part: jnp.tanh(part @ w), x, rows) ** 2).sum()

    assert in_chunks(lambda part: part @ w, x, 4).shape == (n, 2)
    whole, parts = (jax.jit(jax.value_and_grad(partial(total, rows=rows)))(w) for rows in (100, 4))
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_padding_of_a_chunk_needs_no_function_that_is_defined_for_zeros():
    x = 1 + jnp.arange(10.0).reshape(5, 2)

    def total(w: jax.Array) -> jax.Array:
        return in_chunks(lambda part: w * part / part.sum(1, keepdims=True), x, 4).sum()

    assert jax.grad(total)(jnp.float32(2)) == pytest.approx(5)


def test_layers_start_within_one_over_the_root_of_the_fan_in():
    layer = uniform_layer(jax.random.key(0), (3, 3, 4, 500))
    for values in layer.values():
        assert 0.95 / 6 < float(jnp.abs(values).max()) <= 1 / 6
        assert abs(float(values.mean())) < 0.02
    assert set(uniform_layer(jax.random.key(0), (4, 5), bias=False)) == {"w"}


@pytest.mark.parametrize(
    ("shape", "mean", "deviation", "message"),
    [
        (
            (28, 28),
            (0.0,),
            (1.0,),
            r"shape must be \(height, width, channels\), such as \(28, 28, 1\), got \(28, 28\)",
        ),
        ((3, 28, 1), (0.0,), (1.0,), "at least 4 pixels high and wide, got 3 x 28"),
        (
            (28, 28, 3),
            (0.0,),
            (1.0,),
            r"mean must be a tuple with one number for each of 3 channels, got \(0.0,\)",
        ),
        ((28, 28, 1), (0.0,), (0.0,), r"deviation must be above 0, got \(0.0,\)"),
    ],
)
def test_wrong_images_are_refused(
    shape: tuple[int, ...], mean: tuple[float, ...], deviation: tuple[float, ...], message: str
):
    with pytest.raises(ValueError, match=f"net: .*{message}"):
        check_images("net", shape, mean, deviation, least=4)


@pytest.mark.parametrize("rows", [0, 1, 3, 40])
@pytest.mark.parametrize("wide", [5, 200])
@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("last", [False, True], ids=["inner", "last"])
def test_a_dense_layer_has_the_gradient_of_a_product(
    last: bool, backend: str, wide: int, rows: int, monkeypatch: pytest.MonkeyPatch
):
    # outer products are summed where rows are few, on a CPU of thin layers
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(layers, "LEAST_WEIGHTS", 0)
    x, w, pull = drawn(0, rows, 7), drawn(1, 7, wide), drawn(2, rows, wide)
    ours = jax.grad(lambda x, w: (dense(x, {"w": w}, last=last) * pull).sum(), (0, 1))(x, w)
    theirs = jax.grad(lambda x, w: (x @ w * pull).sum(), (0, 1))(x, w)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_a_loss_is_not_computed_again_for_every_weight_of_the_last_layer(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    monkeypatch.setattr(layers, "LEAST_WEIGHTS", 0)

    # of the step's three; one is missing where the gradient is a sum of outer products
    def products(last: bool) -> int:
        step = jax.grad(lambda w: jax.nn.logsumexp(dense(drawn(0, 3, 7), {"w": w}, last=last)))
        return str(jax.make_jaxpr(step)(drawn(1, 7, 5))).count("dot_general[")

    assert products(last=True) == products(last=False) + 1

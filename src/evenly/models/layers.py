"""Convolutions that are fast on a CPU: as products of matrices, and with fewer multiplications
(Winograd).
"""

from collections.abc import Callable
from functools import partial, reduce
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from evenly.records import require

# 3 x 3 convolutions with half the multiplications.
#
# Four neighbouring outputs of a filter g over pixels d0 ... d5 are twelve products, d0 g0 + d1 g1 +
# d2 g2 and so on. They are also the coefficients of a product of polynomials, which six of its
# values determine: Winograd's F(4, 3), here with the points 0, 1/2, -1/2, 2, -2 and infinity, which
# round less than the usual 0, 1, -1, 2, -2. The six values are products of sums of pixels and sums
# of weights.
#
# Here along the width, with the three rows that a filter sees laid side by side as patches are. A
# LeNet step on two CPU cores took 5.5 instead of 6.5 ms with F(2, 3), two outputs from four
# products. In float32 outputs are about twice as far from float64 as those of patches: 5e-7 of
# their spread with 32 channels, 1e-6 with 256. Outputs that are equal, or 0, without rounding may
# differ in the last bits, and a pixel that is not finite spoils its whole tile.

Array = jax.Array

LEAST_CHANNELS = 16  # below, sums of pixels cost more than the products they save
# below, tiles of four are too empty, or the sums of weights cost more than the products of so few
# pixels
LEAST_WIDE = 6


def fewer_products_pay(w: Array, wide: int) -> bool:
    """Whether Winograd's convolution is faster than patches, for filters w and outputs that are
    `wide` pixels wide.

    The number of images has no say: the outputs of an image must not depend on how many others
    are computed with it.
    """
    return w.shape[:2] == (3, 3) and w.shape[2] >= LEAST_CHANNELS and wide >= LEAST_WIDE


def by_fewer_products(x: Array, w: Array) -> Array:
    """Convolution of padded images [n, h + 2, w + 2, c] with filters [3, 3, c, out]: [n, h, w,
    out].
    """
    n, high, wide = x.shape[0], x.shape[1] - 2, x.shape[2] - 2
    tiles = -(-wide // 4)
    # Whole tiles, and one more: a tile also sees the next two pixels.
    x = jnp.pad(x, ((0, 0), (0, 0), (0, 4 * (tiles + 1) - wide - 2), (0, 0)))
    m = [
        seen @ values.reshape(-1, w.shape[-1])
        for seen, values in zip(_of_pixels(x), _of_filters(w), strict=True)
    ]
    even, odd, far_even, far_odd = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    outputs = (
        m[0] + even + far_even,
        odd / 2 + 2 * far_odd,
        even / 4 + 4 * far_even,
        odd / 8 + 8 * far_odd + m[5],
    )
    return jnp.stack(outputs, axis=1).reshape(n, high, 4 * tiles, -1)[:, :, :wide]


def _of_filters(w: Array) -> tuple[Array, ...]:
    """Each row of the filters, a polynomial, at the six points; over what the interpolation divides
    by.
    """
    g = w[:, 0], w[:, 1], w[:, 2]
    near, far = g[0] + g[2] / 4, g[0] + 4 * g[2]
    return (
        g[0],
        (near + g[1] / 2) * (-8 / 15),
        (near - g[1] / 2) * (-8 / 15),
        (far + 2 * g[1]) / 30,
        (far - 2 * g[1]) / 30,
        g[2],
    )


def _sums_of_pixels(x: Array) -> tuple[Array, ...]:
    """Six sums of the pixels of each tile and its next two, with three rows side by side: [n, h +
    2, 4 (tiles + 1), c] -> six times [n * h * tiles, 3 * c].
    """
    n, high, wide, c = x.shape
    tile = x.reshape(n, high, wide // 4, 4, c)
    d = [*(tile[:, :, :-1, i] for i in range(4)), tile[:, :, 1:, 0], tile[:, :, 1:, 1]]
    near, near_odd = d[4] - 4 * d[2], d[3] / 2 - 2 * d[1]
    far, far_odd = d[4] - d[2] / 4, 2 * d[3] - d[1] / 2
    sums = (
        d[0] - 4.25 * d[2] + d[4],
        near + near_odd,
        near - near_odd,
        far + far_odd,
        far - far_odd,
        d[1] - 4.25 * d[3] + d[5],
    )
    return tuple(
        jnp.concatenate([s[:, i : i + high - 2] for i in range(3)], axis=-1).reshape(-1, 3 * c)
        for s in sums
    )


def _of_pixels_backwards(x: Array, q: tuple[Array, ...]) -> tuple[Array]:
    # As JAX would, in an order that XLA does well: first what reads and writes in rows, last the
    # three rows of a filter. Of JAX's own gradient it made one function that works out for each
    # pixel which of 18 padded arrays it is in, and took three times as long.
    n, high, wide, c = x.shape
    near, near_odd, far, far_odd = q[1] + q[2], q[1] - q[2], q[3] + q[4], q[3] - q[4]
    d = [
        q[0], q[5] - 2 * near_odd - far_odd / 2, -4.25 * q[0] - 4 * near - far / 4,
        near_odd / 2 + 2 * far_odd - 4.25 * q[5], q[0] + near + far, q[5], jnp.zeros_like(q[0]),
        jnp.zeros_like(q[0]),
    ]  # fmt: skip

    def side_by_side(four: list[Array]) -> Array:
        tiles = [pixel.reshape(n, high - 2, wide // 4 - 1, 3 * c) for pixel in four]
        return jnp.stack(tiles, axis=3).reshape(n, high - 2, wide - 4, 3, c)

    def padded(tiles: Array, left: int) -> Array:
        return jnp.pad(tiles, ((0, 0), (2, 2), (left, 4 - left), (0, 0), (0, 0)))

    rows = padded(side_by_side(d[:4]), 0) + padded(side_by_side(d[4:]), 4)
    return (rows[:, 2:, :, 0] + rows[:, 1:-1, :, 1] + rows[:, :-2, :, 2],)


_of_pixels = jax.custom_vjp(_sums_of_pixels)
_of_pixels.defvjp(lambda x: (_sums_of_pixels(x), x), _of_pixels_backwards)


# What networks for images are made of. Images are [n, height, width, channels].
#
# A convolution is one matrix product of patches (im2col), differentiated as it stands, unless asked
# otherwise. In a loop on a CPU that was 15 times faster than `jax.lax.conv_general_dilated` (13
# against 204 ms of CPU time for a LeNet step) and twice as fast with slices and concatenation as
# with `jax.lax.conv_general_dilated_patches`; on a GPU, where models side by side would each need a
# convolution of their own, 5 times. On a CPU, where multiplications are what takes time, 3 x 3
# filters do with half.

Layer = dict[str, Array]

MOST_DIRECT = 1024  # examples at a time where there is no patch matrix
MOST_OUTER = 16  # examples whose outer products are summed without a matrix product
MOST_THIN = 128  # outputs of a dense layer up to which that pays on a CPU,
LEAST_WEIGHTS = 2**17  # and weights from which it does: fewer stay in its cache
MOST_ROWS = 64  # examples at a time; a patch matrix is nine times as large as its image


class Pixels(NamedTuple):
    """Mean and standard deviation of each channel of a data set, of bytes divided by 255.

    Example:
        >>> Pixels(mean=(0.5, 0.5, 0.5), deviation=(0.25, 0.25, 0.25)).mean
        (0.5, 0.5, 0.5)
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


PIXELS: dict[str, Pixels] = {
    "mnist": Pixels((0.1307,), (0.3081,)),
    "fashion-mnist": Pixels((0.2860,), (0.3530,)),
    "cifar10": Pixels((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": Pixels((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "cinic10": Pixels((0.4789, 0.4723, 0.4305), (0.2421, 0.2383, 0.2587)),
}
"""Mean and standard deviation of the pixels of known data sets, by name.

Example:
    >>> PIXELS["mnist"]
    Pixels(mean=(0.1307,), deviation=(0.3081,))
"""


def standardised(x: Array, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Array:
    """Images [n, h, w] or [n, h, w, c] as floats [n, h, w, c]: bytes are standardised, floats are
    taken as they are.
    """
    x = x[..., None] if x.ndim == 3 else x
    if x.dtype != jnp.uint8:
        return x.astype(jnp.float32)
    return (x.astype(jnp.float32) / 255 - jnp.array(mean)) / jnp.array(deviation)


def patches(x: Array, size: int, *, stride: int = 1, padding: str = "same") -> Array:
    """What each output pixel sees: [n, h, w, c] -> [n, h', w', size * size * c].

    "same" pads size // 2 zeros on every side, as PyTorch's `padding=1` does for size 3; "valid"
    pads nothing.
    """
    x = _padded(x, size, padding)
    return (
        _by_slices(x, size, stride)
        if jax.default_backend() == "cpu"
        else _by_number(x, size, stride)
    )


def _by_slices(x: Array, size: int, stride: int) -> Array:
    # from the first to the last corner
    high, wide = ((side - size) // stride * stride + 1 for side in x.shape[1:3])
    return jnp.concatenate(
        [
            x[:, i : i + high : stride, j : j + wide : stride]
            for i in range(size)
            for j in range(size)
        ],
        axis=-1,
    )


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _by_number(x: Array, size: int, stride: int) -> Array:
    """The same, each pixel looked up by its number: on a GPU half the time of slices put side by
    side (60 against 114 µs for 200 images of 28 x 28 with 32 channels, H200). Its gradient is that
    of slices: added up, not scattered.
    """
    n, high, wide, channels = x.shape
    corner = np.add.outer(
        np.arange(0, high - size + 1, stride) * wide, np.arange(0, wide - size + 1, stride)
    )
    pixels = corner[..., None, None] + np.add.outer(np.arange(size) * wide, np.arange(size))
    patches = jnp.take(x.reshape(n, high * wide, channels), pixels.ravel(), axis=1, mode="clip")
    return patches.reshape(n, *corner.shape, size * size * channels)


def _by_number_backwards(size: int, stride: int, x: Array, pull: Array) -> tuple[Array]:
    return jax.vjp(lambda given: _by_slices(given, size, stride), x)[1](pull)


_by_number.defvjp(lambda x, size, stride: (_by_number(x, size, stride), x), _by_number_backwards)


def _padded(x: Array, size: int, padding: str) -> Array:
    margin = size // 2 if padding == "same" else 0
    return jnp.pad(x, ((0, 0), (margin, margin), (margin, margin), (0, 0))) if margin else x


def _wide(x: Array, padding: str) -> int:
    """How wide the outputs of a 3 x 3 convolution are."""
    return x.shape[2] if padding == "same" else x.shape[2] - 2


def convolve(
    x: Array, layer: Layer, *, stride: int = 1, padding: str = "same", direct: bool = False
) -> Array:
    """Convolution with layer["w"] [size, size, c, out], and layer["b"] [out] if it has one: [n, h,
    w, c] -> [n, h', w', out].

    `direct` uses the device's own convolution, without patches: for a GPU on which one large model
    trains at a time.
    """
    w = layer["w"].astype(x.dtype)
    if direct:
        margin = w.shape[0] // 2 if padding == "same" else 0
        out = lax.conv_general_dilated(
            x,
            w,
            (stride, stride),
            [(margin, margin)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
    elif (
        stride == 1
        and w.dtype == jnp.float32
        and jax.default_backend() == "cpu"
        and fewer_products_pay(w, _wide(x, padding))
    ):
        # its sums of pixels would lose too much in bfloat16
        out = by_fewer_products(_padded(x, 3, padding), w)
    else:
        inputs = patches(x, w.shape[0], stride=stride, padding=padding)
        # Two axes each: XLA's CPU compiler calls its fast product only for those.
        out = inputs.reshape(-1, inputs.shape[-1]) @ w.reshape(-1, w.shape[-1])
        out = out.reshape(*inputs.shape[:3], w.shape[-1])
    return out + layer["b"] if "b" in layer else out


def dense(x: Array, layer: Layer, *, last: bool = False) -> Array:
    """x [n, d] times layer["w"] [d, out], plus layer["b"] if there is one. `last`: what comes out
    are a network's logits.
    """
    out = _product(x, layer["w"], last)
    return out + layer["b"] if "b" in layer else out


def _times(x: Array, w: Array, last: bool) -> Array:
    return x @ w


def _product_backwards(
    last: bool, residuals: tuple[Array, Array], pull: Array
) -> tuple[Array, Array]:
    # As JAX would, but laid out as the weights are. Its own gradient comes transposed, and where
    # runs are vmapped XLA turns it round only in the update: 2 ms of a LeNet step for 1.6 million
    # numbers read across the grain.
    x, w = residuals
    cpu, few = jax.default_backend() == "cpu", 1 <= x.shape[0] <= MOST_OUTER
    # x.T @ pull of few rows waits for memory. As a sum of outer products it becomes part of the
    # update, and no gradient is written and read again: 12.5 to 10.9 ms for sixteen steps of 25
    # LeNets (H200), 5.5 to 5.1 ms for one step on two CPU cores.
    if few and not cpu:
        gradient = (x[:, :, None] * pull[:, None, :]).sum(0)
    # Not on a CPU after the last layer: the loss's arithmetic would become part of the update too,
    # once for every weight and example (22 to 40 ms for a round of a perceptron with a million
    # weights).
    elif few and not last and w.shape[1] <= MOST_THIN and w.size >= LEAST_WEIGHTS:
        # XLA's CPU compiler is slow at short sums
        gradient = reduce(jnp.add, [x[i, :, None] * pull[i] for i in range(x.shape[0])])
    else:
        gradient = x.T @ pull
    return jnp.einsum("no,do->nd", pull, w), gradient


_product = jax.custom_vjp(_times, nondiff_argnums=(2,))
_product.defvjp(lambda x, w, last: (x @ w, (x, w)), _product_backwards)


def max_pool(x: Array) -> Array:
    """The largest of every 2 x 2 pixels; an odd last row or column is left out. Of equals, only the
    first gets the gradient.
    """
    n, h, w, c = x.shape
    x = x[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c)
    return first_largest(
        first_largest(x[:, :, 0, :, 0], x[:, :, 0, :, 1]),
        first_largest(x[:, :, 1, :, 0], x[:, :, 1, :, 1]),
    )


def pool_overlapping(x: Array) -> Array:
    """The largest of 3 x 3 pixels around every second one, as after the stem of ImageNet's ResNets:
    outside the image nothing counts. Of equals, only the first gets the gradient.
    """
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-jnp.inf)
    high, wide = ((side - 3) // 2 * 2 + 1 for side in x.shape[1:3])
    return reduce(
        first_largest,
        [x[:, i : i + high : 2, j : j + wide : 2] for i in range(3) for j in range(3)],
    )


def first_largest(a: Array, b: Array) -> Array:
    """The larger of two; of equals the first, which gets the gradient."""
    # As PyTorch; jnp.maximum would share the gradient among equals, and flat regions of an image
    # are full of them.
    return jnp.where((a < b) | jnp.isnan(b), b, a)


def group_norm(x: Array, layer: Layer, *, groups: int, epsilon: float = 1e-5) -> Array:
    """Standardise each image within groups of neighbouring channels, then scale by layer["w"] and
    shift by layer["b"].

    Pixels are summed first, channel by channel, then the channels of a group: sums along the layout
    of the image, which on a GPU need no transposed copy of it. Statistics are float32 whatever x
    is.
    """
    n, h, w, c = x.shape
    wide = x.astype(jnp.float32)

    def mean(values: Array) -> Array:  # of each group, for each of its channels
        sums = values.sum((1, 2)).reshape(n, groups, c // groups).sum(-1)
        return jnp.repeat(sums / (h * w * (c // groups)), c // groups, axis=1)

    centre = mean(wide)
    scale = layer["w"] * lax.rsqrt(jnp.maximum(mean(wide * wide) - centre * centre, 0.0) + epsilon)
    shift = layer["b"] - centre * scale
    return (wide * scale[:, None, None] + shift[:, None, None]).astype(x.dtype)


def uniform_layer(key: Array, shape: tuple[int, ...], *, bias: bool = True) -> Layer:
    """Weights [..., inputs, out] uniform within 1 / sqrt(fan-in) of zero, and so the biases:
    PyTorch's default.
    """
    bound = prod(shape[:-1]) ** -0.5
    first, second = jax.random.split(key)
    weights = {"w": jax.random.uniform(first, shape, minval=-bound, maxval=bound)}
    return (
        {**weights, "b": jax.random.uniform(second, shape[-1:], minval=-bound, maxval=bound)}
        if bias
        else weights
    )


def in_chunks(function: Callable[[Array], Array], x: Array, rows: int = MOST_ROWS) -> Array:
    """function(x), which maps examples to rows, on `rows` examples at a time where there are more:
    memory stays small. Padding repeats the last example, for which the function is defined.
    """
    if x.shape[0] <= rows:
        return function(x)
    padding = [(0, -x.shape[0] % rows)] + [(0, 0)] * (x.ndim - 1)
    out = lax.map(function, jnp.pad(x, padding, "edge").reshape(-1, rows, *x.shape[1:]))
    return out.reshape(-1, *out.shape[2:])[: x.shape[0]]


def by_size(function: Callable[..., Array], x: Array) -> Array:
    """Compute function(x, direct=...) in chunks, and choose the convolution by the number of rows.

    Few rows are one training step, of one of several models that train together. Many rows are an
    evaluation of one model. On a GPU an evaluation uses the device's own convolution (`direct`):
    LeNet on 1,024 rows takes 0.42 ms with it and 1.38 ms with patches (H200).
    """
    direct = x.shape[0] > MOST_ROWS and jax.default_backend() != "cpu"
    return in_chunks(partial(function, direct=direct), x, MOST_DIRECT if direct else MOST_ROWS)


def check_images(
    model: str,
    shape: tuple[int, ...],
    mean: tuple[float, ...],
    deviation: tuple[float, ...],
    *,
    least: int,
) -> None:
    """Raise unless images are (height, width, channels), large enough, with constants for each
    channel.
    """
    legal = (
        isinstance(shape, tuple)
        and len(shape) == 3
        and all(isinstance(side, int) and side >= 1 for side in shape)
    )
    require(
        legal,
        f"{model}: shape must be (height, width, channels), such as (28, 28, 1), got {shape!r}.",
    )
    require(
        min(shape[:2]) >= least,
        f"{model}: images must be at least {least} pixels high and wide, got {shape[0]} x"
        f" {shape[1]}.",
    )
    for name, values in (("mean", mean), ("deviation", deviation)):
        fits = isinstance(values, tuple) and len(values) == shape[2]
        require(
            fits,
            f"{model}: {name} must be a tuple with one number for each of {shape[2]} channels, got"
            f" {values!r}.",
        )
    require(
        all(value > 0 for value in deviation),
        f"{model}: deviation must be above 0, got {deviation!r}.",
    )

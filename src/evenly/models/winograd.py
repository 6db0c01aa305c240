"""3 x 3 convolutions with half the multiplications.

Four neighbouring outputs of a filter g over pixels d0 ... d5 are twelve products, d0 g0 + d1 g1 + d2 g2 and so on. They are also the
coefficients of a product of polynomials, which six of its values determine: Winograd's F(4, 3), here with the points 0, 1/2, -1/2, 2, -2
and infinity, which round less than the usual 0, 1, -1, 2, -2. The six values are products of sums of pixels and sums of weights.

Here along the width, with the three rows that a filter sees laid side by side as patches are. A LeNet step on two CPU cores took 5.5
instead of 6.5 ms with F(2, 3), two outputs from four products. In float32 outputs are about twice as far from float64 as those of
patches: 5e-7 of their spread with 32 channels, 1e-6 with 256. Outputs that are equal, or 0, without rounding may differ in the last
bits, and a pixel that is not finite spoils its whole tile.
"""

import jax
import jax.numpy as jnp

Array = jax.Array

LEAST_CHANNELS = 16  # below, sums of pixels cost more than the products they save
LEAST_WIDE = 6  # below, tiles of four are too empty, or the sums of weights cost more than the products of so few pixels


def fewer_products_pay(w: Array, wide: int) -> bool:
    """Whether outputs so wide are found faster so. It does not depend on the number of images: their outputs should not, either."""
    return w.shape[:2] == (3, 3) and w.shape[2] >= LEAST_CHANNELS and wide >= LEAST_WIDE


def by_fewer_products(x: Array, w: Array) -> Array:
    """Convolution of padded images [n, h + 2, w + 2, c] with filters [3, 3, c, out]: [n, h, w, out]."""
    n, high, wide = x.shape[0], x.shape[1] - 2, x.shape[2] - 2
    tiles = -(-wide // 4)
    # Whole tiles, and one more: a tile also sees the next two pixels.
    x = jnp.pad(x, ((0, 0), (0, 0), (0, 4 * (tiles + 1) - wide - 2), (0, 0)))
    m = [seen @ values.reshape(-1, w.shape[-1]) for seen, values in zip(_of_pixels(x), _of_filters(w), strict=True)]
    even, odd, far_even, far_odd = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    outputs = m[0] + even + far_even, odd / 2 + 2 * far_odd, even / 4 + 4 * far_even, odd / 8 + 8 * far_odd + m[5]
    return jnp.stack(outputs, axis=1).reshape(n, high, 4 * tiles, -1)[:, :, :wide]


def _of_filters(w: Array) -> tuple[Array, ...]:
    """Each row of the filters, a polynomial, at the six points; over what the interpolation divides by."""
    g = w[:, 0], w[:, 1], w[:, 2]
    near, far = g[0] + g[2] / 4, g[0] + 4 * g[2]
    return g[0], (near + g[1] / 2) * (-8 / 15), (near - g[1] / 2) * (-8 / 15), (far + 2 * g[1]) / 30, (far - 2 * g[1]) / 30, g[2]


def _sums_of_pixels(x: Array) -> tuple[Array, ...]:
    """Six sums of the pixels of each tile and its next two, with three rows side by side: [n, h + 2, 4 (tiles + 1), c] -> six times
    [n * h * tiles, 3 * c]."""
    n, high, wide, c = x.shape
    tile = x.reshape(n, high, wide // 4, 4, c)
    d = [*(tile[:, :, :-1, i] for i in range(4)), tile[:, :, 1:, 0], tile[:, :, 1:, 1]]
    near, near_odd = d[4] - 4 * d[2], d[3] / 2 - 2 * d[1]
    far, far_odd = d[4] - d[2] / 4, 2 * d[3] - d[1] / 2
    sums = d[0] - 4.25 * d[2] + d[4], near + near_odd, near - near_odd, far + far_odd, far - far_odd, d[1] - 4.25 * d[3] + d[5]
    return tuple(jnp.concatenate([s[:, i : i + high - 2] for i in range(3)], axis=-1).reshape(-1, 3 * c) for s in sums)


def _of_pixels_backwards(x: Array, q: tuple[Array, ...]) -> tuple[Array]:
    # As JAX would, in an order that XLA does well: first what reads and writes in rows, last the three rows of a filter. Of JAX's own
    # gradient it made one function that works out for each pixel which of 18 padded arrays it is in, and took three times as long.
    n, high, wide, c = x.shape
    near, near_odd, far, far_odd = q[1] + q[2], q[1] - q[2], q[3] + q[4], q[3] - q[4]
    d = [
        q[0], q[5] - 2 * near_odd - far_odd / 2, -4.25 * q[0] - 4 * near - far / 4, near_odd / 2 + 2 * far_odd - 4.25 * q[5],
        q[0] + near + far, q[5], jnp.zeros_like(q[0]), jnp.zeros_like(q[0]),
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

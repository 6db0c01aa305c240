"""Operations on images: convolutions, pooling, normalisation and resizing.

Convolutions are those of `evenly.models.layers`. What they cannot do (dilation, groups, filters
that are not square) is left to `jax.lax.conv_general_dilated`.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from evenly.models.layers import convolve, first_largest, max_pool
from evenly.torch_models.operands import Image, StepSettings, as_image
from evenly.types import Array

FILTERS = (2, 3, 1, 0)  # [out, in, height, width] -> [height, width, in, out]
LETTERS = "DHW"


def _pair(values: Any) -> tuple[int, ...]:
    """Sizes of height and width; PyTorch may give one for both."""
    each = tuple(values) if isinstance(values, Sequence) else (values,)
    return each * 2 if len(each) == 1 else each


# Convolutions.


def stored_convolution(
    step: StepSettings,
    x: Any,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    *rest: Any,
) -> Image:
    """A convolution of images with filters [height, width, in, out]: `rest` is padding, dilation,
    whether it is transposed, the padding of the output, and groups.
    """
    padding, dilation, _, _, groups = rest
    stride, padding, dilation = _pair(stride), _pair(padding), _pair(dilation)
    pixels = as_image(x).pixels
    simple = stride[0] == stride[1] and dilation == (1, 1) and weight.shape[0] == weight.shape[1]
    if simple and groups == 1:
        layer = {"w": weight} if bias is None else {"w": weight, "b": bias}
        margin, size = padding, weight.shape[0]
        same = size % 2 == 1 and margin == (size // 2, size // 2)
        if not same and margin != (0, 0):
            pixels = jnp.pad(pixels, ((0, 0), *((m, m) for m in margin), (0, 0)))
        how = "same" if same else "valid"
        return Image(convolve(pixels, layer, stride=stride[0], padding=how, direct=step.direct))
    if groups == pixels.shape[3] == weight.shape[3] and dilation == (1, 1):
        out = _depthwise(pixels, weight, stride, padding)
    else:
        out = lax.conv_general_dilated(
            pixels,
            weight,
            stride,
            [(m, m) for m in padding],
            rhs_dilation=dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )
    return Image(out if bias is None else out + bias)


def _depthwise(pixels: Array, weight: Array, stride: Any, padding: Any) -> Array:
    """A filter for each channel: a sum of shifted images. XLA's CPU compiler is slow at grouped
    convolutions.
    """
    padded = jnp.pad(pixels, ((0, 0), *((m, m) for m in padding), (0, 0)))
    size = weight.shape[:2]
    seen = _windows(padded, size, stride, (1, 1))
    factors = weight[:, :, 0].reshape(-1, weight.shape[3])
    return reduce(jnp.add, [part * factors[i] for i, part in enumerate(seen)])


def convolution(
    step: StepSettings,
    x: Any,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    *rest: Any,
) -> Any:
    """A convolution along one, two or three axes, or a transposed one, with filters as PyTorch has
    them; `rest` as in `stored_convolution`.
    """
    transposed, groups = rest[2], rest[4]
    if weight.ndim == 4 and not transposed:
        return stored_convolution(step, x, jnp.transpose(weight, FILTERS), bias, stride, *rest)
    if weight.ndim == 4:
        pixels = as_image(x).pixels
        out = _transposed(pixels, weight, _pair(stride), *map(_pair, (rest[0], rest[1], rest[3])),
                          groups=groups)  # fmt: skip
        return Image(out if bias is None else out + bias)
    x = x.first() if isinstance(x, Image) else x
    if transposed:
        raise NotImplementedError(
            "Transposed convolutions are translated for images only. Add an axis of length 1 and"
            " use ConvTranspose2d, or upsample and convolve."
        )
    padding, dilation = (_each(values, x.ndim - 2) for values in (rest[0], rest[1]))
    stride = _each(stride, x.ndim - 2)
    if x.ndim == 3 and groups == 1:
        out = _along_line(x, weight, stride[0], padding[0], dilation[0])
    else:
        names = LETTERS[-(x.ndim - 2) :]
        out = lax.conv_general_dilated(
            x, weight, stride, [(m, m) for m in padding], rhs_dilation=dilation,
            dimension_numbers=(f"NC{names}", f"OI{names}", f"NC{names}"),
            feature_group_count=groups,
        )  # fmt: skip
    return out if bias is None else out + bias.reshape(-1, *(1,) * (x.ndim - 2))


def _each(values: Any, axes: int) -> tuple[int, ...]:
    each = tuple(values)
    return each * axes if len(each) == 1 else each


def _along_line(x: Array, weight: Array, stride: int, padding: int, dilation: int) -> Array:
    """A convolution along one axis as a product of matrices: [n, in, length] -> [n, out, new
    length].
    """
    outputs, inputs, size = weight.shape
    line = jnp.pad(jnp.swapaxes(x, 1, 2), ((0, 0), (padding, padding), (0, 0)))
    last = (line.shape[1] - dilation * (size - 1) - 1) // stride * stride + 1
    starts = range(0, dilation * size, dilation)
    seen = jnp.concatenate([line[:, i : i + last : stride] for i in starts], axis=-1)
    filters = jnp.transpose(weight, (2, 1, 0)).reshape(size * inputs, outputs)
    out = seen.reshape(-1, size * inputs) @ filters
    return jnp.swapaxes(out.reshape(*seen.shape[:2], outputs), 1, 2)


def _transposed(
    pixels: Array, weight: Array, stride: Any, padding: Any, dilation: Any, *rest: Any, groups: int
) -> Array:
    """A transposed convolution with filters [in, out / groups, height, width]."""
    inputs, outputs, *size = weight.shape
    if tuple(size) == stride and padding == (0, 0) and groups == 1 and rest == ((0, 0),):
        # Windows do not overlap, so that each pixel becomes a window by itself.
        n, high, wide, _ = pixels.shape
        filters = weight.reshape(inputs, -1)
        out = (pixels.reshape(-1, inputs) @ filters).reshape(n, high, wide, outputs, *size)
        return jnp.transpose(out, (0, 1, 4, 2, 5, 3)).reshape(
            n, high * size[0], wide * size[1], outputs
        )
    grouped = weight.reshape(groups, inputs // groups, outputs, *size)
    filters = jnp.transpose(grouped, (3, 4, 1, 0, 2)).reshape(*size, inputs // groups, -1)
    margins = [
        (d * (k - 1) - p, d * (k - 1) - p + more)
        for d, k, p, more in zip(dilation, size, padding, rest[0], strict=True)
    ]
    return lax.conv_general_dilated(
        pixels, filters[::-1, ::-1], (1, 1), margins, lhs_dilation=stride, rhs_dilation=dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups,
    )  # fmt: skip


# Pooling.


def _windows(pixels: Any, size: Any, stride: Any, dilation: Any) -> list[Array]:
    """What each place of a window sees, as many images as a window has places."""
    high, wide = (
        (side - d * (k - 1) - 1) // s * s + 1
        for side, k, s, d in zip(pixels.shape[1:3], size, stride, dilation, strict=True)
    )
    return [
        pixels[:, i : i + high : stride[0], j : j + wide : stride[1]]
        for i, j in product(*(range(0, d * k, d) for k, d in zip(size, dilation, strict=True)))
    ]


def _margins(pixels: Array, size: Any, stride: Any, padding: Any, ceil: bool) -> list[Any]:
    """Padding of height and width; with `ceil`, as much more as the last window needs."""
    margins = []
    for side, k, s, p in zip(pixels.shape[1:3], size, stride, padding, strict=True):
        more = 0
        if ceil:
            windows = -(-(side + 2 * p - k) // s) + 1
            windows -= (windows - 1) * s >= side + p  # a window may not begin in the padding
            more = max(0, (windows - 1) * s + k - side - 2 * p)
        margins.append((p, p + more))
    return margins


def max_pool_images(
    x: Any, size: Any, stride: Any = (), padding: Any = 0, *rest: Any
) -> tuple[Image, None]:
    """The largest value of each window, and no places; `rest` is the dilation, and whether a last
    window may reach beyond the padding.
    """
    dilation, ceil = rest[0] if rest else 1, bool(rest[1:] and rest[1])
    pixels, size = as_image(x).pixels, _pair(size)
    stride, padding, dilation = _pair(stride or size), _pair(padding), _pair(dilation)
    if size == stride == (2, 2) and padding == (0, 0) and dilation == (1, 1) and not ceil:
        return Image(max_pool(pixels)), None
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, size, strict=True)]
    margins = _margins(pixels, reach, stride, padding, ceil)
    padded = jnp.pad(pixels, ((0, 0), *margins, (0, 0)), constant_values=-jnp.inf)
    return Image(reduce(first_largest, _windows(padded, size, stride, dilation))), None


def mean_pool_images(
    x: Any,
    size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    *rest: Any,
) -> Image:
    """The mean of each window; `rest` says whether padding counts, and the divisor if one is
    given.
    """
    counts_padding, divisor = bool(rest[0]) if rest else True, rest[1] if rest[1:] else None
    pixels, size = as_image(x).pixels, _pair(size)
    stride, padding = _pair(stride or size), _pair(padding)
    margins = _margins(pixels, size, stride, padding, ceil)
    padded = jnp.pad(pixels, ((0, 0), *margins, (0, 0)))
    total = reduce(jnp.add, _windows(padded, size, stride, (1, 1)))
    if divisor:
        return Image(total / divisor)
    counted = np.pad(
        np.ones((1, *pixels.shape[1:3], 1), np.float32),
        ((0, 0), *((p, p) for p in padding), (0, 0)),
        constant_values=float(counts_padding),
    )
    counted = np.pad(counted, ((0, 0), *((0, m[1] - m[0]) for m in margins), (0, 0)))
    count = np.sum(_windows(counted, size, stride, (1, 1)), axis=0)
    return Image(total / count.astype(pixels.dtype))


def adaptive_mean_pool(x: Any, size: Any) -> Image:
    """Means of as many windows as are wanted, which may overlap by a pixel."""
    pixels = as_image(x).pixels
    high, wide = (
        _shares(pixels.shape[axis + 1] if side is None else side, pixels.shape[axis + 1])
        for axis, side in enumerate(size)
    )
    if len(high) == len(wide) == 1:
        return Image(pixels.mean((1, 2), keepdims=True))
    return Image(
        jnp.einsum(
            "ih,jw,nhwc->nijc", *(m.astype(pixels.dtype) for m in (high, wide)), pixels,
            precision="highest",
        )
    )  # fmt: skip


def adaptive_max_pool(x: Any, size: Any) -> tuple[Image, None]:
    """The largest value of as many windows as are wanted, and no places."""
    pixels = as_image(x).pixels
    high, wide = (
        [slice(*bounds) for bounds in _bounds(windows or side, side)]
        for windows, side in zip(size, pixels.shape[1:3], strict=True)
    )
    rows = [jnp.stack([_largest(pixels[:, i, j]) for j in wide], axis=1) for i in high]
    return Image(jnp.stack(rows, axis=1)), None


def _largest(pixels: Array) -> Array:
    """The largest value of each channel; of equals, the first gets the gradient."""
    values = pixels.reshape(pixels.shape[0], -1, pixels.shape[3])
    chosen = jnp.arange(values.shape[1])[:, None] == values.argmax(1, keepdims=True)
    return jnp.where(chosen, values, 0).sum(1)


def _shares(windows: int, side: int) -> np.ndarray:
    """The share of each pixel in the mean of each window. [windows, side]"""
    shares = np.zeros((windows, side))
    for i, (begin, end) in enumerate(_bounds(windows, side)):
        shares[i, begin:end] = 1 / (end - begin)
    return shares


def _bounds(windows: int, side: int) -> list[tuple[int, int]]:
    """Where each of some windows begins and ends."""
    return [(i * side // windows, -(-(i + 1) * side // windows)) for i in range(windows)]


# Normalisation.


def _layout(x: Any) -> tuple[Any, int]:
    """The numbers of an image or array, and the axis of its channels."""
    return (x.pixels, 3) if isinstance(x, Image) else (x, 1)


def _along(values: Array, axis: int, axes: int) -> Array:
    """Values of channels, shaped to broadcast."""
    return values.reshape(*(-1 if i == axis else 1 for i in range(axes)))


def _normalised(x: Any, mean: Array, variance: Array, epsilon: float, *affine: Any) -> Any:
    """(x - mean) / deviation for each channel, times the weight, plus the bias."""
    values, axis = _layout(x)
    weight, bias = affine
    scale = lax.rsqrt(variance + epsilon)
    scale = scale if weight is None else scale * weight
    # First the mean: scaled values of a narrow batch would lose their digits in the difference.
    away = values - _along(mean, axis, values.ndim)
    out = away * _along(scale, axis, values.ndim)
    out = out if bias is None else out + _along(bias, axis, values.ndim)
    return Image(out) if isinstance(x, Image) else out


def batch_norm_in_evaluation(
    x: Any, weight: Any, bias: Any, mean: Array, variance: Array, *rest: Any
) -> tuple[Any, None, None]:
    """Batch norm with running statistics; `rest` is momentum and epsilon."""
    return _normalised(x, mean, variance, rest[1], weight, bias), None, None


def batch_norm_in_training(
    step: StepSettings, x: Any, weight: Any, bias: Any, mean: Any, *rest: Any
) -> tuple[Any, ...]:
    """Batch norm with the statistics of the batch, without its padding; `rest` is the running
    variance, whether it trains, momentum and epsilon. Also returns the statistics and the new
    running mean and variance.
    """
    variance, training, momentum, epsilon = rest
    if not training:
        out = _normalised(x, mean, variance, epsilon, weight, bias)
        return out, None, None, mean, variance
    own, square, count = _statistics(step, x)
    out = _normalised(x, own, square, epsilon, weight, bias)
    # PyTorch refuses a batch with one value per channel; its unbiased variance would be 0 / 0.
    unbiased = square * (count / jnp.maximum(count - 1, 1))
    running = [
        None if old is None else (1 - momentum) * old + momentum * new
        for old, new in ((mean, own), (variance, unbiased))
    ]
    return out, own, square, *running


def batch_norm_without_statistics(
    step: StepSettings, x: Any, weight: Any, bias: Any, training: bool, *rest: Any
) -> tuple[Any, ...]:
    """Batch norm that keeps no running statistics; `rest` is momentum and epsilon."""
    own, square, _ = _statistics(step, x)
    return _normalised(x, own, square, rest[1], weight, bias), own, square


def _statistics(step: StepSettings, x: Any) -> tuple[Array, Array, Array]:
    """Mean and variance of each channel over the rows that are not padding, and the number of
    values.
    """
    values, axis = _layout(x)
    others = tuple(i for i in range(values.ndim) if i != axis)
    size = np.prod([values.shape[i] for i in others[1:]], dtype=float)
    if step.mask is None or values.shape[0] == 1:  # one row: instance norm, which is reshaped so
        mask = jnp.ones(values.shape[0], values.dtype)
    elif step.mask.shape[0] == values.shape[0]:
        mask = step.mask.astype(values.dtype)
    else:
        raise NotImplementedError(
            f"Batch norm gets {values.shape[0]} rows for a batch of {step.mask.shape[0]}, so that"
            " padding cannot be left out. Keep the rows of the batch on the first axis, or use"
            " LayerNorm or GroupNorm."
        )
    count = jnp.maximum(mask.sum(), 1) * size
    rows = _along(mask, 0, values.ndim)
    mean = (values * rows).sum(others) / count
    away = (values - _along(mean, axis, values.ndim)) * rows
    return mean, (away * away).sum(others) / count, count


def group_norm_of(
    x: Any, groups: int, weight: Any = None, bias: Any = None, epsilon: float = 1e-5, *_: Any
) -> Any:
    """Standardise each row within groups of neighbouring channels."""
    values, axis = _layout(x)
    n, channels = values.shape[0], values.shape[axis]
    others = tuple(i for i in range(1, values.ndim) if i != axis)
    size = np.prod([values.shape[i] for i in others], dtype=float) * (channels // groups)

    def mean(numbers: Array) -> Array:  # of each group, for each of its channels
        sums = numbers.sum(others, keepdims=False).reshape(n, groups, -1).sum(-1) / size
        spread = jnp.broadcast_to(sums[:, :, None], (n, groups, channels // groups))
        return spread.reshape(n, *(channels if i == axis else 1 for i in range(1, values.ndim)))

    away = values - mean(values)
    out = away * lax.rsqrt(mean(away * away) + epsilon)
    out = out if weight is None else out * _along(weight, axis, values.ndim)
    out = out if bias is None else out + _along(bias, axis, values.ndim)
    return Image(out) if isinstance(x, Image) else out


def native_group_norm(
    x: Any, weight: Any, bias: Any, n: int, channels: int, *rest: Any
) -> tuple[Any, None, None]:
    """The same with PyTorch's other parameters; `rest` is the size of an image, the number of
    groups, and epsilon.
    """
    return group_norm_of(x, rest[1], weight, bias, rest[2]), None, None


# Resizing.


def upsample_nearest(x: Any, size: Any, scales: Any = None) -> Image:
    """Each pixel of the output is the nearest of the input."""

    def shares(side: int, wanted: int, scale: float) -> np.ndarray:
        places = np.minimum(np.floor(np.arange(wanted) * scale).astype(int), side - 1)
        return places[:, None] == np.arange(side)

    return _resized(x, size, scales, shares)


def upsample_bilinear(x: Any, size: Any, align_corners: bool, scales: Any = None) -> Image:
    """Each pixel of the output is a mean of the nearest four of the input."""

    def shares(side: int, wanted: int, scale: float) -> np.ndarray:
        if align_corners:
            places = np.arange(wanted) * ((side - 1) / max(wanted - 1, 1))
        else:
            places = np.maximum((np.arange(wanted) + 0.5) * scale - 0.5, 0)
        below = np.minimum(np.floor(places).astype(int), side - 1)
        above, part = np.minimum(below + 1, side - 1), (places - below)[:, None]
        return (below[:, None] == np.arange(side)) * (1 - part) + (
            above[:, None] == np.arange(side)
        ) * part

    return _resized(x, size, scales, shares)


def _resized(x: Any, size: Any, scales: Any, shares: Callable[..., np.ndarray]) -> Image:
    """Images of another size, with the share of each pixel in each new one along both axes. These
    are products: the gradient of a look-up would be scattered.
    """
    pixels = as_image(x).pixels
    for axis in (0, 1):
        side = pixels.shape[axis + 1]
        wanted = int(side * scales[axis]) if size is None else size[axis]
        # PyTorch takes the given factor, not the quotient of the sizes
        scale = 1 / scales[axis] if scales else side / wanted
        matrix = jnp.asarray(shares(side, wanted, scale), pixels.dtype)
        product = jnp.tensordot(matrix, pixels, (1, axis + 1), precision="highest")
        pixels = jnp.moveaxis(product, 0, axis + 1)
    return Image(pixels)

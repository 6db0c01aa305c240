"""Arithmetic of PyTorch's operations in JAX: products, attention, reductions, normalisation and
losses.

The functions take the parameters of PyTorch's operations, in the same order and with the same
names. Where the gradient of a corner case is a choice (ties of a maximum, the bounds of a clamp),
it is PyTorch's choice.
"""

from collections.abc import Callable, Sequence
from math import prod, sqrt
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from evenly.models.layers import dense
from evenly.torch_models.operands import Image, Operation, StepSettings, dtype_of
from evenly.types import Array

MOST_HOT = 512  # rows of an embedding that are looked up with a product


# Numbers.


def _axes(dim: Any) -> Any:
    """Axes of a reduction: PyTorch's empty list means all."""
    if dim is None or isinstance(dim, int):
        return dim
    return tuple(dim) or None


def scaled_term(function: Callable[..., Any]) -> Callable[..., Any]:
    """Sums and differences whose second term has a factor `alpha`."""
    return lambda a, b, alpha=1: function(a, b if alpha == 1 else b * alpha)


def divide(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return jnp.true_divide(a, b)
    quotient = jnp.floor_divide(a, b) if rounding_mode == "floor" else jnp.trunc(a / b)
    return quotient.astype(jnp.result_type(a, b))


def absolute(x: Array) -> Array:
    """The absolute value. Its gradient at 0 is 0, as in PyTorch, not 1."""
    return x * jnp.sign(x) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.abs(x)


def power(a: Any, b: Any) -> Any:
    whole = isinstance(b, float) and b.is_integer()
    return a ** (int(b) if whole else b)


def clamp(x: Array, min: Any = None, max: Any = None) -> Array:
    x = x if min is None else jnp.where(x < min, min, x)
    return x if max is None else jnp.where(x > max, max, x)


def hardtanh(x: Array, min_val: float = -1.0, max_val: float = 1.0) -> Array:
    return jnp.where(x <= min_val, min_val, jnp.where(x >= max_val, max_val, x)).astype(x.dtype)


def elu(x: Array, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Array:
    below = jnp.expm1(jnp.where(x > 0, 0, x * input_scale))
    return jnp.where(x > 0, x * scale, below * alpha * scale)


def softplus(x: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    return jnp.where(x * beta > threshold, x, jax.nn.softplus(x * beta) / beta)


def gelu(x: Array, approximate: str = "none") -> Array:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


def convert(x: Any, dtype: str | None = None, **_: Any) -> Array:
    return jnp.asarray(x) if dtype is None else jnp.asarray(x).astype(dtype_of(dtype))


# Products.


def dense_layer(x: Array, weight: Array, bias: Array | None = None, *, last: bool = False) -> Array:
    """x times weight [in, out], plus the bias. `last`: the network's outputs."""
    layer = {"w": weight} if bias is None else {"w": weight, "b": bias}
    rows = x.reshape(prod(x.shape[:-1]), x.shape[-1])
    return dense(rows, layer, last=last).reshape(*x.shape[:-1], weight.shape[1])


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    return dense_layer(x, weight.T, bias, last=True)


def addmm(bias: Array, a: Array, b: Array, beta: Any = 1, alpha: Any = 1) -> Array:
    product = a @ b
    return (bias if beta == 1 else bias * beta) + (product if alpha == 1 else product * alpha)


def embedding(
    weight: Array, places: Array, padding_idx: int = -1, by_frequency: bool = False, *_: Any
) -> Array:
    if by_frequency:
        raise NotImplementedError("Use Embedding with scale_grad_by_freq=False.")
    places = places.astype(jnp.int32)
    if weight.shape[0] <= MOST_HOT:
        # A product instead of a look-up: the gradient of a look-up adds in no fixed order.
        out = jax.nn.one_hot(places, weight.shape[0], dtype=weight.dtype) @ weight
    else:
        out = jnp.take(weight, places, axis=0, mode="clip")
    if padding_idx < 0:
        return out
    return jnp.where((places == padding_idx)[..., None], lax.stop_gradient(out), out)


def embedding_bag(
    weight: Array, places: Array, offsets: Array, *rest: Any
) -> tuple[Array, None, None, None]:
    """Sums or means of embeddings; a bag begins at each offset. `rest` is whether gradients count
    how often a word occurs, the mode, whether gradients are sparse, the weights of places, whether
    the last offset ends the last bag, and the place of padding.
    """
    by_frequency, mode, _, weights, ended, padding = (
        *rest, *(False, 0, False, None, False, -1)[len(rest) :]
    )  # fmt: skip
    if mode == 2 or by_frequency:
        raise NotImplementedError("Use EmbeddingBag with mode='sum' or mode='mean'.")
    bag = jnp.searchsorted(offsets, jnp.arange(places.shape[0]), side="right") - 1
    shares = jax.nn.one_hot(bag, offsets.shape[0] - bool(ended), dtype=weight.dtype, axis=0)
    shares = shares * (places != padding) * (1 if weights is None else weights)
    if mode == 1:
        shares = shares / jnp.maximum(shares.sum(1, keepdims=True), 1)
    return shares @ embedding(weight, places), None, None, None


def trilinear(a: Array, b: Array, c: Array, *rest: Any) -> Array:
    """The sum of products of three arrays with new axes; `rest` is the new axes of each, and the
    axes that are summed.
    """
    parts = [jnp.expand_dims(x, tuple(axes)) for x, axes in zip((a, b, c), rest, strict=False)]
    return (parts[0] * parts[1] * parts[2]).sum(tuple(rest[3]))


def distances(a: Array, b: Array, p: float = 2.0, *_: Any) -> Array:
    return vector_norm(a[..., :, None, :] - b[..., None, :, :], p, -1)


def attention(
    step: StepSettings, query: Array, key: Array, value: Array, attn_mask: Any = None, *rest: Any,
    scale: float | None = None, enable_gqa: bool = False,
) -> Array:  # fmt: skip
    """Attention; `rest` is the probability of dropout, and whether later places are hidden."""
    dropout, causal = (*rest, *(0.0, False)[len(rest) :])
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = (jnp.repeat(part, times, axis=-3) for part in (key, value))
    scores = query @ jnp.swapaxes(key, -1, -2) * (scale or 1 / sqrt(query.shape[-1]))
    if causal:
        attn_mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    if attn_mask is not None and attn_mask.dtype == bool:
        scores = jnp.where(attn_mask, scores, -jnp.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    if attn_mask is None:
        shares = jax.nn.softmax(scores, axis=-1)
    else:  # where all places are hidden, shares are 0, as in PyTorch
        hidden = (scores == -jnp.inf).all(-1, keepdims=True)
        shares = jax.nn.softmax(jnp.where(hidden, 0, scores), axis=-1)
        shares = jnp.where(hidden, 0, shares)
    if dropout:
        kept = step.random.keep(1 - dropout, shares.shape)
        shares = jnp.where(kept, shares / (1 - dropout), 0)
    return shares @ value


# Sums and other reductions.


def reduction(function: Callable[..., Any]) -> Operation:
    """A reduction over axes. Means and sums over the pixels of an image need no transposing."""

    def apply(x: Any, dim: Any = None, keepdim: bool = False, dtype: str | None = None) -> Any:
        axes = _axes(dim)
        if isinstance(x, Image):
            each = axes if isinstance(axes, tuple) else ()
            if sorted(axis % 4 for axis in each) == [2, 3]:
                pixels = function(x.pixels, axis=(1, 2), keepdims=keepdim)
                return Image(pixels) if keepdim else pixels
            x = x.first()
        x = x if dtype is None else x.astype(dtype_of(dtype))
        return function(x, axis=axes, keepdims=keepdim)

    return Operation(apply, images=True)


def variance(x: Array, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Array:
    return jnp.var(x, axis=_axes(dim), ddof=1 if correction is None else correction,
                   keepdims=keepdim)  # fmt: skip


def deviation(x: Array, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Array:
    return jnp.sqrt(variance(x, dim, correction, keepdim))


def variance_and_mean(
    x: Array, dim: Any = None, correction: Any = 1, keepdim: bool = False
) -> tuple[Array, Array]:
    return variance(x, dim, correction, keepdim), x.mean(_axes(dim), keepdims=keepdim)


def vector_norm(
    x: Array, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Array:
    sizes, axes = absolute(x if dtype is None else x.astype(dtype_of(dtype))), _axes(dim)
    if ord == jnp.inf:
        return sizes.max(axes, keepdims=keepdim)
    total = (sizes**ord).sum(axes, keepdims=keepdim)
    # PyTorch's gradient of a vector of zeros is zero, not 0 / 0.
    return jnp.where(total == 0, 0, jnp.where(total == 0, 1, total) ** (1 / ord))


def with_place(choose: Callable[..., Array]) -> Callable[..., tuple[Array, Array]]:
    """The largest or smallest along an axis with its place, which gets all of the gradient."""

    def apply(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
        place = choose(x, axis=dim, keepdims=True)
        value = jnp.take_along_axis(x, place, axis=dim)
        return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))

    return apply


def place_of(choose: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, dim=None, keepdim=False: choose(x, axis=dim, keepdims=keepdim)


def topk(x: Array, k: int, dim: int = -1, largest: bool = True, *_: Any) -> tuple[Array, Array]:
    moved = jnp.moveaxis(x, dim, -1)
    places = lax.top_k(lax.stop_gradient(moved if largest else -moved), k)[1]
    values = jnp.take_along_axis(moved, places, axis=-1)
    return jnp.moveaxis(values, -1, dim), jnp.moveaxis(places, -1, dim)


def sort(x: Array, dim: int = -1, descending: bool = False, **_: Any) -> tuple[Array, Array]:
    places = jnp.argsort(lax.stop_gradient(x), axis=dim, descending=descending)
    return jnp.take_along_axis(x, places, axis=dim), places


def along_axis(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, dim, *_: function(x, axis=dim)


def layer_norm(
    x: Array, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Array:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    away = x - x.mean(axes, keepdims=True)
    out = away * lax.rsqrt((away * away).mean(axes, keepdims=True) + eps)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def negative_likelihood(
    x: Array, target: Array, weight: Any = None, reduction: int = 1, ignore_index: int = -100
) -> tuple[Array, Array]:
    """Weighted negative log-likelihoods: of each row (0), their mean (1) or their sum (2)."""
    counted = target != ignore_index
    place = jnp.where(counted, target, 0).astype(jnp.int32)
    picked = jnp.take_along_axis(x, jnp.expand_dims(place, 1 if x.ndim > 1 else 0), axis=-1)
    factor = counted.astype(x.dtype) * (1 if weight is None else weight[place])
    each = -picked.reshape(factor.shape) * factor
    total = factor.sum()
    return (each, each.sum() / total, each.sum())[reduction], total

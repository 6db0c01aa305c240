"""Shapes, indices, new arrays and random numbers of PyTorch's operations in JAX.

The functions take the parameters of PyTorch's operations, in the same order and with the same
names.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from evenly.torch_models.operands import Image, StepSettings, dtype_of
from evenly.types import Array

# Shapes.


def permute(x: Any, dims: Sequence[int]) -> Any:
    order = tuple(axis % len(x.shape) for axis in dims)
    if isinstance(x, Image):
        return x.pixels if order == (0, 2, 3, 1) else jnp.transpose(x.first(), order)
    return Image(x) if order == (0, 3, 1, 2) else jnp.transpose(x, order)


def view(x: Any, *size: Any) -> Any:
    sizes = size[0] if isinstance(size[0], list | tuple) else size
    if isinstance(x, Image):
        n, channels, high, wide = x.shape
        x = x.pixels.reshape(n, channels, 1, 1) if high == wide == 1 else x.first()
    return x.reshape(tuple(sizes))


def expand(x: Array, size: Sequence[int], **_: Any) -> Array:
    own = (1,) * (len(size) - x.ndim) + x.shape
    return jnp.broadcast_to(x, tuple(b if a == -1 else a for a, b in zip(size, own, strict=True)))


def squeeze(x: Array, dim: Any = None) -> Array:
    axes = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return x.squeeze(tuple(axis for axis in axes if x.shape[axis] == 1))


def concatenate(tensors: Sequence[Any], dim: int = 0) -> Any:
    if all(isinstance(part, Image) for part in tensors) and dim % 4 == 1:
        return Image(jnp.concatenate([part.pixels for part in tensors], axis=3))
    parts = [part.first() if isinstance(part, Image) else part for part in tensors]
    return jnp.concatenate([part for part in parts if part.shape != (0,)], axis=dim)


def slice_of(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    part = slice(start, end, step)
    if isinstance(x, Image):
        at = (0, 3, 1, 2)[dim]
        return Image(x.pixels[tuple(part if i == at else slice(None) for i in range(4))])
    return x[tuple(part if i == dim % x.ndim else slice(None) for i in range(x.ndim))]


def split(x: Array, size: Any, dim: int = 0) -> list[Array]:
    length = x.shape[dim]
    sizes = size if isinstance(size, list | tuple) else [size] * -(-length // size)
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
    return jnp.split(x, ends, axis=dim)


def unbind(x: Array, dim: int = 0) -> list[Array]:
    return [lax.index_in_dim(x, i, dim, keepdims=False) for i in range(x.shape[dim])]


def pad_constant(x: Any, pad: Sequence[int], value: float = 0.0) -> Any:
    image, x = isinstance(x, Image), x.first() if isinstance(x, Image) else x
    sides = [(0, 0)] * (x.ndim - len(pad) // 2)
    sides += [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    kept = tuple(
        slice(max(0, -a), side - max(0, -b)) for side, (a, b) in zip(x.shape, sides, strict=True)
    )
    grown = [(max(0, a), max(0, b)) for a, b in sides]
    return (
        jnp.pad(x[kept], grown, constant_values=value)
        if not image
        else Image(jnp.transpose(jnp.pad(x[kept], grown, constant_values=value), (0, 2, 3, 1)))
    )


def at_indices(x: Array, indices: Sequence[Any]) -> Array:
    if any(place is not None and place.dtype == bool for place in indices):
        raise NotImplementedError(
            "The number of values that a mask selects must be known. Use torch.where(mask, x, 0),"
            " which keeps all of them."
        )
    return x[tuple(slice(None) if place is None else place for place in indices)]


def put_at_indices(
    x: Array, indices: Sequence[Any], values: Any, accumulate: bool = False
) -> Array:
    at = x.at[tuple(slice(None) if place is None else place for place in indices)]
    return at.add(values) if accumulate else at.set(values)


def gather(x: Array, dim: int, index: Array, *_: Any, **__: Any) -> Array:
    own = tuple(
        slice(None) if axis == dim % x.ndim else slice(0, side)
        for axis, side in enumerate(index.shape)
    )
    return jnp.take_along_axis(x[own], index.astype(jnp.int32), axis=dim)


def _at_axis(x: Array, dim: int, index: Array) -> Any:
    """The places of x that `index` names along an axis, and its own places along the others."""
    places = list(jnp.indices(index.shape, sparse=True))
    places[dim % x.ndim] = index.astype(jnp.int32)
    return x.at[tuple(places)]


def scatter(x: Array, dim: int, index: Array, source: Any) -> Array:
    return _at_axis(x, dim, index).set(_as_large(source, index))


def scatter_add(x: Array, dim: int, index: Array, source: Array) -> Array:
    return _at_axis(x, dim, index).add(_as_large(source, index))


def _as_large(source: Any, index: Array) -> Any:
    return source[tuple(map(slice, index.shape))] if hasattr(source, "shape") else source


def select_scatter(x: Array, source: Array, dim: int, index: int) -> Array:
    return jnp.moveaxis(jnp.moveaxis(x, dim, 0).at[index].set(source), 0, dim)


def slice_scatter(x: Array, source: Array, dim: int = 0, *bounds: Any) -> Array:
    """x with other values from a start to an end in steps, which are `bounds`."""
    part = slice(*(*bounds, None, None, None)[:3])
    return jnp.moveaxis(jnp.moveaxis(x, dim, 0).at[part].set(jnp.moveaxis(source, dim, 0)), 0, dim)


def full(size: Sequence[int], fill_value: Any, dtype: str | None = None, **_: Any) -> Array:
    return jnp.full(tuple(size), fill_value, dtype_of(dtype))


def full_like(x: Any, fill_value: Any = 0, dtype: str | None = None, **_: Any) -> Array:
    return jnp.full(x.shape, fill_value, dtype_of(dtype, getattr(x, "pixels", x)))


def new_full(
    x: Any, size: Sequence[int], fill: Any = 0, dtype: str | None = None, **_: Any
) -> Array:
    return jnp.full(tuple(size), fill, dtype_of(dtype, getattr(x, "pixels", x)))


def arange(*bounds: Any, dtype: str | None = None, **_: Any) -> Array:
    return jnp.arange(*bounds, dtype=dtype_of(dtype))


# Random numbers.


def dropout(step: StepSettings, x: Any, p: float, train: bool | None = True) -> Any:
    if not train or p == 0:
        return x
    values = x.pixels if isinstance(x, Image) else x
    kept = step.random.keep(1 - p, values.shape)
    out = jnp.where(kept, values / (1 - p), 0) if p < 1 else jnp.zeros_like(values)
    return Image(out) if isinstance(x, Image) else out


def bernoulli(step: StepSettings, x: Array, p: float | None = None, **_: Any) -> Array:
    if p is None:
        return (step.random.uniform(x.shape, x.dtype) < x).astype(x.dtype)
    return step.random.keep(p, x.shape).astype(x.dtype)


def uniform(step: StepSettings, size: Any, dtype: str | None = None, **_: Any) -> Array:
    shape = tuple(size) if isinstance(size, list | tuple) else size.shape
    return step.random.uniform(shape, dtype_of(dtype, getattr(size, "pixels", None)) or float)


def normal(step: StepSettings, size: Any, dtype: str | None = None, **_: Any) -> Array:
    shape = tuple(size) if isinstance(size, list | tuple) else size.shape
    return step.random.normal(shape, dtype_of(dtype, getattr(size, "pixels", None)) or float)

"""What operations work on: arrays, images whose channels lie last, and the step that they are part
of.

PyTorch's images are [n, channels, height, width]. The convolutions of `evenly.models.layers` are
fast on [n, height, width, channels]. An `Image` is stored in this order and stands for the other,
so that images between two convolutions are not transposed. Operations that do not know images get
an array in PyTorch's order.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from evenly.types import Array


class Image(NamedTuple):
    """Images whose channels lie last."""

    pixels: Array  # [n, height, width, channels]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in PyTorch's order."""
        n, height, width, channels = self.pixels.shape
        return n, channels, height, width

    def first(self) -> Array:
        """The same in PyTorch's order: [n, channels, height, width]."""
        return jnp.transpose(self.pixels, (0, 3, 1, 2))


def channels_first(value: Any) -> Any:
    """Images in PyTorch's order; other values as they are."""
    return value.first() if isinstance(value, Image) else value


def as_image(value: Any) -> Image:
    """An image, or an array [n, channels, height, width] as one."""
    return value if isinstance(value, Image) else Image(jnp.transpose(value, (0, 2, 3, 1)))


class StepDraws:
    """Random numbers of one step. Each call folds the number of the calls before it into the key of
    the step, so that no two operations share their numbers.
    """

    def __init__(self, key: Any) -> None:
        self._key, self._calls = key, 0

    def keep(self, probability: float, shape: tuple[int, ...]) -> Array:
        """True with a probability, independently in each place."""
        return jax.random.bernoulli(self._next(), probability, shape)

    def uniform(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Numbers from 0 to 1."""
        return jax.random.uniform(self._next(), shape, dtype)

    def normal(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Numbers of mean 0 and variance 1."""
        return jax.random.normal(self._next(), shape, dtype)

    def _next(self) -> Any:
        self._calls += 1
        return jax.random.fold_in(self._key, self._calls - 1)


class StepSettings(NamedTuple):
    """The step that an operation is part of."""

    mask: Array | None = None  # [n] 1 for rows, 0 for padding
    draws: StepDraws | None = None
    direct: bool = False  # whether to use the device's own convolution

    @property
    def random(self) -> StepDraws:
        """The source of random numbers."""
        if self.draws is None:
            raise ValueError("There are no random numbers outside of training.")
        return self.draws


class Operation(NamedTuple):
    """The translation of an operation: a function with the parameters of PyTorch's."""

    function: Callable[..., Any]
    images: bool = False  # whether it takes images
    step: bool = False  # whether its first argument is the step


def elementwise(function: Callable[..., Any]) -> Operation:
    """An operation on arrays that broadcast. If one of them is an image, so is the result."""

    def apply(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        if not any(isinstance(value, Image) for value in given):
            return function(*args, **kwargs)
        pixels = function(*map(_last, args), **{key: _last(v) for key, v in kwargs.items()})
        return Image(pixels)

    return Operation(apply, images=True)


def _last(value: Any) -> Any:
    """An operand of an image, with the channels last."""
    if isinstance(value, Image):
        return value.pixels
    if not hasattr(value, "ndim") or value.ndim == 0:
        return value
    if value.ndim > 4:
        raise NotImplementedError(
            f"An image meets an array with {value.ndim} axes. Reshape it to at most four axes"
            " [n, channels, height, width]."
        )
    return jnp.transpose(value.reshape((1,) * (4 - value.ndim) + value.shape), (0, 2, 3, 1))


def dtype_of(name: str | None, x: Any = None) -> Any:
    """A type by PyTorch's name, or that of an array; 64 bits only where JAX has them enabled."""
    if name is None:
        return None if x is None else x.dtype
    return jax.dtypes.canonicalize_dtype(name)

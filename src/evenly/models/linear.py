"""Products, losses and checks shared by models, written so that parameters may carry a trailing run axis."""

from math import prod

import jax
import jax.numpy as jnp

from evenly.records import require

Array = jax.Array


def flat(x: Array) -> Array:
    """Examples as rows of numbers: [n, ...] -> [n, d]."""
    return x.reshape(x.shape[0], prod(x.shape[1:]))


def product(x: Array, w: Array) -> Array:
    """x [n, d] times w [d, ...] as one matrix product, whatever axes (classes, runs) follow d."""
    return (flat(x) @ w.reshape(w.shape[0], -1)).reshape(x.shape[0], *w.shape[1:])


def over_runs(values: Array, like: Array) -> Array:
    """Give `values` the trailing axes of `like`, so that the two broadcast."""
    return values.reshape(values.shape + (1,) * (like.ndim - values.ndim))


def cross_entropy(logits: Array, y: Array) -> Array:
    """-log softmax(logits)[y], classes on axis 1. [n, classes, ...] -> [n, ...]"""
    # The true logit is picked by a product with a one-hot: on CPUs a gather costs more than the whole product.
    hot = over_runs(jnp.arange(logits.shape[1]) == y[:, None], logits)
    shifted = logits - jax.lax.stop_gradient(logits.max(1, keepdims=True))
    return jnp.log(jnp.exp(shifted).sum(1)) - jnp.where(hot, shifted, 0.0).sum(1)


def check_sizes(model: str, reduction: str, **sizes: tuple[int, int]) -> None:
    """Raise unless the reduction is known and every size, given as (value, least), is a whole number that is large enough."""
    require(reduction in ("mean", "sum"), f"{model}: reduction must be 'mean' or 'sum', got {reduction!r}.")
    for name, (value, least) in sizes.items():
        require(isinstance(value, int) and value >= least, f"{model}: {name} must be a whole number of at least {least}, got {value!r}.")

"""Products and losses shared by linear models, written so that parameters may carry a trailing run axis."""

import jax
import jax.numpy as jnp

Array = jax.Array


def product(x: Array, w: Array) -> Array:
    """x [n, d] times w [d, ...] as one matrix product, whatever axes (classes, runs) follow d."""
    return (x @ w.reshape(w.shape[0], -1)).reshape(x.shape[0], *w.shape[1:])


def over_runs(values: Array, like: Array) -> Array:
    """Give `values` the trailing axes of `like`, so that the two broadcast."""
    return values.reshape(values.shape + (1,) * (like.ndim - values.ndim))


def cross_entropy(logits: Array, y: Array) -> Array:
    """-log softmax(logits)[y], classes on axis 1. [n, classes, ...] -> [n, ...]"""
    # The true logit is picked by a product with a one-hot: on CPUs a gather costs more than the whole product.
    hot = over_runs(jnp.arange(logits.shape[1]) == y[:, None], logits)
    shifted = logits - jax.lax.stop_gradient(logits.max(1, keepdims=True))
    return jnp.log(jnp.exp(shifted).sum(1)) - jnp.where(hot, shifted, 0.0).sum(1)

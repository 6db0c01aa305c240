"""Turning raw importances into coefficients over the clients that returned."""

import jax
import jax.numpy as jnp

Array = jax.Array


def shares(raw: Array, returned: Array) -> Array:
    """raw / sum(raw) over those who returned; zeros when nobody did, NaN when an importance is NaN. [K]"""
    kept = jnp.where(returned, raw, 0.0)
    total = kept.sum()
    return kept / jnp.where(total == 0, 1.0, total)


def softmax_shares(score: Array, returned: Array) -> Array:
    """exp(score) / sum(exp(score)) over those who returned, shifted so that nothing overflows. [K]"""
    top = jnp.max(jnp.where(returned, score, -jnp.inf), initial=-jnp.inf)
    shifted = jnp.where(returned, score - jnp.where(jnp.isfinite(top), top, 0.0), 0.0)
    return shares(jnp.exp(shifted), returned)

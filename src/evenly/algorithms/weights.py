"""Coefficients that sum to one: shares of clients, and projection onto the simplex. The setting
`weights` of many rules.
"""

from typing import Any

import jax
import jax.numpy as jnp

from evenly.records import static

Array = jax.Array

WEIGHTS = ("size", "equal")
MULTIPLIES = "'size' multiplies coefficients by n_k, 'equal' does not"


def weights_setting(
    meaning: str = "coefficients: 'size' (in proportion to training rows) or 'equal'",
) -> Any:
    """Declare the field `weights` of a rule that counts training rows unless clients are sampled by
    size (`Rule.counts_sizes`).
    """
    default = "by default 'equal' if clients are sampled by size, else 'size'"
    return static(default="size", choices=WEIGHTS, doc=f"{meaning}; {default}")


# Turning raw importances into coefficients over the clients that returned.


def shares(raw: Array, returned: Array) -> Array:
    """raw / sum(raw) over the clients that returned; zeros if none did, NaN if a raw value is NaN.
    [K]
    """
    kept = jnp.where(returned, raw, 0.0)
    total = kept.sum()
    return kept / jnp.where(total == 0, 1.0, total)


# Euclidean projection onto a simplex.
#
# The public q-FFL code sums one element too few when it chooses the threshold, so that its weights
# can sum to more than 1 (in 65 % of random steps with 23 clients). This is the correct rule (Duchi
# et al., ICML 2008).


def project(y: Array, mask: Array, mass: Array | float = 1.0) -> Array:
    """The nearest x >= 0 with sum `mass` and x = 0 outside `mask`; zeros where the mask is empty.
    [K]
    """
    inside = jnp.where(mask, y, -jnp.inf)
    descending = jnp.sort(inside)[::-1]
    inside_mask = jnp.isfinite(descending)
    j = jnp.arange(1, descending.shape[0] + 1)
    threshold = (mass - jnp.cumsum(jnp.where(inside_mask, descending, 0.0))) / j
    positive = inside_mask & (descending + threshold > 0)
    last = jnp.max(jnp.where(positive, j, 0), initial=0)  # rho
    tau = jnp.where(last > 0, threshold[jnp.maximum(last - 1, 0)], 0.0)
    return jnp.where(mask & (last > 0), jnp.maximum(y + tau, 0.0), 0.0)

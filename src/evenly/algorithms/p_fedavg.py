"""p-FedAvg: weights that depend only on the order of the clients' losses.

Iacob, "Relative Fair Federated Learning" (p-FFL). With the c clients that returned sorted by the
loss of the received model, w+ = sum_i p_i w_(i), where the largest loss always gets the largest
weight:

    gini        p_i proportional to 2i - 1           losses ascending (arithmetic with 1 and 2)
    arithmetic  p_i proportional to first + (i-1) d  losses ascending
    harmonic    p_i proportional to 1 + ... + 1/i    losses ascending
    geometric   p_i proportional to z^(i-1)          losses descending, 0 < z <= 1

Departures. The paper's geometric formula sums to z, not 1: the exponent starts at 0 here. It does
not say in which order the harmonic weights go; the code's ascending is taken. Clients with equal
losses share the mean of their weights, so that the order of the clients never matters; with `ties =
order` the one that stands later in the cohort counts as the one with the larger loss. Losses are
equal if they differ by at most 1e-5 of the larger, about 84 steps of single precision: at a model
that starts at zero all losses are equal but for rounding, and rounding depends on the order of rows
and on the device. Equality is passed on from neighbour to neighbour in the order of losses. Sizes
are equal only if they are the same number. The public code passes sizes where losses are expected,
so with sampling by size it ordered clients *by their number of rows*: `sort_key = n` does the same.
"""

import jax
import jax.numpy as jnp

from evenly.algorithms.method import Method
from evenly.algorithms.weights import WEIGHTS, shares
from evenly.records import leaf, record, static
from evenly.types import Array, Rule, Signals, Tree

FAMILIES = ("gini", "arithmetic", "harmonic", "geometric")
EQUAL = 1e-5  # neighbouring losses that differ by at most this share of the larger are ties
SMALLEST_RATIO = 1e-30  # its logarithm is finite in single precision


@record
class PFedAvg(Rule):
    """Coefficients by the rank of the loss."""

    family: str = static(default="gini", choices=FAMILIES, doc=f"one of {', '.join(FAMILIES)}")
    first: float = leaf(
        default=1.0,
        above=0,
        doc="arithmetic: weight of the client with the smallest loss, before normalising",
    )
    difference: float = leaf(
        default=2.0, least=0, doc="arithmetic: how much each next client weighs more; 0 is FedAvg"
    )
    ratio: float = leaf(
        default=0.5,
        above=0,
        most=1,
        doc="geometric: z, how much each next-better client weighs less; 1 is FedAvg",
    )
    sort_key: str = static(
        default="loss",
        choices=("loss", "n"),
        doc="'loss', or 'n' to order by size as the author's code does",
    )
    weights: str = static(
        default="equal",
        choices=WEIGHTS,
        doc="'equal', or 'size' to multiply by n_k where clients are not sampled by size",
    )
    ties: str = static(
        default="share",
        choices=("share", "order"),
        doc="equal losses 'share' the mean of their weights, or go by their 'order' in the cohort",
    )

    @property
    def needs(self) -> frozenset[str]:
        sizes = {"examples"} if self.weights == "size" or self.sort_key == "n" else set()
        return frozenset(sizes | ({"loss"} if self.sort_key == "loss" else set()))

    def weigh(self, state: Tree, signals: Signals) -> tuple[Array, Tree]:
        key = signals.loss if self.sort_key == "loss" else signals.examples
        count = signals.returned.sum()
        # clients that did not return come last
        order = jnp.argsort(jnp.where(signals.returned, key, jnp.inf))
        ascending = self._by_rank(jnp.arange(key.shape[0]), count)
        block = equal_blocks(
            key[order], signals.returned[order], EQUAL if self.sort_key == "loss" else 0.0
        )
        if self.ties == "share":
            ascending = mean_of_blocks(ascending, block)
        else:
            # inside a block by slot, not by what rounding made of equal losses
            order = order[jnp.lexsort((order, block))]
        by_client = jnp.zeros(key.shape).at[order].set(ascending)
        sizes = signals.examples if self.weights == "size" else 1.0
        return shares(by_client * sizes, signals.returned), state

    def _by_rank(self, rank: Array, count: Array) -> Array:
        """Unnormalised weight of each rank, 0 for the smallest loss; ranks beyond the last client
        weigh nothing.
        """
        if self.family == "geometric":
            # exp(k log z) instead of z^k: exact at z = 1, and no trouble at a negative exponent of
            # padding.
            raw = jnp.exp(
                jnp.maximum(count - 1 - rank, 0) * jnp.log(jnp.maximum(self.ratio, SMALLEST_RATIO))
            )
        elif self.family == "harmonic":
            raw = jnp.cumsum(1.0 / (rank + 1.0))
        else:
            first, difference = (
                (1.0, 2.0) if self.family == "gini" else (self.first, self.difference)
            )
            raw = first + rank * difference
        return jnp.where(rank < count, raw, 0.0)


def equal_blocks(keys: Array, present: Array, tolerance: float) -> Array:
    """Number of the block of equal keys that each entry belongs to, from 0. Present clients come
    first, with ascending keys. [K]
    """
    apart = keys[1:] - keys[:-1] > tolerance * jnp.abs(keys[1:])
    # an absent client never joins the block of a present one
    starts = jnp.concatenate([jnp.ones(1, bool), apart | ~present[1:]])
    return jnp.cumsum(starts) - 1


def mean_of_blocks(values: Array, block: Array) -> Array:
    """Replace every value by the mean of its block. [K]"""
    total = jax.ops.segment_sum(values, block, values.shape[0])
    return (
        total / jnp.maximum(jax.ops.segment_sum(jnp.ones_like(values), block, values.shape[0]), 1.0)
    )[block]


METHOD = Method(
    name="p-fedavg",
    title="p-FedAvg",
    reference="Iacob, Relative Fair Federated Learning (p-FFL), University of Cambridge, undated",
    formula="w⁺ = Σ pᵢ w₍ᵢ₎, clients sorted by loss, p fixed (Gini, geometric, harmonic)",
    rule=PFedAvg,
)

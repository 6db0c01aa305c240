"""p-FedAvg: coefficients that depend only on the ranks of the clients' losses.

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

Ranks compare clients with each other, so that the server must see every loss. With `bins`, clients
sum a histogram of their losses instead, and those of a bin share the mean weight of its ranks: that
is the exact rule for losses that are rounded to bins.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma

from evenly.algorithms.method import Method
from evenly.algorithms.weights import WEIGHTS
from evenly.data.federation import Census
from evenly.records import leaf, record, require, static
from evenly.types import Array, Bounds, Limits, Own, Rule, Signals, Totals, Tree, Weighed

FAMILIES = ("gini", "arithmetic", "harmonic", "geometric")
EQUAL = 1e-5  # neighbouring losses that differ by at most this share of the larger are ties
SMALLEST_RATIO = 1e-30  # its logarithm is finite in single precision
SMALLEST_KEY = 1e-10
RANGES = {"loss": (-7.0, 5.0), "n": (0.0, 14.0)}  # of the logarithms, before the first round


@record
class PFedAvg(Rule):
    """Coefficients by the rank of the loss."""

    family: str = static(
        default="gini", choices=FAMILIES, doc=f"family of weights: {', '.join(FAMILIES)}"
    )
    first: float = leaf(
        default=1.0,
        above=0,
        doc="arithmetic family: weight of the client with the smallest loss, before normalisation",
    )
    difference: float = leaf(
        default=2.0,
        least=0,
        doc="arithmetic family: difference between the weights of neighbouring ranks; 0 is FedAvg",
    )
    ratio: float = leaf(
        default=0.5,
        above=0,
        most=1,
        doc="geometric family: ratio z between the weights of neighbouring ranks; 1 is FedAvg",
    )
    sort_key: str = static(
        default="loss",
        choices=("loss", "n"),
        doc="sort clients by 'loss', or by 'n' (number of training rows) as the author's code does",
    )
    weights: str = static(
        default="equal",
        choices=WEIGHTS,
        doc="'equal', or 'size' to multiply weights by n_k if clients are not sampled by size",
    )
    ties: str = static(
        default="share",
        choices=("share", "order"),
        doc=(
            "clients with equal losses 'share' the mean of their weights, or are sorted by"
            " their 'order' in the cohort"
        ),
    )

    bins: int = static(
        default=0,
        least=0,
        doc=(
            "0 uses exact ranks, which show every loss to the server; else the number of"
            " bins of a summed histogram"
        ),
    )

    def __post_init__(self) -> None:
        require(
            not self.bins or self.ties == "share",
            "clients in a bin share the mean of their weights; with bins, leave ties out.",
        )
        require(self.bins != 1, "bins must be 0 or at least 2, got 1.")

    @property
    def needs(self) -> frozenset[str]:
        sizes = {"examples"} if self.counts_sizes or self.sort_key == "n" else set()
        return frozenset(sizes | ({"loss"} if self.sort_key == "loss" else set()))

    @property
    def whole_cohort(self) -> str:
        return "" if self.bins else "exact ranks compare every client with every other; set bins"

    @property
    def stages(self) -> int:
        return 1 if self.bins else 0

    def begin(self, census: Census) -> Tree:
        """Logarithms of the inner edges of the bins, evenly spaced over all plausible values."""
        return jnp.linspace(*RANGES[self.sort_key], self.bins - 1) if self.bins else ()

    def contribute(self, public: Tree, own: Own, sums: tuple[Tree, ...]) -> Array:
        return (self._bin(public, own) == jnp.arange(self.bins)) * 1.0

    def weigh(self, public: Tree, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        histogram, at = jnp.maximum(sums[0], 0.0), self._bin(public, own)  # noise may be negative
        below = jnp.where(jnp.arange(self.bins) < at, histogram, 0.0).sum()
        inside, count = jnp.maximum(histogram[at], 1.0), histogram.sum()
        mean = (self._up_to(below + inside, count) - self._up_to(below, count)) / inside
        return Weighed(mean * self.size(own))

    def weigh_cohort(self, public: Tree, signals: Signals) -> Weighed:
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
        return Weighed(by_client * self.size(signals.own))

    def step(self, public: Tree, sums: tuple[Tree, ...], totals: Totals) -> tuple[Tree, Tree]:
        return totals.mean, self._next_edges(public, sums[0]) if self.bins else public

    def bounds(self, public: Tree, limits: Limits) -> Bounds:
        rank_mean = self._up_to(limits.cohort, limits.cohort) / limits.cohort
        size = limits.rows / limits.weight if self.counts_sizes else 1.0
        return Bounds(rank_mean * size, (1.0,))

    def _next_edges(self, edges: Array, histogram: Array) -> Array:
        """Edges for the next round: half of them evenly spaced, half at quantiles of this round."""
        half, histogram = (self.bins - 1) // 2, jnp.maximum(histogram, 0.0)
        even = jnp.linspace(*RANGES[self.sort_key], half + 2)[1:-1]
        reached = jnp.cumsum(histogram)[:-1] / jnp.maximum(histogram.sum(), 1.0)
        shares = jnp.linspace(0, 1, self.bins - half + 1)[1:-1]
        return jnp.sort(jnp.concatenate([even, jnp.interp(shares, reached, edges)]))

    def _bin(self, public: Tree, own: Own) -> Array:
        key = own.loss if self.sort_key == "loss" else own.examples
        return jnp.searchsorted(public, jnp.log(jnp.maximum(key, SMALLEST_KEY)), side="right")

    def _up_to(self, rank: Array, count: Array) -> Array:
        """Sum of the raw weights of all ranks below a rank, counted from 0."""
        if self.family == "geometric":
            log_z = jnp.log(jnp.maximum(self.ratio, SMALLEST_RATIO))
            flat = log_z == 0
            steps = jnp.expm1(rank * log_z) / jnp.where(flat, 1.0, jnp.expm1(log_z))
            return jnp.exp((count - rank) * log_z) * jnp.where(flat, rank, steps)
        if self.family == "harmonic":
            return (rank + 1) * (digamma(rank + 1) + jnp.euler_gamma) - rank
        first, difference = self._line()
        return first * rank + difference * rank * (rank - 1) / 2

    def _line(self) -> tuple[float, float]:
        return (1.0, 2.0) if self.family == "gini" else (self.first, self.difference)

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
            first, difference = self._line()
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
    bibtex="""
@misc{iacob-relative,
  author       = {Iacob, Alexandru-Andrei},
  title        = {Relative Fair Federated Learning},
  howpublished = {Report, University of Cambridge},
  year         = {n.d.},
  note         = {Undated; its newest reference is of July 2021}
}""",
    formula="w⁺ = Σ pᵢ w₍ᵢ₎, clients sorted by loss, p fixed (Gini, geometric, harmonic)",
    rule=PFedAvg,
)

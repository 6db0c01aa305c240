"""FedCvg-Ratio: clients with a larger share of the minority side get larger coefficients.

Gonfiantini, "Fairness-Aware Federated Learning", Master's thesis, University of Genoa, 2026. Over
the clients that returned, r = sum u / sum n is the share of unprivileged rows, r_k = u_k / n_k a
client's own:

    d_k = (r_k - r) / min(r, 1 - r),
    s_k = 1 + alpha d_k if r < 1/2, else 1 - alpha d_k, kept within [1/2, 2],
    z_k = n_k s_k / sum n s,    v_k <- memory v_k + (1 - memory) z_k,
    a_k = v_k / sum v,    w+ = sum a_k w_k.

So the side that is in the minority is favoured, whichever it is. Where one side is absent from the
round, d = 0.

Departures. The thesis both starts every v_k at n_k / n and lets a client's first z_k be its v_k;
our default is the latter (`start = first-seen`), for which, if everyone always takes part, z never
changes and `memory` has no effect at all. After the moving average the v_k of a round need not sum
to 1; the printed algorithm takes sum v_k w_k all the same (line 42), so the model shrinks or grows
by their sum. Our default divides by it. `renormalise = false` is the printed line; the server then
moves in its own way and takes no optimiser, and a round in which nobody counts keeps the model. The
thesis' text says that unprivileged people are favoured on COMPAS too; its formulas, and this code,
favour the minority, who are the others there.
"""

from typing import NamedTuple

import jax.numpy as jnp

from evenly.algorithms.fedavg import follow_sampling
from evenly.algorithms.method import Method
from evenly.algorithms.weights import MULTIPLIES, weights_setting
from evenly.data.federation import Census
from evenly.data.sides import sides
from evenly.parts.optimisers import Blend, BlendingServer
from evenly.parts.sampling import Full
from evenly.records import leaf, record, static
from evenly.types import Array, Bounds, Limits, Own, Rule, Totals, Tree, Weighed

LEAST, MOST = 0.5, 2.0  # what a client's size may be multiplied by


class Average(NamedTuple):
    """A client's memory: the moving average of its weight."""

    weight: Array
    known: Array  # bool: whether it holds anything


@record
class FedCvgRatio(Rule):
    """Weigh by size times how rich a client is in the rarer side, smoothed over rounds."""

    alpha: float = leaf(
        default=0.5,
        least=0,
        doc="effect of a client's share of unprivileged rows; 0 with memory=0 is FedAvg",
    )
    memory: float = leaf(
        default=0.5,
        least=0,
        most=1,
        doc="share of the previous weight that is kept, from 0 (none) to 1",
    )
    start: str = static(
        default="first-seen",
        choices=("first-seen", "size"),
        doc=(
            "initial weight of a client: 'first-seen' (its z_k in its first round) or"
            " 'size' (n_k / n)"
        ),
    )
    renormalise: bool = static(
        default=True,
        doc=(
            "whether the weights of a round are divided by their sum; false follows line 42"
            " of the thesis"
        ),
    )
    weights: str = weights_setting(MULTIPLIES)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"examples", "unprivileged"})

    @property
    def stages(self) -> int:
        return 2

    def begin(self, census: Census) -> Array:
        sides(census, "FedCvg-Ratio")  # only to refuse a federation without two of them
        return jnp.asarray(
            census.examples.sum() if self.counts_sizes else len(census.examples), float
        )

    def remember(self, public: Array, own: Own) -> Average:
        return Average(self.size(own) / public, jnp.asarray(self.start == "size"))

    def contribute(self, public: Array, own: Own, sums: tuple[Tree, ...]) -> Tree:
        """Unprivileged rows and all rows; then the size times the score, n s."""
        return self._scored(own, sums[0]) if sums else (own.unprivileged, own.examples)

    def weigh(self, public: Array, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        total = jnp.where(sums[1] > 0, sums[1], 1.0)
        now = self._scored(own, sums[0]) / total
        before, known = own.memory
        averaged = jnp.where(known, self.memory * before + (1 - self.memory) * now, now)
        present = own.examples > 0
        return Weighed(
            jnp.where(present, averaged, 0.0),
            memory=Average(jnp.where(present, averaged, before), known | present),
        )

    def norm(self, public: Array, totals: Totals) -> Array:
        return totals.weight if self.renormalise else jnp.ones(())

    def step(self, public: Array, sums: tuple[Tree, ...], totals: Totals) -> tuple[Tree, Array]:
        return totals.mean if self.renormalise else Blend(totals.weight, totals.mean), public

    def bounds(self, public: Array, limits: Limits) -> Bounds:
        scored = MOST * (limits.rows if self.counts_sizes else 1.0)
        return Bounds(1 / limits.cohort, ((limits.rows, limits.rows), scored))

    def _scored(self, own: Own, everyone: tuple[Array, Array]) -> Array:
        """n_k s_k, or s_k where sizes do not count; 0 for a client without rows."""
        scored = self.size(own) * score(self.alpha, own, everyone)
        return jnp.where(own.examples > 0, scored, 0.0)


def score(alpha: Array | float, own: Own, everyone: tuple[Array, Array]) -> Array:
    """What the client's size is multiplied by, s_k, given the unprivileged rows and all rows of the
    cohort.
    """
    r = everyone[0] / jnp.maximum(everyone[1], 1.0)
    rarer = jnp.minimum(r, 1 - r)
    share = own.unprivileged / jnp.maximum(own.examples, 1.0)
    distance = jnp.where(rarer > 0, (share - r) / jnp.where(rarer > 0, rarer, 1.0), 0.0)
    return jnp.clip(1 + alpha * jnp.where(r < 0.5, distance, -distance), LEAST, MOST)


METHOD = Method(
    name="fedcvg-ratio",
    title="FedCvg-Ratio",
    reference=(
        "Gonfiantini, Fairness-Aware Federated Learning, Master's thesis, University of Genoa, 2026"
    ),
    bibtex="""
@mastersthesis{gonfiantini2026fairness,
  author = {Gonfiantini, Leonardo},
  title  = {Fairness-Aware Federated Learning: A Comparative Study of Bias Mitigation Algorithms},
  school = {University of Genoa},
  year   = {2026},
  month  = mar
}""",
    formula=(
        "zₖ ∝ nₖ clip(1 ± α(rₖ − r)/min(r, 1 − r));  vₖ ← m vₖ + (1 − m) zₖ;  aₖ = vₖ / Σv;  w⁺ = Σ"
        " aₖ wₖ"
    ),
    rule=FedCvgRatio,
    select=Full(),
    defaults={"weights": ""},
    server_of=lambda settings: None if settings["renormalise"] else BlendingServer(),
    resolve=follow_sampling,
)

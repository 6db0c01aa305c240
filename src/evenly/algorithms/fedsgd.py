"""FedSGD: one full-gradient step on the weighted mean of the clients' losses.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS
2017. With `q` it is the fixed-step solver of the q-FFL objective that q-FFL compares with ("static
step size" in the authors' code): w+ = w - (rate/|R|) sum F_k^q grad F_k. The sum is divided by the
sizes, so the coefficients do not sum to 1: their size is the point of the method.
"""

import jax.numpy as jnp

from evenly.algorithms.fedavg import METHOD as FEDAVG
from evenly.algorithms.fedavg import follow_sampling
from evenly.algorithms.method import Method
from evenly.algorithms.weights import weights_setting
from evenly.parts.work import FullGradient
from evenly.records import leaf, record
from evenly.types import Array, Bounds, Limits, Own, Rule, Totals, Tree, Weighed


@record
class FedSGD(Rule):
    """Average the gradients, by size or equally; with q, each times its loss to the power q."""

    weights: str = weights_setting()
    q: float | None = leaf(
        default=None,
        least=0,
        doc=(
            "exponent q of the q-FFL objective, minimised with a fixed step size; by"
            " default plain FedSGD"
        ),
    )

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(
            ({"examples"} if self.weights == "size" else set())
            | (set() if self.q is None else {"loss"})
        )

    def weigh(self, public: Tree, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        size = self.size(own)
        if self.q is None:
            return Weighed(size, extras=size)
        # refused, not squared away by an even power
        loss = jnp.where(own.loss < 0, jnp.nan, own.loss)
        return Weighed(size * loss**self.q, extras=size)

    def norm(self, public: Tree, totals: Totals) -> Array:
        return totals.extras

    def bounds(self, public: Tree, limits: Limits) -> Bounds:
        size, largest = (
            (limits.rows / limits.weight, limits.rows) if self.counts_sizes else (1.0, 1.0)
        )
        return Bounds(size if self.q is None else size * limits.guess**self.q, extras=largest)


METHOD = Method(
    name="fedsgd",
    title="FedSGD",
    reference="McMahan et al., AISTATS 2017",
    bibtex=FEDAVG.bibtex,
    formula="w⁺ = w − η Σ aₖ Fₖ^q ∇Fₖ(w),  aₖ ∝ nₖ or 1",
    rule=FedSGD,
    work=FullGradient,
    defaults={"weights": ""},
    resolve=follow_sampling,
)

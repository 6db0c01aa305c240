"""FedCvg: clients with more rows of unprivileged people get larger coefficients.

Brocchi, Master's thesis, University of Genoa, 2023, as Gonfiantini ("Fairness-Aware Federated
Learning", Master's thesis, University of Genoa, 2026) describes it. With u_k training rows of
unprivileged people and a coverage cov that a client ought to reach,

    a_k proportional to n_k exp(alpha (u_k - cov)),    w+ = sum a_k w_k.

Departures. The coverage is the same factor for every client and cancels when weights are made to
sum to 1: it has no effect, whatever it is, so it is not a setting. The round shifts the exponents
alpha u_k, because exp(alpha (u_k - cov)) overflows in single precision from 8872 rows above
coverage at alpha = 0.01. The printed algorithm sums over all clients; the sum here is over those
that returned. Counts are not shares: at alpha = 0.01 and thousands of rows the largest u_k takes
practically all the weight.
"""

import jax.numpy as jnp

from evenly.algorithms.fedavg import follow_sampling
from evenly.algorithms.fedcvg_ratio import METHOD as FEDCVG_RATIO
from evenly.algorithms.method import Method
from evenly.algorithms.weights import MULTIPLIES, weights_setting
from evenly.data.federation import Census
from evenly.data.sides import sides
from evenly.parts.sampling import Full
from evenly.records import leaf, record
from evenly.types import Bounds, Limits, Own, Rule, Tree, Weighed


@record
class FedCvg(Rule):
    """Weigh by the exponential of the number of unprivileged rows."""

    alpha: float = leaf(
        default=0.0001,
        least=0,
        doc="effect of one more training row of an unprivileged person; 0 is FedAvg",
    )
    weights: str = weights_setting(MULTIPLIES)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"unprivileged", "examples"} if self.counts_sizes else {"unprivileged"})

    def begin(self, census: Census) -> Tree:
        sides(census, "FedCvg")  # only to refuse a federation without two of them
        return ()

    def weigh(self, public: Tree, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        return Weighed(self.size(own), exponent=self.alpha * own.unprivileged)

    def bounds(self, public: Tree, limits: Limits) -> Bounds:
        rows = limits.rows / limits.weight
        # of an average client, half of the rows
        return Bounds((rows if self.counts_sizes else 1.0) * jnp.exp(self.alpha * rows / 2))


METHOD = Method(
    name="fedcvg",
    title="FedCvg",
    reference="Brocchi, Master's thesis, University of Genoa, 2023",
    bibtex="""
@mastersthesis{brocchi2023,
  author = {Brocchi, Martina},
  title  = {[Master's thesis that introduces {FedCvg}]},
  school = {University of Genoa},
  year   = {2023},
  note   = {Title not known; described by Gonfiantini (2026)}
}"""
    + FEDCVG_RATIO.bibtex,
    formula="aₖ ∝ nₖ exp(α uₖ);  w⁺ = Σ aₖ wₖ",
    rule=FedCvg,
    select=Full(),
    defaults={"weights": ""},
    resolve=follow_sampling,
)

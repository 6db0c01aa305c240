"""TERM: coefficients that grow exponentially with a client's loss.

Li, Beirami, Sanjabi, Smith, "Tilted Empirical Risk Minimization", ICLR 2021, at the level of
clients, as PropFair (Zhang et al., "Proportional Fairness in Federated Learning", TMLR 2023)
compares with it. It minimises (1/alpha) log mean exp(alpha F_k). F_k is the loss of the received
model:

    a_k = n_k exp(alpha F_k) / sum n exp(alpha F),    w+ = sum a_k w_k.

Departures. The formula of the PropFair paper has no n_k; its code has, and so has our default
(`weights`). The TERM authors' own federated code takes another step (`form = authors`): e_k =
exp(alpha (F_k - max F)), a running estimate z <- z/2 + mean(e)/2, and w+ = w + (1/K) sum (e_k / (K
z)) (w_k - w). Its coefficients sum to about 1/K, so its steps are about K times shorter, and twice
as long in the first round.
"""

from typing import Any

import jax.numpy as jnp

from evenly.algorithms.fedavg import follow_sampling
from evenly.algorithms.method import Method
from evenly.algorithms.weights import MULTIPLIES, weights_setting
from evenly.data.federation import Census
from evenly.parts.sampling import Full
from evenly.records import leaf, record, require, static
from evenly.types import Array, Bounds, Limits, Own, Rule, Select, Signals, Totals, Tree, Weighed


@record
class Term(Rule):
    """Coefficients in proportion to the exponential of the loss."""

    alpha: float = leaf(
        default=0.1,
        least=0,
        doc="tilt; 0 is FedAvg, and larger values give clients with a large loss more weight",
    )
    weights: str = weights_setting(MULTIPLIES)
    form: str = static(
        default="normalised",
        choices=("normalised", "authors"),
        doc="'normalised', or 'authors' for the update in the TERM authors' code",
    )

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"loss", "examples"} if self.counts_sizes else {"loss"})

    @property
    def counts_sizes(self) -> bool:
        return self.weights == "size" and self.form == "normalised"

    @property
    def whole_cohort(self) -> str:
        reason = "the authors' step compares every loss with the largest of the cohort"
        return reason if self.form == "authors" else ""

    def begin(self, census: Census) -> Array:
        return jnp.zeros(())  # the authors' running estimate of mean exp(alpha (F - max F))

    def weigh(self, public: Array, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        return Weighed(self.size(own), exponent=self.alpha * own.loss)

    def weigh_cohort(self, public: Array, signals: Signals) -> Weighed:
        ones = jnp.ones(signals.returned.shape)
        return Weighed(ones, exponent=self.alpha * signals.loss, extras=ones)

    def norm(self, public: Array, totals: Totals) -> Array:
        if self.form == "normalised":
            return totals.weight
        return self._estimate(public, totals) * totals.extras**2

    def step(self, public: Array, sums: tuple[Tree, ...], totals: Totals) -> tuple[Tree, Array]:
        return totals.mean, public if self.form == "normalised" else self._estimate(public, totals)

    def bounds(self, public: Array, limits: Limits) -> Bounds:
        size = limits.rows / limits.weight if self.counts_sizes else 1.0
        return Bounds(size * jnp.exp(self.alpha * limits.guess))

    def _estimate(self, public: Array, totals: Totals) -> Array:
        """z: half of the last estimate, and half of the mean of this round."""
        return public / 2 + totals.weight / jnp.maximum(totals.extras, 1.0) / 2


def resolve(settings: dict[str, Any], select: Select) -> dict[str, Any]:
    """The authors' step has no sizes in it."""
    if settings["form"] == "authors":
        require(
            settings["weights"] != "size",
            "With form=authors, sizes do not count. Remove weights=size.",
        )
        settings = {**settings, "weights": "equal"}
    return follow_sampling(settings, select)


METHOD = Method(
    name="term",
    title="TERM",
    reference="Li et al., Tilted Empirical Risk Minimization, ICLR 2021",
    bibtex="""
@inproceedings{li2021tilted,
  author    = {Li, Tian and Beirami, Ahmad and Sanjabi, Maziar and Smith, Virginia},
  title     = {Tilted Empirical Risk Minimization},
  booktitle = {International Conference on Learning Representations},
  year      = {2021},
  url       = {https://openreview.net/forum?id=K5YasWXZT3O}
}""",
    formula="aₖ ∝ nₖ exp(α Fₖ);  w⁺ = Σ aₖ wₖ",
    rule=Term,
    select=Full(),
    defaults={"weights": ""},
    resolve=resolve,
)

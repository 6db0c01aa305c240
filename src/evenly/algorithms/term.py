"""TERM: exponential tilting of the clients' losses.

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
from evenly.algorithms.weights import WEIGHTS, softmax_shares
from evenly.data.federation import Census
from evenly.parts.sampling import Full
from evenly.records import leaf, record, require, static
from evenly.types import Array, Rule, Select, Signals


@record
class Term(Rule):
    """Coefficients in proportion to the exponential of the loss."""

    alpha: float = leaf(
        default=0.1,
        least=0,
        doc="tilt: 0 is FedAvg, larger alpha weighs clients with a large loss more",
    )
    weights: str = static(
        default="size",
        choices=WEIGHTS,
        doc="'size' (times n_k) or 'equal'; by default equal where clients are sampled by size",
    )
    form: str = static(
        default="normalised",
        choices=("normalised", "authors"),
        doc="'normalised', or 'authors' for the step of the TERM authors' code",
    )

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"loss", "examples"} if self.counts_sizes else {"loss"})

    @property
    def counts_sizes(self) -> bool:
        return self.weights == "size" and self.form == "normalised"

    def init(self, census: Census) -> Array:
        return jnp.zeros(())  # the authors' running estimate of mean exp(alpha (F - max F))

    def weigh(self, state: Array, signals: Signals) -> tuple[Array, Array]:
        tilt = self.alpha * signals.loss
        if self.form == "normalised":
            return (
                softmax_shares(
                    tilt + jnp.log(signals.examples) if self.counts_sizes else tilt,
                    signals.returned,
                ),
                state,
            )
        clients = jnp.maximum(signals.returned.sum(), 1)
        top = jnp.max(jnp.where(signals.returned, tilt, -jnp.inf), initial=-jnp.inf)
        e = jnp.where(signals.returned, jnp.exp(tilt - jnp.where(jnp.isfinite(top), top, 0.0)), 0.0)
        z = jnp.where(signals.returned.any(), state / 2 + e.sum() / clients / 2, state)
        return jnp.where(signals.returned, e / (z * clients**2), 0.0), z


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
    formula="aₖ ∝ nₖ exp(α Fₖ);  w⁺ = Σ aₖ wₖ",
    rule=Term,
    select=Full(),
    defaults={"weights": ""},
    resolve=resolve,
)

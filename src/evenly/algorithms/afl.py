"""AFL: minimise the loss of the worst mixture of clients.

Mohri, Sivek, Suresh, "Agnostic Federated Learning", ICML 2019: min over w of max over lambda in the simplex of
sum lambda_k F_k(w), solved by descent in w and projected ascent in lambda. Three forms:

    full        (as q-FFL runs it) all clients, full gradients: w+ = w - rate sum lambda_k grad F_k, then
                lambda+ = project(lambda + rate_lambda F), both from the losses at w; lambda starts equal; the model
                served is the mean of the iterates w_1..w_T.
    local       (as PropFair runs it) local epochs; lambda, started at n_k/n, is updated first, then
                w+ = sum lambda+_k w_k; the last iterate is served.
    stochastic  (Mohri et al.) one client k drawn from lambda takes one mini-batch step; one client j drawn uniformly
                moves lambda by rate_lambda m F_j; the mean of the iterates is served.

Departures. The projection is the correct one (see `simplex`). The public q-FFL code, run as its instructions say, ignores
lambda when it averages; ours uses it. In the stochastic form F_j is client j's whole training loss, not a mini-batch's.
Losses are means, so that sizes do not leak into lambda. If only some clients take part, their part of lambda is projected
to its own mass: clients that were not seen keep theirs, and lambda over those seen is renormalised for the model step.
"""

from typing import Any

import jax.numpy as jnp

from evenly.algorithms.method import Method
from evenly.algorithms.shares import shares
from evenly.algorithms.simplex import project
from evenly.clients.full_gradient import FullGradient
from evenly.clients.local_training import LocalTraining
from evenly.records import is_number, leaf, record, require, static
from evenly.sampling import Full
from evenly.types import Array, Census, Effort, Select, Signals, Tree, Work

FORMS = ("full", "local", "stochastic")


@record
class AFL:
    """Weigh by lambda, which climbs towards the clients with the largest loss."""

    form: str = static(default="full", doc="'full' (q-FFL's), 'local' (PropFair's) or 'stochastic' (Mohri et al.)")
    rate_lambda: float = leaf(default=0.1, doc="step size of lambda; 0 keeps it where it starts")

    def __post_init__(self) -> None:
        require(self.form in FORMS, f"form must be one of {', '.join(FORMS)}, got {self.form!r}.")
        if is_number(self.rate_lambda):
            require(self.rate_lambda >= 0, f"rate_lambda must be at least 0, got {self.rate_lambda}.")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"loss", "chance"} if self.form == "stochastic" else {"loss"})

    @property
    def counts_sizes(self) -> bool:
        return False

    def init(self, census: Census) -> Array:
        sizes = jnp.asarray(census.examples, jnp.float32)
        return sizes / sizes.sum() if self.form == "local" else jnp.full(sizes.shape, 1.0 / sizes.shape[0])

    def weigh(self, state: Array, signals: Signals) -> tuple[Array, Array]:
        own = jnp.where(signals.returned, state[signals.client], 0.0)  # lambda of the cohort
        if self.form == "stochastic":
            drawn = _drawn(shares(own, signals.returned), signals.chance[0])
            climb = _drawn(shares(jnp.ones_like(own), signals.returned), signals.chance[1]) * own.shape[0]
        else:
            drawn, climb = own, jnp.where(signals.returned, 1.0, 0.0)
        moved = project(own + self.rate_lambda * climb * signals.loss, signals.returned, own.sum())
        lambdas = state.at[signals.client].set(jnp.where(signals.returned, moved, state[signals.client]))
        return shares(moved if self.form == "local" else drawn, signals.returned), lambdas

    def step(self, state: Array, signals: Signals, effort: Effort, total: Tree) -> tuple[Tree, Array]:
        return total, state


def _drawn(probability: Array, chance: Array) -> Array:
    """One-hot of the slot that a uniform number picks. [K]"""
    edges = jnp.cumsum(probability)
    picked = jnp.searchsorted(edges, chance * edges[-1], side="right")
    return (jnp.arange(probability.shape[0]) == jnp.minimum(picked, probability.shape[0] - 1)).astype(probability.dtype)


def work_of(settings: dict[str, Any]) -> type[Work]:
    return FullGradient if settings["form"] == "full" else LocalTraining


def resolve(settings: dict[str, Any], select: Select) -> dict[str, Any]:
    """The stochastic form takes a single mini-batch step."""
    return {**settings, "max_steps": 1} if settings["form"] == "stochastic" else settings


METHOD = Method(
    name="afl",
    title="AFL",
    reference="Mohri et al., Agnostic Federated Learning, ICML 2019",
    formula="λ⁺ = Π(λ + γ F);  w⁺ = Σ λₖ wₖ",
    rule=AFL,
    work=(LocalTraining, FullGradient),
    work_of=work_of,
    select=Full(),
    averaged=lambda settings: settings["form"] != "local",
    resolve=resolve,
)

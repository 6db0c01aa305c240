"""AFL: minimise the loss of the worst mixture of clients.

Mohri, Sivek, Suresh, "Agnostic Federated Learning", ICML 2019: min over w of max over lambda in the
simplex of sum lambda_k F_k(w), solved by descent in w and projected ascent in lambda. Four forms:

    full        (as q-FFL runs it) all clients, full gradients: w+ = w - rate sum lambda_k grad F_k,
                then lambda+ = project(lambda + rate_lambda F), both from the losses at w; lambda
                starts equal; the model served is the mean of the iterates w_1..w_T.
    local       (as PropFair runs it) local epochs; lambda, started at n_k/n, is updated first, then
                w+ = sum lambda+_k w_k; the last iterate is served.
    stochastic  (Mohri et al.) one client k drawn from lambda takes one mini-batch step; one client
                j drawn uniformly of the m that returned moves lambda by rate_lambda m F_j; the mean
                of the iterates is served.
    per-domain  (Mohri et al.) every client takes one mini-batch step: w+ = sum lambda_k w_k, and
                all losses move lambda, as in `full`; the mean of the iterates is served.

Departures. The projection is the correct one (see `simplex`). The public q-FFL code, run as its
instructions say, ignores lambda when it averages; ours uses it. In the stochastic and per-domain
forms F_j is a client's whole training loss, not a mini-batch's. Losses are means, so that sizes do
not leak into lambda. If only some clients take part, their part of lambda is projected to its own
mass: clients that were not seen keep theirs, and lambda over those seen is renormalised for the
model step. If lambda is 0 for all of them, there is nothing to renormalise: no update counts and
the round changes nothing. The trace has a row of zero coefficients for this round
(`evenly.metrics.idle_rounds` counts them), and the report states their number. `served = last`
serves the last iterate where the mean is usual, and the other way round.
"""

from typing import Any

import jax.numpy as jnp

from evenly.algorithms.method import Method
from evenly.algorithms.weights import project, shares
from evenly.data.federation import Census
from evenly.parts.sampling import Full
from evenly.parts.work import FullGradient, LocalTraining
from evenly.records import leaf, record, static
from evenly.types import Array, Rule, Select, Signals, Work

FORMS = ("full", "local", "stochastic", "per-domain")
ONE_STEP = ("stochastic", "per-domain")  # clients take a single mini-batch step


@record
class AFL(Rule):
    """Coefficients lambda, which increase for the clients with the largest loss."""

    form: str = static(
        default="full",
        choices=FORMS,
        doc="'full' (q-FFL's), 'local' (PropFair's), 'stochastic' or 'per-domain' (Mohri et al.)",
    )
    rate_lambda: float = leaf(
        default=0.1, least=0, doc="step size of lambda; 0 keeps it where it starts"
    )
    served: str = static(
        default="mean",
        choices=("mean", "last"),
        doc="'mean' of the iterates or 'last'; by default the mean, with form = local the last",
    )

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"loss", "chance"} if self.form == "stochastic" else {"loss"})

    def init(self, census: Census) -> Array:
        sizes = jnp.asarray(census.examples, float)
        return (
            sizes / sizes.sum()
            if self.form == "local"
            else jnp.full(sizes.shape, 1.0 / sizes.shape[0])
        )

    def weigh(self, state: Array, signals: Signals) -> tuple[Array, Array]:
        # By client, not by slot: a client may sit in two slots, and draws must not depend on the
        # order of slots.
        present = jnp.zeros(state.shape, bool).at[signals.client].max(signals.returned)
        loss = jnp.zeros_like(state).at[signals.client].set(signals.loss)
        lambdas = jnp.where(present, state, 0.0)
        if self.form == "stochastic":
            used = _drawn(lambdas, signals.chance[0])
            climb = _drawn(jnp.where(present, 1.0, 0.0), signals.chance[1]) * present.sum() * loss
        else:
            used, climb = lambdas, loss
        # With all clients present the mass is exactly 1; the sum of lambda may differ by rounding.
        mass = jnp.where(present.all(), 1.0, lambdas.sum())
        moved = project(
            lambdas + self.rate_lambda * climb, present, mass, most=signals.client.shape[0]
        )
        weights = moved if self.form == "local" else used
        return shares(weights[signals.client], signals.returned), jnp.where(present, moved, state)


def _drawn(odds: Array, chance: Array) -> Array:
    """One-hot vector of the client that a uniform number selects, in proportion to odds; all zero
    if all odds are 0. [clients]
    """
    edges = jnp.cumsum(odds)
    number = jnp.arange(odds.shape[0])
    last = jnp.max(jnp.where(odds > 0, number, 0))  # a number rounded up to 1 picks it
    return ((number == jnp.minimum((edges <= chance * edges[-1]).sum(), last)) & (odds > 0)).astype(
        odds.dtype
    )


def work_of(settings: dict[str, Any]) -> type[Work]:
    return FullGradient if settings["form"] == "full" else LocalTraining


def resolve(settings: dict[str, Any], select: Select) -> dict[str, Any]:
    """The stochastic forms take a single mini-batch step; each form serves what its
    authors serve.
    """
    served = settings["served"] or ("last" if settings["form"] == "local" else "mean")
    steps = settings["max_steps"] or int(settings["form"] in ONE_STEP)
    return {**settings, "served": served, "max_steps": steps}


METHOD = Method(
    name="afl",
    title="AFL",
    reference="Mohri et al., Agnostic Federated Learning, ICML 2019",
    formula="λ⁺ = Π(λ + γ F);  w⁺ = Σ λₖ wₖ",
    rule=AFL,
    work=(LocalTraining, FullGradient),
    work_of=work_of,
    select=Full(),
    averaged=lambda settings: settings["served"] == "mean",
    defaults={"served": ""},
    resolve=resolve,
)

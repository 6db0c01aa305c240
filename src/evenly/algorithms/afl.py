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

Departures. The projection is the correct one. It needs only sums over the clients: each sum tells
those whose lambda would fall below 0, until none is left. With `bins` it needs one sum instead, a
histogram of lambda + rate_lambda F with the count and the sum of each bin. The sum of
max(y - e, 0) is then known exactly at every edge e, so that the threshold is off by at most the
width of one bin. Differential privacy needs this form, because noise in each of many sums would use
up its budget. The public q-FFL code, run as its
instructions say, ignores lambda when it averages; ours uses it. In the stochastic and per-domain
forms F_j is a client's whole training loss, not a mini-batch's. Losses are means, so that sizes do
not leak into lambda. If only some clients take part, their part of lambda is projected to its own
mass: clients that were not seen keep theirs, and lambda over those seen is renormalised for the
model step. If lambda is 0 for all of them, there is nothing to renormalise: no update counts and
the round changes nothing. The trace has a row of zero coefficients for this round
(`evenly.metrics.idle_rounds` counts them), and the report states their number. `served = last`
serves the last iterate where the mean is usual, and the other way round.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from evenly.algorithms.method import Method
from evenly.algorithms.weights import project
from evenly.data.federation import Census
from evenly.parts.sampling import Full
from evenly.parts.work import FullGradient, LocalTraining
from evenly.records import leaf, record, require, static
from evenly.types import (
    Array,
    Bounds,
    Limits,
    Own,
    Rule,
    Select,
    Signals,
    Totals,
    Tree,
    Weighed,
    Work,
)

FORMS = ("full", "local", "stochastic", "per-domain")
ONE_STEP = ("stochastic", "per-domain")  # clients take a single mini-batch step
# Sums until the projection has settled: at most 11 with up to 1,000 clients in random cases. If it
# has not, the last threshold is used, and the sum of the weights is right only after the division.
STAGES = 12
ROUNDING = 1e-3  # the sum of all lambdas differs from 1 by less
# logarithms of the edges of bins before the first round, and how far from the last threshold, as a
# share of it, half of the edges lie afterwards
RANGE, NEAR = (3.0, -9.0), 0.5
SMALLEST = 1e-30


class Clients(NamedTuple):
    """Public numbers of the rule."""

    clients: Array  # number of clients
    rows: Array  # training rows of all clients, where lambda starts from sizes
    edges: Tree = ()  # [bins + 1] of the histogram, from 0


@record
class AFL(Rule):
    """Coefficients lambda, which increase for the clients with the largest loss."""

    form: str = static(
        default="full",
        choices=FORMS,
        doc=(
            "variant: 'full' (as in q-FFL), 'local' (as in PropFair), 'stochastic' or"
            " 'per-domain' (Mohri et al.)"
        ),
    )
    rate_lambda: float = leaf(default=0.1, least=0, doc="step size of lambda; 0 keeps it constant")
    served: str = static(
        default="mean",
        choices=("mean", "last"),
        doc=(
            "model that clients use: the 'mean' of the iterates or the 'last' one; by"
            " default 'last' with form=local, else 'mean'"
        ),
    )
    bins: int = static(
        default=0,
        least=0,
        doc=(
            "0 projects exactly, which takes twelve sums; else the number of bins of one summed"
            " histogram"
        ),
    )

    def __post_init__(self) -> None:
        require(self.bins != 1, "bins must be 0 or at least 2, got 1.")
        require(
            not (self.bins and self._draws),
            "form = stochastic needs all weights and not their histogram; leave bins out.",
        )

    @property
    def needs(self) -> frozenset[str]:
        more = {"stochastic": {"chance"}, "local": {"examples"}}.get(self.form, set())
        return frozenset({"loss"} | more)

    @property
    def whole_cohort(self) -> str:
        reason = "one client is drawn from lambda, so that the others do not count at all"
        return f"{reason}; per-domain takes the same step on average" if self._draws else ""

    @property
    def stages(self) -> int:
        return 0 if self._draws else 1 if self.bins else STAGES

    @property
    def _draws(self) -> bool:
        return self.form == "stochastic"

    def begin(self, census: Census) -> Clients:
        # rows only where lambda starts from sizes, so that other forms need no census
        rows = census.examples.sum() if self.form == "local" else 0
        edges = _edges(jnp.zeros(0), self.bins) if self.bins else ()
        return Clients(jnp.asarray(len(census.examples)), jnp.asarray(rows, float), edges)

    def remember(self, public: Clients, own: Own) -> Array:
        return own.examples / public.rows if self.form == "local" else 1.0 / public.clients

    def contribute(self, public: Clients, own: Own, sums: tuple[Tree, ...]) -> Tree:
        """1, the target and lambda; in later stages 0 instead for clients whose lambda ends at 0
        (Michelot 1986). With bins: 1 and the place within the bin, by bin, and lambda.
        """
        target = own.memory + self.rate_lambda * own.loss
        if self.bins:
            here = (_bin(public.edges, target) == jnp.arange(self.bins)) * 1.0
            width = jnp.maximum(jnp.diff(public.edges), SMALLEST)
            place = (target - public.edges[:-1]) / width
            return here, jnp.where(here > 0, place, 0.0), own.memory
        inside = target + _threshold(public, sums) > 0 if sums else True
        return tuple(jnp.where(inside, value, 0.0) for value in (1.0, target, own.memory))

    def weigh(self, public: Clients, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        moved = own.memory + self.rate_lambda * own.loss + _threshold(public, sums)
        moved = jnp.where(_mass(public, sums) > 0, jnp.maximum(moved, 0.0), 0.0)
        return Weighed(moved if self.form == "local" else own.memory, memory=moved)

    def step(self, public: Clients, sums: tuple[Tree, ...], totals: Totals) -> tuple[Tree, Tree]:
        if not self.bins:
            return totals.mean, public
        level = -_threshold(public, sums)  # no number if nobody came
        level = jnp.where(jnp.isfinite(level), jnp.maximum(level, 0.0), 0.0)
        near = level * jnp.linspace(1 - NEAR, 1 + NEAR, self.bins // 2)
        return totals.mean, public._replace(edges=_edges(near, self.bins))

    def bounds(self, public: Clients, limits: Limits) -> Bounds:
        typical = 1 / limits.clients
        return Bounds(typical, ((1.0, 1.0, limits.weight * typical),))

    def weigh_cohort(self, public: Clients, signals: Signals) -> Weighed:
        # By client, not by slot: a client may sit in two slots, and draws must not depend on the
        # order of slots.
        same = signals.client[:, None] == signals.client
        present = signals.returned & (jnp.argmax(same, axis=1) == jnp.arange(same.shape[0]))
        lambdas = jnp.where(present, signals.memory, 0.0)
        drawn, climbs = (
            _drawn(odds, chance, signals.client)
            for odds, chance in zip((lambdas, present * 1.0), signals.chance, strict=True)
        )
        # With all clients present the mass is exactly 1; the sum of lambda may differ by rounding.
        mass = jnp.where(present.sum() == public.clients, 1.0, lambdas.sum())
        climb = climbs * present.sum() * signals.loss
        moved = project(lambdas + self.rate_lambda * climb, present, mass)
        return Weighed(_spread(drawn, same), memory=_spread(moved, same))


def _mass(public: Clients, sums: tuple[Tree, ...]) -> Array:
    """What lambda sums to over the cohort: exactly 1 with all clients."""
    count, _, lambdas = sums[0]
    count = count.sum()  # over bins
    everyone = (count == public.clients) & (jnp.abs(lambdas - 1) < ROUNDING)
    return jnp.where(everyone, 1.0, lambdas)


def _threshold(public: Clients, sums: tuple[Tree, ...]) -> Array:
    """tau such that max(target + tau, 0) has the mass of the cohort, once the sums have settled."""
    inside, targets, _ = sums[-1]
    mass = _mass(public, sums)
    if jnp.ndim(inside):
        return _from_histogram(public.edges, inside, targets, mass)
    tau = (mass - targets) / jnp.maximum(inside, 1.0)
    # Rounding swallows a lambda that is tiny beside the losses: nobody is inside then, nor later.
    return jnp.where(inside > 0, tau, -jnp.inf)


def _from_histogram(edges: Array, count: Array, places: Array, mass: Array) -> Array:
    """The same from a histogram: exact where nobody ends at 0, else between the right two
    edges.
    """
    count = jnp.maximum(count, 0.0)  # noise may be negative
    places = jnp.where(count > 0, jnp.maximum(places, 0.0), 0.0)
    beyond = lambda values: jnp.cumsum(values[::-1])[::-1]  # noqa: E731 - over this bin and later ones
    width = jnp.diff(edges)
    # of max(target - edge, 0), at every edge
    above = beyond(edges[:-1] * count + width * places) - edges[:-1] * beyond(count)
    at = jnp.maximum((above >= mass).sum() - 1, 0)
    after = jnp.append(above, 0.0)[at + 1]
    share = (above[at] - mass) / jnp.maximum(above[at] - after, SMALLEST)
    total = count.sum()
    all_stay = (mass - above[0]) / jnp.maximum(total, 1.0)
    tau = jnp.where(above[0] >= mass, -(edges[at] + share * width[at]), all_stay)
    return jnp.where(total > 0, tau, -jnp.inf)


def _edges(near: Array, bins: int) -> Array:
    """Edges of the bins: 0, those near the last threshold, and the others over all plausible
    values. [bins + 1]
    """
    even = jnp.exp(jnp.linspace(*RANGE, bins - near.shape[0]))  # the largest one first
    return jnp.concatenate([jnp.zeros(1), jnp.sort(jnp.concatenate([even, near]))])


def _bin(edges: Array, target: Array) -> Array:
    """The bin of a client. All beyond the last edge are in the last bin."""
    return jnp.clip(jnp.searchsorted(edges, target, side="right") - 1, 0, edges.shape[0] - 2)


def _spread(values: Array, same: Array) -> Array:
    """Give the value of a client's first slot to all of its slots."""
    return values[jnp.argmax(same, axis=1)]


def _drawn(odds: Array, chance: Array, client: Array) -> Array:
    """One-hot vector of the slot that a uniform number selects in proportion to odds, in the order
    of the clients' numbers; all zero if all odds are 0. [K]
    """
    order = jnp.argsort(client)
    edges, place = jnp.cumsum(odds[order]), jnp.arange(odds.shape[0])
    last = jnp.max(jnp.where(odds[order] > 0, place, 0))  # a number rounded up to 1 picks it
    chosen = order[jnp.minimum((edges <= chance * edges[-1]).sum(), last)]
    return ((place == chosen) & (odds > 0)).astype(odds.dtype)


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
    bibtex="""
@inproceedings{mohri2019agnostic,
  author        = {Mohri, Mehryar and Sivek, Gary and Suresh, Ananda Theertha},
  title         = {Agnostic Federated Learning},
  booktitle     = {Proceedings of the 36th International Conference on Machine Learning},
  series        = {Proceedings of Machine Learning Research},
  volume        = {97},
  pages         = {4615--4625},
  year          = {2019},
  archivePrefix = {arXiv},
  eprint        = {1902.00146}
}""",
    formula="λ⁺ = Π(λ + γ F);  w⁺ = Σ λₖ wₖ",
    rule=AFL,
    work=(LocalTraining, FullGradient),
    work_of=work_of,
    select=Full(),
    averaged=lambda settings: settings["served"] == "mean",
    defaults={"served": ""},
    resolve=resolve,
)

"""FedCvg-Ratio: clients with a larger share of the rarer side get larger coefficients.

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
import numpy as np

from evenly.algorithms.fedavg import follow_sampling
from evenly.algorithms.method import Method
from evenly.algorithms.weights import WEIGHTS, shares
from evenly.data.federation import Census, sides
from evenly.parts.optimisers import Blend, BlendingServer
from evenly.parts.sampling import Full
from evenly.records import leaf, record, static
from evenly.types import Array, Effort, Rule, Signals, Tree

LEAST, MOST = 0.5, 2.0  # what a client's size may be multiplied by


class Averages(NamedTuple):
    """The moving average of every client's weight."""

    weight: Array  # [clients]
    seen: Array  # bool [clients] whether it holds anything
    # sum of the averages of the last round, where they are not made to sum to 1
    mass: Array | None = None


@record
class FedCvgRatio(Rule):
    """Weigh by size times how rich a client is in the rarer side, smoothed over rounds."""

    alpha: float = leaf(
        default=0.5, least=0, doc="how much a client's share counts: 0 (with memory = 0) is FedAvg"
    )
    memory: float = leaf(
        default=0.5,
        least=0,
        most=1,
        doc="share of the earlier weight that is kept, from 0 (none) to 1",
    )
    start: str = static(
        default="first-seen",
        choices=("first-seen", "size"),
        doc="a client's first weight: 'first-seen' (the round's own), or 'size' (n_k / n)",
    )
    renormalise: bool = static(
        default=True,
        doc="whether the averaged weights are made to sum to 1; false is the thesis' line 42",
    )
    weights: str = static(
        default="size",
        choices=WEIGHTS,
        doc="'size' (times n_k) or 'equal'; by default equal where clients are sampled by size",
    )

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"examples", "unprivileged"})

    def init(self, census: Census) -> Averages:
        sides(census, "FedCvg-Ratio")  # only to refuse a federation without two of them
        sizes = jnp.asarray(
            census.examples if self.counts_sizes else np.ones(len(census.examples)), float
        )
        mass = None if self.renormalise else jnp.ones(())
        return Averages(sizes / sizes.sum(), jnp.full(sizes.shape, self.start == "size"), mass)

    def weigh(self, state: Averages, signals: Signals) -> tuple[Array, Averages]:
        rows = jnp.asarray(signals.examples, state.weight.dtype)
        present = signals.returned & (rows > 0)
        sizes = rows if self.counts_sizes else jnp.ones_like(rows)
        now = shares(sizes * scores(self.alpha, signals.unprivileged, rows, present), present)
        before = state.weight[signals.client]
        averaged = jnp.where(
            state.seen[signals.client], self.memory * before + (1 - self.memory) * now, now
        )
        # an index beyond the end writes nothing
        at = jnp.where(present, signals.client, state.weight.shape[0])
        state = state._replace(
            weight=state.weight.at[at].set(averaged, mode="drop"),
            seen=state.seen.at[at].set(True, mode="drop"),
        )
        if self.renormalise:
            return shares(averaged, present), state
        weights = jnp.where(present, averaged, 0.0)
        return weights, state._replace(mass=weights.sum())

    def step(
        self, state: Averages, signals: Signals, effort: Effort, total: Tree
    ) -> tuple[Tree, Averages]:
        return (total if state.mass is None else Blend(state.mass, total)), state


def scores(alpha: Array | float, unprivileged: Array, rows: Array, present: Array) -> Array:
    """What each client's size is multiplied by, s_k. [K]"""
    r = jnp.where(present, unprivileged, 0.0).sum() / jnp.maximum(
        jnp.where(present, rows, 0.0).sum(), 1.0
    )
    rarer = jnp.minimum(r, 1 - r)
    distance = jnp.where(
        rarer > 0,
        (unprivileged / jnp.maximum(rows, 1.0) - r) / jnp.where(rarer > 0, rarer, 1.0),
        0.0,
    )
    return jnp.clip(1 + alpha * jnp.where(r < 0.5, distance, -distance), LEAST, MOST)


METHOD = Method(
    name="fedcvg-ratio",
    title="FedCvg-Ratio",
    reference=(
        "Gonfiantini, Fairness-Aware Federated Learning, Master's thesis, University of Genoa, 2026"
    ),
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

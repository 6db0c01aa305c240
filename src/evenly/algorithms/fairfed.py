"""FairFed: clients whose fairness gap is close to the global one get larger coefficients.

Ezzeldin, Yan, He, Ferrara, Avestimehr, "FairFed: Enabling Group Fairness in Federated Learning",
AAAI 2023, as Gonfiantini ("Fairness-Aware Federated Learning", Master's thesis, University of
Genoa, 2026) writes it down. Before training, clients count what the received model does with their
rows; phi is a rate of unprivileged people minus that of all others:

    eod       of those with the favourable label, the share that is given it
    spd       of all, the share that is given the favourable label
    accuracy  of all, the share that is classified correctly

phi_all comes from the counts summed over the clients that returned, D_k = |phi_all - phi_k|, and
every client carries a weight that starts at n_k / n and moves against the mean:

    v_k <- max(0, v_k - beta (D_k - mean D)),    a_k = v_k / sum v,    w+ = sum a_k w_k.

Where phi_k or phi_all is undefined, because a side has no rows, D_k is the gap in accuracy |acc_all
- acc_k|; the rule's state counts how often. If all weights of a round are 0, sizes decide. A client
that is not in the round keeps its weight.

Departures. The paper combines it with reweighing of rows (`+reweigh`); the thesis, and our default,
do not. The thesis speaks of local validation data but holds none out: rates are measured on
training rows, unless `measured_on = valid` selects the rows that data sets hold out. A client
without validation rows counts as an average client. Public code differs: `clamp = false` lets
weights become negative (a sum that is not positive then leaves the round to sizes), `carry =
normalised` carries a_k instead of v_k, and `form = exponential` is an early version without memory,
a_k proportional to n_k exp(-beta D_k). Several groups are pooled into two sides, several labels
into favourable and not.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from evenly.algorithms.fedavg import follow_sampling
from evenly.algorithms.method import Method
from evenly.algorithms.weights import WEIGHTS, shares, softmax_shares
from evenly.data.federation import Census, sides
from evenly.parts.sampling import Full
from evenly.records import leaf, record, require, static
from evenly.types import Array, Rule, Signals

METRICS = ("eod", "spd", "accuracy")


class FairFedState(NamedTuple):
    """State of the rule."""

    raw: Array  # [clients] weights before they are divided by their sum
    fallbacks: Array  # how often the gap in accuracy stood in for an undefined rate
    sides: Array  # [2, groups] 1 for the groups of each side
    favourable: Array  # [labels] 1 for the favourable label


@record
class FairFed(Rule):
    """Larger coefficients for clients whose fairness gap is close to the global one."""

    metric: str = static(
        default="eod",
        choices=METRICS,
        doc="the gap: 'eod' (true positives), 'spd' (predicted positives) or 'accuracy'",
    )
    beta: float = leaf(default=1.0, least=0, doc="how fast weights move: 0 is FedAvg")
    form: str = static(
        default="additive",
        choices=("additive", "exponential"),
        doc="'additive', or 'exponential' for the early version without memory",
    )
    clamp: bool = static(default=True, doc="additive: whether weights stop at 0")
    carry: str = static(
        default="raw",
        choices=("raw", "normalised"),
        doc="additive: weights carried to the next round, 'raw' or 'normalised' to sum to 1",
    )
    measured_on: str = static(
        default="train",
        choices=("train", "valid"),
        doc="rows on which clients measure the gap: 'train', or 'valid', which are held out",
    )
    weights: str = static(
        default="size",
        choices=WEIGHTS,
        doc=(
            "'size' (starts at n_k / n) or 'equal'; by default equal where clients are sampled by"
            " size"
        ),
    )

    def __post_init__(self) -> None:
        memory = self.form == "additive" or (self.clamp and self.carry == "raw")
        require(memory, "form = exponential carries no weights; leave clamp and carry out.")

    @property
    def needs(self) -> frozenset[str]:
        table = "table" if self.measured_on == "train" else "valid_table"
        return frozenset({table, "examples"} if self.counts_sizes else {table})

    def init(self, census: Census) -> FairFedState:
        sizes = jnp.asarray(
            census.examples if self.counts_sizes else np.ones(len(census.examples)), float
        )
        favourable = np.arange(census.cells.shape[2]) == census.favourable
        two = jnp.asarray(sides(census, "FairFed"), float)
        return FairFedState(
            sizes / sizes.sum(), jnp.zeros((), jnp.int32), two, jnp.asarray(favourable, float)
        )

    def weigh(self, state: FairFedState, signals: Signals) -> tuple[Array, FairFedState]:
        returned = signals.returned
        gap, stood_in = self._gaps(state, signals)
        state = state._replace(
            fallbacks=state.fallbacks + (stood_in & returned).sum().astype(state.fallbacks.dtype)
        )
        sizes = signals.examples if self.counts_sizes else jnp.ones(returned.shape)
        if self.form == "exponential":
            return softmax_shares(jnp.log(sizes) - self.beta * gap, returned), state
        mean = jnp.where(returned, gap, 0.0).sum() / jnp.maximum(returned.sum(), 1)
        moved = state.raw[signals.client] - self.beta * (gap - mean)
        moved = jnp.maximum(moved, 0.0) if self.clamp else moved
        weights = shares(
            jnp.where(jnp.where(returned, moved, 0.0).sum() > 0, moved, sizes), returned
        )
        carried = moved if self.carry == "raw" else weights
        # an index beyond the end writes nothing
        at = jnp.where(returned, signals.client, state.raw.shape[0])
        return weights, state._replace(raw=state.raw.at[at].set(carried, mode="drop"))

    def _gaps(self, state: FairFedState, signals: Signals) -> tuple[Array, Array]:
        """Distance of each client from the global rate, and whether accuracy replaced an undefined
        rate. [K], bool [K]
        """
        table = jnp.asarray(
            signals.table if self.measured_on == "train" else signals.valid_table, state.raw.dtype
        )
        everyone = jnp.where(signals.returned[:, None, None, None], table, 0.0).sum(0)
        (client, client_defined), (pooled, pooled_defined) = (
            difference(self.metric, t, state) for t in (table, everyone)
        )
        by_accuracy = jnp.abs(accuracy(everyone) - accuracy(table))
        defined = client_defined & pooled_defined
        gap = jnp.where(defined, jnp.abs(pooled - client), by_accuracy)
        if self.measured_on == "train":
            return gap, ~defined
        there = signals.returned & (table.sum((1, 2, 3)) > 0)
        return (
            jnp.where(there, gap, jnp.where(there, gap, 0.0).sum() / jnp.maximum(there.sum(), 1)),
            ~defined & there,
        )

    def report(self, state: FairFedState) -> dict[str, Array]:
        return {"fallbacks": state.fallbacks}


def difference(metric: str, table: Array, state: FairFedState) -> tuple[Array, Array]:
    """The rate of the unprivileged minus that of the privileged, and whether both exist; from
    counts [..., groups, labels, outcomes].
    """
    favourable = state.favourable
    if metric == "accuracy":
        hits, rows = table * jnp.eye(table.shape[-1]), table
    elif metric == "spd":
        hits, rows = table * favourable, table
    else:
        rows = table * favourable[:, None]
        hits = rows * favourable
    # Products and sums instead of matrix products, which round counts on some devices.
    # [..., 2]
    hit, of = (
        (counts.sum((-2, -1))[..., None, :] * state.sides).sum(-1) for counts in (hits, rows)
    )
    rate = hit / jnp.where(of > 0, of, 1.0)  # counts that were cut may be below 1
    return rate[..., 0] - rate[..., 1], (of > 0).all(-1)


def accuracy(table: Array) -> Array:
    rows = table.sum((-3, -2, -1))
    return (table * jnp.eye(table.shape[-1])).sum((-3, -2, -1)) / jnp.where(rows > 0, rows, 1.0)


METHOD = Method(
    name="fairfed",
    title="FairFed",
    reference="Ezzeldin et al., FairFed, AAAI 2023",
    formula="vₖ ← max(0, vₖ − β(Δₖ − mean Δ));  aₖ = vₖ / Σv;  w⁺ = Σ aₖ wₖ",
    rule=FairFed,
    select=Full(),
    defaults={"weights": ""},
    resolve=follow_sampling,
)

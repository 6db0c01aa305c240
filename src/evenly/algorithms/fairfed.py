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
- acc_k|; the rule counts how often. If all weights of a round are 0, sizes decide. A weight is the
client's memory: a client that is not in the round keeps it.

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
from evenly.algorithms.weights import weights_setting
from evenly.data.federation import Census
from evenly.data.sides import sides
from evenly.parts.sampling import Full
from evenly.records import leaf, record, replace, require, static
from evenly.types import Array, Bounds, Limits, Own, Rule, Totals, Tree, Weighed

METRICS = ("eod", "spd", "accuracy")


class SideRates(NamedTuple):
    """Public numbers of the rule."""

    size: Array  # training rows of all clients, or their number
    fallbacks: Array  # how often the gap in accuracy stood in for an undefined rate
    cells: Array  # [6, groups, labels, outcomes] 1 for the cells that each of six counts adds up


class RateCounts(NamedTuple):
    """What the rule reads of a table."""

    hits: Array  # [2] rows of each side that the rate counts
    rows: Array  # [2] rows of each side that it is a share of
    correct: Array
    all: Array


@record
class FairFed(Rule):
    """Larger coefficients for clients whose fairness gap is close to the global one."""

    metric: str = static(
        default="eod",
        choices=METRICS,
        doc="fairness metric whose gap is measured: 'eod', 'spd' or 'accuracy'",
    )
    beta: float = leaf(default=1.0, least=0, doc="step size of the carried weights; 0 is FedAvg")
    form: str = static(
        default="additive",
        choices=("additive", "exponential"),
        doc="'additive', or 'exponential' for an early version without memory",
    )
    clamp: bool = static(
        default=True, doc="additive form: whether carried weights are kept at or above 0"
    )
    carry: str = static(
        default="raw",
        choices=("raw", "normalised"),
        doc="additive form: weights carried to the next round, 'raw' or 'normalised' to sum to 1",
    )
    measured_on: str = static(
        default="train",
        choices=("train", "valid"),
        doc="rows on which clients measure the gap: 'train', or 'valid' for validation rows",
    )
    weights: str = weights_setting("initial weight: 'size' (n_k / n) or 'equal' (all the same)")

    def __post_init__(self) -> None:
        memory = self.form == "additive" or (self.clamp and self.carry == "raw")
        require(memory, "form = exponential carries no weights; leave clamp and carry out.")

    @property
    def needs(self) -> frozenset[str]:
        table = "table" if self.measured_on == "train" else "valid_table"
        return frozenset({table, "examples"} if self.counts_sizes else {table})

    @property
    def stages(self) -> int:
        """Counts; gaps, where their mean is needed; weights, to tell whether any is left."""
        if self.form == "additive":
            return 3
        return 1 if self.measured_on == "train" else 2

    def begin(self, census: Census) -> SideRates:
        size = census.examples.sum() if self.counts_sizes else len(census.examples)
        return SideRates(
            jnp.asarray(size, float),
            jnp.zeros((), jnp.int32),
            jnp.asarray(counted_cells(self.metric, census), float),
        )

    def after_begin(self) -> "FairFed":
        return replace(self, metric=METRICS[0])  # `cells` say what is counted

    def remember(self, public: SideRates, own: Own) -> Tree:
        return self.size(own) / public.size if self.form == "additive" else ()

    def contribute(self, public: SideRates, own: Own, sums: tuple[Tree, ...]) -> Tree:
        """The client's counts; its gap and 1; its weight and its size."""
        if not sums:
            return self._counts(public, own)
        if len(sums) == 1:
            gap, _, there = self._gap(public, own, sums)
            return jnp.where(there, gap, 0.0), there * 1.0
        return self._moved(own, self._gap(public, own, sums)[0], sums), self.size(own)

    def weigh(self, public: SideRates, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        gap, stood_in, _ = self._gap(public, own, sums)
        if self.form == "exponential":
            return Weighed(self.size(own), exponent=-self.beta * gap, extras=stood_in)
        moved, (total, size) = self._moved(own, gap, sums), sums[2]
        # a sum that is not positive leaves the round to sizes
        weight = jnp.where(total > 0, moved, self.size(own))
        share = weight / jnp.where(total > 0, total, size)
        return Weighed(weight, extras=stood_in, memory=moved if self.carry == "raw" else share)

    def step(
        self, public: SideRates, sums: tuple[Tree, ...], totals: Totals
    ) -> tuple[Tree, SideRates]:
        more = totals.extras.astype(public.fallbacks.dtype)
        return totals.mean, public._replace(fallbacks=public.fallbacks + more)

    def report(self, public: SideRates) -> dict[str, Array]:
        return {"fallbacks": public.fallbacks}

    def bounds(self, public: SideRates, limits: Limits) -> Bounds:
        counted = RateCounts(*[limits.rows] * len(RateCounts._fields))
        gap = (2.0, 1.0)  # differences of rates differ by at most 2
        size = limits.rows if self.counts_sizes else 1.0
        if self.form == "exponential":
            stages = (counted, gap)[: self.stages]
            return Bounds(
                limits.rows / limits.weight if self.counts_sizes else 1.0, stages, (), 1.0
            )
        typical = 1 / limits.clients
        return Bounds(typical, (counted, gap, (limits.weight * typical, size)), extras=1.0)

    def _counts(self, public: SideRates, own: Own) -> RateCounts:
        table = own.table if self.measured_on == "train" else own.valid_table
        return counts(table, public)

    def _gap(
        self, public: SideRates, own: Own, sums: tuple[Tree, ...]
    ) -> tuple[Array, Array, Array]:
        """Distance from the global rate; whether accuracy replaced an undefined rate (1) or not
        (0); and whether the gap is the client's own. On validation rows it must hold some out, else
        it has the mean gap.
        """
        mine, everyone = self._counts(public, own), sums[0]
        (own_rate, own_defined), (global_rate, defined) = difference(mine), difference(everyone)
        defined &= own_defined
        by_accuracy = jnp.abs(accuracy(everyone) - accuracy(mine))
        gap = jnp.where(defined, jnp.abs(global_rate - own_rate), by_accuracy)
        there = (mine.all > 0) | (self.measured_on == "train")
        if len(sums) > 1:
            gap = jnp.where(there, gap, _mean(sums[1]))
        return gap, (~defined & there) * 1.0, there

    def _moved(self, own: Own, gap: Array, sums: tuple[Tree, ...]) -> Array:
        """The client's weight, moved against the mean gap."""
        moved = own.memory - self.beta * (gap - _mean(sums[1]))
        return jnp.maximum(moved, 0.0) if self.clamp else moved


def counted_cells(metric: str, census: Census) -> np.ndarray:
    """The cells of a table that each of six counts adds up: hits and rows of the unprivileged and
    of the privileged side, correct rows, and all rows.
    """
    labels = census.cells.shape[2]
    good = np.arange(labels) == census.favourable
    every, correct = np.ones((labels, labels)), np.eye(labels)
    hits, rows = {
        "eod": (np.outer(good, good), every * good[:, None]),
        "spd": (every * good, every),
        "accuracy": (correct, every),
    }[metric]
    two = np.asarray(sides(census, "FairFed"))[:, :, None, None]
    everybody = np.ones_like(two[:1])
    return np.concatenate([two * hits, two * rows, everybody * correct, everybody * every])


def counts(table: Array, public: SideRates) -> RateCounts:
    """The six numbers of a table [groups, labels, outcomes] that rates and accuracy need."""
    # a product and a sum instead of a matrix product, which rounds counts on some devices
    six = (jnp.asarray(table, public.cells.dtype) * public.cells).sum((1, 2, 3))
    return RateCounts(six[:2], six[2:4], six[4], six[5])


def difference(counted: RateCounts) -> tuple[Array, Array]:
    """The rate of the unprivileged minus that of the privileged, and whether both exist."""
    # counts that were cut may be below 1, and noised ones anything
    exists = counted.rows > 0
    rate = jnp.clip(counted.hits / jnp.where(exists, counted.rows, 1.0), 0.0, 1.0)
    return rate[0] - rate[1], exists.all()


def accuracy(counted: RateCounts) -> Array:
    return jnp.clip(counted.correct / jnp.where(counted.all > 0, counted.all, 1.0), 0.0, 1.0)


def _mean(gaps: tuple[Array, Array]) -> Array:
    """The mean gap, from the sum of the gaps and the number of clients that have one."""
    return gaps[0] / jnp.maximum(gaps[1], 1.0)


METHOD = Method(
    name="fairfed",
    title="FairFed",
    reference="Ezzeldin et al., FairFed, AAAI 2023",
    bibtex="""
@article{ezzeldin2023fairfed,
  author        = {Ezzeldin, Yahya H. and Yan, Shen and He, Chaoyang and Ferrara, Emilio and
                   Avestimehr, A. Salman},
  title         = {{FairFed}: Enabling Group Fairness in Federated Learning},
  journal       = {Proceedings of the AAAI Conference on Artificial Intelligence},
  volume        = {37},
  number        = {6},
  pages         = {7494--7502},
  year          = {2023},
  doi           = {10.1609/aaai.v37i6.25911},
  archivePrefix = {arXiv},
  eprint        = {2110.00857}
}""",
    formula="vₖ ← max(0, vₖ − β(Δₖ − mean Δ));  aₖ = vₖ / Σv;  w⁺ = Σ aₖ wₖ",
    rule=FairFed,
    select=Full(),
    defaults={"weights": ""},
    resolve=follow_sampling,
)

"""FedFB: row weights by group and label, adapted until predictions are independent of the group.

Zeng, Chen, Lee, "Improving Fairness via Federated Learning", 2021, for demographic parity and after
the authors' code. Of the two sides z (0: unprivileged people, 1: all others), with m_z rows of n
and m_yz of label y (1: the favourable one), a row of label 0 counts o_z in its client's loss and a
row of label 1 counts 2 - o_z, both 1 at first. With L_yz the summed losses of the received model on
such rows, round t moves

    f = (L_10 - L_00 + m_00) / m_0 - (L_11 - L_01 + m_01) / m_1,
    o_0 <- o_0 - (alpha / sqrt t) f n / m_0,
    o_1 <- o_1 + (alpha / sqrt t) f n / m_1,    both kept within [0, 2],

and the server takes w+ = sum a_k w_k with a_k in proportion to c_k, the sum of client k's row
weights.

Departures. The authors write lambda_yz = o_z m_z / n, weigh rows lambda_yz / m_z and *sum* a batch;
o_z is that times n, in the mean of a batch, so that alpha = 0 is FedAvg at the same learning rate.
Their code adds the constants m_0z / m_z once per client and clips every lambda by the mass of side
0; here they are added once and each side has its own bounds. Losses are those of the model that
clients receive, and move the weights of the *next* round: they lag by one round. Where only some
clients take part, all sums are over those that returned; a round that lacks a side moves no row
weight, and a round in which no row counts changes nothing. Several groups are pooled into two
sides, several labels into favourable and not.
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
from evenly.records import leaf, record
from evenly.types import Array, Bounds, Limits, Own, Rule, Totals, Tree, Weighed


class Balance(NamedTuple):
    """Public numbers of the rule."""

    unfavourable: Array  # [2] o_z, how much a row without the favourable label counts on each side
    rounds: Array  # rounds done
    sides: Array  # [2, groups] 1 for the groups of each side
    favourable: Array  # [labels] 1 for the favourable label


@record
class FedFB(Rule):
    """Weigh rows by group and label, and clients by the sum of their rows' weights."""

    alpha: float = leaf(default=0.3, least=0, doc="step size of the row weights; 0 is FedAvg")
    weights: str = weights_setting("coefficients: 'size' (c_k) or 'equal' (c_k / n_k)")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"table", "cell_loss"})

    def begin(self, census: Census) -> Balance:
        favourable = np.arange(census.cells.shape[2]) == census.favourable
        two = jnp.asarray(sides(census, "FedFB"), float)
        return Balance(jnp.ones(2), jnp.zeros(()), two, jnp.asarray(favourable, float))

    def row_weights(self, public: Balance) -> Array:
        by_group = (public.unfavourable[:, None] * public.sides).sum(0)[:, None]
        return jnp.where(public.favourable > 0, 2 - by_group, by_group)

    def weigh(self, public: Balance, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        cells = jnp.asarray(own.table.sum(-1), public.unfavourable.dtype)  # [groups, labels]
        counted = (cells * self.row_weights(public)).sum()
        return Weighed(
            counted if self.counts_sizes else counted / jnp.maximum(cells.sum(), 1.0),
            extras=(_by_side(public, cells), _by_side(public, own.cell_loss)),
        )

    def step(self, public: Balance, sums: tuple[Tree, ...], totals: Totals) -> tuple[Tree, Balance]:
        rows, losses = totals.extras
        size = rows.sum(1)
        both = (size > 0).all()
        size = jnp.where(both, size, 1.0)
        tilt = (losses[:, 1] - losses[:, 0] + rows[:, 0]) / size  # [2]
        f = jnp.where(both, tilt[0] - tilt[1], 0.0)
        rounds = public.rounds + 1
        move = self.alpha / jnp.sqrt(rounds) * f * size.sum() / size
        moved = jnp.clip(public.unfavourable + move * jnp.array([-1.0, 1.0]), 0.0, 2.0)
        return totals.mean, public._replace(unfavourable=moved, rounds=rounds)

    def bounds(self, public: Balance, limits: Limits) -> Bounds:
        typical = limits.rows / limits.weight if self.counts_sizes else 1.0
        return Bounds(typical, extras=(limits.rows, limits.rows * limits.loss))


def _by_side(public: Balance, cells: Array) -> Array:
    """Sums by side and by label, unfavourable first, of values [groups, labels]. [2, 2]"""
    per_label = (public.sides[:, :, None] * cells).sum(1)  # [2, labels]
    wanted = (per_label * public.favourable).sum(1)
    return jnp.stack([(per_label * (1 - public.favourable)).sum(1), wanted], axis=1)


METHOD = Method(
    name="fedfb",
    title="FedFB",
    reference="Zeng et al., Improving Fairness via Federated Learning, 2021",
    bibtex="""
@misc{zeng2021improving,
  author        = {Zeng, Yuchen and Chen, Hongxu and Lee, Kangwook},
  title         = {Improving Fairness via Federated Learning},
  year          = {2021},
  archivePrefix = {arXiv},
  eprint        = {2110.15545}
}""",
    formula="o₀ ← o₀ − (α/√t) f n/m₀,  o₁ ← o₁ + (α/√t) f n/m₁;  aₖ ∝ cₖ;  w⁺ = Σ aₖ wₖ",
    rule=FedFB,
    select=Full(),
    defaults={"weights": ""},
    resolve=follow_sampling,
)

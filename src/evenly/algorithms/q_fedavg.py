"""q-FedAvg: clients with a larger loss get larger coefficients.

Li, Sanjabi, Beirami, Smith, "Fair Resource Allocation in Federated Learning" (q-FFL), Algorithm 1.
It minimises sum_k p_k F_k^(q+1) / (q+1). With d_k = L (w - w_k) for the trained model w_k, and F_k
the loss of the *received* model,

    Delta_k = F_k^q d_k,   h_k = q F_k^(q-1) ||d_k||^2 + L F_k^q,   w+ = w - sum Delta_k / sum h_k.

Here the same step is written with v_k = w_k - w (so d_k = -L v_k) and weights that are divided by
their sum, which cannot overflow:

    a_k = F_k^q / sum F^q,    w+ = w + sum a_k v_k / (1 + q L sum a_k ||v_k||^2 / F_k).

Departures. The paper omits the factor L in d_k; with it omitted q = 0 is FedAvg only for L = 1. The
authors' code has it, and so have we (`scale_update=False` restores the printed form). As in the
authors' code, 1e-10 is added to every loss. A client with a loss near 0, q below 1 and a non-zero
update dominates the damping and freezes the round: that is a property of the method.
"""

from typing import Any

import jax.numpy as jnp

from evenly import trees
from evenly.algorithms.method import Method
from evenly.records import leaf, record, require, static
from evenly.types import Bounds, Limits, Own, Rule, Select, Totals, Tree, Weighed

SMALLEST_LOSS = 1e-10


@record
class QFedAvg(Rule):
    """Coefficients in proportion to the loss to the power q, and a damped step."""

    q: float = leaf(
        default=1.0,
        least=0,
        doc=(
            "fairness parameter; 0 is FedAvg, and larger values give clients with a large"
            " loss more weight"
        ),
    )
    lipschitz: float = leaf(
        default=10.0,
        above=0,
        doc="L, an estimate of the gradient's Lipschitz constant; by default 1 / learning_rate",
    )
    scale_update: bool = static(
        default=True,
        doc=(
            "whether updates are multiplied by L, as in the authors' code; false is the"
            " formula printed in the paper"
        ),
    )

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"loss", "square_norm"})

    def weigh(self, public: Tree, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        F = own.loss + SMALLEST_LOSS
        return Weighed(1.0, exponent=self.q * jnp.log(F), averages=own.square_norm / F)

    def step(self, public: Tree, sums: tuple[Tree, ...], totals: Totals) -> tuple[Tree, Tree]:
        # q sum a_k ||v_k||^2 / F_k, which noise may bring below 0
        L, curvature = self.lipschitz, self.q * jnp.maximum(totals.averages, 0.0)
        # h_k has ||d_k||^2 = L^2 ||v_k||^2 when updates are scaled, else ||v_k||^2.
        damping = 1.0 + L * curvature if self.scale_update else L + curvature
        return trees.scale(totals.mean, 1.0 / damping), public

    def bounds(self, public: Tree, limits: Limits) -> Bounds:
        # ||v||^2 / F has no limit for a loss near 0: what exceeds that of a client whose loss is
        # that of guessing is cut
        largest = limits.weight * limits.clip**2 / limits.guess
        return Bounds(limits.guess**self.q, averages=largest)


def lipschitz_from_rate(settings: dict[str, Any], select: Select) -> dict[str, Any]:
    """L = 1 / learning_rate unless given."""
    lipschitz, rate = settings["lipschitz"], settings["learning_rate"]
    require(rate > 0, f"learning_rate must be above 0, got {rate}.")
    return {**settings, "lipschitz": 1.0 / rate if lipschitz is None else lipschitz}


METHOD = Method(
    name="q-fedavg",
    title="q-FedAvg",
    reference="Li et al., Fair Resource Allocation in Federated Learning, ICLR 2020, Algorithm 1",
    bibtex="""
@inproceedings{li2020fair,
  author        = {Li, Tian and Sanjabi, Maziar and Beirami, Ahmad and Smith, Virginia},
  title         = {Fair Resource Allocation in Federated Learning},
  booktitle     = {International Conference on Learning Representations},
  year          = {2020},
  url           = {https://openreview.net/forum?id=ByexElSYDr},
  archivePrefix = {arXiv},
  eprint        = {1905.10497}
}""",
    formula="aₖ = Fₖ^q / ΣF^q;  w⁺ = w + Σ aₖ vₖ / (1 + q L Σ aₖ ‖vₖ‖² / Fₖ)",
    rule=QFedAvg,
    defaults={"lipschitz": None},
    resolve=lipschitz_from_rate,
)

"""FedSGD: one full-gradient step on the weighted mean of the clients' losses.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017. With `q` it
is the fixed-step solver of the q-FFL objective that q-FFL compares with ("static step size" in the authors' code):
w+ = w - (rate/|R|) sum F_k^q grad F_k. Those coefficients do not sum to 1: their size is the point of the method.
"""

import jax.numpy as jnp

from evenly.algorithms.fedavg import follow_sampling
from evenly.algorithms.method import Method
from evenly.algorithms.weights import shares
from evenly.data.federation import Census
from evenly.parts.work import FullGradient
from evenly.records import is_number, leaf, record, require, static
from evenly.types import Array, Effort, Signals, Tree


@record
class FedSGD:
    """Average the gradients, by size or equally; with q, each times its loss to the power q."""

    weights: str = static(default="size", doc="'size' or 'equal'; by default equal where clients are sampled by size")
    q: float | None = leaf(default=None, doc="solve q-FFL with a fixed step: gradients count by their loss to this power")

    def __post_init__(self) -> None:
        require(self.weights in ("size", "equal"), f"weights must be 'size' or 'equal', got {self.weights!r}.")
        if self.q is not None and is_number(self.q):
            require(self.q >= 0, f"q must be at least 0, got {self.q}. Leave it out for plain FedSGD.")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(({"examples"} if self.weights == "size" else set()) | (set() if self.q is None else {"loss"}))

    @property
    def counts_sizes(self) -> bool:
        return self.weights == "size"

    def init(self, census: Census) -> Tree:
        return ()

    def weigh(self, state: Tree, signals: Signals) -> tuple[Array, Tree]:
        raw = signals.examples if self.weights == "size" else jnp.ones(signals.returned.shape)
        share = shares(raw, signals.returned)
        if self.q is None:
            return share, state
        loss = jnp.where(signals.loss < 0, jnp.nan, signals.loss)  # refused, not squared away by an even power
        return jnp.where(signals.returned, share * loss**self.q, 0.0), state  # 0 to the power 0 is 1

    def step(self, state: Tree, signals: Signals, effort: Effort, total: Tree) -> tuple[Tree, Tree]:
        return total, state


METHOD = Method(
    name="fedsgd",
    title="FedSGD",
    reference="McMahan et al., AISTATS 2017",
    formula="w⁺ = w − η Σ aₖ Fₖ^q ∇Fₖ(w),  aₖ ∝ nₖ or 1",
    rule=FedSGD,
    work=FullGradient,
    defaults={"weights": ""},
    resolve=follow_sampling,
)

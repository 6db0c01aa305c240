"""FedSGD: one full-gradient step on the weighted mean of the clients' losses.

McMahan et al., AISTATS 2017. With `q` above 0 it is the fixed-step solver of the q-FFL objective that q-FFL compares
with ("static step size" in the authors' code): w+ = w - (rate/|R|) sum F_k^q grad F_k. Those coefficients are not
normalised: their sum is the point of the method.
"""

import jax.numpy as jnp

from evenly.algorithms.fedavg import follow_sampling
from evenly.algorithms.method import Method
from evenly.algorithms.shares import shares
from evenly.clients.full_gradient import FullGradient
from evenly.records import is_number, leaf, record, require, static
from evenly.types import Array, Census, Effort, Signals, Tree


@record
class FedSGD:
    """Average the gradients, by size or equally; with q, each times its loss to the power q."""

    weights: str = static("size", doc="'size' or 'equal'; by default equal where clients are sampled by size")
    q: float = leaf(0.0, doc="power of the loss; 0 is plain FedSGD")

    def __post_init__(self) -> None:
        require(self.weights in ("size", "equal"), f"weights must be 'size' or 'equal', got {self.weights!r}.")
        if is_number(self.q):
            require(self.q >= 0, f"q must be at least 0, got {self.q}. Use q = 0 for plain FedSGD.")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"loss", "examples"} if self.weights == "size" else {"loss"})

    @property
    def counts_sizes(self) -> bool:
        return self.weights == "size"

    def init(self, census: Census) -> Tree:
        return ()

    def weigh(self, state: Tree, signals: Signals) -> tuple[Array, Tree]:
        raw = signals.examples if self.weights == "size" else jnp.ones_like(signals.examples)
        power = jnp.where(self.q == 0, 1.0, jnp.maximum(signals.loss, 0.0) ** self.q)
        return shares(raw, signals.returned) * jnp.where(signals.returned, power, 0.0), state

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

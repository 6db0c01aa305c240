"""Transformations of a batch's loss before it is differentiated.

PropFair (Zhang et al., "Proportional Fairness in Federated Learning", TMLR 2023) maximises the product of the clients'
utilities M - F_k. Each client trains on phi(l) = -log(M - l) of every *batch's* mean loss l, at its current weights; where
M - l falls under a small epsilon the logarithm is replaced by l / M.
"""

import jax
import jax.numpy as jnp

from evenly.records import is_number, leaf, record, require, static

Array = jax.Array


@record
class NashBargaining:
    """phi(l) = -log(1 - l/M) while M - l >= epsilon, else l / M (or l / epsilon with `huber`, which keeps the slope).

    -log(1 - l/M) has the gradient of -log(M - l) and is 0 at l = 0. The paper does not give epsilon; 0.2 is the code's.
    """

    M: float = leaf(default=5.0, doc="baseline utility: must exceed the usual loss; large M tends to FedAvg")
    epsilon: float = leaf(default=0.2, doc="where M - loss falls under it, the loss is divided by M instead")
    huber: bool = static(default=False, doc="whether the fallback keeps the slope 1 / epsilon")

    def __post_init__(self) -> None:
        if is_number(self.M) and is_number(self.epsilon):
            require(self.M > 0 and self.epsilon > 0, f"M and epsilon must be above 0, got {self.M} and {self.epsilon}.")

    def __call__(self, loss: Array) -> Array:
        inside = self.M - loss >= self.epsilon
        # Both branches are differentiated; the logarithm never sees an argument outside its domain.
        safe = jnp.where(inside, loss, 0.0)
        return jnp.where(inside, -jnp.log1p(-safe / self.M), loss / (self.epsilon if self.huber else self.M))

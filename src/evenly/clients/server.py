"""How the server moves its model along the change that the rule decided."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from evenly import trees
from evenly.clients.optimiser import Optimiser
from evenly.records import record
from evenly.types import Array, Server, Tree


@record
class OptimisedServer:
    """Let an optimiser move the model along the change that the rule decided (FedOpt: FedAdam, FedYogi, FedAdagrad, FedAvgM)."""

    optimiser: Optimiser

    def init(self, model: Tree) -> Tree:
        return self.optimiser.init(model)

    def update(self, change: Tree, state: Tree, model: Tree) -> tuple[Tree, Tree]:
        # The change points downhill; an optimiser expects a gradient, which points uphill.
        return self.optimiser.update(jax.tree.map(jnp.negative, change), state, model)

    def serve(self, model: Tree, state: Tree) -> Tree:
        return model


class Blend(NamedTuple):
    """What becomes of the model: so much of it is kept, and the sum of the clients' changes is added."""

    kept: Array
    total: Tree


@record
class BlendingServer:
    """Serve the sum of the clients' models, sum v_k w_k, where the coefficients v_k need not sum to 1.

    Clients send changes, w_k - w, so the sum is (sum v_k) w + sum v_k (w_k - w): the rule hands on both parts.
    """

    def init(self, model: Tree) -> Tree:
        return ()

    def update(self, change: Blend, state: Tree, model: Tree) -> tuple[Tree, Tree]:
        return jax.tree.map(lambda own, total: jnp.asarray(change.kept * own + total, own.dtype), model, change.total), state

    def serve(self, model: Tree, state: Tree) -> Tree:
        return model


class Averaged(NamedTuple):
    """The iterates so far."""

    rounds: Array
    mean: Tree
    inner: Tree


@record
class AveragingServer:
    """Move as the inner server does (or add the change), and serve the mean of the iterates w_1..w_t, without w_0.

    A round in which nobody's update counted leaves no iterate.
    """

    inner: Server | None = None

    def init(self, model: Tree) -> Averaged:
        return Averaged(jnp.zeros(()), trees.zeros_like(model), () if self.inner is None else self.inner.init(model))

    def update(self, change: Tree, state: Averaged, model: Tree) -> tuple[Tree, Averaged]:
        if self.inner is None:
            model, inner = trees.add(model, change), ()
        else:
            model, inner = self.inner.update(change, state.inner, model)
        rounds = state.rounds + 1
        mean = jax.tree.map(lambda old, new: old + (new - old) / rounds, state.mean, model)
        return model, Averaged(rounds, mean, inner)

    def serve(self, model: Tree, state: Averaged) -> Tree:
        return jax.tree.map(lambda last, mean: jnp.where(state.rounds > 0, mean, last), model, state.mean)

"""Local training: some epochs of mini-batch steps on the client's own loss, then send what changed."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from evenly import trees
from evenly.clients.optimiser import Factory, Optimiser
from evenly.clients.shaping import NashBargaining
from evenly.data.federation import Shard
from evenly.models.linear import over_runs
from evenly.records import is_number, leaf, record, replace, require, static
from evenly.types import Task, Tree


class Local(NamedTuple):
    """A client in the middle of its local training."""

    model: Tree
    optimiser: Tree


@record
class LocalTraining:
    """Epochs of mini-batch steps from the received model; the vector is trained minus received."""

    learning_rate: float = leaf(default=0.1, doc="local step size")
    epochs: int = static(default=1, doc="passes over the client's training rows in a round")
    batch_size: int = static(default=10, doc="rows in a local step; the last batch of an epoch may be smaller")
    mu: float | None = leaf(default=0.0, doc="strength of FedProx's pull towards the received model; 0 is plain local training")
    optimiser: str | Factory = static(default="sgd")
    options: dict[str, Any] = leaf(default_factory=dict)
    shape: NashBargaining | None = None
    max_steps: int = static(default=0, doc="local steps in a round at most; 0 is no limit")
    shuffle: bool = static(default=True)

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch_size, self.max_steps)
        if self.mu is not None and is_number(self.mu):
            require(self.mu >= 0, f"mu must be at least 0, got {self.mu}. Use 0 for plain local training.")
        if is_number(self.learning_rate):
            self._optimiser()

    def remember(self, model: Tree) -> Tree:
        return None

    def start(self, task: Task, received: Tree, memory: Tree) -> Local:
        return Local(received, self._optimiser().init(received))

    def step(self, task: Task, received: Tree, local: Local, batch: Shard) -> Local:
        gradient = jax.grad(lambda model: self._objective(task, model, batch).sum())(local.model)
        if self.mu is not None:
            gradient = jax.tree.map(lambda g, v, w: g + self.mu * (v - w), gradient, local.model, received)
        return Local(*self._optimiser().update(gradient, local.optimiser, local.model))

    def finish(self, task: Task, received: Tree, local: Local) -> tuple[Tree, Tree]:
        return trees.subtract(local.model, received), None

    def deploy(self, model: Tree, memory: Tree) -> Tree:
        return model

    def simplified(self) -> "LocalTraining":
        """The same work without the pull, where it is 0: a program then need not read the received model in every step."""
        return replace(self, mu=None) if self.mu == 0 else self

    def _objective(self, task: Task, model: Tree, batch: Shard) -> jax.Array:
        loss = batch_loss(task, model, batch)
        return loss if self.shape is None else self.shape(loss)

    def _optimiser(self) -> Optimiser:
        return Optimiser(learning_rate=self.learning_rate, kind=self.optimiser, options=self.options)


def batch_loss(task: Task, params: Tree, batch: Shard) -> jax.Array:
    """Mean (or sum) of a batch's weighted losses plus the penalty: a scalar, or one per run."""
    total = summed_loss(task, params, batch)
    return total / jnp.maximum(batch.mask.sum(), 1.0) + task.penalty(params) if task.reduction == "mean" else total + task.penalty(params)


def summed_loss(task: Task, params: Tree, batch: Shard) -> jax.Array:
    losses = task.losses(params, batch)
    counted = over_runs(batch.mask, batch.weight) * batch.weight  # a weight may differ between runs
    return (losses * over_runs(counted, losses)).sum(0)


def check_schedule(epochs: Any, batch_size: Any, max_steps: Any = 0) -> None:
    for name, value, least in (("epochs", epochs, 1), ("batch_size", batch_size, 1), ("max_steps", max_steps, 0)):
        require(isinstance(value, int) and value >= least, f"{name} must be a whole number of at least {least}, got {value!r}.")

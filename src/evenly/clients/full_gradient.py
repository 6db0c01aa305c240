"""One full-batch gradient step: the client's gradient at the received model, times the learning rate."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from evenly import trees
from evenly.clients.local_training import check_schedule, summed_loss
from evenly.data.federation import Shard
from evenly.records import is_number, leaf, record, require, static
from evenly.types import Task, Tree


class Gathered(NamedTuple):
    """A gradient summed over the batches seen so far."""

    gradient: Tree
    examples: jax.Array


@record
class FullGradient:
    """The vector is -learning_rate times the gradient of the client's loss over all its training rows.

    Rows are read in batches only to bound memory; the result does not depend on their size.
    """

    learning_rate: float = leaf(default=0.1, doc="step size")
    batch_size: int = static(default=128)
    epochs: int = static(default=1)
    shuffle: bool = static(default=False)
    max_steps: int = static(default=0)

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch_size)
        if is_number(self.learning_rate):
            require(self.learning_rate > 0, f"learning_rate must be above 0, got {self.learning_rate}.")

    def remember(self, model: Tree) -> Tree:
        return None

    def start(self, task: Task, received: Tree, memory: Tree) -> Gathered:
        return Gathered(trees.zeros_like(received), jnp.zeros(()))

    def step(self, task: Task, received: Tree, local: Gathered, batch: Shard) -> Gathered:
        gradient = jax.grad(lambda model: summed_loss(task, model, batch).sum())(received)
        return Gathered(trees.add(local.gradient, gradient), local.examples + batch.mask.sum())

    def finish(self, task: Task, received: Tree, local: Gathered) -> tuple[Tree, Tree]:
        rows = jnp.maximum(local.examples, 1.0) if task.reduction == "mean" else 1.0
        penalty = jax.grad(lambda model: jnp.sum(jnp.asarray(task.penalty(model))))(received)
        return jax.tree.map(lambda g, p: -self.learning_rate * (g / rows + p), local.gradient, penalty), None

    def deploy(self, model: Tree, memory: Tree) -> Tree:
        return model

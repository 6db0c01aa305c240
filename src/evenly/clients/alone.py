"""Clients that train alone: each keeps a model of its own and shares nothing."""

from typing import Any

import jax
import jax.numpy as jnp

from evenly import trees
from evenly.clients.local_training import Local, LocalTraining
from evenly.clients.optimiser import Factory
from evenly.data.federation import Shard
from evenly.records import leaf, record, static
from evenly.types import Task, Tree


@record
class TrainingAlone:
    """Go on training the client's own model, from the common first one; the vector is zero.

    A local optimiser starts anew in every round, as it does where clients share.
    """

    learning_rate: float = leaf(default=0.1, doc="local step size")
    epochs: int = static(default=1, doc="passes over the client's training rows in a round")
    batch_size: int = static(default=10, doc="rows in a local step; the last batch of an epoch may be smaller")
    optimiser: str | Factory = static(default="sgd")
    options: dict[str, Any] = leaf(default_factory=dict)
    max_steps: int = static(default=0, doc="local steps in a round at most; 0 is no limit")
    shuffle: bool = static(default=True)

    def __post_init__(self) -> None:
        self._training()

    def remember(self, model: Tree) -> Tree:
        return model

    def start(self, task: Task, received: Tree, memory: Tree) -> Local:
        return self._training().start(task, memory, None)

    def step(self, task: Task, received: Tree, local: Local, batch: Shard) -> Local:
        return self._training().step(task, local.model, local, batch)

    def finish(self, task: Task, received: Tree, local: Local) -> tuple[Tree, Tree]:
        # A client whose training broke says so: it is counted as excluded, and keeps the model it had.
        nothing = jnp.where(trees.all_finite(local.model), 0.0, jnp.nan)
        return jax.tree.map(lambda m: jnp.zeros_like(m) + nothing.astype(m.dtype), received), local.model

    def deploy(self, model: Tree, memory: Tree) -> Tree:
        return memory

    def _training(self) -> LocalTraining:
        return LocalTraining(
            learning_rate=self.learning_rate, epochs=self.epochs, batch_size=self.batch_size,
            optimiser=self.optimiser, options=self.options, max_steps=self.max_steps,
        )  # fmt: skip

"""Personal models beside the shared one: each client keeps a model of its own between rounds."""

from typing import NamedTuple

import jax

from evenly.clients.local_training import Local, LocalTraining, batch_loss
from evenly.records import is_number, leaf, record, require, static
from evenly.types import Shard, Task, Tree


class Both(NamedTuple):
    """A client that trains the shared model and its own at once."""

    shared: Local
    own: Tree


@record
class PersonalTraining:
    """Train the shared model as usual; with the same batches pull the personal one towards the model received.

    Ditto's step: v <- v - rate (grad F_k(v) + pull (v - w)), w the round's received model.
    """

    learning_rate: float = leaf(default=0.1, doc="local step size, of both models")
    pull: float = leaf(default=1.0, doc="lambda: 0 trains personal models alone, large values tie them to the shared one")
    epochs: int = static(default=1, doc="passes over the client's training rows in a round")
    batch_size: int = static(default=10, doc="rows in a local step; the last batch of an epoch may be smaller")
    shuffle: bool = static(default=True)
    max_steps: int = static(default=0)

    def __post_init__(self) -> None:
        if is_number(self.learning_rate):
            self._shared()
        if is_number(self.pull):
            require(self.pull >= 0, f"pull must be at least 0, got {self.pull}.")

    def remember(self, model: Tree) -> Tree:
        return model

    def start(self, task: Task, received: Tree, memory: Tree) -> Both:
        return Both(self._shared().start(task, received, None), memory)

    def step(self, task: Task, received: Tree, local: Both, batch: Shard) -> Both:
        shared = self._shared().step(task, received, local.shared, batch)
        gradient = jax.grad(lambda model: batch_loss(task, model, batch).sum())(local.own)
        own = jax.tree.map(lambda v, g, w: v - self.learning_rate * (g + self.pull * (v - w)), local.own, gradient, received)
        return Both(shared, own)

    def finish(self, task: Task, received: Tree, local: Both) -> tuple[Tree, Tree]:
        vector, _ = self._shared().finish(task, received, local.shared)
        return vector, local.own

    def deploy(self, model: Tree, memory: Tree) -> Tree:
        return memory

    def _shared(self) -> LocalTraining:
        return LocalTraining(learning_rate=self.learning_rate, epochs=self.epochs, batch_size=self.batch_size)

"""Personal models beside the shared one: each client keeps a model of its own between rounds."""

from typing import Any, NamedTuple

from evenly.clients.local_training import Local, LocalTraining
from evenly.clients.optimiser import Factory
from evenly.data.federation import Shard
from evenly.records import is_number, leaf, record, require, static
from evenly.types import Task, Tree


class Both(NamedTuple):
    """A client that trains the shared model and its own at once."""

    shared: Local
    own: Local


@record
class PersonalTraining:
    """Train the shared model as usual; with the same batches train the personal one, pulled towards the model received.

    Ditto's step: v <- v - rate (grad F_k(v) + pull (v - w)), w the round's received model. It is FedProx's step, but from
    the client's own v. A local optimiser moves both models and starts anew in every round.
    """

    learning_rate: float = leaf(default=0.1, doc="local step size, of both models")
    pull: float = leaf(default=1.0, doc="lambda: 0 trains personal models alone, large values tie them to the shared one")
    epochs: int = static(default=1, doc="passes over the client's training rows in a round")
    batch_size: int = static(default=10, doc="rows in a local step; the last batch of an epoch may be smaller")
    optimiser: str | Factory = static(default="sgd")
    options: dict[str, Any] = leaf(default_factory=dict)
    max_steps: int = static(default=0, doc="local steps in a round at most; 0 is no limit")
    shuffle: bool = static(default=True)

    def __post_init__(self) -> None:
        if is_number(self.pull):
            require(self.pull >= 0, f"pull must be at least 0, got {self.pull}. Use 0 to train personal models alone.")
        self._training(None)

    def remember(self, model: Tree) -> Tree:
        return model

    def start(self, task: Task, received: Tree, memory: Tree) -> Both:
        shared = self._training(None).start(task, received, None)
        return Both(shared, Local(memory, shared.optimiser))

    def step(self, task: Task, received: Tree, local: Both, batch: Shard) -> Both:
        shared, own = self._training(None), self._training(self.pull)
        return Both(shared.step(task, received, local.shared, batch), own.step(task, received, local.own, batch))

    def finish(self, task: Task, received: Tree, local: Both) -> tuple[Tree, Tree]:
        vector, _ = self._training(None).finish(task, received, local.shared)
        return vector, local.own.model

    def deploy(self, model: Tree, memory: Tree) -> Tree:
        return memory

    def _training(self, mu: float | None) -> LocalTraining:
        return LocalTraining(
            learning_rate=self.learning_rate, epochs=self.epochs, batch_size=self.batch_size, mu=mu,
            optimiser=self.optimiser, options=self.options, max_steps=self.max_steps,
        )  # fmt: skip

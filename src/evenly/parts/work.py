"""Local work of clients: local training, full gradients, personal models, and the reweighing of
rows.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenly import trees
from evenly.data.federation import Shard
from evenly.models.linear import over_runs
from evenly.models.task import TrainingTask
from evenly.parts.optimisers import Factory, Optimiser
from evenly.randomness import poisson_room, poisson_steps
from evenly.records import is_number, leaf, record, replace, static
from evenly.types import Prepare, Task, Tree, Work

# Transformations of a batch's loss before it is differentiated.
#
# PropFair (Zhang et al., "Proportional Fairness in Federated Learning", TMLR 2023) maximises the
# product of the clients' utilities M - F_k. Each client trains on phi(l) = -log(M - l) of every
# *batch's* mean loss l, at its current weights; where M - l falls under a small epsilon the
# logarithm is replaced by l / M.

Array = jax.Array


@record
class NashBargaining:
    """phi(l) = -log(1 - l/M) while M - l >= epsilon, else l / M (or l / epsilon with `huber`, which
    keeps the slope).

    -log(1 - l/M) has the gradient of -log(M - l) and is 0 at l = 0. The paper has no epsilon; 0.2
    is the value in the authors' code.
    """

    M: float = leaf(
        default=5.0,
        above=0,
        doc="baseline utility M; must exceed typical losses, and large values approach FedAvg",
    )
    epsilon: float = leaf(
        default=0.2,
        above=0,
        doc="if M - loss is below this value, the client minimises loss / M instead",
    )
    huber: bool = static(
        default=False, doc="whether the fallback has the slope 1 / epsilon instead of 1 / M"
    )

    def __call__(self, loss: Array) -> Array:
        inside = self.M - loss >= self.epsilon
        # Both branches are differentiated, so the logarithm must not get an argument outside its
        # domain.
        safe = jnp.where(inside, loss, 0.0)
        return jnp.where(
            inside, -jnp.log1p(-safe / self.M), loss / (self.epsilon if self.huber else self.M)
        )


# Local training: epochs of mini-batch steps on the client's own loss.


class LocalState(NamedTuple):
    """A client in the middle of its local training."""

    model: Tree
    optimiser: Tree


@record
class LocalTraining:
    """Epochs of mini-batch steps from the received model; the vector is trained minus received."""

    learning_rate: float = leaf(default=0.1, doc="learning rate of local training")
    epochs: int = static(default=1, least=1, doc="local epochs per round")
    batch_size: int = static(
        default=10,
        least=1,
        doc="batch size of local training; the last batch of an epoch may be smaller",
    )
    mu: float | None = leaf(
        default=0.0,
        least=0,
        doc="coefficient of FedProx's proximal term; 0 trains without it",
    )
    optimiser: str | Factory = static(default="sgd")
    options: dict[str, Any] = leaf(default_factory=dict)
    shape: NashBargaining | None = None
    max_steps: int = static(
        default=0, least=0, doc="maximum number of local steps per round; 0 means no limit"
    )
    shuffle: bool = static(default=True, doc="whether rows are visited in random order")

    def __post_init__(self) -> None:
        if is_number(self.learning_rate):
            self._optimiser()

    def remember(self, model: Tree) -> Tree:
        return None

    def start(self, task: Task, received: Tree, memory: Tree) -> LocalState:
        return LocalState(received, self._optimiser().init(trees.learned(received)))

    def step(
        self, task: Task, received: Tree, local: LocalState, batch: Shard, key: Any = None
    ) -> LocalState:
        def objective(params: Tree) -> tuple[jax.Array, Tree]:
            model = trees.with_learned(local.model, params)
            loss, state = training_loss(task, model, batch, key)
            return (loss if self.shape is None else self.shape(loss)).sum(), state

        gradient, state = jax.grad(objective, has_aux=True)(trees.learned(local.model))
        return self.descend(received, local, gradient, state)

    def descend(
        self, received: Tree, local: LocalState, gradient: Tree, state: Tree = ()
    ) -> LocalState:
        """The local state after the optimiser's step along a gradient of the loss."""
        params = trees.learned(local.model)
        if self.mu is not None:
            gradient = jax.tree.map(
                lambda g, v, w: g + self.mu * (v - w), gradient, params, trees.learned(received)
            )
        params, optimiser = self._optimiser().update(gradient, local.optimiser, params)
        return LocalState(_joined(local.model, params, state), optimiser)

    def finish(self, task: Task, received: Tree, local: LocalState) -> tuple[Tree, Tree]:
        return trees.subtract(local.model, received), None

    def deploy(self, model: Tree, memory: Tree) -> Tree:
        return model

    def simplified(self) -> "LocalTraining":
        """The same work without the pull if it is 0, so that a program does not read the received
        model in every step.
        """
        return replace(self, mu=None) if self.mu == 0 else self

    def _optimiser(self) -> Optimiser:
        return Optimiser(
            learning_rate=self.learning_rate, kind=self.optimiser, options=self.options
        )


def batch_loss(task: Task, model: Tree, batch: Shard, key: Any = None) -> jax.Array:
    """The loss of `training_loss`, without the state."""
    return training_loss(task, model, batch, key)[0]


def training_loss(task: Task, model: Tree, batch: Shard, key: Any) -> tuple[jax.Array, Tree]:
    """Mean (or sum) of a batch's weighted losses plus the penalty: a scalar, or one per run; and
    the new state of the model, if it has one.
    """
    total, state = summed_loss(task, model, batch, key)
    mean = total / jnp.maximum(batch.mask.sum(), 1.0) if task.reduction == "mean" else total
    return mean + task.penalty(model), state


def summed_loss(task: Task, model: Tree, batch: Shard, key: Any) -> tuple[jax.Array, Tree]:
    """Sum of a batch's weighted losses, and the new state of the model."""
    if isinstance(task, TrainingTask):
        losses, state = task.train_losses(model, batch, key)
    else:
        losses, state = task.losses(model, batch), ()
    counted = over_runs(batch.mask, batch.weight) * batch.weight  # a weight may differ between runs
    return (losses * over_runs(counted, losses)).sum(0), state


def penalty_gradient(task: Task, model: Tree) -> Tree:
    """Gradient of the regularisation term, which reads no rows."""
    return jax.grad(lambda own: jnp.sum(jnp.asarray(task.penalty(trees.with_learned(model, own)))))(
        trees.learned(model)
    )


def _joined(model: Tree, params: Tree, state: Tree) -> Tree:
    """New parameters with the new state, where the model has one."""
    return trees.Stateful(params, state) if isinstance(model, trees.Stateful) else params


# One full-batch gradient step: the client's gradient at the received model, times the learning
# rate.


class Gathered(NamedTuple):
    """The gradient summed over the batches so far, their number of rows, and the received model
    with its state after them.
    """

    gradient: Tree
    examples: jax.Array
    model: Tree


@record
class FullGradient:
    """The vector is -learning_rate times the gradient of the client's loss over all its training
    rows.

    Rows are read in batches only to bound memory; the result does not depend on their size.
    """

    learning_rate: float = leaf(default=0.1, above=0, doc="learning rate")
    batch_size: int = static(default=128, least=1)
    epochs: int = static(default=1, least=1)
    shuffle: bool = static(default=False)
    max_steps: int = static(default=0)

    def remember(self, model: Tree) -> Tree:
        return None

    def start(self, task: Task, received: Tree, memory: Tree) -> Gathered:
        return Gathered(trees.zeros_like(trees.learned(received)), jnp.zeros(()), received)

    def step(
        self, task: Task, received: Tree, local: Gathered, batch: Shard, key: Any = None
    ) -> Gathered:
        def objective(params: Tree) -> tuple[jax.Array, Tree]:
            loss, state = summed_loss(task, trees.with_learned(local.model, params), batch, key)
            return loss.sum(), state

        params = trees.learned(received)
        gradient, state = jax.grad(objective, has_aux=True)(params)
        return Gathered(
            trees.add(local.gradient, gradient),
            local.examples + batch.mask.sum(),
            _joined(local.model, params, state),
        )

    def finish(self, task: Task, received: Tree, local: Gathered) -> tuple[Tree, Tree]:
        rows = jnp.maximum(local.examples, 1.0) if task.reduction == "mean" else 1.0
        vector = jax.tree.map(
            lambda g, p: -self.learning_rate * (g / rows + p),
            local.gradient,
            penalty_gradient(task, received),
        )
        if isinstance(received, trees.Stateful):
            moved = trees.subtract(local.model.state, received.state)
            vector = trees.Stateful(vector, moved)
        return vector, None

    def deploy(self, model: Tree, memory: Tree) -> Tree:
        return model


# Personal models: each client keeps a model of its own between rounds, besides the shared one.


class Both(NamedTuple):
    """Local states of the shared and of the personal model, which train at the same time."""

    shared: LocalState
    personal: LocalState


@record
class PersonalTraining:
    """Train the shared model and, with the same batches, a personal model that is pulled towards
    the received model.

    Ditto's step for the personal model v, with the received model w, is v <- v - rate (grad F_k(v)
    + pull (v - w)). It equals FedProx's step, but starts from the client's own v. A local optimiser
    moves both models and is reset in every round.
    """

    learning_rate: float = leaf(default=0.1, doc="learning rate of both models")
    pull: float = leaf(
        default=1.0,
        least=0,
        doc=(
            "lambda, which keeps personal models close to the shared one; 0 trains them"
            " independently"
        ),
    )
    epochs: int = static(default=1, least=1, doc="local epochs per round")
    batch_size: int = static(
        default=10,
        least=1,
        doc="batch size of local training; the last batch of an epoch may be smaller",
    )
    optimiser: str | Factory = static(default="sgd")
    options: dict[str, Any] = leaf(default_factory=dict)
    max_steps: int = static(
        default=0, least=0, doc="maximum number of local steps per round; 0 means no limit"
    )
    shuffle: bool = static(default=True, doc="whether rows are visited in random order")

    def __post_init__(self) -> None:
        self._training(None)

    def remember(self, model: Tree) -> Tree:
        return model

    def start(self, task: Task, received: Tree, memory: Tree) -> Both:
        shared = self._training(None).start(task, received, None)
        return Both(shared, LocalState(memory, shared.optimiser))

    def step(self, task: Task, received: Tree, local: Both, batch: Shard, key: Any = None) -> Both:
        shared, personal = self._training(None), self._training(self.pull)
        return Both(
            shared.step(task, received, local.shared, batch, key),
            personal.step(task, received, local.personal, batch, key),
        )

    def finish(self, task: Task, received: Tree, local: Both) -> tuple[Tree, Tree]:
        vector, _ = self._training(None).finish(task, received, local.shared)
        return vector, local.personal.model

    def deploy(self, model: Tree, memory: Tree) -> Tree:
        return memory

    def _training(self, mu: float | None) -> LocalTraining:
        return LocalTraining(
            learning_rate=self.learning_rate, epochs=self.epochs, batch_size=self.batch_size, mu=mu,
            optimiser=self.optimiser, options=self.options, max_steps=self.max_steps,
        )  # fmt: skip


# Training without federation: each client keeps a model of its own and shares nothing.


@record
class TrainingAlone:
    """Continue training the client's own model, which starts from the common initial model. The
    vector is zero.

    A local optimiser is reset in every round, as in federated training.
    """

    learning_rate: float = leaf(default=0.1, doc="learning rate of local training")
    epochs: int = static(default=1, least=1, doc="local epochs per round")
    batch_size: int = static(
        default=10,
        least=1,
        doc="batch size of local training; the last batch of an epoch may be smaller",
    )
    optimiser: str | Factory = static(default="sgd")
    options: dict[str, Any] = leaf(default_factory=dict)
    max_steps: int = static(
        default=0, least=0, doc="maximum number of local steps per round; 0 means no limit"
    )
    shuffle: bool = static(default=True, doc="whether rows are visited in random order")

    def __post_init__(self) -> None:
        self._training()

    def remember(self, model: Tree) -> Tree:
        return model

    def start(self, task: Task, received: Tree, memory: Tree) -> LocalState:
        return self._training().start(task, memory, None)

    def step(
        self, task: Task, received: Tree, local: LocalState, batch: Shard, key: Any = None
    ) -> LocalState:
        return self._training().step(task, local.model, local, batch, key)

    def finish(self, task: Task, received: Tree, local: LocalState) -> tuple[Tree, Tree]:
        # NaN marks a client whose training diverged: it is counted as excluded and keeps its
        # previous model.
        nothing = jnp.where(trees.all_finite(local.model), 0.0, jnp.nan)
        return (
            jax.tree.map(lambda m: jnp.full_like(m, nothing), received),
            local.model,
        )

    def deploy(self, model: Tree, memory: Tree) -> Tree:
        return memory

    def _training(self) -> LocalTraining:
        return LocalTraining(
            learning_rate=self.learning_rate, epochs=self.epochs, batch_size=self.batch_size,
            optimiser=self.optimiser, options=self.options, max_steps=self.max_steps,
        )  # fmt: skip


def row_rate(work: Work) -> float:
    """Probability of a row to be in a batch, where rows are drawn independently; 0 where rows are
    dealt to batches. Only work that declares a `row_rate` draws them.
    """
    return getattr(work, "row_rate", 0.0)


def batch_room(work: Work, rows: np.ndarray) -> int:
    """Entries of a batch that hold any batch of clients with so many training rows each."""
    rate = row_rate(work)
    return poisson_room(int(rows.max(initial=0)), rate) if rate else work.batch_size


def local_steps(work: Work, rows: np.ndarray) -> np.ndarray:
    """Local steps in a round of clients with so many training rows each."""
    if rate := row_rate(work):
        return np.where(rows > 0, poisson_steps(rate, work.epochs, work.max_steps), 0)
    steps = work.epochs * -(-rows // work.batch_size)
    return np.minimum(steps, work.max_steps) if work.max_steps else steps


# Rows reweighed once, so that on every client label and group are independent.
#
# Kamiran, Calders, "Data preprocessing techniques for classification without discrimination",
# Knowledge and Information Systems 2012; used in federated learning as "local debiasing"
# (Gonfiantini, Master's thesis, University of Genoa, 2026).


@record
class Reweigh:
    """Weight a row of group a and label y by P(a) P(y) / P(a, y) in its client's loss, from the
    client's own counts.

    Among the weighted rows, group and label are then independent, and each is as frequent as
    before. The loss of a batch is still divided by its number of rows. Sizes, reported losses and
    evaluation are not weighted. If a client lacks a combination of group and label, the weights of
    the other rows sum to less than the number of rows, unless `rescale` is set.

    Args:
        rescale: Whether to scale a client's weights to a mean of 1.
        cap: Largest weight of a row; 0 means no limit.

    Raises:
        ValueError: If a setting is not legal.

    Example:
        >>> Reweigh().weights(y=np.array([1, 1, 1, 0]), group=np.array([0, 0, 1, 1])).tolist()
        [0.75, 0.75, 1.5, 0.5]
    """

    rescale: bool = static(
        default=False, doc="whether the row weights of a client are scaled to a mean of 1"
    )
    cap: float = static(default=0.0, least=0, doc="largest weight of a row; 0 means no limit")

    def weights(self, y: np.ndarray, group: np.ndarray) -> np.ndarray:
        """Weights of the rows of one client, from their labels and groups. [n]"""
        (_, a), (_, label) = (np.unique(values, return_inverse=True) for values in (group, y))
        cells = np.zeros((a.max(initial=0) + 1, label.max(initial=0) + 1))
        np.add.at(cells, (a, label), 1)
        expected = np.outer(cells.sum(1), cells.sum(0)) / max(len(y), 1)
        weights = (expected[a, label] / cells[a, label]).astype(np.float64)
        weights = weights / weights.mean() if self.rescale and len(weights) else weights
        return np.minimum(weights, self.cap) if self.cap else weights


PREPARES: dict[str, type[Prepare]] = {"reweigh": Reweigh}
"""Weights of rows by their name in the notation, such as `fedavg+reweigh`.

Example:
    >>> PREPARES["reweigh"]().cap
    0.0
"""

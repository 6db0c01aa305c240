"""Edge-popup: a client looks for the edges of a frozen network that serve its own data, and sends their order.

Ramanujan et al., CVPR 2020, as E2FL (Algorithms 1 and 5) and FRL use it. The scores are read off the received order, then
moved by SGD: the forward pass uses only the edges whose scores are highest, the backward pass lets all scores through
(straight-through): dL/ds = dL/dw * frozen weight, for every edge, kept or not. At the end the client ranks its edges by score.

Inside a step, edges whose scores equal the lowest kept one exactly are all kept; orders that are sent, and the models made of
them, keep exactly the share k.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from evenly import trees
from evenly.clients.local_training import batch_loss, check_schedule
from evenly.data.federation import Shard
from evenly.ranking.ballots import Ballot, ballot
from evenly.ranking.order import dropped, places
from evenly.ranking.supernetwork import Supernetwork
from evenly.ranking.threshold import kth_lowest
from evenly.records import is_number, leaf, record, require, static
from evenly.types import Array, Task, Tree


class Searching(NamedTuple):
    """A client in the middle of its search."""

    scores: Tree
    velocity: Tree


@record
class EdgePopup:
    """Epochs of mini-batch steps on the scores; the vector is the client's ballot, its new places, not a difference.

    SGD as PyTorch has it: g + decay * s is added to the momentum's velocity, which starts at zero in every round.
    """

    learning_rate: float = leaf(default=0.1, doc="local step size, of the scores")
    momentum: float = leaf(default=0.9, doc="share of the last step that is taken again; forgotten between rounds")
    weight_decay: float = leaf(default=1e-4, doc="pull of the scores towards zero")
    epochs: int = static(default=2, doc="passes over the client's training rows in a round")
    batch_size: int = static(default=8, doc="rows in a local step; the last batch of an epoch may be smaller")
    max_steps: int = static(default=0, doc="local steps in a round at most; 0 is no limit")
    shuffle: bool = static(default=True)

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.batch_size, self.max_steps)
        if is_number(self.learning_rate):
            require(self.learning_rate > 0, f"learning_rate must be above 0, got {self.learning_rate}.")
        if is_number(self.momentum):
            require(0 <= self.momentum < 1, f"momentum must be at least 0 and below 1, got {self.momentum}.")
        if is_number(self.weight_decay):
            require(self.weight_decay >= 0, f"weight_decay must be at least 0, got {self.weight_decay}.")

    def remember(self, model: Tree) -> Tree:
        return None

    def start(self, task: Task, received: Tree, memory: Tree) -> Searching:
        scores = frozen(task).scores_at(received)
        return Searching(scores, trees.zeros_like(scores))

    def step(self, task: Task, received: Tree, local: Searching, batch: Shard) -> Searching:
        gradient = score_gradient(frozen(task), local.scores, batch)
        velocity = jax.tree.map(lambda v, g, s: self.momentum * v + g + self.weight_decay * s, local.velocity, gradient, local.scores)
        return Searching(jax.tree.map(lambda s, v: s - self.learning_rate * v, local.scores, velocity), velocity)

    def finish(self, task: Task, received: Tree, local: Searching) -> tuple[Ballot, Tree]:
        ranked = jax.tree.map(jnp.abs, local.scores) if frozen(task).scores == "abs" else local.scores
        vote = ballot(jax.tree.map(places, ranked))
        # NaN has a place in every order: without this a client whose training broke would be counted.
        whole = trees.all_finite(local.scores)
        return jax.tree.map(lambda part: jnp.where(whole, part, jnp.nan), vote), None

    def deploy(self, model: Tree, memory: Tree) -> Tree:
        return model


def score_gradient(task: Supernetwork, scores: Tree, batch: Shard) -> Tree:
    """The straight-through gradient of a batch's loss with respect to the scores."""
    kept = jax.tree.map(lambda s: score_mask(s, k=task.k, by_magnitude=task.scores != "raw"), scores)
    gradient = jax.grad(lambda weights: batch_loss(task.inner, weights, batch))(task.subnetwork(kept))
    through = jax.tree.map(jnp.multiply, gradient, task.weights)
    return through if task.scores == "raw" else jax.tree.map(lambda g, s: g * jnp.sign(s), through, scores)


def score_mask(scores: Array, *, k: float, by_magnitude: bool = False) -> Array:
    """1 for the edges of a layer whose scores (or their magnitudes) are among the highest share k; ties at the border are kept."""
    values = jnp.abs(scores) if by_magnitude else scores
    return (values >= kth_lowest(values, dropped(values.size, k))).astype(jnp.float32)


def frozen(task: Task) -> Supernetwork:
    """The task, which must be one of ranking edges."""
    if not isinstance(task, Supernetwork):
        raise TypeError(
            f"Edge-popup ranks the edges of a network with frozen weights, but the task is {type(task).__name__}. "
            "Wrap it: evenly.ranking.supernetwork(task, k=0.5, seed=0)."
        )
    return task

"""Local work and server step of methods that rank edges (edge-popup, FRL)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from evenly import trees
from evenly.data.federation import Shard
from evenly.parts.ranking import (
    Ballot,
    Supernetwork,
    ballot,
    dropped,
    elect,
    elect_groups,
    kth_lowest,
    places,
)
from evenly.parts.work import batch_loss
from evenly.records import leaf, record, static
from evenly.types import Array, Server, Task, Tree, Work

# Edge-popup: a client looks for the edges of a frozen network that serve its own data, and sends
# their order.
#
# Ramanujan et al., CVPR 2020, as E2FL (Algorithms 1 and 5) and FRL use it. The scores are read off
# the received order, then moved by SGD: the forward pass uses only the edges whose scores are
# highest, the backward pass lets all scores through (straight-through): dL/ds = dL/dw * frozen
# weight, for every edge, kept or not. At the end the client ranks its edges by score.
#
# FRL's public code also lowers the learning rate, by a factor from one round to the next
# (`round_decay`) and along a cosine from one local epoch to the next (`cosine`). E2FL's text has
# neither, so that both are off unless they are set.
#
# Inside a step, edges whose scores equal the lowest kept one exactly are all kept; orders that are
# sent, and the models made of them, keep exactly the share k.


class Searching(NamedTuple):
    """A client in the middle of its search."""

    scores: Tree
    velocity: Tree
    steps: Array | None = None  # steps so far, where the learning rate depends on the epoch


@record
class EdgePopup:
    """Epochs of mini-batch steps on the scores; the vector is the client's ballot, its new places,
    not a difference.

    SGD as PyTorch has it: g + decay * s is added to the momentum's velocity, which starts at zero
    in every round.
    """

    learning_rate: float = leaf(default=0.1, above=0, doc="learning rate of the scores")
    momentum: float = leaf(
        default=0.9,
        least=0,
        below=1,
        doc="momentum of local training, reset in every round",
    )
    weight_decay: float = leaf(default=1e-4, least=0, doc="weight decay of the scores")
    round_decay: float = static(
        default=1.0,
        above=0,
        most=1,
        doc="factor of the learning rate from one round to the next; FRL's code has 0.999",
    )
    cosine: bool = static(
        default=False,
        doc=(
            "whether the learning rate falls along a cosine from one local epoch to the next, as in"
            " FRL's code"
        ),
    )
    epochs: int = static(default=2, least=1, doc="local epochs per round")
    batch_size: int = static(
        default=8,
        least=1,
        doc="batch size of local training; the last batch of an epoch may be smaller",
    )
    max_steps: int = static(
        default=0, least=0, doc="maximum number of local steps per round; 0 means no limit"
    )
    shuffle: bool = static(default=True, doc="whether rows are visited in random order")

    def remember(self, model: Tree) -> Tree:
        return None

    def start(self, task: Task, received: Tree, memory: Tree) -> Searching:
        scores = frozen(task).scores_at(received)
        steps = jnp.int32(0) if is_scheduled(self) else None
        return Searching(scores, trees.zeros_like(scores), steps)

    def rate_factor(self, number: Any, epoch: Any) -> Any:
        """What the learning rate is multiplied by in a round and one of its local epochs, both
        numbered from 0.
        """
        within = (1 + jnp.cos(jnp.pi * epoch / self.epochs)) / 2 if self.cosine else 1.0
        return self.round_decay**number * within

    def step(
        self, task: Task, received: Tree, local: Searching, batch: Shard, key: Any = None
    ) -> Searching:
        gradient = score_gradient(frozen(task), local.scores, batch, key)
        velocity = jax.tree.map(
            lambda v, g, s: self.momentum * v + g + self.weight_decay * s,
            local.velocity,
            gradient,
            local.scores,
        )
        rate, steps = self.learning_rate, local.steps
        if steps is not None:
            number, rows = batch.visit
            rate *= self.rate_factor(number, steps // jnp.ceil(rows / self.batch_size))
            steps += 1
        return Searching(
            jax.tree.map(lambda s, v: s - rate * v, local.scores, velocity), velocity, steps
        )

    def finish(self, task: Task, received: Tree, local: Searching) -> tuple[Ballot, Tree]:
        ranked = (
            jax.tree.map(jnp.abs, local.scores) if frozen(task).scores == "abs" else local.scores
        )
        vote = ballot(jax.tree.map(places, ranked))
        # NaN has a place in every order: without this a client whose training broke would be
        # counted.
        whole = trees.all_finite(local.scores)
        return jax.tree.map(lambda part: jnp.where(whole, part, jnp.nan), vote), None

    def deploy(self, model: Tree, memory: Tree) -> Tree:
        return model


def is_scheduled(work: Work) -> bool:
    """Whether the learning rate depends on the round or on the local epoch."""
    return isinstance(work, EdgePopup) and (work.cosine or work.round_decay != 1)


def score_gradient(task: Supernetwork, scores: Tree, batch: Shard, key: Any = None) -> Tree:
    """The straight-through gradient of a batch's loss with respect to the scores."""
    masks = jax.tree.map(
        lambda s: score_mask(s, k=task.k, by_magnitude=task.scores != "raw"), scores
    )
    gradient = jax.grad(lambda weights: batch_loss(task.inner, weights, batch, key))(
        task.subnetwork(masks)
    )
    through = jax.tree.map(jnp.multiply, gradient, task.weights)
    return (
        through
        if task.scores == "raw"
        else jax.tree.map(lambda g, s: g * jnp.sign(s), through, scores)
    )


def score_mask(scores: Array, *, k: float, by_magnitude: bool = False) -> Array:
    """1 for the edges of a layer whose scores (or their magnitudes) are among the highest share k;
    ties at the border are kept.
    """
    values = jnp.abs(scores) if by_magnitude else scores
    return (values >= kth_lowest(values, dropped(values.size, k))).astype(jnp.float32)


def frozen(task: Task) -> Supernetwork:
    """The task, which must be one of ranking edges."""
    if not isinstance(task, Supernetwork):
        raise TypeError(
            "Edge-popup ranks the edges of a network with frozen weights, but the task is"
            f" {type(task).__name__}. Wrap it: evenly.parts.ranking.supernetwork(task, k=0.5,"
            " seed=0)."
        )
    return task


# Servers of rank-based learning: the next model is what the ballots decide.


@record
class RankServer(Server):
    """Replace the order of edges by the one elected (FRL's VOTE); the previous order has no
    influence.

    The change that the rule hands on is the sum of the clients' ballots, each counted a whole
    number of times.
    """

    def update(self, change: Ballot, state: Tree, model: Tree) -> tuple[Tree, Tree]:
        return elect(change), state


class GroupVotes(NamedTuple):
    """Summed ballots of every group in a round."""

    ballots: Ballot  # summed, [groups, ...]
    present: Array  # bool [groups] whether a client of the group voted


@record
class GroupServer:
    """E2FL: each group elects its order. The groups, with one vote each, elect the order from which
    all clients start next.

    The state are the groups' places [groups, ...]: of a group that was absent, those it elected
    last.
    """

    groups: int = static()
    absent_vote: bool = static(default=False)
    global_model: bool = static(default=False)

    def init(self, model: Tree) -> Tree:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.groups, *leaf.shape)), model)

    def update(self, change: GroupVotes, state: Tree, model: Tree) -> tuple[Tree, Tree]:
        return elect_groups(change.ballots, change.present, state, absent_vote=self.absent_vote)

    def serve(self, model: Tree, state: Tree) -> Tree:
        """The groups' models, or for each of them the model of all. [groups, ...]"""
        return self.init(model) if self.global_model else state

"""A network whose random weights never change; only the order of its edges is learned.

Ramanujan et al., "What's Hidden in a Randomly Weighted Neural Network?", CVPR 2020 (edge-popup); Mozaffari, Shejwalkar and
Houmansadr, "FRL: Federated Rank Learning", 2021; and E2FL by the same authors, who rank the edges of such a network together.

Everybody derives the frozen weights and the sorted first scores from one seed, so that only orders travel. The first scores
are evenly spaced quantiles of the uniform distribution between -1 and 1 over the square root of the fan-in: as float32 draws,
1.6 million of them would hold tens of thousands of ties, and an order could not be read back from them. A score is then a
straight line of an edge's place, and "reorder the sorted scores by a ranking" is that line.
"""

import jax
import jax.numpy as jnp

from evenly.data.federation import Shard
from evenly.models import Probabilistic
from evenly.models.judging import judged
from evenly.models.skeleton import skeleton
from evenly.ranking.order import MOST_EDGES, dropped
from evenly.records import record, require, static
from evenly.types import Array, Key, Task, Tree

SCORES = ("raw", "abs", "frl-compat")
WEIGHTS = ("signed-constant", "normal")


@record
class Supernetwork:
    """The task of ranking another task's weights: its parameters are the places of all edges, float32 whole numbers.

    Losses and predictions are those of the subnetwork that keeps the share `k` of every layer. Made by `supernetwork`, which
    draws the weights.

    `scores` says what orders edges and what masks them: "raw" the score for both (E2FL, Algorithm 5); "abs" its magnitude for
    both (hidden-networks), so that places carry magnitudes and scores start positive; "frl-compat" the score for the order
    and its magnitude for the mask, so that both ends of the order are kept (FRL's public code).
    """

    inner: Task
    weights: Tree
    k: float = static(default=0.5)
    scores: str = static(default="raw")
    positive: bool = static(default=False)
    joint: bool = static(default=False)

    @property
    def reduction(self) -> str:
        return self.inner.reduction

    def init(self, key: Key) -> Tree:
        """Places in random order."""
        leaves, structure = jax.tree.flatten(self.weights)
        keys = jax.random.split(key, len(leaves))
        shuffled = [jax.random.permutation(k, jnp.arange(leaf.size, dtype=jnp.float32)) for k, leaf in zip(keys, leaves, strict=True)]
        return jax.tree.unflatten(structure, [p.reshape(leaf.shape) for p, leaf in zip(shuffled, leaves, strict=True)])

    def losses(self, params: Tree, shard: Shard) -> Array:
        return self.inner.losses(self.subnetwork(self.masks(params)), shard)

    def penalty(self, params: Tree) -> Array | float:
        return self.inner.penalty(self.subnetwork(self.masks(params)))

    def predict(self, params: Tree, x: Array) -> Array:
        return self.inner.predict(self.subnetwork(self.masks(params)), x)

    def judge(self, params: Tree, shard: Shard) -> tuple[Array, Array]:
        return judged(self.inner, self.subnetwork(self.masks(params)), shard)

    def probabilities(self, params: Tree, x: Array) -> Array:
        return self.mixed_probabilities(self.masks(params), x)

    def mixed_probabilities(self, masks: Tree, x: Array) -> Array:
        """Probabilities of the classes under any masks, also such as lie between 0 and 1. [n, classes]"""
        inner = self.inner
        assert isinstance(inner, Probabilistic)  # checked when it was made
        return inner.probabilities(self.subnetwork(masks), x)

    def subnetwork(self, masks: Tree) -> Tree:
        return jax.tree.map(jnp.multiply, self.weights, masks)

    def masks(self, places: Tree) -> Tree:
        """1 for the edges that are kept, from their places alone: exactly the share k of every layer."""
        return jax.tree.map(lambda p: (self._standing(p) >= dropped(p.size, self.k)).astype(jnp.float32), places)

    def scores_at(self, places: Tree) -> Tree:
        """The sorted first scores, dealt to the edges by their places."""
        return jax.tree.map(self._score, places)

    def _score(self, place: Array) -> Array:
        bound = fan_in(place.shape) ** -0.5
        if self.positive or self.scores == "abs":
            return (2 * place + 1) * jnp.float32(bound / (2 * place.size))
        # A quarter, not a half, into each interval: so magnitudes are distinct too.
        return (4 * place + 1 - 2 * place.size) * jnp.float32(bound / (2 * place.size))

    def _standing(self, place: Array) -> Array:
        """The place of an edge in the order that masks: by score, or by the magnitude of its signed score."""
        if self.scores == "frl-compat" and not self.positive:
            return (jnp.abs(4 * place + 1 - 2 * place.size) - 1) / 2
        return place


def supernetwork(
    task: Task, *, k: float = 0.5, seed: int = 0, scores: str = "raw", positive: bool = False, weights: str = "signed-constant"
) -> Supernetwork:
    """Freeze random weights for a task, drawn from `seed`, and learn which share `k` of each layer's edges to keep.

    Weights are plus or minus sqrt(2 / fan-in), or normal with that deviation. `positive` starts the scores between 0 and
    1 / sqrt(fan-in), as E2FL's text has it; its code has them on both sides of 0.
    """
    check_settings(k, scores, weights)
    require(isinstance(task, Probabilistic), f"{type(task).__name__} gives no probabilities, which edges are ranked by. Add the method.")
    shapes = skeleton(task)
    _check_edges(type(task).__name__, shapes, k)
    leaves, structure = jax.tree.flatten(shapes)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    frozen = [_weights(key, leaf.shape, weights) for key, leaf in zip(keys, leaves, strict=True)]
    return Supernetwork(inner=task, weights=jax.tree.unflatten(structure, frozen), k=k, scores=scores, positive=positive)


def check_settings(k: float, scores: str, weights: str) -> None:
    """Raise unless these can be the settings of a network whose edges are ranked."""
    require(isinstance(k, float) and 0 < k < 1, f"k must be a share of the edges between 0 and 1, got {k!r}. E2FL keeps half: 0.5.")
    require(scores in SCORES, f"scores must be one of {', '.join(SCORES)}, got {scores!r}.")
    require(weights in WEIGHTS, f"weights must be one of {', '.join(WEIGHTS)}, got {weights!r}.")


def fan_in(shape: tuple[int, ...]) -> int:
    """Inputs of one unit, from weights [..., inputs, units]."""
    inputs = 1
    for side in shape[:-1]:
        inputs *= side
    return inputs


def _weights(key: Key, shape: tuple[int, ...], kind: str) -> Array:
    size = (2 / fan_in(shape)) ** 0.5
    return size * (jax.random.normal(key, shape) if kind == "normal" else jax.random.rademacher(key, shape, jnp.float32))


def _check_edges(model: str, shapes: Tree, k: float) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        where = f"{model}: parameter {jax.tree_util.keystr(path)} has shape {list(leaf.shape)}"
        require(
            len(leaf.shape) >= 2,
            f"{where}, but only weights [..., inputs, units] can be frozen and ranked; biases and the scales of normalisation "
            "cannot. Use a model without them, such as LeNet(bias=False) or MLP(bias=False).",
        )
        require(leaf.size <= MOST_EDGES, f"{where}, {leaf.size} edges; at most {MOST_EDGES} can be ranked exactly. Use narrower layers.")
        left = leaf.size - dropped(leaf.size, k)
        require(0 < left < leaf.size, f"{where}, of which k = {k} keeps {left} of {leaf.size} edges; it must keep some, not all.")

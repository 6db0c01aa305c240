"""Learning by ranking: which edges of a frozen random network to keep. A model is the rank of every
edge in its layer.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from evenly.data.federation import Shard
from evenly.models import Probabilistic
from evenly.models.task import judged, skeleton
from evenly.records import record, require, static
from evenly.types import Array, Key, Task, Tree

# Orders of a layer's edges.
#
# A *ranking* is a list of edges from the lowest to the highest score: R[j] is the edge at place j.
# Its inverse are the *places*: for every edge its place in the list. Places are what is averaged,
# compared and kept as a model, because they have the layer's own shape; they are whole numbers in
# float32, which is exact for the layers that `MOST_EDGES` allows.

SIGN = np.uint32(1 << 31)

# in a layer: all places, and their differences, stay exact and scores stay distinct in float32
MOST_EDGES = 2**22


def places(scores: Array) -> Array:
    """Each entry's place in the ascending order of all entries, in their shape; of equal scores the
    first comes first.
    """
    return places_of_order(ascending(scores.reshape(-1))).reshape(scores.shape)


@jax.jit
@jax.custom_batching.sequential_vmap
def ascending(*keys: Array) -> Array:
    """The entries' numbers in ascending order of the first of these float keys [n], of equals of
    the next, and so on. int32 [n]

    One stable sort of whole numbers for each key, the last key first, and lists one after another:
    a GPU has a radix sort for just that (25 lists of 1.6 million in 3.0 ms on an H200; side by
    side, where XLA compares in its own way, in 12.8).
    """
    order = lax.iota(jnp.int32, keys[0].size)
    for i, key in enumerate(reversed(keys)):
        whole = _sortable(key) if i == 0 else _sortable(key)[order]
        order = lax.sort((whole, order), num_keys=1, is_stable=True)[1]
    return order


def _sortable(key: Array) -> Array:
    """Floats as whole numbers in the same order: both zeros are one, and NaN comes last."""
    key = jnp.where(key == 0, 0.0, jnp.where(jnp.isnan(key), jnp.nan, key)).astype(jnp.float32)
    bits = lax.bitcast_convert_type(key, jnp.uint32)
    return jnp.where(bits >= SIGN, ~bits, bits | SIGN)


def inverse(permutation: Array) -> Array:
    """The places of a ranking, or the ranking of flat places: each is the other's inverse. int32
    [n]

    >>> inverse(jnp.array([4, 0, 2, 3, 5, 1])).tolist()
    [1, 5, 2, 3, 0, 4]
    """
    return places_of_order(permutation.reshape(-1).astype(jnp.int32)).astype(jnp.int32)


def dropped(edges: int, k: float) -> int:
    """How many edges a layer leaves out so that the share k stays: floor((1 - k) edges)."""
    # Rounded first: (1 - 0.9) * 10 is a hair under 1 in binary.
    return int(round((1 - k) * edges, 6) // 1)


def footrule(a: Tree, b: Tree) -> Array:
    """Spearman's footrule between two trees of places: the sum over all layers and edges of |place
    - place|.

    0 for equal orders; at most floor(n^2 / 2) in a layer of n edges, for opposite ones.
    """
    parts = jax.tree.map(lambda x, y: jnp.abs(x - y).sum(), a, b)
    return sum(jax.tree.leaves(parts), start=jnp.zeros(()))


def places_of_order(order: Array) -> Array:
    """The place of each number in an order of the numbers 0 to n - 1. float32 [n]"""
    counted = jnp.arange(order.size, dtype=jnp.float32)
    return jnp.zeros(order.shape, jnp.float32).at[order].set(counted, unique_indices=True)


# A network whose random weights never change; only the order of its edges is learned.
#
# Ramanujan et al., "What's Hidden in a Randomly Weighted Neural Network?", CVPR 2020 (edge-popup);
# Mozaffari, Shejwalkar and Houmansadr, "FRL: Federated Rank Learning", 2021; and E2FL by the same
# authors, who rank the edges of such a network together.
#
# Everybody derives the frozen weights and the sorted first scores from one seed, so that only
# orders travel. The first scores are evenly spaced quantiles of the uniform distribution between -1
# and 1 over the square root of the fan-in: as float32 draws, 1.6 million of them would hold tens of
# thousands of ties, and an order could not be read back from them. A score is then a straight line
# of an edge's place, and "reorder the sorted scores by a ranking" is that line.

SCORES = ("raw", "abs", "frl-compat")
WEIGHTS = ("signed-constant", "normal")


@record
class Supernetwork:
    """The task of ranking another task's weights: its parameters are the places of all edges,
    float32 whole numbers.

    Losses and predictions are those of the subnetwork that keeps the share `k` of every layer. Made
    by `supernetwork`, which draws the weights.

    `scores` says what orders edges and what masks them: "raw" the score for both (E2FL, Algorithm
    5); "abs" its magnitude for both (hidden-networks), so that places carry magnitudes and scores
    start positive; "frl-compat" the score for the order and its magnitude for the mask, so that
    both ends of the order are kept (FRL's public code).
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
        shuffled = [
            jax.random.permutation(k, jnp.arange(leaf.size, dtype=jnp.float32))
            for k, leaf in zip(keys, leaves, strict=True)
        ]
        return jax.tree.unflatten(
            structure, [p.reshape(leaf.shape) for p, leaf in zip(shuffled, leaves, strict=True)]
        )

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
        """Probabilities of the classes under any masks, also such as lie between 0 and 1. [n,
        classes]
        """
        inner = self.inner
        assert isinstance(inner, Probabilistic)  # checked when it was made
        return inner.probabilities(self.subnetwork(masks), x)

    def subnetwork(self, masks: Tree) -> Tree:
        return jax.tree.map(jnp.multiply, self.weights, masks)

    def masks(self, places: Tree) -> Tree:
        """1 for the edges that are kept, from their places alone: exactly the share k of every
        layer.
        """
        return jax.tree.map(
            lambda p: (self._standing(p) >= dropped(p.size, self.k)).astype(jnp.float32), places
        )

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
        """The place of an edge in the order that masks: by score, or by the magnitude of its signed
        score.
        """
        if self.scores == "frl-compat" and not self.positive:
            return (jnp.abs(4 * place + 1 - 2 * place.size) - 1) / 2
        return place


def supernetwork(
    task: Task,
    *,
    k: float = 0.5,
    seed: int = 0,
    scores: str = "raw",
    positive: bool = False,
    weights: str = "signed-constant",
) -> Supernetwork:
    """Freeze random weights for a task, drawn from `seed`, and learn which share `k` of each
    layer's edges to keep.

    Weights are plus or minus sqrt(2 / fan-in), or normal with that deviation. `positive` starts the
    scores between 0 and 1 / sqrt(fan-in), as E2FL's text has it; its code has them on both sides of
    0.
    """
    check_settings(k, scores, weights)
    require(
        isinstance(task, Probabilistic),
        f"{type(task).__name__} has no probabilities, by which edges are ranked. Add the method.",
    )
    shapes = skeleton(task)
    _check_edges(type(task).__name__, shapes, k)
    leaves, structure = jax.tree.flatten(shapes)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    frozen = [_weights(key, leaf.shape, weights) for key, leaf in zip(keys, leaves, strict=True)]
    return Supernetwork(
        inner=task,
        weights=jax.tree.unflatten(structure, frozen),
        k=k,
        scores=scores,
        positive=positive,
    )


def check_settings(k: float, scores: str, weights: str) -> None:
    """Raise unless the settings of a network whose edges are ranked are legal."""
    require(
        isinstance(k, float) and 0 < k < 1,
        f"k must be a share of the edges between 0 and 1, got {k!r}. E2FL keeps half: 0.5.",
    )
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
    return size * (
        jax.random.normal(key, shape)
        if kind == "normal"
        else jax.random.rademacher(key, shape, jnp.float32)
    )


def _check_edges(model: str, shapes: Tree, k: float) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        where = f"{model}: parameter {jax.tree_util.keystr(path)} has shape {list(leaf.shape)}"
        require(
            len(leaf.shape) >= 2,
            f"{where}, but only weights [..., inputs, units] can be frozen and ranked; biases and"
            " the scales of normalisation cannot. Use a model without them, such as"
            " LeNet(bias=False) or MLP(bias=False).",
        )
        require(
            leaf.size <= MOST_EDGES,
            f"{where}, {leaf.size} edges; at most {MOST_EDGES} can be ranked exactly. Use narrower"
            " layers.",
        )
        left = leaf.size - dropped(leaf.size, k)
        require(
            0 < left < leaf.size,
            f"{where}: k = {k} keeps {left} of {leaf.size} edges, but it must keep some and drop"
            " some.",
        )


# The setting of a method that ranks edges: which network is drawn and how its edges are ordered.


@record
class Frozen:
    """Draw a task's weights once, by the seed of the first model, and learn which of its edges to
    keep.
    """

    k: float = static(default=0.5, doc="share of the edges of each layer that a model keeps")
    scores: str = static(
        default="raw",
        doc=(
            "score that ranks and masks edges: 'raw', 'abs' (magnitude), or 'frl-compat'"
            " (ranked by raw score, masked by magnitude)"
        ),
    )
    positive: bool = static(
        default=False,
        doc=(
            "whether initial scores lie between 0 and 1 / sqrt(fan-in) instead of on both"
            " sides of 0"
        ),
    )
    frozen_weights: str = static(
        default="signed-constant",
        doc=(
            "distribution of the frozen weights: 'signed-constant' or 'normal', both with"
            " variance 2 / fan-in"
        ),
    )

    def __post_init__(self) -> None:
        check_settings(self.k, self.scores, self.frozen_weights)

    def of(self, task: Task, seed: int) -> Task:
        if isinstance(task, Supernetwork):
            return task
        return supernetwork(
            task,
            k=self.k,
            seed=seed,
            scores=self.scores,
            positive=self.positive,
            weights=self.frozen_weights,
        )


# The k-th lowest of many numbers without sorting them.
#
# A local step needs only the score that separates the kept half of a layer from the rest. Sorting
# 1.6 million scores costs many times as much as counting how many lie under a guess: the guess is
# built digit by digit from the highest bits, in the order that floats share with their bits once
# negative ones are turned round. A GPU reads the numbers once for all guesses of a digit, so it
# takes wide digits and few passes; a CPU compares no faster than it reads, so there a digit is one
# bit.

# on a GPU. 25 layers of 1.6 million on an H200: 1 bit 1.52 ms, 2 bits 0.79 ms, 4 bits 1.16 ms
DIGIT_BITS = 2


def kth_lowest(values: Array, k: int, *, bits: int = 0) -> Array:
    """The value with exactly k others before it in ascending order, k from 0; float32, no NaN.

    On processors where XLA takes numbers under 1.2e-38 for 0, any of them may be returned for a 0.
    `bits` of a digit: 1, 2 or 4; 0 chooses.
    """
    values = values.astype(jnp.float32).reshape(-1)
    bits = bits or (1 if jax.default_backend() == "cpu" else DIGIT_BITS)

    def narrow(i: Array, prefix: Array) -> Array:
        shift = (32 - bits - bits * i).astype(jnp.uint32)
        guesses = [prefix | (np.uint32(digit) << shift) for digit in range(1, 2**bits)]
        fits = [under <= k for under in _under(values, guesses)]
        # Ascending guesses fit up to some digit, and it is the number of those that do.
        digit = sum(fit.astype(jnp.uint32) for fit in fits)
        return prefix | (digit << shift)

    return _float(lax.fori_loop(0, 32 // bits, narrow, jnp.uint32(0)))


def _under(values: Array, guesses: list[Array]) -> tuple[Array, ...]:
    """How many values lie under each guess, in one pass. Above infinity lie NaNs, under which every
    number counts; comparisons would count none.
    """
    numbers = [_float(guess) for guess in guesses]
    below = tuple((values < number).astype(jnp.int32) for number in numbers)
    counts = lax.reduce(
        below,
        (np.int32(0),) * len(below),
        lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)),
        (0,),
    )
    return tuple(
        jnp.where(jnp.isnan(number) & (guess >= SIGN), values.size, count)
        for number, guess, count in zip(numbers, guesses, counts, strict=True)
    )


def _float(key: Array) -> Array:
    """The float whose place among all floats is `key`."""
    bits = jnp.where(key >= SIGN, key ^ SIGN, ~key)
    return lax.bitcast_convert_type(bits, jnp.float32)


# Votes on the order of edges: a Borda count, as one sum of places.
#
# VOTE of E2FL and FRL adds up the places that every client gives an edge and sorts the sums. Sums
# of places outgrow what float32 holds exactly: 25 clients and a layer of 1.6 million edges reach
# 4e7, and 2^24 is the limit. So a ballot carries every place in two digits, which are summed apart.
# With whole-number weights the vote is then exact for up to `MOST_BALLOTS` ballots, in whatever
# order they are added; ties are real ties, and go to the edge with the lower number.

DIGIT = 2**11
MOST_BALLOTS = 2**24 // DIGIT


class Ballot(NamedTuple):
    """Places, or a weighted sum of them, as DIGIT * high + low."""

    high: Tree
    low: Tree


class Election(NamedTuple):
    """Result of a vote in groups."""

    overall: Tree  # places: one vote for each group that voted
    groups: Tree  # places, [groups, ...]: one vote for each client of the group


def ballot(places: Tree) -> Ballot:
    """One client's vote, ready to be summed."""
    high = jax.tree.map(lambda p: jnp.floor(p / DIGIT), places)
    return Ballot(high, jax.tree.map(lambda p, h: p - DIGIT * h, places, high))


def elect(total: Ballot) -> Tree:
    """The places that a sum of ballots decides, layer by layer."""
    return jax.tree.map(_elected, total.high, total.low)


def vote(places: Tree, weights: Array | None = None) -> Tree:
    """VOTE over stacked places [K, ...]; `weights` [K] are whole numbers, 0 for clients that did
    not return. By default all are 1.
    """
    return elect(tally(places, weights))


def tally(places: Tree, weights: Array | None = None) -> Ballot:
    """The sum of weighted ballots over stacked places [K, ...]."""
    counts = (
        jnp.ones(jax.tree.leaves(places)[0].shape[0])
        if weights is None
        else jnp.asarray(weights, jnp.float32)
    )
    return jax.tree.map(
        lambda part: jnp.einsum("k,k...->...", counts, part, precision="highest"), ballot(places)
    )


def elect_groups(
    totals: Ballot, present: Array, last: Tree, *, absent_vote: bool = False
) -> Election:
    """E2FL: every group elects its order, then every group has one vote on the order of all.

    `totals` [groups, ...] are summed ballots, `present` [groups] says which groups have any this
    round, and `last` [groups, ...] are the places that the others keep; with `absent_vote` those
    vote again with them.
    """
    new = jax.vmap(elect)(totals)
    groups = jax.tree.map(
        lambda a, b: jnp.where(present.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, last
    )
    return Election(vote(groups, jnp.ones(present.shape) if absent_vote else present), groups)


def _elected(high: Array, low: Array) -> Array:
    whole = jnp.floor(high)
    low = low + DIGIT * (high - whole)  # 0 unless weights were fractions
    carried = jnp.floor(low / DIGIT)
    keys = (whole + carried).reshape(-1), (low - DIGIT * carried).reshape(-1)
    return places_of_order(ascending(*keys)).reshape(high.shape)


__all__ = [
    "Ballot", "Election", "Frozen", "Supernetwork", "ballot", "dropped", "elect", "elect_groups",
    "footrule", "inverse", "kth_lowest", "places", "supernetwork", "vote",
]  # fmt: skip

"""Differential privacy for the rows of a client, which noises what it sends about training rows.

Neighbours are two sets of training rows that differ by one row, added or removed. How many rows a
client has is public, so that a removed row is one that counts nothing while the number stays. Three
things leave a client:

    training  DP-SGD (Abadi et al., "Deep Learning with Differential Privacy", CCS 2016): the
              gradient of each row is shortened to the length `clip`, Gaussian noise of deviation
              noise_multiplier * clip is added to their sum, and the sum is divided by the number
              of rows that a batch has on average. Each row is in each batch with probability
              `rate`, independently, which is what the account of a run is about
    signals   tables of counts, in which a row counts once, and sums of losses, to which a row adds
              at most `loss_bound`; measured anew every so many rounds and kept in between
    weights   of rows under `+reweigh`, from counts that were noised once

The server and the rules stay as they are: what they compute from noised numbers is as private as
these (/docs/privacy-rows.md). A row's gradient is shortened after its weight was applied, so that
no weight lets a row count more.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenly import trees
from evenly.data.federation import Shard
from evenly.parts.work import (
    FullGradient,
    LocalState,
    LocalTraining,
    Reweigh,
    TrainingAlone,
    penalty_gradient,
    summed_loss,
)
from evenly.randomness import gaussian, visit_key
from evenly.records import leaf, record, replace, require, static
from evenly.types import Algorithm, Task, Tree, Work

Array = jax.Array

# numbers in the row gradients that are held at a time
MOST_NUMBERS = 2**22
TINY = 1e-30
# Random numbers of a visit for other purposes than its steps, whose keys are the first few.
SIGNAL_KEYS = 1 << 20

# Signals of a client that are noised, and by how much one row changes them: 1, or the bound on a
# row's loss. The number of training rows is public, and the length of a noised vector is as private
# as the vector.
COUNTS = frozenset({"table", "valid_table", "unprivileged"})
LOSSES = frozenset({"loss", "cell_loss"})
ONCE = frozenset({"unprivileged"})  # counts that never change, so that one release serves all


@record
class SignalNoise:
    """How a client makes the numbers private that it sends beside its vector."""

    noise: float = leaf(least=0)  # deviation of the noise in a count, where one number is released
    loss_bound: float = leaf(above=0)  # largest loss of a row
    every: int = static(least=1)  # rounds between two measurements

    def deviation(self, name: str, released: int) -> Any:
        """Deviation of the noise in a signal that is released together with others.

        One row moves all of them at once: n numbers with sqrt(n) times the noise each are together
        as private as one.
        """
        bound = self.loss_bound if name in LOSSES else 1.0
        return self.noise * bound * np.sqrt(released)


def signal_key(seed: Any, number: Any, client: Any, place: int) -> Any:
    """Key of the noise in a client's signal of round `number`; `place` is that of its name among
    the noised ones. `seed` is that of the batches, as numbers.
    """
    key = visit_key(seed, number, client)
    return jax.random.fold_in(
        jax.random.wrap_key_data(key, impl="threefry2x32"), SIGNAL_KEYS + place
    )


def noised_signals(needs: frozenset[str]) -> tuple[str, ...]:
    """Names of the signals that a rule needs and that must be noised, in alphabetical order."""
    return tuple(sorted(needs & (COUNTS | LOSSES)))


@record
class PrivateTraining:
    """Local training whose steps follow clipped and noised gradients.

    The optimiser, FedProx's pull and the regularisation term do not read rows, so that they need no
    noise. There is no personal model: evaluations would tell what it learned without noise.
    """

    training: LocalTraining
    clip: float = leaf(default=1.0, above=0)
    noise_multiplier: float = leaf(default=1.0, least=0)
    signals: SignalNoise | None = None
    rate: float = static(default=0.01, above=0, most=1)
    full: bool = static(default=False)  # whether it takes the place of a full gradient

    @property
    def row_rate(self) -> float:
        """Probability of a row to be in a batch."""
        return self.rate

    def plain(self) -> Work:
        """The work without privacy."""
        own = self.training
        return FullGradient(learning_rate=own.learning_rate) if self.full else own

    @property
    def epochs(self) -> int:
        return self.training.epochs

    @property
    def batch_size(self) -> int:
        """Rows of a batch where they are dealt, which they are not here."""
        return self.training.batch_size

    @property
    def max_steps(self) -> int:
        return self.training.max_steps

    @property
    def shuffle(self) -> bool:
        return True

    def remember(self, model: Tree) -> Tree:
        return None

    def start(self, task: Task, received: Tree, memory: Tree) -> LocalState:
        require(
            not isinstance(received, trees.Stateful),
            f"{type(task).__name__} keeps running statistics of its rows (batch norm), which"
            " dp(unit=row) does not cover. Use a network with group norm, or without norms.",
        )
        return self.training.start(task, received, None)

    def step(
        self, task: Task, received: Tree, local: LocalState, batch: Shard, key: Any = None
    ) -> LocalState:
        rows_key, noise_key = jax.random.split(key)
        total = clipped_sum(task, local.model, batch, self.clip, rows_key)
        total = add_noise(total, self.noise_multiplier * self.clip, noise_key)
        if task.reduction == "mean":
            total = trees.scale(total, 1.0 / batch.expected)
        gradient = trees.add(total, penalty_gradient(task, local.model))
        return self.training.descend(received, local, gradient)

    def finish(self, task: Task, received: Tree, local: LocalState) -> tuple[Tree, Tree]:
        return self.training.finish(task, received, local)

    def deploy(self, model: Tree, memory: Tree) -> Tree:
        return model


def clipped_sum(task: Task, model: Tree, batch: Shard, clip: Any, key: Any) -> Tree:
    """The sum of the gradients of a batch's rows, each shortened to a length of at most `clip`.

    Gradients of single rows take the memory of as many models, so that a few rows are read at a
    time. Padding comes last in a batch, and chunks of it are not read at all.
    """
    rows = batch._replace(expected=None)
    count = rows.mask.shape[0]
    size = trees.size(trees.learned(model))
    at_once = min(count, max(1, MOST_NUMBERS // max(size, 1)))
    chunks = -(-count // at_once)
    if chunks == 1:
        return _sum_of_rows(task, model, rows, clip, key)
    rows = jax.tree.map(
        lambda leaf: jnp.pad(leaf, ((0, chunks * at_once - count), *[(0, 0)] * (leaf.ndim - 1))),
        rows,
    )

    def chunk(i: Array, total: Tree) -> Tree:
        some = jax.tree.map(
            lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, i * at_once, at_once), rows
        )
        own = _sum_of_rows(task, model, some, clip, jax.random.fold_in(key, i))
        return trees.add(total, own)

    filled = (rows.mask.sum().astype(jnp.int32) + at_once - 1) // at_once
    return jax.lax.fori_loop(0, filled, chunk, trees.zeros_like(trees.learned(model)))


def _sum_of_rows(task: Task, model: Tree, rows: Shard, clip: Any, key: Any) -> Tree:
    def gradient(row: Shard, row_key: Any) -> Tree:
        one = jax.tree.map(lambda leaf: leaf[None], row)

        def loss(params: Tree) -> Array:
            return summed_loss(task, trees.with_learned(model, params), one, row_key)[0].sum()

        return jax.grad(loss)(trees.learned(model))

    count = rows.mask.shape[0]
    gradients = jax.vmap(gradient)(rows, jax.random.split(key, count))
    squares = sum(jnp.square(leaf).reshape(count, -1).sum(1) for leaf in jax.tree.leaves(gradients))
    # a row whose gradient is not finite counts nothing: what it sends may not depend on one row
    whole = jnp.isfinite(squares)
    factor = jnp.minimum(1.0, clip / jnp.maximum(jnp.sqrt(jnp.where(whole, squares, 1.0)), TINY))
    factor = jnp.where(whole, factor * rows.mask, 0.0)

    def shortened(leaf: Array) -> Array:
        kept = jnp.where(whole.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, 0.0)
        return jnp.tensordot(factor, kept, 1, precision="highest")

    return jax.tree.map(shortened, gradients)


def add_noise(tree: Tree, deviation: Any, key: Any) -> Tree:
    """Independent Gaussian noise in every number of a tree."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(
        structure,
        [
            leaf + deviation * gaussian(own, leaf.shape, leaf.dtype)
            for leaf, own in zip(leaves, keys, strict=True)
        ],
    )


# Reweighing from noised counts.


@record
class NoisedReweigh:
    """`Reweigh` from counts of groups and labels that are noised once, before the first round.

    Example:
        >>> y, group = np.array([1, 1, 0, 1, 0]), np.array([0, 0, 0, 1, 1])
        >>> exact = NoisedReweigh(reweigh=Reweigh(), noise=0.0)
        >>> exact.from_counts(exact.counts(y, group, (2, 2))).round(2).tolist()
        [[1.2, 0.9], [0.8, 1.2]]
    """

    reweigh: Reweigh = static()
    noise: float = static(least=0)  # deviation of the noise in a count

    def counts(
        self,
        y: np.ndarray,
        group: np.ndarray,
        shape: tuple[int, int],
        generator: np.random.Generator | None = None,
    ) -> np.ndarray:
        """Rows by group and label, noised; at least one row in each. [groups, labels]"""
        cells = np.zeros(shape)
        np.add.at(cells, (group, y), 1)
        if generator is not None:
            cells = cells + self.noise * generator.standard_normal(shape)
        return np.maximum(cells, 1.0)

    def from_counts(self, cells: np.ndarray) -> np.ndarray:
        """Weight of the rows of each group and label, from counts. [groups, labels]"""
        weights = np.outer(cells.sum(1), cells.sum(0)) / cells.sum() / cells
        if self.reweigh.rescale:
            weights = weights * cells.sum() / (weights * cells).sum()
        return np.minimum(weights, self.reweigh.cap) if self.reweigh.cap else weights

    def weights(self, y: np.ndarray, group: np.ndarray) -> np.ndarray:
        """Weights from counts without noise, for those who do not release them."""
        return self.reweigh.weights(y, group)


# An algorithm whose clients make everything private that they send.


def with_private_rows(
    algorithm: Algorithm, *, clip: Any, noise_multiplier: Any, rate: float, signals: SignalNoise
) -> Algorithm:
    """The same method with DP-SGD at the clients and noised signals.

    Raises:
        ValueError: If a part of the method sends what cannot be noised row by row.
    """
    require(not (reason := obstacle(algorithm)), f"{algorithm.label}: dp(unit=row) {reason}")
    training, rate = _training(algorithm.work, rate)
    reweigh = algorithm.prepare
    work = PrivateTraining(
        training=training,
        clip=clip,
        noise_multiplier=noise_multiplier,
        rate=rate,
        signals=signals,
        full=isinstance(algorithm.work, FullGradient),
    )
    prepare = (
        NoisedReweigh(reweigh=reweigh, noise=float(signals.noise))
        if isinstance(reweigh, Reweigh)
        else None
    )
    return replace(algorithm, work=work, prepare=prepare)


def obstacle(algorithm: Algorithm) -> str:
    """Why the clients of an algorithm cannot make everything private that they send, and what to
    use instead; empty if they can.
    """
    work = algorithm.work
    if isinstance(work, TrainingAlone):
        return "has nothing to do: clients send nothing. Leave it out."
    if algorithm.network is not None:
        return (
            "cannot noise rankings of edges, which have no gradient of single rows. Use a method"
            " that trains weights, such as fedavg."
        )
    if algorithm.rule.groups is not None:
        return (
            "does not cover methods with several models: the model that a client chooses follows"
            " from all its rows. Use a method with one model, such as fedavg."
        )
    if jax.tree.leaves(work.remember(np.zeros(()))):
        return (
            "does not cover personal models: they are trained without noise, and evaluations tell"
            " the server how well they fit. Use a method with one shared model, such as fedprox or"
            " q-fedavg."
        )
    if not isinstance(work, LocalTraining | FullGradient):
        return f"does not know how to clip the rows of {type(work).__name__}. Use LocalTraining."
    if isinstance(work, LocalTraining) and work.shape is not None:
        return (
            "cannot clip single rows here: the loss of a batch is transformed as a whole. Use"
            " q-fedavg or term, whose clients train on the plain loss."
        )
    if algorithm.select.needs - {"examples"}:
        return (
            f"does not allow {type(algorithm.select).__name__.lower()} sampling, which reads exact"
            " counts of people. Use +full or +uniform(clients=10)."
        )
    if algorithm.prepare is not None and not isinstance(algorithm.prepare, Reweigh):
        return (
            f"does not know from which counts {type(algorithm.prepare).__name__} weights rows. Use"
            " +reweigh, or leave it out."
        )
    return ""


def _training(work: Work, rate: float) -> tuple[LocalTraining, float]:
    """The training, and the rate of its batches. A full gradient is one step on a batch of all
    rows.
    """
    if isinstance(work, FullGradient):
        return LocalTraining(learning_rate=work.learning_rate, mu=None), 1.0
    assert isinstance(work, LocalTraining)  # others were refused
    return work, rate

"""The gate: bounds what one client can move in a round, and adds noise to everything that is
released.

A round releases sums, each of which is a *block*: the sums before training, the sum of weight times
vector, the sum of the weights, and the numbers beside the update. The gate shortens what a client
adds to block j to a public bound B_j, whatever the client and the rule say, and adds noise of
standard deviation

    sigma_j = B_j z / sqrt(share_j),      shares sum to 1,

so that one client moves all blocks together by at most 1/z standard deviations. Weights are counted
in multiples of an average client's. What that is follows from earlier releases, never from the
cohort.

The functions are for one run. `evenly.round` calls those that bound and add noise. The first
state and the key of the noise come from elsewhere: from `evenly.simulate.gating` in a simulation,
and from `evenly.flower.private_rounds` in a deployment.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from evenly.randomness import gaussian
from evenly.records import leaf, record, static
from evenly.types import Array, Bounds, Limits, Own, Rule, Tree, Weighed

VECTOR_SHARE = 0.9  # of the budget; all other blocks of a round share the rest equally
LEAST = 0.25  # a released sum of weights counts as at least this share of the expected one
CLIP_RATE = 0.2  # step size of an adaptive clip, in logarithms (Andrew et al. 2021)
MOST_EXPONENT = 30.0  # beyond which a weight is cut in any case, and the exponential overflows
PURPOSE = 0x6E6F6973  # of the keys, which are apart from those of local steps
# numbers of blocks, for their noise; those of the stages come first
VECTOR, WEIGHT, AVERAGES, EXTRAS, UNCLIPPED = range(1000, 1005)


@record
class ClientGate:
    """The public numbers of a run with differential privacy for clients.

    Args:
        noise: Noise multiplier of a round, over all of its blocks.
        weight: Largest weight of a client, in multiples of an average client's.
        clip: Largest length of a vector; with `adapts`, before the first round.
        unclipped: Share of the vectors that an adaptive clip leaves whole.
        cohort: Expected number of clients in a round.
        clients: Number of all clients.
        rows: Training rows of an average client.
        loss: Loss of a model that guesses.
        tag: Number of the run, so that runs have noise of their own.
        adapts: Whether the clip follows the lengths of the vectors.
        equal: Whether all clients have the same public weight, so that their sum is not released.
    """

    noise: float = leaf(least=0)
    weight: float = leaf(above=0)
    clip: float = leaf(above=0)
    unclipped: float = leaf(default=0.8)
    cohort: float = leaf(above=0)
    clients: float = leaf(above=0)
    rows: float = leaf(default=1.0)
    loss: float = leaf(default=1.0)
    tag: float = leaf(default=0.0)
    adapts: bool = static(default=False)
    equal: bool = static(default=False)


class GateState(NamedTuple):
    """What the gate keeps from round to round: functions of earlier releases."""

    clip: Array
    log_scale: Array  # logarithm of an average client's weight


class Guard(NamedTuple):
    """A gate in one round of one run."""

    gate: ClientGate
    state: GateState
    key: Any  # of this round and run

    @property
    def limits(self) -> Limits:
        """The public numbers within which rules state their bounds."""
        gate, clip = self.gate, self.state.clip
        return Limits(
            weight=gate.weight, clip=clip, rows=gate.weight * gate.rows,
            loss=gate.weight * gate.loss, clients=gate.clients, cohort=gate.cohort, guess=gate.loss,
        )  # fmt: skip

    def bounds(self, rule: Rule, public: Tree) -> Bounds:
        """The bounds of the rule's blocks."""
        return rule.bounds(public, self.limits)


def begin(gate: ClientGate, rule: Rule, public: Tree) -> GateState:
    """The state before the first round."""
    guard = Guard(gate, GateState(jnp.asarray(gate.clip, float), jnp.zeros(())), None)
    typical = jnp.log(jnp.asarray(guard.bounds(rule, public).typical, float))
    return guard.state._replace(log_scale=typical)


def round_key(seed: Any, number: Any, tag: Any) -> Any:
    """The key of the noise of a round, from 0, in a run."""
    key = jax.random.wrap_key_data(seed, impl="threefry2x32")
    for one in (PURPOSE, number, jnp.asarray(tag, jnp.int32)):
        key = jax.random.fold_in(key, one)
    return key


# What a client may say about itself.


def tame(guard: Guard, own: Own) -> Own:
    """The numbers of one client within the limits; numbers that are not finite count as 0."""
    limits = guard.limits
    own = Own(*(_finite(value) for value in own))
    by_rows = lambda table: jnp.minimum(1.0, limits.rows / jnp.maximum(table.sum(), 1e-30))  # noqa: E731
    changes: dict[str, Any] = {}
    if own.examples is not None:
        changes["examples"] = jnp.clip(own.examples, 0.0, limits.rows)
    if own.unprivileged is not None:
        changes["unprivileged"] = jnp.clip(own.unprivileged, 0.0, limits.rows)
    if own.loss is not None:
        changes["loss"] = jnp.clip(own.loss, 0.0, limits.loss)
    for name in ("table", "valid_table"):
        if (table := getattr(own, name)) is not None:
            table = jnp.maximum(jnp.asarray(table, float), 0.0)
            changes[name] = table * by_rows(table)
    if own.cell_loss is not None:
        changes["cell_loss"] = shorten(own.cell_loss, limits.rows * limits.loss)
    if own.square_norm is not None:
        changes["square_norm"] = jnp.minimum(own.square_norm, limits.clip**2)
    return own._replace(**changes)


def cut_weight(guard: Guard, weighed: Weighed) -> Array:
    """The weight of one client in multiples of an average client's, at most `ClientGate.weight`; of
    several models, their length.
    """
    exponent = 0.0 if weighed.exponent is None else _finite(weighed.exponent)
    factor = jnp.exp(jnp.minimum(exponent - guard.state.log_scale, MOST_EXPONENT))
    raw = jnp.maximum(_finite(jnp.asarray(weighed.weight, float)), 0.0) * factor
    return shorten(jnp.minimum(raw, guard.gate.weight), guard.gate.weight)


def shorten(values: Array, bound: Any) -> Array:
    """Values of one client, scaled down to a length of at most `bound`. Not finite counts as 0."""
    values = _finite(jnp.asarray(values, float))
    # scaled before squaring, which would overflow
    largest = jnp.maximum(jnp.max(jnp.abs(values), initial=0.0), 1e-30)
    length = largest * jnp.sqrt(jnp.sum((values / largest) ** 2))
    return jnp.where(length > bound, values * (bound / length), values)


def shorten_each(values: Tree, bounds: Tree, rule: Rule) -> Tree:
    """Each leaf of one client's numbers, shortened to its bound."""
    if jax.tree.structure(values) != jax.tree.structure(bounds):
        raise TypeError(
            f"{type(rule).__name__} does not say how much one client can add to the sums that it"
            " asks for. Implement `bounds`, or train without +dp(unit=client)."
        )
    return jax.tree.map(shorten, values, bounds)


# Noise.


def vector_share(guard: Guard, bounds: Bounds) -> float:
    """The share of the budget that the sum of the vectors gets."""
    return VECTOR_SHARE if _others(guard, bounds) else 1.0


def _others(guard: Guard, bounds: Bounds) -> int:
    """Number of blocks besides the sum of the vectors."""
    beside = (bounds.contributions, bounds.averages, bounds.extras)
    return len(jax.tree.leaves(beside)) + (not guard.gate.equal) + guard.gate.adapts


def deviation(guard: Guard, bounds: Bounds, block: int) -> Array:
    """The standard deviation of a block's noise, as a multiple of the block's bound."""
    share = (1 - VECTOR_SHARE) / max(_others(guard, bounds), 1)
    if block == VECTOR:
        share = vector_share(guard, bounds)
    return guard.gate.noise / jnp.sqrt(share)


def add_noise(guard: Guard, bounds: Bounds, block: int, sums: Tree, of: Tree) -> Tree:
    """Sums with the noise of their bounds `of`. Each leaf is a block of its own, except that the
    leaves of a vector are one.
    """
    size, leaves = deviation(guard, bounds, block), jax.tree.leaves(sums)
    key = jax.random.fold_in(guard.key, block)
    limits = [of] * len(leaves) if block == VECTOR else jax.tree.leaves(of)
    noised = [
        leaf + size * bound * gaussian(jax.random.fold_in(key, i), jnp.shape(leaf))
        for i, (leaf, bound) in enumerate(zip(leaves, limits, strict=True))
    ]
    return jax.tree.unflatten(jax.tree.structure(sums), noised)


# What becomes of the released sums.


def least_weight(guard: Guard, weight: Array) -> Array:
    """The smallest number by which a sum of vectors is divided, for weights [K] or [K, models]."""
    return jnp.asarray(LEAST * guard.gate.cohort / (weight.shape[1] if weight.ndim > 1 else 1))


def advance(guard: Guard, total: Array, unclipped: Array) -> GateState:
    """The state after a round, from the released sum of the weights and the released sum of one
    half for each vector that was short enough, minus one half for each other.
    """
    gate, state = guard.gate, guard.state
    mean = jnp.sum(total) / gate.cohort
    scale = state.log_scale if gate.equal else state.log_scale + jnp.log(mean)
    if not gate.adapts:
        return GateState(state.clip, scale)
    share = 0.5 + unclipped / gate.cohort
    clip = state.clip * jnp.exp(-CLIP_RATE * (share - gate.unclipped))
    return GateState(clip, scale)


def _finite(values: Any) -> Any:
    """Numbers, with 0 in place of those that are not finite."""
    return jax.tree.map(
        lambda leaf: jnp.where(jnp.isfinite(leaf), leaf, jnp.zeros_like(leaf)), values
    )

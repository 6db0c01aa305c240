"""One federated round: client weights from sums, then the step of the server.

A rule is written for one client (`evenly.types.Rule`). The functions below derive the round of a
whole cohort from it: each client contributes to the sums that the rule asks for, weighs itself by
these sums and its own numbers, and the server divides the sum of the vectors and takes the step.

    signals = recall(rule, public, signals, memory)    what clients kept from earlier rounds
    weighing = weigh(rule, public, signals)            before training
    summed = sum_up(rule, public, weighing, signals)   after training, over those who returned
    change, public = step(rule, public, summed, total)
    memory = summed.memory

`weigh` scales the weights to a sum of 1 where the rule divides by their sum. `sum_up` computes the
number by which the sum of the vectors is divided (`Summed.divisor`). A round in which nobody counts
changes nothing (`is_idle`).

With differential privacy for clients, a `Guard` bounds what each client adds to the sums and adds
noise to them (`evenly.privacy.gate`); the division is then by a released number, too.

The functions know neither loops nor messages. The simulator compiles them, with runs as an
additional axis; `evenly.flower` calls them on replies. It knows who counts before it sums, so that
it sums with `Summed.coefficients` and needs no division. Clients that did not return are masked, so
that a round is exact whoever drops out: the sums before training are over the clients that
measured, and the division is over those whose update counts.

Arrays have the slots of the cohort in front [K, ...]. With several models, weights are [K, models].
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenly.privacy import gate
from evenly.privacy.gate import Guard
from evenly.types import Array, Bounds, Own, Rule, Signals, Totals, Tree, Weighed


class Memory(NamedTuple):
    """What the rule let each client keep. Clients that have not taken part yet keep zeros."""

    seen: Any  # bool [K] whether the client has taken part
    value: Tree  # [K, ...]


class Weighing(NamedTuple):
    """A cohort before training."""

    weight: Array  # [K] or [K, models] factor of each client's vector; 0 if it did not return
    sums: tuple[Tree, ...]  # of each stage
    averages: Tree  # [K, ...]
    extras: Tree  # [K, ...]
    memory: Tree  # [K, ...]


class Summed(NamedTuple):
    """A cohort after training: everything but the sum of its vectors."""

    totals: Totals  # without the mean
    divisor: Array  # by which the sum of the vectors is divided; [] or [models]
    coefficients: Array  # [K] or [K, models] weight / divisor; 0 where an update did not count
    sums: tuple[Tree, ...]
    memory: Tree  # [K, ...]
    gate: Tree = ()  # GateState for the next round


def form_of_own(groups: int, labels: int) -> Own:
    """The shapes of all numbers of a client, from which follows the form of what it remembers."""
    cells = (groups, labels)
    tables = {"table": (*cells, labels), "cell_loss": cells, "valid_table": (*cells, labels)}
    forms = {
        name: jax.ShapeDtypeStruct(tables.get(name, ()), np.float32)
        for name in Own._fields
        if name != "memory"
    }
    return Own(**forms | {"choice": jax.ShapeDtypeStruct((), np.int32)})


def recall(rule: Rule, public: Tree, signals: Signals, memory: Memory) -> Signals:
    """The signals with each client's memory. A client without one starts from public numbers."""
    first = _each(lambda own: rule.remember(public, own), signals, rule)
    value = jax.tree.map(
        lambda kept, new: jnp.where(_fit(memory.seen, new), kept, new), memory.value, first
    )
    return signals._replace(memory=value)


def weigh(rule: Rule, public: Tree, signals: Signals, guard: Guard | None = None) -> Weighing:
    """The weights of the clients that returned.

    Where the rule divides by the sum of the weights, they are scaled to sum to 1. With a guard they
    are multiples of an average client's weight, and the sums are noised.
    """
    if "square_norm" in rule.needs:  # no client has trained yet
        signals = signals._replace(square_norm=jnp.zeros(jnp.shape(signals.returned)))
    if guard is not None:
        signals = _tame(guard, signals)
    if rule.whole_cohort:
        sums, weighed = (), rule.weigh_cohort(public, signals)
    else:
        sums = contributions(rule, public, signals, guard)
        weighed = _each(lambda own: _checked(rule, rule.weigh(public, own, sums)), signals, rule)
    if jax.tree.structure(weighed.memory) != jax.tree.structure(signals.memory):
        raise TypeError(
            f"{type(rule).__name__}: the memory that a rule returns with a weight must have the"
            " form that `remember` gives it at first."
        )
    if guard is None:
        weight = _masked(_factors(weighed, signals.returned), signals.returned)
    else:
        cut = jax.vmap(lambda one: gate.cut_weight(guard, one))
        weight = _masked(cut(weighed._replace(averages=(), extras=(), memory=())), signals.returned)
    if divides_by_weights(rule) and guard is None:
        weight = weight / _not_zero(weight.sum(0))
    return Weighing(weight, sums, weighed.averages, weighed.extras, weighed.memory)


def contributions(
    rule: Rule, public: Tree, signals: Signals, guard: Guard | None = None
) -> tuple[Tree, ...]:
    """The sums over the cohort that the rule asks for before training."""
    sums: tuple[Tree, ...] = ()
    release = None if guard is None else _Release(guard, rule, guard.bounds(rule, public))
    if release is not None and len(release.bounds.contributions) < rule.stages:
        raise ValueError(
            f"{type(rule).__name__} asks for {rule.stages} sums before training, but its `bounds`"
            f" limit {len(release.bounds.contributions)}. Define `bounds` with a contribution for"
            " each stage, or train without +dp(unit=client)."
        )
    for stage in range(rule.stages):
        parts = _each(lambda own, before=sums: rule.contribute(public, own, before), signals, rule)
        if release is None:
            now = _sum(parts, signals.returned)
        else:
            bound = release.bounds.contributions[stage]
            now = release.noised_sum(stage, parts, bound, signals.returned)
        sums = (*sums, now)
    return sums


def sum_up(
    rule: Rule, public: Tree, weighing: Weighing, signals: Signals, guard: Guard | None = None
) -> Summed:
    """Sum everything but the vectors, over the clients whose update counts (`signals.returned`).

    Numbers that depend on the length of a vector are computed now that it is known.
    """
    if guard is not None:
        return _sum_up_guarded(rule, public, weighing, signals, guard)
    averages, extras = _beside_vector(rule, public, weighing, signals)
    weight = _masked(weighing.weight, signals.returned)
    total = weight.sum(0)

    def average(values: Array) -> Array:
        values = _masked(values, signals.returned)
        summed = jnp.tensordot(weight, values, (0, 0), precision="highest")
        return summed / _fit(_not_zero(total), summed)

    totals = Totals(None, total, jax.tree.map(average, averages), _sum(extras, signals.returned))
    divisor = jnp.asarray(rule.norm(public, totals))
    return Summed(totals, divisor, weight / _not_zero(divisor), weighing.sums, weighing.memory)


def _beside_vector(
    rule: Rule, public: Tree, weighing: Weighing, signals: Signals
) -> tuple[Tree, Tree]:
    """The averages and extras of each client, computed again if the rule reads the length of the
    vector, which is known only after training.
    """
    if "square_norm" not in rule.needs or rule.whole_cohort:
        return weighing.averages, weighing.extras
    after = _each(lambda own: rule.weigh(public, own, weighing.sums), signals, rule)
    return after.averages, after.extras


def _sum_up_guarded(
    rule: Rule, public: Tree, weighing: Weighing, signals: Signals, guard: Guard
) -> Summed:
    """Sum up with a bound on what each client adds and with noise in every sum.
    `signals.square_norm` holds the lengths before clipping.
    """
    release, settings = _Release(guard, rule, guard.bounds(rule, public)), guard.gate
    within_clip = jnp.sqrt(signals.square_norm) <= guard.state.clip
    signals = _tame(guard, signals)
    averages, extras = _beside_vector(rule, public, weighing, signals)
    returned, weight = signals.returned, _masked(weighing.weight, signals.returned)
    total = release.weights(weight)
    times = jax.tree.map(lambda values: _fit(weight, values) * values, averages)
    summed = release.noised_sum(gate.AVERAGES, times, release.bounds.averages, returned)
    # a client adds 1/2 or -1/2, so that it moves the sum by 1/2
    unclipped = jnp.where(returned, within_clip - 0.5, 0.0).sum()
    if settings.adapts:
        unclipped = gate.add_noise(guard, release.bounds, gate.UNCLIPPED, unclipped, 0.5)
    totals = Totals(
        None, total, jax.tree.map(lambda leaf: leaf / total, summed),
        release.noised_sum(gate.EXTRAS, extras, release.bounds.extras, returned),
    )  # fmt: skip
    divisor = total
    if not divides_by_weights(rule):
        # weights are multiples of an average client's, and the rule's norm is not
        scale = jnp.exp(guard.state.log_scale)
        least = gate.least_weight(guard, weight) * release.bounds.typical
        divisor = rule.norm(public, totals._replace(weight=total * scale))
        divisor = jnp.maximum(divisor, least) / scale
    state = gate.advance(guard, total, unclipped)
    return Summed(totals, divisor, weight / divisor, weighing.sums, weighing.memory, state)


def is_idle(summed: Summed) -> Array:
    """Whether the round changes nothing, not even an optimiser's momentum, because nobody's update
    counts. With a gate it is not idle: noise is released whoever came, and an empty round must not
    show.
    """
    counts = (summed.coefficients != 0).any()
    return jnp.zeros_like(counts) if jax.tree.leaves(summed.gate) else ~counts


class _Release(NamedTuple):
    """Releases the sums of a rule through a gate."""

    guard: Guard
    rule: Rule
    bounds: Bounds

    def noised_sum(self, block: int, parts: Tree, bounds: Tree, returned: Array) -> Tree:
        """Shorten what each client adds to its bounds, sum it over the clients that returned, and
        add noise.
        """
        if not jax.tree.leaves(parts) and not jax.tree.leaves(bounds):
            return parts
        shortened = jax.vmap(lambda own: gate.shorten_each(own, bounds, self.rule))(parts)
        return gate.add_noise(self.guard, self.bounds, block, _sum(shortened, returned), bounds)

    def weights(self, weight: Array) -> Array:
        """The noised sum of the weights, or the expected one where all are equal."""
        settings = self.guard.gate
        if settings.equal:
            return jnp.broadcast_to(settings.cohort, weight.shape[1:])
        total = weight.sum(0)
        total = gate.add_noise(self.guard, self.bounds, gate.WEIGHT, total, settings.weight)
        return jnp.maximum(total, gate.least_weight(self.guard, weight))


def noised(rule: Rule, public: Tree, total: Tree, guard: Guard) -> Tree:
    """The sum of weight times vector with its noise."""
    bound = guard.gate.weight * guard.state.clip
    return gate.add_noise(guard, guard.bounds(rule, public), gate.VECTOR, total, bound)


def _tame(guard: Guard, signals: Signals) -> Signals:
    tamed = _each(lambda own: gate.tame(guard, own), signals)
    return signals._replace(**tamed._asdict())


def step(rule: Rule, public: Tree, summed: Summed, total: Tree) -> tuple[Tree, Tree]:
    """The change of the model and the next public numbers, from the sum of weight times vector.

    Whoever summed with `Summed.coefficients`, as `evenly.flower.aggregation` does, has the mean
    already and calls the rule's own `step`.
    """
    mean = divide(total, summed.divisor)
    return rule.step(public, summed.sums, summed.totals._replace(mean=mean))


def divide(total: Tree, divisor: Array) -> Tree:
    """A sum divided by a number; with several models, each by its own. 0 divides by 1."""
    return jax.tree.map(lambda leaf: leaf / _fit(_not_zero(divisor), leaf), total)


def divides_by_weights(rule: Rule) -> bool:
    """Whether the sum of the vectors is divided by the sum of the weights, so that their scale
    does not matter.
    """
    return type(rule).norm is Rule.norm


def _each(function: Callable[[Own], Any], signals: Signals, rule: Rule | None = None) -> Any:
    """Call a function for every client of the cohort and stack the results. If it is one of a rule
    and fails, the error also says what the rule may do.
    """
    # a rule that needs nothing is told nothing, so that no array has the number of clients
    count = signals.returned.shape[0]
    each = jax.vmap(lambda one: jax.tree.map(jnp.asarray, function(one)), axis_size=count)
    try:
        return each(signals.own)
    except Exception as error:
        if rule is not None:
            error.add_note(
                f"{type(rule).__name__} is compiled before there are numbers: use jax.numpy"
                " (jnp.sqrt, jnp.where, jnp.maximum) and not math, NumPy or `if`. Of `own` it is"
                f" told what its `needs` names: {', '.join(sorted(rule.needs)) or 'nothing'}."
                " Everything else is None. `sums` has as many entries as its `stages` says:"
                f" {rule.stages}."
            )
        raise


def _checked(rule: Rule, weighed: Any) -> Weighed:
    name = type(rule).__name__
    if not isinstance(weighed, Weighed):
        raise TypeError(f"{name}.weigh must return Weighed(weight), got {type(weighed).__name__}.")
    if weighed.weight is None:
        raise TypeError(f"{name}.weigh returns Weighed(None). Does `needs` name what it reads?")
    return weighed


def _factors(weighed: Weighed, returned: Array) -> Array:
    """weight * exp(exponent), with exponents shifted so that the largest is 0."""
    if weighed.exponent is None:
        return weighed.weight
    exponent = weighed.exponent
    top = jnp.max(jnp.where(returned, exponent, -jnp.inf), initial=-jnp.inf)
    shift = jnp.where(returned.any(), top, 0.0)
    # compiled, the difference of the largest exponent to itself need not be 0: XLA may round the
    # product that it is made of only once, together with the subtraction
    least = jnp.minimum(jnp.where(returned, exponent - shift, 0.0), 0.0)
    factor = jnp.where(exponent == shift, 1.0, jnp.exp(least))
    return weighed.weight * _fit(factor, weighed.weight)


def _masked(values: Array, returned: Array) -> Array:
    return jnp.where(_fit(returned, values), values, 0)


def _sum(values: Tree, returned: Array) -> Tree:
    """Sums over the clients that returned."""
    return jax.tree.map(lambda leaf: _masked(leaf, returned).sum(0), values)


def _not_zero(number: Array) -> Array:
    return jnp.where(number == 0, 1, number)


def _fit(values: Array, like: Array) -> Array:
    """Shape values so that they broadcast against the leading axes of an array."""
    return values.reshape(values.shape + (1,) * (like.ndim - values.ndim))

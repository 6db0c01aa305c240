"""The compiled program: a block of rounds, with evaluations, for many runs at once.

Clients are visited one after another (on a CPU, side-by-side lanes would be half empty). Loop bounds are dynamic: no client
is padded to the size of another, and blocks of any length share one compilation.

Runs share cohorts and batches. For models that say `joint` the runs are the last axis of every parameter and a local
step of all runs is one matrix product; for others the step is vmapped with the runs in front.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from evenly import trees
from evenly.simulate.evaluation import evaluated
from evenly.simulate.layout import Data, Parts, Shape, State
from evenly.simulate.measuring import measured_losses
from evenly.simulate.training import Cohort, Trained, inner_products, trained_sum, trained_vectors, weighted
from evenly.types import Array, Effort, Signals, Task, Tree


class Record(NamedTuple):
    """What a block leaves behind."""

    weights: Array  # [rounds, K, runs]
    tables: Array  # int32 [stops, owners, groups, labels, outcomes, runs]
    losses: Array  # [stops, owners, runs] summed


class Weighed(NamedTuple):
    """A round after weighing and training."""

    signals: Signals
    coefficients: Array  # [K, runs]
    sane: Array  # [runs] whether the coefficients are finite
    rule: Tree
    trained: Trained


def one_round(task: Task, shape: Shape, parts: Parts, data: Data, block: Any, t: Array, state: State) -> tuple[State, Array]:
    """Measure, weigh, train, step. Returns the new state and the coefficients that counted. [K, runs]"""
    cohort = Cohort(task, shape, parts, data, block, state, t)
    signals, axes = known_before_training(cohort)
    w = vectors_first(cohort, signals, axes) if "gram" in parts.rule.needs else weights_first(cohort, signals, axes)

    kept = jnp.where(w.trained.finite & w.signals.returned, w.coefficients, 0.0)
    # Clients found broken only after training: the sum is divided by the share of coefficients that returned.
    mass = kept.sum(0)
    share = jnp.where(mass != 0, w.coefficients.sum(0) / jnp.where(mass != 0, mass, 1.0), 0.0)
    total = jax.tree.map(lambda leaf: leaf * trees.along(share, leaf, shape.axis), w.trained.total)
    signals = w.signals._replace(returned=w.signals.returned & w.trained.finite, gram=None)
    effort = Effort(jnp.where(signals.returned, w.trained.square_norm, 0.0))

    moved = jax.vmap(move, (0, 0, 0, shape.axis, shape.axis, axes._replace(gram=None), Effort(-1)), (shape.axis, 0, 0))
    model, rule, server = moved(parts, w.rule, state.server, state.model, total, signals, effort)

    # A round in which nobody's update counted changes nothing, not even an optimiser's momentum.
    anyone = w.sane & (kept != 0).any(0)
    lost = block.returned[t][:, None] & ~signals.returned
    state = State(
        model=trees.where(anyone, model, state.model, shape.axis),
        rule=trees.where(anyone, rule, state.rule, 0),
        server=trees.where(anyone, server, state.server, 0),
        memory=w.trained.memory,
        excluded=state.excluded.at[block.cohort[t]].add(lost.astype(jnp.int32)),
        broken=jnp.where(w.sane, state.broken, jnp.minimum(state.broken, t)),
    )
    return state, kept * share


def known_before_training(c: Cohort) -> tuple[Signals, Signals]:
    """The cohort's signals, and which of them differ between runs (their axis; None: shared)."""
    who = c.block.cohort[c.t]
    returned = jnp.broadcast_to(c.block.returned[c.t][:, None], (who.shape[0], c.shape.runs))
    signals = Signals(client=who, returned=returned, examples=c.data.examples[who], chance=c.block.chance[c.t])
    axes: Signals = Signals(client=None, returned=-1, examples=None)
    if "loss" in c.parts.rule.needs:
        loss = measured_losses(c.task, c.shape, c.parts, c.data, c.state.model, who)
        finite = jnp.isfinite(loss)
        signals = signals._replace(loss=jnp.where(finite, loss, 0.0), returned=returned & finite)
        axes = axes._replace(loss=-1)
    return signals, axes


def weights_first(c: Cohort, signals: Signals, axes: Signals) -> Weighed:
    """The usual order: scalars decide the weights, then vectors are only summed."""
    coefficients, sane, rule = weigh(c, signals, axes)
    return Weighed(signals, coefficients, sane, rule, trained_sum(c, coefficients))


def vectors_first(c: Cohort, signals: Signals, axes: Signals) -> Weighed:
    """For rules that weigh by the vectors' inner products: train, keep every vector, then weigh."""
    trained = trained_vectors(c, signals.client.shape[0])
    signals = signals._replace(returned=signals.returned & trained.finite, gram=inner_products(trained.total, c.shape.axis))
    coefficients, sane, rule = weigh(c, signals, axes._replace(gram=-1))
    return Weighed(signals, coefficients, sane, rule, trained._replace(total=weighted(trained.total, coefficients, c.shape.axis)))


def weigh(c: Cohort, signals: Signals, axes: Signals) -> tuple[Array, Array, Tree]:
    vmapped = jax.vmap(lambda rule, own, s: rule.weigh(own, s), (0, 0, axes), (-1, 0))
    coefficients, rule = vmapped(c.parts.rule, c.state.rule, signals)
    sane = jnp.isfinite(coefficients).all(0)
    return jnp.where(sane, coefficients, 0.0), sane, rule


def move(part: Parts, rule: Tree, server: Tree, model: Tree, total: Tree, signals: Signals, effort: Effort) -> tuple[Tree, Tree, Tree]:
    """One run's step: the rule decides the change, the server moves the model along it."""
    change, rule = part.rule.step(rule, signals, effort, total)
    if part.server is None:
        return trees.add(model, change), rule, server
    model, server = part.server.update(change, server, model)
    return model, rule, server


@partial(jax.jit, static_argnames=("shape",), donate_argnames=("state",))
def advance(task: Task, shape: Shape, parts: Parts, data: Data, block: Any, state: State) -> tuple[State, Record]:
    """Run a block: stretch after stretch of rounds, an evaluation after those that ask for one."""
    rounds, slots = block.cohort.shape
    stops = block.stops.shape[0]

    def stretch(i: Array, carry: tuple[State, Record, Array]) -> tuple[State, Record, Array]:
        state, record, done = carry

        def body(t: Array, inner: tuple[State, Array]) -> tuple[State, Array]:
            new, weights = one_round(task, shape, parts, data, block, t, inner[0])
            return new, inner[1].at[t].set(weights)

        state, weights = lax.fori_loop(done, block.stops[i], body, (state, record.weights))
        tables, losses = lax.cond(
            block.evaluate[i],
            lambda: evaluated(task, shape, parts, data, state),
            lambda: (jnp.zeros(record.tables.shape[1:], jnp.int32), jnp.zeros(record.losses.shape[1:])),
        )
        return state, Record(weights, record.tables.at[i].set(tables), record.losses.at[i].set(losses)), block.stops[i]

    empty = Record(
        jnp.zeros((rounds, slots, shape.runs)),
        jnp.zeros((stops, shape.owners, shape.groups, shape.labels, shape.labels, shape.runs), jnp.int32),
        jnp.zeros((stops, shape.owners, shape.runs)),
    )
    used = jnp.sum(block.stops >= 0)
    state, record, _ = lax.fori_loop(0, used, stretch, (state, empty, jnp.int32(0)))
    return state, record

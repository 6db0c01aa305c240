"""The compiled program: a block of rounds, with evaluations, for many runs at once.

Clients are visited one after another (on a CPU, side-by-side lanes would be half empty), their vectors added to a sum
as they finish, so that memory is one model and one sum per run, whatever the cohort. Loop bounds are dynamic: no client
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
from evenly.clients.local_training import summed_loss
from evenly.types import Array, Effort, Rule, Server, Shard, Signals, Task, Tree, Work


class Parts(NamedTuple):
    """The parts of an algorithm that run on the device, leaves stacked over runs."""

    work: Work
    rule: Rule
    server: Server | None


class Data(NamedTuple):
    """The federation on the device. The last row of every table is padding."""

    x: Array
    y: Array
    group: Array
    weight: Array | None
    train_rows: Array  # [train]
    train_start: Array  # [clients + 1]
    eval_rows: Array  # [evaluated rows]
    eval_owner: Array  # [evaluated rows] split * clients + client; the central test set comes last
    examples: Array  # [clients] training rows, float


class State(NamedTuple):
    """Everything that one round hands to the next."""

    model: Tree
    rule: Tree
    server: Tree
    memory: Tree
    excluded: Array  # int32 [clients, runs]
    broken: Array  # int32 [runs] first round whose weights were not finite, or a huge number


class Record(NamedTuple):
    """What a block leaves behind."""

    weights: Array  # [rounds, K, runs]
    tables: Array  # int32 [stops, owners, groups, labels, outcomes, runs]
    losses: Array  # [stops, owners, runs] summed


class Shape(NamedTuple):
    """What shapes the program; hashable."""

    runs: int
    axis: int  # of the runs in every parameter: -1 (joint) or 0
    clients: int
    groups: int
    labels: int
    chunk: int  # rows read at a time when a client measures its loss
    eval_chunk: int

    @property
    def owners(self) -> int:
        return 3 * self.clients + 1


NEVER = 2**31 - 1


def shard(data: Data, rows: Array) -> Shard:
    """The rows with these numbers; padding has mask 0."""
    mask = (rows < data.y.shape[0] - 1).astype(jnp.float32)
    weight = jnp.ones_like(mask) if data.weight is None else data.weight[rows]
    return Shard(data.x[rows], data.y[rows], data.group[rows], weight, mask)


def each(function: Any, shape: Shape, parts: Parts, *per_run: Tree) -> Tree:
    """Apply a function of (parts, parameters...) to every run: directly where the model is joint, else vmapped."""
    if shape.axis == -1:
        return function(parts, *per_run)
    return jax.vmap(function, (0, *(0 for _ in per_run)))(parts, *per_run)


def runs_last(value: Array, shape: Shape) -> Array:
    return value if shape.axis == -1 else jnp.moveaxis(value, 0, -1)


def measured_losses(task: Task, shape: Shape, parts: Parts, data: Data, model: Tree, cohort: Array) -> Array:
    """Each client's loss of the model it received, on all its training rows, before training. [K, runs]"""

    def chunk(i: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        total, start, stop = carry
        at = start + i * shape.chunk + jnp.arange(shape.chunk)
        rows = jnp.where(at < stop, data.train_rows[jnp.minimum(at, stop - 1)], data.y.shape[0] - 1)
        batch = shard(data, rows)._replace(weight=jnp.ones(rows.shape))  # F_k is never reweighed
        return total + each(lambda _, m: summed_loss(task, m, batch), shape, parts, model), start, stop

    def client(k: Array) -> Array:
        start, stop = data.train_start[k], data.train_start[k + 1]
        chunks = (stop - start + shape.chunk - 1) // shape.chunk
        total, _, _ = lax.fori_loop(0, chunks, chunk, (jnp.zeros(shape.runs), start, stop))
        return total / (stop - start) if task.reduction == "mean" else total

    penalty = jnp.broadcast_to(each(lambda _, m: jnp.asarray(task.penalty(m), jnp.float32), shape, parts, model), (shape.runs,))
    return lax.map(client, cohort) + penalty


class Sum(NamedTuple):
    """What training has added up so far."""

    total: Tree
    memory: Tree
    square_norm: Array  # [K, runs]
    finite: Array  # bool [K, runs]


def trained_sum(task: Task, shape: Shape, parts: Parts, data: Data, block: Any, state: State, t: Array, coefficients: Array) -> Sum:
    """Train the cohort of round t and add up coefficient times vector as each client finishes."""
    slots = coefficients.shape[0]

    def step(s: Array, local: Tree) -> Tree:
        batch = shard(data, block.rows[s])
        return each(lambda p, received, mine: p.work.step(task, received, mine, batch), shape, parts, state.model, local)

    def client(k: Array, carry: Sum) -> Sum:
        visit, who = t * slots + k, block.cohort[t, k]
        memory = jax.tree.map(lambda leaf: leaf[who], carry.memory)
        local = each(lambda p, m, own: p.work.start(task, m, own), shape, parts, state.model, memory)
        local = lax.fori_loop(block.first_step[visit], block.first_step[visit + 1], step, local)
        vector, memory = each(lambda p, m, mine: p.work.finish(task, m, mine), shape, parts, state.model, local)
        finite = trees.all_finite(vector, shape.axis)
        counts = finite & (coefficients[k] != 0) & block.returned[t, k]
        # A vector that is not finite must not reach the sum even with coefficient 0: 0 * NaN is NaN.
        vector = trees.where(counts, vector, trees.zeros_like(vector), shape.axis)
        return Sum(
            trees.add_scaled(carry.total, vector, coefficients[k], shape.axis),
            jax.tree.map(lambda leaf, new: leaf.at[who].set(new), carry.memory, memory),
            carry.square_norm.at[k].set(trees.square_norm(vector, shape.axis)),
            carry.finite.at[k].set(finite),
        )

    nothing = jnp.zeros((slots, shape.runs))
    return lax.fori_loop(0, slots, client, Sum(trees.zeros_like(state.model), state.memory, nothing, nothing < 0))


def one_round(task: Task, shape: Shape, parts: Parts, data: Data, block: Any, t: Array, state: State) -> tuple[State, Array]:
    """Measure, weigh, train, step. Returns the new state and the coefficients that counted. [K, runs]"""
    cohort = block.cohort[t]
    returned = jnp.broadcast_to(block.returned[t][:, None], (cohort.shape[0], shape.runs))
    signals = Signals(client=cohort, returned=returned, examples=data.examples[cohort])
    axes: Signals = Signals(client=None, returned=-1, examples=None)
    if "loss" in parts.rule.needs:
        loss = measured_losses(task, shape, parts, data, state.model, cohort)
        known = jnp.isfinite(loss)
        signals = signals._replace(loss=jnp.where(known, loss, 0.0), returned=returned & known)
        axes = axes._replace(loss=-1)

    weigh = jax.vmap(lambda rule, own, s: rule.weigh(own, s), (0, 0, axes), (-1, 0))
    coefficients, rule = weigh(parts.rule, state.rule, signals)
    sane = jnp.isfinite(coefficients).all(0)  # [runs]
    coefficients = jnp.where(sane, coefficients, 0.0)

    summed = trained_sum(task, shape, parts, data, block, state, t, coefficients)
    kept = jnp.where(summed.finite & signals.returned, coefficients, 0.0)
    signals = signals._replace(returned=signals.returned & summed.finite)
    # Clients found broken only after training: the sum is divided by the share of coefficients that returned.
    share = jnp.where(kept.sum(0) != 0, coefficients.sum(0) / jnp.where(kept.sum(0) != 0, kept.sum(0), 1.0), 0.0)
    total = jax.tree.map(lambda leaf: leaf * trees.along(share, leaf, shape.axis), summed.total)

    def move(part: Parts, rule: Tree, server: Tree, model: Tree, total: Tree, s: Signals, effort: Effort) -> tuple[Tree, Tree, Tree]:
        change, rule = part.rule.step(rule, s, effort, total)
        if part.server is None:
            return trees.add(model, change), rule, server
        model, server = part.server.update(change, server, model)
        return model, rule, server

    moved = jax.vmap(move, (0, 0, 0, shape.axis, shape.axis, axes, Effort(-1)), (shape.axis, 0, 0))
    model, rule, server = moved(parts, rule, state.server, state.model, total, signals, Effort(summed.square_norm))

    # A round in which nobody's update counted changes nothing, not even an optimiser's momentum.
    anyone = sane & (kept != 0).any(0)
    lost = block.returned[t][:, None] & ~signals.returned
    state = State(
        model=trees.where(anyone, model, state.model, shape.axis),
        rule=trees.where(anyone, rule, state.rule, 0),
        server=trees.where(anyone, server, state.server, 0),
        memory=summed.memory,
        excluded=state.excluded.at[cohort].add(lost.astype(jnp.int32)),
        broken=jnp.where(sane, state.broken, jnp.minimum(state.broken, t)),
    )
    return state, kept * share


def evaluated(task: Task, shape: Shape, parts: Parts, data: Data, model: Tree) -> tuple[Array, Array]:
    """Counts by owner, group, label and outcome, and summed losses by owner, on all evaluated rows."""
    cells = shape.owners * shape.groups * shape.labels

    def chunk(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        tables, losses = carry
        at = i * shape.eval_chunk + jnp.arange(shape.eval_chunk)
        rows, owner = data.eval_rows[at], data.eval_owner[at]
        batch = shard(data, rows)._replace(weight=jnp.ones(rows.shape))
        outcome = runs_last(each(lambda _, m: task.predict(m, batch.x), shape, parts, model), shape)  # [n, runs]
        loss = runs_last(each(lambda _, m: task.losses(m, batch), shape, parts, model), shape)
        hot = (outcome[:, None, :] == jnp.arange(shape.labels)[:, None]) & (batch.mask > 0)[:, None, None]
        cell = (owner * shape.groups + batch.group) * shape.labels + batch.y
        # Rows of padding have no owner: their index is out of range and dropped.
        return tables.at[cell].add(hot.astype(jnp.int32), mode="drop"), losses.at[owner].add(loss, mode="drop")

    tables = jnp.zeros((cells, shape.labels, shape.runs), jnp.int32)
    losses = jnp.zeros((shape.owners, shape.runs))
    tables, losses = lax.fori_loop(0, data.eval_rows.shape[0] // shape.eval_chunk, chunk, (tables, losses))
    return tables.reshape(shape.owners, shape.groups, shape.labels, shape.labels, shape.runs), losses


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
            lambda: evaluated(task, shape, parts, data, state.model),
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

"""Train the clients of a cohort, in turn or in lanes, and sum their vectors as they finish.

Memory holds one model and one sum per run and device, whatever the size of the cohort. Only rules
that need the inner products of the vectors keep all vectors of the cohort.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from evenly import trees
from evenly.data.federation import Shard
from evenly.models.linear import over_runs
from evenly.models.task import uses_keys
from evenly.parts.ranking_work import is_scheduled
from evenly.parts.row_privacy import PrivateTraining
from evenly.randomness import next_key, visit_key
from evenly.simulate.layout import (
    Inputs,
    Shape,
    State,
    batch_max,
    map_runs,
    shard,
    sum_over_devices,
)
from evenly.types import Array, RowRule, Tree, Work


class CohortUpdate(NamedTuple):
    """The result of a cohort's training."""

    # sum of coefficient times vector; or all vectors, stacked, for rules that need them
    total: Tree
    memory: Tree
    square_norm: Array  # [K, runs] of each vector; not finite for clients whose training failed

    @property
    def finite(self) -> Array:
        """Which vectors are finite. [K, runs]"""
        return jnp.isfinite(self.square_norm)


class Cohort(NamedTuple):
    """The clients of one round, ready to train."""

    shape: Shape
    inputs: Inputs
    block: Any
    state: State
    t: Array
    # [groups, labels, runs] (or runs first), from rules that weigh rows
    row_weights: Array | None = None
    # int32 [K, runs] the model that each slot trains, of several; None: there is one for all
    choice: Array | None = None
    clip: Array | None = None  # [runs] largest length of a vector; None: no run clips

    def shrink(self, square_norm: Array) -> Array | float:
        """What a vector of this length is multiplied by, so that it is not longer than its clip.
        [..., runs]
        """
        if self.clip is None:
            return 1.0
        norm = jnp.sqrt(jnp.where(jnp.isfinite(square_norm), square_norm, 0.0))
        return jnp.minimum(self.clip / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny), 1.0)

    @property
    def padding(self) -> int:
        """Number of the row of padding."""
        return self.inputs.data.y.shape[0] - 1

    def visit(self, k: Array, memory: Tree, wanted: Array) -> tuple[Tree, Tree, Array]:
        """Train slot k if it is wanted. Returns vector, memory and squared norm.

        A vector whose norm is not finite is replaced by zeros, because even with coefficient 0 it
        would spoil the sum (0 * NaN is NaN). A client whose training failed keeps its former
        memory.
        """
        if self.shape.fused and self.shape.runs > 1:
            by_run = lax.map(
                lambda run: self.of_run(run).visit(k, _one_run(memory, run), wanted),
                jnp.arange(self.shape.runs),
            )
            return jax.tree.map(lambda leaf: leaf[:, 0], by_run)
        visit = self.t * self.block.cohort.shape[1] + k
        start, stop = self.block.first_step[visit], self.block.first_step[visit + 1]
        body = lambda s, local: self.step(local, self.block.rows[s], k)  # noqa: E731
        return self.finish(
            lax.fori_loop(start, jnp.where(wanted, stop, start), body, self.start(memory, k)),
            memory,
            k,
        )

    def of_run(self, run: Array) -> "Cohort":
        """The same cohort in one of the runs, where runs lie in front."""
        parts = self.inputs.parts
        parts = parts._replace(
            work=_one_run(parts.work, run), weight_column=_one_run(parts.weight_column, run)
        )
        return self._replace(
            shape=self.shape._replace(runs=1),
            inputs=self.inputs._replace(parts=parts),
            state=self.state._replace(model=_one_run(self.state.model, run)),
            row_weights=_one_run(self.row_weights, run),
            choice=(
                None if self.choice is None else lax.dynamic_slice_in_dim(self.choice, run, 1, 1)
            ),
        )

    def model_of(self, k: Array) -> Tree:
        """The model that slot k trains."""
        if self.choice is None:
            return self.state.model
        return jax.vmap(lambda models, choice: jax.tree.map(lambda leaf: leaf[choice], models))(
            self.state.model, self.choice[k]
        )

    @property
    def keyed(self) -> bool:
        """Whether local steps take random numbers."""
        return uses_keys(self.inputs.task) or isinstance(self.inputs.parts.work, PrivateTraining)

    def start(self, memory: Tree, k: Array) -> tuple[Tree, Array | None]:
        """The local state of slot k before its first step, and the key of its random numbers."""
        local = self._map(
            lambda work, model, own: work.start(self.inputs.task, model, own), memory, k
        )
        if not self.keyed:
            return local, None
        number, client = self.block.start + self.t, self.block.cohort[self.t, k]
        return local, visit_key(self.block.seed, number, client)

    def step(
        self, local: tuple[Tree, Array | None], rows: Array, k: Array
    ) -> tuple[Tree, Array | None]:
        """The local state of slot k after a step on these rows. All runs share its random
        numbers.
        """
        batch, parts = shard(self.inputs.data, rows), self.inputs.parts
        if isinstance(parts.work, PrivateTraining):
            batch = batch._replace(expected=parts.work.rate * self._examples(k))
        if is_scheduled(parts.work):
            batch = batch._replace(visit=(self.block.start + self.t, self._examples(k)))
        before, key = local
        key, now = (None, None) if key is None else next_key(key)

        def one(work: Work, weights: tuple[Tree, Tree], model: Tree, own: Tree) -> Tree:
            weighted = batch._replace(weight=_batch_weight(batch, *weights))
            key = () if now is None else (now,)  # work of one's own may do without
            return work.step(self.inputs.task, model, own, weighted, *key)

        return map_runs(
            one,
            self.shape.axis,
            parts.work,
            (parts.weight_column, self.row_weights),
            self.model_of(k),
            before,
        ), key

    def _examples(self, k: Array) -> Array:
        """Number of training rows of slot k's client."""
        return self.inputs.data.examples[self.block.position[self.t, k]]

    def finish(
        self, local: tuple[Tree, Array | None], memory: Tree, k: Array
    ) -> tuple[Tree, Tree, Array]:
        """Vector, memory and squared norm of slot k after its last step."""
        vector, new = self._map(
            lambda work, model, own: work.finish(self.inputs.task, model, own), local[0], k
        )
        axis = self.shape.axis
        norm = trees.square_norm(trees.learned(vector), axis)
        if isinstance(vector, trees.Stateful):
            norm = jnp.where(trees.all_finite(vector.state, axis), norm, jnp.nan)
        intact = jnp.isfinite(norm) & jnp.isfinite(trees.square_norm(new, axis))
        return (
            trees.where(jnp.isfinite(norm), vector, trees.zeros_like(vector), axis),
            trees.where(intact, new, memory, axis),
            norm,
        )

    def zero_total(self) -> Tree:
        """Zeros in the form of the sum of all vectors; of several models, one sum for each."""
        memory = jax.tree.map(lambda leaf: leaf[0], self.state.memory.work)
        vector = jax.eval_shape(
            lambda own: self.finish(self.start(own, jnp.int32(0)), own, jnp.int32(0))[0], memory
        )
        models = (self.shape.models,) if self.shape.models else ()
        return jax.tree.map(
            lambda leaf: jnp.zeros((*leaf.shape[:1], *models, *leaf.shape[1:]), leaf.dtype), vector
        )

    def _map(self, function: Any, own: Tree, k: Array) -> Tree:
        return map_runs(function, self.shape.axis, self.inputs.parts.work, self.model_of(k), own)


def _one_run(tree: Tree, run: Array) -> Tree:
    return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, run, 1), tree)


def _batch_weight(batch: Shard, column: Array | None, row_weights: Array | None) -> Array:
    """The weight of each row of a batch: [n], or [n, runs] where the runs of a joint model differ
    in it.
    """
    weight = batch.weight if column is None else batch.weight[:, column]
    if row_weights is None:
        return weight
    factor = row_weights[batch.group, batch.y]
    return over_runs(weight, factor) * factor


def row_weights(shape: Shape, inputs: Inputs, state: State) -> Array | None:
    """The weights by group and label that rules send to clients, with the runs on the axis of the
    parameters; None: no rule does.
    """
    groups = inputs.parts.rules
    if not any(isinstance(group.rule, RowRule) for group in groups):
        return None
    weights = []
    for i, group in enumerate(groups):
        size = shape.bounds[i + 1] - shape.bounds[i]
        weigh_rows = jax.vmap(lambda rule, own: rule.row_weights(own), axis_size=size)
        ones = jnp.ones((size, shape.groups, shape.labels))
        weights.append(
            weigh_rows(group.rule, state.public[i]) if isinstance(group.rule, RowRule) else ones
        )
    return jnp.moveaxis(jnp.concatenate(weights), 0, shape.axis)


def train_and_sum(cohort: Cohort, coefficients: Array) -> CohortUpdate:
    """Sum coefficient [K, runs] (or [K, models, runs]) times vector over the cohort, on each device
    over its own clients.
    """
    shape = cohort.shape
    # every client has a lane of its own, from the first step on
    one_each = shape.lanes * shape.devices >= coefficients.shape[0]
    update = (_in_turn if shape.lanes == 1 else _in_own_lanes if one_each else _in_lanes)(
        cohort, coefficients
    )
    return update if shape.devices == 1 else _sum_devices(cohort, update)


def _in_turn(cohort: Cohort, coefficients: Array) -> CohortUpdate:
    """Train clients one after another. Clients without memory whose coefficient is 0 in every run
    are skipped.
    """
    shape, slots = cohort.shape, coefficients.shape[0]
    remembering = bool(jax.tree.leaves(cohort.state.memory.work))

    def client(k: Array, carry: CohortUpdate) -> CohortUpdate:
        position = cohort.block.position[cohort.t, k]
        memory = jax.tree.map(lambda leaf: leaf[position], carry.memory)
        wanted = cohort.block.returned[cohort.t, k] if remembering else (coefficients[k] != 0).any()
        vector, memory, norm = cohort.visit(k, memory, wanted)
        return CohortUpdate(
            _add_vector(carry.total, vector, coefficients[k] * cohort.shrink(norm), shape),
            jax.tree.map(lambda leaf, new: leaf.at[position].set(new), carry.memory, memory),
            carry.square_norm.at[k].set(norm),
        )

    start = CohortUpdate(
        cohort.zero_total(), cohort.state.memory.work, jnp.zeros((slots, shape.runs))
    )
    if shape.devices == 1:
        return lax.fori_loop(0, slots, client, start)
    mine = cohort.block.turns[cohort.t, 0]
    return lax.fori_loop(0, (mine < slots).sum(), lambda i, carry: client(mine[i], carry), start)


def _in_own_lanes(cohort: Cohort, coefficients: Array) -> CohortUpdate:
    """Train all clients side by side, each in a lane of its own, and sum once at the end."""
    shape, slots, lanes = cohort.shape, coefficients.shape[0], cohort.block.lanes
    begin, end = lanes.first_step[cohort.t], lanes.first_step[cohort.t + 1]
    slot = jnp.where(begin < end, lanes.slot[begin], slots)
    position = jnp.append(cohort.block.position[cohort.t], shape.clients)[slot]
    memory = jax.tree.map(lambda leaf: leaf.at[position].get(mode="clip"), cohort.state.memory.work)
    local = _steps_of_own_lanes(cohort, memory, slot)
    vector, memory, norm = jax.vmap(cohort.finish)(local, memory, slot)
    own = _lane_coefficients(coefficients)[slot] * _each_lane(cohort.shrink(norm), shape)
    return CohortUpdate(
        _add_lanes(cohort.zero_total(), vector, own, shape),
        jax.tree.map(
            lambda leaf, new: leaf.at[position].set(new, mode="drop"),
            cohort.state.memory.work,
            memory,
        ),
        jnp.zeros((slots, shape.runs)).at[slot].set(norm, mode="drop"),
    )


def _steps_of_own_lanes(cohort: Cohort, memory: Tree, slot: Array) -> Tree:
    """The local states of all lanes after their last step.

    A step contains no condition, because a GPU would have to wait for the host to decide it. Lanes
    that are done keep their state. Whether all are done is checked once in a stride, or never where
    all clients take equally many steps.
    """
    shape, lanes, slots = cohort.shape, cohort.block.lanes, cohort.block.cohort.shape[1]
    begin, end = lanes.first_step[cohort.t], lanes.first_step[cohort.t + 1]

    def step(s: Array, local: Tree) -> Tree:
        # other simulations of the seed batch may take more steps
        busy = (s < end) & (lanes.slot[s] < slots)
        return _where_lane(busy, jax.vmap(cohort.step)(local, lanes.rows[s], slot), local)

    def stride(i: Array, local: Tree) -> Tree:
        return lax.fori_loop(
            0,
            shape.stride,
            lambda s, own: step(begin + i * shape.stride + s, own),
            local,
            unroll=shape.unroll,
        )

    if shape.equal and cohort.choice is None and not cohort.keyed and not jax.tree.leaves(memory):
        # All lanes start with the same model: the first step reads it once for all lanes, without
        # copies.
        one = cohort.start(memory, slot[0])
        first = jax.vmap(cohort.step, (None, 0, 0))(one, lanes.rows[begin], slot)
        return lax.fori_loop(
            1,
            shape.equal,
            lambda s, own: step(begin + s, own),
            _where_lane(slot < slots, first, one),
        )
    local = jax.vmap(cohort.start)(memory, slot)
    if shape.equal:
        return lax.fori_loop(0, shape.equal, lambda s, own: step(begin + s, own), local)
    return lax.fori_loop(
        0, batch_max(stride_count(end - begin, shape.stride), shape), stride, local
    )


def stride_count(steps: Array, stride: int) -> Array:
    """Number of strides that hold this many steps; the last may be partly idle."""
    return -(-steps // stride)


def _in_lanes(cohort: Cohort, coefficients: Array) -> CohortUpdate:
    """Train clients side by side. A lane starts afresh at a visit's first step and adds its vector
    to the sum after the last.
    """
    shape, lanes = cohort.shape, cohort.block.lanes
    begin, end = lanes.first_step[cohort.t], lanes.first_step[cohort.t + 1]
    position = jnp.append(cohort.block.position[cohort.t], shape.clients)
    training = _LaneTraining(cohort, _lane_coefficients(coefficients), position)
    empty = CohortUpdate(
        cohort.zero_total(),
        cohort.state.memory.work,
        jnp.zeros((coefficients.shape[0], shape.runs)),
    )
    slot = lanes.slot[begin]
    first = jax.vmap(cohort.start)(training.memory_of(cohort.state.memory.work, slot), slot)
    return lax.fori_loop(0, batch_max(end - begin, shape), training.step, (first, empty))[1]


class _LaneTraining(NamedTuple):
    """A cohort whose clients follow one another in lanes."""

    cohort: Cohort
    coefficients: Array  # of each slot, and zeros for idle lanes
    # of each slot's client on the device, and a position past the last for idle lanes
    position: Array

    def memory_of(self, memory: Tree, slot: Array) -> Tree:
        """The memories of the clients in these slots."""
        return jax.tree.map(lambda leaf: leaf.at[self.position[slot]].get(mode="clip"), memory)

    def step(self, i: Array, carry: tuple[Tree, CohortUpdate]) -> tuple[Tree, CohortUpdate]:
        """Step i of the round: local states of the lanes, and the update so far."""
        (local, update), cohort, lanes = carry, self.cohort, self.cohort.block.lanes
        begin, end, slots = (
            lanes.first_step[cohort.t],
            lanes.first_step[cohort.t + 1],
            cohort.block.cohort.shape[1],
        )
        # other simulations of the seed batch may take more steps
        s, busy = begin + i, begin + i < end
        slot = jnp.where(busy, lanes.slot[s], slots)
        local = _where_lane(
            busy & lanes.starts[s],
            jax.vmap(cohort.start)(self.memory_of(update.memory, slot), slot),
            local,
        )
        rows = jnp.where(busy, lanes.rows[s], cohort.padding)
        local = jax.vmap(cohort.step)(local, rows, slot)
        ends = busy & lanes.ends[s]
        last = jnp.where(ends, slot, slots)
        add, skip = lambda: self.add(update, local, slot, last), lambda: self.skip(update)
        (total, norms), memory = lax.cond(batch_max(ends.any(), cohort.shape), add, skip)
        # Outside of the condition, which would copy the memory of all clients to set that of a few.
        memory = jax.tree.map(
            lambda leaf, new: leaf.at[self.position[last]].set(new, mode="drop"),
            update.memory,
            memory,
        )
        return local, CohortUpdate(total, memory, norms)

    def skip(self, update: CohortUpdate) -> tuple[tuple[Tree, Array], Tree]:
        """Total and norms as they are, and zeros in the form of the memories of all lanes."""
        lanes = self.cohort.shape.lanes
        memory = jax.tree.map(
            lambda leaf: jnp.zeros((lanes, *leaf.shape[1:]), leaf.dtype), update.memory
        )
        return (update.total, update.square_norm), memory

    def add(
        self, update: CohortUpdate, local: Tree, slot: Array, last: Array
    ) -> tuple[tuple[Tree, Array], Tree]:
        """Total and norms with the vectors of lanes that end their visit (`last`), and the new
        memories of all lanes.
        """
        vector, memory, norm = jax.vmap(self.cohort.finish)(
            local, self.memory_of(update.memory, slot), slot
        )
        shape = self.cohort.shape
        own = self.coefficients[last] * _each_lane(self.cohort.shrink(norm), shape)
        total = _add_lanes(update.total, vector, own, shape)
        return (total, update.square_norm.at[last].set(norm, mode="drop")), memory


def _each_lane(factor: Array | float, shape: Shape) -> Array | float:
    """Factors [lanes, runs] that broadcast against coefficients, also those of several models."""
    return jnp.asarray(factor)[:, None] if shape.models and jnp.ndim(factor) else factor


def _lane_coefficients(coefficients: Array) -> Array:
    """The coefficients of all slots, and zeros for idle lanes."""
    return jnp.concatenate([coefficients, jnp.zeros((1, *coefficients.shape[1:]))])


def _sum_devices(cohort: Cohort, update: CohortUpdate) -> CohortUpdate:
    """Sum totals and norms over the devices. The memory of a client is taken from the device that
    it visited.
    """
    shape, slots = cohort.shape, update.square_norm.shape[0]
    position = cohort.block.position[cohort.t]
    mine = jnp.zeros(slots, bool).at[cohort.block.turns[cohort.t, 0]].set(True, mode="drop")
    own = jax.tree.map(
        lambda leaf: _where_lane(mine, leaf[position], jnp.zeros_like(leaf[position])),
        update.memory,
    )
    total, norms, memory, visits = sum_over_devices(
        (update.total, update.square_norm, own, mine.astype(jnp.int32)), shape
    )
    target = jnp.where(visits > 0, position, shape.clients)
    memory = jax.tree.map(
        lambda leaf, new: leaf.at[target].set(new, mode="drop"), cohort.state.memory.work, memory
    )
    return CohortUpdate(total, memory, norms)


def _add_vector(total: Tree, vector: Tree, coefficients: Array, shape: Shape) -> Tree:
    """Add a vector times its coefficient [runs], or times one coefficient for each model [models,
    runs], to the total.
    """
    if not shape.models:
        return trees.add_scaled(total, vector, coefficients, shape.axis)
    return jax.tree.map(
        lambda t, v: t + jnp.einsum("mr,r...->rm...", coefficients, v, precision="highest"),
        total,
        vector,
    )


def _add_lanes(total: Tree, vectors: Tree, coefficients: Array, shape: Shape) -> Tree:
    """Add the vectors of all lanes to the total; coefficients have the lanes in front."""
    if not shape.models:
        scaled = jax.vmap(lambda v, c: trees.add_scaled(trees.zeros_like(v), v, c, shape.axis))(
            vectors, coefficients
        )
        return jax.tree.map(lambda t, each_lane: t + each_lane.sum(0), total, scaled)
    return jax.tree.map(
        lambda t, v: t + jnp.einsum("lmr,lr...->rm...", coefficients, v, precision="highest"),
        total,
        vectors,
    )


def _where_lane(condition: Array, a: Tree, b: Tree) -> Tree:
    return jax.tree.map(
        lambda x, y: jnp.where(condition.reshape(-1, *(1,) * (x.ndim - 1)), x, y), a, b
    )


def train_vectors(cohort: Cohort, slots: int) -> CohortUpdate:
    """Train every client that returns and keep every vector, stacked along a new first axis."""

    def client(memory: Tree, k: Array) -> tuple[Tree, tuple[Tree, Array]]:
        position = cohort.block.position[cohort.t, k]
        own = jax.tree.map(lambda leaf: leaf[position], memory)
        vector, own, norm = cohort.visit(k, own, cohort.block.returned[cohort.t, k])
        return jax.tree.map(lambda leaf, new: leaf.at[position].set(new), memory, own), (
            vector,
            norm,
        )

    memory, (vectors, norms) = lax.scan(client, cohort.state.memory.work, jnp.arange(slots))
    return CohortUpdate(vectors, memory, norms)


def inner_products(vectors: Tree, axis: int) -> Array:
    """Gram matrix of stacked vectors, for each run, without the state of models. [K, K, runs]"""

    def one(leaf: Array) -> Array:
        flat = (
            leaf.reshape(leaf.shape[0], -1, leaf.shape[-1])
            if axis == -1
            else jnp.moveaxis(leaf.reshape(*leaf.shape[:2], -1), 1, -1)
        )
        return jnp.einsum("kdr,jdr->kjr", flat, flat, precision="highest")

    leaves = [one(leaf) for leaf in jax.tree.leaves(trees.learned(vectors))]
    return sum(leaves[1:], start=leaves[0])


def weighted_sum(vectors: Tree, coefficients: Array, axis: int) -> Tree:
    """coefficients @ vectors, for each run."""
    sums = "kr,k...r->...r" if axis == -1 else "kr,kr...->r..."
    return jax.tree.map(
        lambda leaf: jnp.einsum(sums, coefficients, leaf, precision="highest"), vectors
    )

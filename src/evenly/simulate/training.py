"""Clients train, one after another; their vectors are summed as they finish.

Memory is one model and one sum per run and device, whatever the cohort, unless the rule needs the vectors' inner products: then
all vectors of the cohort are held.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from evenly import trees
from evenly.data.federation import Shard
from evenly.models.linear import over_runs
from evenly.simulate.layout import Data, RunParts, Shape, State, added_up, each, most, shard
from evenly.types import Array, Task, Tree, Work


class Trained(NamedTuple):
    """What a cohort's training leaves."""

    total: Tree  # sum of coefficient times vector; or, where vectors are kept, all of them stacked
    memory: Tree
    square_norm: Array  # [K, runs] of each vector; not finite for those left out

    @property
    def finite(self) -> Array:
        return jnp.isfinite(self.square_norm)


class Cohort(NamedTuple):
    """One round's training, ready to visit its clients."""

    task: Task
    shape: Shape
    parts: RunParts
    data: Data
    block: Any
    state: State
    t: Array
    row_weights: Array | None = None  # [groups, labels, runs] (or runs first): what rules that weigh rows tell their clients
    choice: Array | None = None  # int32 [K, runs]: which of several models each slot trains; None: there is one for all

    def visit(self, k: Array, memory: Tree, wanted: Array) -> tuple[Tree, Tree, Array]:
        """Train slot k unless nobody wants it to. Returns vector, memory and squared norm; a vector whose norm is not finite
        comes back as zeros, because even with coefficient 0 it would spoil the sum (0 * NaN is NaN), and a client whose
        training broke keeps the memory it had."""
        if self.shape.whole and self.shape.runs > 1:
            found = lax.map(lambda run: self.alone(run).visit(k, _one_run(memory, run), wanted), jnp.arange(self.shape.runs))
            return jax.tree.map(lambda leaf: leaf[:, 0], found)
        visit = self.t * self.block.cohort.shape[1] + k
        start, stop = self.block.first_step[visit], self.block.first_step[visit + 1]
        body = lambda s, local: self.step(local, self.block.rows[s], k)  # noqa: E731
        return self.finish(lax.fori_loop(start, jnp.where(wanted, stop, start), body, self.start(memory, k)), memory, k)

    def alone(self, run: Array) -> "Cohort":
        """The same for one of the runs, which lie in front."""
        parts = self.parts._replace(work=_one_run(self.parts.work, run), prepared=_one_run(self.parts.prepared, run))
        choice = None if self.choice is None else lax.dynamic_slice_in_dim(self.choice, run, 1, 1)
        state = self.state._replace(model=_one_run(self.state.model, run))
        shape = self.shape._replace(runs=1)
        return self._replace(shape=shape, parts=parts, state=state, row_weights=_one_run(self.row_weights, run), choice=choice)

    def received(self, k: Array) -> Tree:
        """The model that slot k trains."""
        if self.choice is None:
            return self.state.model
        return jax.vmap(lambda models, own: jax.tree.map(lambda leaf: leaf[own], models))(self.state.model, self.choice[k])

    def start(self, memory: Tree, k: Array) -> Tree:
        return self._each(lambda work, m, own: work.start(self.task, m, own), memory, k)

    def step(self, local: Tree, rows: Array, k: Array) -> Tree:
        batch = shard(self.data, rows)

        def one(work: Work, own: tuple[Tree, Tree], received: Tree, mine: Tree) -> Tree:
            return work.step(self.task, received, mine, batch._replace(weight=_weight_of(batch, *own)))

        return each(one, self.shape.axis, self.parts.work, (self.parts.prepared, self.row_weights), self.received(k), local)

    def finish(self, local: Tree, memory: Tree, k: Array) -> tuple[Tree, Tree, Array]:
        vector, new = self._each(lambda work, m, mine: work.finish(self.task, m, mine), local, k)
        axis = self.shape.axis
        norm = trees.square_norm(vector, axis)
        whole = jnp.isfinite(norm) & jnp.isfinite(trees.square_norm(new, axis))
        return trees.where(jnp.isfinite(norm), vector, trees.zeros_like(vector), axis), trees.where(whole, new, memory, axis), norm

    def no_total(self) -> Tree:
        """Zeros in the form of the sum of all vectors; where there are several models, one for each of them."""
        memory = jax.tree.map(lambda leaf: leaf[0], self.state.memory)
        vector = jax.eval_shape(lambda own: self.finish(self.start(own, jnp.int32(0)), own, jnp.int32(0))[0], memory)
        models = (self.shape.models,) if self.shape.models else ()
        return jax.tree.map(lambda leaf: jnp.zeros((*leaf.shape[:1], *models, *leaf.shape[1:]), leaf.dtype), vector)

    def _each(self, function: Any, own: Tree, k: Array) -> Tree:
        return each(function, self.shape.axis, self.parts.work, self.received(k), own)


def _one_run(tree: Tree, run: Array) -> Tree:
    return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, run, 1), tree)


def _weight_of(batch: Shard, prepared: Array | None, row_weights: Array | None) -> Array:
    """How much each row of a batch counts: [n], or [n, runs] where the runs of a joint model differ in it."""
    weight = batch.weight if prepared is None else batch.weight[:, prepared]
    if row_weights is None:
        return weight
    told = row_weights[batch.group, batch.y]
    return over_runs(weight, told) * told


def trained_sum(cohort: Cohort, coefficients: Array) -> Trained:
    """Add up coefficient [K, runs] (or [K, models, runs]) times vector, clients one after another or in lanes, on every device
    those dealt to it."""
    shape = cohort.shape
    one_each = shape.lanes * shape.devices >= coefficients.shape[0]  # everyone has a lane of its own, from the first step on
    trained = (_in_turn if shape.lanes == 1 else _in_own_lanes if one_each else _in_lanes)(cohort, coefficients)
    return trained if shape.devices == 1 else _of_all_devices(cohort, trained)


def _in_turn(cohort: Cohort, coefficients: Array) -> Trained:
    """Clients one after another; those whose coefficient is 0 in every run are not trained, unless they keep a memory."""
    shape, slots = cohort.shape, coefficients.shape[0]
    remembering = bool(jax.tree.leaves(cohort.state.memory))

    def client(k: Array, carry: Trained) -> Trained:
        who = cohort.block.place[cohort.t, k]
        memory = jax.tree.map(lambda leaf: leaf[who], carry.memory)
        wanted = cohort.block.returned[cohort.t, k] if remembering else (coefficients[k] != 0).any()
        vector, memory, norm = cohort.visit(k, memory, wanted)
        return Trained(
            _added(carry.total, vector, coefficients[k], shape),
            jax.tree.map(lambda leaf, new: leaf.at[who].set(new), carry.memory, memory),
            carry.square_norm.at[k].set(norm),
        )

    nothing = jnp.zeros((slots, shape.runs))
    start = Trained(cohort.no_total(), cohort.state.memory, nothing)
    if shape.devices == 1:
        return lax.fori_loop(0, slots, client, start)
    mine = cohort.block.turns[cohort.t, 0]
    return lax.fori_loop(0, (mine < slots).sum(), lambda i, carry: client(mine[i], carry), start)


def _in_own_lanes(cohort: Cohort, coefficients: Array) -> Trained:
    """All clients side by side, each in a lane of its own: all start together, and are added up once, at the end.

    A step has no condition in it, which a GPU would have to ask the host about, and several steps are taken for each look at
    whether that was all, or all without a look; lanes that have nothing more to do stay as they are.
    """
    shape, slots, lanes = cohort.shape, coefficients.shape[0], cohort.block.lanes
    begin, end = lanes.first_step[cohort.t], lanes.first_step[cohort.t + 1]
    slot = jnp.where(begin < end, lanes.slot[begin], slots)
    who = jnp.append(cohort.block.place[cohort.t], shape.clients)[slot]
    memory = jax.tree.map(lambda leaf: leaf[jnp.minimum(who, shape.clients - 1)], cohort.state.memory)

    def step(s: Array, local: Tree) -> Tree:
        busy = (s < end) & (lanes.slot[s] < slots)  # others, who advance side by side with us, may have more to do
        return _where_lane(busy, jax.vmap(cohort.step)(local, lanes.rows[s], slot), local)

    def steps(i: Array, local: Tree) -> Tree:
        return lax.fori_loop(0, shape.stride, lambda s, own: step(begin + i * shape.stride + s, own), local, unroll=shape.unroll)

    if shape.equal and cohort.choice is None and not jax.tree.leaves(memory):
        # All start with the same model: the first step reads it once for all lanes, and no copies of it are made.
        one = cohort.start(memory, slot[0])
        first = jax.vmap(cohort.step, (None, 0, 0))(one, lanes.rows[begin], slot)
        local = _where_lane(slot < slots, first, one)
        local = lax.fori_loop(1, shape.equal, lambda s, own: step(begin + s, own), local)
    elif shape.equal:
        local = lax.fori_loop(0, shape.equal, lambda s, own: step(begin + s, own), jax.vmap(cohort.start)(memory, slot))
    else:
        local = lax.fori_loop(0, most(looks(end - begin, shape.stride), shape), steps, jax.vmap(cohort.start)(memory, slot))
    vector, memory, norm = jax.vmap(cohort.finish)(local, memory, slot)
    weights = jnp.concatenate([coefficients, jnp.zeros((1, *coefficients.shape[1:]))])[slot]  # an idle lane weighs nothing
    return Trained(
        _added_lanes(cohort.no_total(), vector, weights, shape),
        jax.tree.map(lambda leaf, new: leaf.at[who].set(new, mode="drop"), cohort.state.memory, memory),
        jnp.zeros((slots, shape.runs)).at[slot].set(norm, mode="drop"),
    )


def looks(steps: Array, stride: int) -> Array:
    """How many strides hold so many steps; the last may be partly idle."""
    return -(-steps // stride)


def _in_lanes(cohort: Cohort, coefficients: Array) -> Trained:
    """Clients side by side: a lane starts afresh at a visit's first step and adds its vector to the sum at the last."""
    shape, slots, lanes = cohort.shape, coefficients.shape[0], cohort.block.lanes
    weights = jnp.concatenate([coefficients, jnp.zeros((1, *coefficients.shape[1:]))])  # an idle lane weighs nothing
    who = jnp.append(cohort.block.place[cohort.t], shape.clients)

    begin, end, padding = lanes.first_step[cohort.t], lanes.first_step[cohort.t + 1], cohort.data.y.shape[0] - 1

    def own(memory: Tree, slot: Array) -> Tree:
        return jax.tree.map(lambda leaf: leaf[jnp.minimum(who[slot], shape.clients - 1)], memory)

    def step(i: Array, carry: tuple[Tree, Trained]) -> tuple[Tree, Trained]:
        local, trained = carry
        s, busy = begin + i, begin + i < end  # others, who advance side by side with us, may have more to do
        slot = jnp.where(busy, lanes.slot[s], slots)
        local = _where_lane(busy & lanes.starts[s], jax.vmap(cohort.start)(own(trained.memory, slot), slot), local)
        local = jax.vmap(cohort.step)(local, jnp.where(busy, lanes.rows[s], padding), slot)
        ends = busy & lanes.ends[s]
        ended = jnp.where(ends, slot, slots)
        summed = trained.total, trained.square_norm
        (total, norms), memory = lax.cond(most(ends.any(), shape), lambda: add(trained, local, slot, ended), lambda: (summed, nobody))
        # Outside of the condition, which would copy the memory of all clients to add that of a few.
        memory = jax.tree.map(lambda leaf, new: leaf.at[who[ended]].set(new, mode="drop"), trained.memory, memory)
        return local, Trained(total, memory, norms)

    def add(trained: Trained, local: Tree, slot: Array, ended: Array) -> tuple[tuple[Tree, Array], Tree]:
        vector, memory, norm = jax.vmap(cohort.finish)(local, own(trained.memory, slot), slot)
        return (_added_lanes(trained.total, vector, weights[ended], shape), trained.square_norm.at[ended].set(norm, mode="drop")), memory

    nothing = Trained(cohort.no_total(), cohort.state.memory, jnp.zeros((slots, shape.runs)))
    nobody = jax.tree.map(lambda leaf: jnp.zeros((shape.lanes, *leaf.shape[1:]), leaf.dtype), cohort.state.memory)
    slot = lanes.slot[begin]
    first = jax.vmap(cohort.start)(own(cohort.state.memory, slot), slot)
    return lax.fori_loop(0, most(end - begin, shape), step, (first, nothing))[1]


def _of_all_devices(cohort: Cohort, trained: Trained) -> Trained:
    """Sums and norms are added up; the memory of a client comes from the device that it visited."""
    shape, slots = cohort.shape, trained.square_norm.shape[0]
    who = cohort.block.place[cohort.t]
    mine = jnp.zeros(slots, bool).at[cohort.block.turns[cohort.t, 0]].set(True, mode="drop")
    own = jax.tree.map(lambda leaf: _where_lane(mine, leaf[who], jnp.zeros_like(leaf[who])), trained.memory)
    total, norms, memory, visited = added_up((trained.total, trained.square_norm, own, mine.astype(jnp.int32)), shape)
    changed = jnp.where(visited > 0, who, shape.clients)
    return Trained(total, jax.tree.map(lambda leaf, new: leaf.at[changed].set(new, mode="drop"), cohort.state.memory, memory), norms)


def _added(total: Tree, vector: Tree, coefficients: Array, shape: Shape) -> Tree:
    """The total with one more vector, times its coefficient [runs], or times one for each model [models, runs]."""
    if not shape.models:
        return trees.add_scaled(total, vector, coefficients, shape.axis)
    return jax.tree.map(lambda t, v: t + jnp.einsum("mr,r...->rm...", coefficients, v, precision="highest"), total, vector)


def _added_lanes(total: Tree, vectors: Tree, coefficients: Array, shape: Shape) -> Tree:
    """The same for the vectors of all lanes; coefficients have the lanes in front."""
    if not shape.models:
        scaled = jax.vmap(lambda v, c: trees.add_scaled(trees.zeros_like(v), v, c, shape.axis))(vectors, coefficients)
        return jax.tree.map(lambda t, each_lane: t + each_lane.sum(0), total, scaled)
    return jax.tree.map(lambda t, v: t + jnp.einsum("lmr,lr...->rm...", coefficients, v, precision="highest"), total, vectors)


def _where_lane(chosen: Array, a: Tree, b: Tree) -> Tree:
    return jax.tree.map(lambda x, y: jnp.where(chosen.reshape(-1, *(1,) * (x.ndim - 1)), x, y), a, b)


def trained_vectors(cohort: Cohort, slots: int) -> Trained:
    """Train everyone who returns and keep every vector, stacked along a new first axis."""

    def client(memory: Tree, k: Array) -> tuple[Tree, tuple[Tree, Array]]:
        who = cohort.block.place[cohort.t, k]
        own = jax.tree.map(lambda leaf: leaf[who], memory)
        vector, own, norm = cohort.visit(k, own, cohort.block.returned[cohort.t, k])
        return jax.tree.map(lambda leaf, new: leaf.at[who].set(new), memory, own), (vector, norm)

    memory, (vectors, norms) = lax.scan(client, cohort.state.memory, jnp.arange(slots))
    return Trained(vectors, memory, norms)


def inner_products(vectors: Tree, axis: int) -> Array:
    """Gram matrix of stacked vectors, run by run. [K, K, runs]"""

    def one(leaf: Array) -> Array:
        flat = leaf.reshape(leaf.shape[0], -1, leaf.shape[-1]) if axis == -1 else jnp.moveaxis(leaf.reshape(*leaf.shape[:2], -1), 1, -1)
        return jnp.einsum("kdr,jdr->kjr", flat, flat, precision="highest")

    leaves = [one(leaf) for leaf in jax.tree.leaves(vectors)]
    return sum(leaves[1:], start=leaves[0])


def weighted(vectors: Tree, coefficients: Array, axis: int) -> Tree:
    """coefficients @ vectors, run by run."""
    sums = "kr,k...r->...r" if axis == -1 else "kr,kr...->r..."
    return jax.tree.map(lambda leaf: jnp.einsum(sums, coefficients, leaf, precision="highest"), vectors)

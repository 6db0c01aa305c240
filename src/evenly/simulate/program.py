"""The compiled program: a block of rounds, with evaluations, for many runs at once; and how XLA
compiles it.

On a CPU clients are visited one after another, because unequal clients would leave lanes idle. Loop
bounds are dynamic: no client is padded to the size of another, and blocks of any length share one
compilation.

Runs share cohorts and batches. For joint models the runs are the last axis of every parameter, and
a local step of all runs is one matrix product. For other models the step is vmapped with the runs
in front.
"""

import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from evenly import round as evenly_round
from evenly import trees
from evenly.models import LinearSVM, Logistic, Softmax
from evenly.models.linear import MOST_TERMS, products_as_sums
from evenly.models.task import skeleton
from evenly.privacy.gate import Guard
from evenly.round import Memory, Weighing
from evenly.simulate import private_signals
from evenly.simulate.choosing import choices_of_cohort, evaluate_several, new_choices
from evenly.simulate.gating import clips, guards_of, what_gates_did
from evenly.simulate.layout import (
    MEASURED_SIGNALS,
    ClientMemories,
    GateRecord,
    Inputs,
    RoundRecord,
    RuleGroup,
    Shape,
    State,
    map_devices,
)
from evenly.simulate.measuring import evaluate, measure
from evenly.simulate.training import (
    Cohort,
    CohortUpdate,
    inner_products,
    row_weights,
    train_and_sum,
    train_vectors,
    weighted_sum,
)
from evenly.types import Array, Signals, Task, Tree


class EvaluationCounts(NamedTuple):
    """The counts of one evaluation; stacked [stops] in a record."""

    tables: Array
    losses: Array
    choice: Array | None = None


class GroupSignals(NamedTuple):
    """The signals of one rule group."""

    signals: Signals
    axes: Any  # Signals: the axis of the runs in each signal; None for those that all runs share
    released: Tree = ()  # what clients released, where their rows are private [clients, ..., runs]


class CohortWeights(NamedTuple):
    """The weights of a cohort in all runs."""

    weight: Array  # [K, runs] or [K, models, runs]; 0 in runs whose weights are not finite
    sane: Array  # [runs] whether the weights are finite
    groups: list[Weighing]  # of each rule group


class RoundUpdate(NamedTuple):
    """A round after weighing and training."""

    signals: list[GroupSignals]
    weights: CohortWeights
    trained: CohortUpdate


# the axis of the runs in a `Weighing` and in a `Memory`
WEIGHING_AXES: Any = Weighing._make([-1, 0, -1, -1, -1])  # sums have the runs in front


class RoundNotes(NamedTuple):
    """What is recorded of a round."""

    # [K, runs] coefficients that counted; with several models, each client's in its own
    weights: Array
    gated: GateRecord | None


def one_round(cohort: Cohort) -> tuple[State, RoundNotes]:
    """One round: choose among several models, measure, weigh, train, step.

    The arithmetic of weighing and of the step is in `evenly.round`, which deployments use, too.
    """
    shape, inputs, block, state, t, *_ = cohort
    choice = choices_of_cohort(cohort) if shape.models else None
    cohort = cohort._replace(
        row_weights=row_weights(shape, inputs, state),
        # a rule with several models shares its program with no other structure
        choice=choice if inputs.parts.rules[0].rule.apart else None,
        clip=clips(cohort),
    )
    update = _weigh_and_train(cohort, collect_signals(cohort, choice))
    returned = jnp.concatenate([own.signals.returned for own in update.signals], axis=-1)
    counts = update.trained.finite & returned
    moved = _move_models(cohort, update, counts)

    coefficients = jnp.where(update.weights.sane, moved.coefficients, 0.0)
    anyone = update.weights.sane & ~moved.idle
    by_group = [anyone[shape.runs_of(i)] for i in range(len(inputs.parts.rules))]
    keep = lambda new, old: tuple(  # noqa: E731
        trees.where(*own, 0) for own in zip(by_group, new, old, strict=True)
    )
    lost = participants(cohort) & ~counts
    state = State(
        model=trees.where(anyone, moved.model, state.model, shape.axis),
        public=keep(moved.public, state.public),
        server=keep(moved.server, state.server),
        memory=ClientMemories(
            update.trained.memory,
            _remembered(cohort, moved.memory, counts & anyone),
            tuple(own.released for own in update.signals),
        ),
        excluded=state.excluded.at[block.position[t]].add(lost.astype(jnp.int32)),
        broken=jnp.where(update.weights.sane, state.broken, jnp.minimum(state.broken, t)),
        choices=() if choice is None else new_choices(cohort, choice, anyone),
        gates=tuple(moved.gates),
    )
    weights = coefficients if choice is None else coefficients.sum(1)
    return state, RoundNotes(
        weights, what_gates_did(cohort, update.weights.weight, update.trained, counts)
    )


class MovedModels(NamedTuple):
    """The models of all runs after the step of rule and server, and what follows with them."""

    model: Tree
    public: list[Tree]  # of each rule group
    server: list[Tree]
    coefficients: Array  # [K, runs] or [K, models, runs]
    memory: list[Tree]  # of each rule group [K, ..., runs]
    gates: list[Tree]  # of each rule group
    idle: Array  # [runs] whether the round changes nothing


def _move_models(cohort: Cohort, update: RoundUpdate, counts: Array) -> MovedModels:
    """Divide the sum of the vectors, and take the step of each rule and server."""
    shape, state = cohort.shape, cohort.state
    norms = jnp.where(counts, update.trained.square_norm, 0.0)
    moved, guards = [], guards_of(cohort)
    for i, group in enumerate(cohort.inputs.parts.rules):
        runs, (signals, axes, _) = shape.runs_of(i), update.signals[i]
        signals = signals._replace(returned=counts[:, runs], square_norm=norms[:, runs], gram=None)
        axes = axes._replace(square_norm=-1, gram=None)
        step = jax.vmap(
            _move_model,
            ((0, 0), 0, shape.axis, WEIGHING_AXES, axes),
            (shape.axis, 0, 0, -1, -1, 0, 0),
        )
        vectors = trees.cut((state.model, update.trained.total), runs, shape.axis)
        states = (state.public[i], state.server[i])
        moved.append(step((group, guards[i]), states, vectors, update.weights.groups[i], signals))
    models, public, server, coefficients, memory, gates, idle = map(list, zip(*moved, strict=True))
    return MovedModels(
        trees.join(models, shape.axis),
        public,
        server,
        jnp.concatenate(coefficients, axis=-1),
        memory,
        gates,
        jnp.concatenate(idle),
    )


def _move_model(
    guarded: tuple[RuleGroup, Guard | None],
    states: tuple[Tree, Tree],
    vectors: tuple[Tree, Tree],
    weighing: Weighing,
    signals: Signals,
) -> tuple[Tree, Tree, Tree, Array, Tree, Tree, Array]:
    """The step of one run: the rule decides the change, and the server moves the model along it.

    `states` are the public numbers and the state of the server, `vectors` the model and the sum of
    the clients' vectors. Returns the fields of `MovedModels`.
    """
    (group, guard), (public, server), (model, total) = guarded, states, vectors
    summed = evenly_round.sum_up(group.rule, public, weighing, signals, guard)
    if guard is not None:
        total = evenly_round.noised(group.rule, public, total, guard)
    change, public = evenly_round.step(group.rule, public, summed, trees.learned(total))
    params = trees.learned(model)
    if group.server is None:
        params = trees.add(params, change)
    else:
        params, server = group.server.update(change, server, params)
    if isinstance(model, trees.Stateful):
        mean = evenly_round.divide(total.state, summed.totals.weight)
        model = trees.Stateful(params, trees.add(model.state, mean))
    else:
        model = params
    idle = evenly_round.is_idle(summed)
    return model, public, server, summed.coefficients, summed.memory, summed.gate, idle


def _remembered(cohort: Cohort, memories: list[Tree], kept: Array) -> tuple[Memory, ...]:
    """The memories of all clients, with the new ones of the clients that counted in their run."""
    position, clients = cohort.block.position[cohort.t], cohort.shape.clients

    def of_run(seen: Array, own: Array, value: Tree, new: Tree) -> tuple[Array, Tree]:
        at = jnp.where(own, position, clients)  # an index beyond the end writes nothing
        put = lambda leaf, one: leaf.at[at].set(one.astype(leaf.dtype), mode="drop")  # noqa: E731
        return seen.at[at].set(True, mode="drop"), jax.tree.map(put, value, new)

    remembered = []
    for i, (before, new) in enumerate(zip(cohort.state.memory.rules, memories, strict=True)):
        if not jax.tree.leaves(before.value):
            remembered.append(before)
            continue
        own = kept[:, cohort.shape.runs_of(i)]
        seen, value = jax.vmap(of_run, -1, -1)(before.seen, own, before.value, new)
        remembered.append(Memory(seen, value))
    return tuple(remembered)


def participants(cohort: Cohort) -> Array:
    """The clients that train and return in each run. [K, runs]"""
    returned, parts = cohort.block.returned[cohort.t], cohort.inputs.parts
    if parts.cohort is None:
        return jnp.broadcast_to(returned[:, None], (returned.shape[0], cohort.shape.runs))
    return returned[:, None] & cohort.block.samplings[cohort.t][:, parts.cohort]


def collect_signals(cohort: Cohort, choice: Array | None) -> list[GroupSignals]:
    """The signals of each rule group before training. Groups whose rules need measurements come
    last and share them. `choice` is the model of each client, where there are several.
    """
    shape, inputs, block, state, t, *_ = cohort
    position, returned = block.position[t], participants(cohort)
    common = Signals(
        client=block.cohort[t],
        returned=None,
        examples=inputs.data.examples[position],
        unprivileged=inputs.data.unprivileged[position],
        chance=block.chance[t],
    )
    measuring = [
        i for i, group in enumerate(inputs.parts.rules) if group.rule.needs & MEASURED_SIGNALS
    ]
    measurements, first = None, 0
    if measuring:
        first = shape.bounds[measuring[0]]
        needs = frozenset().union(*(inputs.parts.rules[i].rule.needs for i in measuring))
        measurements = measure(
            shape, inputs, trees.cut(state.model, slice(first, None), shape.axis), position, needs
        )
    groups = []
    for i, group in enumerate(inputs.parts.rules):
        runs = shape.runs_of(i)
        signals = common._replace(returned=returned[:, runs])
        axes = Signals(client=None, returned=-1, examples=None)
        if choice is not None:
            signals, axes = signals._replace(choice=choice), axes._replace(choice=-1)
        for name in sorted(group.rule.needs & MEASURED_SIGNALS):
            value = getattr(measurements, name)[..., runs.start - first : runs.stop - first]
            finite = jnp.isfinite(value).all(tuple(range(1, value.ndim - 1)))
            value = jnp.where(jnp.isfinite(value), value, 0.0)
            signals, axes = (
                signals._replace(returned=signals.returned & finite, **{name: value}),
                axes._replace(**{name: -1}),
            )
        own = GroupSignals(*private_signals.release(cohort, i, signals, axes))
        groups.append(_with_memory(cohort, i, own))
    return groups


def _with_memory(cohort: Cohort, i: int, group: GroupSignals) -> GroupSignals:
    """The signals of rule group i with what its rule let the clients keep."""
    memory, position = cohort.state.memory.rules[i], cohort.block.position[cohort.t]
    if not jax.tree.leaves(memory.value):
        return group
    recall = jax.vmap(
        lambda *arguments: evenly_round.recall(*arguments).memory, (0, 0, group.axes, -1), -1
    )
    rule, public = cohort.inputs.parts.rules[i].rule, cohort.state.public[i]
    own = jax.tree.map(lambda leaf: leaf[position], memory)
    return group._replace(
        signals=group.signals._replace(memory=recall(rule, public, group.signals, own)),
        axes=group.axes._replace(memory=-1),
    )


def _weigh_and_train(cohort: Cohort, signals: list[GroupSignals]) -> RoundUpdate:
    """Weigh and train, in the order that the rules need."""
    # a rule that needs the vectors shares its program with no other structure
    needs = cohort.inputs.parts.rules[0].rule.needs
    in_order = train_then_weigh if "gram" in needs else weigh_then_train
    return in_order(cohort, signals)


def weigh_then_train(cohort: Cohort, signals: list[GroupSignals]) -> RoundUpdate:
    """The usual order: own numbers and sums decide the weights, then vectors are only summed."""
    weights = weigh(cohort, signals)
    return RoundUpdate(signals, weights, train_and_sum(cohort, weights.weight))


def train_then_weigh(cohort: Cohort, groups: list[GroupSignals]) -> RoundUpdate:
    """For rules that weigh by the inner products of the vectors: train, keep every vector, then
    weigh.
    """
    ((signals, axes, released),) = groups
    trained = train_vectors(cohort, signals.client.shape[0])
    signals = signals._replace(
        returned=signals.returned & trained.finite,
        gram=inner_products(trained.total, cohort.shape.axis),
    )
    groups = [GroupSignals(signals, axes._replace(gram=-1), released)]
    weights = weigh(cohort, groups)
    total = weighted_sum(trained.total, weights.weight, cohort.shape.axis)
    return RoundUpdate(groups, weights, trained._replace(total=total))


def weigh(cohort: Cohort, groups: list[GroupSignals]) -> CohortWeights:
    """The weights of all runs."""
    weighings = []
    for group, public, (signals, axes, _), guard in zip(
        cohort.inputs.parts.rules, cohort.state.public, groups, guards_of(cohort), strict=True
    ):
        weigh_run = jax.vmap(evenly_round.weigh, (0, 0, axes, 0), WEIGHING_AXES)
        weighings.append(weigh_run(group.rule, public, signals, guard))
    weight = jnp.concatenate([one.weight for one in weighings], axis=-1)
    sane = jnp.isfinite(weight).all(tuple(range(weight.ndim - 1)))
    return CohortWeights(jnp.where(sane, weight, 0.0), sane, weighings)


def advance(shape: Shape, inputs: Inputs, block: Any, state: State) -> tuple[State, RoundRecord]:
    """Advance a state by a block, each device on its share of the clients."""
    return compiled(shape.fused)(shape, inputs, block, state)


@cache
def compiled(fused: bool) -> Any:
    """The jitted `advance`, for programs with fused loops and for others."""

    def block_by_block(
        shape: Shape, inputs: Inputs, block: Any, state: State
    ) -> tuple[State, RoundRecord]:
        with products_as_sums(fused):
            return map_devices(partial(run_segments, shape), shape.devices, block)(
                block, (inputs, state)
            )

    options = graph_options() | (WITHOUT_LIBRARY if fused else {})
    return jax.jit(
        block_by_block,
        static_argnames=("shape",),
        donate_argnames=("state",),
        compiler_options=options,
    )


def run_segments(
    shape: Shape, block: Any, arguments: tuple[Inputs, State]
) -> tuple[State, RoundRecord]:
    """Run the segments of a block one after another, with an evaluation after those that the block
    marks.
    """
    inputs, state = arguments

    def segment(
        i: Array, carry: tuple[State, RoundRecord, Array]
    ) -> tuple[State, RoundRecord, Array]:
        state, record, done = carry

        def body(t: Array, inner: tuple[State, RoundNotes]) -> tuple[State, RoundNotes]:
            new, notes = one_round(Cohort(shape, inputs, block, inner[0], t))
            return new, jax.tree.map(lambda all, own: all.at[t].set(own), inner[1], notes)

        notes = RoundNotes(record.weights, record.gated)
        state, notes = lax.fori_loop(done, block.stops[i], body, (state, notes))
        if not shape.lists:
            return state, record._replace(**notes._asdict()), block.stops[i]
        before = EvaluationCounts(record.tables, record.losses, record.choice)
        counts = lax.cond(
            block.evaluate[i],
            lambda: EvaluationCounts(
                *(evaluate_several if shape.models else evaluate)(shape, inputs, state)
            ),
            lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), before),
        )
        after = jax.tree.map(lambda leaf, new: leaf.at[i].set(new), before, counts)
        return state, record._replace(**after._asdict(), **notes._asdict()), block.stops[i]

    gated = any(group.gate for group in inputs.parts.rules)
    start = (state, _empty_record(shape, block, gated), jnp.int32(0))
    state, record, _ = lax.fori_loop(0, jnp.sum(block.stops >= 0), segment, start)
    return state, record


def _empty_record(shape: Shape, block: Any, gated: bool) -> RoundRecord:
    stops, owners = block.stops.shape[0], shape.owners if shape.lists else 0
    slots = (*block.cohort.shape, shape.runs)
    return RoundRecord(
        jnp.zeros(slots),
        jnp.zeros((stops, owners, shape.groups, shape.labels, shape.labels, shape.runs), jnp.int32),
        jnp.zeros((stops, owners, shape.runs)),
        jnp.zeros((stops, shape.clients, shape.runs), jnp.int32) if shape.models else None,
        GateRecord(jnp.zeros((slots[0], shape.runs)), jnp.zeros(slots, jnp.int8))
        if gated
        else None,
    )


# How XLA compiles a program.
#
# On a CPU XLA runs a program as a list of small operations. Where a step of a loop takes a
# microsecond, starting its dozen operations takes longer than computing them. XLA can fuse a loop
# into one function instead (see evenly.xla_flags), unless the loop calls a library.

# compiles products and sums instead of library calls, for one program
WITHOUT_LIBRARY = {"xla_cpu_experimental_ynn_fusion_type": ""}
LINEAR = (Softmax, Logistic, LinearSVM)  # models whose products can be written as sums


def fuses_loops(task: Task, runs: int, batch: int, lanes: int) -> bool:
    """Whether a client's steps are compiled as one function, with runs one after another.

    This is faster on a CPU while the steps of all runs together are small. For larger steps one
    product for all runs is faster, and a library's product is faster than a compiled one.
    """
    size = trees.size(skeleton(task))
    return (
        isinstance(task, LINEAR)
        and lanes == 1
        and runs * batch * size <= MOST_TERMS
        and can_fuse_loops()
    )


@cache
def can_fuse_loops() -> bool:
    """Whether XLA fuses loops here, found by compiling one: on a CPU, if XLA has the options and
    read the flags in time.
    """
    if jax.default_backend() != "cpu":
        return False

    def loop(x: jax.Array, times: int) -> jax.Array:
        return jax.lax.fori_loop(0, times, lambda i, y: (y[:, None] * y).sum(1), x)

    try:
        text = (
            jax.jit(loop, compiler_options=WITHOUT_LIBRARY)
            .lower(jnp.ones(512), 2)
            .compile()
            .as_text()
        )
    except jax.errors.JaxRuntimeError:  # this version lacks the option
        return False
    return "xla_cpu_small_call" in (text or "")


@cache
def graph_options() -> dict[str, Any]:
    """Compiler options that let a GPU start two or more kernels as one graph (by default five or
    more).

    Empty on CPUs, where the user set the option, and where XLA does not have it.
    """
    name = "xla_gpu_graph_min_graph_size"
    if jax.default_backend() == "cpu" or name in os.environ.get("XLA_FLAGS", ""):
        return {}
    try:
        jax.jit(lambda: 0, compiler_options={name: 2}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return {}
    return {name: 2}


def on_host() -> AbstractContextManager[Any]:
    """Compute many tiny steps on the CPU, because a GPU would have to compile and start each of
    them; where JAX has no CPU, on the GPU.
    """
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        return nullcontext()

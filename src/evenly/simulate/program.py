"""The compiled program: a block of rounds, with evaluations, for many runs at once.

Clients are visited one after another (on a CPU, side-by-side lanes would be half empty). Loop bounds are dynamic: no client
is padded to the size of another, and blocks of any length share one compilation.

Runs share cohorts and batches. For models that say `joint` the runs are the last axis of every parameter and a local
step of all runs is one matrix product; for others the step is vmapped with the runs in front.
"""

import hashlib
import os
import platform
import time
from contextlib import suppress
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.compilation_cache import compilation_cache

from evenly import trees
from evenly.datasets.files import cache_folder
from evenly.models import LinearSVM, Logistic, Softmax
from evenly.models.linear import MOST_TERMS, products_as_sums
from evenly.models.task import skeleton
from evenly.parts.ranking import Ballot
from evenly.simulate import several
from evenly.simulate.layout import MEASURED, Band, Data, RoundRecord, RunParts, Shape, State, on_each_device
from evenly.simulate.measuring import evaluated, measured
from evenly.simulate.training import Cohort, Trained, inner_products, trained_sum, trained_vectors, weighted
from evenly.types import Array, Effort, RowRule, Signals, Task, Tree


class EvaluationCounts(NamedTuple):
    """What one evaluation found; stacked [stops] in a record."""

    tables: Array
    losses: Array
    choice: Array | None = None


class BandSignals(NamedTuple):
    """What one band of runs was told before training."""

    signals: Signals
    axes: Any  # Signals: which of them differ between runs (their axis; None: shared)


class Weighed(NamedTuple):
    """A round after weighing and training."""

    told: list[BandSignals]  # of each band
    coefficients: Array  # [K, runs]
    sane: Array  # [runs] whether the coefficients are finite
    rule: tuple[Tree, ...]  # of each band
    trained: Trained


def one_round(task: Task, shape: Shape, parts: RunParts, data: Data, block: Any, t: Array, state: State) -> tuple[State, Array]:
    """Measure, weigh, train, step. Returns the new state and the coefficients that counted. [K, runs]"""
    cohort = Cohort(task, shape, parts, data, block, state, t, row_weights(shape, parts, state))
    told = known_before_training(cohort)
    needed = parts.bands[0].rule.needs  # a rule that needs the vectors is in no company but its own
    w = vectors_first(cohort, told) if "gram" in needed else weights_first(cohort, told)

    returned = jnp.concatenate([own.signals.returned for own in w.told], axis=-1)
    counted = w.trained.finite & returned
    kept = jnp.where(counted, w.coefficients, 0.0)
    # Clients found broken only after training: the sum is divided by the share of coefficients that returned.
    mass = kept.sum(0)
    share = jnp.where(mass != 0, w.coefficients.sum(0) / jnp.where(mass != 0, mass, 1.0), 0.0)
    if isinstance(w.trained.total, Ballot):  # votes are counted, not averaged: nobody speaks for those who broke
        share = jnp.ones_like(share)
    total = jax.tree.map(lambda leaf: leaf * trees.along(share, leaf, shape.axis), w.trained.total)
    norms = jnp.where(counted, w.trained.square_norm, 0.0)

    models, rules, servers = [], [], []
    for i, band in enumerate(parts.bands):
        runs, (signals, axes) = shape.band(i), w.told[i]
        signals, axes = signals._replace(returned=counted[:, runs], gram=None), axes._replace(gram=None)
        moved = jax.vmap(move, (0, 0, 0, shape.axis, shape.axis, axes, Effort(-1)), (shape.axis, 0, 0))
        own, change = trees.cut((state.model, total), runs, shape.axis)
        model, rule, server = moved(band, w.rule[i], state.server[i], own, change, signals, Effort(norms[:, runs]))
        models.append(model)
        rules.append(rule)
        servers.append(server)

    # A round in which nobody's update counted changes nothing, not even an optimiser's momentum.
    anyone = w.sane & (kept != 0).any(0)
    went_on = [anyone[shape.band(i)] for i in range(len(parts.bands))]
    lost = invited(block, parts, t, shape.runs) & ~counted
    state = State(
        model=trees.where(anyone, trees.join(models, shape.axis), state.model, shape.axis),
        rule=tuple(trees.where(*own, 0) for own in zip(went_on, rules, state.rule, strict=True)),
        server=tuple(trees.where(*own, 0) for own in zip(went_on, servers, state.server, strict=True)),
        memory=w.trained.memory,
        excluded=state.excluded.at[block.place[t]].add(lost.astype(jnp.int32)),
        broken=jnp.where(w.sane, state.broken, jnp.minimum(state.broken, t)),
    )
    return state, kept * share


def invited(block: Any, parts: RunParts, t: Array, runs: int) -> Array:
    """Who is to train and return in each run. [K, runs]"""
    returned = block.returned[t]
    if parts.cohort is None:
        return jnp.broadcast_to(returned[:, None], (returned.shape[0], runs))
    return returned[:, None] & block.chosen[t][:, parts.cohort]


def row_weights(shape: Shape, parts: RunParts, state: State) -> Array | None:
    """What rules that weigh rows tell their clients, with the runs on the axis of the parameters; None: nobody does."""
    if not any(isinstance(band.rule, RowRule) for band in parts.bands):
        return None
    told = []
    for i, band in enumerate(parts.bands):
        size = shape.bands[i + 1] - shape.bands[i]
        tell = jax.vmap(lambda rule, own: rule.row_weights(own), axis_size=size)
        silent = jnp.ones((size, shape.groups, shape.labels))
        told.append(tell(band.rule, state.rule[i]) if isinstance(band.rule, RowRule) else silent)
    return jnp.moveaxis(jnp.concatenate(told), 0, shape.axis)


def known_before_training(c: Cohort) -> list[BandSignals]:
    """The cohort's signals, band by band. Bands whose rules need a look at the rows come last and look together."""
    who = c.block.place[c.t]
    returned = invited(c.block, c.parts, c.t, c.shape.runs)
    common = Signals(
        client=c.block.cohort[c.t],
        returned=None,
        examples=c.data.examples[who],
        unprivileged=c.data.unprivileged[who],
        chance=c.block.chance[c.t],
    )
    looking = [i for i, band in enumerate(c.parts.bands) if band.rule.needs & MEASURED]
    seen, first = None, 0
    if looking:
        first = c.shape.bands[looking[0]]
        needs = frozenset().union(*(c.parts.bands[i].rule.needs for i in looking))
        seen = measured(c.task, c.shape, c.data, trees.cut(c.state.model, slice(first, None), c.shape.axis), who, needs)
    told = []
    for i, band in enumerate(c.parts.bands):
        runs = c.shape.band(i)
        signals = common._replace(returned=returned[:, runs])
        axes = Signals(client=None, returned=-1, examples=None)
        for name in sorted(band.rule.needs & MEASURED):
            value = getattr(seen, name)[..., runs.start - first : runs.stop - first]
            finite = jnp.isfinite(value).all(tuple(range(1, value.ndim - 1)))
            value = jnp.where(jnp.isfinite(value), value, 0.0)
            signals, axes = signals._replace(returned=signals.returned & finite, **{name: value}), axes._replace(**{name: -1})
        told.append(BandSignals(signals, axes))
    return told


def weights_first(c: Cohort, told: list[BandSignals]) -> Weighed:
    """The usual order: scalars decide the weights, then vectors are only summed."""
    coefficients, sane, rule = weigh(c, told)
    return Weighed(told, coefficients, sane, rule, trained_sum(c, coefficients))


def vectors_first(c: Cohort, told: list[BandSignals]) -> Weighed:
    """For rules that weigh by the vectors' inner products: train, keep every vector, then weigh."""
    ((signals, axes),) = told
    trained = trained_vectors(c, signals.client.shape[0])
    signals = signals._replace(returned=signals.returned & trained.finite, gram=inner_products(trained.total, c.shape.axis))
    told = [BandSignals(signals, axes._replace(gram=-1))]
    coefficients, sane, rule = weigh(c, told)
    return Weighed(told, coefficients, sane, rule, trained._replace(total=weighted(trained.total, coefficients, c.shape.axis)))


def weigh(c: Cohort, told: list[BandSignals]) -> tuple[Array, Array, tuple[Tree, ...]]:
    pairs = []
    for band, own, (signals, axes) in zip(c.parts.bands, c.state.rule, told, strict=True):
        pairs.append(jax.vmap(lambda rule, state, s: rule.weigh(state, s), (0, 0, axes), (-1, 0))(band.rule, own, signals))
    coefficients = jnp.concatenate([pair[0] for pair in pairs], axis=-1)
    sane = jnp.isfinite(coefficients).all(0)
    return jnp.where(sane, coefficients, 0.0), sane, tuple(pair[1] for pair in pairs)


def move(band: Band, rule: Tree, server: Tree, model: Tree, total: Tree, signals: Signals, effort: Effort) -> tuple[Tree, Tree, Tree]:
    """One run's step: the rule decides the change, the server moves the model along it."""
    change, rule = band.rule.step(rule, signals, effort, total)
    if band.server is None:
        return trees.add(model, change), rule, server
    model, server = band.server.update(change, server, model)
    return model, rule, server


def advance(task: Task, shape: Shape, parts: RunParts, data: Data, block: Any, state: State) -> tuple[State, RoundRecord]:
    """Run a block, on every device its share."""
    return compiled(shape.whole)(task, shape, parts, data, block, state)


@cache
def compiled(whole: bool) -> Any:
    """The jitted `advance`, for programs whose loops are compiled whole and for others."""

    def block_by_block(task: Task, shape: Shape, parts: RunParts, data: Data, block: Any, state: State) -> tuple[State, RoundRecord]:
        with products_as_sums(whole):
            return on_each_device(partial(stretches, shape), shape.devices, block)(block, (task, parts, data, state))

    options = graphs() | (WITHOUT_LIBRARY if whole else {})
    return jax.jit(block_by_block, static_argnames=("shape",), donate_argnames=("state",), compiler_options=options)


def stretches(shape: Shape, block: Any, given: tuple[Task, RunParts, Data, State]) -> tuple[State, RoundRecord]:
    """Stretch after stretch of rounds, an evaluation after those that ask for one."""
    task, parts, data, state = given
    rounds, slots = block.cohort.shape
    stops = block.stops.shape[0]

    def stretch(i: Array, carry: tuple[State, RoundRecord, Array]) -> tuple[State, RoundRecord, Array]:
        state, record, done = carry

        def body(t: Array, inner: tuple[State, Array]) -> tuple[State, Array]:
            round_of = several.one_round if shape.models else one_round
            new, weights = round_of(task, shape, parts, data, block, t, inner[0])
            return new, inner[1].at[t].set(weights)

        state, weights = lax.fori_loop(done, block.stops[i], body, (state, record.weights))
        if not shape.lists:
            return state, record._replace(weights=weights), block.stops[i]
        evaluation = several.evaluated if shape.models else evaluated
        seen = EvaluationCounts(record.tables, record.losses, record.choice)
        found = lax.cond(
            block.evaluate[i],
            lambda: EvaluationCounts(*evaluation(task, shape, parts, data, state)),
            lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), seen),
        )
        kept = jax.tree.map(lambda leaf, new: leaf.at[i].set(new), seen, found)
        return state, RoundRecord(weights, *kept), block.stops[i]

    owners = shape.owners if shape.lists else 0
    empty = RoundRecord(
        jnp.zeros((rounds, slots, shape.runs)),
        jnp.zeros((stops, owners, shape.groups, shape.labels, shape.labels, shape.runs), jnp.int32),
        jnp.zeros((stops, owners, shape.runs)),
        jnp.zeros((stops, shape.clients, shape.runs), jnp.int32) if shape.models else None,
    )
    used = jnp.sum(block.stops >= 0)
    state, record, _ = lax.fori_loop(0, used, stretch, (state, empty, jnp.int32(0)))
    return state, record


# How XLA compiles a program.
#
# On a CPU XLA runs a program as a list of small operations. Where a step of a loop takes a microsecond, starting its dozen operations takes
# longer than computing them. XLA can fuse a loop into one function instead (see evenly.compilation), unless the loop calls a library.

WITHOUT_LIBRARY = {"xla_cpu_experimental_ynn_fusion_type": ""}  # for one program: products and sums are compiled, not calls
LINEAR = (Softmax, Logistic, LinearSVM)  # models whose products can be written as sums


def whole(task: Task, runs: int, batch: int, lanes: int) -> bool:
    """Whether a client's steps are compiled as one function, runs one after another: on a CPU, while all runs' steps together are
    small. From there on one product for all runs is faster, and a library's product than a compiled one."""
    size = trees.size(skeleton(task))
    return isinstance(task, LINEAR) and lanes == 1 and runs * batch * size <= MOST_TERMS and whole_loops()


@cache
def whole_loops() -> bool:
    """Whether XLA compiles loops whole here: on a CPU, where it knows the options and read the flags in time. It is asked."""
    if jax.default_backend() != "cpu":
        return False

    def loop(x: jax.Array, times: int) -> jax.Array:
        return jax.lax.fori_loop(0, times, lambda i, y: (y[:, None] * y).sum(1), x)

    try:
        text = jax.jit(loop, compiler_options=WITHOUT_LIBRARY).lower(jnp.ones(512), 2).compile().as_text()
    except jax.errors.JaxRuntimeError:  # an option that this version does not have
        return False
    return "xla_cpu_small_call" in (text or "")


@cache
def graphs() -> dict[str, Any]:
    """The option by which a GPU starts steps of two kernels or more as one graph, and not only those of five; nothing elsewhere, where
    the user chose, or where XLA does not know it."""
    name = "xla_gpu_graph_min_graph_size"
    if jax.default_backend() == "cpu" or name in os.environ.get("XLA_FLAGS", ""):
        return {}
    try:
        jax.jit(lambda: 0, compiler_options={name: 2}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return {}
    return {name: 2}


# Compiled programs are kept in the user's cache folder: the same simulation, or one of the same shape, compiles only once.
#
# JAX's own cache does it. What the user chose for it stays (JAX_COMPILATION_CACHE_DIR, jax.config), and EVENLY_COMPILED=off does
# without. A folder that cannot be written is done without, too.

SWITCH = "EVENLY_COMPILED"
LEAST_SECONDS = 0.5  # that a program took to compile; smaller ones are made anew as quickly as they are read
MOST_BYTES = 2**29  # of all programs; the oldest go first
CHOSEN = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def folder() -> Path:
    """For this kind of machine: compiled code uses what its processor can do, and a home folder may be shared with others."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else [platform.processor()]
    features = next((line for line in lines if line.startswith(("flags", "Features"))), lines[0] if lines else "")
    kind = f"{platform.system()} {platform.machine()} {features} {metadata.version('jaxlib')}"
    return cache_folder() / "compiled" / hashlib.blake2b(kind.encode(), digest_size=6).hexdigest()


@cache
def keep() -> None:
    """From here on JAX keeps what it compiles, unless somebody decided otherwise."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false") or jax.config.values["jax_compilation_cache_dir"]:
        return
    try:
        place = folder()
        place.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # not ours to write, or nobody's home
        return
    if not os.access(place, os.W_OK | os.X_OK):
        return
    tidy(place.parent, MOST_BYTES)
    jax.config.update("jax_compilation_cache_dir", str(place))
    if CHOSEN not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    compilation_cache.reset_cache()  # JAX looks once, at its first program, whether there is a folder


def tidy(place: Path, most: int) -> None:
    """Remove the oldest files under a folder until the others are not more than so many bytes."""
    with suppress(OSError):  # others may tidy at the same time
        files = sorted(((path.stat().st_mtime, path.stat().st_size, path) for path in place.rglob("*") if path.is_file()), reverse=True)
        total = 0
        for _, size, path in files:
            total += size
            if total > most:
                path.unlink(missing_ok=True)


# How long something was being compiled, as JAX tells it: tracing, lowering and XLA's own work.

_spans: list[tuple[float, float]] = []  # from and until when, by time.monotonic


@cache
def listen() -> None:
    """From here on JAX tells what it compiles."""
    jax.monitoring.register_event_duration_secs_listener(_note)


def _note(event: str, duration_secs: float, **kwargs: str | int) -> None:
    if event.startswith("/jax/core/compile/"):
        now = time.monotonic()
        _spans.append((now - duration_secs, now))


def spent(since: float) -> float:
    """Seconds since then in which something was compiled; what was compiled side by side, or inside another, counts once."""
    total, reached = 0.0, since
    for start, end in sorted(_spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total

"""How algorithms and data are laid out for the device: run groups, shapes, lanes and devices.

A run group is the set of runs that one compiled program advances together. `group_runs` orders algorithms into a run group, `Shape` holds
every number that a program is compiled for, and the functions below choose lanes, devices and strides and whether data are streamed.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from evenly import trees
from evenly.data.federation import Federation, Shard
from evenly.models.task import skeleton
from evenly.parts.sampling import Full
from evenly.parts.work import LocalTraining
from evenly.types import Algorithm, Array, Prepare, Rule, Select, Server, Several, Task, Tree, Work

# How the arrays of a compiled program lie: the data, the block of rounds, the runs.


class Band(NamedTuple):
    """Runs that lie side by side and share the structure of their rule and server; leaves stacked over those runs."""

    rule: Rule
    server: Server | None


class RunParts(NamedTuple):
    """The parts of the algorithms that run on the device. Clients' work has one structure, leaves stacked over all runs."""

    work: Work
    bands: tuple[Band, ...]
    prepared: Array | None  # int32 [runs] which column of the row weights is each run's; None: all runs share one
    cohort: Array | None  # int32 [runs] which of several cohorts takes part in each run; None: all runs share one


class Data(NamedTuple):
    """The federation on the device. The last row of every table is padding."""

    x: Array
    y: Array
    group: Array
    weight: Array | None  # [rows], or [rows, ways] where runs prepare their rows in several ways
    train_rows: Array  # [train]
    train_start: Array  # [clients + 1]
    eval_rows: Array  # [evaluated rows] lists of rows, end to end
    eval_list: Array  # [evaluated rows] which list it is
    eval_start: Array  # [lists + 1]
    eval_shared: Array | None  # int32 [owners] each owner's list; None: everyone has one of its own
    examples: Array  # [clients] training rows, float
    unprivileged: Array  # [clients] those of them that belong to unprivileged groups, float
    valid_rows: Array | None = None  # [valid]; None: no rule looks at validation rows
    valid_start: Array | None = None  # [clients + 1]


class State(NamedTuple):
    """Everything that one round hands to the next."""

    model: Tree
    rule: tuple[Tree, ...]  # of each band
    server: tuple[Tree, ...]  # of each band
    memory: Tree
    excluded: Any  # int32 [clients, runs], on the host where data are streamed
    broken: Array  # int32 [runs] first round whose weights were not finite, or a huge number
    chosen: Tree = ()  # Chosen, where a run keeps several models


class Chosen(NamedTuple):
    """Which of several models is each client's."""

    model: Array  # int32 [clients, runs] given, or last chosen
    begun: Array  # bool [runs] whether the models can be told apart yet


class RoundRecord(NamedTuple):
    """What a block leaves behind."""

    weights: Array  # [rounds, K, runs]
    tables: Array  # int32 [stops, owners, groups, labels, outcomes, runs]; no owners where evaluations are made elsewhere
    losses: Array  # [stops, owners, runs] summed
    choice: Array | None  # int32 [stops, clients, runs] which of several models is each client's; None: there is one


class Shape(NamedTuple):
    """What shapes the program; hashable."""

    runs: int
    bands: tuple[int, ...]  # where each band of runs starts, and the number of runs
    axis: int  # of the runs in every parameter: -1 (joint) or 0
    clients: int  # whose rows are on the device: all, or those of a block
    groups: int
    labels: int
    lanes: int  # clients that train side by side on a device
    stride: int  # steps of lanes between two looks, of the host, at whether that was all
    unroll: int  # how many of them are written out one after another
    equal: int  # steps of lanes in a round, where all clients take as many and nobody need look; 0: they may differ
    devices: int
    chunk: int  # rows read at a time when clients measure their loss
    eval_chunk: int
    lists: int  # of evaluated rows: as many as owners, unless some share one; 0: the program evaluates nothing
    models: int = 0  # that each run keeps; 0: one, the usual case
    seats: int = 1  # simulations that the program advances side by side
    whole: bool = False  # whether the loop over a client's steps is compiled as one function (see sharing)

    @property
    def owners(self) -> int:
        """Who has rows that are evaluated: split * clients + client, and the central test set last."""
        return 3 * self.clients + 1

    def band(self, i: int) -> slice:
        return slice(self.bands[i], self.bands[i + 1])


Advance = Callable[[Task, Shape, RunParts, Data, Any, State], tuple[State, RoundRecord]]  # runs a Block

NEVER = 2**31 - 1
SEATS = "seats"  # the axis of simulations that advance side by side


def most(value: Array, shape: Shape) -> Array:
    """The largest among all simulations that advance side by side: what they decide by it, they decide together."""
    return value if shape.seats == 1 else lax.pmax(value, SEATS)


def shard(data: Data, rows: Array) -> Shard:
    """The rows with these numbers; padding has mask 0."""
    mask = (rows < data.y.shape[0] - 1).astype(jnp.float32)
    weight = jnp.ones_like(mask) if data.weight is None else data.weight[rows]
    return Shard(data.x[rows], data.y[rows], data.group[rows], weight, mask)


def plain(batch: Shard) -> Shard:
    """The same rows without their weights: losses that are reported are never reweighed."""
    return batch._replace(weight=jnp.ones(batch.mask.shape))


def each(function: Any, axis: int, *per_run: Tree) -> Tree:
    """Apply a function of parts and parameters to every run: directly where the model is joint, else vmapped."""
    if axis == -1:
        return function(*per_run)
    return jax.vmap(function)(*per_run)


def runs_last(value: Array, axis: int) -> Array:
    return value if axis == -1 else jnp.moveaxis(value, 0, -1)


# Several devices: every one runs the whole program on its share of the clients, and what they leave is added up.
#
# Data and state are the same on all of them. A share is a part of the cohort's visits when clients train, and a part of the chunks when
# rows are read; each ends in one sum over the devices. With one device nothing of this is in the program.

AXIS = "devices"
SAME = PartitionSpec()


def on_every_device(tree: Tree, devices: int) -> Tree:
    """Copy arrays to every device, once, so that no block has to."""
    return tree if devices == 1 else jax.device_put(tree, NamedSharding(_mesh(devices), SAME))


def on_each_device(function: Callable[..., Any], devices: int, block: Any) -> Callable[..., Any]:
    """A function of a block and the rest that all devices call at once; each sees only its own lanes and turns of the block."""
    if devices == 1:
        return function
    turns, lanes = jax.tree.map(lambda _: PartitionSpec(None, AXIS), (block.turns, block.lanes))
    lanes = None if lanes is None else lanes._replace(first_step=SAME)
    specs = jax.tree.map(lambda _: SAME, block)._replace(turns=turns, lanes=lanes)
    # JAX's own check that results are equal everywhere does not see through loops whose sums are added up only at the end.
    return jax.shard_map(function, mesh=_mesh(devices), in_specs=(specs, SAME), out_specs=SAME, check_vma=False)


def added_up(tree: Tree, shape: Shape) -> Tree:
    """Sums over all devices, given to all."""
    return tree if shape.devices == 1 else lax.psum(tree, AXIS)


def shared_loop(shape: Shape, count: Array | int, body: Callable[[Any, Any], Any], zeros: Tree) -> Tree:
    """fori_loop(0, count, body, zeros) for a body that only adds: turns are dealt to the devices like cards."""
    if shape.devices == 1:
        return lax.fori_loop(0, count, body, zeros)
    first = lax.axis_index(AXIS)
    turns = (count - first + shape.devices - 1) // shape.devices
    return added_up(lax.fori_loop(0, turns, lambda i, sums: body(first + i * shape.devices, sums), zeros), shape)


def _mesh(devices: int) -> Mesh:
    return Mesh(np.array(jax.devices()[:devices]), (AXIS,))


# Arrays that begin where a CPU device wants them to: JAX uses these where they lie, and copies all others before they are used (80 MB
# took 40 to 80 ms).

BYTES = 64


def zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Like np.zeros."""
    dtype = np.dtype(dtype)
    size = prod(shape) * dtype.itemsize
    raw = np.zeros(size + BYTES, np.uint8)
    first = -raw.ctypes.data % BYTES
    return raw[first : first + size].view(dtype).reshape(shape)


def full(shape: tuple[int, ...], value: Any, dtype: Any) -> np.ndarray:
    """Like np.full."""
    found = zeros(shape, dtype)
    found.fill(value)
    return found


def padded(values: np.ndarray, length: int, dtype: Any = None) -> np.ndarray:
    """A copy with zeros at its end, up to a length."""
    found = zeros((length, *values.shape[1:]), dtype or values.dtype)
    found[: len(values)] = values
    return found


ON_TRAINING_ROWS = frozenset({"loss", "table", "cell_loss"})  # signals that take a look at every training row
MEASURED = ON_TRAINING_ROWS | {"valid_table"}  # or at every validation row


# Which runs can advance in one program, and how they lie side by side in it.
#
# Runs that share clients' work can share everything heavy: batches, products, local steps. Where the model is joint (all runs are one
# matrix product) they need not share anything else: rules and servers of the same structure form a band, rows may be prepared in
# several ways, and where everybody takes part anyway, other samplings are a mask.


class Company(NamedTuple):
    """Algorithms in the order in which they lie in a program."""

    algorithms: list[Algorithm]
    place: list[int]  # where each algorithm, in the order given, lies
    bands: tuple[int, ...]  # where each band starts, and the number of runs
    parts: RunParts
    selects: tuple[Select, ...]
    prepares: tuple[Prepare | None, ...]


def companions(algorithms: Sequence[Algorithm], task: Task, *, join: bool | None = None) -> list[list[int]]:
    """Group algorithms (by position) that can advance in one program; samplings share it where that pays here, or as `join` says."""
    join = jax.default_backend() != "cpu" if join is None else join
    joined = _joined_samplings(algorithms) if task.joint and join else {}
    groups: dict[str, list[int]] = {}
    for i, algorithm in enumerate(algorithms):
        groups.setdefault(_key(algorithm, task, joined), []).append(i)
    return list(groups.values())


def _key(algorithm: Algorithm, task: Task, joined: dict[str, str]) -> str:
    work, select = jax.tree.structure(algorithm.work), repr(algorithm.select)
    alone = "gram" in algorithm.rule.needs or isinstance(algorithm.rule, Several) or algorithm.network is not None
    if task.joint and not alone:
        return f"{work} {joined.get(select, select)}"
    return f"{work} {select} {jax.tree.structure((algorithm.rule, algorithm.server))} {algorithm.network!r}"


def _joined_samplings(algorithms: Sequence[Algorithm]) -> dict[str, str]:
    """Samplings that may share a program, by name. A GPU waits for steps, not for runs: once everybody takes part, training
    everybody in all runs costs nothing. On a CPU each run costs, and samplings are better kept apart."""
    names = {repr(a.select): a.select for a in algorithms}
    return dict.fromkeys(names, "joined") if any(isinstance(select, Full) for select in names.values()) else {}


def gather(algorithms: Sequence[Algorithm]) -> Company:
    """Lay companions side by side: equal structures together, those that look at the rows before training last."""
    structures = [str(jax.tree.structure((a.rule, a.server))) for a in algorithms]
    seen = {s: i for i, s in reversed(list(enumerate(structures)))}
    looks = [bool(a.rule.needs & MEASURED) for a in algorithms]
    order = sorted(range(len(algorithms)), key=lambda i: (looks[seen[structures[i]]], seen[structures[i]], i))
    ordered = [algorithms[i] for i in order]
    starts = [at for at, i in enumerate(order) if at == 0 or structures[i] != structures[order[at - 1]]]
    bounds = (*starts, len(order))
    selects, select = _numbered([a.select for a in ordered])
    prepares, prepared = _numbered([a.prepare for a in ordered])
    bands = [Band(*_stacked([(a.rule, a.server) for a in ordered[bounds[b] : bounds[b + 1]]])) for b in range(len(starts))]
    parts = RunParts(
        work=_stacked(_simplified([a.work for a in ordered])),
        bands=tuple(bands),
        prepared=jnp.asarray(prepared) if len(prepares) > 1 else None,
        cohort=jnp.asarray(select) if len(selects) > 1 else None,
    )
    return Company(ordered, [order.index(i) for i in range(len(order))], bounds, parts, selects, prepares)


def _simplified(works: Sequence[Work]) -> Sequence[Work]:
    """Clients' work without what does nothing in any run; as it is where some run needs it, because all share one structure."""
    simple = [work.simplified() if isinstance(work, LocalTraining) else work for work in works]
    return simple if len({str(jax.tree.structure(work)) for work in simple}) == 1 else works


def _stacked(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.asarray(leaves, jnp.float32), *trees)


def _numbered(values: Sequence[Any]) -> tuple[tuple[Any, ...], np.ndarray]:
    """The different values in order of appearance, and for each entry which one it is."""
    different = {repr(value): value for value in reversed(values)}
    names = list(dict.fromkeys(map(repr, values)))
    return tuple(different[name] for name in names), np.array([names.index(repr(value)) for value in values], np.int32)


# How a round's clients are shared out: to how many devices, and to how many lanes on each.

LANE_BYTES = 2**24  # the largest model of which several train side by side on a GPU
MOST_LANES = 64
STRIDE = 16  # small steps of lanes between two looks, of the host, at whether that was all
LARGEST_RESIDENT = 2**30  # bytes of features that are copied to a CPU's memory once more
MOST_CELLS = 2**27  # of one evaluation's tables on the device
CACHED_BYTES = 2**25  # of features, a part of which is still in a CPU's cache when they are used
SCATTERED_BYTES = 2**26  # of features from which a CPU waits for every row of a client that it has not visited for long
DEVICES_BYTES = 2**20  # the smallest model whose clients are dealt to several GPUs: below, steps are too short to fill even one


def shared_out(task: Task, company: Company, slots: int, *, lanes: int, devices: int) -> tuple[int, int]:
    """Lanes on each device, and devices: as many as asked for and of use, or where 0 is asked, as many as pay.

    Host devices share the cores that one of them uses anyway: on two cores a LeNet step took 6.5 ms of wall time on one device,
    and the same work 6.8 to 7.6 ms on two. So a CPU's are used only when asked for.
    """
    model = skeleton(task)
    size = 4 * trees.size(model) * len(company.algorithms)
    there = len(jax.devices())
    if not 0 <= devices <= there:
        raise ValueError(f"devices must be between 0 (choose) and {there}, as many as JAX has here, got {devices}.")
    if any("gram" in a.rule.needs for a in company.algorithms):
        return 1, 1  # vectors are kept one by one
    worth = there if jax.default_backend() != "cpu" and size >= DEVICES_BYTES else 1
    devices = 1 if _reads_its_own_memory(company, model) else min(slots, devices or worth)
    return _lanes(lanes, -(-slots // devices), size), devices


class Strides(NamedTuple):
    """How steps of lanes follow one another; see Shape."""

    stride: int = 1
    unroll: int = 1
    equal: int = 0


def strides(task: Task, runs: int, lanes: int, steps: np.ndarray) -> Strides:
    """How many steps of lanes follow one another unasked, how many of them are written out in the program, and how many all clients
    take, where that is always the same.

    Where a step is shorter than the asking, several; written out, a GPU starts them all at once. Where it is long, one, because
    lanes that are done wait for the others; but all where all clients take equally many (`steps`, of each client).
    """
    size = 4 * trees.size(skeleton(task)) * runs
    if lanes > 1 and size < DEVICES_BYTES:
        return Strides(STRIDE, 1 if jax.default_backend() == "cpu" else STRIDE)
    return Strides(equal=int(steps[0]) if lanes > 1 and (steps == steps[0]).all() else 0)


def _lanes(asked: int, slots: int, size: int) -> int:
    """Side by side, small steps of many clients fill a GPU; on a CPU unequal clients would leave lanes empty."""
    if asked:
        return min(asked, slots)
    if jax.default_backend() == "cpu" or size > LANE_BYTES:  # a larger model fills a GPU by itself
        return 1
    return min(slots, MOST_LANES)


def _reads_its_own_memory(company: Company, model: object) -> bool:
    """Whether a client that is drawn twice in a round reads at its second visit what it kept at the first."""
    memory = jax.eval_shape(company.algorithms[0].work.remember, model)
    return bool(jax.tree.leaves(memory)) and any(getattr(select, "replace", False) for select in company.selects)


def worth_meeting(task: Task, runs: int) -> bool:
    """Whether several seeds' programs should be advanced together: where one alone would not fill the one device there is."""
    size = 4 * trees.size(skeleton(task)) * runs
    return jax.default_backend() != "cpu" and len(jax.devices()) == 1 and size < DEVICES_BYTES


def worth_streaming(federation: Federation, runs: int) -> bool:
    """Whether the data, or the counts of one evaluation, are too large to lie on the device as a whole."""
    memory = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 0)
    most = LARGEST_RESIDENT if jax.default_backend() == "cpu" else max(memory // 2, LARGEST_RESIDENT)
    cells = (3 * federation.clients + 1) * len(federation.groups) * len(federation.labels) ** 2 * runs
    return federation.x.nbytes > most or cells > MOST_CELLS


def faster_streamed(federation: Federation, slots: int, rounds: int, evaluations: int) -> bool:
    """Whether a CPU had better be given the rows of a few rounds in the order in which it reads them, though all would fit into its
    memory once more. Not where a round goes through much of the data anyway, or evaluations, counted as if of everybody, go through all
    of them often."""
    rows = slots * len(federation.train.rows) / federation.clients
    rare = rounds * rows > 2 * evaluations * len(federation.x)
    few = rows * row_bytes(federation) < CACHED_BYTES
    return jax.default_backend() == "cpu" and federation.x.nbytes > SCATTERED_BYTES and few and rare


def row_bytes(federation: Federation) -> float:
    return max(1.0, federation.x.nbytes / max(len(federation.x), 1))

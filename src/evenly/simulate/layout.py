"""How algorithms and data are laid out for the device: run groups, shapes, lanes and devices.

A run group is the set of runs that one compiled program advances together. `group_runs` orders
algorithms into a run group, `Shape` holds every number that a program is compiled for, and the
functions below choose lanes, devices and strides and whether data are streamed.
"""

import itertools
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
from evenly.privacy.gate import ClientGate
from evenly.round import Memory
from evenly.types import Algorithm, Array, Census, Prepare, Rule, Select, Server, Task, Tree, Work

# The arrays of a compiled program: data, state and the parts of the runs.


class RuleGroup(NamedTuple):
    """Neighbouring runs whose rule and server share a structure; leaves are stacked over these
    runs.
    """

    rule: Rule
    server: Server | None
    gate: ClientGate | None = None  # where the runs are private for clients


class RunParts(NamedTuple):
    """The parts of a run group that the device uses. The clients' work has one structure, with
    leaves stacked over all runs.
    """

    work: Work
    rules: tuple[RuleGroup, ...]
    # int32 [runs] column of the row weights that each run uses; None: all runs share one
    weight_column: Array | None
    # int32 [runs] which of several cohorts takes part in each run; None: all runs share one
    cohort: Array | None


class Data(NamedTuple):
    """The federation on the device. The last row of every table is padding."""

    x: Array
    y: Array
    group: Array
    weight: Array | None  # [rows], or [rows, columns] where runs prepare their rows in several ways
    train_rows: Array  # [train]
    train_start: Array  # [clients + 1]
    eval_rows: Array  # [evaluated rows] lists of rows, one after another
    eval_list: Array  # [evaluated rows] number of the list that each row belongs to
    eval_start: Array  # [lists + 1]
    # int32 [owners] each owner's list; None: every owner has a list of its own
    eval_shared: Array | None
    examples: Array  # [clients] number of training rows, float
    unprivileged: Array  # [clients] number of those that belong to unprivileged groups, float
    valid_rows: Array | None = None  # [valid]; None: no rule reads validation rows
    valid_start: Array | None = None  # [clients + 1]


class Inputs(NamedTuple):
    """The arguments of a program that stay the same from block to block."""

    task: Task
    parts: RunParts
    data: Data


class State(NamedTuple):
    """The values that one round passes to the next.

    Checkpoints store its leaves in this order: a change of its fields raises
    `checkpoints.FORMAT`.
    """

    model: Tree
    public: tuple[Tree, ...]  # public numbers of each rule group
    server: tuple[Tree, ...]  # of each rule group
    memory: Any  # ClientMemories [clients, ...], on the host where data are streamed
    excluded: Any  # int32 [clients, runs], on the host where data are streamed
    broken: Array  # int32 [runs] first round whose coefficients were not finite, or NEVER
    choices: Tree = ()  # ModelChoices, where a run keeps several models
    gates: tuple[Tree, ...] = ()  # GateState of each rule group; () where it has no gate


class ClientMemories(NamedTuple):
    """What clients keep between the rounds they take part in. [clients, ...]"""

    work: Tree = ()  # of their local training, such as a personal model
    rules: tuple[Memory, ...] = ()  # of each rule group, with the runs on the last axis
    released: tuple[Tree, ...] = ()  # noised signals of each rule group, see private_signals


class ModelChoices(NamedTuple):
    """Which of several models each client uses."""

    model: Array  # int32 [clients, runs] set before training, or chosen last
    distinct: Array  # bool [runs] whether the models differ yet


class RoundRecord(NamedTuple):
    """Results of a block that the host collects."""

    weights: Array  # [rounds, K, runs] coefficients
    # int32 [stops, owners, groups, labels, outcomes, runs]; no owners where the host starts
    # evaluations
    tables: Array
    losses: Array  # [stops, owners, runs] sums
    # int32 [stops, clients, runs] model of each client; None: there is one model for all
    choice: Array | None
    gated: "GateRecord | None" = None  # None: no run has a gate


class GateRecord(NamedTuple):
    """What the gates of the runs did; zeros in runs without one."""

    clip: Array  # [rounds, runs]
    cut: Array  # int8 [rounds, K, runs] 1: the vector was shortened, 2: the weight was cut


class Shape(NamedTuple):
    """The numbers that a program is compiled for; hashable."""

    runs: int
    bounds: tuple[int, ...]  # first run of each rule group, then the number of runs
    axis: int  # of the runs in every parameter: -1 (joint) or 0
    clients: int  # whose rows are on the device: all, or those of a block
    groups: int
    labels: int
    lanes: int  # clients that train side by side on a device
    stride: int  # steps of lanes between two checks whether all lanes are done
    unroll: int  # number of these steps that are unrolled
    # steps of each lane in a round, where all clients take equally many and no check is needed; 0:
    # they may differ
    equal: int
    devices: int
    chunk: int  # rows that clients read at a time to measure signals
    eval_chunk: int
    # lists of evaluated rows: one for each owner, unless owners share some; 0: the program
    # evaluates nothing
    lists: int
    models: int = 0  # of each run; 0: one model, the usual case
    seeds: int = 1  # simulations that the program advances side by side
    # whether the loop over a client's steps is compiled as one function (see program.fuses_loops)
    fused: bool = False

    @property
    def owners(self) -> int:
        """Number of owners of evaluated rows: split * clients + client, and the central test set
        last.
        """
        return 3 * self.clients + 1

    def runs_of(self, i: int) -> slice:
        """The runs of rule group i."""
        return slice(self.bounds[i], self.bounds[i + 1])


# advances a state by a Block
Advance = Callable[[Shape, Inputs, Any, State], tuple[State, RoundRecord]]


class ProgramSpec(NamedTuple):
    """A program on the host's side: what it is compiled for, and the function that runs a block of
    it.
    """

    task: Task
    shape: Shape
    parts: RunParts
    advance: Advance


NEVER = 2**31 - 1
SEEDS = "seeds"  # axis of the simulations of a seed batch


def batch_max(value: Array, shape: Shape) -> Array:
    """The maximum over all simulations of a seed batch, so that all of them take the same
    branches.
    """
    return value if shape.seeds == 1 else lax.pmax(value, SEEDS)


def shard(data: Data, rows: Array) -> Shard:
    """Rows by number. Padding has mask 0."""
    mask = (rows < data.y.shape[0] - 1).astype(jnp.float32)
    weight = jnp.ones_like(mask) if data.weight is None else data.weight[rows]
    return Shard(data.x[rows], data.y[rows], data.group[rows], weight, mask)


def unweighted(batch: Shard) -> Shard:
    """The same rows with weights of 1: losses that are reported do not depend on row weights."""
    return batch._replace(weight=jnp.ones(batch.mask.shape))


def map_runs(function: Any, axis: int, *per_run: Tree) -> Tree:
    """Apply a function of parts and parameters to every run: directly for joint models, otherwise
    with `vmap`.
    """
    if axis == -1:
        return function(*per_run)
    return jax.vmap(function)(*per_run)


def runs_last(value: Array, axis: int) -> Array:
    """Move the axis of the runs to the end."""
    return value if axis == -1 else jnp.moveaxis(value, 0, -1)


# Several devices: each runs the whole program on a share of the clients, and their results are
# summed.
#
# Data and state are the same on all devices. A share is a part of the cohort's visits during
# training, and a part of the chunks when rows are read. Each share ends in one sum over the
# devices. With one device the program contains none of this.

AXIS = "devices"
SAME = PartitionSpec()


def replicate(tree: Tree, devices: int) -> Tree:
    """Copy arrays to every device once, so that blocks need not be preceded by copies."""
    return tree if devices == 1 else jax.device_put(tree, NamedSharding(_mesh(devices), SAME))


def map_devices(function: Callable[..., Any], devices: int, block: Any) -> Callable[..., Any]:
    """Let all devices call a function of a block and other arguments. Each device receives only its
    lanes and turns of the block.
    """
    if devices == 1:
        return function
    turns, lanes = jax.tree.map(lambda _: PartitionSpec(None, AXIS), (block.turns, block.lanes))
    lanes = None if lanes is None else lanes._replace(first_step=SAME)
    specs = jax.tree.map(lambda _: SAME, block)._replace(turns=turns, lanes=lanes)
    # JAX cannot prove that results are equal on all devices, because the loops are summed over
    # devices only at their end.
    return jax.shard_map(
        function, mesh=_mesh(devices), in_specs=(specs, SAME), out_specs=SAME, check_vma=False
    )


def sum_over_devices(tree: Tree, shape: Shape) -> Tree:
    """Sums over all devices, on every device."""
    return tree if shape.devices == 1 else lax.psum(tree, AXIS)


def device_loop(
    shape: Shape, count: Array | int, body: Callable[[Any, Any], Any], zeros: Tree
) -> Tree:
    """fori_loop(0, count, body, zeros) for a body that only adds. Iteration i runs on device i
    modulo the number of devices.
    """
    if shape.devices == 1:
        return lax.fori_loop(0, count, body, zeros)
    first = lax.axis_index(AXIS)
    turns = (count - first + shape.devices - 1) // shape.devices
    return sum_over_devices(
        lax.fori_loop(0, turns, lambda i, sums: body(first + i * shape.devices, sums), zeros), shape
    )


def _mesh(devices: int) -> Mesh:
    return Mesh(np.array(jax.devices()[:devices]), (AXIS,))


# Arrays that are aligned as a CPU device requires. JAX uses these without a copy; copying 80 MB
# took 40 to 80 ms.

BYTES = 64


def zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Like `np.zeros`, aligned."""
    dtype = np.dtype(dtype)
    size = prod(shape) * dtype.itemsize
    raw = np.zeros(size + BYTES, np.uint8)
    first = -raw.ctypes.data % BYTES
    return raw[first : first + size].view(dtype).reshape(shape)


def full(shape: tuple[int, ...], value: Any, dtype: Any) -> np.ndarray:
    """Like `np.full`, aligned."""
    array = zeros(shape, dtype)
    array.fill(value)
    return array


def pad_rows(
    values: np.ndarray, length: int, dtype: Any = None, *, first: bool = False
) -> np.ndarray:
    """An aligned copy, padded up to a length: with zeros, or with the first row."""
    array = zeros((length, *values.shape[1:]), dtype or values.dtype)
    array[: len(values)] = values
    if first:
        array[len(values) :] = values[:1]
    return array


# signals that are measured on every training row
ON_TRAINING_ROWS = frozenset({"loss", "table", "cell_loss"})
MEASURED_SIGNALS = ON_TRAINING_ROWS | {"valid_table"}  # or on every validation row


# Run groups: which runs share a program, and in which order they lie in it.
#
# Runs with the same kind of client work share the expensive parts: batches, matrix products and
# local steps. For a joint model, all runs are one matrix product, and nothing else has to be equal:
# rules and servers of one structure form a rule group, rows may be prepared in several ways, and
# other samplings become a mask where some run has full participation.


class RunGroup(NamedTuple):
    """Algorithms in the order in which they lie in a program, with their parts."""

    algorithms: list[Algorithm]
    positions: list[int]  # of each algorithm, in the caller's order
    bounds: tuple[int, ...]  # first run of each rule group, then the number of runs
    parts: RunParts
    selects: tuple[Select, ...]
    prepares: tuple[Prepare | None, ...]

    def begin(self, census: Census) -> tuple[Tree, ...]:
        """The public numbers of each rule group before the first round."""
        groups = [self.algorithms[start:stop] for start, stop in itertools.pairwise(self.bounds)]
        # each alone, as a deployment does: vmap would compile a few small programs
        return tuple(
            jax.tree.map(lambda *own: np.stack(own), *[a.rule.begin(census) for a in group])
            for group in groups
        )


def companions(
    algorithms: Sequence[Algorithm], task: Task, *, join: bool | None = None
) -> list[list[int]]:
    """Partition algorithms into groups that one compiled program can train together.

    Args:
        algorithms: The algorithms to group.
        task: Model and loss. Joint models allow larger groups.
        join: Whether different samplings may share a program if one of them has full participation.
            None joins them on GPUs only, where it is faster.

    Returns:
        Lists of positions in `algorithms`, one for each program.

    Example:
        >>> import evenly
        >>> task = evenly.models.Softmax(features=2, classes=2)
        >>> methods = ["fedavg", "q-fedavg(q=1)", "fedmgda"]
        >>> evenly.companions([evenly.algorithm(method) for method in methods], task)
        [[0, 1], [2]]
    """
    join = jax.default_backend() != "cpu" if join is None else join
    samplings = _joint_samplings(algorithms) if task.joint and join else {}
    groups: dict[str, list[int]] = {}
    for i, algorithm in enumerate(algorithms):
        groups.setdefault(_group_key(algorithm, task, samplings), []).append(i)
    return list(groups.values())


def _group_key(algorithm: Algorithm, task: Task, samplings: dict[str, str]) -> str:
    """Equal for algorithms that may share a program."""
    work, select = jax.tree.structure(algorithm.work), repr(algorithm.select)
    alone = (
        "gram" in algorithm.rule.needs
        or algorithm.rule.groups is not None
        or algorithm.network is not None
    )
    if task.joint and not alone:
        return f"{work} {samplings.get(select, select)}"
    return (
        f"{work} {select} {jax.tree.structure((algorithm.rule.after_begin(), algorithm.server))}"
        f" {algorithm.network!r} {algorithm.privacy and algorithm.privacy.adapts}"
    )


def _joint_samplings(algorithms: Sequence[Algorithm]) -> dict[str, str]:
    """A common key for samplings that may share a program.

    On a GPU the time of a step hardly depends on the number of runs. If one run has full
    participation, training every client in all runs costs nothing. On a CPU every run costs time,
    so that samplings are kept apart.
    """
    selects = {repr(a.select): a.select for a in algorithms}
    return (
        dict.fromkeys(selects, "joint")
        if any(isinstance(select, Full) for select in selects.values())
        else {}
    )


def group_runs(
    algorithms: Sequence[Algorithm], gates: Sequence[ClientGate | None] | None = None
) -> RunGroup:
    """Order companions into a run group: equal structures side by side, those that measure signals
    before training last.
    """
    gates = [None] * len(algorithms) if gates is None else gates
    structures = [
        str(jax.tree.structure((a.rule.after_begin(), a.server, gate)))
        for a, gate in zip(algorithms, gates, strict=True)
    ]
    first = {s: i for i, s in reversed(list(enumerate(structures)))}
    measures = [bool(a.rule.needs & MEASURED_SIGNALS) for a in algorithms]
    order = sorted(
        range(len(algorithms)),
        key=lambda i: (measures[first[structures[i]]], first[structures[i]], i),
    )
    ordered, gated = [algorithms[i] for i in order], [gates[i] for i in order]
    starts = [
        at for at, i in enumerate(order) if at == 0 or structures[i] != structures[order[at - 1]]
    ]
    bounds = (*starts, len(order))
    selects, select = _distinct([a.select for a in ordered])
    prepares, column = _distinct([a.prepare for a in ordered])
    parts = RunParts(
        work=_stack(_simplify([a.work for a in ordered])),
        rules=tuple(
            RuleGroup(
                *_stack(
                    [
                        (ordered[i].rule.after_begin(), ordered[i].server, gated[i])
                        for i in range(bounds[b], bounds[b + 1])
                    ]
                )
            )
            for b in range(len(starts))
        ),
        weight_column=jnp.asarray(column) if len(prepares) > 1 else None,
        cohort=jnp.asarray(select) if len(selects) > 1 else None,
    )
    return RunGroup(
        ordered, [order.index(i) for i in range(len(order))], bounds, parts, selects, prepares
    )


def _simplify(works: Sequence[Work]) -> Sequence[Work]:
    """Client work without terms that are zero in every run. All runs share one structure, so that a
    term stays if any run needs it.
    """
    simple = [work.simplified() if isinstance(work, LocalTraining) else work for work in works]
    return simple if len({str(jax.tree.structure(work)) for work in simple}) == 1 else works


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.asarray(leaves, jnp.float32), *trees)


def _distinct(values: Sequence[Any]) -> tuple[tuple[Any, ...], np.ndarray]:
    """The distinct values in order of appearance, and the position of each entry among them."""
    by_name = {repr(value): value for value in reversed(values)}
    names = list(dict.fromkeys(map(repr, values)))
    return tuple(by_name[name] for name in names), np.array(
        [names.index(repr(value)) for value in values], np.int32
    )


# The choice of lanes, devices and strides, and whether data are streamed.

LANE_BYTES = 2**24  # the largest model of which several train side by side on a GPU
MOST_LANES = 64
STRIDE = 16  # small steps of lanes between two checks
# the smallest model whose clients are spread over several GPUs; smaller steps do not fill even one
DEVICES_BYTES = 2**20
LARGEST_RESIDENT = 2**30  # bytes of features of which a CPU's memory holds a second copy
MOST_CELLS = 2**27  # of one evaluation's tables on the device
CACHED_BYTES = 2**25  # of features, a part of which is still in a CPU's cache when they are used
# of features from which reading the rows of a client means cache misses on a CPU
SCATTERED_BYTES = 2**26


def choose_lanes(
    task: Task, run_group: RunGroup, slots: int, *, lanes: int, devices: int
) -> tuple[int, int]:
    """Number of lanes on each device, and number of devices. A request of 0 chooses the number that
    is fastest.

    On a CPU, several host devices share the cores that one device uses anyway: on two cores a LeNet
    step took 6.5 ms on one device, and the same work 6.8 to 7.6 ms on two. Several CPU devices are
    therefore used only on request.
    """
    model = skeleton(task)
    size = 4 * trees.size(model) * len(run_group.algorithms)
    available = len(jax.devices())
    if not 0 <= devices <= available:
        raise ValueError(
            f"devices must be between 0 (choose) and {available}, as many as JAX has here, got"
            f" {devices}."
        )
    if any("gram" in a.rule.needs for a in run_group.algorithms):
        return 1, 1  # all vectors are held in memory, one after another
    worth = available if jax.default_backend() != "cpu" and size >= DEVICES_BYTES else 1
    devices = 1 if _rereads_memory(run_group, model) else min(slots, devices or worth)
    return _lanes(lanes, -(-slots // devices), size), devices


def _lanes(request: int, slots: int, size: int) -> int:
    """Small steps of many clients fill a GPU together. On a CPU, clients of unequal size would
    leave lanes idle.
    """
    if request:
        return min(request, slots)
    if jax.default_backend() == "cpu" or size > LANE_BYTES:  # a larger model fills a GPU on its own
        return 1
    return min(slots, MOST_LANES)


def _rereads_memory(run_group: RunGroup, model: object) -> bool:
    """Whether a client that is drawn twice in a round reads at its second visit the memory of the
    first.
    """
    memory = jax.eval_shape(run_group.algorithms[0].work.remember, model)
    return bool(jax.tree.leaves(memory)) and any(
        getattr(select, "replace", False) for select in run_group.selects
    )


class Strides(NamedTuple):
    """How steps of lanes follow one another; see Shape."""

    stride: int = 1
    unroll: int = 1
    equal: int = 0


def choose_strides(task: Task, runs: int, lanes: int, steps: np.ndarray) -> Strides:
    """How many steps lanes take between two checks whether all are done. `steps` are the steps of
    each client.

    A check takes longer than a small step, so that small steps are grouped; unrolled, a GPU starts
    them together. Long steps are checked one by one, because idle lanes wait for the others. No
    check is needed where all clients take equally many steps.
    """
    size = 4 * trees.size(skeleton(task)) * runs
    if lanes > 1 and size < DEVICES_BYTES:
        return Strides(STRIDE, 1 if jax.default_backend() == "cpu" else STRIDE)
    return Strides(equal=int(steps[0]) if lanes > 1 and (steps == steps[0]).all() else 0)


def worth_batching(task: Task, runs: int) -> bool:
    """Whether several seeds should advance as one seed batch: where one program alone would not
    fill the only device.
    """
    size = 4 * trees.size(skeleton(task)) * runs
    return jax.default_backend() != "cpu" and len(jax.devices()) == 1 and size < DEVICES_BYTES


def worth_streaming(federation: Federation, runs: int) -> bool:
    """Whether the data, or the counts of one evaluation, are too large for the memory of the
    device, or whether the data are in a large mapped file, which would be read into memory.
    """
    memory = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 0)
    most = (
        LARGEST_RESIDENT if jax.default_backend() == "cpu" else max(memory // 2, LARGEST_RESIDENT)
    )
    cells = (
        (3 * federation.clients + 1) * len(federation.groups) * len(federation.labels) ** 2 * runs
    )
    mapped = isinstance(federation.x, np.memmap) and federation.x.nbytes > SCATTERED_BYTES
    return mapped or federation.x.nbytes > most or cells > MOST_CELLS


def faster_to_stream(federation: Federation, slots: int, rounds: int, evaluations: int) -> bool:
    """Whether a CPU is faster if the rows of a few rounds are copied into the order in which they
    are read.

    This is not the case where a round reads much of the data, or where evaluations read all of them
    often.
    """
    rows = slots * len(federation.train.rows) / federation.clients
    rare = rounds * rows > 2 * evaluations * len(federation.x)
    few = rows * row_bytes(federation) < CACHED_BYTES
    return jax.default_backend() == "cpu" and federation.x.nbytes > SCATTERED_BYTES and few and rare


def row_bytes(federation: Federation) -> float:
    """Bytes of the features of a row."""
    return max(1.0, federation.x.nbytes / max(len(federation.x), 1))

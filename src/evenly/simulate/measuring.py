"""Rows on the device: how a federation lies there, and how rows are read to measure signals and to
evaluate.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from evenly import trees
from evenly.data.federation import Federation, Shard
from evenly.data.splits import SPLITS, Ragged
from evenly.models.linear import over_runs
from evenly.models.task import judged
from evenly.parts.row_privacy import NoisedReweigh
from evenly.randomness import generator
from evenly.simulate import layout
from evenly.simulate.layout import (
    ON_TRAINING_ROWS,
    Data,
    Inputs,
    ProgramSpec,
    RoundRecord,
    RunParts,
    Shape,
    State,
    device_loop,
    map_runs,
    replicate,
    runs_last,
    shard,
    unweighted,
)  # fmt: skip
from evenly.simulate.private_signals import bounded_losses
from evenly.simulate.schedule import Block
from evenly.types import Array, Prepare, Tree

# The federation as flat arrays on the device: every example once, clients as row numbers.


class Resident:
    """A data source that holds the whole federation on the device; the program itself evaluates."""

    def __init__(
        self, federation: Federation, weight: np.ndarray | None, program: ProgramSpec
    ) -> None:
        task, self._shape, parts, self._advance = program
        valid = uses_validation(parts)
        data = replicate(
            device_data(federation, weight, self._shape.eval_chunk, valid=valid),
            self._shape.devices,
        )
        self.inputs = Inputs(task, parts, data)

    def begin(self, state: State, memory: Tree) -> State:
        """The first state; `memory` is that of one client."""
        shape = self._shape
        return state._replace(
            memory=trees.repeat(memory, shape.clients),
            excluded=jnp.zeros((shape.clients, shape.runs), jnp.int32),
        )

    def to_device(self, state: State) -> State:
        """The state on every device."""
        return replicate(jax.tree.map(jnp.asarray, state), self._shape.devices)

    def pack(self, state: State) -> State:
        """The state as it is written to a checkpoint."""
        return state

    def unpack(self, state: State) -> State:
        """The inverse of `pack`."""
        return state

    def advance(self, block: Block, state: State) -> tuple[State, RoundRecord]:
        """Start a block."""
        return self._advance(self._shape, self.inputs, block, state)

    def settle(self, block: Block, before: State, after: State) -> State:
        """The state after a block. Everything is on the device already."""
        return after


def device_data(
    federation: Federation, weight: np.ndarray | None, eval_chunk: int, *, valid: bool = False
) -> Data:
    """Move a federation to the device, with one row of padding at the end of every table. `valid`
    includes validation rows for rules.
    """
    lists, shared = evaluation_lists(federation)
    short = -len(lists.rows) % eval_chunk
    count, rows, trained = len(lists.counts), len(federation.y), len(federation.train.rows)
    columns: dict[str, Any] = {
        # a real row: a model may not be defined for zeros, and NaN * 0 is NaN
        "x": layout.pad_rows(federation.x, rows + 1, first=True),
        "y": layout.pad_rows(federation.y, rows + 1, np.int32),
        "group": layout.pad_rows(federation.group, rows + 1, np.int32),
        "weight": None if weight is None else layout.pad_rows(weight, rows + 1),
        # Padded so that partitions of the same rows, whose cuts differ by a few, share a compiled
        # program.
        "train_rows": layout.pad_rows(federation.train.rows, trained + -trained % eval_chunk),
        "train_start": federation.train.offsets.astype(np.int32),
        "eval_rows": np.append(lists.rows, np.full(short, rows)).astype(np.int32),
        # Padding is in no list: an index past the last one, which scatters drop.
        "eval_list": (
            np.append(np.repeat(np.arange(count), lists.counts), np.full(short, count)).astype(
                np.int32
            )
        ),
        "eval_start": lists.offsets.astype(np.int32),
        "eval_shared": shared,
        "examples": federation.train.counts.astype(np.float32),
        "unprivileged": federation.census().unprivileged_rows.astype(np.float32),
    }
    if valid:
        held_out = federation.valid.rows
        columns["valid_rows"] = layout.pad_rows(
            held_out, max(len(held_out) + -len(held_out) % eval_chunk, 1)
        )
        columns["valid_start"] = federation.valid.offsets.astype(np.int32)
    return jax.device_put(Data(**columns))


def prepare_weights(
    federation: Federation, prepares: Sequence[Prepare | None], seed: int = 0
) -> np.ndarray | None:
    """The weight of each row in its client's loss: [rows], or [rows, columns] where runs prepare
    their rows in several ways. `seed` is that of noise in counts.
    """
    base = (
        np.ones(len(federation.y), np.float32)
        if federation.weight is None
        else federation.weight.astype(np.float32)
    )
    if all(prepare is None for prepare in prepares):
        return None if federation.weight is None else base
    columns = [
        base if prepare is None else base * _row_factors(federation, prepare, seed)
        for prepare in prepares
    ]
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def _row_factors(federation: Federation, prepare: Prepare, seed: int) -> np.ndarray:
    """The factors by which a preparation changes the weights of training rows."""
    weight = np.ones(len(federation.y), np.float32)
    for k in range(federation.clients):
        rows = federation.train.of(k)
        y, group = federation.y[rows], federation.group[rows]
        if isinstance(prepare, NoisedReweigh):
            shape = len(federation.groups), len(federation.labels)
            counts = prepare.counts(y, group, shape, generator(seed, "counts", k))
            weight[rows] = prepare.from_counts(counts)[group, y]
        else:
            weight[rows] = prepare.weights(y, group)
    return weight


def evaluation_lists(federation: Federation) -> tuple[Ragged, np.ndarray | None]:
    """The lists of rows that are evaluated, and each owner's list where owners share some
    (otherwise None).

    Owners are the clients' training, validation and test rows, then the central test set. In
    studies of groups, clients are often tested on the same rows. Their list is stored once.
    """
    parts = [federation.split(s) for s in SPLITS]
    rows = np.concatenate([*(part.rows for part in parts), federation.central])
    counts = np.concatenate([*(part.counts for part in parts), [len(federation.central)]])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    by_owner = Ragged(rows, offsets)
    some = np.flatnonzero(counts[:-1])
    # the usual case, recognised without reading the lists
    if len(np.unique(rows[offsets[some]])) == len(some):
        return by_owner, None
    numbers: dict[bytes | int, int] = {}
    lists, shared = [], np.zeros(len(counts), np.int32)
    for owner in range(len(counts)):
        own = by_owner.of(owner)
        key = own.tobytes() if len(own) and owner < len(counts) - 1 else owner
        if key not in numbers:
            numbers[key] = len(lists)
            lists.append(own)
        shared[owner] = numbers[key]
    return Ragged.from_lists(lists), shared if len(lists) < len(counts) else None


# Signals that clients measure before training, of the model that they received: its loss, and
# counts by group, label and outcome.

MOST_CELLS = 512  # up to here a product with a one-hot matrix is cheaper than a scatter


class Measurements(NamedTuple):
    """The signals of a cohort. Runs come last; signals that no rule needs are None."""

    loss: Array | None  # [K, runs] mean (or summed) loss
    table: Array | None  # [K, groups, labels, outcomes, runs] counts
    cell_loss: Array | None  # [K, groups, labels, runs] summed losses
    # [K, groups, labels, outcomes, runs] counts of validation rows
    valid_table: Array | None = None


class RowLists(NamedTuple):
    """The rows of each client."""

    rows: Array  # [rows] one client after another
    start: Array  # [clients + 1]


def uses_validation(parts: RunParts) -> bool:
    """Whether any rule of a run group needs signals of validation rows."""
    return any("valid_table" in group.rule.needs for group in parts.rules)


def measure(
    shape: Shape, inputs: Inputs, model: Tree, cohort: Array, needs: frozenset[str]
) -> Measurements:
    """The signals that are needed, of the models that the clients received, on all their training
    rows or validation rows. Where rows are private, the loss of each is bounded.
    """
    data, training, signals = inputs.data, needs & ON_TRAINING_ROWS, Measurements(None, None, None)
    if training:
        signals = _measure_rows(
            shape,
            inputs,
            model,
            _CohortRows.of(RowLists(data.train_rows, data.train_start), cohort),
            training,
        )
    if "valid_table" in needs:
        assert data.valid_rows is not None and data.valid_start is not None  # noqa: PT018
        held_out = _CohortRows.of(RowLists(data.valid_rows, data.valid_start), cohort)
        signals = signals._replace(
            valid_table=_measure_rows(shape, inputs, model, held_out, frozenset({"table"})).table
        )
    return signals


class _CohortRows(NamedTuple):
    """The rows of a cohort as one list, which is read in chunks that may span several clients."""

    lists: RowLists
    cohort: Array
    counts: Array  # [K] rows of each client
    ends: Array  # [K] where they end in the list

    @staticmethod
    def of(lists: RowLists, cohort: Array) -> "_CohortRows":
        counts = lists.start[cohort + 1] - lists.start[cohort]
        return _CohortRows(lists, cohort, counts, jnp.cumsum(counts))

    def read(self, data: Data, at: Array) -> tuple[Shard, Array]:
        """The rows at these positions and the slot of each; padding, with slot K, past the last
        row.
        """
        lists, slots = self.lists, self.cohort.shape[0]
        slot = jnp.searchsorted(self.ends, at, side="right")
        owner = jnp.minimum(slot, slots - 1)
        first = self.ends - self.counts
        row = lists.rows[
            jnp.minimum(
                lists.start[self.cohort[owner]] + at - first[owner], lists.rows.shape[0] - 1
            )
        ]
        return (
            unweighted(shard(data, jnp.where(at < self.ends[-1], row, data.y.shape[0] - 1))),
            slot,
        )


def _measure_rows(
    shape: Shape, inputs: Inputs, model: Tree, rows: _CohortRows, needs: frozenset[str]
) -> Measurements:
    """Signals of these rows, summed chunk by chunk."""
    slots, runs, task = (
        rows.cohort.shape[0],
        jax.tree.leaves(model)[0].shape[shape.axis],
        inputs.task,
    )
    cells, by_slot = slots * shape.groups * shape.labels, (slots, shape.groups, shape.labels)

    def chunk(i: Array, sums: Measurements) -> Measurements:
        batch, slot = rows.read(inputs.data, i * shape.chunk + jnp.arange(shape.chunk))
        return _add_chunk(shape, inputs, model, (batch, slot, slots), sums)

    sizes = {
        "loss": (slots, runs),
        "table": (cells, shape.labels, runs),
        "cell_loss": (cells, runs),
    }
    zeros = Measurements(
        *(jnp.zeros(size) if name in needs else None for name, size in sizes.items())
    )
    loss, table, cell_loss, _ = device_loop(
        shape, (rows.ends[-1] + shape.chunk - 1) // shape.chunk, chunk, zeros
    )
    if loss is not None:
        penalty = jnp.broadcast_to(
            map_runs(lambda m: jnp.asarray(task.penalty(m), jnp.float32), shape.axis, model),
            (runs,),
        )
        loss = (loss / rows.counts[:, None] if task.reduction == "mean" else loss) + penalty
    table = None if table is None else table.reshape(*by_slot, shape.labels, runs)
    return Measurements(
        loss, table, None if cell_loss is None else cell_loss.reshape(*by_slot, runs)
    )


def _add_chunk(
    shape: Shape, inputs: Inputs, model: Tree, chunk: tuple[Shard, Array, int], sums: Measurements
) -> Measurements:
    """Add the rows of a chunk to the sums. `chunk` are its rows, their slots and the number of
    slots.
    """
    (batch, slot, slots), (loss, table, cell_loss, _), task = chunk, sums, inputs.task
    cell, cells = (
        (slot * shape.groups + batch.group) * shape.labels + batch.y,
        slots * shape.groups * shape.labels,
    )
    # A scatter also keeps XLA from fusing this loop into one function, in which products of this
    # many rows are slow.
    summed = partial(sum_by_cell, scatter=shape.fused)
    if loss is not None or cell_loss is not None:
        # [chunk, runs]
        own = runs_last(map_runs(lambda m: task.losses(m, batch), shape.axis, model), shape.axis)
        own = bounded_losses(inputs.parts.work, own) * over_runs(batch.mask, own)
        loss = None if loss is None else loss + jax.ops.segment_sum(own, slot, slots)
        cell_loss = None if cell_loss is None else cell_loss + summed(cell, own, cells)
    if table is not None:
        outcome = runs_last(
            map_runs(lambda m: task.predict(m, batch.x), shape.axis, model), shape.axis
        )
        table = table + summed(cell, _one_hot(shape, batch, outcome).astype(jnp.float32), cells)
    return Measurements(loss, table, cell_loss)


def _one_hot(shape: Shape, batch: Shard, outcome: Array) -> Array:
    """Which outcome each row has in each run; none for padding. bool [n, outcomes, runs]"""
    return (outcome[:, None, :] == jnp.arange(shape.labels)[:, None]) & (batch.mask > 0)[
        :, None, None
    ]


def sum_by_cell(cell: Array, values: Array, cells: int, *, scatter: bool = False) -> Array:
    """Sums of values [n, ...] by the cell of each row. Rows past the last cell are ignored. Counts
    below 2**24 are exact.
    """
    if scatter or cells > MOST_CELLS:
        return jax.ops.segment_sum(values, cell, cells)
    hot = (cell == jnp.arange(cells)[:, None]).astype(jnp.float32)
    flat = jnp.dot(hot, values.reshape(values.shape[0], -1), precision="highest")
    return flat.reshape(cells, *values.shape[1:])


# Evaluations: counts of predictions by split, client, group, label and outcome.
#
# Rows are read list by list. Owners that share a list of rows and a model share its counts.

# tables [cells, outcomes, runs] and summed losses [lists, runs]; or by owner
Counts = tuple[Array, Array]


def evaluate(shape: Shape, inputs: Inputs, state: State) -> Counts:
    """Tables by owner, group, label and outcome, and summed losses by owner, on all
    evaluated rows.
    """
    model, shared = served_model(shape, inputs.parts, state), inputs.data.eval_shared
    if jax.tree.leaves(state.memory.work):
        return by_cell(shape, _client_by_client(shape, inputs, state, model))
    tables, losses = by_cell(shape, _all_at_once(shape, inputs, model))
    return (tables, losses) if shared is None else (tables[shared], losses[shared])


def zero_counts(shape: Shape, lists: int, runs: int) -> Counts:
    """Counts before the first row."""
    cells = lists * shape.groups * shape.labels
    return jnp.zeros((cells, shape.labels, runs), jnp.int32), jnp.zeros((lists, runs))


def by_cell(shape: Shape, counts: Counts) -> Counts:
    """Tables with an axis each for lists, groups, labels and outcomes."""
    tables, losses = counts
    return tables.reshape(-1, shape.groups, shape.labels, shape.labels, losses.shape[-1]), losses


def served_model(shape: Shape, parts: RunParts, state: State) -> Tree:
    """The shared model that clients use: the last one, or the one that the server derives
    from all.
    """
    if all(group.server is None for group in parts.rules):
        return state.model
    serve = jax.vmap(
        lambda server, model, own: trees.with_learned(
            model, server.serve(trees.learned(model), own)
        ),
        (0, shape.axis, 0),
        shape.axis,
    )
    models = [trees.cut(state.model, shape.runs_of(i), shape.axis) for i in range(len(parts.rules))]
    groups = zip(parts.rules, models, state.server, strict=True)
    return trees.join(
        [
            model if group.server is None else serve(group.server, model, own)
            for group, model, own in groups
        ],
        shape.axis,
    )


def _all_at_once(shape: Shape, inputs: Inputs, model: Tree) -> Counts:
    """Evaluate one model for all owners, in large chunks of rows."""
    data = inputs.data

    def chunk(i: Array, carry: Counts) -> Counts:
        at = i * shape.eval_chunk + jnp.arange(shape.eval_chunk)
        return count_rows(shape, inputs, model, (data.eval_rows[at], data.eval_list[at]), carry)

    return device_loop(
        shape,
        data.eval_rows.shape[0] // shape.eval_chunk,
        chunk,
        zero_counts(shape, shape.lists, shape.runs),
    )


def _client_by_client(shape: Shape, inputs: Inputs, state: State, model: Tree) -> Counts:
    """Evaluate every client's own model, and the shared model on the central test set (the last
    owner).
    """
    data = inputs.data
    last = data.eval_rows.shape[0] - 1

    def one_owner(owner: Array, carry: Counts) -> Counts:
        memory = jax.tree.map(lambda leaf: leaf[owner % shape.clients], state.memory.work)
        own = map_runs(
            lambda work, m, mine: work.deploy(m, mine), shape.axis, inputs.parts.work, model, memory
        )
        used = jax.tree.map(lambda a, b: jnp.where(owner < 3 * shape.clients, a, b), own, model)
        own_list = owner if data.eval_shared is None else data.eval_shared[owner]
        start, stop = data.eval_start[own_list], data.eval_start[own_list + 1]

        def chunk(i: Array, inner: Counts) -> Counts:
            at = start + i * shape.chunk + jnp.arange(shape.chunk)
            rows = jnp.where(at < stop, data.eval_rows[jnp.minimum(at, last)], data.y.shape[0] - 1)
            return count_rows(
                shape, inputs, used, (rows, jnp.where(at < stop, owner, shape.owners)), inner
            )

        return lax.fori_loop(0, (stop - start + shape.chunk - 1) // shape.chunk, chunk, carry)

    return device_loop(shape, shape.owners, one_owner, zero_counts(shape, shape.owners, shape.runs))


def count_rows(
    shape: Shape, inputs: Inputs, model: Tree, rows: tuple[Array, Array], counts: Counts
) -> Counts:
    """Add the counts of rows to those so far. `rows` are their numbers and the list of each."""
    (numbers, of_list), (tables, losses) = rows, counts
    batch = unweighted(shard(inputs.data, numbers))
    judgement = map_runs(lambda m: judged(inputs.task, m, batch), shape.axis, model)
    loss, outcome = (runs_last(values, shape.axis) for values in judgement)  # [n, runs]
    cell = (of_list * shape.groups + batch.group) * shape.labels + batch.y
    # Rows of padding are in no list: their index is out of range and dropped.
    hot = _one_hot(shape, batch, outcome).astype(jnp.int32)
    return tables.at[cell].add(hot, mode="drop"), losses.at[of_list].add(loss, mode="drop")


def check_evaluated(clients: np.ndarray, federation: Federation) -> np.ndarray:
    """The numbers of the evaluated clients, each once."""
    clients = np.asarray(clients)
    numbers = clients.ndim == 1 and len(clients) > 0 and clients.dtype.kind in "iu"
    if (
        not numbers
        or clients.min() < 0
        or clients.max() >= federation.clients
        or len(np.unique(clients)) < len(clients)
    ):
        raise ValueError(
            f"panel must hold at least one client number from 0 to {federation.clients - 1}, none"
            f" of them twice, got {clients}."
        )
    return clients.astype(np.int32)

"""Rows on the device: how a federation lies there, and how rows are read to measure signals and to evaluate."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from evenly import trees
from evenly.data.federation import Federation
from evenly.data.splits import SPLITS, Ragged
from evenly.models.linear import over_runs
from evenly.models.task import judged
from evenly.simulate import layout
from evenly.simulate.layout import (
    ON_TRAINING_ROWS,
    Advance,
    Data,
    RoundRecord,
    RunParts,
    Shape,
    State,
    each,
    on_every_device,
    plain,
    runs_last,
    shard,
    shared_loop,
)  # fmt: skip
from evenly.simulate.schedule import Block
from evenly.types import Array, Prepare, Rule, Task, Tree

# The federation as flat arrays on the device: every example once, clients as row numbers.


class Resident:
    """A federation that lies on the device as a whole; the program itself evaluates."""

    def __init__(
        self, federation: Federation, weight: np.ndarray | None, task: Task, shape: Shape, parts: RunParts, advance: Advance
    ) -> None:
        self._task, self._shape, self._parts, self._advance = task, shape, parts, advance
        valid = uses_validation(band.rule for band in parts.bands)
        self.data = on_every_device(device_data(federation, weight, shape.eval_chunk, valid=valid), shape.devices)

    def begin(self, state: State, memory: Tree) -> State:
        """The first state; `memory` is one client's."""
        shape = self._shape
        return state._replace(memory=trees.repeat(memory, shape.clients), excluded=jnp.zeros((shape.clients, shape.runs), jnp.int32))

    def to_device(self, state: State) -> State:
        return on_every_device(jax.tree.map(jnp.asarray, state), self._shape.devices)

    def packed(self, state: State) -> State:
        return state

    def unpacked(self, state: State) -> State:
        return state

    def advance(self, block: Block, state: State) -> tuple[State, RoundRecord]:
        return self._advance(self._task, self._shape, self._parts, self.data, block, state)

    def settle(self, block: Block, before: State, after: State) -> State:
        return after


def device_data(federation: Federation, weight: np.ndarray | None, eval_chunk: int, *, valid: bool = False) -> Data:
    """Move a federation to the device, with one row of padding at the end of every table; `valid`: validation rows are looked at."""
    lists, shared = evaluated_lists(federation)
    short = -len(lists.rows) % eval_chunk
    count, rows, trained = len(lists.counts), len(federation.y), len(federation.train.rows)
    columns: dict[str, Any] = {
        "x": layout.padded(federation.x, rows + 1),
        "y": layout.padded(federation.y, rows + 1, np.int32),
        "group": layout.padded(federation.group, rows + 1, np.int32),
        "weight": None if weight is None else layout.padded(weight, rows + 1),
        # Padded so that partitions of the same rows, whose cuts differ by a few, share a compiled program.
        "train_rows": layout.padded(federation.train.rows, trained + -trained % eval_chunk),
        "train_start": federation.train.offsets.astype(np.int32),
        "eval_rows": np.append(lists.rows, np.full(short, rows)).astype(np.int32),
        # Padding is in no list: an index past the last one, which scatters drop.
        "eval_list": np.append(np.repeat(np.arange(count), lists.counts), np.full(short, count)).astype(np.int32),
        "eval_start": lists.offsets.astype(np.int32),
        "eval_shared": shared,
        "examples": federation.train.counts.astype(np.float32),
        "unprivileged": federation.census().unprivileged_rows.astype(np.float32),
    }
    if valid:
        held_out = federation.valid.rows
        columns["valid_rows"] = layout.padded(held_out, max(len(held_out) + -len(held_out) % eval_chunk, 1))
        columns["valid_start"] = federation.valid.offsets.astype(np.int32)
    return jax.device_put(Data(**columns))


def prepared_weights(federation: Federation, prepares: Sequence[Prepare | None]) -> np.ndarray | None:
    """How much each row counts in its client's loss: [rows], or [rows, ways] where runs prepare their rows in several ways."""
    base = np.ones(len(federation.y), np.float32) if federation.weight is None else federation.weight.astype(np.float32)
    if all(prepare is None for prepare in prepares):
        return None if federation.weight is None else base
    columns = [base if prepare is None else base * _prepared(federation, prepare) for prepare in prepares]
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def _prepared(federation: Federation, prepare: Prepare) -> np.ndarray:
    weight = np.ones(len(federation.y), np.float32)
    for k in range(federation.clients):
        rows = federation.train.of(k)
        weight[rows] = prepare.weights(federation.y[rows], federation.group[rows])
    return weight


def evaluated_lists(federation: Federation) -> tuple[Ragged, np.ndarray | None]:
    """The lists of rows that are evaluated, and each owner's list where some owners share one (else None).

    Owners are the clients' training, validation and test rows, then the central test set. Clients that are tested on the
    very same rows are common in studies of groups; their list is there once.
    """
    parts = [federation.split(s) for s in SPLITS]
    rows = np.concatenate([*(part.rows for part in parts), federation.central])
    counts = np.concatenate([*(part.counts for part in parts), [len(federation.central)]])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    everyone = Ragged(rows, offsets)
    some = np.flatnonzero(counts[:-1])
    if len(np.unique(rows[offsets[some]])) == len(some):  # the usual case, found without reading the lists
        return everyone, None
    first: dict[bytes | int, int] = {}
    kept, shared = [], np.zeros(len(counts), np.int32)
    for owner in range(len(counts)):
        own = everyone.of(owner)
        name = own.tobytes() if len(own) and owner < len(counts) - 1 else owner
        if name not in first:
            first[name] = len(kept)
            kept.append(own)
        shared[owner] = first[name]
    return Ragged.from_lists(kept), shared if len(kept) < len(counts) else None


# Clients look at the model they received, before training: its loss, and its counts by group, label and outcome.

MOST_CELLS = 512  # up to here a product with a one-hot is cheaper than a scatter


class Measured(NamedTuple):
    """What a cohort measured. Runs come last; what nobody needs is None."""

    loss: Array | None  # [K, runs] mean (or summed) loss
    table: Array | None  # [K, groups, labels, outcomes, runs] counts
    cell_loss: Array | None  # [K, groups, labels, runs] summed losses
    valid_table: Array | None = None  # [K, groups, labels, outcomes, runs] counts of validation rows


class Lists(NamedTuple):
    """Which rows are whose."""

    rows: Array  # [rows] end to end
    start: Array  # [clients + 1]


def uses_validation(rules: Iterable[Rule]) -> bool:
    """Whether any of these rules makes clients look at validation rows."""
    return any("valid_table" in rule.needs for rule in rules)


def measured(task: Task, shape: Shape, data: Data, model: Tree, cohort: Array, needs: frozenset[str]) -> Measured:
    """What these needs ask for, of the models that each client received, on all its training rows and all its validation rows."""
    found, training = Measured(None, None, None), needs & ON_TRAINING_ROWS
    if training:
        found = _looked(task, shape, data, Lists(data.train_rows, data.train_start), model, cohort, training)
    if "valid_table" in needs:
        assert data.valid_rows is not None and data.valid_start is not None  # noqa: PT018
        held_out = Lists(data.valid_rows, data.valid_start)
        found = found._replace(valid_table=_looked(task, shape, data, held_out, model, cohort, frozenset({"table"})).table)
    return found


def _looked(task: Task, shape: Shape, data: Data, lists: Lists, model: Tree, cohort: Array, needs: frozenset[str]) -> Measured:
    """The cohort's rows are read as one list, in chunks that may span several clients."""
    slots, runs = cohort.shape[0], _runs(shape, model)
    counts = lists.start[cohort + 1] - lists.start[cohort]
    ends = jnp.cumsum(counts)
    cells = slots * shape.groups * shape.labels
    # A scatter also keeps this loop from being compiled as one function, in which products of so many rows are slow.
    summed = partial(summed_by, scatter=shape.whole)

    def chunk(i: Array, sums: Measured) -> Measured:
        at = i * shape.chunk + jnp.arange(shape.chunk)
        slot = jnp.searchsorted(ends, at, side="right")  # K past the last row
        owner = jnp.minimum(slot, slots - 1)
        row = lists.rows[jnp.minimum(lists.start[cohort[owner]] + at - (ends - counts)[owner], lists.rows.shape[0] - 1)]
        batch = plain(shard(data, jnp.where(at < ends[-1], row, data.y.shape[0] - 1)))
        cell = (slot * shape.groups + batch.group) * shape.labels + batch.y
        loss, table, cell_loss, _ = sums
        if loss is not None or cell_loss is not None:
            own = runs_last(each(lambda m: task.losses(m, batch), shape.axis, model), shape.axis)  # [chunk, runs]
            own = own * over_runs(batch.mask, own)
            loss = None if loss is None else loss + jax.ops.segment_sum(own, slot, slots)
            cell_loss = None if cell_loss is None else cell_loss + summed(cell, own, cells)
        if table is not None:
            outcome = runs_last(each(lambda m: task.predict(m, batch.x), shape.axis, model), shape.axis)
            hot = (outcome[:, None, :] == jnp.arange(shape.labels)[:, None]) & (batch.mask > 0)[:, None, None]
            table = table + summed(cell, hot.astype(jnp.float32), cells)
        return Measured(loss, table, cell_loss)

    zeros = Measured(
        jnp.zeros((slots, runs)) if "loss" in needs else None,
        jnp.zeros((cells, shape.labels, runs)) if "table" in needs else None,
        jnp.zeros((cells, runs)) if "cell_loss" in needs else None,
    )
    loss, table, cell_loss, _ = shared_loop(shape, (ends[-1] + shape.chunk - 1) // shape.chunk, chunk, zeros)
    if loss is not None:
        penalty = jnp.broadcast_to(each(lambda m: jnp.asarray(task.penalty(m), jnp.float32), shape.axis, model), (runs,))
        loss = (loss / counts[:, None] if task.reduction == "mean" else loss) + penalty
    by_cell = (slots, shape.groups, shape.labels)
    return Measured(
        loss,
        None if table is None else table.reshape(*by_cell, shape.labels, runs),
        None if cell_loss is None else cell_loss.reshape(*by_cell, runs),
    )


def summed_by(cell: Array, values: Array, cells: int, *, scatter: bool = False) -> Array:
    """Sums of values [n, ...] by the cell of each row; rows of no cell are left out. Counts below 2**24 stay exact."""
    if scatter or cells > MOST_CELLS:
        return jax.ops.segment_sum(values, cell, cells)
    hot = (cell == jnp.arange(cells)[:, None]).astype(jnp.float32)
    flat = jnp.dot(hot, values.reshape(values.shape[0], -1), precision="highest")
    return flat.reshape(cells, *values.shape[1:])


def _runs(shape: Shape, model: Tree) -> int:
    return jax.tree.leaves(model)[0].shape[shape.axis]


# Count what the served models predict: by split, client, group, label and outcome.
#
# Rows are read list by list; owners that share a list of rows, and a model, are given the same counts.

Counts = tuple[Array, Array]  # tables [cells, outcomes, runs] and summed losses [lists, runs]; or by owner


def evaluated(task: Task, shape: Shape, parts: RunParts, data: Data, state: State) -> Counts:
    """Tables by owner, group, label and outcome, and summed losses by owner, on all evaluated rows."""
    model = served(shape, parts, state)
    if jax.tree.leaves(state.memory):
        return by_cell(shape, _client_by_client(task, shape, parts, data, state, model))
    tables, losses = by_cell(shape, _all_at_once(task, shape, data, model))
    return (tables, losses) if data.eval_shared is None else (tables[data.eval_shared], losses[data.eval_shared])


def nothing_counted(shape: Shape, lists: int, runs: int) -> Counts:
    cells = lists * shape.groups * shape.labels
    return jnp.zeros((cells, shape.labels, runs), jnp.int32), jnp.zeros((lists, runs))


def by_cell(shape: Shape, counts: Counts) -> Counts:
    """Tables with an axis each for lists, groups, labels and outcomes."""
    tables, losses = counts
    return tables.reshape(-1, shape.groups, shape.labels, shape.labels, losses.shape[-1]), losses


def served(shape: Shape, parts: RunParts, state: State) -> Tree:
    """The shared model that clients are given to use: the last one, or what the server makes of all."""
    if all(band.server is None for band in parts.bands):
        return state.model
    serve = jax.vmap(lambda server, model, own: server.serve(model, own), (0, shape.axis, 0), shape.axis)
    models = [trees.cut(state.model, shape.band(i), shape.axis) for i in range(len(parts.bands))]
    given = zip(parts.bands, models, state.server, strict=True)
    return trees.join([model if band.server is None else serve(band.server, model, own) for band, model, own in given], shape.axis)


def _all_at_once(task: Task, shape: Shape, data: Data, model: Tree) -> Counts:
    """One model for everybody: rows in large chunks, whoever owns them."""
    empty = nothing_counted(shape, shape.lists, shape.runs)

    def chunk(i: Array, carry: Counts) -> Counts:
        at = i * shape.eval_chunk + jnp.arange(shape.eval_chunk)
        return counted(task, shape, data, model, data.eval_rows[at], data.eval_list[at], carry)

    return shared_loop(shape, data.eval_rows.shape[0] // shape.eval_chunk, chunk, empty)


def _client_by_client(task: Task, shape: Shape, parts: RunParts, data: Data, state: State, model: Tree) -> Counts:
    """Every client its own model; the central test set (the last owner) sees the shared one."""
    empty = nothing_counted(shape, shape.owners, shape.runs)
    last = data.eval_rows.shape[0] - 1

    def owner(who: Array, carry: Counts) -> Counts:
        memory = jax.tree.map(lambda leaf: leaf[who % shape.clients], state.memory)
        own = each(lambda work, m, mine: work.deploy(m, mine), shape.axis, parts.work, model, memory)
        mine = jax.tree.map(lambda a, b: jnp.where(who < 3 * shape.clients, a, b), own, model)
        own_list = who if data.eval_shared is None else data.eval_shared[who]
        start, stop = data.eval_start[own_list], data.eval_start[own_list + 1]

        def chunk(i: Array, inner: Counts) -> Counts:
            at = start + i * shape.chunk + jnp.arange(shape.chunk)
            rows = jnp.where(at < stop, data.eval_rows[jnp.minimum(at, last)], data.y.shape[0] - 1)
            return counted(task, shape, data, mine, rows, jnp.where(at < stop, who, shape.owners), inner)

        return lax.fori_loop(0, (stop - start + shape.chunk - 1) // shape.chunk, chunk, carry)

    return shared_loop(shape, shape.owners, owner, empty)


def counted(task: Task, shape: Shape, data: Data, model: Tree, rows: Array, of_list: Array, counts: Counts) -> Counts:
    """Counts with those of some more rows, each of the list with this number."""
    tables, losses = counts
    batch = plain(shard(data, rows))
    loss, outcome = (runs_last(found, shape.axis) for found in each(lambda m: judged(task, m, batch), shape.axis, model))  # [n, runs]
    hot = (outcome[:, None, :] == jnp.arange(shape.labels)[:, None]) & (batch.mask > 0)[:, None, None]
    cell = (of_list * shape.groups + batch.group) * shape.labels + batch.y
    # Rows of padding are in no list: their index is out of range and dropped.
    return tables.at[cell].add(hot.astype(jnp.int32), mode="drop"), losses.at[of_list].add(loss, mode="drop")

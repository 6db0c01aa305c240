"""The federation as flat arrays on the device: every example once, clients as row numbers."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenly import trees
from evenly.data.federation import Federation
from evenly.data.splits import SPLITS, Ragged
from evenly.simulate import aligned
from evenly.simulate.layout import Data, Parts, Shape, State
from evenly.simulate.measuring import uses_validation
from evenly.simulate.meeting import Advance
from evenly.simulate.multidevice import on_every_device
from evenly.simulate.plan import Block
from evenly.simulate.program import Record
from evenly.types import Prepare, Task, Tree


class Resident:
    """A federation that lies on the device as a whole; the program itself evaluates."""

    def __init__(self, federation: Federation, weight: np.ndarray | None, task: Task, shape: Shape, parts: Parts, advance: Advance) -> None:
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

    def advance(self, block: Block, state: State) -> tuple[State, Record]:
        return self._advance(self._task, self._shape, self._parts, self.data, block, state)

    def settle(self, block: Block, before: State, after: State) -> State:
        return after


def device_data(federation: Federation, weight: np.ndarray | None, eval_chunk: int, *, valid: bool = False) -> Data:
    """Move a federation to the device, with one row of padding at the end of every table; `valid`: validation rows are looked at."""
    lists, shared = evaluated_lists(federation)
    short = -len(lists.rows) % eval_chunk
    count, rows, trained = len(lists.counts), len(federation.y), len(federation.train.rows)
    columns: dict[str, Any] = {
        "x": aligned.padded(federation.x, rows + 1),
        "y": aligned.padded(federation.y, rows + 1, np.int32),
        "group": aligned.padded(federation.group, rows + 1, np.int32),
        "weight": None if weight is None else aligned.padded(weight, rows + 1),
        # Padded so that partitions of the same rows, whose cuts differ by a few, share a compiled program.
        "train_rows": aligned.padded(federation.train.rows, trained + -trained % eval_chunk),
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
        columns["valid_rows"] = aligned.padded(held_out, max(len(held_out) + -len(held_out) % eval_chunk, 1))
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

"""Data that stay on the host, in memory or in a mapped file, and are streamed to the device block by block."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenly import trees
from evenly.data.federation import Federation
from evenly.data.splits import SPLITS, Ragged
from evenly.simulate import layout
from evenly.simulate.layout import Advance, Data, RoundRecord, RunParts, Shape, State, on_every_device, row_bytes
from evenly.simulate.measuring import Counts, evaluated, uses_validation
from evenly.simulate.schedule import LARGEST_BLOCK_CELLS, Block, Held, Tables, rounded_up
from evenly.types import Task, Tree

# Data that stay on the host, in memory or in a file: the device sees a few clients at a time.
#
# A block is given the rows that its own clients train on and look at, and what they remember; an evaluation goes through all clients,
# some at a time. What is on the device does not grow with the number of registered clients, and the host holds nothing twice. The
# program and its arithmetic are those of data that lie on the device.

PIECE_BYTES = 2**26  # of features that are moved at a time
MEMORY_BYTES = 2**28  # of what clients remember, moved at a time


def most_rounds(federation: Federation, slots: int, memory: Tree) -> int:
    """How many rounds' clients are moved to the device at a time."""
    rows = slots * max(1.0, len(federation.train.rows) / federation.clients)
    piece = layout.CACHED_BYTES if jax.default_backend() == "cpu" else PIECE_BYTES
    return max(1, int(min(piece / (rows * row_bytes(federation)), MEMORY_BYTES / max(slots * _bytes(memory), 1))))


class Kept(NamedTuple):
    """What clients remember, on the host."""

    first: Tree  # of anybody who has not trained yet
    own: Tree  # [clients, ...]
    trained: np.ndarray  # bool [clients]

    @staticmethod
    def nothing_yet(first: Tree, clients: int) -> "Kept":
        first = jax.tree.map(np.asarray, first)
        # Zeros are not there until they are written to: memory grows with those who trained, not with those registered.
        return Kept(first, jax.tree.map(lambda leaf: np.zeros((clients, *leaf.shape), leaf.dtype), first), np.zeros(clients, bool))

    def of(self, clients: np.ndarray, room: int) -> Tree:
        """Of these clients, and the first for the room that is left. [room, ...]"""
        trained = self.trained[clients]

        def one(first: np.ndarray, own: np.ndarray) -> np.ndarray:
            found = np.broadcast_to(first, (room, *first.shape)).copy()
            found[: len(clients)][trained] = own[clients[trained]]
            return found

        return jax.tree.map(one, self.first, self.own)

    def put(self, clients: np.ndarray, memory: Tree) -> None:
        jax.tree.map(lambda own, new: own.__setitem__(clients, np.asarray(new)[: len(clients)]), self.own, memory)
        self.trained[clients] = True


class Piece(NamedTuple):
    """What is evaluated at a time: these of the evaluated clients, and a part of the central test set."""

    panel: slice
    central: np.ndarray


class Streamed:
    """A federation that is given to the device bit by bit. `shape` is that of a block, `panel` says who is evaluated, and `memory` is
    the form of what one client remembers."""

    def __init__(
        self,
        federation: Federation,
        weight: np.ndarray | None,
        panel: np.ndarray,
        task: Task,
        shape: Shape,
        parts: RunParts,
        advance: Advance,
        memory: Tree,
    ) -> None:
        self._federation, self._weight, self._panel = federation, weight, panel
        self._task, self._shape, self._parts, self._advance = task, shape, parts, advance
        self._unprivileged = federation.census().unprivileged_rows
        self._validates = uses_validation(band.rule for band in parts.bands)
        self._room = 0  # rows for which the tables of a block have room
        self._spare: list[Tables] = []  # of that room: what the block before last is done with, the next is written to
        self._examined, self._examined_rows = self._sizes(_bytes(memory))

    def hold(self, cohort: np.ndarray) -> Held:
        """The training rows of a block's clients, copied end to end; then their validation rows, where a rule looks at those."""
        clients = cohort.ravel()[np.sort(np.unique(cohort, return_index=True)[1])]
        rows, offsets = self._federation.train.only(clients)
        trained, valid, most = len(rows), None, len(self._federation.train.rows)
        if self._validates:
            held_out = self._federation.valid.only(clients)
            rows, valid = np.concatenate([rows, held_out.rows]), trained + held_out.offsets
            most += len(self._federation.valid.rows)
        if len(rows) > self._room:  # a larger table is another program: leave room for blocks a little larger
            self._room, self._spare = min(rounded_up(int(1.25 * len(rows))), most), []
        # Two in turn: a block is planned while the one before it is trained, when the one before that has come back.
        tables = self._spare.pop(0) if len(self._spare) == 2 else self._empty(self._room)
        self._spare.append(self._filled(tables, rows))
        return Held(clients, Ragged(np.arange(trained, dtype=np.int32), offsets), tables, valid)

    def begin(self, state: State, memory: Tree) -> State:
        """The first state: what belongs to the clients is on the host. `memory` is one client's."""
        clients = self._federation.clients
        kept = Kept.nothing_yet(memory, clients) if jax.tree.leaves(memory) else memory
        return state._replace(memory=kept, excluded=np.zeros((clients, self._shape.runs), np.int32))

    def to_device(self, state: State) -> State:
        """Everything but what belongs to the clients."""
        moved = on_every_device(jax.tree.map(jnp.asarray, state._replace(memory=(), excluded=())), self._shape.devices)
        return moved._replace(memory=state.memory, excluded=state.excluded)

    def packed(self, state: State) -> State:
        """A state to be written to a file: only those who have trained are in it."""
        if not isinstance(state.memory, Kept):
            return state
        trained = np.flatnonzero(state.memory.trained)
        return state._replace(memory=Kept(state.memory.first, jax.tree.map(lambda own: own[trained], state.memory.own), trained))

    def unpacked(self, state: State) -> State:
        """A state as it was before it was packed."""
        if not isinstance(state.memory, Kept):
            return state
        whole = Kept.nothing_yet(state.memory.first, self._federation.clients)
        whole.put(state.memory.trained, state.memory.own)
        return state._replace(memory=whole)

    def advance(self, block: Block, state: State) -> tuple[State, RoundRecord]:
        """Start a block. What it leaves of its clients comes back with `settle`."""
        held, shape = block.held, self._shape
        assert held is not None
        short = shape.clients - len(held.clients)
        none, in_order = np.zeros(1, np.int32), np.arange(held.padding, dtype=np.int32)
        data = _given(
            **held.tables._asdict(),
            train_rows=in_order,
            train_start=np.pad(held.train.offsets, (0, short), "edge").astype(np.int32),
            eval_rows=none, eval_list=none, eval_start=none, eval_shared=None,
            examples=np.pad(held.train.counts, (0, short)).astype(np.float32),
            unprivileged=np.pad(self._unprivileged[held.clients], (0, short)).astype(np.float32),
            valid_rows=None if held.valid is None else in_order,
            valid_start=None if held.valid is None else np.pad(held.valid, (0, short), "edge").astype(np.int32),
        )  # fmt: skip
        local = state._replace(memory=_memory(state, held.clients, shape.clients), excluded=np.zeros((shape.clients, shape.runs), np.int32))
        data, local = on_every_device((data, local), shape.devices)
        return self._advance(self._task, shape, self._parts, data, block._replace(held=None), local)

    def settle(self, block: Block, before: State, after: State) -> State:
        """Take back what belongs to the clients; this waits for the device."""
        assert block.held is not None
        clients = block.held.clients
        before.excluded[clients] += np.asarray(after.excluded)[: len(clients)]
        if isinstance(before.memory, Kept):
            before.memory.put(clients, after.memory)
        return after._replace(memory=before.memory, excluded=before.excluded)

    def evaluate(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Tables and summed losses by owner: the panel's training, validation and test rows, and the central test set."""
        shape, panel = self._shape, len(self._panel)
        tables = np.zeros((3 * panel + 1, shape.groups, shape.labels, shape.labels, shape.runs), np.int32)
        losses = np.zeros((3 * panel + 1, shape.runs), np.float32)

        def add(piece: Piece, counts: Counts) -> None:
            size = piece.panel.stop - piece.panel.start
            for whole, found in zip((tables, losses), map(np.asarray, counts), strict=True):
                by_split = found[:-1].reshape(len(SPLITS), self._examined, *found.shape[1:])[:, :size]
                whole[:-1].reshape(len(SPLITS), panel, *whole.shape[1:])[:, piece.panel] = by_split
                whole[-1] += found[-1]

        pending: list[tuple[Piece, Counts]] = []
        for piece in self._pieces():
            pending.append((piece, self._counted(piece, state)))
            if len(pending) > 1:  # fetched only when the next is under way
                add(*pending.pop(0))
        for piece, counts in pending:
            add(piece, counts)
        return tables, losses

    def _counted(self, piece: Piece, state: State) -> Counts:
        clients, room = self._panel[piece.panel], self._examined
        lists = [self._federation.split(split).only(clients) for split in SPLITS]
        short = room - len(clients)
        rows = np.concatenate([*(one.rows for one in lists), piece.central])
        counts = np.concatenate([*(np.pad(one.counts, (0, short)) for one in lists), [len(piece.central)]])
        padding = self._examined_rows - len(rows)
        none = np.zeros(1, np.int32)
        data = _given(
            **self._filled(self._empty(self._examined_rows), rows)._asdict(),
            train_rows=none, train_start=none,
            eval_rows=np.pad(np.arange(len(rows), dtype=np.int32), (0, padding), constant_values=self._examined_rows),
            eval_list=np.pad(np.repeat(np.arange(len(counts), dtype=np.int32), counts), (0, padding), constant_values=len(counts)),
            eval_start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            eval_shared=None,
            examples=none, unprivileged=none,
        )  # fmt: skip
        shape = self._shape._replace(clients=room, lists=3 * room + 1, devices=1)  # several devices all do the same
        local = state._replace(memory=_memory(state, clients, room), excluded=())
        data, local = on_every_device((data, jax.tree.map(jnp.asarray, local)), self._shape.devices)
        return _evaluated(self._task, shape, self._parts, data, local)

    def _pieces(self) -> Iterator[Piece]:
        """As many clients at a time as there is room for, then the central test set."""
        ends = np.cumsum(self._evaluated_rows())
        start, done, nobody = 0, 0, np.zeros(0, np.int32)
        while start < len(ends):
            stop = min(int(np.searchsorted(ends, done + self._examined_rows, side="right")), start + self._examined)
            yield Piece(slice(start, stop), nobody)
            start, done = stop, int(ends[stop - 1])
        central = self._federation.central
        for at in range(0, len(central), self._examined_rows):
            yield Piece(slice(0, 0), central[at : at + self._examined_rows])

    def _evaluated_rows(self) -> np.ndarray:
        return sum((self._federation.split(split).counts[self._panel] for split in SPLITS), np.zeros(len(self._panel), np.int64))

    def _sizes(self, memory: int) -> tuple[int, int]:
        """How many clients, each with so many bytes of memory, and how many rows are evaluated at a time."""
        shape = self._shape
        cells = 3 * shape.groups * shape.labels**2 * shape.runs
        most = max(int(self._evaluated_rows().max(initial=1)), int(PIECE_BYTES // row_bytes(self._federation)), 1)
        every = int(self._evaluated_rows().sum()) + len(self._federation.central)
        rows = -(-min(most, every) // shape.eval_chunk) * shape.eval_chunk
        clients = min(LARGEST_BLOCK_CELLS // cells, MEMORY_BYTES // max(memory, 1))
        return int(np.clip(clients, 1, max(len(self._panel), 1))), rows

    def _columns(self) -> Tables:
        return Tables(self._federation.x, self._federation.y, self._federation.group, self._weight)

    def _empty(self, room: int) -> Tables:
        """Tables with room for so many rows, and a row of zeros after them."""

        def one(column: np.ndarray) -> np.ndarray:
            dtype = np.int32 if column.ndim == 1 and column.dtype.kind in "iu" else column.dtype
            return layout.zeros((room + 1, *column.shape[1:]), dtype)

        return jax.tree.map(one, self._columns())

    def _filled(self, tables: Tables, rows: np.ndarray) -> Tables:
        """The tables, which begin with these rows of the federation."""

        for column, table in zip(self._columns(), tables, strict=True):
            if column is None or table is None:
                continue
            if table.dtype == column.dtype:
                np.take(column, rows, axis=0, out=table[: len(rows)], mode="clip")  # without a mode NumPy would copy once more
            else:
                table[: len(rows)] = column[rows]
        return tables


def _given(**columns: Any) -> Data:
    """Data as the host has them: a program takes them from there, a CPU's without a copy."""
    return Data(**columns)


def _memory(state: State, clients: np.ndarray, room: int) -> Tree:
    return state.memory.of(clients, room) if isinstance(state.memory, Kept) else trees.repeat(state.memory, room)


def _bytes(memory: Tree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(memory))


@partial(jax.jit, static_argnames=("shape",))
def _evaluated(task: Task, shape: Shape, parts: RunParts, data: Data, state: Any) -> Counts:
    return evaluated(task, shape, parts, data, state)

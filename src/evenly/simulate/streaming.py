"""Data that stay on the host, in memory or in a mapped file, and are streamed to the device block
by block.

A block receives the training rows, validation rows and memories of its own clients. An evaluation
goes through all evaluated clients, some at a time. The memory of the device does not grow with the
number of clients, and the host holds nothing twice. Program and arithmetic are those of data that
lie on the device.
"""

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
from evenly.simulate.layout import (
    Data,
    Inputs,
    ProgramSpec,
    RoundRecord,
    Shape,
    State,
    replicate,
    row_bytes,
)
from evenly.simulate.measuring import Counts, evaluate, uses_validation
from evenly.simulate.schedule import LARGEST_BLOCK_CELLS, Block, BlockData, Tables, round_up
from evenly.types import Tree

PIECE_BYTES = 2**26  # of features that are moved at a time
MEMORY_BYTES = 2**28  # of client memories that are moved at a time


def most_rounds(federation: Federation, slots: int, memory: Tree) -> int:
    """Number of rounds whose clients are moved to the device at a time."""
    rows = slots * max(1.0, len(federation.train.rows) / federation.clients)
    piece = layout.CACHED_BYTES if jax.default_backend() == "cpu" else PIECE_BYTES
    return max(
        1,
        int(
            min(
                piece / (rows * row_bytes(federation)),
                MEMORY_BYTES / max(slots * _bytes(memory), 1),
            )
        ),
    )


class HostMemories(NamedTuple):
    """The memories of all clients, on the host."""

    first: Tree  # memory of a client that has not trained yet
    values: Tree  # [clients, ...]
    mask: np.ndarray  # bool [clients] which clients have trained

    @staticmethod
    def empty(first: Tree, clients: int) -> "HostMemories":
        """The memories before the first round."""
        first = jax.tree.map(np.asarray, first)
        # The system allocates zeros when they are written: memory grows with the clients that have
        # trained, not with all clients.
        values = jax.tree.map(lambda leaf: np.zeros((clients, *leaf.shape), leaf.dtype), first)
        return HostMemories(first, values, np.zeros(clients, bool))

    def of(self, clients: np.ndarray, room: int) -> Tree:
        """The memories of these clients, padded to `room` entries. [room, ...]"""
        mask = self.mask[clients]

        def one(first: np.ndarray, values: np.ndarray) -> np.ndarray:
            memory = np.broadcast_to(first, (room, *first.shape)).copy()
            memory[: len(clients)][mask] = values[clients[mask]]
            return memory

        return jax.tree.map(one, self.first, self.values)

    def put(self, clients: np.ndarray, memory: Tree) -> None:
        """Store the memories of these clients."""
        jax.tree.map(
            lambda values, new: values.__setitem__(clients, np.asarray(new)[: len(clients)]),
            self.values,
            memory,
        )
        self.mask[clients] = True


class Piece(NamedTuple):
    """A part of an evaluation: some of the evaluated clients, and some rows of the central test
    set.
    """

    clients: slice
    central: np.ndarray


class Streamed:
    """A data source that moves the rows of one block, or of a piece of an evaluation, to the device
    at a time.

    Args:
        federation: Clients and their data.
        weight: Weights of all rows, or None.
        evaluated_clients: Numbers of the clients that are evaluated.
        program: The program of a block.
        memory: The form of one client's memory.
    """

    def __init__(
        self,
        federation: Federation,
        weight: np.ndarray | None,
        evaluated_clients: np.ndarray,
        program: ProgramSpec,
        memory: Tree,
    ) -> None:
        self._federation, self._weight, self._evaluated_clients = (
            federation,
            weight,
            evaluated_clients,
        )
        self._task, self._shape, self._parts, self._advance = program
        self._unprivileged = federation.census().unprivileged_rows
        self._validates = uses_validation(self._parts)
        self._room = 0  # rows for which the tables of a block have room
        self._spare: list[Tables] = []  # tables of the last two blocks, which are reused in turn
        self._piece_clients, self._piece_rows = self._piece_sizes(_bytes(memory))

    def load_block(self, cohort: np.ndarray) -> BlockData:
        """Copy the training rows of a block's clients one after another, then their validation rows
        where a rule needs them.
        """
        clients = cohort.ravel()[np.sort(np.unique(cohort, return_index=True)[1])]
        rows, offsets = self._federation.train.only(clients)
        train, valid, most = len(rows), None, len(self._federation.train.rows)
        if self._validates:
            held_out = self._federation.valid.only(clients)
            rows, valid = np.concatenate([rows, held_out.rows]), train + held_out.offsets
            most += len(self._federation.valid.rows)
        # a larger table needs another program: leave room for slightly larger blocks
        if len(rows) > self._room:
            self._room, self._spare = min(round_up(int(1.25 * len(rows))), most), []
        # Two tables in turn: a block is planned while the one before it trains, when the one before
        # that is done.
        tables = self._spare.pop(0) if len(self._spare) == 2 else self._empty_tables(self._room)
        self._spare.append(self._fill(tables, rows))
        return BlockData(clients, Ragged(np.arange(train, dtype=np.int32), offsets), tables, valid)

    def begin(self, state: State, memory: Tree) -> State:
        """The first state. Values of clients stay on the host; `memory` is that of one client."""
        clients = self._federation.clients
        memories = HostMemories.empty(memory, clients) if jax.tree.leaves(memory) else memory
        return state._replace(
            memory=memories, excluded=np.zeros((clients, self._shape.runs), np.int32)
        )

    def to_device(self, state: State) -> State:
        """The state on every device, except for the values of clients."""
        moved = replicate(
            jax.tree.map(jnp.asarray, state._replace(memory=(), excluded=())), self._shape.devices
        )
        return moved._replace(memory=state.memory, excluded=state.excluded)

    def pack(self, state: State) -> State:
        """The state as it is written to a checkpoint: with the memories of clients that have
        trained.
        """
        if not isinstance(state.memory, HostMemories):
            return state
        clients = np.flatnonzero(state.memory.mask)
        return state._replace(
            memory=HostMemories(
                state.memory.first,
                jax.tree.map(lambda own: own[clients], state.memory.values),
                clients,
            )
        )

    def unpack(self, state: State) -> State:
        """The inverse of `pack`."""
        if not isinstance(state.memory, HostMemories):
            return state
        memories = HostMemories.empty(state.memory.first, self._federation.clients)
        memories.put(state.memory.mask, state.memory.values)
        return state._replace(memory=memories)

    def advance(self, block: Block, state: State) -> tuple[State, RoundRecord]:
        """Start a block. `settle` returns the values of its clients to the host."""
        source, shape = block.source, self._shape
        assert source is not None
        short = shape.clients - len(source.clients)
        none, in_order = np.zeros(1, np.int32), np.arange(source.padding, dtype=np.int32)
        data = _host_data(
            **source.tables._asdict(),
            train_rows=in_order,
            train_start=np.pad(source.train.offsets, (0, short), "edge").astype(np.int32),
            eval_rows=none,
            eval_list=none,
            eval_start=none,
            eval_shared=None,
            examples=np.pad(source.train.counts, (0, short)).astype(np.float32),
            unprivileged=np.pad(self._unprivileged[source.clients], (0, short)).astype(np.float32),
            valid_rows=None if source.valid is None else in_order,
            valid_start=None
            if source.valid is None
            else np.pad(source.valid, (0, short), "edge").astype(np.int32),
        )
        memory, excluded = (
            _memory(state, source.clients, shape.clients),
            np.zeros((shape.clients, shape.runs), np.int32),
        )
        data, local = replicate(
            (data, state._replace(memory=memory, excluded=excluded)), shape.devices
        )
        return self._advance(
            shape, Inputs(self._task, self._parts, data), block._replace(source=None), local
        )

    def settle(self, block: Block, before: State, after: State) -> State:
        """Return the values of clients to the host; this waits for the device."""
        assert block.source is not None
        clients = block.source.clients
        before.excluded[clients] += np.asarray(after.excluded)[: len(clients)]
        if isinstance(before.memory, HostMemories):
            before.memory.put(clients, after.memory)
        return after._replace(memory=before.memory, excluded=before.excluded)

    def evaluate(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Tables and summed losses by owner: the evaluated clients' training, validation and test
        rows, and the central test set.
        """
        shape, clients = self._shape, len(self._evaluated_clients)
        tables = np.zeros(
            (3 * clients + 1, shape.groups, shape.labels, shape.labels, shape.runs), np.int32
        )
        losses = np.zeros((3 * clients + 1, shape.runs), np.float32)

        def add(piece: Piece, counts: Counts) -> None:
            size = piece.clients.stop - piece.clients.start
            for total, part in zip((tables, losses), map(np.asarray, counts), strict=True):
                by_split = part[:-1].reshape(len(SPLITS), self._piece_clients, *part.shape[1:])[
                    :, :size
                ]
                total[:-1].reshape(len(SPLITS), clients, *total.shape[1:])[:, piece.clients] = (
                    by_split
                )
                total[-1] += part[-1]

        pending: list[tuple[Piece, Counts]] = []
        for piece in self._pieces():
            pending.append((piece, self._count_piece(piece, state)))
            if len(pending) > 1:  # read only when the next piece is under way
                add(*pending.pop(0))
        for piece, counts in pending:
            add(piece, counts)
        return tables, losses

    def _count_piece(self, piece: Piece, state: State) -> Counts:
        clients, room = self._evaluated_clients[piece.clients], self._piece_clients
        lists = [self._federation.split(split).only(clients) for split in SPLITS]
        short = room - len(clients)
        rows = np.concatenate([*(one.rows for one in lists), piece.central])
        counts = np.concatenate(
            [*(np.pad(one.counts, (0, short)) for one in lists), [len(piece.central)]]
        )
        padding = self._piece_rows - len(rows)
        none = np.zeros(1, np.int32)
        data = _host_data(
            **self._fill(self._empty_tables(self._piece_rows), rows)._asdict(),
            train_rows=none,
            train_start=none,
            eval_rows=np.pad(
                np.arange(len(rows), dtype=np.int32), (0, padding), constant_values=self._piece_rows
            ),
            eval_list=np.pad(
                np.repeat(np.arange(len(counts), dtype=np.int32), counts),
                (0, padding),
                constant_values=len(counts),
            ),
            eval_start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            eval_shared=None,
            examples=none,
            unprivileged=none,
        )
        # several devices compute the same
        shape = self._shape._replace(clients=room, lists=3 * room + 1, devices=1)
        local = state._replace(memory=_memory(state, clients, room), excluded=())
        data, local = replicate((data, jax.tree.map(jnp.asarray, local)), self._shape.devices)
        return _compiled_evaluation(shape, Inputs(self._task, self._parts, data), local)

    def _pieces(self) -> Iterator[Piece]:
        """As many clients at a time as there is room for, then the central test set."""
        ends = np.cumsum(self._rows_to_evaluate())
        start, done, nobody = 0, 0, np.zeros(0, np.int32)
        while start < len(ends):
            stop = min(
                int(np.searchsorted(ends, done + self._piece_rows, side="right")),
                start + self._piece_clients,
            )
            yield Piece(slice(start, stop), nobody)
            start, done = stop, int(ends[stop - 1])
        central = self._federation.central
        for at in range(0, len(central), self._piece_rows):
            yield Piece(slice(0, 0), central[at : at + self._piece_rows])

    def _rows_to_evaluate(self) -> np.ndarray:
        """Rows of each of the evaluated clients, in all splits."""
        clients = self._evaluated_clients
        return sum(
            (self._federation.split(split).counts[clients] for split in SPLITS),
            np.zeros(len(clients), np.int64),
        )

    def _piece_sizes(self, memory: int) -> tuple[int, int]:
        """Number of clients, each with this many bytes of memory, and number of rows in a piece of
        an evaluation.
        """
        shape = self._shape
        cells = 3 * shape.groups * shape.labels**2 * shape.runs
        counts = self._rows_to_evaluate()
        most = max(int(counts.max(initial=1)), int(PIECE_BYTES // row_bytes(self._federation)), 1)
        every = int(counts.sum()) + len(self._federation.central)
        rows = -(-min(most, every) // shape.eval_chunk) * shape.eval_chunk
        clients = min(LARGEST_BLOCK_CELLS // cells, MEMORY_BYTES // max(memory, 1))
        return int(np.clip(clients, 1, max(len(self._evaluated_clients), 1))), rows

    def _columns(self) -> Tables:
        return Tables(self._federation.x, self._federation.y, self._federation.group, self._weight)

    def _empty_tables(self, room: int) -> Tables:
        """Tables with room for this many rows, and a row of padding after them, whose features are
        those of the federation's first row.
        """

        def one(column: np.ndarray) -> np.ndarray:
            dtype = np.int32 if column.ndim == 1 and column.dtype.kind in "iu" else column.dtype
            return layout.zeros((room + 1, *column.shape[1:]), dtype)

        tables = jax.tree.map(one, self._columns())
        tables.x[-1] = self._federation.x[0]
        return tables

    def _fill(self, tables: Tables, rows: np.ndarray) -> Tables:
        """Copy these rows of the federation to the beginning of the tables."""

        for column, table in zip(self._columns(), tables, strict=True):
            if column is None or table is None:
                continue
            if table.dtype == column.dtype:
                # without a mode NumPy would copy twice
                np.take(column, rows, axis=0, out=table[: len(rows)], mode="clip")
            else:
                table[: len(rows)] = column[rows]
        return tables


def _host_data(**columns: Any) -> Data:
    """Data whose arrays are on the host: a program reads them from there, on a CPU
    without a copy.
    """
    return Data(**columns)


def _memory(state: State, clients: np.ndarray, room: int) -> Tree:
    return (
        state.memory.of(clients, room)
        if isinstance(state.memory, HostMemories)
        else trees.repeat(state.memory, room)
    )


def _bytes(memory: Tree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(memory))


@partial(jax.jit, static_argnames=("shape",))
def _compiled_evaluation(shape: Shape, inputs: Inputs, state: State) -> Counts:
    return evaluate(shape, inputs, state)

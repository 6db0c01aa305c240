"""The layout of data and state on the device: shapes, slots and lanes, several devices, aligned arrays."""

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from evenly.data.federation import Shard
from evenly.types import Array, Rule, Server, Tree, Work

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

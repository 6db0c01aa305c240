"""Several devices: every one runs the whole program on its share of the clients, and what they leave is added up.

Data and state are the same on all of them. A share is a part of the cohort's visits when clients train, and a part of the
chunks when rows are read; each ends in one sum over the devices. With one device nothing of this is in the program.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from evenly.simulate.layout import Shape
from evenly.types import Array, Tree

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

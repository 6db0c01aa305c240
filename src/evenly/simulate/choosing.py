"""Clients choose one of several models, before they train: the one that serves their own training rows best."""

import jax
import jax.numpy as jnp
from jax import lax

from evenly.data.federation import Shard
from evenly.parts.groups import chooser
from evenly.parts.ranking import Supernetwork
from evenly.simulate.layout import Data, Shape, plain, shard
from evenly.simulate.measuring import measured
from evenly.types import Array, Task, Tree

GIVEN = ("known", "rank-clustering")  # choices that are made before training, and not by clients
MOST_ROWS = 128  # that a client looks at to tell how sure a mixture of models is


def chosen(task: Task, shape: Shape, data: Data, models: Tree, who: Array, inference: str) -> Array:
    """The choice of each of these clients among one run's models [models, ...]; of equals the first. int32 [K]"""
    if inference == "lowest-loss":
        # Models lie where runs usually do. Read with the clients' rows end to end, in chunks.
        losses = measured(task, shape, data, models, who, frozenset({"loss"})).loss
        assert losses is not None
        return jnp.argmin(jnp.where(jnp.isnan(losses), jnp.inf, losses), axis=1).astype(jnp.int32)
    assert isinstance(task, Supernetwork)  # only orders of edges have masks to be mixed
    masks, choose = jax.vmap(task.masks)(models), chooser(inference)
    # One client after another: each mixes all masks into a network of its own.
    return lax.map(lambda k: choose(task, masks, first_rows(data, k)), who)


def first_rows(data: Data, client: Array) -> Shard:
    """A client's first training rows."""
    start, stop = data.train_start[client], data.train_start[client + 1]
    at = start + jnp.arange(MOST_ROWS)
    rows = data.train_rows[jnp.minimum(at, data.train_rows.shape[0] - 1)]
    return plain(shard(data, jnp.where(at < stop, rows, data.y.shape[0] - 1)))

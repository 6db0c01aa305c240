"""The federation as flat arrays on the device: every example once, clients as row numbers."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from evenly.federation import SPLITS, Federation
from evenly.simulate.layout import Data
from evenly.types import Prepare


def device_data(federation: Federation, weight: np.ndarray | None, eval_chunk: int) -> Data:
    """Move a federation to the device, with one row of padding at the end of every table."""
    rows = np.concatenate([*(federation.split(s).rows for s in SPLITS), federation.central])
    owner = np.concatenate([_owners(federation), np.full(len(federation.central), 3 * federation.clients)])
    short = -len(rows) % eval_chunk
    return Data(
        x=jnp.asarray(np.concatenate([federation.x, np.zeros_like(federation.x[:1])])),
        y=jnp.asarray(np.append(federation.y, 0).astype(np.int32)),
        group=jnp.asarray(np.append(federation.group, 0).astype(np.int32)),
        weight=None if weight is None else jnp.asarray(np.concatenate([weight, np.zeros_like(weight[:1])])),
        # Padded so that partitions of the same rows, whose cuts differ by a few, share a compiled program.
        train_rows=jnp.asarray(np.pad(federation.train.rows, (0, -len(federation.train.rows) % eval_chunk))),
        train_start=jnp.asarray(federation.train.offsets.astype(np.int32)),
        eval_rows=jnp.asarray(np.append(rows, np.full(short, len(federation.y))).astype(np.int32)),
        # Padding is owned by nobody: an index past the last owner, which scatters drop.
        eval_owner=jnp.asarray(np.append(owner, np.full(short, 3 * federation.clients + 1)).astype(np.int32)),
        eval_start=jnp.asarray(np.searchsorted(owner, np.arange(3 * federation.clients + 2)).astype(np.int32)),
        examples=jnp.asarray(federation.train.counts.astype(np.float32)),
        unprivileged=jnp.asarray(federation.census().unprivileged_rows.astype(np.float32)),
    )


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


def _owners(federation: Federation) -> np.ndarray:
    clients = np.arange(federation.clients)
    return np.concatenate([np.repeat(i * federation.clients + clients, federation.split(s).counts) for i, s in enumerate(SPLITS)])

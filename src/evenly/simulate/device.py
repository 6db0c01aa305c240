"""The federation as flat arrays on the device: every example once, clients as row numbers."""

import jax.numpy as jnp
import numpy as np

from evenly.federation import SPLITS, Federation
from evenly.simulate.layout import Data


def device_data(federation: Federation, eval_chunk: int) -> Data:
    """Move a federation to the device, with one row of padding at the end of every table."""
    rows = np.concatenate([*(federation.split(s).rows for s in SPLITS), federation.central])
    owner = np.concatenate([_owners(federation), np.full(len(federation.central), 3 * federation.clients)])
    short = -len(rows) % eval_chunk
    return Data(
        x=jnp.asarray(np.concatenate([federation.x, np.zeros_like(federation.x[:1])])),
        y=jnp.asarray(np.append(federation.y, 0).astype(np.int32)),
        group=jnp.asarray(np.append(federation.group, 0).astype(np.int32)),
        weight=None if federation.weight is None else jnp.asarray(np.append(federation.weight, 0).astype(np.float32)),
        train_rows=jnp.asarray(federation.train.rows),
        train_start=jnp.asarray(federation.train.offsets.astype(np.int32)),
        eval_rows=jnp.asarray(np.append(rows, np.full(short, len(federation.y))).astype(np.int32)),
        # Padding is owned by nobody: an index past the last owner, which scatters drop.
        eval_owner=jnp.asarray(np.append(owner, np.full(short, 3 * federation.clients + 1)).astype(np.int32)),
        eval_start=jnp.asarray(np.searchsorted(owner, np.arange(3 * federation.clients + 2)).astype(np.int32)),
        examples=jnp.asarray(federation.train.counts.astype(np.float32)),
    )


def _owners(federation: Federation) -> np.ndarray:
    clients = np.arange(federation.clients)
    return np.concatenate([np.repeat(i * federation.clients + clients, federation.split(s).counts) for i, s in enumerate(SPLITS)])

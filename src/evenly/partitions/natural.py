"""Clients that the data name themselves: sensors, writers, roles, users."""

from collections.abc import Sequence

import numpy as np

from evenly.federation import Federation
from evenly.partitions.rows import Rows, federate
from evenly.randomness import generator
from evenly.splits import Ragged, dealt_rows, split_rows


def natural(
    rows: Rows,
    owner: np.ndarray,
    *,
    names: Sequence[str],
    shares: tuple[float, float] = (0.8, 0.1),
    shuffle: bool = True,
    split_seed: int = 0,
) -> Federation:
    """The federation in which row i belongs to client `names[owner[i]]`, cut into training, validation and test rows.

    Without `shuffle` a client's first rows train and its last ones test: for text, where neighbouring rows overlap.
    """
    if len(owner) != len(rows.y):
        raise ValueError(f"There must be one owner per row, got {len(owner)} for {len(rows.y)} rows.")
    parts = split_rows(owner, len(names), shares=shares, seed=split_seed)
    return federate(rows, parts if shuffle else _in_order(parts), names=names)


def _in_order(parts: tuple[Ragged, Ragged, Ragged]) -> tuple[Ragged, Ragged, Ragged]:
    """The same numbers of rows per client and part, but the first rows train, the next validate and the last test."""
    owner = np.concatenate([np.repeat(np.arange(len(part.counts)), part.counts) for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    train, valid, test = parts
    return dealt_rows(rows[np.lexsort((rows, owner))], (train.counts, valid.counts, test.counts))


def choose_clients(
    sizes: np.ndarray, *, clients: int = 0, min_samples: int = 1, max_samples: int = 0, seed: int = 0, what: str = "data"
) -> np.ndarray:
    """Which clients to keep: `clients` (0: all) drawn by `seed` of those with enough rows and, unless 0, not too many. In order."""
    fits = np.flatnonzero((sizes >= max(1, min_samples)) & ((sizes <= max_samples) | (max_samples == 0)))
    if len(fits) < max(1, clients):
        bound = f" and at most {max_samples}" if max_samples else ""
        raise ValueError(
            f"{what}: {clients or 'some'} clients with at least {min_samples}{bound} samples were asked for, but only {len(fits)} of "
            f"{len(sizes)} have so many. Ask for fewer clients or other limits."
        )
    return np.sort(generator(seed, "clients").permutation(fits)[:clients]) if clients else fits

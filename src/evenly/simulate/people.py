"""Clients that hold rows of several groups of people: each of its groups votes as a client of its own (E2FL on Adult)."""

from collections.abc import Sequence

import jax
import numpy as np

from evenly.data.federation import Federation
from evenly.data.splits import SPLITS, Ragged
from evenly.metrics.tables import examples
from evenly.parts.sampling import Full
from evenly.records import replace
from evenly.types import NO_CHOICE, Algorithm, Trace


def by_group(federation: Federation, algorithms: Sequence[Algorithm]) -> tuple[Federation, np.ndarray]:
    """One client for each client and group of people among its training rows; and whose each is.

    Validation and test rows of people of whom a client has no training rows stay with its first group.
    """
    for algorithm in algorithms:
        if not isinstance(algorithm.select, Full):
            raise ValueError(f"{algorithm.label}: with people = true every client takes part in every round; add +full.")
    if len(federation.groups) < 2:
        raise ValueError(f"{algorithms[0].label}: the data have no groups of people. Name a sensitive column, or leave people out.")
    present = federation.census().cells.sum(2) > 0  # [clients, groups]
    owner, group = np.nonzero(present)
    parts = {}
    for split in SPLITS:
        rows, offsets = federation.split(split)
        of_client = np.repeat(np.arange(federation.clients), np.diff(offsets))
        of_group = federation.group[rows]
        of_group = np.where(present[of_client, of_group], of_group, present.argmax(1)[of_client])
        parts[split] = Ragged.from_lists([rows[(of_client == k) & (of_group == g)] for k, g in zip(owner, group, strict=True)])
    names = tuple(f"{federation.names[k]}, {federation.groups[g]}" for k, g in zip(owner, group, strict=True))
    return replace(federation, **parts, names=names, client_group=group.astype(np.int32)), owner


def joined(trace: Trace, federation: Federation, owner: np.ndarray) -> Trace:
    """The trace with each client's groups put together again; everybody is served the model of all."""
    clients = int(owner.max()) + 1
    first = np.searchsorted(owner, np.arange(clients))
    counts = examples(trace.tables)
    total = np.add.reduceat(counts, first, axis=2)
    losses = np.add.reduceat(np.where(counts > 0, np.nan_to_num(trace.losses) * counts, 0.0), first, axis=2)
    each = len(owner) / clients  # orders that a client sends, on average
    return trace._replace(
        tables=np.add.reduceat(trace.tables, first, axis=2),
        losses=np.divide(losses, total, out=np.full(losses.shape, np.nan), where=total > 0).astype(np.float32),
        cohort=owner[trace.cohort].astype(np.int32),
        excluded=np.add.reduceat(trace.excluded, first),
        upload=trace.upload * each,
        model=jax.tree.map(lambda leaf: leaf[0], trace.model),
        choice=NO_CHOICE,
    )

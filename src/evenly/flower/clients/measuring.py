"""What a client reveals, as numbers: signals about the model it received, and counts for the report."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from evenly.federation import SPLITS
from evenly.flower import wire
from evenly.flower.clients.data import ClientData, Rows

Metrics = dict[str, Any]  # whole numbers, floats and lists of them: what a MetricRecord may hold


class Seen(NamedTuple):
    """What a model makes of some rows."""

    losses: np.ndarray  # [n]
    outcome: np.ndarray  # [n] label numbers


Look = Callable[[Rows], Seen]


def census(client: ClientData) -> Metrics:
    """What is asked once before the first round."""
    found: Metrics = {wire.EXAMPLES: client.train.size}
    wire.put(found, wire.CELLS, client.cells)
    if client.number is not None:
        found[wire.CLIENT] = client.number
    if client.client_group is not None:
        found[wire.CLIENT_GROUP] = client.client_group
    return found


def about(client: ClientData) -> dict[str, Any]:
    """What the report should call this client, the labels and the groups: the census's second record."""
    return {
        "name": client.name,
        "labels": list(client.labels),
        "groups": list(client.groups),
        "unprivileged": list(client.unprivileged),
        "favourable": client.favourable,
    }


def signals(client: ClientData, needs: frozenset[str], look: Look, *, penalty: float = 0.0, reduction: str = "mean") -> Metrics:
    """What these needs ask for, of the model that was received, on all training rows. Rows count equally here, always."""
    found: Metrics = {wire.EXAMPLES: client.train.size}
    if "unprivileged" in needs:
        found[wire.UNPRIVILEGED] = int(client.cells[list(client.unprivileged)].sum())
    if not needs & {"loss", "table", "cell_loss"}:
        return found
    seen = look(client.train)
    if "loss" in needs:
        total = float(np.sum(seen.losses, dtype=np.float64))
        found[wire.LOSS] = (total / client.train.size if reduction == "mean" else total) + penalty
    if "table" in needs:
        wire.put(found, wire.TABLE, table(client, client.train, seen.outcome))
    if "cell_loss" in needs:
        cells = np.zeros((len(client.groups), len(client.labels)))
        np.add.at(cells, (client.train.group, client.train.y), seen.losses)
        wire.put(found, wire.CELL_LOSS, cells)
    return found


def evaluated(client: ClientData, look: Look) -> Metrics:
    """Counts and mean losses on test rows, and under train- and valid- on the others. Where there are no rows there is no loss."""
    found: Metrics = {}
    for split in SPLITS:
        own, prefix = client.splits[split], "" if split == "test" else f"{split}-"
        seen = look(own) if own.size else Seen(np.zeros(0), np.zeros(0, np.int64))
        found[prefix + wire.EXAMPLES] = own.size
        wire.put(found, prefix + wire.TABLE, table(client, own, seen.outcome))
        if own.size:
            found[prefix + wire.LOSS] = float(np.mean(seen.losses, dtype=np.float64))
    return found


def table(client: ClientData, rows: Rows, outcome: np.ndarray) -> np.ndarray:
    """How many rows there are of each group, label and outcome. [groups, labels, labels]"""
    counts = np.zeros((len(client.groups), len(client.labels), len(client.labels)), np.int64)
    np.add.at(counts, (rows.group, rows.y, outcome), 1)
    return counts

"""What a client reveals, as numbers: signals about the model it received, and counts for the report."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from evenly.data.splits import SPLITS
from evenly.flower import wire
from evenly.flower.clients.data import ClientData, Rows

Metrics = dict[str, Any]  # whole numbers, floats and lists of them: what a MetricRecord may hold


class Seen(NamedTuple):
    """What a model makes of some rows."""

    losses: np.ndarray  # [n]
    outcome: np.ndarray  # [n] label numbers


Look = Callable[[Rows], Seen]
LOOKS = frozenset({"loss", "table", "cell_loss"})  # needs for which a model is looked at


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
    return ({"name": client.name} if client.name else {}) | {
        "labels": list(client.labels),
        "groups": list(client.groups),
        "unprivileged": list(client.unprivileged),
        "favourable": client.favourable,
    }


def signals(client: ClientData, needs: frozenset[str], look: Look, *, penalty: float = 0.0, reduction: str = "mean") -> Metrics:
    """What these needs ask for, of the model that was received, on all training rows; or on validation rows, where the need says so.
    Rows count equally here, always."""
    rows = client.train
    found: Metrics = {wire.EXAMPLES: rows.size}
    if "unprivileged" in needs:
        found[wire.UNPRIVILEGED] = int(np.isin(rows.group, client.unprivileged).sum())
    if "valid_table" in needs:
        wire.put(found, wire.VALID_TABLE, outcomes(client, client.valid, look))
    if needs & LOOKS:
        found |= looked(look(rows), rows.y, rows.group, needs, shape=client.shape, penalty=penalty, reduction=reduction)
    return found


def looked(
    seen: Seen,
    y: np.ndarray,
    group: np.ndarray,
    needs: frozenset[str],
    *,
    shape: tuple[int, int],
    penalty: float = 0.0,
    reduction: str = "mean",
) -> Metrics:
    """The signals that take a look at every row; `shape` is how many groups and labels there are."""
    found: Metrics = {}
    if "loss" in needs:
        total = float(np.sum(seen.losses, dtype=np.float64))
        found[wire.LOSS] = (total / max(len(y), 1) if reduction == "mean" else total) + penalty
    if "table" in needs:
        wire.put(found, wire.TABLE, table(y, group, seen.outcome, shape))
    if "cell_loss" in needs:
        cells = np.zeros(shape)
        np.add.at(cells, (group, y), seen.losses)
        wire.put(found, wire.CELL_LOSS, cells)
    return found


def evaluated(client: ClientData, look: Look) -> Metrics:
    """Counts and mean losses on test rows, and under train- and valid- on the others. Where there are no rows there is no loss."""
    found: Metrics = {}
    for split in SPLITS:
        own, prefix = client.splits[split], "" if split == "test" else f"{split}-"
        seen = _seen(own, look)
        found[prefix + wire.EXAMPLES] = own.size
        wire.put(found, prefix + wire.TABLE, table(own.y, own.group, seen.outcome, client.shape))
        if own.size:
            found[prefix + wire.LOSS] = float(np.mean(seen.losses, dtype=np.float64))
    return found


def outcomes(client: ClientData, own: Rows, look: Look) -> np.ndarray:
    """What a model makes of some of a client's rows, as counts; there may be none. [groups, labels, labels]"""
    return table(own.y, own.group, _seen(own, look).outcome, client.shape)


def _seen(own: Rows, look: Look) -> Seen:
    return look(own) if own.size else Seen(np.zeros(0), np.zeros(0, np.int64))


def table(y: np.ndarray, group: np.ndarray, outcome: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """How many rows there are of each group, label and outcome. [groups, labels, labels]"""
    counts = np.zeros((*shape, shape[1]), np.int64)
    np.add.at(counts, (group, y, outcome), 1)
    return counts

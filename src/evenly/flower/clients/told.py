"""What a server tells a client in a round, read from the message's config."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from evenly.algorithms import algorithm
from evenly.flower import wire
from evenly.flower.clients.data import ClientData, Rows
from evenly.types import Algorithm


class Told(NamedTuple):
    """One round, as one client knows it."""

    algorithm: Algorithm
    server_round: int
    client: int
    batch_seed: int
    model_seed: int
    group: int | None  # the client's model, where the server knows or drew it
    row_weights: np.ndarray | None  # [groups, labels]
    coefficient: np.ndarray | None  # a number, or one for each of several models; None: the server weighs what it is sent


def told(config: Mapping[str, Any]) -> Told:
    """The round that a config describes."""
    if wire.METHOD not in config:
        raise ValueError(
            f"This client trains as the server's method asks, but the message's config has no {wire.METHOD!r}. "
            "Use evenly.flower.strategy on the server, or train by hand."
        )
    return Told(
        algorithm=_algorithm(str(config[wire.METHOD])),
        server_round=int(config.get(wire.ROUND, 0)),
        client=int(config.get(wire.CLIENT, 0)),
        batch_seed=int(config.get(wire.BATCH_SEED, 0)),
        model_seed=int(config.get(wire.MODEL_SEED, 0)),
        group=int(config[wire.GROUP]) if wire.GROUP in config else None,
        row_weights=wire.get(config, wire.ROW_WEIGHTS),
        coefficient=wire.get(config, wire.COEFFICIENT),
    )


@lru_cache(maxsize=64)
def _algorithm(notation: str) -> Algorithm:
    return algorithm(notation)


def weighted(now: Told, client: ClientData) -> Rows:
    """The training rows with how much each counts: by the data, by the client's preparation and by what the server says."""
    rows, prepare = client.train, now.algorithm.prepare
    weight = rows.weight
    if prepare is not None:
        weight = weight * prepare.weights(rows.y, rows.group).astype(np.float32)
    if now.row_weights is not None:
        weight = weight * now.row_weights[rows.group, rows.y].astype(np.float32)
    return rows._replace(weight=weight)

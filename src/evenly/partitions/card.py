"""What a partition looks like: how large clients are and what they hold."""

from typing import NamedTuple

import numpy as np

from evenly.federation import SPLITS, Federation


class ClientCard(NamedTuple):
    """One client of a federation."""

    name: str
    train: int
    valid: int
    test: int
    share: float  # of all clients' rows
    labels: tuple[float, ...]  # share of each label among its rows, in the federation's order


def describe(federation: Federation) -> tuple[ClientCard, ...]:
    """Sizes and label shares of every client, all its rows together."""
    sizes = np.stack([federation.split(name).counts for name in SPLITS], axis=1)  # [clients, splits]
    totals = sizes.sum(1)
    counts = np.zeros((federation.clients, len(federation.labels)))
    for name in SPLITS:
        part = federation.split(name)
        np.add.at(counts, (np.repeat(np.arange(federation.clients), part.counts), federation.y[part.rows]), 1)
    return tuple(
        ClientCard(name, *map(int, sizes[k]), share=float(totals[k] / totals.sum()), labels=tuple((counts[k] / totals[k]).tolist()))
        for k, name in enumerate(federation.names)
    )

"""A fixed number of clients, all equally likely."""

from typing import Any

import numpy as np

from evenly.data.federation import Census
from evenly.records import record, require, static


@record
class Uniform:
    """Clients drawn without replacement, all with the same probability."""

    clients: int = static(default=10, doc="clients in a round")
    by_size: bool = static(default=False)

    def __post_init__(self) -> None:
        require_count(self.clients)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def slots(self, census: Census) -> int:
        return at_most(self.clients, census)

    def init(self, census: Census) -> tuple[int, int]:
        return len(census.examples), self.slots(census)

    def __call__(self, state: tuple[int, int], generator: np.random.Generator) -> tuple[np.ndarray, Any]:
        registered, slots = state
        return generator.choice(registered, slots, replace=False), state


def require_count(clients: object) -> None:
    require(isinstance(clients, int) and clients >= 1, f"clients must be a whole number of at least 1, got {clients!r}.")


def at_most(clients: int, census: Census) -> int:
    """A federation with fewer clients than asked for takes part as a whole."""
    return min(clients, len(census.examples))

"""A fixed number of clients, drawn in proportion to their training rows."""

from typing import Any, NamedTuple

import numpy as np

from evenly.records import record, static
from evenly.sampling.uniform import at_most, require_count
from evenly.types import Census


class Odds(NamedTuple):
    probability: np.ndarray
    slots: int


@record
class Weighted:
    """Clients drawn with probability p_k = n_k / n, as q-FFL and p-FFL do.

    Without replacement, clients are drawn one after another and the rest renormalised, as the authors' code does; with
    replacement the plain mean of the updates is unbiased, and a client may take two slots.
    """

    clients: int = static(default=10, doc="clients in a round")
    replace: bool = static(default=False, doc="whether a client can be drawn twice in a round")
    by_size: bool = static(default=True)

    def __post_init__(self) -> None:
        require_count(self.clients)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"examples"})

    def slots(self, census: Census) -> int:
        return self.clients if self.replace else at_most(self.clients, census)

    def init(self, census: Census) -> Odds:
        return Odds(census.examples / census.examples.sum(), self.slots(census))

    def __call__(self, state: Odds, generator: np.random.Generator) -> tuple[np.ndarray, Any]:
        return generator.choice(len(state.probability), state.slots, replace=self.replace, p=state.probability), state

"""A fixed number of clients, drawn in proportion to their training rows."""

from typing import Any, NamedTuple

import numpy as np

from evenly.data.federation import Census
from evenly.records import record, require, static
from evenly.sampling.uniform import at_most, require_count


class Odds(NamedTuple):
    """All training rows in a row, client by client: who owns a row drawn at random is a client drawn by size."""

    rows: np.ndarray  # [clients]
    ends: np.ndarray  # float [clients] where the rows of each end
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
        some, slots = int(np.count_nonzero(census.examples)), self.slots(census)
        require(
            some >= (1 if self.replace else slots),
            f"{slots} clients a round cannot be drawn by size: only {some} of {len(census.examples)} have training rows. Sample fewer.",
        )
        return Odds(census.examples, np.cumsum(census.examples, dtype=float), slots)

    def __call__(self, state: Odds, generator: np.random.Generator) -> tuple[np.ndarray, Any]:
        if self.replace:
            return _owners(state, generator.random(state.slots) * state.ends[-1]), state
        return _different(state, generator), state


def _different(odds: Odds, generator: np.random.Generator) -> np.ndarray:
    """Different clients, in the order in which they are drawn; in the place of one drawn twice, another of those left is drawn.

    These are the draws of NumPy's `choice`, which would go through all clients in every round.
    """
    found: list[int] = []
    while len(found) < odds.slots:
        gone = np.sort(np.array(found, np.int64))
        # Their rows are cut out: a place among those left lies further on by all that was cut out before it.
        cut = np.concatenate([[0], np.cumsum(odds.rows[gone])])
        place = generator.random(odds.slots - len(found)) * (odds.ends[-1] - cut[-1])
        place += cut[np.searchsorted(odds.ends[gone] - cut[1:], place, side="right")]
        # Each once, in order; a place rounded up to where a cut begins is drawn again.
        found = list(dict.fromkeys([*found, *_owners(odds, place).tolist()]))
    return np.array(found, np.int64)


def _owners(odds: Odds, place: np.ndarray) -> np.ndarray:
    """Whose row lies at each place; one rounded up to the very end is the last row's."""
    return np.searchsorted(odds.ends, np.minimum(place, np.nextafter(odds.ends[-1], 0)), side="right")

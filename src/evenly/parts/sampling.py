"""Samplings: which clients take part in a round."""

from typing import Any, NamedTuple

import numpy as np

from evenly.data.federation import Census, sides
from evenly.records import record, require, static
from evenly.types import Select

# A share of the clients, all equally likely.


@record
class Fraction:
    """max(1, floor(share * clients)) of them, drawn without replacement (Flower's rounding)."""

    share: float = static(default=0.1, above=0, most=1, doc="share of the clients in a round")
    by_size: bool = static(default=False)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def slots(self, census: Census) -> int:
        # Rounded first: 0.7 * 10 is 6.999... in binary.
        return max(1, int(np.floor(round(self.share * len(census.examples), 9))))

    def init(self, census: Census) -> tuple[int, int]:
        return len(census.examples), self.slots(census)

    def __call__(self, state: tuple[int, int], generator: np.random.Generator) -> tuple[np.ndarray, Any]:
        registered, slots = state
        return generator.choice(registered, slots, replace=False), state


# Everyone takes part in every round.


@record
class Full:
    """Every client, every round."""

    by_size: bool = static(default=False)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def slots(self, census: Census) -> int:
        return len(census.examples)

    def init(self, census: Census) -> np.ndarray:
        return np.arange(len(census.examples))

    def __call__(self, state: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, Any]:
        return state, state


# Clients that know the side that was seen less, as often as not: parity sampling.
#
# Brocchi, Master's thesis, University of Genoa, 2023, as Gonfiantini (Master's thesis, University of Genoa, 2026) describes it.


class Registry(NamedTuple):
    """What the server has seen of the clients."""

    rows: np.ndarray  # [2, clients] training rows of unprivileged people, and of all others
    observed: np.ndarray  # bool [clients]
    totals: np.ndarray  # [2] rows of each side that were seen
    slots: int


@record
class Parity:
    """max(1, floor(share * clients)) of them: with probability p those richest in the side of people that was seen less.

    The server keeps a register of the clients that it chose, empty at first, and sums their unprivileged rows and all others.
    If the sums are equal, as in the first round, or with probability 1 - p, clients are drawn at random. Otherwise those with
    the most rows of the smaller sum are taken; clients not in the register come after them; ties are broken at random.
    Each client counts once in the sums, so that they settle at those of the whole federation and the choice becomes fixed;
    with `accumulate` a client counts in every round in which it is chosen, and the choice follows what was trained on.
    """

    p: float = static(default=0.5, least=0, most=1, doc="probability of choosing by parity in a round; 0 is random sampling")
    share: float = static(default=0.7, above=0, most=1, doc="share of the clients in a round")
    accumulate: bool = static(default=False, doc="whether the sums count a client anew in every round that it is chosen")
    prefilled: bool = static(default=False, doc="whether the register holds every client from the start")
    by_size: bool = static(default=False)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"examples", "unprivileged"})

    def slots(self, census: Census) -> int:
        return Fraction(share=self.share).slots(census)

    def init(self, census: Census) -> Registry:
        unprivileged, privileged = sides(census, "Parity sampling")
        rows = np.stack([census.cells[:, own].sum((1, 2)) for own in (unprivileged, privileged)])
        observed = np.full(len(census.examples), self.prefilled)
        return Registry(rows, observed, rows[:, observed].sum(1), self.slots(census))

    def __call__(self, state: Registry, generator: np.random.Generator) -> tuple[np.ndarray, Registry]:
        clients = len(state.observed)
        cohort = generator.choice(clients, state.slots, replace=False)  # drawn first: with p = 0 the cohorts are those of `fraction`
        unprivileged, privileged = state.totals
        if generator.random() < self.p and unprivileged != privileged:
            score = np.where(state.observed, state.rows[1 if unprivileged > privileged else 0], -1)
            cohort = _highest(score, generator.permutation(clients), state.slots)
        observed = state.observed.copy()
        observed[cohort] = True
        counted = cohort if self.accumulate else cohort[~state.observed[cohort]]
        return cohort, state._replace(observed=observed, totals=state.totals + state.rows[:, counted].sum(1))


def _highest(score: np.ndarray, lots: np.ndarray, slots: int) -> np.ndarray:
    """Who has the highest scores, from the highest; of equal ones, who drew the lower lot. Only those in question are sorted."""
    least = -np.partition(-score, slots - 1)[slots - 1]
    above, equal = np.flatnonzero(score > least), np.flatnonzero(score == least)
    above = above[np.lexsort((lots[above], -score[above]))]
    if len(equal) > (rest := slots - len(above)):
        equal = equal[np.argpartition(lots[equal], rest - 1)[:rest]]
    return np.concatenate([above, equal[np.argsort(lots[equal])]])


# A fixed number of clients, all equally likely.


@record
class Uniform:
    """Clients drawn without replacement, all with the same probability."""

    clients: int = static(default=10, least=1, doc="clients in a round")
    by_size: bool = static(default=False)

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


def at_most(clients: int, census: Census) -> int:
    """A federation with fewer clients than asked for takes part as a whole."""
    return min(clients, len(census.examples))


# A fixed number of clients, drawn in proportion to their training rows.


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

    clients: int = static(default=10, least=1, doc="clients in a round")
    replace: bool = static(default=False, doc="whether a client can be drawn twice in a round")
    by_size: bool = static(default=True)

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


__all__ = ["SAMPLINGS", "Fraction", "Full", "Parity", "Uniform", "Weighted"]

SAMPLINGS: dict[str, type[Select]] = {
    "full": Full,
    "uniform": Uniform,
    "weighted": Weighted,
    "fraction": Fraction,
    "parity": Parity,
}

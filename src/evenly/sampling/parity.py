"""Clients that know the side that was seen less, as often as not: parity sampling.

Brocchi, Master's thesis, University of Genoa, 2023, as Gonfiantini (Master's thesis, University of Genoa, 2026) describes it.
"""

from typing import NamedTuple

import numpy as np

from evenly.data.federation import Census, sides
from evenly.records import record, require, static
from evenly.sampling.fraction import Fraction


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

    p: float = static(default=0.5, doc="probability of choosing by parity in a round; 0 is random sampling")
    share: float = static(default=0.7, doc="share of the clients in a round, above 0 and at most 1")
    accumulate: bool = static(default=False, doc="whether the sums count a client anew in every round that it is chosen")
    prefilled: bool = static(default=False, doc="whether the register holds every client from the start")
    by_size: bool = static(default=False)

    def __post_init__(self) -> None:
        require(isinstance(self.p, int | float) and 0 <= self.p <= 1, f"p must be from 0 to 1, got {self.p!r}.")
        require(0 < self.share <= 1, f"share must be above 0 and at most 1, got {self.share}.")
        for name in ("accumulate", "prefilled"):
            require(isinstance(getattr(self, name), bool), f"{name} must be true or false, got {getattr(self, name)!r}.")

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

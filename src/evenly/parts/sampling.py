"""Samplings: which clients take part in a round."""

from typing import Any, NamedTuple

import numpy as np

from evenly.data.federation import Census
from evenly.data.sides import sides
from evenly.randomness import Draws
from evenly.records import record, require, static
from evenly.types import Seeds, Select

# A share of the clients, all equally likely.


@record
class Fraction:
    """Sample a share of the clients, all with the same probability, without replacement.

    The number of clients is max(1, floor(share * clients)), rounded as in Flower.

    Args:
        share: Share of the clients in a round, above 0 and at most 1.

    Raises:
        ValueError: If the share is not legal.

    Example:
        >>> import evenly
        >>> census = evenly.synthetic(clients=20).census()
        >>> sampling = Fraction(share=0.2)
        >>> cohort, _ = sampling(sampling.init(census), np.random.default_rng(0))
        >>> len(cohort)
        4
    """

    share: float = static(default=0.1, above=0, most=1, doc="share of the clients per round")
    by_size: bool = static(default=False)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def slots(self, census: Census) -> int:
        # Rounded first: 0.7 * 10 is 6.999... in binary.
        return max(1, int(np.floor(round(self.share * len(census.examples), 9))))

    def init(self, census: Census) -> tuple[int, int]:
        return len(census.examples), self.slots(census)

    def __call__(
        self, state: tuple[int, int], generator: np.random.Generator
    ) -> tuple[np.ndarray, Any]:
        registered, slots = state
        return generator.choice(registered, slots, replace=False), state


# Everyone takes part in every round.


@record
class Full:
    """All clients take part in every round.

    Example:
        >>> import evenly
        >>> census = evenly.synthetic(clients=5).census()
        >>> cohort, _ = Full()(Full().init(census), np.random.default_rng(0))
        >>> cohort.tolist()
        [0, 1, 2, 3, 4]
    """

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


# Parity sampling: prefer clients with many rows of the people that earlier rounds covered less.
#
# Brocchi, Master's thesis, University of Genoa, 2023, as Gonfiantini (Master's thesis, University
# of Genoa, 2026) describes it.


class Registry(NamedTuple):
    """Clients that the server has observed, and their rows of unprivileged and of all
    other people.
    """

    rows: np.ndarray  # [2, clients] training rows of unprivileged people, and of all others
    observed: np.ndarray  # bool [clients]
    totals: np.ndarray  # [2] sums of the rows of each side over the observed clients
    slots: int


@record
class Parity:
    """Sample a share of the clients and, with probability `p`, prefer those with the most rows of
    the people covered less so far.

    The server keeps a register of the clients that it has sampled, and sums their rows of
    unprivileged people and of all others. If the sums are equal, as in the first round, or with
    probability 1 - p, clients are sampled at random. Otherwise the server takes the clients with
    the most rows of the side whose sum is smaller, then clients that are not in the register. Ties
    are broken at random. Each client counts once in the sums, so that they converge to those of the
    whole federation and the cohort becomes fixed. With `accumulate`, a client counts in every round
    in which it is sampled, and cohorts follow the rows that were trained on.

    Args:
        p: Probability of sampling by parity in a round; 0 is random sampling.
        share: Share of the clients in a round, above 0 and at most 1; rounded as in `Fraction`.
        accumulate: Whether the sums count a client again in every round in which it is sampled.
        prefilled: Whether the register holds all clients from the start.

    Raises:
        ValueError: If a setting is not legal, or the federation has no unprivileged or no
            privileged rows.

    Example:
        The server knows that client 1 has the most rows of unprivileged people, and that these have
        fewer rows in all:

        >>> cells = np.array([[[0, 1], [9, 9]], [[4, 5], [0, 1]], [[1, 1], [5, 5]]])
        >>> census = Census(examples=cells.sum((1, 2)), cells=cells)
        >>> sampling = Parity(p=1, share=0.34, prefilled=True)
        >>> cohort, _ = sampling(sampling.init(census), np.random.default_rng(0))
        >>> cohort.tolist()
        [1]
    """

    p: float = static(
        default=0.5,
        least=0,
        most=1,
        doc="probability of sampling by parity in a round; 0 samples at random",
    )
    share: float = static(default=0.7, above=0, most=1, doc="share of the clients per round")
    accumulate: bool = static(
        default=False, doc="whether a client counts again in every round in which it is sampled"
    )
    prefilled: bool = static(
        default=False, doc="whether the register contains all clients from the start"
    )
    by_size: bool = static(default=False)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"examples", "unprivileged"})

    def slots(self, census: Census) -> int:
        return Fraction(share=self.share).slots(census)

    def init(self, census: Census) -> Registry:
        unprivileged, privileged = sides(census, "Parity sampling")
        rows = np.stack([census.cells[:, side].sum((1, 2)) for side in (unprivileged, privileged)])
        observed = np.full(len(census.examples), self.prefilled)
        return Registry(rows, observed, rows[:, observed].sum(1), self.slots(census))

    def __call__(
        self, state: Registry, generator: np.random.Generator
    ) -> tuple[np.ndarray, Registry]:
        clients = len(state.observed)
        # drawn first, so that with p = 0 cohorts equal those of `fraction`
        cohort = generator.choice(clients, state.slots, replace=False)
        unprivileged, privileged = state.totals
        if generator.random() < self.p and unprivileged != privileged:
            score = np.where(state.observed, state.rows[1 if unprivileged > privileged else 0], -1)
            cohort = _highest(score, generator.permutation(clients), state.slots)
        observed = state.observed.copy()
        observed[cohort] = True
        counted = cohort if self.accumulate else cohort[~state.observed[cohort]]
        return cohort, state._replace(
            observed=observed, totals=state.totals + state.rows[:, counted].sum(1)
        )


def _highest(score: np.ndarray, lots: np.ndarray, slots: int) -> np.ndarray:
    """Clients with the highest scores, in descending order; ties are ordered by lot. Only the
    candidates are sorted.
    """
    least = -np.partition(-score, slots - 1)[slots - 1]
    above, equal = np.flatnonzero(score > least), np.flatnonzero(score == least)
    above = above[np.lexsort((lots[above], -score[above]))]
    if len(equal) > (rest := slots - len(above)):
        equal = equal[np.argpartition(lots[equal], rest - 1)[:rest]]
    return np.concatenate([above, equal[np.argsort(lots[equal])]])


# Each client on its own.


@record
class Poisson:
    """Sample each client on its own with the same probability, so that the number of clients in a
    round varies.

    Whether one client takes part does not depend on the others, which makes it the sampling that
    differential privacy gains most from. A round in which nobody takes part happens. A cohort has
    room for more clients than practically ever take part; should a draw exceed it, clients of that
    draw are left out at random.

    Args:
        rate: Probability of each client to take part in a round, above 0 and at most 1.

    Raises:
        ValueError: If the rate is not legal.

    Example:
        >>> import evenly
        >>> census = evenly.synthetic(clients=200).census()
        >>> sampling = Poisson(rate=0.1)
        >>> state, draws = sampling.init(census), np.random.default_rng(0)
        >>> [len(sampling(state, draws)[0]) for _ in range(4)]
        [21, 21, 12, 16]
    """

    rate: float = static(
        default=0.1, above=0, most=1, doc="probability of each client to take part in a round"
    )
    by_size: bool = static(default=False)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def slots(self, census: Census) -> int:
        """Room for the largest cohort: a draw exceeds it with a probability below 1e-12."""
        return poisson_slots(len(census.examples), self.rate)

    def init(self, census: Census) -> tuple[int, int]:
        return len(census.examples), self.slots(census)

    def __call__(
        self, state: tuple[int, int], generator: np.random.Generator
    ) -> tuple[np.ndarray, Any]:
        registered, slots = state
        drawn = np.flatnonzero(generator.random(registered) < self.rate)
        if len(drawn) > slots:
            drawn = np.sort(generator.choice(drawn, slots, replace=False))
        return drawn, state


RARELY = 1e-12  # how often a Poisson draw exceeds its slots


def poisson_slots(registered: int, rate: float) -> int:
    """The number of clients that a Poisson draw exceeds with a probability below `RARELY`."""
    from scipy.special import bdtrc  # here, because few runs need it

    if rate == 1:
        return registered
    most = np.arange(registered + 1)
    return max(1, int(np.argmax(bdtrc(most, registered, rate) < RARELY)))


# A fixed number of clients, all equally likely.


@record
class Uniform:
    """Sample a fixed number of clients, all with the same probability, without replacement.

    Args:
        clients: Number of clients in a round. A federation with fewer clients takes part as a
            whole.

    Raises:
        ValueError: If the number is not a whole number of at least 1.

    Example:
        >>> import evenly
        >>> census = evenly.synthetic(clients=20).census()
        >>> sampling = Uniform(clients=3)
        >>> cohort, _ = sampling(sampling.init(census), np.random.default_rng(0))
        >>> len(set(cohort.tolist()))
        3
    """

    clients: int = static(default=10, least=1, doc="clients per round; all if there are fewer")
    by_size: bool = static(default=False)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def slots(self, census: Census) -> int:
        return at_most(self.clients, census)

    def init(self, census: Census) -> tuple[int, int]:
        return len(census.examples), self.slots(census)

    def __call__(
        self, state: tuple[int, int], generator: np.random.Generator
    ) -> tuple[np.ndarray, Any]:
        registered, slots = state
        return generator.choice(registered, slots, replace=False), state


def at_most(clients: int, census: Census) -> int:
    """Number of clients in a round: all of them where the federation has fewer."""
    return min(clients, len(census.examples))


# A fixed number of clients, drawn in proportion to their training rows.


class Odds(NamedTuple):
    """Positions of all training rows in one line, client by client. The owner of a random position
    is a client drawn by size.
    """

    rows: np.ndarray  # [clients] number of training rows
    ends: np.ndarray  # float [clients] position at which the rows of each client end
    slots: int


@record
class Weighted:
    """Sample a fixed number of clients in proportion to their training rows, as q-FFL and p-FFL do.

    Without replacement, clients are drawn one after another and the probabilities of the rest are
    renormalised, as in the authors' code. With replacement, the plain mean of the updates is
    unbiased, and a client may have two slots.

    Args:
        clients: Number of clients in a round.
        replace: Whether a client can be drawn twice in a round.

    Raises:
        ValueError: If the number is not legal, or too few clients have training rows.

    Example:
        >>> from evenly.data.federation import Census
        >>> sampling = Weighted(clients=2)
        >>> state = sampling.init(Census(examples=np.array([10, 0, 90]), cells=np.zeros((3, 1, 2))))
        >>> sorted(sampling(state, np.random.default_rng(0))[0].tolist())
        [0, 2]
    """

    clients: int = static(default=10, least=1, doc="clients per round; all if there are fewer")
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
            f"{slots} clients per round cannot be sampled by size: only {some} of"
            f" {len(census.examples)} have training rows. Sample fewer.",
        )
        return Odds(census.examples, np.cumsum(census.examples, dtype=float), slots)

    def __call__(self, state: Odds, generator: np.random.Generator) -> tuple[np.ndarray, Any]:
        if self.replace:
            return _owners(state, generator.random(state.slots) * state.ends[-1]), state
        return _different(state, generator), state


def _different(odds: Odds, generator: np.random.Generator) -> np.ndarray:
    """Distinct clients in the order in which they are drawn. A client that was drawn before is
    replaced by another draw from the rest.

    The draws equal those of NumPy's `choice`, which takes time in proportion to all clients in
    every round.
    """
    cohort: list[int] = []
    while len(cohort) < odds.slots:
        before = np.sort(np.array(cohort, np.int64))
        # The rows of these clients are cut out: a position among the rest is shifted by everything
        # that was cut out before it.
        cut = np.concatenate([[0], np.cumsum(odds.rows[before])])
        position = generator.random(odds.slots - len(cohort)) * (odds.ends[-1] - cut[-1])
        position += cut[np.searchsorted(odds.ends[before] - cut[1:], position, side="right")]
        # Each client once, in order; a position that rounding moves into a cut is drawn again.
        cohort = list(dict.fromkeys([*cohort, *_owners(odds, position).tolist()]))
    return np.array(cohort, np.int64)


def _owners(odds: Odds, position: np.ndarray) -> np.ndarray:
    """The client whose row is at each position; a position that was rounded up to the end belongs
    to the last row.
    """
    return np.searchsorted(
        odds.ends, np.minimum(position, np.nextafter(odds.ends[-1], 0)), side="right"
    )


# The cohorts of a run, the same in a simulation and in a deployment.


class CohortDraws:
    """Draws the cohorts of one sampling, in a simulation and in a deployment alike.

    A sampling may depend on earlier rounds, so that skipped rounds are drawn, too.
    """

    def __init__(self, select: Select, census: Census, seeds: Seeds) -> None:
        self._select, self._census = select, census
        self._cohorts = Draws(seeds.cohort, "cohort")
        self._chances = Draws(seeds.cohort, "chance")
        self._next: tuple[int, Any] = 0, select.init(census)  # round, state

    def cohort(self, t: int) -> np.ndarray:
        """The clients of round t, from 0, one for each slot; fewer where the number of clients
        varies. int32 [K]
        """
        at, state = self._next if self._next[0] <= t else (0, self._select.init(self._census))
        for earlier in range(at, t):
            _, state = self._select(state, self._cohorts.at(earlier))
        cohort, state = self._select(state, self._cohorts.at(t))
        self._next = t + 1, state
        return np.asarray(cohort, np.int32)

    def chance(self, t: int) -> np.ndarray:
        """Uniform random numbers of round t, for rules that draw. float32 [2]"""
        return self._chances.at(t).random(2).astype(np.float32)


__all__ = ["SAMPLINGS", "Fraction", "Full", "Parity", "Poisson", "Uniform", "Weighted"]

SAMPLINGS: dict[str, type[Select]] = {
    "full": Full,
    "uniform": Uniform,
    "weighted": Weighted,
    "fraction": Fraction,
    "parity": Parity,
    "poisson": Poisson,
}
"""Samplings by their name in the notation, such as `fedavg+uniform(clients=10)`.

Example:
    >>> SAMPLINGS["uniform"](clients=10).clients
    10
"""

"""Which hidden counts the reader of an audit could work out exactly: integer programming over everything that is shown.

Rates with their numbers of people are counts, and counts are sums over people of certain groups, labels and outcomes. A hidden
count is recovered if it is the same in all tables of whole numbers that agree with every sum that is shown. One other table that
agrees proves this for every count in which it differs, so a few tables usually settle all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from evenly.randomness import generator

Array = np.ndarray
MOST_CELLS = 500  # hidden groups up to which the question is decided
Search = Callable[[Array], Array]  # from weights of all counts to the table with the least weighted sum
PROBES, SECONDS = 8, 5.0  # tables that are looked for with many counts in mind at once, and the time for each
SMALL = 1e-6


class Sum(NamedTuple):
    """The people of some cells and kinds, counted together."""

    cells: Array  # bool [cells]
    kinds: Array  # bool [kinds]

    def of(self, table: Array) -> int:
        return int(table[np.ix_(self.cells, self.kinds)].sum())


def recovered(counts: Array, shown: Sequence[Sum], secrets: Sequence[Sum], listed: Array | None = None) -> list[bool]:
    """Which of the secrets follow from the sums that are shown, for people by cell and kind [cells, kinds].

    The reader is taken to know the number of everybody, and that somebody is in every cell, or in every set of cells that `listed`
    numbers. What cannot be decided counts as recovered.

    >>> row, both = np.array([True, False]), np.array([True, True])  # two groups, two labels
    >>> recovered(np.array([[3, 9], [20, 8]]), [Sum(row, both), Sum(both, row)], [Sum(row, row)])
    [False]
    >>> recovered(np.array([[3, 0], [20, 8]]), [Sum(~row, both), Sum(~row, row), Sum(both, row)], [Sum(row, row)])
    [True]
    """
    everybody = Sum(np.ones(len(counts), bool), np.ones(counts.shape[1], bool))
    if not secrets or len(counts) > MOST_CELLS:
        return [True] * len(secrets)
    open_ones = dict(enumerate(secrets))
    search = _search(counts, [everybody, *shown], np.arange(len(counts)) if listed is None else listed)
    for table in _tables(counts, search, open_ones):
        for i in [i for i, secret in open_ones.items() if secret.of(table) != secret.of(counts)]:
            del open_ones[i]
    return [i in open_ones for i in range(len(secrets))]


def _tables(counts: Array, search: Search, open_ones: dict[int, Sum]) -> Iterator[Array]:
    """Tables that agree with what is shown and differ as much as possible in the secrets that are open, first all, then one by one."""
    chance = generator(0, "audit")
    for _ in range(PROBES):
        if open_ones:
            yield search(np.sum([chance.choice((-1, 1)) * _weights(secret, counts) for secret in open_ones.values()], axis=0))
    for i, secret in list(open_ones.items()):
        for sign in (1, -1):
            if i in open_ones:
                yield search(sign * _weights(secret, counts))


def _weights(chosen: Sum, counts: Array) -> Array:
    found = np.zeros(counts.shape)
    found[np.ix_(chosen.cells, chosen.kinds)] = 1
    return found.ravel()


def _search(counts: Array, shown: Sequence[Sum], listed: Array) -> Search:
    """A function that finds the table with the least value of a weighted sum among all that agree; the true one if none is found."""
    from scipy.optimize import LinearConstraint, milp
    from scipy.sparse import csr_array, kron

    rows = csr_array(np.unique(np.stack([_weights(each, counts) for each in shown]), axis=0))
    known = rows @ counts.ravel()
    somebody = csr_array(kron(np.unique(listed)[:, None] == listed, np.ones((1, counts.shape[1]))))
    limits = [LinearConstraint(rows, known, known), LinearConstraint(somebody, 1, np.inf)]

    def search(weights: Array) -> Array:
        found = milp(weights, constraints=limits, integrality=np.ones(counts.size), options={"time_limit": SECONDS})
        if found.x is None or np.abs(found.x - found.x.round()).max() > SMALL:
            return counts
        table = found.x.round()
        agrees = (rows @ table == known).all() and (table >= 0).all()
        return table.reshape(counts.shape) if agrees else counts

    return search

"""Whole runs of group-fair methods in NumPy float64, on the cohorts and batches that the
simulator's host side draws.
"""

from typing import NamedTuple

import numpy as np

from evenly.data.federation import Federation
from evenly.types import Algorithm, Seeds
from tests.oracles import client, groups
from tests.oracles.run import Visit, visits


class Settings(NamedTuple):
    method: str
    rate: float = 0.1
    alpha: float = 0.0
    beta: float = 1.0
    metric: str = "eod"
    memory: float = 0.5
    by_size: bool = True
    reweigh: bool = False
    held_out: bool = False  # whether the gap is measured on validation rows
    # whether FedCvg-Ratio's weights are used as they are, though they do not sum to 1
    literal: bool = False


class Run(NamedTuple):
    model: np.ndarray
    weights: np.ndarray  # [rounds, K]
    fallbacks: int


class Seen(NamedTuple):
    """What the clients of a round say of the model they received."""

    n: np.ndarray
    u: np.ndarray
    tables: np.ndarray  # [K, groups, labels, outcomes]
    cell_losses: np.ndarray  # [K, groups, labels]
    valid_tables: np.ndarray  # [K, groups, labels, outcomes] of validation rows


def look(federation: Federation, w: np.ndarray, who: list[int]) -> Seen:
    shape = (len(federation.groups), len(federation.labels))
    tables, losses = np.zeros((len(who), *shape, shape[1])), np.zeros((len(who), *shape))
    for k, one in enumerate(who):
        rows = federation.train.of(one)
        x, y, group = (
            federation.x[rows].astype(np.float64),
            federation.y[rows],
            federation.group[rows],
        )
        outcome, loss = client.probabilities(w, x).argmax(1), client.row_losses(w, x, y)
        for i in range(len(rows)):
            tables[k, group[i], y[i], outcome[i]] += 1
            losses[k, group[i], y[i]] += loss[i]
    held_out = np.zeros_like(tables)
    for k, one in enumerate(who):
        for row in federation.valid.of(one):
            outcome = client.probabilities(w, federation.x[[row]].astype(np.float64)).argmax()
            held_out[k, federation.group[row], federation.y[row], outcome] += 1
    cells = tables.sum(3)
    return Seen(
        cells.sum((1, 2)),
        cells[:, list(federation.unprivileged)].sum((1, 2)),
        tables,
        losses,
        held_out,
    )


def run(
    federation: Federation, algorithm: Algorithm, s: Settings, rounds: int, *, dropout: float = 0.0
) -> Run:
    w = np.zeros((federation.x.shape[1] + 1) * len(federation.labels))
    n = federation.train.counts.astype(np.float64) if s.by_size else np.ones(federation.clients)
    kept = Kept(federation, n / n.sum())
    prepared = np.ones(len(federation.y))
    if s.reweigh:
        for k in range(federation.clients):
            rows = federation.train.of(k)
            prepared[rows] = groups.reweighing(federation.y[rows], federation.group[rows])
    weights = []
    for seats in visits(federation, algorithm, rounds, Seeds(), dropout):
        here = [i for i, seat in enumerate(seats) if seat.returned]
        row = np.zeros(len(seats))
        if here:
            present = [seats[i] for i in here]
            counts = prepared * kept.told(federation)
            seen = look(federation, w, [v.who for v in present])
            row[here] = kept.weigh(s, seen, [v.who for v in present])
            trained = [sgd(federation, w, v, s.rate, counts) for v in present]
            w = sum(a * v for a, v in zip(row[here], trained, strict=True))
        weights.append(row)
    return Run(w, np.array(weights), kept.fallbacks)


def sgd(
    federation: Federation, w: np.ndarray, visit: Visit, rate: float, counts: np.ndarray
) -> np.ndarray:
    v = w.copy()
    for rows in visit.rows:
        v = v - rate * client.weighted_gradient(
            v, federation.x[rows].astype(np.float64), federation.y[rows], counts[rows]
        )
    return v


class Kept:
    """What the server keeps between rounds."""

    def __init__(self, federation: Federation, raw: np.ndarray) -> None:
        self.raw, self.seen, self.fallbacks = raw, np.zeros(len(raw), bool), 0
        self.o, self.t = np.ones(2), 0  # FedFB's, of the unprivileged and of the others
        self.low, self.good = list(federation.unprivileged), federation.favourable

    def told(self, federation: Federation) -> np.ndarray:
        """How much FedFB says that each row of the federation counts."""
        own = self.o[np.where(np.isin(federation.group, self.low), 0, 1)]
        return np.where(federation.y == self.good, 2 - own, own)

    def weigh(self, s: Settings, seen: Seen, who: list[int]) -> np.ndarray:
        n = seen.n if s.by_size else np.ones(len(who))
        if s.method == "fairfed":
            told = (seen.valid_tables if s.held_out else seen.tables, s.metric, self.low, self.good)
            delta, fell = (groups.held_out_distances if s.held_out else groups.distances)(*told)
            a, self.raw[who] = groups.fairfed(self.raw[who], delta, n, s.beta)
            self.fallbacks += fell
            return a
        if s.method == "fedcvg":
            return groups.fedcvg(n, seen.u, s.alpha, coverage=10)
        if s.method == "fedcvg-ratio":
            now = n * groups.ratio_scores(seen.n, seen.u, s.alpha)
            self.raw[who] = groups.moving_average(
                self.raw[who], self.seen[who], now / now.sum(), s.memory
            )
            self.seen[who] = True
            return self.raw[who] if s.literal else self.raw[who] / self.raw[who].sum()
        if s.method == "fedfb":
            return self.fedfb(s, seen)
        assert s.method == "fedavg"
        return n / n.sum()

    def fedfb(self, s: Settings, seen: Seen) -> np.ndarray:
        cells, losses = (
            np.array([self.pooled(one) for one in of])
            for of in (seen.tables.sum(3), seen.cell_losses)
        )
        counted = np.array([(own * [self.o, 2 - self.o]).sum() for own in cells])
        m, self.t = cells.sum(0), self.t + 1
        if (m.sum(0) > 0).all():
            masses = m.sum(0) / m.sum()
            lambdas = groups.fedfb_lambdas(
                np.array([self.o, 2 - self.o]) * masses, m, losses.sum(0), s.alpha, self.t
            )
            self.o = lambdas[0] / masses
        counted = counted if s.by_size else counted / seen.n
        return counted / counted.sum()

    def pooled(self, cells: np.ndarray) -> np.ndarray:
        """[groups, labels] -> [unfavourable or favourable, unprivileged or not]"""
        low = np.isin(np.arange(len(cells)), self.low)
        return np.array(
            [[cells[g][:, wanted].sum() for g in (low, ~low)] for wanted in self.labels(cells)]
        )

    def labels(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        good = np.arange(cells.shape[1]) == self.good
        return ~good, good

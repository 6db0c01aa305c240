"""The rules of this package as they were before they were written for one client, in NumPy float64.

A rule here sees the whole cohort at once: `weigh` turns the signals of all slots into coefficients
and the next state, masks clients that did not return, and keeps what it remembers of each client in
arrays over all clients. `evenly.round` derives the same rounds from rules for one client. Class and
field names are those of the rules under test, so that both are built from the same settings.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


class Signals(NamedTuple):
    """What the clients of a round report before training, stacked over the slots [K]."""

    client: Any
    returned: Any
    examples: Any
    loss: Any = None
    table: Any = None
    cell_loss: Any = None
    valid_table: Any = None
    unprivileged: Any = None
    choice: Any = None
    gram: Any = None
    chance: Any = None


class Effort(NamedTuple):
    """What they report after training."""

    square_norm: Any = None


class Blended(NamedTuple):
    """The model times 'kept', plus a vector: FedCvg-Ratio's printed line."""

    kept: Any
    vector: Any


class Votes(NamedTuple):
    ballots: Any
    present: Any


def shares(raw, returned):
    kept = np.where(returned, raw, 0.0)
    total = kept.sum()
    return kept / (1.0 if total == 0 else total)


def softmax_shares(score, returned):
    top = np.max(np.where(returned, score, -np.inf), initial=-np.inf)
    shifted = np.where(returned, score - (top if np.isfinite(top) else 0.0), 0.0)
    return shares(np.exp(shifted), returned)


def project(y, mask, mass=1.0):
    """The nearest x >= 0 with sum `mass`, by sorting (Duchi et al., ICML 2008)."""
    descending = np.sort(y[mask])[::-1]
    j = np.arange(1, len(descending) + 1)
    threshold = (mass - np.cumsum(descending)) / j
    last = np.max(np.where(descending + threshold > 0, j, 0), initial=0)
    if last == 0:
        return np.zeros_like(y)
    return np.where(mask, np.maximum(y + threshold[last - 1], 0.0), 0.0)


class CohortRule:
    weights: str = ""

    @property
    def counts_sizes(self):
        return self.weights == "size"

    def sizes(self, signals):
        return signals.examples if self.counts_sizes else np.ones(signals.returned.shape)

    def init(self, census):
        return ()

    def step(self, state, signals, effort, total):
        return total, state

    def report(self, state):
        return {}


@dataclass
class FedAvg(CohortRule):
    weights: str = "size"

    def weigh(self, state, signals):
        return shares(self.sizes(signals), signals.returned), state


@dataclass
class FedSGD(CohortRule):
    weights: str = "size"
    q: float | None = None

    def weigh(self, state, signals):
        share = shares(self.sizes(signals), signals.returned)
        if self.q is None:
            return share, state
        return np.where(signals.returned, share * signals.loss**self.q, 0.0), state


@dataclass
class QFedAvg(CohortRule):
    q: float = 1.0
    lipschitz: float = 10.0
    scale_update: bool = True

    def weigh(self, state, signals):
        return softmax_shares(self.q * np.log(signals.loss + 1e-10), signals.returned), state

    def step(self, state, signals, effort, total):
        a, _ = self.weigh(state, signals)
        F, L = signals.loss + 1e-10, self.lipschitz
        curvature = self.q * np.where(a > 0, a * effort.square_norm / F, 0.0).sum()
        return total / (1.0 + L * curvature if self.scale_update else L + curvature), state


@dataclass
class Term(CohortRule):
    alpha: float = 0.1
    weights: str = "size"
    form: str = "normalised"

    def init(self, census):
        return 0.0  # the authors' running estimate

    def weigh(self, state, signals):
        tilt = self.alpha * signals.loss
        if self.form == "normalised":
            return softmax_shares(tilt + np.log(self.sizes(signals)), signals.returned), state
        clients = max(signals.returned.sum(), 1)
        top = np.max(np.where(signals.returned, tilt, -np.inf), initial=-np.inf)
        e = np.where(signals.returned, np.exp(tilt - (top if np.isfinite(top) else 0.0)), 0.0)
        z = state / 2 + e.sum() / clients / 2 if signals.returned.any() else state
        return np.where(signals.returned, e / (z * clients**2), 0.0), z


@dataclass
class FedCvg(CohortRule):
    alpha: float = 0.0001
    weights: str = "size"

    def weigh(self, state, signals):
        score = self.alpha * signals.unprivileged + np.log(self.sizes(signals))
        return softmax_shares(score, signals.returned), state


class Averages(NamedTuple):
    weight: Any  # [clients]
    seen: Any
    mass: Any


@dataclass
class FedCvgRatio(CohortRule):
    alpha: float = 0.5
    memory: float = 0.5
    start: str = "first-seen"
    renormalise: bool = True
    weights: str = "size"

    def init(self, census):
        sizes = np.asarray(census.examples, float) ** self.counts_sizes
        return Averages(sizes / sizes.sum(), np.full(sizes.shape, self.start == "size"), 1.0)

    def weigh(self, state, signals):
        rows, client = signals.examples, signals.client
        present = signals.returned & (rows > 0)
        now = shares(self.sizes(signals) * self.scores(signals, present), present)
        before = state.weight[client]
        averaged = np.where(state.seen[client], self.memory * before + (1 - self.memory) * now, now)
        weight, seen = state.weight.copy(), state.seen.copy()
        weight[client[present]], seen[client[present]] = averaged[present], True
        weights = np.where(present, averaged, 0.0)
        if self.renormalise:
            weights = shares(averaged, present)
        return weights, Averages(weight, seen, weights.sum())

    def scores(self, signals, present):
        u, rows = signals.unprivileged, signals.examples
        r = u[present].sum() / max(rows[present].sum(), 1.0)
        rarer = min(r, 1 - r)
        distance = (u / np.maximum(rows, 1.0) - r) / rarer if rarer > 0 else np.zeros(len(u))
        return np.clip(1 + self.alpha * (distance if r < 0.5 else -distance), 0.5, 2.0)

    def step(self, state, signals, effort, total):
        return (total if self.renormalise else Blended(state.mass, total)), state


class FairFedState(NamedTuple):
    raw: Any  # [clients]
    fallbacks: Any
    sides: Any  # [2, groups]
    favourable: Any  # [labels]


def two_sides(census):
    low = np.isin(np.arange(census.cells.shape[1]), census.unprivileged)
    favourable = np.arange(census.cells.shape[2]) == census.favourable
    return np.stack([low, ~low]).astype(float), favourable.astype(float)


@dataclass
class FairFed(CohortRule):
    metric: str = "eod"
    beta: float = 1.0
    form: str = "additive"
    clamp: bool = True
    carry: str = "raw"
    measured_on: str = "train"
    weights: str = "size"

    def init(self, census):
        sizes = np.asarray(census.examples, float) ** self.counts_sizes
        return FairFedState(sizes / sizes.sum(), 0, *two_sides(census))

    def weigh(self, state, signals):
        returned, client = signals.returned, signals.client
        gap, stood_in = self.gaps(state, signals)
        state = state._replace(fallbacks=state.fallbacks + (stood_in & returned).sum())
        sizes = self.sizes(signals)
        if self.form == "exponential":
            return softmax_shares(np.log(sizes) - self.beta * gap, returned), state
        mean = np.where(returned, gap, 0.0).sum() / max(returned.sum(), 1)
        moved = state.raw[client] - self.beta * (gap - mean)
        moved = np.maximum(moved, 0.0) if self.clamp else moved
        weights = shares(moved if moved[returned].sum() > 0 else sizes, returned)
        raw = state.raw.copy()
        raw[client[returned]] = (moved if self.carry == "raw" else weights)[returned]
        return weights, state._replace(raw=raw)

    def gaps(self, state, signals):
        table = signals.table if self.measured_on == "train" else signals.valid_table
        everyone = table[signals.returned].sum(0)
        (client, client_defined), (pooled, pooled_defined) = (
            difference(self.metric, t, state) for t in (table, everyone)
        )
        defined = client_defined & pooled_defined
        by_accuracy = np.abs(accuracy(everyone) - accuracy(table))
        gap = np.where(defined, np.abs(pooled - client), by_accuracy)
        if self.measured_on == "train":
            return gap, ~defined
        there = signals.returned & (table.sum((1, 2, 3)) > 0)
        return np.where(there, gap, gap[there].sum() / max(there.sum(), 1)), ~defined & there

    def report(self, state):
        return {"fallbacks": state.fallbacks}


def difference(metric, table, state):
    favourable = state.favourable
    if metric == "accuracy":
        hits, rows = table * np.eye(table.shape[-1]), table
    elif metric == "spd":
        hits, rows = table * favourable, table
    else:
        rows = table * favourable[:, None]
        hits = rows * favourable
    hit, of = ((cells.sum((-2, -1))[..., None, :] * state.sides).sum(-1) for cells in (hits, rows))
    rate = hit / np.where(of > 0, of, 1.0)
    return rate[..., 0] - rate[..., 1], (of > 0).all(-1)


def accuracy(table):
    rows = table.sum((-3, -2, -1))
    return (table * np.eye(table.shape[-1])).sum((-3, -2, -1)) / np.where(rows > 0, rows, 1.0)


class Balance(NamedTuple):
    unfavourable: Any  # [2]
    rounds: Any
    sides: Any
    favourable: Any


@dataclass
class FedFB(CohortRule):
    alpha: float = 0.3
    weights: str = "size"

    def init(self, census):
        return Balance(np.ones(2), 0, *two_sides(census))

    def row_weights(self, state):
        by_group = (state.unfavourable[:, None] * state.sides).sum(0)[:, None]
        return np.where(state.favourable > 0, 2 - by_group, by_group)

    def weigh(self, state, signals):
        cells = signals.table.sum(-1)
        rows = cells.sum((1, 2))
        counted = (cells * self.row_weights(state)).sum((1, 2))
        counted = counted if counted[signals.returned].sum() > 0 else rows
        counted = counted if self.counts_sizes else counted / np.maximum(rows, 1.0)
        return shares(counted, signals.returned), state

    def step(self, state, signals, effort, total):
        here = signals.returned
        rows = by_side(state, signals.table[here].sum((0, -1)))
        losses = by_side(state, signals.cell_loss[here].sum(0))
        size = rows.sum(1)
        both = (size > 0).all()
        size = size if both else np.ones(2)
        tilt = (losses[:, 1] - losses[:, 0] + rows[:, 0]) / size
        f = tilt[0] - tilt[1] if both else 0.0
        rounds = state.rounds + here.any()
        move = self.alpha / np.sqrt(max(rounds, 1.0)) * f * size.sum() / size
        moved = np.clip(state.unfavourable + move * np.array([-1.0, 1.0]), 0.0, 2.0)
        return total, state._replace(unfavourable=moved, rounds=rounds)


def by_side(state, cells):
    per_label = (state.sides[:, :, None] * cells).sum(1)
    wanted = (per_label * state.favourable).sum(1)
    return np.stack([(per_label * (1 - state.favourable)).sum(1), wanted], axis=1)


@dataclass
class AFL(CohortRule):
    form: str = "full"
    rate_lambda: float = 0.1

    def init(self, census):
        sizes = np.asarray(census.examples, float) ** (self.form == "local")
        return sizes / sizes.sum()

    def weigh(self, state, signals):
        present = np.zeros(state.shape, bool)
        np.maximum.at(present, signals.client, signals.returned)
        loss = np.zeros_like(state)
        loss[signals.client] = signals.loss
        lambdas = np.where(present, state, 0.0)
        used, climb = lambdas, loss
        if self.form == "stochastic":
            used = drawn(lambdas, signals.chance[0])
            climb = drawn(present * 1.0, signals.chance[1]) * present.sum() * loss
        mass = 1.0 if present.all() else lambdas.sum()
        moved = project(lambdas + self.rate_lambda * climb, present, mass)
        weights = moved if self.form == "local" else used
        return (
            shares(weights[signals.client], signals.returned),
            np.where(present, moved, state),
        )


def drawn(odds, chance):
    edges, number = np.cumsum(odds), np.arange(len(odds))
    last = np.max(np.where(odds > 0, number, 0))
    at = min((edges <= chance * edges[-1]).sum(), last)
    return ((number == at) & (odds > 0)).astype(float)


@dataclass
class PFedAvg(CohortRule):
    family: str = "gini"
    first: float = 1.0
    difference: float = 2.0
    ratio: float = 0.5
    sort_key: str = "loss"
    weights: str = "equal"
    ties: str = "share"

    def weigh(self, state, signals):
        key = signals.loss if self.sort_key == "loss" else signals.examples
        count = signals.returned.sum()
        order = np.argsort(np.where(signals.returned, key, np.inf), kind="stable")
        ascending = self.by_rank(np.arange(len(key)), count)
        tolerance = 1e-5 if self.sort_key == "loss" else 0.0
        keys = key[order]
        apart = keys[1:] - keys[:-1] > tolerance * np.abs(keys[1:])
        starts = np.concatenate([[True], apart | ~signals.returned[order][1:]])
        block = np.cumsum(starts) - 1
        if self.ties == "share":
            mean = np.bincount(block, ascending) / np.bincount(block)
            ascending = mean[block]
        else:
            order = order[np.lexsort((order, block))]
        by_client = np.zeros(len(key))
        by_client[order] = ascending
        return shares(by_client * self.sizes(signals), signals.returned), state

    def by_rank(self, rank, count):
        if self.family == "geometric":
            raw = self.ratio ** np.maximum(count - 1 - rank, 0)
        elif self.family == "harmonic":
            raw = np.cumsum(1.0 / (rank + 1.0))
        else:
            line = (1.0, 2.0) if self.family == "gini" else (self.first, self.difference)
            raw = line[0] + rank * line[1]
        return np.where(rank < count, raw, 0.0)


@dataclass
class FedMGDA(CohortRule):
    epsilon: float = 0.1
    server_rate: float = 1.0
    weights: str = "size"

    def weigh(self, state, signals):
        length = np.sqrt(np.maximum(np.diagonal(signals.gram), 0.0))
        moving = signals.returned & (length > 0)
        inverse = np.where(moving, 1.0 / np.where(moving, length, 1.0), 0.0)
        centre = shares(self.sizes(signals), moving)
        gram = signals.gram * inverse[:, None] * inverse
        return shortest(gram, centre, self.epsilon, moving) * inverse, state

    def step(self, state, signals, effort, total):
        return total * self.server_rate, state


def shortest(gram, centre, epsilon, mask):
    clients = max(mask.sum(), 1)
    low = np.where(mask, np.maximum(centre - epsilon, 0.0), 0.0)
    high = np.where(mask, centre + epsilon, 0.0)
    rate = 1.0 / max(np.trace(gram) - gram.sum() / clients, 1e-4 * clients)
    x = ahead = onto_box(centre, low, high)
    for i in range(400):
        slope = gram @ ahead
        step = rate * np.where(mask, slope - slope.sum() / clients, 0.0)
        new = onto_box(ahead - step, low, high)
        x, ahead = new, new + (i / (i + 3.0)) * (new - x)
    return x


def onto_box(y, low, high):
    a, b = np.min(low - y) - 1.0, np.max(high - y) + 1.0
    for _ in range(40):
        middle = (a + b) / 2
        short = np.clip(y + middle, low, high).sum() < 1.0
        a, b = (middle, b) if short else (a, middle)
    return np.clip(y + (a + b) / 2, low, high)


@dataclass
class IFCA(CohortRule):
    groups: int = 2
    weights: str = "size"

    def weigh(self, state, signals):
        here = signals.returned
        sizes = self.sizes(signals)
        return np.stack(
            [shares(sizes, (signals.choice == q) & here) for q in range(self.groups)]
        ), state


@dataclass
class E2FL(CohortRule):
    groups: int = 2

    def members(self, signals):
        return (signals.choice == np.arange(self.groups)[:, None]) & signals.returned

    def weigh(self, state, signals):
        return self.members(signals) * 1.0, state

    def step(self, state, signals, effort, total):
        return Votes(total, self.members(signals).any(1)), state


class FRL(CohortRule):
    def weigh(self, state, signals):
        return signals.returned * 1.0, state


class LocalRule(CohortRule):
    def weigh(self, state, signals):
        return np.zeros(signals.returned.shape), state

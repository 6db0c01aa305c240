"""A whole federated run in NumPy float64, on the cohorts and batches that the simulator's host side
draws.
"""

from typing import NamedTuple

import numpy as np

from evenly.data.federation import Federation
from evenly.randomness import Draws
from evenly.simulate.schedule import Planner
from evenly.types import Algorithm, Seeds
from tests.oracles import client, fair, server


class Visit(NamedTuple):
    """One client in one round."""

    who: int
    returned: bool
    batches: list  # of (x, y)
    rows: list  # of row numbers, batch by batch


class Run(NamedTuple):
    model: np.ndarray
    models: list  # after each round
    weights: np.ndarray  # [rounds, K], 0 where an update did not count
    own: list  # personal models
    lambdas: list  # AFL's, after each round


def visits(
    federation: Federation, algorithm: Algorithm, rounds: int, seeds: Seeds, dropout: float
) -> list[list[Visit]]:
    planner = Planner(federation, algorithm.work, [algorithm.select], seeds=seeds, dropout=dropout)
    steps = rounds * planner.most_steps_per_round
    block = planner.block(
        0, rounds, rounds=rounds, steps=steps, stops=np.array([rounds]), evaluate=np.array([True])
    )
    result = []
    for t in range(rounds):
        seats = []
        for k in range(planner.slots):
            v = t * planner.slots + k
            rows = [
                r[r < len(federation.y)]
                for r in block.rows[block.first_step[v] : block.first_step[v + 1]]
            ]
            pieces = [(federation.x[r].astype(np.float64), federation.y[r]) for r in rows]
            seats.append(Visit(int(block.cohort[t, k]), bool(block.returned[t, k]), pieces, rows))
        result.append(seats)
    return result


class Settings(NamedTuple):
    method: str
    rate: float = 0.1
    q: float = 0.0
    mu: float = 0.0
    by_size: bool = False
    server_momentum: float | None = None  # decay; the server's rate is 1
    form: str = ""  # of AFL or TERM
    rate_lambda: float = 0.1
    alpha: float = 0.1
    M: float = 5.0
    family: str = "gini"
    pull: float = 1.0
    epsilon: float = 0.1


class Kept:
    """What the server and the clients keep between rounds."""

    def __init__(self, federation: Federation, s: Settings, w: np.ndarray, chances: Draws) -> None:
        n = federation.train.counts
        self.lambdas = n / n.sum() if s.form == "local" else np.ones(len(n)) / len(n)
        self.estimate = 0.0
        self.own = [w] * len(n)
        self.chances = chances


def run(
    federation: Federation,
    algorithm: Algorithm,
    settings: Settings,
    rounds: int,
    *,
    seeds=None,
    dropout=0.0,
    broken=(),
) -> Run:
    """The run; clients in `broken` are left out whenever they are chosen."""
    features = federation.x.shape[1]
    w = np.zeros((features + 1) * len(federation.labels))
    velocity = np.zeros_like(w)
    models, weights, lambdas = [], [], []
    kept = Kept(federation, settings, w, Draws((seeds or Seeds()).cohort, "chance"))
    for t, seats in enumerate(visits(federation, algorithm, rounds, seeds or Seeds(), dropout)):
        present = [i for i, seat in enumerate(seats) if seat.returned and seat.who not in broken]
        row = np.zeros(len(seats))
        if present:
            new, row[present] = one_round(
                federation, [seats[i] for i in present], w, settings, kept, t
            )
            if settings.server_momentum is not None:
                velocity = settings.server_momentum * velocity + (w - new)
                new = w - velocity
            w = new
        models.append(w)
        weights.append(row)
        lambdas.append(kept.lambdas)
    return Run(w, models, np.array(weights), kept.own, lambdas)


def one_round(
    federation: Federation, seats: list[Visit], w: np.ndarray, s: Settings, kept: Kept, t: int
) -> tuple[np.ndarray, np.ndarray]:
    """The model after one round, and the share each client had in its direction."""
    data = [
        (
            federation.x[federation.train.of(v.who)].astype(np.float64),
            federation.y[federation.train.of(v.who)],
        )
        for v in seats
    ]
    n = np.array([len(y) for _, y in data], np.float64)
    F = np.array([client.loss(w, x, y) for x, y in data])
    L = 1 / s.rate
    shares = n / n.sum() if s.by_size else np.ones(len(n)) / len(n)
    tilted = F**s.q / (F**s.q).sum()
    if s.method in ("fedsgd", "q-fedsgd"):
        gradients = [client.gradient(w, x, y) for x, y in data]
        if s.method == "q-fedsgd":
            return server.q_fedsgd(w, F, gradients, s.q, L).model, tilted
        if s.q:
            return server.fixed_step(w, F, gradients, s.q, s.rate), F**s.q / len(F)
        return server.fedsgd(w, gradients, s.rate, shares), shares
    if s.method == "afl":
        return afl_round(data, seats, w, F, s, kept, t)
    if s.method == "propfair":
        trained = [fair.propfair_sgd(w, v.batches, s.rate, s.M) for v in seats]
        return (
            server.fedavg_by_size(trained, n) if s.by_size else server.fedavg_plain(trained)
        ), shares
    trained = [client.local_sgd(w, v.batches, s.rate, s.mu) for v in seats]
    if s.method == "term" and s.form == "authors":
        new, weights, kept.estimate = fair.term_authors(w, trained, F, s.alpha, kept.estimate)
        return new, weights
    if s.method == "term":
        return fair.term(trained, F, n if s.by_size else np.ones(len(n)), s.alpha)
    if s.method == "p-fedavg":
        return fair.p_fedavg(trained, F, s.family)
    if s.method == "fedmgda":
        moved = fair.fedmgda(w, trained, shares, s.epsilon)
        return moved.model, moved.lambdas / np.linalg.norm(w - np.array(trained), axis=1)
    if s.method == "ditto":
        for v in seats:
            kept.own[v.who] = fair.ditto_sgd(kept.own[v.who], w, v.batches, s.rate, s.pull)
        return (
            server.fedavg_by_size(trained, n) if s.by_size else server.fedavg_plain(trained)
        ), shares
    if s.method == "q-fedavg":
        return server.q_fedavg(w, trained, F, s.q, L).model, tilted
    assert s.method in ("fedavg", "fedprox")
    return (
        server.fedavg_by_size(trained, n) if s.by_size else server.fedavg_plain(trained)
    ), shares


def afl_round(
    data: list, seats: list[Visit], w: np.ndarray, F: np.ndarray, s: Settings, kept: Kept, t: int
) -> tuple[np.ndarray, np.ndarray]:
    """Those present move their part of lambda within its own mass; the model sees that part
    renormalised.
    """
    who = [v.who for v in seats]
    mine = kept.lambdas[who]
    climb, used = F, mine / mine.sum()
    if s.form == "stochastic":
        of_model, of_lambda = kept.chances.at(t).random(2)
        in_order = np.argsort(who)  # clients are drawn in the order of their numbers
        k = in_order[np.searchsorted(np.cumsum(used[in_order]), of_model, side="right")]
        j = in_order[int(of_lambda * len(who))]
        climb, used = np.eye(len(who))[j] * len(who) * F, np.eye(len(who))[k]
    moved = fair.project(mine + s.rate_lambda * climb, mine.sum())
    kept.lambdas = kept.lambdas.copy()
    kept.lambdas[who] = moved
    if s.form == "full":
        return server.fedsgd(w, [client.gradient(w, x, y) for x, y in data], s.rate, used), used
    used = moved / moved.sum() if s.form == "local" else used
    trained = [client.local_sgd(w, v.batches, s.rate) for v in seats]
    return sum(a * v for a, v in zip(used, trained, strict=True)), used

"""Whole runs of FRL and E2FL in NumPy float64, on a softmax without biases, line by line after
E2FL's Algorithm 1.
"""

import numpy as np

from tests.oracles import ranking as r


class Network:
    """Frozen weights [inputs, classes], the sorted first scores, and how a client searches.

    As FRL's code has it, the rate falls by `round_decay` from round to round, and along a cosine
    over the local epochs where `cosine_epochs` says how many there are.
    """

    def __init__(
        self, theta, sorted_scores, *, rate, momentum, decay, k, round_decay=1.0, cosine_epochs=0
    ):
        self.theta, self.sorted_scores = (
            np.asarray(theta, np.float64),
            np.asarray(sorted_scores, np.float64),
        )
        self.search = {"momentum": momentum, "decay": decay, "k": k}
        self.rate, self.round_decay, self.cosine_epochs = rate, round_decay, cosine_epochs

    def ranking_of(self, received, batches, t=0):
        """Lines 9 to 11: reorder the scores, search, send the new ranking."""
        scores = r.reorder(self.sorted_scores, received).reshape(self.theta.shape)
        rates = np.full(len(batches), self.rate * self.round_decay**t)
        if epochs := self.cosine_epochs:
            epoch = np.repeat(np.arange(epochs), len(batches) // epochs)
            rates = rates * (1 + np.cos(np.pi * epoch / epochs)) / 2
        found = r.edge_popup(self.theta, scores, batches, rate=rates, **self.search)
        return r.argsort(found.ravel())

    def mask(self, ranking):
        return r.mask(r.argsort(ranking).astype(float), self.search["k"]).reshape(self.theta.shape)

    def loss(self, ranking, x, y):
        p = r.softmax(x @ (self.theta * self.mask(ranking)))
        return -np.log(p[np.arange(len(y)), y]).mean()

    def right(self, ranking, x, y):
        return int(((x @ (self.theta * self.mask(ranking))).argmax(1) == y).sum())


def frl(network, first, rounds):
    """`rounds` are lists of visits; only those that returned vote. The ranking after the last
    round.
    """
    ranking = first
    for t, seats in enumerate(rounds):
        sent = [network.ranking_of(ranking, v.batches, t) for v in seats if v.returned]
        ranking = r.vote(sent) if sent else ranking
    return ranking


def e2fl(network, first, rounds, groups, group_of, *, absent_vote=False):
    """`group_of(t, client, rankings)` is the group for which a client votes. The ranking of all,
    and those of the groups.
    """
    ranking, own = first, [first] * groups
    for t, seats in enumerate(rounds):
        present = [v for v in seats if v.returned]
        group = [group_of(t, v.who, own) for v in present]
        sent = [network.ranking_of(ranking, v.batches) for v in present]
        if not sent:
            continue
        _, elected = r.e2fl(sent, group)
        own = [elected.get(q, own[q]) for q in range(groups)]
        ranking = r.vote(own if absent_vote else [own[q] for q in sorted(set(group))])
    return ranking, own

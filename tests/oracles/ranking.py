"""Rank-based learning in NumPy float64 and exact integers: FRL and E2FL line by line, on one layer
at a time.

A ranking R is the paper's list (R[j] is the edge with the j-th lowest score); `theta` are frozen
weights [inputs, classes] of a softmax without biases.
"""

import numpy as np


def argsort(values):
    return np.argsort(values, kind="stable")


def reorder(scores, ranking):
    """E2FL, Algorithm 1, line 9: theta^s[R] <- sort(theta^s)."""
    out = np.empty(len(scores))
    out[ranking] = np.sort(scores)
    return out


def vote(rankings):
    """FRL, Algorithm 4: argsort of the sum of the places."""
    return argsort(sum(argsort(ranking) for ranking in rankings))


def e2fl(rankings, group):
    """E2FL, Algorithm 1: a vote in every group that is there, then one vote for each of them."""
    present = sorted(set(group))
    own = {q: vote([r for r, g in zip(rankings, group, strict=True) if g == q]) for q in present}
    return vote([own[q] for q in present]), own


def mask(scores, k):
    """E2FL, Algorithm 5: the lowest int((1 - k) n) scores get 0."""
    kept = np.ones(len(scores))
    kept[argsort(scores)[: int((1 - k) * len(scores))]] = 0
    return kept


def footrule(first, second):
    """Between rankings, over the places of every edge."""
    return int(np.abs(argsort(first) - argsort(second)).sum())


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def edge_popup(theta, scores, batches, *, rate, momentum, decay, k, kind="raw"):
    """Edge-popup on a linear softmax: scores after one step for each batch (x, y), at one rate or
    at a rate for each step.
    """
    s, v = scores.copy(), np.zeros_like(scores)
    rates = np.broadcast_to(rate, len(batches))
    for (x, y), step_rate in zip(batches, rates, strict=True):
        kept = mask(s.ravel() if kind == "raw" else np.abs(s).ravel(), k).reshape(s.shape)
        error = softmax(x @ (theta * kept))
        error[np.arange(len(y)), y] -= 1
        g = x.T @ error / len(y) * theta
        g = g if kind == "raw" else g * np.sign(s)
        v = momentum * v + g + decay * s
        s = s - step_rate * v
    return s


def entropy(theta, masks, shares, x):
    p = softmax(x @ (theta * sum(a * m for a, m in zip(shares, masks, strict=True))))
    return -(p * np.log(p)).sum(1).mean()


def entropy_gradient(theta, masks, shares, x, h=1e-6):
    """Central differences."""
    shares = np.asarray(shares, np.float64)
    return np.array(
        [
            (entropy(theta, masks, shares + h * e, x) - entropy(theta, masks, shares - h * e, x))
            / (2 * h)
            for e in np.eye(len(shares))
        ]
    )


def binary(theta, masks, x):
    """E2FL, Algorithm 3 with the half kept that lowers the entropy: (gradient, number) in ascending
    order.
    """
    active = list(range(len(masks)))
    while len(active) > 1:
        shares = [1 / len(active) if q in active else 0.0 for q in range(len(masks))]
        g = entropy_gradient(theta, masks, shares, x)
        active = sorted(sorted(active, key=lambda q: (g[q], q))[: (len(active) + 1) // 2])
    return active[0]


def cluster(rankings, first, iterations):
    """E2FL, Algorithm 2, from the rankings numbered `first`; returns the choices and the total
    distance to the centres.
    """
    centres = [rankings[i] for i in first]
    distances = np.array([[footrule(r, c) for c in centres] for r in rankings])
    for _ in range(iterations):
        choice = distances.argmin(1)
        members = [
            [r for r, q in zip(rankings, choice, strict=True) if q == j]
            for j in range(len(centres))
        ]
        centres = [vote(m) if m else c for m, c in zip(members, centres, strict=True)]
        distances = np.array([[footrule(r, c) for c in centres] for r in rankings])
    return distances.argmin(1), int(distances.min(1).sum())

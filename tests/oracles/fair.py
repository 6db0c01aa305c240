"""Fair servers and clients of the papers, line by line, in NumPy float64. Symbols as in
`server`.
"""

import itertools
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from tests.oracles import client


class Move(NamedTuple):
    model: np.ndarray
    lambdas: np.ndarray


def project(y, mass=1.0):
    """The nearest point of {x >= 0, sum x = mass}: of every support, the point with equal shifts;
    the nearest that is feasible.
    """
    y, best = np.asarray(y, np.float64), None
    for size in range(1, len(y) + 1):
        for support in map(list, itertools.combinations(range(len(y)), size)):
            x = np.zeros_like(y)
            x[support] = y[support] + (mass - y[support].sum()) / size
            if (x >= 0).all() and (best is None or ((x - y) ** 2).sum() < ((best - y) ** 2).sum()):
                best = x
    return best


def faulty_project(y):
    """What the public q-FFL code does: the sums by which it chooses rho are one element short.
    Never to be reproduced.
    """
    u = np.sort(y)[::-1]
    rho = max(i + 1 for i in range(len(y)) if u[i] + (1 - u[:i].sum()) / (i + 1) > 0)
    return np.maximum(y + (1 - u[:rho].sum()) / rho, 0)


def afl_full(w, gradients, F, lambdas, rate, rate_lambda):
    """q-FFL's AFL: w+ = w - rate sum lambda_k grad F_k;  lambda+ = project(lambda +
    rate_lambda F).
    """
    return Move(
        w - rate * sum(lambdas[k] * gradients[k] for k in range(len(F))),
        project(lambdas + rate_lambda * np.asarray(F)),
    )


def afl_local(trained, F, lambdas, rate_lambda):
    """PropFair's AFL: lambda first, then w+ = sum lambda+_k w_k."""
    new = project(lambdas + rate_lambda * np.asarray(F))
    return Move(sum(new[k] * trained[k] for k in range(len(F))), new)


def afl_stochastic(trained, F, lambdas, rate_lambda, k, j):
    """Mohri et al.: the step of a client k drawn from lambda; lambda <- project(lambda + rate m F_j
    e_j), j drawn uniformly.
    """
    climb = np.zeros(len(F))
    climb[j] = len(F) * F[j]
    return Move(trained[k], project(lambdas + rate_lambda * climb))


def term(trained, F, n, alpha):
    """PropFair's TERM: a_k = n_k exp(alpha F_k) / sum; w+ = sum a_k w_k."""
    a = np.asarray(n) * np.exp(alpha * (np.asarray(F) - max(F)))
    a = a / a.sum()
    return Move(sum(a[k] * trained[k] for k in range(len(F))), a)


def term_authors(w, trained, F, alpha, estimate):
    """The TERM authors' federated code: e_k, the running estimate, u_k = e_k / (estimate K), and a
    mean over K besides.
    """
    e = np.exp(alpha * (np.asarray(F) - max(F)))
    K = len(F)
    estimate = 0.5 * estimate + 0.5 * e.mean()
    u = e / (estimate * K)
    return w - sum(u[k] * (w - trained[k]) for k in range(K)) / K, u / K, estimate


def p_weights(family, c, first=1.0, difference=2.0, z=0.5):
    """p-FFL, g(c): the weight of position i = 1..c in the family's own order."""
    i = np.arange(1, c + 1)
    raw = {
        "gini": 2 * i - 1.0,
        "arithmetic": first + (i - 1) * difference,
        "harmonic": np.array([sum(1 / j for j in range(1, k + 1)) for k in i]),
        "geometric": z ** (i - 1.0),
    }[family]
    return raw / raw.sum()


def p_fedavg(trained, key, family, tied=1e-9, **options):
    """Sort by loss (geometric: worst first), give the i-th its p_i; runs of equal losses share
    theirs.
    """
    key = np.asarray(key, np.float64)
    order = np.argsort(-key if family == "geometric" else key, kind="stable")
    p = p_weights(family, len(key), **options)
    weights = np.zeros(len(key))
    start = 0
    while start < len(key):
        stop = start + 1
        while stop < len(key) and abs(key[order[stop]] - key[order[stop - 1]]) <= tied * abs(
            key[order[stop]]
        ):
            stop += 1
        weights[order[start:stop]] = p[start:stop].mean()
        start = stop
    return Move(sum(weights[k] * trained[k] for k in range(len(key))), weights)


def phi(loss, M, epsilon=0.2, huber=False):
    """PropFair's transformation of a batch loss, shifted by log M, and its slope."""
    if M - loss >= epsilon:
        return -np.log(1 - loss / M), 1 / (M - loss)
    below = epsilon if huber else M
    return loss / below, 1 / below


def propfair_sgd(received, batches, rate, M, epsilon=0.2, huber=False):
    """v <- v - rate phi'(l) grad l, l the batch's mean loss at v."""
    v = received.copy()
    for x, y in batches:
        _, slope = phi(client.loss(v, x, y), M, epsilon, huber)
        v = v - rate * slope * client.gradient(v, x, y)
    return v


def ditto_sgd(own, received, batches, rate, pull):
    """v <- v - rate (grad F_k(v) + lambda (v - w)), w the model of the round."""
    v = own.copy()
    for x, y in batches:
        v = v - rate * (client.gradient(v, x, y) + pull * (v - received))
    return v


def fedmgda(w, trained, centre, epsilon, rate=1.0):
    """FedMGDA+: the shortest convex combination of unit vectors, weights within epsilon of the
    centre; zero updates are dropped.
    """
    g = np.array([w - t for t in trained])
    length = np.linalg.norm(g, axis=1)
    moving = length > 0
    unit = g[moving] / length[moving, None]
    centre = np.asarray(centre, np.float64)[moving] / np.sum(np.asarray(centre)[moving])
    lambdas = np.zeros(len(g))
    lambdas[moving] = shortest(unit @ unit.T, centre, epsilon)
    return Move(w - rate * lambdas[moving] @ unit, lambdas)


def shortest(gram, centre, epsilon):
    found = minimize(
        lambda x: x @ gram @ x, centre, jac=lambda x: 2 * gram @ x, method="SLSQP",
        bounds=[(max(c - epsilon, 0), min(c + epsilon, 1)) for c in centre],
        constraints=[{"type": "eq", "fun": lambda x: x.sum() - 1, "jac": np.ones_like}],
        options={"ftol": 1e-15, "maxiter": 1000},
    )  # fmt: skip
    return found.x


MEANS = {  # name: s, its inverse, its derivative, each with the method's parameter
    "fedavg": (lambda t, _: t, lambda y, _: y, lambda t, _: np.ones_like(t)),
    "q-ffl": (
        lambda t, q: t ** (q + 1),
        lambda y, q: y ** (1 / (q + 1)),
        lambda t, q: (q + 1) * t**q,
    ),
    "term": (
        lambda t, a: np.exp(a * t),
        lambda y, a: np.log(y) / a,
        lambda t, a: a * np.exp(a * t),
    ),
    "propfair": (
        lambda t, M: -np.log(M - t),
        lambda y, M: M - np.exp(-y),
        lambda t, M: 1 / (M - t),
    ),
}


def generalised_mean(f, kind, parameter):
    """A_s(f) = s^-1(mean s(f_i))."""
    s, inverse, _ = MEANS[kind]
    return inverse(s(np.asarray(f, np.float64), parameter).mean(), parameter)


def slope_of_mean(f, kind, parameter):
    """dA/df_i = s'(f_i) / (n s'(A))."""
    _, _, slope = MEANS[kind]
    return slope(np.asarray(f, np.float64), parameter) / (
        len(f) * slope(generalised_mean(f, kind, parameter), parameter)
    )

"""The servers of the papers, line by line, in NumPy float64.

Nothing here is rearranged, normalised or protected against overflow: that is what the code under
test does. `w` is the received model, `trained` the clients' models, `F` the losses of `w`, `n` the
sizes.
"""

from typing import NamedTuple

import numpy as np


class Step(NamedTuple):
    model: np.ndarray
    h: np.ndarray  # one for each client


def fedavg_by_size(trained, n):
    """McMahan et al., Algorithm 1: w+ = sum_k (n_k / n) w_k."""
    n = np.asarray(n, np.float64)
    return sum(n[k] / n.sum() * trained[k] for k in range(len(n)))


def fedavg_plain(trained):
    """q-FFL, Algorithm 2: devices are sampled by size and w+ = (1/K) sum_k w_k."""
    return sum(trained) / len(trained)


def fedsgd(w, gradients, rate, shares):
    """McMahan et al., Section 2: w+ = w - rate sum_k a_k grad F_k(w)."""
    return w - rate * sum(shares[k] * gradients[k] for k in range(len(shares)))


def fixed_step(w, F, gradients, q, rate):
    """The solver q-FFL compares with: w+ = w - (rate/K) sum_k F_k^q grad F_k."""
    return w - rate / len(F) * sum(F[k] ** q * gradients[k] for k in range(len(F)))


def q_fedsgd(w, F, gradients, q, L, guard=0.0):
    """q-FFL, Algorithm 3. `guard` is what the authors' code adds to every loss (1e-10)."""
    F = np.asarray(F, np.float64) + guard
    delta, h = [], []
    for k in range(len(F)):
        delta.append(F[k] ** q * gradients[k])
        # At q = 0 the first term is absent, not 0 times infinity.
        first = q * F[k] ** (q - 1) * np.sum(gradients[k] ** 2) if q else 0.0
        h.append(first + L * F[k] ** q)
    return Step(w - sum(delta) / sum(h), np.array(h))


def q_fedavg(w, trained, F, q, L, scaled=True, guard=0.0):
    """q-FFL, Algorithm 1 and 4. The paper prints Delta w_k = w - w_k; the authors' code has L (w -
    w_k): `scaled`.
    """
    d = [(L if scaled else 1.0) * (w - trained[k]) for k in range(len(F))]
    return q_fedsgd(w, F, d, q, L, guard)


def reddi(kind, w, changes, rate, beta1, beta2, tau):
    """Reddi et al., Algorithm 2: the models after each round, whose mean changes are given. v
    starts at tau^2.
    """
    m, v, models = np.zeros_like(w), np.full_like(w, tau**2), []
    for delta in changes:
        m = beta1 * m + (1 - beta1) * delta
        if kind == "fedadagrad":
            v = v + delta**2
        elif kind == "fedyogi":
            v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
        else:
            v = beta2 * v + (1 - beta2) * delta**2
        w = w + rate * m / (np.sqrt(v) + tau)
        models.append(w)
    return np.array(models)


def optaxs(kind, w, changes, rate, b1, b2, eps):
    """optax's Adam, Yogi and Adagrad as its documentation has them; a change is a gradient with the
    other sign.
    """
    start = {"adam": 0.0, "yogi": 1e-6, "adagrad": 0.1}[kind]
    m, v, models = np.full_like(w, start), np.full_like(w, start), []
    for t, delta in enumerate(changes, start=1):
        g = -delta
        if kind == "adagrad":
            v = v + g**2
            w = w - rate * g / np.sqrt(v + eps)
        else:
            m = b1 * m + (1 - b1) * g
            v = (
                b2 * v + (1 - b2) * g**2
                if kind == "adam"
                else v - (1 - b2) * np.sign(v - g**2) * g**2
            )
            w = w - rate * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        models.append(w)
    return np.array(models)

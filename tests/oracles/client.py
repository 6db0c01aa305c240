"""Clients of the papers in NumPy float64: softmax regression with its gradient written out, and
mini-batch SGD.

A model is one vector: the weights [features, classes], row by row, and then the biases.
"""

import numpy as np


def split(model, features):
    classes = len(model) // (features + 1)
    return model[: features * classes].reshape(features, classes), model[features * classes :]


def probabilities(model, x):
    weights, bias = split(model, x.shape[1])
    z = x @ weights + bias
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def loss(model, x, y):
    """F_k(w): the mean over the client's rows of -log p(y)."""
    return -np.log(probabilities(model, x)[np.arange(len(y)), y]).mean()


def gradient(model, x, y):
    """dF/dW = x' (p - e_y) / n, dF/db = sum (p - e_y) / n."""
    error = probabilities(model, x)
    error[np.arange(len(y)), y] -= 1
    return np.concatenate([(x.T @ error).ravel(), error.sum(0)]) / len(y)


def row_losses(model, x, y):
    return -np.log(probabilities(model, x)[np.arange(len(y)), y])


def weighted_gradient(model, x, y, weight):
    """Of (1/n) sum_i W_i l_i: divided by the number of rows, not by the sum of their weights."""
    error = probabilities(model, x)
    error[np.arange(len(y)), y] -= 1
    error *= weight[:, None]
    return np.concatenate([(x.T @ error).ravel(), error.sum(0)]) / len(y)


def local_sgd(received, batches, rate, mu=0.0):
    """v <- v - rate (grad of the batch loss at v + mu (v - w)) for every batch; mu > 0 is
    FedProx.
    """
    v = received.copy()
    for x, y in batches:
        v = v - rate * (gradient(v, x, y) + mu * (v - received))
    return v


def proximal_step(v, w, gradient, rate, mu):
    """FedProx: one step on F_k(v) + (mu/2) (v - w)^2."""
    return v - rate * (gradient + mu * (v - w))


def momentum_sgd(received, batches, rate, decay=0.9):
    """m <- decay m + g; v <- v - rate m."""
    v, m = received.copy(), np.zeros_like(received)
    for x, y in batches:
        m = decay * m + gradient(v, x, y)
        v = v - rate * m
    return v


def adam(received, batches, rate, b1=0.9, b2=0.99, eps=1e-3):
    """Kingma and Ba, Algorithm 1."""
    v, m, s = received.copy(), np.zeros_like(received), np.zeros_like(received)
    for t, (x, y) in enumerate(batches, start=1):
        g = gradient(v, x, y)
        m = b1 * m + (1 - b1) * g
        s = b2 * s + (1 - b2) * g**2
        v = v - rate * (m / (1 - b1**t)) / (np.sqrt(s / (1 - b2**t)) + eps)
    return v

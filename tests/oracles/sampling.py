"""Weighted sampling without replacement, its probabilities by counting every order of draws."""

import itertools

import numpy as np


def draw_one_by_one(p, count, generator):
    """Draw a client with probability p_k, remove it, renormalise the rest, and so on."""
    p, chosen = np.array(p, np.float64), []
    for _ in range(count):
        chosen.append(int(generator.choice(len(p), p=p / p.sum())))
        p[chosen[-1]] = 0
    return chosen


def order_probability(p, order):
    """P(first = order[0], second = order[1], ...) when the drawn are removed and the rest
    renormalised.
    """
    left, probability = 1.0, 1.0
    for k in order:
        probability *= p[k] / left
        left -= p[k]
    return probability


def inclusion(p, count):
    """P(client k is among the `count` drawn), summed over every order."""
    result = np.zeros(len(p))
    for order in itertools.permutations(range(len(p)), count):
        result[list(order)] += order_probability(p, order)
    return result

"""Limits of what one client may say, and bounds of what it can add to sums, for differential
privacy.
"""

from typing import Any, NamedTuple


class Limits(NamedTuple):
    """Public numbers that bound what one client may say, under differential privacy for clients.

    Example:
        >>> Limits(3.0, clip=0.5, rows=300, loss=6.9, clients=1000, cohort=50, guess=2.3).rows
        300
    """

    weight: Any  # largest weight, in multiples of an average client's
    clip: Any  # largest length of a vector
    rows: Any  # largest number of training rows that count
    loss: Any  # largest loss that counts
    clients: Any  # number of all clients
    cohort: Any  # expected number of clients in a round
    guess: Any  # loss of a model that guesses


class Bounds(NamedTuple):
    """How much one client within the `Limits` can add to the sums of a rule.

    The trees have the form of what the rule returns; each number is the largest length of the leaf
    in its place.

    Example:
        >>> Bounds(typical=100.0, extras=300.0).contributions
        ()
    """

    typical: Any = 1.0  # weight of an average client in the first round, times exp(exponent)
    contributions: tuple[Any, ...] = ()  # of each stage
    averages: Any = ()  # of weight times the numbers, the weight in multiples of an average one
    extras: Any = ()

"""Building blocks of methods: samplings of clients (`SAMPLINGS`) and weights of rows (`PREPARES`),
by their name in the notation.

>>> sorted(SAMPLINGS), list(PREPARES)
(['fraction', 'full', 'parity', 'uniform', 'weighted'], ['reweigh'])
"""

from evenly.parts.sampling import SAMPLINGS, Fraction, Full, Parity, Poisson, Uniform, Weighted
from evenly.parts.work import PREPARES, Reweigh

__all__ = [
    "PREPARES",
    "SAMPLINGS",
    "Fraction",
    "Full",
    "Parity",
    "Poisson",
    "Reweigh",
    "Uniform",
    "Weighted",
]

"""Building blocks of methods.

- `sampling`: samplings of clients, by their name in the notation (`SAMPLINGS`).
- `work`: local training of clients, and weights of rows (`PREPARES`).
- `optimisers`: optimisers of clients and servers (`OPTIMISERS`).
- `client_groups`: which of several models a client uses.
- `ranking`, `ranking_work`: models that are trained by ranking their edges.
- `row_privacy`: local training with differential privacy for the rows of a client.

>>> sorted(SAMPLINGS), list(PREPARES)
(['fraction', 'full', 'parity', 'poisson', 'uniform', 'weighted'], ['reweigh'])
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

"""Building blocks of methods: local work, optimisers, sampling, groups and ranking."""

from evenly.parts.sampling import SAMPLINGS, Fraction, Full, Parity, Uniform, Weighted
from evenly.parts.work import PREPARES, Reweigh

__all__ = ["PREPARES", "SAMPLINGS", "Fraction", "Full", "Parity", "Reweigh", "Uniform", "Weighted"]

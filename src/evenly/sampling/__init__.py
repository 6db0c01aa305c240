"""Who takes part in a round, one file each."""

from evenly.sampling.fraction import Fraction
from evenly.sampling.full import Full
from evenly.sampling.parity import Parity
from evenly.sampling.uniform import Uniform
from evenly.sampling.weighted import Weighted
from evenly.types import Select

__all__ = ["SAMPLINGS", "Fraction", "Full", "Parity", "Uniform", "Weighted"]

SAMPLINGS: dict[str, type[Select]] = {
    "full": Full,
    "uniform": Uniform,
    "weighted": Weighted,
    "fraction": Fraction,
    "parity": Parity,
}

"""Everyone takes part in every round."""

from typing import Any

import numpy as np

from evenly.data.federation import Census
from evenly.records import record, static


@record
class Full:
    """Every client, every round."""

    by_size: bool = static(default=False)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def slots(self, census: Census) -> int:
        return len(census.examples)

    def init(self, census: Census) -> np.ndarray:
        return np.arange(len(census.examples))

    def __call__(self, state: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, Any]:
        return state, state

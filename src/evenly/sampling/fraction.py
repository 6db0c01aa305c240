"""A share of the clients, all equally likely."""

from typing import Any

import numpy as np

from evenly.data.federation import Census
from evenly.records import record, require, static


@record
class Fraction:
    """max(1, floor(share * clients)) of them, drawn without replacement (Flower's rounding)."""

    share: float = static(default=0.1, doc="share of the clients in a round, above 0 and at most 1")
    by_size: bool = static(default=False)

    def __post_init__(self) -> None:
        require(0 < self.share <= 1, f"share must be above 0 and at most 1, got {self.share}.")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def slots(self, census: Census) -> int:
        # Rounded first: 0.7 * 10 is 6.999... in binary.
        return max(1, int(np.floor(round(self.share * len(census.examples), 9))))

    def init(self, census: Census) -> tuple[int, int]:
        return len(census.examples), self.slots(census)

    def __call__(self, state: tuple[int, int], generator: np.random.Generator) -> tuple[np.ndarray, Any]:
        registered, slots = state
        return generator.choice(registered, slots, replace=False), state

"""Who takes part in a round: the cohorts that the simulator would draw."""

from typing import Any

import numpy as np

from evenly.data.federation import Census
from evenly.randomness import Draws
from evenly.types import Seeds, Select


class Drawing:
    """The cohorts of one run. A sampling may look back, so rounds that were skipped are drawn too."""

    def __init__(self, select: Select, census: Census, seeds: Seeds) -> None:
        self._select, self._census = select, census
        self._cohorts = Draws(seeds.cohort, "cohort")
        self._chances = Draws(seeds.cohort, "chance")
        self._evaluations = Draws(seeds.cohort, "evaluated")
        self._state: tuple[int, Any] = 0, select.init(census)

    def cohort(self, t: int) -> np.ndarray:
        """Client numbers, one for each slot, of the round with number t from 0. int32 [K]"""
        at, state = self._state if self._state[0] <= t else (0, self._select.init(self._census))
        for earlier in range(at, t):
            _, state = self._select(state, self._cohorts.at(earlier))
        chosen, state = self._select(state, self._cohorts.at(t))
        self._state = t + 1, state
        return np.asarray(chosen, np.int32)

    def chance(self, t: int) -> np.ndarray:
        """Uniform numbers for rules that draw. float32 [2]"""
        return self._chances.at(t).random(2).astype(np.float32)

    def evaluated(self, t: int, present: np.ndarray, count: int) -> np.ndarray:
        """Of the clients that are present, those who evaluate."""
        return np.sort(self._evaluations.at(t).choice(present, min(count, len(present)), replace=False))

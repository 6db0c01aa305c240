"""What the host decides ahead: who takes part, who drops out, and which rows make up each batch.

Drawn with counter-based randomness (seed, purpose, round, client), so that blocks of rounds can be drawn one at a time,
in any order, and a real client elsewhere can draw the same batches.
"""

from typing import NamedTuple

import numpy as np

from evenly.federation import Federation
from evenly.randomness import Draws
from evenly.types import Seeds, Select, Work


class Block(NamedTuple):
    """A stretch of rounds, padded to fixed shapes so that every block runs the same program."""

    cohort: np.ndarray  # int32 [rounds, K]
    returned: np.ndarray  # bool [rounds, K]
    chance: np.ndarray  # float32 [rounds, 2] uniform numbers, for rules that draw
    first_step: np.ndarray  # int32 [rounds * K + 1] where each visit's batches start
    rows: np.ndarray  # int32 [steps, batch]; padding points one past the data
    stops: np.ndarray  # int32 [stops] rounds (within the block) at which a stretch ends
    evaluate: np.ndarray  # bool [stops] whether the model is evaluated there


class Planner:
    """Draws the cohorts and batches of one seed."""

    def __init__(self, federation: Federation, work: Work, select: Select, *, seeds: Seeds, dropout: float) -> None:
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}.")
        census = federation.census()
        self.slots = select.slots(census)
        self.batch = work.batch_size
        self._train = federation.train
        self._padding = len(federation.y)
        self._work, self._select, self._dropout = work, select, dropout
        self._cohorts = Draws(seeds.cohort, "cohort")
        self._drops = Draws(seeds.cohort, "dropout")
        self._chances = Draws(seeds.cohort, "chance")
        self._shuffles = Draws(seeds.batches, "batches")
        self._select_state = select.init(census)
        steps = work.epochs * -(-federation.train.counts // work.batch_size)
        self._steps = np.minimum(steps, work.max_steps) if work.max_steps else steps  # of each client

    def steps_per_round(self) -> int:
        """An upper bound: the K longest clients."""
        return int(np.sort(self._steps)[-self.slots :].sum()) if self.slots <= len(self._steps) else int(self._steps.max()) * self.slots

    def cohorts(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Who is chosen in rounds start..stop, and who of them returns."""
        cohort = np.zeros((stop - start, self.slots), np.int32)
        for i, t in enumerate(range(start, stop)):
            cohort[i], self._select_state = self._select(self._select_state, self._cohorts.at(t))
        returned = np.ones(cohort.shape, bool)
        if self._dropout:
            for i, t in enumerate(range(start, stop)):
                returned[i] = self._drops.at(t).random(len(self._steps))[cohort[i]] >= self._dropout
        return cohort, returned

    def block(self, start: int, stop: int, *, rounds: int, steps: int, stops: np.ndarray, evaluate: np.ndarray) -> Block:
        """Rounds start..stop, padded to `rounds` and `steps`."""
        cohort, returned = self.cohorts(start, stop)
        visits = np.where(returned, self._steps[cohort], 0).ravel()
        first = np.zeros(rounds * self.slots + 1, np.int32)
        first[1 : len(visits) + 1] = np.cumsum(visits)
        first[len(visits) + 1 :] = first[len(visits)]
        rows = np.full((steps, self.batch), self._padding, np.int32)
        flat = rows.reshape(-1)
        for visit in np.flatnonzero(visits):
            t, client = start + visit // self.slots, cohort.flat[visit]
            self._fill(flat[first[visit] * self.batch : first[visit + 1] * self.batch], int(t), int(client))
        pad = ((0, rounds - (stop - start)), (0, 0))
        chance = np.array([self._chances.at(t).random(2) for t in range(start, stop)], np.float32).reshape(-1, 2)
        return Block(np.pad(cohort, pad), np.pad(returned, pad), np.pad(chance, pad), first, rows, stops, evaluate)

    def _fill(self, flat: np.ndarray, t: int, client: int) -> None:
        """Write one visit's batches: each epoch is shuffled anew and padded to whole batches."""
        rows = self._train.of(client)
        generator = self._shuffles.at(t, client) if self._work.shuffle else None
        span = -(-len(rows) // self.batch) * self.batch
        for epoch in range(self._work.epochs):
            order = rows if generator is None else generator.permutation(rows)
            room = flat[epoch * span : epoch * span + len(rows)]
            room[:] = order[: len(room)]  # a limit on steps may end the visit early

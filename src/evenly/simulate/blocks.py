"""How a run is cut into blocks of rounds: as many as fit into arrays of a fixed size, so that every block runs the same program."""

from typing import NamedTuple

import numpy as np

from evenly.simulate.plan import Block, Planner

LARGEST_BLOCK_ROWS = 2**21  # row numbers planned at a time: 8 MiB
LARGEST_BLOCK_CELLS = 2**22  # table cells kept on the device at a time
MOST_ROUNDS = 1024  # in a block
FEWEST_ROUNDS = 8  # that a block has room for, also where a run has fewer: short runs then share the program of longer ones
BLOCK_SECONDS = 2.0  # of a block, about
GROWTH = 4  # a block has at most so many times the rounds of the last whose time is known


class Ahead(NamedTuple):
    """The next block, planned while the device works on the last."""

    start: int
    stop: int
    block: Block


class Pace:
    """How many rounds the next block should have. Unless they are `steady`, blocks begin with one round, so that the device hardly waits
    for the host, and become longer while they are short: whoever follows the run hears of it after each of them."""

    def __init__(self, rounds: int, steady: bool) -> None:
        self.rounds, self._steady = rounds, steady

    def note(self, rounds: int, seconds: float) -> None:
        """A block of so many rounds took so long."""
        if not self._steady:
            self.rounds = max(1, min(GROWTH * rounds, int(BLOCK_SECONDS * rounds / max(seconds, 1e-6))))


class Blocks:
    """Plans one block after another.

    `cells` are those of one evaluation of all runs, or 0 where evaluations are made between blocks: each then ends one. `most` is a
    limit on a block's rounds.
    """

    def __init__(self, planner: Planner, *, rounds: int, every: int, runs: int, cells: int, most: int = MOST_ROUNDS) -> None:
        self._planner, self._rounds, self._every, self._apart = planner, rounds, every, not cells
        # At least two: the evaluation before the first round, and one that ends the block.
        self._stops = int(np.clip(LARGEST_BLOCK_CELLS // cells, 2, 64)) if cells else 1
        usual = max(planner.usual_steps_per_round, 1)
        # A block is as many rounds as fit into arrays whose sizes do not depend on how rows are dealt to clients: partitions of
        # the same rows then share a compiled program.
        room = max(LARGEST_BLOCK_ROWS // (planner.batch * planner.lanes), 1)
        most = max(1, min(MOST_ROUNDS, max(rounds, FEWEST_ROUNDS), most))
        self._steps = max(rounded_up(min(most * usual, room)), planner.most_steps_per_round)
        self._padded = int(np.clip(LARGEST_BLOCK_CELLS // (planner.slots * runs), 1, most))
        self.rounds = int(np.clip(self._steps // usual, 1, self._padded))

    def next(self, start: int, most: int = MOST_ROUNDS) -> Ahead | None:
        """The rounds from `start`: as many as fit, or `most`, with the evaluations that fall among them; None after the last."""
        if start >= self._rounds:
            return None
        stop = self._planner.fitting(start, min(start + min(self.rounds, most), self._rounds), self._steps)
        if self._apart:
            stop = min(stop, next(t for t in self.evaluations() if t > start))
            return Ahead(start, stop, self._block(start, stop, np.array([stop - start], np.int32), np.zeros(1, bool)))
        marks = [t for t in self.evaluations() if t >= start and (t > start or start == 0)]
        if len(marks) > self._stops:  # the first evaluation that does not fit ends the block
            stop = min(stop, marks[self._stops - 1])
        inside = [t for t in marks if t <= stop][: self._stops]
        ends = inside if inside and inside[-1] == stop else [*inside, stop]
        stops = np.full(self._stops + 1, -1, np.int32)
        stops[: len(ends)] = np.array(ends) - start
        evaluate = np.zeros(self._stops + 1, bool)
        evaluate[: len(inside)] = True
        return Ahead(start, stop, self._block(start, stop, stops, evaluate))

    def evaluations(self) -> list[int]:
        return evaluated_after(self._rounds, self._every)

    def _block(self, start: int, stop: int, stops: np.ndarray, evaluate: np.ndarray) -> Block:
        return self._planner.block(start, stop, rounds=self._padded, steps=self._steps, stops=stops, evaluate=evaluate)


def evaluated_after(rounds: int, every: int) -> list[int]:
    """After how many rounds the model is evaluated: before the first, now and then, and after the last."""
    return [0, *(range(every, rounds, every) if every else ()), rounds]


def rounded_up(n: int) -> int:
    """The next number with at most three significant bits after the first."""
    step = 2 ** max(0, n.bit_length() - 4)
    return -(-n // step) * step

"""What every contender is given, in one npz file: rows, cohorts, batches and the first model. Needs
NumPy alone.

A model is a list of arrays in PyTorch's order: weight [outputs, inputs], then bias. A visit is one
client in one round; visits are numbered through the rounds.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

TINY = 1e-10  # added to a client's loss before it is raised to a power, as evenly does


class Visit(NamedTuple):
    """One client in one round."""

    number: int
    client: int
    rows: np.ndarray  # in the order of its batches, without padding
    sizes: list[int]  # of its batches


class Plan:
    """The file, opened."""

    def __init__(self, path: Path | str) -> None:
        with np.load(path) as file:
            given = dict(file)
        self.path, self.workload, self.kind = str(path), str(given["workload"]), str(given["kind"])
        self.x, self.y = given["x"], given["y"].astype(np.int32)
        # every client's training rows, one client after another
        self.train, self.offsets = given["train"], given["offsets"]
        self.cohort, self.first_step, self.steps = (
            given["cohort"],
            given["first_step"],
            given["rows"],
        )
        self.batch, self.epochs, self.classes = (
            int(given["batch"]),
            int(given["epochs"]),
            int(given["classes"]),
        )
        self.rate, self.q = float(given["rate"]), float(given["q"])
        self.start = [given[f"start{i}"] for i in range(int(given["parts"]))]
        real = self.steps < len(self.y)
        self._rows, self._sizes = self.steps[real].astype(np.int64), real.sum(1)
        self._first_row = np.concatenate([[0], np.cumsum(self._sizes)])

    @property
    def fair(self) -> bool:
        """q-FedAvg; else FedAvg by size."""
        return not np.isnan(self.q)

    @property
    def clients(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.offsets)

    def own(self, client: int) -> np.ndarray:
        """A client's training rows."""
        return self.train[self.offsets[client] : self.offsets[client + 1]].astype(np.int64)

    def visit(self, number: int) -> Visit:
        first, last = self.first_step[number : number + 2]
        rows = self._rows[self._first_row[first] : self._first_row[last]]
        return Visit(number, int(self.cohort.flat[number]), rows, self._sizes[first:last].tolist())

    def visits(self, t: int) -> Iterator[Visit]:
        """The visits of round t."""
        cohort = self.cohort.shape[1]
        return map(self.visit, range(t * cohort, (t + 1) * cohort))

"""Counter-based random draws on the host.

Every draw is keyed by (seed, purpose, round, client): no draw depends on how many were made before it. Runs can therefore
be chunked, resumed, sharded or executed by a real client elsewhere and still see the same cohorts and the same batches.
"""

import zlib

import numpy as np


class Draws:
    """A source of generators that share one seed and one purpose ("cohort", "batches", "split", ...)."""

    def __init__(self, seed: int, purpose: str) -> None:
        self.key = int(seed) & (2**64 - 1), zlib.crc32(purpose.encode())
        # One Philox object is rewound for each draw: building a new one costs about ten times as much.
        self._bits = np.random.Philox(key=np.array(self.key, np.uint64))
        self._generator = np.random.Generator(self._bits)
        self._state = self._bits.state  # a copy, which drawing does not change; nothing is buffered in it
        self._counter = self._state["state"]["counter"]

    def at(self, first: int = 0, second: int = 0, third: int = 0) -> np.random.Generator:
        """The generator at a counter of up to three numbers, usually (round, client). Valid until the next call."""
        # The lowest word is Philox's own block counter; ours sit above it and can never overlap with it.
        self._counter[1], self._counter[2], self._counter[3] = first, second, third
        self._bits.state = self._state
        return self._generator


def generator(seed: int, purpose: str, *counter: int) -> np.random.Generator:
    """An independent generator for one draw; see `Draws` where many are needed."""
    return Draws(seed, purpose).at(*counter)


def batches(
    rows: np.ndarray, size: int, *, epochs: int, shuffle: np.random.Generator | None, padding: int, most: int | None = None
) -> np.ndarray:
    """Row numbers in batches: each epoch is shuffled anew and padded to whole batches. int32 [steps, size]

    `most` is a limit on the steps, which may end the last epoch early. Without `shuffle` rows stay in their order.
    """
    per_epoch = -(-len(rows) // size)
    found = np.empty((epochs, per_epoch * size), np.int32)
    found[:, len(rows) :] = padding
    for epoch in found:
        epoch[: len(rows)] = rows if shuffle is None else shuffle.permutation(rows)
    return found.reshape(-1, size)[:most]

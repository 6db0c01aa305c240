"""Sequences cut into examples: the symbols before a place, and the symbol at it. Only the examples asked for are made."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Stream(NamedTuple):
    """A client's sequences laid end to end, each after enough padding that no window reaches into the one before."""

    symbols: np.ndarray  # int32 [total]
    targets: np.ndarray  # int64 [n], places to predict

    def examples(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """x int32 [n, length], the symbols before each target, and y int32 [n], the target."""
        if not len(self.targets):
            return np.zeros((0, length), np.int32), np.zeros(0, np.int32)
        views = np.lib.stride_tricks.sliding_window_view(self.symbols, length)
        return views[self.targets - length], self.symbols[self.targets]


def stream(sequences: Sequence[np.ndarray], *, length: int, padding: int) -> Stream:
    """Every symbol of every sequence is a target once; windows at a sequence's start see padding."""
    before = np.full(length, padding, np.int32)
    pieces = [piece for sequence in sequences for piece in (before, sequence.astype(np.int32))]
    sizes = np.array([len(sequence) for sequence in sequences], np.int64)
    shift = np.repeat((np.arange(len(sizes)) + 1) * length, sizes)
    return Stream(np.concatenate(pieces) if pieces else np.zeros(0, np.int32), np.arange(sizes.sum()) + shift)


def thinned(whole: Stream, *, stride: int, fraction: float, generator: np.random.Generator) -> Stream:
    """Every `stride`-th target, and of these a share drawn at random (at least one), in order."""
    targets = whole.targets[::stride]
    if fraction < 1:
        kept = max(1, int(np.floor(round(fraction * len(targets), 9))))
        targets = np.sort(generator.permutation(targets)[:kept])
    return whole._replace(targets=targets)

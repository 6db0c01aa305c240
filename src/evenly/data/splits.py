"""Which rows train, validate and test: drawn by a seed, cut in order, or as a column of the table says."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evenly.randomness import Draws

SPLITS = ("train", "valid", "test")
CENTRAL = "central"
SHARES = (0.8, 0.1)  # of training and validation rows, unless the user says


class Ragged(NamedTuple):
    """One list of row numbers per client, laid end to end."""

    rows: np.ndarray  # int32 [total]
    offsets: np.ndarray  # int64 [clients + 1]

    @property
    def counts(self) -> np.ndarray:
        return np.diff(self.offsets)

    def of(self, client: int) -> np.ndarray:
        return self.rows[self.offsets[client] : self.offsets[client + 1]]

    def only(self, clients: np.ndarray) -> "Ragged":
        """The lists of these clients, in their order."""
        counts = self.offsets[clients + 1] - self.offsets[clients]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Ragged(self.rows[np.repeat(self.offsets[clients] - offsets[:-1], counts) + np.arange(offsets[-1])], offsets)

    @staticmethod
    def from_lists(lists: Sequence[np.ndarray]) -> "Ragged":
        offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in lists])]).astype(np.int64)
        return Ragged(np.concatenate(lists).astype(np.int32) if lists else np.zeros(0, np.int32), offsets)


def split_rows(owner: np.ndarray, clients: int, *, shares: tuple[float, float], seed: int) -> tuple[Ragged, Ragged, Ragged]:
    """Shuffle each client's rows and cut them at floor(share * n), with at least one training row."""
    first, second = shares
    if not (0 < first <= 1 and second >= 0 and first + second <= 1 + 1e-9):
        raise ValueError(f"shares must be (train, valid) with 0 < train and train + valid at most 1, got {shares}.")
    draws = Draws(seed, "split")
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(clients + 1))
    rows = order[bounds[0] :].astype(np.int32)
    edges = (bounds - bounds[0]).tolist()
    for k in range(clients):
        draws.at(k).shuffle(rows[edges[k] : edges[k + 1]])
    return cut_rows(rows, np.diff(bounds), shares)


def cut_rows(rows: np.ndarray, counts: np.ndarray, shares: tuple[float, float]) -> tuple[Ragged, Ragged, Ragged]:
    """Rows that lie client by client, so many of each: cut at floor(share * n), with at least one training row."""
    # Rounded first: 0.8 + 0.1 is a hair under 0.9 in binary and would cut one row early.
    first, second = (np.floor(np.round(share * counts, 9)).astype(np.int64) for share in (shares[0], sum(shares)))
    first = np.minimum(np.maximum(first, 1), counts)
    second = np.maximum(first, second)
    return dealt_rows(rows, (first, second - first, counts - second))


def dealt_rows(rows: np.ndarray, counts: tuple[np.ndarray, np.ndarray, np.ndarray]) -> tuple[Ragged, Ragged, Ragged]:
    """Rows that lie client by client: of each client so many for training, then so many for validation, then so many for test."""
    part = np.repeat(np.tile(np.arange(3, dtype=np.int8), len(counts[0])), np.stack(counts, axis=1).ravel())
    train, valid, test = (
        Ragged(rows[part == i].astype(np.int32), np.concatenate([[0], np.cumsum(own)]).astype(np.int64)) for i, own in enumerate(counts)
    )
    return train, valid, test


def given_rows(owner: np.ndarray, names: Sequence[str], split: np.ndarray) -> tuple[Ragged, Ragged, Ragged]:
    """The rows of each client by the split that each row names, in the table's order."""

    def part(name: str) -> Ragged:
        rows = np.flatnonzero(split == name)
        rows = rows[np.argsort(owner[rows], kind="stable")]
        counts = np.bincount(owner[rows], minlength=len(names))
        return Ragged(rows.astype(np.int32), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    train, valid, test = (part(name) for name in SPLITS)
    if (train.counts == 0).any():
        idle = names[int((train.counts == 0).argmax())]
        raise ValueError(
            f"Every client must have a row with split 'train'; client {idle!r} has none. "
            "Give it some, or mark its rows 'central' to only test on them."
        )
    return train, valid, test

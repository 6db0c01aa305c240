"""Splits of rows into training, validation and test: at random, in order, or as a column states."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evenly.randomness import Draws

SPLITS = ("train", "valid", "test")
CENTRAL = "central"
SHARES = (0.8, 0.1)  # default shares of training and validation rows


class Ragged(NamedTuple):
    """One list of row numbers for each client, stored one after another in a single array.

    Example:
        >>> lists = Ragged.from_lists([np.array([4, 0]), np.array([1])])
        >>> lists.counts.tolist(), lists.of(0).tolist(), lists.only(np.array([1])).rows.tolist()
        ([2, 1], [4, 0], [1])
    """

    rows: np.ndarray  # int32 [total]
    offsets: np.ndarray  # int64 [clients + 1]

    @property
    def counts(self) -> np.ndarray:
        """Number of rows of each client. [clients]"""
        return np.diff(self.offsets)

    def of(self, client: int) -> np.ndarray:
        """Row numbers of one client."""
        return self.rows[self.offsets[client] : self.offsets[client + 1]]

    def only(self, clients: np.ndarray) -> "Ragged":
        """The lists of the clients with these numbers, in this order."""
        counts = self.offsets[clients + 1] - self.offsets[clients]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Ragged(
            self.rows[
                np.repeat(self.offsets[clients] - offsets[:-1], counts) + np.arange(offsets[-1])
            ],
            offsets,
        )

    @staticmethod
    def from_lists(lists: Sequence[np.ndarray]) -> "Ragged":
        """Lists of row numbers, one for each client."""
        offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in lists])]).astype(np.int64)
        return Ragged(
            np.concatenate(lists).astype(np.int32) if lists else np.zeros(0, np.int32), offsets
        )


def split_rows(
    owner: np.ndarray, clients: int, *, shares: tuple[float, float], seed: int
) -> tuple[Ragged, Ragged, Ragged]:
    """Shuffle each client's rows and cut them at floor(share * n), with at least one
    training row.
    """
    first, second = shares
    if not (0 < first <= 1 and second >= 0 and first + second <= 1 + 1e-9):
        raise ValueError(
            "shares must be (train, valid) with 0 < train and train + valid at most 1, got"
            f" {shares}."
        )
    draws = Draws(seed, "split")
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(clients + 1))
    rows = order[bounds[0] :].astype(np.int32)
    edges = (bounds - bounds[0]).tolist()
    for k in range(clients):
        draws.at(k).shuffle(rows[edges[k] : edges[k + 1]])
    return cut_rows(rows, np.diff(bounds), shares)


def cut_rows(
    rows: np.ndarray, counts: np.ndarray, shares: tuple[float, float]
) -> tuple[Ragged, Ragged, Ragged]:
    """Cut rows, which are ordered by client with `counts` rows each, at floor(share * n), with at
    least one training row.
    """
    # Rounded first: 0.8 + 0.1 is a hair under 0.9 in binary and would cut one row early.
    first, second = (
        np.floor(np.round(share * counts, 9)).astype(np.int64) for share in (shares[0], sum(shares))
    )
    first = np.minimum(np.maximum(first, 1), counts)
    second = np.maximum(first, second)
    return dealt_rows(rows, (first, second - first, counts - second))


def dealt_rows(
    rows: np.ndarray, counts: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[Ragged, Ragged, Ragged]:
    """Cut rows, which are ordered by client: `counts` are each client's numbers of training,
    validation and test rows, in this order.
    """
    part = np.repeat(
        np.tile(np.arange(3, dtype=np.int8), len(counts[0])), np.stack(counts, axis=1).ravel()
    )
    train, valid, test = (
        Ragged(
            rows[part == i].astype(np.int32), np.concatenate([[0], np.cumsum(own)]).astype(np.int64)
        )
        for i, own in enumerate(counts)
    )
    return train, valid, test


def given_rows(
    owner: np.ndarray, names: Sequence[str], split: np.ndarray
) -> tuple[Ragged, Ragged, Ragged]:
    """Rows of each client in each split, as the table's split column states, in the order of the
    table.
    """

    def part(name: str) -> Ragged:
        rows = np.flatnonzero(split == name)
        rows = rows[np.argsort(owner[rows], kind="stable")]
        counts = np.bincount(owner[rows], minlength=len(names))
        return Ragged(
            rows.astype(np.int32), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        )

    train, valid, test = (part(name) for name in SPLITS)
    if (train.counts == 0).any():
        idle = names[int((train.counts == 0).argmax())]
        raise ValueError(
            f"Every client must have a row with split 'train'; client {idle!r} has none. "
            "Add some, or mark its rows 'central' to use them only for testing."
        )
    return train, valid, test

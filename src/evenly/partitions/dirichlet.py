"""Clients that see the labels in different proportions.

Hsu et al. (2019), as PropFair uses it: for each class a share for every client is drawn from Dir(beta, ..., beta); client
k gets floor(share * n) of the class's n rows and what is left over goes to one client drawn at random. The rows of a class
are dealt in their order. Then every class of every client is cut into training, validation and test rows, so that a
client's three parts have the same mix of labels up to rounding. If a client is too small, everything is drawn again.

Departure from the authors' code: the rows of a client's class are shuffled by `split_seed` before they are cut (there the
first rows train), so that one partition can be split in several ways.
"""

import numpy as np

from evenly.federation import Federation, Ragged
from evenly.partitions.rows import Rows, check_clients, client_rows, federate, notation, numbered
from evenly.randomness import Draws


def dirichlet(
    rows: Rows,
    *,
    clients: int = 10,
    beta: float = 0.5,
    shares: tuple[float, float] = (0.8, 0.1),
    min_samples: int = 1,
    tries: int = 1000,
    central: np.ndarray | None = None,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Deal rows to clients by Dirichlet shares of each label.

    `seed` draws who gets which rows, `split_seed` which of them train. `shares` are those of training and validation rows;
    the rest is test. Every client has at least `min_samples` rows (all its parts together) and one training row, or the
    draw is repeated, at most `tries` times. Rows in `central` belong to no client.
    """
    dealt = client_rows(rows, central)
    check_clients("dirichlet", clients, len(dealt))
    _check(beta, shares, tries)
    totals = np.bincount(rows.y[dealt], minlength=len(rows.labels))
    counts = draw_counts(totals, clients=clients, beta=beta, shares=shares, min_samples=min_samples, tries=tries, seed=seed)
    parts = _deal(rows.y, dealt, counts, shares, split_seed)
    return federate(rows, parts, names=numbered(clients), central=central, partition=notation("dirichlet", clients=clients, beta=beta))


def _deal(
    y: np.ndarray, dealt: np.ndarray, counts: np.ndarray, shares: tuple[float, float], split_seed: int
) -> tuple[Ragged, Ragged, Ragged]:
    """Each client's training, validation and test rows, given how many rows of each label it gets."""
    draws = Draws(split_seed, "split")
    clients = counts.shape[1]
    lists: list[list[list[np.ndarray]]] = [[[] for _ in range(clients)] for _ in range(3)]
    for label in range(len(counts)):
        pieces = np.split(dealt[y[dealt] == label], np.cumsum(counts[label])[:-1])
        for k, piece in enumerate(pieces):
            train, valid = cuts(counts[label, k], shares)
            for part, cut in zip(lists, np.split(draws.at(k, label).permutation(piece), [train, train + valid]), strict=True):
                part[k].append(cut)
    train, valid, test = (Ragged.from_lists([np.concatenate(pieces) for pieces in part]) for part in lists)
    return train, valid, test


def draw_counts(
    totals: np.ndarray, *, clients: int, beta: float, shares: tuple[float, float], min_samples: int, tries: int, seed: int
) -> np.ndarray:
    """How many rows of each label each client gets, int64 [labels, clients]; raises when no draw is good enough."""
    draws = Draws(seed, "dirichlet")
    best = 0
    for attempt in range(tries):
        counts = draw_once(totals, clients, beta, draws.at(attempt))
        sizes, training = counts.sum(0), cuts(counts, shares)[0].sum(0)
        if sizes.min() >= min_samples and training.min() >= 1:
            return counts
        best = max(best, int(sizes.min()))
    raise ValueError(
        f"dirichlet: none of {tries} draws gave every client at least {min_samples} rows and one training row ({int(totals.sum())} rows, "
        f"{clients} clients, beta={beta:g}); in the best draw the smallest client had {best}. "
        "Ask for fewer clients, a larger beta or a smaller min_samples."
    )


def draw_once(totals: np.ndarray, clients: int, beta: float, generator: np.random.Generator) -> np.ndarray:
    counts = np.zeros((len(totals), clients), np.int64)
    for label, total in enumerate(totals):
        counts[label] = np.floor(generator.dirichlet(np.full(clients, beta)) * total)
        counts[label, generator.integers(clients)] += total - counts[label].sum()
    return counts


def cuts(n: np.ndarray, shares: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """How many of n rows train and how many validate: floor(share * n), up to binary rounding."""
    train = np.floor(np.round(shares[0] * n, 9)).astype(np.int64)
    return train, np.floor(np.round((shares[0] + shares[1]) * n, 9)).astype(np.int64) - train


def _check(beta: float, shares: tuple[float, float], tries: int) -> None:
    if not (np.isfinite(beta) and beta > 0):
        raise ValueError(f"dirichlet: beta must be a number above 0, got {beta}. Small values make clients differ more.")
    if not (0 < shares[0] <= 1 and shares[1] >= 0 and sum(shares) <= 1 + 1e-9):
        raise ValueError(f"shares must be (train, valid) with 0 < train and train + valid at most 1, got {shares}.")
    if tries < 1:
        raise ValueError(f"dirichlet: tries must be at least 1, got {tries}.")

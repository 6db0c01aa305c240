"""Partitions: functions that assign the rows of a data set to clients and return a federation."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.data.federation import NATURAL, Federation
from evenly.data.sensitive import Attribute, Groups
from evenly.data.splits import Ragged, dealt_rows, split_rows
from evenly.notation import Part
from evenly.randomness import Draws, generator

# Rows without clients, and the last step of every partition.


class Rows(NamedTuple):
    """Examples of a data set. Unlike in `Federation.from_arrays`, images and texts keep their
    dtype.
    """

    x: np.ndarray  # [rows, ...] features
    y: np.ndarray  # [rows] indices into `labels`
    labels: tuple[str, ...]
    name: str
    group: np.ndarray | None = None  # [rows] indices into `groups`
    groups: tuple[str, ...] = ("all",)
    # sensitive attributes whose intersections are the groups
    attributes: tuple[Attribute, ...] = ()
    # indices of the unprivileged groups; all others are privileged
    unprivileged: tuple[int, ...] = (0,)
    favourable: int = 1  # index of the favourable label

    def grouped(self, groups: Groups) -> "Rows":
        """The same rows with these groups."""
        return self._replace(
            group=groups.group,
            groups=groups.names,
            attributes=groups.attributes,
            unprivileged=groups.unprivileged,
        )

    def is_unprivileged(self) -> np.ndarray:
        """Whether each row belongs to an unprivileged group. bool [rows]"""
        return np.isin(
            np.zeros(len(self.y)) if self.group is None else self.group, self.unprivileged
        )


def federate(
    rows: Rows,
    parts: tuple[Ragged, Ragged, Ragged],
    *,
    names: Sequence[str],
    central: np.ndarray | None = None,
    partition: str = NATURAL,
) -> Federation:
    """The federation of these rows, from each client's training, validation and test rows.
    `partition` is its notation in results.
    """
    idle = parts[0].counts == 0
    if idle.any():
        raise ValueError(
            f"Every client must have a training row; client {names[int(idle.argmax())]!r} of"
            f" {rows.name} has none."
        )
    return Federation(
        x=rows.x,
        y=rows.y.astype(np.int32),
        group=(
            np.zeros(len(rows.y), np.int32) if rows.group is None else rows.group.astype(np.int32)
        ),
        train=parts[0],
        valid=parts[1],
        test=parts[2],
        central=np.zeros(0, np.int32) if central is None else np.asarray(central, np.int32),
        name=rows.name,
        partition=partition,
        names=tuple(names),
        labels=rows.labels,
        groups=rows.groups,
        attributes=rows.attributes,
        unprivileged=rows.unprivileged,
        favourable=rows.favourable,
    )


def federate_owners(
    rows: Rows,
    owner: np.ndarray,
    partition: str,
    *,
    clients: int,
    shares: tuple[float, float],
    central: np.ndarray | None,
    split_seed: int,
) -> Federation:
    """The federation in which row i belongs to client `owner[i]`, or to no client where that is -1.
    `split_seed` draws the splits.
    """
    parts = split_rows(owner, clients, shares=shares, seed=split_seed)
    return federate(rows, parts, names=numbered(clients), central=central, partition=partition)


def notation(name: str, **settings: float | str) -> str:
    """The notation of a partition in results, such as `dirichlet(clients=10, beta=0.5)`."""
    return str(Part(name, settings))


def numbered(clients: int) -> tuple[str, ...]:
    """Names for clients without names, which sort in the order of their numbers."""
    return tuple(f"client {k:0{len(str(clients - 1))}d}" for k in range(clients))


def client_rows(rows: Rows, central: np.ndarray | None) -> np.ndarray:
    """Numbers of the rows that clients get: all but those of the central test set."""
    dealt = np.ones(len(rows.y), bool)
    if central is not None:
        dealt[central] = False
    return np.flatnonzero(dealt)


def check_clients(what: str, clients: int, available: int) -> None:
    if not 1 <= clients <= available:
        raise ValueError(
            f"{what}: clients must be between 1 and the number of rows, {available}, got {clients}."
        )


# Clients that are alike: rows are shuffled and dealt evenly (IID).


def equal(
    rows: Rows,
    *,
    clients: int = 10,
    shares: tuple[float, float] = (0.8, 0.1),
    central: np.ndarray | None = None,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Assign rows to clients at random and evenly; sizes differ by at most one. `seed` draws the
    clients, `split_seed` the splits.
    """
    dealt = client_rows(rows, central)
    check_clients("equal", clients, len(dealt))
    owner = np.full(len(rows.y), -1)
    owner[generator(seed, "equal").permutation(dealt)] = np.arange(len(dealt)) % clients
    partition = notation("equal", clients=clients)
    return federate_owners(
        rows,
        owner,
        partition,
        clients=clients,
        shares=shares,
        central=central,
        split_seed=split_seed,
    )


# Clients that the data name themselves: sensors, writers, roles, users.


def natural(
    rows: Rows,
    owner: np.ndarray,
    *,
    names: Sequence[str],
    shares: tuple[float, float] = (0.8, 0.1),
    shuffle: bool = True,
    split_seed: int = 0,
) -> Federation:
    """The federation in which row i belongs to client `names[owner[i]]`, cut into training,
    validation and test rows.

    Without `shuffle` a client's first rows train and its last ones test: for text, where
    neighbouring rows overlap.
    """
    if len(owner) != len(rows.y):
        raise ValueError(
            f"There must be one owner per row, got {len(owner)} for {len(rows.y)} rows."
        )
    parts = split_rows(owner, len(names), shares=shares, seed=split_seed)
    return federate(rows, parts if shuffle else _in_order(parts), names=names)


def _in_order(parts: tuple[Ragged, Ragged, Ragged]) -> tuple[Ragged, Ragged, Ragged]:
    """The same numbers of rows per client and part, but the first rows train, the next validate and
    the last test.
    """
    owner = np.concatenate([np.repeat(np.arange(len(part.counts)), part.counts) for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    train, valid, test = parts
    return dealt_rows(rows[np.lexsort((rows, owner))], (train.counts, valid.counts, test.counts))


def choose_clients(
    sizes: np.ndarray,
    *,
    clients: int = 0,
    min_samples: int = 1,
    max_samples: int = 0,
    seed: int = 0,
    what: str = "data",
) -> np.ndarray:
    """Numbers of clients, in ascending order: `clients` of them (0 means all), drawn by `seed` from
    those whose sizes are within bounds.
    """
    fits = np.flatnonzero(
        (sizes >= max(1, min_samples)) & ((sizes <= max_samples) | (max_samples == 0))
    )
    if len(fits) < max(1, clients):
        bound = f" and at most {max_samples}" if max_samples else ""
        raise ValueError(
            f"{what}: {clients or 'some'} clients with at least {min_samples}{bound} samples are"
            f" required, but only {len(fits)} of {len(sizes)} qualify. Choose fewer clients or"
            " other limits."
        )
    return np.sort(generator(seed, "clients").permutation(fits)[:clients]) if clients else fits


# Data with a test set of their own: each client is tested on its official test rows, and validation
# rows are taken from training.


def official(
    rows: Rows,
    owner: np.ndarray,
    tested: np.ndarray,
    *,
    names: Sequence[str],
    valid: float = 0.1,
    split_seed: int = 0,
) -> Federation:
    """The federation in which row i belongs to client `names[owner[i]]` and is a test row where
    `tested`.

    A share `valid` of every client's other rows, drawn by `split_seed`, is for validation; the test
    rows never change.
    """
    if not 0 <= valid < 1:
        raise ValueError(
            f"valid must be a share of the training rows, at least 0 and below 1, got {valid}."
        )
    train, validation, _ = split_rows(
        np.where(tested, -1, owner), len(names), shares=(1 - valid, valid), seed=split_seed
    )
    test_rows = np.flatnonzero(tested)
    test_rows = test_rows[np.argsort(owner[test_rows], kind="stable")]
    ends = np.cumsum(np.bincount(owner[test_rows], minlength=len(names)))
    test = Ragged(test_rows.astype(np.int32), np.concatenate([[0], ends]).astype(np.int64))
    return federate(rows, (train, validation, test), names=names)


# Clients that see the labels in different proportions.
#
# Hsu et al. (2019), as PropFair uses it: for each class a share for every client is drawn from
# Dir(beta, ..., beta); client k gets floor(share * n) of the class's n rows and what is left over
# goes to one client drawn at random. The rows of a class are dealt in their order. Then every class
# of every client is cut into training, validation and test rows, so that a client's three parts
# have the same mix of labels up to rounding. If a client is too small, everything is drawn again.
#
# Departure from the authors' code: the rows of a client's class are shuffled by `split_seed` before
# they are cut (there the first rows train), so that one partition can be split in several ways.


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

    `seed` draws who gets which rows, `split_seed` which of them train. `shares` are those of
    training and validation rows; the rest is test. Every client has at least `min_samples` rows
    (all its parts together) and one training row, or the draw is repeated, at most `tries` times.
    Rows in `central` belong to no client.
    """
    dealt = client_rows(rows, central)
    check_clients("dirichlet", clients, len(dealt))
    _check(beta, shares, tries)
    totals = np.bincount(rows.y[dealt], minlength=len(rows.labels))
    counts = draw_counts(
        totals,
        clients=clients,
        beta=beta,
        shares=shares,
        min_samples=min_samples,
        tries=tries,
        seed=seed,
    )
    parts = _deal(rows.y, dealt, counts, shares, split_seed)
    return federate(
        rows,
        parts,
        names=numbered(clients),
        central=central,
        partition=notation("dirichlet", clients=clients, beta=beta),
    )


def _deal(
    y: np.ndarray,
    dealt: np.ndarray,
    counts: np.ndarray,
    shares: tuple[float, float],
    split_seed: int,
) -> tuple[Ragged, Ragged, Ragged]:
    """Each client's training, validation and test rows, given how many rows of each label
    it gets.
    """
    draws = Draws(split_seed, "split")
    clients = counts.shape[1]
    lists: list[list[list[np.ndarray]]] = [[[] for _ in range(clients)] for _ in range(3)]
    for label in range(len(counts)):
        pieces = np.split(dealt[y[dealt] == label], np.cumsum(counts[label])[:-1])
        for k, piece in enumerate(pieces):
            train, valid = cuts(counts[label, k], shares)
            for part, cut in zip(
                lists,
                np.split(draws.at(k, label).permutation(piece), [train, train + valid]),
                strict=True,
            ):
                part[k].append(cut)
    train, valid, test = (
        Ragged.from_lists([np.concatenate(pieces) for pieces in part]) for part in lists
    )
    return train, valid, test


def draw_counts(
    totals: np.ndarray,
    *,
    clients: int,
    beta: float,
    shares: tuple[float, float],
    min_samples: int,
    tries: int,
    seed: int,
) -> np.ndarray:
    """How many rows of each label each client gets, int64 [labels, clients]; raises when no draw is
    good enough.
    """
    draws = Draws(seed, "dirichlet")

    def legal(counts: np.ndarray) -> bool:
        return counts.sum(0).min() >= min_samples and cuts(counts, shares)[0].sum(0).min() >= 1

    demand = f"dirichlet, beta={beta:g}, {min_samples} rows and one training row"
    return first_legal(
        (draw_once(totals, clients, beta, draws.at(attempt)) for attempt in range(tries)),
        legal,
        demand,
    )


def first_legal(
    drawn: Iterable[np.ndarray], legal: Callable[[np.ndarray], Any], demand: str
) -> np.ndarray:
    """The first legal draw of counts [..., clients]. `demand` is what the error names: "partition,
    setting=value, rows".
    """
    partition, setting, least = demand.split(", ")
    best, tries, counts = 0, 0, np.zeros((1, 0))
    for tries, counts in enumerate(drawn, 1):  # noqa: B007
        if legal(counts):
            return counts
        best = max(best, int(counts.reshape(-1, counts.shape[-1]).sum(0).min()))
    raise ValueError(
        f"{partition}: none of {tries} draws gave every client at least {least}"
        f" ({int(counts.sum())} rows, {counts.shape[-1]} clients, {setting}); in the best draw the"
        f" smallest client had {best}. Choose fewer clients, a larger {setting.partition('=')[0]}"
        " or a smaller min_samples."
    )


def draw_once(
    totals: np.ndarray, clients: int, beta: float, generator: np.random.Generator
) -> np.ndarray:
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
        raise ValueError(
            f"dirichlet: beta must be a number above 0, got {beta}. Small values make clients"
            " differ more."
        )
    if not (0 < shares[0] <= 1 and shares[1] >= 0 and sum(shares) <= 1 + 1e-9):
        raise ValueError(
            "shares must be (train, valid) with 0 < train and train + valid at most 1, got"
            f" {shares}."
        )
    if tries < 1:
        raise ValueError(f"dirichlet: tries must be at least 1, got {tries}.")


# Clients that see kinds of rows (strata) in different proportions: groups, or groups and labels
# together.
#
# For each stratum a share for every client is drawn from Dir(alpha, ..., alpha), independently of
# the other strata; client k gets floor(share * n) of its n rows and what is left over goes to one
# client drawn at random. If a client is too small, everything is drawn again. Which rows of a
# stratum a client gets is drawn too, and so are its validation rows.


def deal_by_shares(
    what: str,
    rows: Rows,
    strata: np.ndarray,
    *,
    clients: int,
    alpha: float,
    min_samples: int,
    tries: int,
    shares: tuple[float, float],
    central: np.ndarray | None,
    seed: int,
    split_seed: int,
) -> Federation:
    """Deal every stratum (a number for each row) by Dirichlet shares of its own."""
    dealt = client_rows(rows, central)
    check_clients(what, clients, len(dealt))
    if not (np.isfinite(alpha) and alpha > 0):
        raise ValueError(
            f"{what}: alpha must be a number above 0, got {alpha}. Small values make clients differ"
            " more."
        )
    if tries < 1:
        raise ValueError(f"{what}: tries must be at least 1, got {tries}.")
    totals = np.bincount(strata[dealt])
    counts = draw_shares(
        what, totals, clients=clients, alpha=alpha, min_samples=min_samples, tries=tries, seed=seed
    )
    owner = deal_counts(strata, dealt, counts, seed)
    partition = notation(what, clients=clients, alpha=alpha)
    return federate_owners(
        rows,
        owner,
        partition,
        clients=clients,
        shares=shares,
        central=central,
        split_seed=split_seed,
    )


def draw_shares(
    what: str,
    totals: np.ndarray,
    *,
    clients: int,
    alpha: float,
    min_samples: int,
    tries: int,
    seed: int,
) -> np.ndarray:
    """How many rows of each stratum each client gets, int64 [strata, clients]; raises when no draw
    is good enough.
    """
    draws, least = Draws(seed, what), max(1, min_samples)
    drawn = (draw_once(totals, clients, alpha, draws.at(attempt)) for attempt in range(tries))
    return first_legal(
        drawn, lambda counts: counts.sum(0).min() >= least, f"{what}, alpha={alpha:g}, {least} rows"
    )


def deal_counts(strata: np.ndarray, dealt: np.ndarray, counts: np.ndarray, seed: int) -> np.ndarray:
    """The client of every row, or -1 for rows of no client, from the number of rows of each stratum
    that each client gets.

    The rows of a stratum are shuffled first; those beyond the clients' counts belong to no client.
    """
    owner = np.full(len(strata), -1)
    for stratum, wanted in enumerate(counts):
        mine = generator(seed, "deal", stratum).permutation(dealt[strata[dealt] == stratum])
        owner[mine[: wanted.sum()]] = np.repeat(np.arange(len(wanted)), wanted)
    return owner


# Clients whose people are of different groups: every group is dealt by Dirichlet shares of its own.
#
# Ezzeldin et al., "FairFed: Enabling Group Fairness in Federated Learning" (AAAI 2023), and the
# FedCvg-Ratio study deal so: a small alpha leaves some clients with hardly anyone of a group, a
# large one makes all clients alike. Labels follow the groups: within a group, all clients see the
# same mix of labels but for chance.

ATTRIBUTE = "dirichlet-attribute"


def dirichlet_attribute(
    rows: Rows,
    *,
    clients: int = 5,
    alpha: float = 0.5,
    shares: tuple[float, float] = (0.9, 0.1),
    min_samples: int = 100,
    tries: int = 1000,
    central: np.ndarray | None = None,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Deal rows to clients by Dirichlet shares of each group.

    `seed` draws who gets which rows, `split_seed` which of them validate. `shares` are those of
    training and validation rows (what is left tests). Every client has at least `min_samples` rows,
    all its parts together, or the draw is repeated, at most `tries` times. Rows in `central` belong
    to no client.
    """
    strata = np.zeros(len(rows.y), np.int64) if rows.group is None else rows.group
    return deal_by_shares(
        ATTRIBUTE, rows, strata, clients=clients, alpha=alpha, min_samples=min_samples, tries=tries,
        shares=shares, central=central, seed=seed, split_seed=split_seed,
    )  # fmt: skip


# Clients that differ in groups and in labels: every combination of a group and a label is dealt by
# Dirichlet shares of its own.
#
# Unlike `dirichlet-attribute`, a group's rate of favourable labels then differs from client to
# client, so that local fairness says little about global fairness.

LABEL_ATTRIBUTE = "dirichlet-label-attribute"


def dirichlet_label_attribute(
    rows: Rows,
    *,
    clients: int = 5,
    alpha: float = 0.5,
    shares: tuple[float, float] = (0.9, 0.1),
    min_samples: int = 100,
    tries: int = 1000,
    central: np.ndarray | None = None,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Deal rows to clients by Dirichlet shares of each combination of group and label; see
    `dirichlet_attribute`.
    """
    strata = (
        rows.y if rows.group is None else rows.group.astype(np.int64) * len(rows.labels) + rows.y
    )
    return deal_by_shares(
        LABEL_ATTRIBUTE, rows, strata, clients=clients, alpha=alpha, min_samples=min_samples,
        tries=tries, shares=shares, central=central, seed=seed, split_seed=split_seed,
    )  # fmt: skip

"""A federation: every example once, and for each client the numbers of its rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.encoding import Encoder, fit_encoder, words
from evenly.randomness import Draws
from evenly.records import record, replace, static

SPLITS = ("train", "valid", "test")
MOST_CLASSES = 1000


class Shard(NamedTuple):
    """Rows of one client, or a batch of them. The group (sensitive attribute) travels with the data."""

    x: Any  # [n, ...]
    y: Any  # [n]
    group: Any  # [n]
    weight: Any  # [n], 1 unless rows were reweighed
    mask: Any  # [n], 0 marks padding


class Ragged(NamedTuple):
    """One list of row numbers per client, laid end to end."""

    rows: np.ndarray  # int32 [total]
    offsets: np.ndarray  # int64 [clients + 1]

    @property
    def counts(self) -> np.ndarray:
        return np.diff(self.offsets)

    def of(self, client: int) -> np.ndarray:
        return self.rows[self.offsets[client] : self.offsets[client + 1]]

    @staticmethod
    def from_lists(lists: Sequence[np.ndarray]) -> "Ragged":
        offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in lists])]).astype(np.int64)
        return Ragged(np.concatenate(lists).astype(np.int32) if lists else np.zeros(0, np.int32), offsets)


class Census(NamedTuple):
    """What is known of every registered client before training."""

    examples: np.ndarray  # [clients] training rows
    cells: np.ndarray  # [clients, groups, labels] training rows


@record
class Federation:
    """Every example once, and per-client row numbers for training, validation and test."""

    x: np.ndarray  # [rows, ...]
    y: np.ndarray  # int32 [rows]
    group: np.ndarray  # int32 [rows]
    weight: np.ndarray | None = None  # float32 [rows]; None: all ones
    train: Ragged
    valid: Ragged
    test: Ragged
    central: np.ndarray  # rows of a central test set; may be empty
    client_group: np.ndarray | None = None  # int32 [clients], where whole clients belong to groups
    name: str = static("data")
    names: tuple[str, ...] = static()
    labels: tuple[str, ...] = static()
    groups: tuple[str, ...] = static(("all",))
    encoder: Encoder | None = static(None)

    @property
    def clients(self) -> int:
        return len(self.names)

    def split(self, name: str) -> Ragged:
        return {"train": self.train, "valid": self.valid, "test": self.test}[name]

    def census(self) -> Census:
        owner = np.repeat(np.arange(self.clients), self.train.counts)
        cells = np.zeros((self.clients, len(self.groups), len(self.labels)), np.int64)
        np.add.at(cells, (owner, self.group[self.train.rows], self.y[self.train.rows]), 1)
        return Census(self.train.counts, cells)

    @staticmethod
    def from_arrays(
        x: Any,
        y: Any,
        client: Any,
        *,
        group: Any = None,
        shares: tuple[float, float] = (0.8, 0.1),
        seed: int = 0,
        name: str = "data",
    ) -> "Federation":
        """A federation from parallel arrays: features, labels, client of each row and, if any, group of each row.

        Each client's rows are shuffled by `seed` and cut into training, validation and test rows; `shares` are the first
        two shares, and a client always keeps at least one training row.
        """
        x, y, client = np.asarray(x), np.asarray(y), np.asarray(client)
        group = np.full(len(y), "all") if group is None else np.asarray(group)
        _check_arrays(x, y, client, group)
        names, owner = np.unique(client.astype(str) if client.dtype.kind == "O" else client, return_inverse=True)
        labels, classes = np.unique(y.astype(str) if y.dtype.kind == "O" else y, return_inverse=True)
        groups, members = np.unique(group.astype(str) if group.dtype.kind == "O" else group, return_inverse=True)
        _check_labels(labels)
        parts = split_rows(owner, len(names), shares=shares, seed=seed)
        return Federation(
            x=x.astype(np.float32) if x.dtype.kind in "fiub" and x.ndim == 2 else x,
            y=classes.astype(np.int32),
            group=members.astype(np.int32),
            train=parts[0],
            valid=parts[1],
            test=parts[2],
            central=np.zeros(0, np.int32),
            name=name,
            names=tuple(str(n) for n in names),
            labels=tuple(str(c) for c in labels),
            groups=tuple(str(g) for g in groups),
        )

    @staticmethod
    def from_frame(
        frame: Any,
        *,
        client: str,
        label: str,
        sensitive: str | Sequence[str] = (),
        features: Sequence[str] | None = None,
        shares: tuple[float, float] = (0.8, 0.1),
        seed: int = 0,
        name: str = "table",
    ) -> "Federation":
        """A federation from a table with one row per example.

        Sensitive columns define the groups (several: their intersections) and are not features unless `features` names
        them. How columns become numbers is described in `evenly.encoding`.
        """
        sensitive = [sensitive] if isinstance(sensitive, str) else list(sensitive)
        _check_columns(frame, [client, label, *sensitive, *(features or [])])
        for column in (client, label, *sensitive):
            gone = np.asarray(frame[column].isna(), bool)
            if gone.any():
                raise ValueError(f"Column {column!r} must be filled in every row; row {int(gone.argmax())} is empty. Fill or drop it.")
        chosen = list(features) if features is not None else [c for c in frame.columns if c not in {client, label, *sensitive}]
        group = intersection(frame, sensitive) if sensitive else None
        owner = words(frame[client])
        blank = np.zeros((len(owner), 1), np.float32)
        federation = Federation.from_arrays(
            blank, _labels(frame[label]), owner, group=group, shares=shares, seed=seed, name=name
        )
        encoder = fit_encoder(frame, chosen, federation.train.rows)
        return replace(federation, x=encoder.encode(frame), encoder=encoder)


def split_rows(owner: np.ndarray, clients: int, *, shares: tuple[float, float], seed: int) -> tuple[Ragged, Ragged, Ragged]:
    """Shuffle each client's rows and cut them at floor(share * n), with at least one training row."""
    first, second = shares
    if not (0 < first <= 1 and 0 <= second and first + second <= 1 + 1e-9):
        raise ValueError(f"shares must be (train, valid) with 0 < train and train + valid at most 1, got {shares}.")
    draws = Draws(seed, "split")
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(clients + 1))
    lists: tuple[list[np.ndarray], ...] = ([], [], [])
    for k in range(clients):
        rows = draws.at(k).permutation(order[bounds[k] : bounds[k + 1]])
        # Rounded first: 0.8 + 0.1 is a hair under 0.9 in binary and would cut one row early.
        cut = max(1, int(np.floor(round(first * len(rows), 9)))), int(np.floor(round((first + second) * len(rows), 9)))
        for part, piece in zip(lists, np.split(rows, [cut[0], max(cut)]), strict=True):
            part.append(piece)
    return Ragged.from_lists(lists[0]), Ragged.from_lists(lists[1]), Ragged.from_lists(lists[2])


def intersection(frame: Any, columns: Sequence[str]) -> np.ndarray:
    """One group name per row from one or several sensitive columns."""
    parts = [words(frame[c]) for c in columns]
    if len(columns) == 1:
        return parts[0]
    return np.array([", ".join(f"{c}={p[i]}" for c, p in zip(columns, parts, strict=True)) for i in range(len(parts[0]))], dtype=object)


def _labels(values: Any) -> np.ndarray:
    raw = np.asarray(values)
    return raw if raw.dtype.kind in "iub" else words(values) if raw.dtype.kind != "f" else raw


def _check_columns(frame: Any, wanted: Sequence[str]) -> None:
    missing = [c for c in wanted if c not in frame.columns]
    if missing:
        raise ValueError(f"The table must have the column {missing[0]!r}; it has {', '.join(map(str, frame.columns))}.")
    if len(frame) == 0:
        raise ValueError("The table must have at least one row; it is empty.")


def _check_arrays(x: np.ndarray, y: np.ndarray, client: np.ndarray, group: np.ndarray) -> None:
    if not len(x) == len(y) == len(client) == len(group):
        raise ValueError(f"x, y, client and group must have one entry per row, got {len(x)}, {len(y)}, {len(client)} and {len(group)}.")
    if len(y) == 0:
        raise ValueError("A federation must have at least one row, got none.")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        row = int(np.argwhere(~np.isfinite(x.reshape(len(x), -1)).all(axis=1))[0, 0])
        raise ValueError(
            f"Features must be finite, but row {row} holds NaN or infinity. Impute or drop such rows; "
            "Federation.from_frame does it for tables."
        )


def _check_labels(labels: np.ndarray) -> None:
    if len(labels) < 2:
        raise ValueError(f"Labels must have at least two classes, got only {str(labels[0])!r}. Check the label column.")
    if len(labels) > MOST_CLASSES:
        raise ValueError(
            f"Labels must be classes, at most {MOST_CLASSES} of them; got {len(labels)} distinct values. "
            "If the label is a number to be predicted, cut it into classes first."
        )

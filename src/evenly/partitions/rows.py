"""Rows before they belong to anyone, and the last step of every partition."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evenly.federation import NATURAL, Attribute, Federation, Ragged
from evenly.notation import Part
from evenly.sensitive import Groups


class Rows(NamedTuple):
    """Examples of a data set. Unlike `Federation.from_arrays`, nothing is converted: images and texts keep their dtype."""

    x: np.ndarray  # [rows, ...]
    y: np.ndarray  # [rows], numbers into `labels`
    labels: tuple[str, ...]
    name: str
    group: np.ndarray | None = None  # [rows], numbers into `groups`
    groups: tuple[str, ...] = ("all",)
    attributes: tuple[Attribute, ...] = ()  # what the groups are made of
    unprivileged: tuple[int, ...] = (0,)  # groups; all others are privileged
    favourable: int = 1  # label

    def grouped(self, groups: Groups) -> "Rows":
        """The same rows with these groups."""
        return self._replace(group=groups.group, groups=groups.names, attributes=groups.attributes, unprivileged=groups.unprivileged)

    def is_unprivileged(self) -> np.ndarray:
        """Whether each row is of an unprivileged group, bool [rows]."""
        return np.isin(np.zeros(len(self.y)) if self.group is None else self.group, self.unprivileged)


def federate(
    rows: Rows, parts: tuple[Ragged, Ragged, Ragged], *, names: Sequence[str], central: np.ndarray | None = None, partition: str = NATURAL
) -> Federation:
    """The federation of these rows, given each client's rows for training, validation and test.

    `partition` says how rows came to clients; see `notation`.
    """
    idle = parts[0].counts == 0
    if idle.any():
        raise ValueError(f"Every client must have a training row; client {names[int(idle.argmax())]!r} of {rows.name} has none.")
    return Federation(
        x=rows.x,
        y=rows.y.astype(np.int32),
        group=np.zeros(len(rows.y), np.int32) if rows.group is None else rows.group.astype(np.int32),
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


def notation(name: str, **settings: float | str) -> str:
    """A partition as results name it: `dirichlet(clients=10, beta=0.5)`."""
    return str(Part(name, settings))


def numbered(clients: int) -> tuple[str, ...]:
    """Names of clients that have none of their own; they sort as they count."""
    return tuple(f"client {k:0{len(str(clients - 1))}d}" for k in range(clients))


def client_rows(rows: Rows, central: np.ndarray | None) -> np.ndarray:
    """The numbers of the rows to deal: all but those of the central test set."""
    dealt = np.ones(len(rows.y), bool)
    if central is not None:
        dealt[central] = False
    return np.flatnonzero(dealt)


def check_clients(what: str, clients: int, available: int) -> None:
    if not 1 <= clients <= available:
        raise ValueError(f"{what}: clients must be between 1 and the number of rows, {available}, got {clients}.")

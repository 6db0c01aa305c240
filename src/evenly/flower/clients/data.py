"""What one client holds: its rows, and how labels and groups are numbered everywhere."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from evenly.data.federation import Federation
from evenly.data.splits import SPLITS
from evenly.records import require


class Rows(NamedTuple):
    """Some of a client's rows, in the order in which batches number them."""

    x: np.ndarray
    y: np.ndarray  # label numbers
    group: np.ndarray  # group numbers; all 0 where there are none
    weight: np.ndarray  # how much each row counts in the client's loss, 1 unless the data say otherwise

    @property
    def size(self) -> int:
        return len(self.y)


NO_ROWS = Rows(np.zeros((0, 1)), np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))


class ClientData(NamedTuple):
    """One client: training, validation and test rows, and what the whole federation agrees on."""

    train: Rows
    valid: Rows
    test: Rows
    labels: tuple[str, ...]
    groups: tuple[str, ...] = ("all",)
    unprivileged: tuple[int, ...] = (0,)
    favourable: int = 1
    number: int | None = None  # among all clients, where that is known
    name: str = ""
    client_group: int | None = None  # where whole clients belong to groups

    @property
    def splits(self) -> dict[str, Rows]:
        return {"train": self.train, "valid": self.valid, "test": self.test}

    @property
    def shape(self) -> tuple[int, int]:
        """How many groups and labels there are, here and everywhere."""
        return len(self.groups), len(self.labels)

    @property
    def cells(self) -> np.ndarray:
        """Training rows by group and label. [groups, labels]"""
        cells = np.zeros(self.shape, np.int64)
        np.add.at(cells, (self.train.group, self.train.y), 1)
        return cells


Source = Federation | ClientData | Callable[[Any], ClientData]  # the last from Flower's context


def rows(x: Any, y: Any, group: Any = None, weight: Any = None) -> Rows:
    """Rows from parallel arrays; without groups everybody is in group 0."""
    x, y = np.asarray(x), np.asarray(y, np.int32)
    group = np.zeros(len(y), np.int32) if group is None else np.asarray(group, np.int32)
    weight = np.ones(len(y), np.float32) if weight is None else np.asarray(weight, np.float32)
    lengths = {"x": len(x), "y": len(y), "group": len(group), "weight": len(weight)}
    require(len(set(lengths.values())) == 1, f"There must be one entry per row everywhere, got {lengths}.")
    return Rows(x, y, group, weight)


def client_of(federation: Federation, number: int) -> ClientData:
    """The client with this number, from 0."""
    require(
        0 <= number < federation.clients,
        f"The federation has clients 0 to {federation.clients - 1}, got {number}. Check partition-id in the node's config.",
    )
    weight = np.ones(len(federation.y), np.float32) if federation.weight is None else federation.weight
    parts = []
    for split in SPLITS:
        own = federation.split(split).of(number)
        parts.append(rows(federation.x[own], federation.y[own], federation.group[own], weight[own]))
    return ClientData(
        *parts, labels=federation.labels, groups=federation.groups, unprivileged=federation.unprivileged, favourable=federation.favourable,
        number=number, name=federation.names[number],
        client_group=None if federation.client_group is None else int(federation.client_group[number]),
    )  # fmt: skip


def client_from(source: Source, context: Any) -> ClientData:
    """The data of the client whose context this is."""
    if isinstance(source, ClientData):
        return source
    if isinstance(source, Federation):
        return client_of(source, partition(context.node_config))
    return source(context)


def partition(node_config: Mapping[str, Any]) -> int:
    """Which client of a federation a node is."""
    if "partition-id" not in node_config:
        raise ValueError(
            'A node takes its client from "partition-id" in its config, which is missing. Start the SuperNode with '
            '--node-config "partition-id=0 num-partitions=10", or give the app the client\'s own data.'
        )
    return int(node_config["partition-id"])

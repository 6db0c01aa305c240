"""Data of one client: its rows, their batches, and the metrics that are computed on them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.data.federation import Federation
from evenly.data.sensitive import Attribute
from evenly.data.splits import SPLITS
from evenly.flower import wire
from evenly.metrics.score_cells import counts_of_cells, score_cells
from evenly.parts.work import row_rate
from evenly.randomness import Draws, fill_poisson, poisson_room, poisson_steps
from evenly.randomness import batches as drawn
from evenly.records import require
from evenly.types import Work

# What one client holds: its rows, and how labels and groups are numbered everywhere.


class ClientRows(NamedTuple):
    """Rows of a client, in the order in which batches number them."""

    x: np.ndarray
    y: np.ndarray  # label numbers
    group: np.ndarray  # group numbers; all 0 where there are none
    # how much each row counts in the client's loss, 1 unless the data say otherwise
    weight: np.ndarray

    @property
    def size(self) -> int:
        return len(self.y)


NO_ROWS = ClientRows(
    np.zeros((0, 1)), np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32)
)


class Decisions(NamedTuple):
    """What a model of the client's own decides on its test rows."""

    outcome: np.ndarray  # label numbers
    score: np.ndarray | None = None  # probabilities of the favourable label


class ClientData(NamedTuple):
    """Training, validation and test rows of one client, and the names that all clients share."""

    train: ClientRows
    valid: ClientRows
    test: ClientRows
    labels: tuple[str, ...]
    groups: tuple[str, ...] = ("all",)
    unprivileged: tuple[int, ...] = (0,)
    favourable: int = 1
    number: int | None = None  # among all clients, where that is known
    name: str = ""
    client_group: int | None = None  # where whole clients belong to groups
    decisions: "Decisions | None" = None  # of the client's own model, for audits
    # the sensitive attributes that groups are made of: name, values, and the value of each group
    attributes: tuple[Attribute, ...] = ()
    # what nobody named: "favourable", or attributes whose unprivileged value was determined
    assumed: tuple[str, ...] = ()

    @property
    def splits(self) -> dict[str, ClientRows]:
        return {"train": self.train, "valid": self.valid, "test": self.test}

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of groups and labels in the federation."""
        return len(self.groups), len(self.labels)

    @property
    def cells(self) -> np.ndarray:
        """Training rows by group and label. [groups, labels]"""
        cells = np.zeros(self.shape, np.int64)
        np.add.at(cells, (self.train.group, self.train.y), 1)
        return cells


def rows_apart(x: np.ndarray) -> np.ndarray:
    """For each feature, how many rows do not have its middle value: the value of most rows, where
    there is one. [features]

    >>> rows_apart(np.array([[0.0, 1.5], [0.0, 2.5], [7.0, 3.5]])).tolist()
    [1, 2]
    """
    flat = np.asarray(x).reshape(len(x), -1)
    return (flat != np.partition(flat, len(x) // 2, axis=0)[len(x) // 2]).sum(0)


Source = Federation | ClientData | Callable[[Any], ClientData]  # the last from Flower's context


def rows(x: Any, y: Any, group: Any = None, weight: Any = None) -> ClientRows:
    """Rows from parallel arrays; without groups, all rows are in group 0."""
    x, y = np.asarray(x), np.asarray(y, np.int32)
    group = np.zeros(len(y), np.int32) if group is None else np.asarray(group, np.int32)
    weight = np.ones(len(y), np.float32) if weight is None else np.asarray(weight, np.float32)
    lengths = {"x": len(x), "y": len(y), "group": len(group), "weight": len(weight)}
    require(
        len(set(lengths.values())) == 1,
        f"All arrays must have one entry per row, got lengths {lengths}.",
    )
    return ClientRows(x, y, group, weight)


def client_of(federation: Federation, number: int) -> ClientData:
    """Data of the client with this number, from 0."""
    require(
        0 <= number < federation.clients,
        f"The federation has clients 0 to {federation.clients - 1}, got {number}. Check"
        " partition-id in the node's config.",
    )
    weight = (
        np.ones(len(federation.y), np.float32) if federation.weight is None else federation.weight
    )
    parts = []
    for split in SPLITS:
        own = federation.split(split).of(number)
        parts.append(rows(federation.x[own], federation.y[own], federation.group[own], weight[own]))
    return ClientData(
        *parts,
        labels=federation.labels,
        groups=federation.groups,
        unprivileged=federation.unprivileged,
        favourable=federation.favourable,
        number=number,
        name=federation.names[number],
        client_group=None
        if federation.client_group is None
        else int(federation.client_group[number]),
        attributes=federation.attributes,
    )


def client_from(source: Source, context: Any) -> ClientData:
    """Data of the client that a context belongs to."""
    if isinstance(source, ClientData):
        return source
    if isinstance(source, Federation):
        return client_of(source, partition(context.node_config))
    return source(context)


def partition(node_config: Mapping[str, Any]) -> int:
    """Number of a node's client, from its config."""
    if "partition-id" not in node_config:
        raise ValueError(
            'A node takes its client from "partition-id" in its config, which is missing. Start the'
            ' SuperNode with --node-config "partition-id=0 num-partitions=10", or give the app the'
            " client's own data."
        )
    return int(node_config["partition-id"])


# The simulator's own batches, for a client elsewhere.
#
# Batches are drawn by (seed, round, client) and by nothing else, so a client that knows those three
# visits its rows in the very order in which a simulation would have visited them.

PADDING = -1


def batches(
    seed: int,
    server_round: int,
    client: int,
    rows: int,
    *,
    epochs: int = 1,
    size: int = 10,
    shuffle: bool = True,
    max_steps: int = 0,
) -> np.ndarray:
    """Numbers of a client's training rows in each batch, the same as in the simulator. Short
    batches end with -1. int32 [steps, size]

    Rounds count from 1, as Flower's do, and rows from 0 in the order in which the client holds
    them.
    """
    require(server_round >= 1, f"server_round must be at least 1, got {server_round}.")
    require(rows >= 1, f"Client {client} has no training rows, so there are no batches.")
    generator = Draws(seed, "batches").at(server_round - 1, client) if shuffle else None
    return drawn(
        np.arange(rows, dtype=np.int32),
        size,
        epochs=epochs,
        shuffle=generator,
        padding=PADDING,
        most=max_steps or None,
    )


def batches_of(work: Work, seed: int, server_round: int, client: int, rows: int) -> np.ndarray:
    """Batches of a round for this kind of work."""
    if rate := row_rate(work):
        require(rows >= 1, f"Client {client} has no training rows, so there are no batches.")
        steps = poisson_steps(rate, work.epochs, work.max_steps)
        numbers = np.full((steps, poisson_room(rows, rate)), PADDING, np.int32)
        own = Draws(seed, "poisson").at(server_round - 1, client)
        fill_poisson(numbers, np.arange(rows, dtype=np.int32), rate, own)
        return numbers
    return batches(
        seed, server_round, client, rows,
        epochs=work.epochs, size=work.batch_size, shuffle=work.shuffle, max_steps=work.max_steps,
    )  # fmt: skip


# What a client reveals, as numbers: signals about the model it received, and counts for the report.

Metrics = dict[str, Any]  # whole numbers, floats and lists of them: what a MetricRecord may hold


class RowOutcomes(NamedTuple):
    """Loss and predicted label of each row."""

    losses: np.ndarray  # [n]
    outcome: np.ndarray  # [n] label numbers


Look = Callable[[ClientRows], RowOutcomes]
LOOKS = frozenset({"loss", "table", "cell_loss"})  # needs for which a model is looked at


def census(client: ClientData) -> Metrics:
    """Metrics of the census: counts of training rows, and the number and group of the client."""
    found: Metrics = {wire.EXAMPLES: client.train.size}
    wire.put(found, wire.CELLS, client.cells)
    if client.number is not None:
        found[wire.CLIENT] = client.number
    if client.client_group is not None:
        found[wire.CLIENT_GROUP] = client.client_group
    return found


def about(client: ClientData) -> dict[str, Any]:
    """Names of the client, its labels and groups: the second record of the census."""
    return (
        ({"name": client.name} if client.name else {})
        | {
            "labels": list(client.labels),
            "groups": list(client.groups),
            "unprivileged": list(client.unprivileged),
            "favourable": client.favourable,
        }
        | _attributes(client)
    )


def _attributes(client: ClientData) -> dict[str, Any]:
    """Attributes in the words of a config record: the value of each group, for each attribute, and
    its unprivileged value; and what nobody named.
    """
    found: dict[str, Any] = {"assumed": list(client.assumed)} if client.assumed else {}
    for one in client.attributes:
        found[wire.ATTRIBUTE + one.name] = [one.values[v] for v in one.of_group]
        if one.unprivileged >= 0:
            found[wire.SIDE + one.name] = one.values[one.unprivileged]
    return found


def signals(
    client: ClientData,
    needs: frozenset[str],
    look: Look,
    *,
    penalty: float = 0.0,
    reduction: str = "mean",
) -> Metrics:
    """Signals of the received model on all training rows, or on validation rows for `valid_table`.
    All rows count equally.
    """
    rows = client.train
    found: Metrics = {wire.EXAMPLES: rows.size}
    if "unprivileged" in needs:
        found[wire.UNPRIVILEGED] = int(np.isin(rows.group, client.unprivileged).sum())
    if "valid_table" in needs:
        wire.put(found, wire.VALID_TABLE, outcomes(client, client.valid, look))
    if needs & LOOKS:
        found |= signals_from_outcomes(
            look(rows),
            rows.y,
            rows.group,
            needs,
            shape=client.shape,
            penalty=penalty,
            reduction=reduction,
        )
    return found


def signals_from_outcomes(
    seen: RowOutcomes,
    y: np.ndarray,
    group: np.ndarray,
    needs: frozenset[str],
    *,
    shape: tuple[int, int],
    penalty: float = 0.0,
    reduction: str = "mean",
) -> Metrics:
    """Signals from the outcomes of all rows; `shape` is the numbers of groups and labels."""
    found: Metrics = {}
    if "loss" in needs:
        total = float(np.sum(seen.losses, dtype=np.float64))
        found[wire.LOSS] = (total / max(len(y), 1) if reduction == "mean" else total) + penalty
    if "table" in needs:
        wire.put(found, wire.TABLE, table(y, group, seen.outcome, shape))
    if "cell_loss" in needs:
        cells = np.zeros(shape)
        np.add.at(cells, (group, y), seen.losses)
        wire.put(found, wire.CELL_LOSS, cells)
    return found


def evaluation_metrics(
    client: ClientData, look: Look, splits: Sequence[str] = SPLITS, *, losses: bool = True
) -> Metrics:
    """Counts and mean losses on test rows and, with prefix train- or valid-, on the others; no loss
    without rows, or if there are to be no losses.
    """
    found: Metrics = {}
    for split in splits:
        own, prefix = client.splits[split], "" if split == "test" else f"{split}-"
        seen = _outcomes_of(own, look)
        found[prefix + wire.EXAMPLES] = own.size
        wire.put(found, prefix + wire.TABLE, table(own.y, own.group, seen.outcome, client.shape))
        if own.size and losses:
            found[prefix + wire.LOSS] = float(np.mean(seen.losses, dtype=np.float64))
    return found


def audit_metrics(client: ClientData, decided: Decisions, least: int) -> Metrics:
    """Counts of decisions on test rows and, where there are scores, of scores in cells of at least
    `least` people.
    """
    own = client.test
    require(
        len(decided.outcome) == own.size,
        f"There must be one decision for each of the {own.size:,} test rows, got"
        f" {len(decided.outcome):,}.",
    )
    found: Metrics = {wire.EXAMPLES: own.size}
    wire.put(found, wire.TABLE, table(own.y, own.group, decided.outcome, client.shape))
    if decided.score is not None:
        cells = score_cells(decided.score, own.y == client.favourable, own.group, least)
        counts = counts_of_cells(cells, len(client.groups))
        wire.put(found, wire.SCORE_FIRST, counts.first)
        wire.put(found, wire.SCORE_LAST, counts.last)
    return found


def outcomes(client: ClientData, own: ClientRows, look: Look) -> np.ndarray:
    """Counts of rows by group, label and outcome of a model. [groups, labels, labels]"""
    return table(own.y, own.group, _outcomes_of(own, look).outcome, client.shape)


def _outcomes_of(own: ClientRows, look: Look) -> RowOutcomes:
    return look(own) if own.size else RowOutcomes(np.zeros(0), np.zeros(0, np.int64))


def table(
    y: np.ndarray, group: np.ndarray, outcome: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    """Counts of rows by group, label and outcome. [groups, labels, labels]"""
    counts = np.zeros((*shape, shape[1]), np.int64)
    np.add.at(counts, (group, y, outcome), 1)
    return counts

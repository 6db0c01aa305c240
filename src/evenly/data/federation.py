"""`Federation`: the data of all clients, and its construction from arrays and tables."""

import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from evenly.data.arrow import ColumnTable, as_table, shown
from evenly.data.columns import ColumnChoice, feature_columns, many_categories
from evenly.data.encoding import (
    Encoder,
    TableColumn,
    as_features,
    check_table,
    column_of,
    fit_encoder,
)
from evenly.data.sensitive import (
    MOST_CLASSES,
    Attribute,
    Groups,
    Training,
    favourable_label,
    groups_of,
    refuse_measurement,
    refuse_quantity,
)
from evenly.data.splits import CENTRAL, SPLITS, Ragged, given_rows, split_rows
from evenly.records import record, replace, static
from evenly.validation import listed_names

NATURAL, DRAWN = "natural", "drawn with the data"  # partitions that data sets come with


class Shard(NamedTuple):
    """Rows of one client, or a batch of them, as arrays.

    Example:
        >>> x, y, ones = np.zeros((2, 3)), np.array([0, 1]), np.ones(2)
        >>> shard = Shard(x, y, group=np.array([0, 0]), weight=ones, mask=ones)
        >>> shard.x.shape, shard.y.tolist()
        ((2, 3), [0, 1])
    """

    x: Any  # [n, ...] features
    y: Any  # [n] class numbers
    group: Any  # [n] group numbers
    weight: Any  # [n] weights in the loss; 1 unless rows were reweighed
    mask: Any  # [n] 1 for rows, 0 for padding
    # number of rows that a batch has on average, where its rows are drawn independently
    expected: Any = None
    visit: Any = None  # round from 0 and number of the client's rows, if the rate depends on them


class Census(NamedTuple):
    """Counts of every client's training rows, which are known before training.

    Example:
        >>> # two clients with 3 and 5 training rows; group 0 is unprivileged
        >>> cells = np.array([[[1, 0], [1, 1]], [[2, 2], [0, 1]]])
        >>> Census(examples=np.array([3, 5]), cells=cells).unprivileged_rows.tolist()
        [1, 4]
    """

    examples: np.ndarray  # [clients] number of training rows
    cells: np.ndarray  # [clients, groups, labels] number of training rows
    unprivileged: tuple[int, ...] = (0,)  # numbers of the unprivileged groups
    favourable: int = 1  # number of the favourable label

    @property
    def unprivileged_rows(self) -> np.ndarray:
        """Number of training rows of people in unprivileged groups. [clients]"""
        return self.cells[:, list(self.unprivileged)].sum((1, 2))


@record
class Federation:
    """The data of all clients: every example once, and for each client the numbers of its training,
    validation and test rows.

    `Federation.from_frame`, `from_arrays` and `from_dataset` build federations from your data,
    `evenly.datasets` from public data sets.

    Example:
        >>> x = np.arange(12.0).reshape(6, 2)
        >>> federation = Federation.from_arrays(x, y=[0, 1, 0, 1, 0, 1], client=list("aaabbb"))
        >>> federation.clients, federation.names, federation.labels
        (2, ('a', 'b'), ('0', '1'))
    """

    x: np.ndarray  # [rows, ...] features
    y: np.ndarray  # int32 [rows] class numbers
    group: np.ndarray  # int32 [rows] group numbers
    weight: np.ndarray | None = None  # float32 [rows] weights in the loss; None means all ones
    train: Ragged
    valid: Ragged
    test: Ragged
    central: np.ndarray  # row numbers of a central test set; may be empty
    client_group: np.ndarray | None = None  # int32 [clients], if whole clients belong to groups
    name: str = static(default="data")
    # notation of the partition, or the column that names the clients
    partition: str = static(default=NATURAL)
    names: tuple[str, ...] = static()  # of the clients
    labels: tuple[str, ...] = static()
    groups: tuple[str, ...] = static(default=("all",))
    # sensitive attributes whose intersections are the groups
    attributes: tuple[Attribute, ...] = static(default=())
    # numbers of the unprivileged groups; all others are privileged
    unprivileged: tuple[int, ...] = static(default=(0,))
    favourable: int = static(default=1)  # number of the label that people want to get
    encoder: Encoder | None = static(default=None)  # encoding of a table's columns; None for arrays

    def __repr__(self) -> str:
        rows = {name: len(self.split(name).rows) for name in SPLITS} | {CENTRAL: len(self.central)}
        counts = ", ".join(f"{count:,} {name}" for name, count in rows.items() if count)
        facts = [
            f"{self.clients:,} clients",
            f"{sum(rows.values()):,} rows ({counts})",
            f"labels {listed_names(self.labels)}",
            *([f"groups {listed_names(self.groups)}"] if len(self.groups) > 1 else []),
            *(["counts only: the features are not stored"] if np.isnan(self.x[:1]).all() else []),
        ]
        return f"Federation {self.name!r}: {'; '.join(facts)}"

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.names)

    def split(self, name: str) -> Ragged:
        """Row numbers of each client in the split "train", "valid" or "test"."""
        return {"train": self.train, "valid": self.valid, "test": self.test}[name]

    def only(self, clients: np.ndarray) -> "Federation":
        """The federation with only the clients of these numbers, in this order."""
        parts = {name: self.split(name).only(clients) for name in SPLITS}
        group = None if self.client_group is None else self.client_group[clients]
        return replace(
            self, **parts, client_group=group, names=tuple(self.names[k] for k in clients.tolist())
        )

    def census(self) -> Census:
        """Counts of every client's training rows. They are computed once and are read-only."""
        return self._counted

    @cached_property
    def _counted(self) -> Census:
        owner = np.repeat(np.arange(self.clients), self.train.counts)
        cells = np.zeros((self.clients, len(self.groups), len(self.labels)), np.int64)
        np.add.at(cells, (owner, self.group[self.train.rows], self.y[self.train.rows]), 1)
        counts = self.train.counts
        for array in (counts, cells):
            array.setflags(write=False)
        return Census(counts, cells, self.unprivileged, self.favourable)

    @staticmethod
    def from_arrays(
        x: Any,
        y: Any,
        client: Any,
        *,
        group: Any = None,
        favourable: Any = None,
        unprivileged: Any = None,
        split: Any = None,
        shares: tuple[float, float] = (0.8, 0.1),
        seed: int = 0,
        name: str = "data",
    ) -> "Federation":
        """Build a federation from arrays with one entry per row.

        Args:
            x: Features [rows, features], or with more axes such as images. Must be finite.
            y: Label of each row: words or whole numbers.
            client: Client of each row.
            group: Group of each row, or a dict of several arrays by name, whose intersections are
                the groups.
            favourable: Label that people want to get. By default label number 1.
            unprivileged: Value of `group` whose people a model is expected to serve worse; with
                several arrays a dict from names to values. By default group number 0.
            split: "train", "valid", "test" or "central" for each row. Central rows belong to no
                client, so their `client` may be missing. By default each client's rows are shuffled
                and cut.
            shares: Shares of training and validation rows; the rest is for testing. Each client has
                at least one training row.
            seed: Seed of the shuffling.
            name: Name in results.

        Returns:
            The federation.

        Raises:
            TypeError: If `x` does not hold numbers.
            ValueError: If lengths differ, values are missing or not finite, or there are fewer than
                two classes.

        Example:
            >>> x = np.arange(12.0).reshape(6, 2)
            >>> federation = Federation.from_arrays(x, y=[0, 1, 0, 1, 0, 1], client=list("aaabbb"))
            >>> federation.names, federation.train.counts.tolist(), federation.test.counts.tolist()
            (('a', 'b'), [2, 2], [1, 1])
        """
        x = as_features(x)
        sides = Sides(
            label=TableColumn.of("y", y),
            client=TableColumn.of("client", client),
            sensitive=_sensitive(group),
            split=None if split is None else TableColumn.of("split", split),
        )
        wanted = FairnessChoice(favourable, unprivileged, in_order=True)
        return federation_of(sides, x=x, wanted=wanted, shares=shares, seed=seed, name=name)

    @staticmethod
    def from_frame(
        frame: Any,
        *,
        client: str,
        label: str,
        sensitive: str | Sequence[str] = (),
        favourable: Any = None,
        unprivileged: Any = None,
        features: str | Sequence[str] | None = None,
        drop: str | Sequence[str] = (),
        split: str | None = None,
        client_group: str | None = None,
        shares: tuple[float, float] = (0.8, 0.1),
        seed: int = 0,
        name: str = "table",
    ) -> "Federation":
        """Build a federation from a table with one row per example.

        Numbers are standardised and words are one-hot encoded, as `evenly.data.encoding` describes.

        Args:
            frame: A table: a DataFrame of pandas or Polars, an Arrow table, a Hugging Face
                `Dataset`, or the path of a Parquet file or of a folder of them, which is streamed.
            client: Column that names the client of each row.
            label: Column to predict.
            sensitive: Column or columns whose values, or intersections of values, are the groups.
                They are not features unless `features` names them.
            favourable: Label that people want to get. Required with sensitive columns, unless the
                labels are two numbers (the larger is favourable) or words such as yes and no.
            unprivileged: Value of the sensitive column whose people a model is expected to serve
                worse; with several columns a dict from columns to values, whose first column
                determines the unprivileged groups. By default the value with the lowest share of
                favourable labels in the training rows.
            features: Columns to use as features. By default all other columns but those in `drop`;
                dates and identifiers are refused.
            drop: Columns to exclude.
            split: Column that holds "train", "valid", "test" or "central" for each row. By default
                rows are split as in `from_arrays`.
            client_group: Column that names the group of each row's client, such as the kind of
                hospital. All rows of a client must have the same value.
            shares: Shares of training and validation rows; the rest is for testing.
            seed: Seed of the split.
            name: Name in results.

        Returns:
            The federation.

        Raises:
            TypeError: If `frame` is not a table.
            ValueError: If a column is missing, cannot be used for its purpose, or the favourable
                label must be named.

        Example:
            >>> import pandas as pd
            >>> columns = {"site": list("aabb"), "age": [20, 30, 40, 50], "ill": ["no", "yes"] * 2}
            >>> table = pd.DataFrame(columns)
            >>> federation = Federation.from_frame(table, client="site", label="ill")
            >>> federation.labels, federation.encoder.features
            (('no', 'yes'), ('age',))
        """
        source = Source(
            as_table(frame), client, label, tuple(_listed(sensitive)), split, client_group
        )
        choice = ColumnChoice(None if features is None else _listed(features), _listed(drop))
        federation = source.federation(
            choice, FairnessChoice(favourable, unprivileged), shares=shares, seed=seed, name=name
        )
        for sentence in many_categories(federation.encoder) if federation.encoder else ():
            warnings.warn(sentence, stacklevel=2)
        return federation

    @staticmethod
    def from_dataset(
        data: Any,
        *,
        client: Any = None,
        label: Any = None,
        features: Any = None,
        sensitive: Any = (),
        favourable: Any = None,
        unprivileged: Any = None,
        drop: Sequence[Any] = (),
        split: Any = None,
        central: Any = None,
        shares: tuple[float, float] = (0.8, 0.1),
        seed: int = 0,
        name: str = "data",
    ) -> "Federation":
        """Build a federation from a data set of PyTorch, Hugging Face or flwr-datasets.

        An example is a tuple such as `(input, label)`, a dict, or a row of a Hugging Face data set.
        Inputs are arrays of one shape, such as images or numbers of tokens, and are used as they
        are. Columns of a Hugging Face data set that hold plain values are encoded as in
        `from_frame`.

        Args:
            data: A `Dataset` of PyTorch or Hugging Face, a partitioner of flwr-datasets, or one
                data set for each client in a dict or list.
            client: Column or position of the client in an example, or an array with one client for
                each. None if there is one data set for each client.
            label: Column or position of the class. By default "label", and in tuples 1.
            features: Column or position of the input. By default all others, and in tuples 0.
            sensitive: Columns, positions or arrays that define groups; arrays in a dict by name.
            favourable: As in `from_frame`.
            unprivileged: As in `from_frame`.
            drop: Columns that are not inputs.
            split: Column, position or array with "train", "valid", "test" or "central".
            central: A data set of the same form that is a central test set.
            shares: Shares of training and validation rows; the rest is for testing.
            seed: Seed of the split.
            name: Name in results.

        Returns:
            The federation. Classes have the numbers and names of the data set, if it states them.

        Raises:
            ValueError: If inputs have different shapes, a column is missing, or the label is a
                quantity.

        Example:
            >>> site = [(np.zeros(3, np.float32), 0), (np.ones(3, np.float32), 1)]
            >>> federation = Federation.from_dataset({"north": site, "south": site})
            >>> federation.names, federation.x.shape
            (('north', 'south'), (4, 3))
        """
        from evenly.data.examples import ExampleRoles, federation_of_examples  # imports this file

        roles = ExampleRoles(client, label, features, sensitive, drop, split)
        wanted = FairnessChoice(favourable, unprivileged)
        return federation_of_examples(
            data, roles, wanted, central=central, shares=shares, seed=seed, name=name
        )


class Source(NamedTuple):
    """A table and the roles of its columns that are not features."""

    frame: Any
    client: Any
    label: Any
    sensitive: tuple[Any, ...] = ()
    split: Any = None
    client_group: Any = None

    @property
    def roles(self) -> dict[Any, str]:
        """Role of each column that has one."""
        named = {self.client_group: "client group", self.split: "split"}
        return {
            **dict.fromkeys(self.sensitive, "sensitive"),
            self.client: "client",
            self.label: "label",
            **{column: role for column, role in named.items() if column is not None},
        }

    def federation(
        self,
        choice: ColumnChoice,
        wanted: "FairnessChoice",
        *,
        shares: tuple[float, float],
        seed: int,
        name: str,
    ) -> Federation:
        """The federation of the table; see `Federation.from_frame`."""
        with shown(self.frame, len(self.roles), choice):
            try:
                blank = self.without_features(wanted, shares=shares, seed=seed, name=name)
            except ValueError as error:
                raise self._with_others(error, choice) from None
            names = feature_columns(self.frame, self.roles, choice)
            unused = [
                column
                for column in self.frame.columns
                if column not in self.roles and column not in names
            ]
            encoder = fit_encoder(self.frame, names, blank.train.rows, unused)
            frame = self.frame
            x = frame.encoded(encoder) if isinstance(frame, ColumnTable) else encoder.encode(frame)
            return replace(blank, x=x, encoder=encoder, partition=f"column {self.client}")

    def _with_others(self, error: ValueError, choice: ColumnChoice) -> ValueError:
        """An error about labels, clients or groups, joined with one about features, so that both
        can be corrected at once.
        """
        try:
            feature_columns(self.frame, self.roles, choice)
        except (ValueError, TypeError) as other:
            return error if str(other) == str(error) else ValueError(f"{error} {other}")
        return error

    def without_features(
        self, wanted: "FairnessChoice", *, shares: tuple[float, float], seed: int, name: str
    ) -> Federation:
        """The same clients, labels and groups with one feature that is always zero."""
        check_table(self.frame, list(self.roles))
        _check_roles(self.frame, self.client, self.label, self.sensitive, self.split)
        blank = np.zeros((len(self.frame), 1), np.float32)
        federation = federation_of(
            self.sides(), x=blank, wanted=wanted, shares=shares, seed=seed, name=name
        )
        if self.client_group is None:
            return federation
        column = column_of(self.frame, self.client_group)
        return replace(federation, client_group=_client_groups(column, federation))

    def sides(self) -> "Sides":
        sides = Sides(
            label=column_of(self.frame, self.label),
            client=column_of(self.frame, self.client),
            sensitive={name: column_of(self.frame, name) for name in self.sensitive},
            split=None if self.split is None else column_of(self.frame, self.split),
        )
        refuse_quantity(sides.label)
        for column in sides.sensitive.values():
            refuse_measurement(column)
        return sides


class Sides(NamedTuple):
    """Columns of every row besides its features."""

    label: TableColumn
    client: TableColumn
    sensitive: dict[Any, TableColumn]
    split: TableColumn | None


class FairnessChoice(NamedTuple):
    """The favourable label and the unprivileged value. None means to derive them from the labels
    and the training rows.
    """

    favourable: Any = None
    unprivileged: Any = None
    in_order: bool = False  # whether None means label number 1 and group number 0 instead


def federation_of(
    sides: Sides,
    *,
    x: np.ndarray,
    wanted: FairnessChoice,
    shares: tuple[float, float],
    seed: int,
    name: str,
) -> Federation:
    _check_lengths(x, sides)
    labels, y = _labels(sides.label)
    of_clients = np.ones(len(y), bool) if sides.split is None else _stays(sides.split)
    sides.client.refuse_missing(of_clients)
    sides.client.refuse_rounded()
    names, codes = TableColumn(sides.client.what, sides.client.values[of_clients]).classes()
    owner = np.full(len(y), -1)
    owner[of_clients] = codes
    if sides.split is None:
        parts = split_rows(owner, len(names), shares=shares, seed=seed)
    else:
        parts = given_rows(owner, names, sides.split.words())
    favourable, groups = _fairness(sides, wanted, labels, y, parts[0].rows)
    return Federation(
        x=x,
        y=y,
        group=np.zeros(len(y), np.int32) if groups.group is None else groups.group,
        train=parts[0],
        valid=parts[1],
        test=parts[2],
        central=np.flatnonzero(~of_clients).astype(np.int32),
        name=name,
        names=names,
        labels=labels,
        groups=groups.names,
        attributes=groups.attributes,
        unprivileged=groups.unprivileged,
        favourable=favourable,
    )


def _fairness(
    sides: Sides,
    wanted: FairnessChoice,
    labels: tuple[str, ...],
    y: np.ndarray,
    training_rows: np.ndarray,
) -> tuple[int, Groups]:
    """Number of the favourable label, and the groups of all rows."""
    unnamed = wanted.favourable is None and wanted.in_order
    favourable = (
        1 if unnamed else favourable_label(wanted.favourable, labels, needed=bool(sides.sensitive))
    )
    training = None if wanted.in_order else Training(training_rows, y == favourable)
    return favourable, groups_of(sides.sensitive, wanted.unprivileged, training)


def _client_groups(column: TableColumn, federation: Federation) -> np.ndarray:
    """Number of the group of each client, from a column that is the same in all of its rows."""
    owner = np.full(len(federation.y), -1)
    for split in SPLITS:
        part = federation.split(split)
        owner[part.rows] = np.repeat(np.arange(federation.clients), part.counts)
    known = owner >= 0
    column.refuse_missing(known)
    # a mask: numbers would select by label from a column of pandas
    names, codes = TableColumn(column.what, column.values[known]).classes()
    owner, groups = owner[known], np.zeros(federation.clients, np.int32)
    groups[owner] = codes
    different = owner[groups[owner] != codes]
    if len(different):
        client = federation.names[different[0]]
        values = sorted({names[code] for code in codes[owner == different[0]]})
        raise ValueError(
            f"{column.what} must have the same value in all rows of a client, but {client!r} has"
            f" {', '.join(map(repr, values[:3]))}. Name a column that describes clients."
        )
    return groups


def _sensitive(group: Any) -> dict[Any, TableColumn]:
    """The sensitive columns of `from_arrays`: none, one named "group", or several by name."""
    if group is None:
        return {}
    return {
        name: TableColumn.of(str(name), values)
        for name, values in (group if isinstance(group, dict) else {"group": group}).items()
    }


def _listed(columns: Any) -> list[Any]:
    return [columns] if isinstance(columns, str | int) else list(columns)


def _labels(column: TableColumn) -> tuple[tuple[str, ...], np.ndarray]:
    column.refuse_missing()
    if column.holds_numbers():
        broken = (raw := column.numbers()) != np.floor(raw)
        if broken.any():
            raise ValueError(
                f"{column.what} must hold classes (words or whole numbers), but row"
                f" {int(broken.argmax())} (counting from 0) holds {raw[broken][0]:g}. Cut a"
                " quantity that is to be predicted into classes first."
            )
    labels, y = column.classes()
    if len(labels) < 2:
        raise ValueError(
            f"{column.what} must hold at least two classes, got only"
            f" {', '.join(map(repr, labels))}. Check that it is the label."
        )
    _refuse_many(column.what, len(labels))
    return labels, y


def _refuse_many(what: str, count: int) -> None:
    if count > MOST_CLASSES:
        raise ValueError(
            f"{what} must have at most {MOST_CLASSES} different values, got {count}. Cut it into"
            " fewer classes first."
        )


def _stays(split: TableColumn) -> np.ndarray:
    """Whether each row belongs to a client, not to the central test set. Refuses unknown splits."""
    split.refuse_missing()
    words = split.words()
    strange = ~np.isin(words, [*SPLITS, CENTRAL])
    if strange.any():
        row = int(strange.argmax())
        raise ValueError(
            f"{split.what} must hold train, valid, test or central; row {row} (counting from 0)"
            f" holds {words[row]!r}."
        )
    if (words == CENTRAL).all():
        raise ValueError(f"{split.what} must hold train for some rows; all of them hold central.")
    return words != CENTRAL


def _check_roles(frame: Any, client: Any, label: Any, sensitive: Sequence[Any], split: Any) -> None:
    if len(frame) == 0:
        raise ValueError("The table must have at least one row; it is empty.")
    if label in (client, split, *sensitive):
        raise ValueError(
            f"The label {label!r} must be a column of its own, not also the client, sensitive or"
            " split column."
        )
    if split is not None and split in (client, *sensitive):
        raise ValueError(
            f"The split {split!r} must be a column of its own, not also the client or a sensitive"
            " column."
        )


def _check_lengths(x: np.ndarray, sides: Sides) -> None:
    columns = [
        sides.label,
        sides.client,
        *sides.sensitive.values(),
        *([] if sides.split is None else [sides.split]),
    ]
    lengths = {"x": len(x)} | {c.what: len(c.values) for c in columns}
    if len(set(lengths.values())) != 1:
        raise ValueError(
            "There must be one entry per row everywhere, got"
            f" {', '.join(f'{n} for {w}' for w, n in lengths.items())}."
        )
    if len(x) == 0:
        raise ValueError("A federation must have at least one row, got none.")

"""Data sets of examples become federations: a `Dataset` of PyTorch or Hugging Face, the partitions
of flwr-datasets, or one data set for each client.

An example of PyTorch is a tuple, usually `(input, label)`, or a dict. One of Hugging Face is a row
with named columns. Inputs are arrays of one shape: images, vectors, or the numbers of tokens. If
all columns of a Hugging Face data set are plain numbers and words, it is a table, and its columns
are encoded as those of any other table.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.data.arrow import (
    ColumnTable,
    as_table,
    from_package,
    is_hugging_face,
    joined_tables,
)
from evenly.data.columns import ColumnChoice
from evenly.data.encoding import TableColumn, as_features
from evenly.data.federation import FairnessChoice, Federation, Sides, Source, federation_of
from evenly.data.partition import numbered
from evenly.data.splits import CENTRAL, SHARES, SPLITS, split_rows
from evenly.notation import unknown
from evenly.records import replace, require
from evenly.validation import listed_names

BATCH = 1000  # examples that are decoded at a time
CLIENT = "client"  # the column of a table that is made of one data set for each client

Columns = dict[Any, np.ndarray]


class ExampleRoles(NamedTuple):
    """Where an example holds what: names of columns, positions in a tuple, or arrays with one value
    for each example.
    """

    client: Any = None
    label: Any = None
    features: Any = None
    sensitive: Any = ()
    drop: Sequence[Any] = ()
    split: Any = None

    @property
    def groups(self) -> dict[str, Any]:
        """The sensitive columns by name."""
        if isinstance(self.sensitive, Mapping):
            return {str(name): values for name, values in self.sensitive.items()}
        several = self.sensitive if isinstance(self.sensitive, list | tuple) else [self.sensitive]
        return {
            str(one) if isinstance(one, str | int) else "group": one
            for one in several
            if one is not None
        }

    def names(self) -> list[Any]:
        """Columns that are not features."""
        every = (self.client, self.label, self.split, *self.groups.values())
        return [one for one in every if isinstance(one, str | int)]


def is_dataset(data: Any) -> bool:
    """Whether an object is a data set of PyTorch, Hugging Face or flwr-datasets, or holds one for
    each client.
    """
    if isinstance(data, Mapping) and not from_package(data, "datasets"):
        return bool(data) and all(map(is_dataset, data.values()))
    if isinstance(data, list | tuple):
        return bool(data) and all(map(is_dataset, data))
    return any(from_package(data, package) for package in ("torch", "datasets", "flwr_datasets"))


def by_client(data: Any) -> dict[str, Any] | None:
    """One data set for each client, or None for a single data set whose examples name clients."""
    if from_package(data, "flwr_datasets"):
        if hasattr(data, "partitioners"):  # a FederatedDataset
            data = _only_partitioner(data.partitioners)
        count = data.num_partitions
        natural = getattr(data, "partition_id_to_natural_id", {})
        names = [str(natural[i]) for i in range(count)] if natural else numbered(count)
        return {name: data.load_partition(i) for i, name in enumerate(names)}
    if isinstance(data, Mapping) and not from_package(data, "datasets"):
        return {str(name): own for name, own in data.items()}
    if isinstance(data, list | tuple):
        return dict(zip(numbered(len(data)), data, strict=True))
    return None


def _only_partitioner(partitioners: Mapping[str, Any]) -> Any:
    require(
        len(partitioners) == 1 or "train" in partitioners,
        "A FederatedDataset must have one partitioner, or one for 'train', got"
        f" {', '.join(partitioners)}. Pass the one to use, such as data.partitioners[...].",
    )
    return partitioners.get("train", next(iter(partitioners.values())))


def table_of(data: Any, roles: ExampleRoles) -> tuple[ColumnTable, str] | None:
    """A data set of Hugging Face as a table with the name of its client column, if all features
    are plain values; else None. One data set for each client becomes one table.
    """
    parts = by_client(data)
    first = data if parts is None else next(iter(parts.values()))
    if not is_hugging_face(first) or any(
        _is_array(first, name) for name in _features(first, roles)
    ):
        return None
    if parts is None:
        return (as_table(data), roles.client) if isinstance(roles.client, str) else None
    _refuse_client(roles)
    tables = {name: as_table(own) for name, own in parts.items()}
    name = CLIENT if CLIENT not in first.column_names else f"({CLIENT})"
    return joined_tables(tables, name), name


def federation_of_examples(
    data: Any,
    roles: ExampleRoles,
    wanted: FairnessChoice,
    *,
    central: Any = None,
    shares: tuple[float, float] = SHARES,
    seed: int = 0,
    name: str = "data",
) -> Federation:
    """The federation of a data set; see `Federation.from_dataset`."""
    parts = by_client(data)
    for one in [data] if parts is None else parts.values():
        require(
            not (hasattr(one, "batch_size") and hasattr(one, "dataset")),
            f"The data must be a Dataset, got a {type(one).__name__}, which shuffles and batches"
            " one. Pass its .dataset.",
        )
    require(
        parts is not None or roles.client is not None,
        "client is needed: the column that names the client of each example, or an array with one"
        " client for each. Or pass one data set for each client, such as {'north': ...}.",
    )
    found = None if central is not None else table_of(data, roles)
    first = data if parts is None else next(iter(parts.values()))
    if found is not None:
        table, client = found
        label = _label(first, roles)
        groups = tuple(roles.groups.values())
        features = roles.features if roles.features is None else _listed(roles.features)
        source = Source(table, client, label, groups, roles.split)
        federation = source.federation(
            ColumnChoice(features, roles.drop), wanted, shares=shares, seed=seed, name=name
        )
        return with_classes(federation, class_names(first, label))
    rows, label = _read_all(data, parts, roles, central)
    sides = Sides(
        label=TableColumn.of("The label", rows.label),
        client=TableColumn.of("client", rows.client),
        sensitive={key: TableColumn.of(key, values) for key, values in rows.groups.items()},
        split=None if rows.split is None else TableColumn.of("split", rows.split),
    )
    federation = federation_of(sides, x=rows.x, wanted=wanted, shares=shares, seed=seed, name=name)
    if roles.split is None:
        federation = split_anew(federation, seed, shares)
    return with_classes(federation, class_names(first, label))


class ExampleRows(NamedTuple):
    """All examples as arrays with one entry each."""

    x: np.ndarray
    label: np.ndarray
    client: np.ndarray
    groups: dict[str, np.ndarray]
    split: np.ndarray | None


def _read_all(
    data: Any, parts: dict[str, Any] | None, roles: ExampleRoles, central: Any
) -> tuple[ExampleRows, Any]:
    """All examples of all clients, and after them those of the central test set; and which entry
    is the label.
    """
    every = [data] if parts is None else list(parts.values())
    label, features = _label(every[0], roles), _inputs(every[0], roles)
    if parts is not None:
        _refuse_client(roles)
    shared = [one for one in (*roles.names(), label) if not (parts is None and one is roles.client)]
    keys = list(dict.fromkeys([features, *shared]))
    client_key = [roles.client] if isinstance(roles.client, str | int) else []
    read = [read_examples(own, [*keys, *client_key]) for own in every]
    tail = [] if central is None else [read_examples(central, keys)]
    counts, extra = [len(own[label]) for own in read], sum(len(own[label]) for own in tail)
    if parts is not None:
        client: Any = np.repeat(np.array(list(parts), object), counts)
    else:
        client = read[0][roles.client] if client_key else roles.client
    join = lambda key: np.concatenate([own[key] for own in [*read, *tail]])  # noqa: E731
    split = join(roles.split) if isinstance(roles.split, str | int) else roles.split
    if tail and split is None:
        split = np.array(["train"] * sum(counts) + [CENTRAL] * extra)
    rows = ExampleRows(
        x=as_features(
            join(features) if len(read) + len(tail) > 1 else read[0][features], exact=True
        ),
        label=join(label),
        client=np.concatenate([np.asarray(client, object), np.full(extra, None)])
        if extra
        else client,
        groups={
            key: join(one) if isinstance(one, str | int) else one
            for key, one in roles.groups.items()
        },
        split=split,
    )
    return _checked(rows, every[0], label), label


def _checked(rows: ExampleRows, dataset: Any, label: Any) -> ExampleRows:
    """The examples with names in place of class numbers, where the data set has names. Refuses
    quantities.
    """
    y = rows.label
    require(
        y.dtype.kind != "f" or bool((y == np.floor(y)).all() and len(np.unique(y)) <= len(y) / 2),
        f"The label must hold classes, but it holds numbers such as {np.ravel(y)[0]:g}, which seem"
        " to be a quantity. evenly trains classifiers: regression is not supported. Cut the"
        " quantity into classes first." if y.dtype.kind == "f" else "",
    )  # fmt: skip
    names = class_names(dataset, label)
    if names is None or y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= len(names):
        return rows
    return rows._replace(label=np.array(names, object)[y])


def class_names(dataset: Any, label: Any) -> tuple[str, ...] | None:
    """The names of the classes in the order of their numbers, if the data set states them."""
    features = getattr(dataset, "features", None)
    if is_hugging_face(dataset) and isinstance(features, Mapping):
        names = getattr(features.get(label), "names", None)
    else:
        names = getattr(dataset, "classes", None)
    several = isinstance(names, list | tuple) and len(set(map(str, names))) == len(names) > 1
    return tuple(map(str, names)) if several and names is not None else None


def with_classes(federation: Federation, names: tuple[str, ...] | None) -> Federation:
    """The federation with these classes in this order, so that class numbers are those of the data
    set and of models that were trained on it.
    """
    if names is None or not set(federation.labels) <= set(names):
        return federation
    places = np.array([names.index(label) for label in federation.labels], np.int32)
    # without sensitive columns nothing is compared by the favourable label: it stays number 1
    kept = 1 if not federation.attributes else int(places[federation.favourable])
    return replace(federation, y=places[federation.y], labels=names, favourable=kept)


def split_anew(
    federation: Federation, seed: int, shares: tuple[float, float] = SHARES
) -> Federation:
    """The federation with the rows of each client split at random by this seed. The central test
    set stays.

    >>> x, y = np.zeros((4, 1)), [0, 1, 0, 1]
    >>> first = Federation.from_arrays(x, y, client=list("aabb"))
    >>> bool((split_anew(first, 0).train.rows == first.train.rows).all())
    True
    """
    owner = np.full(len(federation.y), -1)
    for split in SPLITS:
        part = federation.split(split)
        owner[part.rows] = np.repeat(np.arange(federation.clients), part.counts)
    train, valid, test = split_rows(owner, federation.clients, shares=shares, seed=seed)
    return replace(federation, train=train, valid=valid, test=test)


# Which entry of an example is what.


def _refuse_client(roles: ExampleRoles) -> None:
    require(
        roles.client is None,
        f"client must not be given, got {roles.client!r}: there is one data set for each client"
        " already. Leave it out.",
    )


def _entries(dataset: Any) -> list[Any]:
    """The names of the columns, or the positions in a tuple."""
    if is_hugging_face(dataset):
        return list(dataset.column_names)
    first = next(_examples(dataset), None)
    require(first is not None, "A data set must have at least one example, got an empty one.")
    if isinstance(first, Mapping):
        return list(first)
    require(
        isinstance(first, list | tuple) and len(first) > 1,
        "An example must be a tuple such as (input, label), or a dict, got a"
        f" {type(first).__name__}. Return both from the data set's __getitem__.",
    )
    assert first is not None
    return list(range(len(first)))


def _label(dataset: Any, roles: ExampleRoles) -> Any:
    entries = _entries(dataset)
    label = (1 if 1 in entries else "label") if roles.label is None else roles.label
    if label not in entries:
        raise unknown("column", str(label), map(str, entries), " for the label")
    return label


def _features(dataset: Any, roles: ExampleRoles) -> list[Any]:
    """The columns of inputs."""
    if roles.features is not None:
        return _listed(roles.features)
    entries = _entries(dataset)
    if entries[0] == 0:
        return [0]
    taken = {*roles.names(), _label(dataset, roles), *roles.drop}
    return [entry for entry in entries if entry not in taken]


def _inputs(dataset: Any, roles: ExampleRoles) -> Any:
    """The one entry of an example that a model reads."""
    found = _features(dataset, roles)
    require(
        len(found) == 1,
        "Examples must have one input: images, vectors or tokens. Name it with features=; there are"
        f" {', '.join(map(repr, found)) or 'none besides the other columns'}.",
    )
    if found[0] not in _entries(dataset):
        raise unknown("column", str(found[0]), map(str, _entries(dataset)), " for features")
    return found[0]


def _is_array(dataset: Any, name: Any) -> bool:
    """Whether a column of a Hugging Face data set holds arrays or pictures, not plain values."""
    return type(dataset.features.get(name)).__name__ not in ("Value", "ClassLabel", "NoneType")


def _listed(names: Any) -> list[Any]:
    return [names] if isinstance(names, str | int) else list(names)


# Reading examples into arrays.


def read_examples(dataset: Any, keys: Sequence[Any]) -> Columns:
    """These entries of all examples, as arrays with one entry for each example."""
    if is_hugging_face(dataset):
        return _read_columns(dataset, keys)
    tensors, at = _tensors(dataset)
    if tensors is not None:  # their memory is shared
        arrays = {key: np.asarray(tensors[key]) for key in keys}
        return arrays if at is None else {key: values[at] for key, values in arrays.items()}
    values: dict[Any, list[np.ndarray]] = {key: [] for key in keys}
    for number, example in enumerate(_examples(dataset)):
        for key, own in values.items():
            try:
                own.append(np.asarray(example[key]))
            except (KeyError, IndexError, TypeError):
                raise ValueError(
                    f"Every example must have the entry {key!r}, but number {number} (counting from"
                    f" 0) {_instead(example)}."
                ) from None
    return {key: _stacked(key, own) for key, own in values.items()}


def _instead(example: Any) -> str:
    """What an example has instead of an entry that is missing."""
    if isinstance(example, tuple | list):
        last = len(example) - 1
        return f"is a {type(example).__name__}: name its entries by position, from 0 to {last}"
    return f"has {listed_names(list(example))}" if isinstance(example, Mapping) else "has not"


def _tensors(dataset: Any) -> tuple[Any, np.ndarray | None]:
    """The tensors of a TensorDataset or of a Subset of one, and the subset's rows; None for data
    sets that compute their examples.
    """
    at = None
    if _reads_as(dataset, "Subset"):
        dataset, at = dataset.dataset, np.asarray(dataset.indices)
    return (dataset.tensors, at) if _reads_as(dataset, "TensorDataset") else (None, None)


def _reads_as(dataset: Any, name: str) -> bool:
    """Whether a data set reads its examples as PyTorch's class of this name does."""
    kind = getattr(sys.modules.get("torch.utils.data"), name, None)
    return kind is not None and getattr(type(dataset), "__getitem__", None) is kind.__getitem__


def _examples(dataset: Any) -> Iterator[Any]:
    """The examples in order. A data set that has no length is read once from its beginning."""
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return (dataset[i] for i in range(len(dataset)))
    require(
        hasattr(dataset, "__iter__"),
        "A data set must have __len__ and __getitem__, or __iter__, got a"
        f" {type(dataset).__name__}.",
    )
    return iter(dataset)


def _read_columns(dataset: Any, keys: Sequence[Any]) -> Columns:
    """Columns of a Hugging Face data set, some rows decoded at a time."""
    for key in keys:
        if key not in dataset.column_names:
            raise unknown("column", str(key), dataset.column_names)
    batches = dataset.select_columns(list(keys)).with_format("numpy").iter(batch_size=BATCH)
    values: dict[Any, list[np.ndarray]] = {key: [] for key in keys}
    for batch in batches:
        for key, own in values.items():
            part = batch[key]
            own.extend([part] if part.dtype != object else [np.asarray(one)[None] for one in part])
    return {key: _joined(key, own) for key, own in values.items()}


def _stacked(key: Any, values: list[np.ndarray]) -> np.ndarray:
    return _joined(key, [value[None] for value in values])


def _joined(key: Any, values: list[np.ndarray]) -> np.ndarray:
    """Arrays one after another. Refuses arrays of different shapes."""
    shapes = {value.shape[1:] for value in values}
    require(
        len(shapes) == 1,
        f"All examples must have one shape, but {key!r} has shapes such as"
        f" {', '.join(map(str, sorted(shapes)[:3]))}. Resize pictures and pad texts first.",
    )
    if any(value.dtype.kind in "US" for value in values):
        return np.concatenate([value.astype(object) for value in values])
    return np.concatenate(values)

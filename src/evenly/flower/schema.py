"""What all clients of a table must agree on before they can train together, in one JSON file that a person can read.

Which column means what, how columns become numbers, how labels, groups and clients are numbered. It holds no rows; but it names the
categories of each column, and the mean and deviation of each number over the training rows it was made from. It travels with the
app to everybody.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenly.data.encoding import Categorical, Column, Encoder, Numeric, check_table, column_of
from evenly.data.federation import Federation
from evenly.data.splits import SHARES, split_rows
from evenly.flower.clients.data import ClientData, rows
from evenly.notation import unknown
from evenly.records import require
from evenly.writing import write_whole

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Schema:
    """A table's columns and their meaning."""

    client: str  # column that names the client of each row; a table without it is of one client
    label: str
    sensitive: tuple[str, ...]
    clients: tuple[str, ...]
    labels: tuple[str, ...]
    groups: tuple[str, ...]
    combinations: tuple[tuple[str, ...], ...]  # the values of the sensitive columns that each group has
    unprivileged: tuple[int, ...]
    favourable: int
    encoder: Encoder

    @property
    def told_apart(self) -> tuple[str, ...]:
        """The columns that tell clients and people apart, for `read_table`."""
        return (self.client, *self.sensitive)

    @property
    def features(self) -> int:
        return len(self.encoder.features)


def schema_of(federation: Federation, *, client: str, label: str, sensitive: Sequence[str]) -> Schema:
    """The schema of a federation that was made of a table with these columns."""
    require(federation.encoder is not None, "A schema is of a table; this federation was made of arrays. Use Federation.from_frame.")
    assert federation.encoder is not None
    made = federation.attributes
    combinations = tuple(tuple(a.values[a.of_group[g]] for a in made) for g in range(len(federation.groups)))
    return Schema(
        client=client,
        label=label,
        sensitive=tuple(sensitive),
        clients=federation.names,
        labels=federation.labels,
        groups=federation.groups,
        combinations=combinations,
        unprivileged=federation.unprivileged,
        favourable=federation.favourable,
        encoder=federation.encoder,
    )


def write_schema(schema: Schema, path: Path) -> None:
    """Write it so that a person can read and change it."""
    plain = {f.name: getattr(schema, f.name) for f in dataclasses.fields(schema)}
    columns = [{f.name: getattr(c, f.name) for f in dataclasses.fields(c)} for c in schema.encoder.columns]  # pyright: ignore[reportArgumentType]
    text = json.dumps({"format": FORMAT, **plain, "encoder": columns}, indent=1, ensure_ascii=False)
    write_whole(path, lambda file: file.write(f"{text}\n".encode()))


def read_schema(path: Path) -> Schema:
    """Read it back."""
    try:
        told = json.loads(path.read_text())
        columns = tuple(_column(entry) for entry in told.pop("encoder"))
        newest = told.pop("format")
        require(newest <= FORMAT, f"{path.name} has format {newest}, but this evenly reads up to {FORMAT}. Update evenly to read it.")
        return Schema(**{name: _fixed(value) for name, value in told.items()}, encoder=Encoder(columns=columns))
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path} is not a whole schema ({type(error).__name__}: {error}). Make the app again with `evenly flower new`."
        ) from None


def client_of_table(schema: Schema, frame: Any, client: str, *, seed: int = 0) -> ClientData:
    """One client's rows, encoded and split as in a simulation on the whole table.

    Where the table has the client column, only the rows of this client are read; else all of them are its own.
    """
    if client not in schema.clients:
        raise unknown("client", client, schema.clients)
    number = schema.clients.index(client)
    if schema.client in frame.columns:
        frame = frame[column_of(frame, schema.client).words() == client]
    require(len(frame) > 0, f"The table has no row of client {client!r} in column {schema.client!r}. Check the client's name and its file.")
    check_table(frame, [schema.label, *schema.sensitive])
    y = _numbers(column_of(frame, schema.label), schema.labels)
    whole = rows(schema.encoder.encode(frame), y, _groups(schema, frame))
    parts = (part.of(number) for part in split_rows(np.full(len(y), number), number + 1, shares=SHARES, seed=seed))
    train, valid, test = (rows(whole.x[own], whole.y[own], whole.group[own]) for own in parts)
    return ClientData(
        train, valid, test, labels=schema.labels, groups=schema.groups, unprivileged=schema.unprivileged, favourable=schema.favourable,
        number=number, name=client,
    )  # fmt: skip


def _groups(schema: Schema, frame: Any) -> np.ndarray | None:
    if not schema.sensitive:
        return None
    columns = [column_of(frame, name) for name in schema.sensitive]
    for column in columns:
        column.refuse_missing()
    places = {values: g for g, values in enumerate(schema.combinations)}
    found = list(zip(*(column.words() for column in columns), strict=True))
    strange = next((values for values in found if values not in places), None)
    if strange is not None:
        told = ", ".join(f"{name}={value}" for name, value in zip(schema.sensitive, strange, strict=True))
        raise ValueError(
            f"Some people are {told}, which is none of the schema's groups: {'; '.join(schema.groups)}. Add the group to the schema."
        )
    return np.array([places[values] for values in found], np.int32)


def _numbers(column: Column, names: tuple[str, ...]) -> np.ndarray:
    column.refuse_missing()
    words = column.words()
    strange = ~np.isin(words.astype(str), names)
    if strange.any():
        raise unknown(f"label in {column.what}", str(words[int(strange.argmax())]), names)
    return np.array([names.index(word) for word in words], np.int32)


def _column(entry: dict[str, Any]) -> Numeric | Categorical:
    kind = Categorical if "categories" in entry else Numeric
    return kind(**{name: _fixed(value) for name, value in entry.items()})


def _fixed(value: Any) -> Any:
    """Lists as tuples, all the way down."""
    return tuple(map(_fixed, value)) if isinstance(value, list) else value

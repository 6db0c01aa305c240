"""Flower apps: the schema that clients of a table share, and the files that `evenly flower new`
writes.
"""

import dataclasses
import json
import keyword
import os
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from evenly.algorithms import METHODS, algorithm
from evenly.data.encoding import Categorical, Encoder, Numeric, TableColumn, check_table, column_of
from evenly.data.federation import Federation
from evenly.data.sensitive import Attribute
from evenly.data.splits import SHARES, split_rows
from evenly.experiment.plan import MOST_ROUNDS
from evenly.flower.clients.policy import LEAST_CELL, policy_text
from evenly.flower.clients.rows import ClientData, Decisions, client_of, rows, rows_apart
from evenly.notation import parse, show, unknown
from evenly.plugins import load_installed
from evenly.records import require
from evenly.validation import shortened
from evenly.writing import write_whole

# What all clients of a table must agree on before they can train together, in one JSON file that a
# person can read.
#
# Which column means what, how columns become numbers, how labels, groups and clients are numbered.
# It holds no rows; but it names the categories of each column, and the mean and deviation of each
# number over the training rows it was made from. It travels with the app to everybody.

FORMAT = 2


@dataclasses.dataclass(frozen=True)
class Schema:
    """Meaning of a table's columns, shared by all clients."""

    client: str  # column that names the client of each row; a table without it is of one client
    label: str
    sensitive: tuple[str, ...]
    clients: tuple[str, ...]
    labels: tuple[str, ...]
    groups: tuple[str, ...]
    # the values of the sensitive columns that each group has
    combinations: tuple[tuple[str, ...], ...]
    unprivileged: tuple[int, ...]
    favourable: int
    encoder: Encoder
    # the unprivileged value of each sensitive column; (): a schema of an earlier version
    unprivileged_values: tuple[str, ...] = ()
    # what nobody named: "favourable", or sensitive columns
    assumed: tuple[str, ...] = ()

    @property
    def identifying_columns(self) -> tuple[str, ...]:
        """Columns that identify clients and groups of people, for `read_table`."""
        return (self.client, *self.sensitive)

    told_apart = identifying_columns  # the name in apps that `evenly flower new` wrote before

    @property
    def features(self) -> int:
        return len(self.encoder.features)


def schema_of(
    federation: Federation, *, client: str, label: str, sensitive: Sequence[str],
    assumed: Sequence[str] = (),
) -> Schema:  # fmt: skip
    """Schema of a federation that was made from a table with these columns. `assumed` names what
    its user did not: "favourable", or sensitive columns.
    """
    require(
        federation.encoder is not None,
        "A schema needs a federation that was made from a table, got one made from arrays. Use"
        " Federation.from_frame.",
    )
    assert federation.encoder is not None
    made = federation.attributes
    combinations = tuple(
        tuple(a.values[a.of_group[g]] for a in made) for g in range(len(federation.groups))
    )
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
        unprivileged_values=tuple(a.values[a.unprivileged] for a in made),
        assumed=tuple(assumed),
    )


def write_schema(schema: Schema, path: Path) -> None:
    """Write the schema as JSON that people can read and edit."""
    plain = {f.name: getattr(schema, f.name) for f in dataclasses.fields(schema)}
    columns = [
        {f.name: getattr(c, f.name) for f in dataclasses.fields(c)} for c in schema.encoder.columns
    ]  # pyright: ignore[reportArgumentType]
    text = json.dumps({"format": FORMAT, **plain, "encoder": columns}, indent=1, ensure_ascii=False)
    write_whole(path, lambda file: file.write(f"{text}\n".encode()))


def read_schema(path: Path) -> Schema:
    """Read a schema."""
    try:
        told = json.loads(path.read_text())
        columns = tuple(_column(entry) for entry in told.pop("encoder"))
        newest = told.pop("format")
        require(
            newest <= FORMAT,
            f"{path.name} has format {newest}, but this version of evenly reads up to format"
            f" {FORMAT}. Update evenly.",
        )
        return Schema(
            **{name: _fixed(value) for name, value in told.items()},
            encoder=Encoder(columns=columns),
        )
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path} is not a complete schema ({type(error).__name__}: {error}). Make the app again"
            " with `evenly flower new`."
        ) from None


def client_of_table(
    schema: Schema,
    frame: Any,
    client: str,
    *,
    seed: int = 0,
    prediction: str = "",
    score: str = "",
) -> ClientData:
    """One client's rows, encoded and split as in a simulation on the whole table.

    Where the table has the client column, only the rows of this client are read; else all of them
    are its own. `prediction` and `score` are columns with what a model of the client's own says,
    for audits.
    """
    if client not in schema.clients:
        raise unknown("client", client, schema.clients)
    number = schema.clients.index(client)
    if schema.client in frame.columns:
        frame = frame[column_of(frame, schema.client).words() == client]
    require(
        len(frame) > 0,
        f"The table has no row of client {client!r} in column {schema.client!r}. Check the client's"
        " name and its file.",
    )
    check_table(frame, [schema.label, *schema.sensitive])
    y = _numbers(column_of(frame, schema.label), schema.labels)
    whole = rows(schema.encoder.encode(frame), y, _groups(schema, frame))
    parts = [
        part.of(number)
        for part in split_rows(np.full(len(y), number), number + 1, shares=SHARES, seed=seed)
    ]
    train, valid, test = (rows(whole.x[own], whole.y[own], whole.group[own]) for own in parts)
    return ClientData(
        train, valid, test, labels=schema.labels, groups=schema.groups,
        unprivileged=schema.unprivileged, favourable=schema.favourable, number=number, name=client,
        decisions=_decisions(schema, frame, parts[-1], prediction, score),
        attributes=_attributes(schema), assumed=schema.assumed,
    )  # fmt: skip


def _decisions(
    schema: Schema, frame: Any, test: np.ndarray, prediction: str, score: str
) -> Decisions | None:
    """Predictions and scores in columns of the table, of the test rows."""
    if not prediction:
        require(not score, f"A column of scores ({score!r}) needs a column of predictions.")
        return None
    check_table(frame, [prediction, *([score] if score else [])])
    outcome = _numbers(column_of(frame, prediction), schema.labels)
    scores = np.asarray(frame[score], np.float64)[test] if score else None
    return Decisions(outcome[test], scores)


def _attributes(schema: Schema) -> tuple[Attribute, ...]:
    """The sensitive columns, with the value of each group and the unprivileged one."""
    found = []
    for i, name in enumerate(schema.sensitive):
        held = [values[i] for values in schema.combinations]
        values = tuple(dict.fromkeys(held))
        side = schema.unprivileged_values[i] if schema.unprivileged_values else None
        unprivileged = values.index(side) if side in values else -1
        of_group = tuple(values.index(each) for each in held)
        found.append(Attribute(name, values, of_group, unprivileged))
    return tuple(found)


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
        told = ", ".join(
            f"{name}={value}" for name, value in zip(schema.sensitive, strange, strict=True)
        )
        raise ValueError(
            f"Some rows have {told}, which is none of the schema's groups:"
            f" {'; '.join(schema.groups)}. Add the group to the schema."
        )
    return np.array([places[values] for values in found], np.int32)


def _numbers(column: TableColumn, names: tuple[str, ...]) -> np.ndarray:
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
    """Convert lists to tuples, recursively."""
    return tuple(map(_fixed, value)) if isinstance(value, list) else value


# Write a small Flower app: on a user's own table, or on a synthetic federation.

SYNTHETIC_CLIENTS = 3
LEAST_ANSWERS = 2  # of a round; fewer would be one client, whose update is not mixed with others
TABLE_NOTE = """\
On a real federation every client has its own table, with the same columns. Its SuperNode is told where that is and what the
client is called: `--node-config 'table="/path/table.csv" client="$first"'`. What must be agreed before is in
`$package/schema.json`: read it before you share the app, because it names categories, and gives the mean and deviation of each
number."""  # noqa: E501
SYNTHETIC_NOTE = """\
To train on data of your own, change `own_rows` in `$package/client_app.py` and the model in `$package/task.py`; or begin again
with a table: `evenly flower new DIR --data table.csv --client COLUMN --label COLUMN`."""  # noqa: E501


def default_method(sensitive: Sequence[str] = ()) -> str:
    """The method of an app whose user names none: for groups of people if there are sensitive
    columns, else for clients.
    """
    return "fairfed(metric=eod)+reweigh" if sensitive else "q-fedavg(q=1)"


def write_synthetic_app(folder: Path, *, method: str = "", rounds: int = 5) -> list[Path]:
    """Write an app on a synthetic federation and return the paths of its files."""
    method = method or default_method()
    words = {
        "title": "A synthetic federation",
        "clients": SYNTHETIC_CLIENTS,
        "least": LEAST_ANSWERS,
        "shared": "the model",
        "reads": "it trains on its part of a synthetic federation",
        "note": SYNTHETIC_NOTE,
    }
    written = _write(folder, "synthetic", words, method=method, rounds=rounds)
    sites = dict.fromkeys(map(site_name, range(SYNTHETIC_CLIENTS)), 1)
    _write_policies(folder, method, sites, any_model=True)  # it has ten classes
    return written


def write_table_app(
    folder: Path,
    table: Path,
    federation: Federation,
    *,
    client: str,
    label: str,
    sensitive: Sequence[str] = (),
    assumed: Sequence[str] = (),
    method: str = "",
    rounds: int = 5,
) -> list[Path]:
    """Write an app for the clients of a table and return the paths of its files."""
    method = method or default_method(sensitive)
    schema = schema_of(federation, client=client, label=label, sensitive=sensitive, assumed=assumed)
    words = {
        "title": f"{label} in {table.stem}",
        "clients": federation.clients,
        "least": min(LEAST_ANSWERS, federation.clients),
        "first": federation.names[0],
        "shared": "how columns become numbers (`schema.json`), and the model",
        "reads": "it trains on its own table",
        "note": TABLE_NOTE,
    }
    written = _write(
        folder, "table", words, method=method, rounds=rounds, schema=schema, table=table
    )
    least = {
        site_name(k, name): _least_count(client_of(federation, k))
        for k, name in enumerate(federation.names)
    }
    _write_policies(folder, method, least, any_model=len(federation.labels) > 2)
    return written


# One policy for each site, in a folder of its own, beside which the client keeps its egress log. No
# policy travels with the app.

SITES = "sites"
ENOUGH = 4 * LEAST_CELL  # rows of a group and label of which predictions rarely leave a small count
FEW_ROWS = (
    "A real site begins with 5. It is 1 in this trial, because some groups, labels or categories of"
    "\n# this site have so few rows that most of its answers would be refused."
)


def site_name(number: int, name: str = "") -> str:
    """Name of a client's folder, log and key files.

    >>> site_name(0), site_name(1, "St. Mary's")
    ('client-0', 'client-1-St--Mary-s')
    """
    plain = "".join(c if c.isalnum() and c.isascii() else "-" for c in name)[:40]
    return f"client-{number}-{plain}".rstrip("-")


def policy_path(folder: Path, site: str) -> Path:
    """Where the policy of a site of a trial is."""
    return folder / SITES / site / "policy.toml"


def _least_count(client: ClientData) -> int:
    """Least cell of a site's policy: the default where most answers will hold it, else 1."""
    counts = []
    for own in (client.train, client.test):
        cells = np.zeros(client.shape, np.int64)
        np.add.at(cells, (own.group, own.y), 1)
        counts.append(cells)
    apart = rows_apart(client.train.x)
    few = any(((cells > 0) & (cells < ENOUGH)).any() for cells in counts)
    few |= bool(((apart > 0) & (apart < LEAST_CELL)).any())
    return 1 if few else LEAST_CELL


def _write_policies(folder: Path, method: str, least: dict[str, int], *, any_model: bool) -> None:
    for site, count in least.items():
        path = policy_path(folder, site)
        path.parent.mkdir(parents=True)
        why = "" if count == LEAST_CELL else FEW_ROWS
        agreed = (show(parse(method)),)
        path.write_text(policy_text(agreed, least=count, why=why, any_model=any_model))


def _write(
    folder: Path,
    kind: str,
    words: dict[str, Any],
    *,
    method: str,
    rounds: int,
    schema: Schema | None = None,
    table: Path | None = None,
) -> list[Path]:
    """Write the files of an app and return their paths."""
    require(rounds >= 1, f"rounds must be at least 1, got {rounds}.")
    require(
        rounds <= MOST_ROUNDS,
        f"rounds must be at most {MOST_ROUNDS:,}, got {shortened(rounds)}.",
    )
    load_installed()
    algorithm(method)  # raises before anything is written
    empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    require(
        empty,
        f"{folder} must not exist yet, or be an empty folder, because nothing is overwritten."
        " Choose another folder.",
    )
    name = _project(folder)
    package = name.replace("-", "_")
    words = {
        **words,
        "name": name,
        "package": package,
        "method": json.dumps(show(parse(method))),
        "rounds": rounds,
    }
    files = _fill_templates(kind, words, ["py"] if schema is None else ["py", "json"])
    if table is not None:
        files["pyproject.toml"] += _table_setting(folder, table)
    for place, text in files.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    written = [folder / place for place in files]
    if schema is not None:
        written.append(folder / package / "schema.json")
        write_schema(schema, written[-1])
    return written


def _fill_templates(kind: str, words: dict[str, Any], suffixes: list[str]) -> dict[str, str]:
    """Texts of an app's files by their places; `suffixes` are of the files that travel to
    clients.
    """
    package = words["package"]
    words = {**words, "travels": json.dumps([f"{package}/*.{suffix}" for suffix in suffixes])}
    words["note"] = Template(words["note"]).substitute(words)
    sources = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        f"{package}/server_app.py": "server_app.py",
        f"{package}/client_app.py": f"client_app_{kind}.py",
        f"{package}/task.py": f"task_{kind}.py",
    }
    texts = {
        place: Template(_template(source)).substitute(words) for place, source in sources.items()
    }
    return {**texts, f"{package}/__init__.py": f'"""{words["title"]}."""\n'}


def _table_setting(folder: Path, table: Path) -> str:
    """Setting with the path of the table of all clients, which only `evenly flower up` uses."""
    where = os.path.relpath(table.resolve(), folder.resolve())
    return (
        f"\n[tool.evenly]\ntable = {json.dumps(where, ensure_ascii=False)}"
        " # only `evenly flower up` reads it: all clients' rows, on this machine\n"
    )


def _template(name: str) -> str:
    return (files("evenly.flower") / "templates" / f"{name}.txt").read_text()


def _project(folder: Path) -> str:
    """Project name from the folder's name that Python and Flower accept."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    if (
        not name
        or name[0].isdigit()
        or keyword.iskeyword(name.replace("-", "_"))
        or name in METHODS | {"evenly": None, "flwr": None}
    ):
        name = f"app-{name}".strip("-")
    return name

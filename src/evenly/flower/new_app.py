"""Write a small Flower app: on a user's own table, or on a synthetic federation."""

import json
import keyword
import os
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from evenly.algorithms import METHODS, algorithm
from evenly.data.federation import Federation
from evenly.flower.schema import Schema, schema_of, write_schema
from evenly.notation import parse, show
from evenly.records import require

SYNTHETIC_CLIENTS = 3
TABLE_NOTE = """\
On a real federation every client has its own table, with the same columns. Its SuperNode is told where that is and what the
client is called: `--node-config 'table="/path/table.csv" client="$first"'`. What must be agreed before is in
`$package/schema.json`: read it before you share the app, because it names categories, and gives the mean and deviation of each
number."""
SYNTHETIC_NOTE = """\
To train on data of your own, change `own_rows` in `$package/client_app.py` and the model in `$package/task.py`; or begin again
with a table: `evenly flower new DIR --data table.csv --client COLUMN --label COLUMN`."""


def write_synthetic_app(folder: Path, *, method: str = "q-fedavg(q=1)", rounds: int = 5) -> list[Path]:
    """An app on a synthetic federation; the files that were written."""
    words = {
        "title": "A synthetic federation",
        "clients": SYNTHETIC_CLIENTS,
        "shared": "the model",
        "reads": "it trains on its part of a synthetic federation",
        "note": SYNTHETIC_NOTE,
    }
    return _write(folder, "synthetic", words, method, rounds)


def write_table_app(
    folder: Path,
    table: Path,
    federation: Federation,
    *,
    client: str,
    label: str,
    sensitive: Sequence[str] = (),
    method: str = "",
    rounds: int = 5,
) -> list[Path]:
    """An app for the clients of a table, from which the federation was made; the files that were written."""
    method = method or ("fairfed(metric=eod)+reweigh" if sensitive else "q-fedavg(q=1)")
    schema = schema_of(federation, client=client, label=label, sensitive=sensitive)
    words = {
        "title": f"{label} in {table.stem}",
        "clients": federation.clients,
        "first": federation.names[0],
        "shared": "how columns become numbers (`schema.json`), and the model",
        "reads": "it trains on its own table",
        "note": TABLE_NOTE,
    }
    return _write(folder, "table", words, method, rounds, schema, table)


def _write(
    folder: Path, kind: str, words: dict[str, Any], method: str, rounds: int, schema: Schema | None = None, table: Path | None = None
) -> list[Path]:
    require(rounds >= 1, f"There must be at least 1 round, got {rounds}.")
    algorithm(method)  # a mistake in it is told before anything is written
    empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    require(empty, f"{folder} must not exist yet, or be an empty folder: nothing is overwritten. Choose another place.")
    name = _project(folder)
    package = name.replace("-", "_")
    words = {**words, "name": name, "package": package, "method": json.dumps(show(parse(method))), "rounds": rounds}
    kinds = ["py"] if schema is None else ["py", "json"]
    words["travels"] = json.dumps([f"{package}/*.{kind}" for kind in kinds])
    words["note"] = Template(words["note"]).substitute(words)
    texts = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        f"{package}/server_app.py": "server_app.py",
        f"{package}/client_app.py": f"client_app_{kind}.py",
        f"{package}/task.py": f"task_{kind}.py",
    }
    filled = {place: Template(_template(source)).substitute(words) for place, source in texts.items()}
    filled[f"{package}/__init__.py"] = f'"""{words["title"]}."""\n'
    if table is not None:
        filled["pyproject.toml"] += _own_table(folder, table)
    for place, text in filled.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    written = [folder / place for place in filled]
    if schema is not None:
        written.append(folder / package / "schema.json")
        write_schema(schema, written[-1])
    return written


def _own_table(folder: Path, table: Path) -> str:
    """Where `evenly flower up` finds the table of all clients on this machine; a real client is told its own."""
    where = os.path.relpath(table.resolve(), folder.resolve())
    return f"\n[tool.evenly]\ntable = {json.dumps(where)} # only `evenly flower up` reads it: all clients' rows, on this machine\n"


def _template(name: str) -> str:
    return (files("evenly.flower") / "templates" / f"{name}.txt").read_text()


def _project(folder: Path) -> str:
    """A name that Python and Flower accept, from the folder's."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    if not name or name[0].isdigit() or keyword.iskeyword(name.replace("-", "_")) or name in METHODS | {"evenly": None, "flwr": None}:
        name = f"app-{name}".strip("-")
    return name

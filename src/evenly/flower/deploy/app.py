"""What `evenly flower up` must know of an app: its settings, and what each SuperNode is told."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evenly.flower.schema import read_schema
from evenly.records import require


class App(NamedTuple):
    """A Flower app in a folder."""

    folder: Path
    name: str
    config: Mapping[str, Any]  # its run config, where nothing else is given
    nodes: Mapping[str, Mapping[str, Any]]  # what each SuperNode is told, by the client's name


def read_app(folder: Path, clients: int | None = None) -> App:
    """An app that `evenly flower new` wrote, or any other, with so many clients."""
    told = _project(folder)
    config = told["tool"]["flwr"]["app"].get("config", {})
    package = str(told["tool"]["flwr"]["app"]["components"].get("clientapp", "")).partition(".")[0]
    schema = folder / package / "schema.json"
    table = told["tool"].get("evenly", {}).get("table")
    if table is None or not schema.is_file():
        count = clients or int(config.get("clients", 2))
        nodes = {f"client-{k}": {"partition-id": k, "num-partitions": count} for k in range(count)}
        return App(folder, str(told["project"]["name"]), config, nodes)
    names, path = read_schema(schema).clients, (folder / table).resolve()
    require(path.is_file(), f"The table {path} is not there. Put it back, or correct `table` in {folder / 'pyproject.toml'}.")
    require(
        clients is None or clients <= len(names),
        f"The table has {len(names)} clients, so at most that many can be started, got {clients}.",
    )
    shown = {_short(name, k): name for k, name in enumerate(names[: clients or len(names)])}
    nodes = {
        short: {"partition-id": k, "num-partitions": len(shown), "client": name, "table": str(path)}
        for k, (short, name) in enumerate(shown.items())
    }
    return App(folder, str(told["project"]["name"]), config, nodes)


def _short(name: str, number: int) -> str:
    """A client's name as that of a file: a log, a key."""
    plain = "".join(c if c.isalnum() and c.isascii() else "-" for c in name)[:40]
    return f"client-{number}-{plain}".rstrip("-")


def _project(folder: Path) -> dict[str, Any]:
    path = folder / "pyproject.toml"
    require(path.is_file(), f"There is no Flower app in {folder}: pyproject.toml is missing. `evenly flower new {folder}` writes one.")
    try:
        told = tomllib.loads(path.read_text())
        require(bool(told["project"]["name"]) and bool(told["tool"]["flwr"]["app"]["components"]), f"{path} is of no Flower app.")
    except (KeyError, TypeError):
        raise ValueError(f"{path} is of no Flower app: it has no [project] name or no [tool.flwr.app.components].") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}.") from None
    return told

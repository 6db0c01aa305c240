"""Where an experiment's data come from: a named data set, or a user's own table."""

import hashlib
import inspect
from pathlib import Path
from typing import Any

from evenly.datasets import DATASETS
from evenly.federation import Federation
from evenly.notation import unknown


def load(data: dict[str, Any], split_seed: int) -> Federation:
    """The federation that a plan's `data` describes, split with this seed."""
    if "path" in data:
        return _from_table(data, split_seed)
    settings = {k: v for k, v in data.items() if k != "name"}
    name = data["name"]
    if name not in DATASETS:
        hint = " To use a table of your own, give a .csv or .parquet file." if "." not in name else ""
        raise ValueError(f"{unknown('data set', name, DATASETS)}{hint}")
    known = [p for p in inspect.signature(DATASETS[name].load).parameters if p != "split_seed"]
    for setting in settings:
        if setting not in known:
            raise ValueError(f"{name}: {unknown('setting', setting, known)}")
    return DATASETS[name].load(**settings, split_seed=split_seed)


def table_source(path: str, *, client: str | None, label: str | None, sensitive: list[str]) -> dict[str, Any]:
    """A plan's `data` for a user's own file. Its contents are hashed, so that results never mix two versions of it."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"There is no file {path!r}. Give the path of a .csv or .parquet table, or the name of a data set.")
    if client is None or label is None:
        raise ValueError(f"A table needs --client and --label: the columns of {file.name} that name the client and the label.")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {"path": str(file), "sha256": digest, "client": client, "label": label, "sensitive": sensitive}


def is_table(name: str) -> bool:
    return name.endswith((".csv", ".parquet", ".csv.gz"))


def _from_table(data: dict[str, Any], split_seed: int) -> Federation:
    frame = read_table(Path(data["path"]))
    return Federation.from_frame(
        frame, client=data["client"], label=data["label"], sensitive=data["sensitive"], seed=split_seed, name=Path(data["path"]).stem
    )


def read_table(path: Path) -> Any:
    """A pandas table from a CSV or Parquet file, with errors that name the file."""
    import pandas as pd  # only here: the core runs without pandas

    try:
        return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} must be UTF-8 text, but some bytes are not. Save it as UTF-8.") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, OSError, ValueError) as error:
        raise ValueError(f"{path.name} could not be read as a table: {error}") from None

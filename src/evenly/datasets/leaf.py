"""The JSON format of LEAF: `users`, `num_samples`, and `user_data`, which gives every user its `x` and `y`.

LEAF's scripts write `all_data.json` or several files `all_data_0.json`, `all_data_1.json`, ...; any of them may be gzipped.
One file is in memory at a time.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from evenly.datasets.files import DataError, DataFile, MissingData, missing_sentence, place

HOME = "https://github.com/TalwalkarLab/leaf"


class User(NamedTuple):
    """One user's examples as the file gives them."""

    name: str
    x: list[Any]
    y: list[Any]


def leaf_file(name: str, what: str, *, first: str = "all_data.json") -> DataFile:
    """What is missing when a LEAF data set has no file: its first."""
    return DataFile(
        path=f"{name}/{first}",
        what=what,
        by_hand=f"run data/{name}/preprocess.sh of LEAF ({HOME}) and copy the files of data/{name}/data/all_data here.",
    )


def leaf_paths(file: DataFile) -> list[Path]:
    """Every all_data*.json of the data set, gzipped or not, in order."""
    folder = place(file).parent
    paths = sorted(path for path in folder.glob("all_data*.json*") if path.name.endswith((".json", ".json.gz")))
    if not paths:
        raise MissingData(missing_sentence(file))
    return paths


def read_leaf(paths: list[Path]) -> Iterator[User]:
    """Every user of every file, in the files' order."""
    for path in paths:
        content = read_json(path)
        _check_keys(path, content)
        for name, size in zip(content["users"], content["num_samples"], strict=True):
            data = content["user_data"].pop(name)
            if not isinstance(data, dict) or "x" not in data or "y" not in data:
                raise DataError(f"{path}: user {name!r} must have x and y.")
            if not len(data["x"]) == len(data["y"]) == size:
                raise DataError(
                    f"{path}: user {name!r} must have {size} samples as num_samples says, got {len(data['x'])} x and {len(data['y'])} y."
                )
            yield User(str(name), data["x"], data["y"])


def read_json(path: Path) -> Any:
    """The content of a JSON file, gzipped or not."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as stream:
            return json.load(stream)
    except (json.JSONDecodeError, UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not whole JSON: {error}. It may be cut off; get it again.") from None


def _check_keys(path: Path, content: Any) -> None:
    wanted = ("users", "num_samples", "user_data")
    if not isinstance(content, dict) or any(key not in content for key in wanted):
        raise DataError(f"{path} must be a LEAF file, an object with users, num_samples and user_data.")
    users, data = content["users"], content["user_data"]
    if len(users) != len(content["num_samples"]) or sorted(users) != sorted(data):
        raise DataError(
            f"{path}: users, num_samples and user_data must be of the same users, got {len(users)} users and {len(data)} in data."
        )

"""From what a user names (a data set, a synthetic federation or a table) to a federation, refused early where memory is too small."""

import csv
import hashlib
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from evenly.data.columns import ColumnChoice
from evenly.data.encoding import whole_words
from evenly.data.federation import FairnessChoice, Federation, Source
from evenly.data.splits import SHARES, Ragged
from evenly.datasets import DATASETS
from evenly.datasets.files import DatasetCard
from evenly.notation import unknown
from evenly.outside import check_kinds, shortened
from evenly.records import replace, require

# How much memory this machine has, and what would not fit into it: seen before anything is built.
#
# Estimates are of what must be there at once at the least. Training takes more: batches, gradients and what compiled code needs.

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container, in both versions


def available() -> float:
    """Bytes that can be taken: what is free or can be freed, and not more than a container may have. Infinite where nobody says."""
    limits = [_free(), *(_number(Path(path)) for path in LIMITS)]
    return min((limit for limit in limits if limit is not None), default=float("inf"))


def _free() -> float | None:
    """What Linux says is available; elsewhere all memory there is."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (OSError, ValueError, AttributeError):
        return None


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):  # no container, or "max": no limit
        return None


def refuse_large(needed: float, what: str, instead: str) -> None:
    """Refuse what needs more memory than can be taken; `instead` says what to lower."""
    free = available()
    if needed > free:
        raise ValueError(f"{what} needs about {size(needed)} of memory at least, but {size(free)} are free on this machine. {instead}")


def refuse_large_data(card: DatasetCard, settings: Mapping[str, Any]) -> None:
    """Refuse a data set that would not fit with these settings, before any of it is drawn or read."""
    if card.memory is not None:
        given = inspect.signature(card.load).bind_partial(**settings)
        given.apply_defaults()
        refuse_large(card.memory(given.arguments), f"Data set {card.name!r} with these settings", "Choose fewer clients, rows or features.")


def size(number: float) -> str:
    """Bytes as a person says them.

    >>> size(1536), size(3.6e12)
    ('1.5 KiB', '3.27 TiB')
    """
    unit = 0
    while number >= 1024 and unit < len(UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.3g} {UNITS[unit]}" if number < 1000 else f"{number:.0f} {UNITS[unit]}"


# Where an experiment's data come from: a named data set, or a user's own table.

ASSUMED = "assumed"  # a key of a table's `data`: "favourable" and the sensitive columns whose unprivileged value the user did not name
TABLE = {
    "path": str, "sha256": str, "client": str, "label": str, "sensitive": list[str], "favourable": str | None,
    "unprivileged": list[list[str]], "features": list[str], "drop": list[str], ASSUMED: list[str],
}  # fmt: skip
HIDE_TEST = "hide_test"  # a key of a plan's `data`: no test rows at all, for whoever must not see them yet


def load(data: dict[str, Any], split_seed: int) -> Federation:
    """The federation that a plan's `data` describes, split with this seed."""
    if data.get(HIDE_TEST):
        whole = load({key: value for key, value in data.items() if key != HIDE_TEST}, split_seed)
        return replace(whole, test=Ragged.from_lists([np.zeros(0, np.int32)] * whole.clients), central=np.zeros(0, np.int32))
    if "path" in data:
        return _from_table(data, split_seed)
    check_kinds(data, {"name": str})
    settings = {k: v for k, v in data.items() if k != "name"}
    name = data.get("name", "")
    if name not in DATASETS:
        hint = " To use a table of your own, give a .csv or .parquet file." if "." not in name else ""
        raise ValueError(f"{unknown('data set', name, DATASETS)}{hint}")
    known = [p for p in inspect.signature(DATASETS[name].load).parameters if p != "split_seed"]
    for setting in settings:
        if setting not in known:
            raise ValueError(f"{name}: {unknown('setting', setting, known)}")
    try:
        check_kinds(settings, inspect.get_annotations(DATASETS[name].load, eval_str=True))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    refuse_large_data(DATASETS[name], settings)
    return DATASETS[name].load(**settings, split_seed=split_seed)


def table_source(
    path: str,
    *,
    client: str | None,
    label: str | None,
    sensitive: str | Sequence[str] | None = None,
    favourable: str | None = None,
    unprivileged: Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    drop: str | Sequence[str] | None = None,
) -> dict[str, Any]:
    """A plan's `data` for a user's own file. Its contents are hashed, so that results never mix two versions of it.

    `sensitive`, `features` and `drop` are lists of columns, or text with commas between them.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"There is no file {path!r}. Give the path of a .csv or .parquet table, or the name of a data set.")
    if client is None or label is None:
        raise ValueError(f"A table needs --client and --label: the columns of {file.name} that name the client and the label.")
    digest = digest_of(file)
    columns = column_names(sensitive)
    chosen = {option: column_names(names) for option, names in (("features", features), ("drop", drop)) if names}
    # What is not given has no key, so that results of plans from before there were such keys are still found.
    wanted = {"favourable": favourable} if favourable is not None else {}
    sides = {"unprivileged": _unprivileged(unprivileged, columns)} if unprivileged else {}
    data = {"path": str(file), "sha256": digest, "client": client, "label": label, "sensitive": columns, **wanted, **sides, **chosen}
    return _settled(data) if columns else data


def _settled(data: dict[str, Any]) -> dict[str, Any]:
    """The same with a favourable label and with an unprivileged value for each sensitive column, and which of them are assumed.

    They are read from the training rows of the split with seed 0 and then hold for every seed: seeds must compare the same people.
    """
    named = dict(data.get("unprivileged", ()))
    wanted = FairnessChoice(data.get("favourable"), named or None)
    with _refusals():
        try:
            roles = _source(data, [data["client"], data["label"], *data["sensitive"]])
            made = roles.without_features(wanted, shares=SHARES, seed=0, name="")
        except ValueError:
            _source(data).federation(_choice(data), wanted, shares=SHARES, seed=0, name="")  # finds all that is wrong at once
            raise
    found = {a.name: a.values[a.unprivileged] for a in made.attributes}
    assumed = [*(["favourable"] if "favourable" not in data else []), *(name for name in found if name not in named)]
    settled = {"favourable": made.labels[made.favourable], "unprivileged": [[name, found[name]] for name in {**named, **found}]}
    return {**data, **settled, **({ASSUMED: assumed} if assumed else {})}


def digest_of(file: Path) -> str:
    """The hash of a file's contents, which are not held in memory."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def column_names(given: str | Sequence[str] | None) -> list[str]:
    """Names of columns from a list, or from text with commas between them; a name that holds a comma stands in double quotes.

    >>> column_names('age, "a, b"')
    ['age', 'a, b']
    """
    if not given or not isinstance(given, str):
        return list(given or ())
    names = next(csv.reader([given], skipinitialspace=True))
    return [name for name in (names if '"' in given else map(str.strip, names)) if name]


def _unprivileged(given: Sequence[str], columns: list[str]) -> list[list[str]]:
    """Pairs of a sensitive column and its unprivileged value: a list, because the first decides and a plan's keys are sorted."""
    require(bool(columns), f"--unprivileged {given[0]} needs a sensitive column; none is given. Name one with --sensitive.")
    pairs = [_pair(text, columns) for text in given]
    named = [column for column, _ in pairs]
    twice = next((column for column in named if named.count(column) > 1), None)
    require(twice is None, f"--unprivileged must give one value of {twice}, got several. Merge them into one value of the table first.")
    return pairs


def _pair(text: str, columns: list[str]) -> list[str]:
    for column in columns:
        if text.startswith(f"{column}="):
            return [column, text.removeprefix(f"{column}=")]
    require(
        len(columns) == 1,
        f"With several sensitive columns --unprivileged must be COLUMN=VALUE, with a column of {', '.join(columns)}, got {text!r}.",
    )
    return [columns[0], text]


def is_table(name: str) -> bool:
    return name.endswith((".csv", ".parquet", ".csv.gz"))


def _from_table(data: dict[str, Any], split_seed: int) -> Federation:
    check_kinds(data, TABLE)
    absent = [name for name in ("client", "label", "sensitive") if name not in data]
    require(
        not absent, f"The data of a table must have the key {absent[0] if absent else ''!r} as well; there are {shortened(list(data))}."
    )
    if "sha256" in data and digest_of(Path(data["path"])) != data["sha256"]:
        raise ValueError(f"The table {data['path']!r} has changed since these results were begun. Put it back, or begin anew elsewhere.")
    # A plan from before favourable labels and unprivileged values were settled in it goes on as it began: with the first of each.
    wanted = FairnessChoice(data.get("favourable"), dict(data["unprivileged"]) if "unprivileged" in data else None, in_order=True)
    with _refusals():
        return _source(data).federation(_choice(data), wanted, shares=SHARES, seed=split_seed, name=Path(data["path"]).stem)


@contextmanager
def _refusals() -> Iterator[None]:
    """A column of the wrong kind in a file is a mistake of the user like any other."""
    try:
        yield
    except TypeError as error:
        raise ValueError(str(error)) from None


def _choice(data: dict[str, Any]) -> ColumnChoice:
    return ColumnChoice(data.get("features"), data.get("drop", ()))


def _source(data: dict[str, Any], only: Sequence[str] | None = None) -> Source:
    sensitive = tuple(data["sensitive"])
    return Source(read_table(Path(data["path"]), [data["client"], *sensitive], only), data["client"], data["label"], sensitive)


def read_table(path: Path, text: Sequence[str] = (), only: Sequence[str] | None = None) -> Any:
    """A pandas table from a CSV or Parquet file, all of it or some columns, with errors that name the file.

    Columns in `text` tell clients or people apart: of a CSV file they are read as text, so that 007 and 7 stay two clients, and
    whole numbers of a Parquet file stay exact.
    """
    refuse_large(path.stat().st_size if path.is_file() else 0, f"The table {path.name!r}", "Take fewer rows, or keep fewer columns of it.")
    import pandas as pd  # only here: the core runs without pandas

    try:
        return _parquet(path, only) if path.suffix == ".parquet" else _csv(path, text, only)
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} must be UTF-8 text, but some bytes are not. Save it as UTF-8.") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, OSError) as error:
        raise ValueError(f"{path.name} could not be read as a table: {error}") from None


def _parquet(path: Path, only: Sequence[str] | None) -> Any:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as parquet

    # Of its own pandas makes floating-point numbers of whole ones where a column has gaps, and large ones become the same.
    kinds = [(sign, bits) for sign in ("", "u") for bits in (8, 16, 32, 64)]
    exact = {getattr(pa, f"{sign}int{bits}")(): pd.api.types.pandas_dtype(f"{sign.upper()}Int{bits}") for sign, bits in kinds}
    try:
        _check_header(path, parquet.read_schema(path).names, only)
        return parquet.read_table(path, columns=None if only is None else list(dict.fromkeys(only))).to_pandas(
            types_mapper=lambda kind: pd.api.types.pandas_dtype(exact[kind]) if kind in exact else None
        )
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path.name} could not be read as Parquet: {str(error).partition(chr(10))[0]}") from None


def _csv(path: Path, text: Sequence[str], only: Sequence[str] | None) -> Any:
    import pandas as pd

    header = [str(name).removeprefix("\ufeff") for name in pd.read_csv(path, header=None, nrows=1, dtype=str, na_filter=False).iloc[0]]
    _check_header(path, header, only)
    frame = pd.read_csv(
        path, dtype=dict.fromkeys(set(text) & set(header), str), usecols=None if only is None else list(dict.fromkeys(only))
    )
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes what is too much for a row's name, and moves every column
        raise ValueError(f"{path.name} must have as many values in a row as names in its header, which are {len(header)}; rows have more.")
    for name in set(text) & set(header):
        codes, words = pd.factorize(frame[name].str.strip().replace("", None))
        frame[name] = np.array([*whole_words(list(words)), None], dtype=object)[codes]  # -1 is a missing value
    return frame


def _check_header(path: Path, header: Sequence[str], only: Sequence[str] | None) -> None:
    """Raise if a column is missing, or if two have one name: pandas would call a second column y `y.1`, and it would be a feature."""
    for name in only or ():
        if name not in header:
            raise unknown("column", name, header, f" in {path.name}")
    names = [name.strip() for name in header if name.strip()]
    twice = list(dict.fromkeys(name for name in names if names.count(name) > 1))
    require(
        not twice,
        f"{path.name}: column names must be different, but {', '.join(map(repr, twice))} "
        f"{'occurs' if len(twice) == 1 else 'occur'} more than once. Rename or remove the other column.",
    )

"""Load the federation that a plan describes: a data set or the user's own table. Data that do not
fit into memory are refused early. Data sets are registered in `evenly.datasets`.
"""

import csv
import hashlib
import inspect
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from evenly.data.arrow import ColumnTable, digest_of_folder, hashed, parquet_files, parquet_table
from evenly.data.columns import ColumnChoice
from evenly.data.encoding import whole_words
from evenly.data.examples import split_anew
from evenly.data.federation import FairnessChoice, Federation, Source
from evenly.data.splits import SHARES, Ragged
from evenly.datasets import DATASETS
from evenly.datasets.files import DatasetCard
from evenly.notation import unknown
from evenly.records import replace, require
from evenly.validation import check_kinds, shortened

# Memory: data that do not fit are refused before anything is built.
#
# Estimates are lower bounds. Training takes more, for batches, gradients and compiled programs.

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
# of a container, in cgroup versions 2 and 1
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def available() -> float:
    """Return the bytes of available memory, at most the limit of a container. Infinite if the
    system does not report it.
    """
    limits = [_free(), *(_number(Path(path)) for path in LIMITS)]
    return min((limit for limit in limits if limit is not None), default=float("inf"))


def _free() -> float | None:
    """Return the available memory on Linux, and all memory elsewhere."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(
            1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")
        )
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
    """Raise a ValueError if something needs more memory than is available. `instead` is
    the remedy.
    """
    free = available()
    if needed > free:
        raise ValueError(
            f"{what} needs about {size(needed)} of memory at least, but {size(free)} are free on"
            f" this machine. {instead}"
        )


def refuse_large_data(card: DatasetCard, settings: Mapping[str, Any]) -> None:
    """Raise a ValueError if a data set with these settings would not fit into memory, before it is
    drawn or read.
    """
    if card.memory is not None:
        bound = inspect.signature(card.load).bind_partial(**settings)
        bound.apply_defaults()
        refuse_large(
            card.memory(bound.arguments),
            f"Data set {card.name!r} with these settings",
            "Choose fewer clients, rows or features.",
        )


def size(number: float) -> str:
    """Return a number of bytes in its natural unit.

    >>> size(1536), size(3.6e12)
    ('1.5 KiB', '3.27 TiB')
    """
    unit = 0
    while number >= 1024 and unit < len(UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.3g} {UNITS[unit]}" if number < 1000 else f"{number:.0f} {UNITS[unit]}"


# A plan's `data`: a named data set, or the user's own table.

# a key of a table's `data`: "favourable" and the sensitive columns whose unprivileged value was not
# given
ASSUMED = "assumed"
TABLE = {
    "path": str, "frame": str, "sha256": str, "client": str, "label": str, "sensitive": list[str],
    "favourable": str | None, "unprivileged": list[list[str]], "features": list[str],
    "drop": list[str], "split": str, "client_group": str, ASSUMED: list[str],
}  # fmt: skip
# a key of a plan's `data`: load no test rows, for a search that must not read them
HIDE_TEST = "hide_test"
# a key of the `data` of a federation in memory: split its rows anew for each seed
SPLIT_ANEW = "split_anew"


def load(data: dict[str, Any], split_seed: int, held: Any = None) -> Federation:
    """Return the federation that a plan's `data` describes, split with this seed.

    `held` is the table or the federation in memory, where `data` describes one. A federation keeps
    its split, unless it was made of a data set without one.
    """
    if data.get(HIDE_TEST):
        shown = {key: value for key, value in data.items() if key != HIDE_TEST}
        whole = load(shown, split_seed, held)
        return replace(
            whole,
            test=Ragged.from_lists([np.zeros(0, np.int32)] * whole.clients),
            central=np.zeros(0, np.int32),
        )
    if "path" in data or "frame" in data:
        return _from_table(data, split_seed, held)
    if "federation" in data:
        federation = _in_memory(held)
        return split_anew(federation, split_seed) if data.get(SPLIT_ANEW) else federation
    check_kinds(data, {"name": str})
    settings = {k: v for k, v in data.items() if k != "name"}
    name = data.get("name", "")
    if name not in DATASETS:
        hint = (
            " To use a table of your own, pass a .csv or .parquet file or a Parquet folder."
            if "." not in name
            else ""
        )
        raise ValueError(f"{unknown('data set', name, DATASETS)}{hint}")
    names = [
        parameter
        for parameter in inspect.signature(DATASETS[name].load).parameters
        if parameter != "split_seed"
    ]
    for setting in settings:
        if setting not in names:
            raise ValueError(f"{name}: {unknown('setting', setting, names)}")
    try:
        check_kinds(settings, inspect.get_annotations(DATASETS[name].load, eval_str=True))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    refuse_large_data(DATASETS[name], settings)
    return DATASETS[name].load(**settings, split_seed=split_seed)


def table_source(
    table: Any,
    *,
    client: str | None,
    label: str | None,
    sensitive: str | Sequence[str] | None = None,
    favourable: str | None = None,
    unprivileged: Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    drop: str | Sequence[str] | None = None,
    split: str | None = None,
    client_group: str | None = None,
    name: str = "table",
) -> dict[str, Any]:
    """Return a plan's `data` for the user's own table: a file, a folder of Parquet files, or a
    table in memory. Its content is hashed, so that results never mix two versions of it.

    `sensitive`, `features` and `drop` are lists of columns, or text with commas between them.
    `name` is that of a table in memory in results; a file has a name.
    """
    in_file = isinstance(table, str | Path)
    if in_file and not Path(table).exists():
        raise ValueError(
            f"There is no file {str(table)!r}. Give the path of a .csv or .parquet table or of a"
            " folder of Parquet files, or the name of a data set."
        )
    if client is None or label is None:
        what = Path(table).name if in_file else "the table"
        raise ValueError(
            f"A table needs client and label: the columns of {what} that name the client and the"
            " label (--client and --label on the command line)."
        )
    columns = column_names(sensitive)
    data: dict[str, Any] = {"path": str(Path(table))} if in_file else {"frame": name}
    data["sha256"] = digest_of(Path(table)) if in_file else table_digest(table)
    data |= {"client": client, "label": label, "sensitive": columns}
    # Options that are not given have no key, so that results of earlier plans are still found.
    if favourable is not None:
        data["favourable"] = str(favourable)
    if unprivileged:
        data["unprivileged"] = _unprivileged(unprivileged, columns)
    data |= {
        option: column_names(names)
        for option, names in (("features", features), ("drop", drop))
        if names
    }
    roles = (("split", split), ("client_group", client_group))
    data |= {role: column for role, column in roles if column is not None}
    return _with_sides(data, None if in_file else table) if columns else data


def table_digest(frame: Any) -> str:
    """Return the hash of a table in memory: names, types and values of its columns."""
    if isinstance(frame, ColumnTable):
        return frame.digest()
    from pandas.core.util.hashing import hash_pandas_object

    columns = [(str(name), str(kind)) for name, kind in frame.dtypes.items()]
    digest = hashlib.sha256(repr(columns).encode())
    try:
        rows = hash_pandas_object(frame, index=False)
    except TypeError:
        for place, name in enumerate(frame.columns):
            hashed(name, frame.iloc[:, place])  # names the column
        raise
    digest.update(rows.to_numpy().tobytes())
    return digest.hexdigest()


def _with_sides(data: dict[str, Any], held: Any) -> dict[str, Any]:
    """Return the data with a favourable label, an unprivileged value for each sensitive column, and
    the list of those assumed.

    They are determined from the training rows of the split with seed 0 and then hold for every
    seed, because all seeds must compare the same people.
    """
    named = dict(data.get("unprivileged", ()))
    choice = FairnessChoice(data.get("favourable"), named or None)
    with _type_errors_as_values():
        try:
            roles = _source(data, held, _roles(data))
            federation = roles.without_features(choice, shares=SHARES, seed=0, name="")
        except ValueError:
            # reports all mistakes at once
            _source(data, held).federation(_choice(data), choice, shares=SHARES, seed=0, name="")
            raise
    values = {
        attribute.name: attribute.values[attribute.unprivileged]
        for attribute in federation.attributes
    }
    assumed = [
        *(["favourable"] if "favourable" not in data else []),
        *(name for name in values if name not in named),
    ]
    sides = [[name, values[name]] for name in {**named, **values}]
    data = {**data, "favourable": federation.labels[federation.favourable], "unprivileged": sides}
    return {**data, **({ASSUMED: assumed} if assumed else {})}


def digest_of(file: Path) -> str:
    """Return the hash of a file, or of a folder of Parquet files, without loading all of it into
    memory.
    """
    if file.is_dir():
        return digest_of_folder(file)
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def column_names(columns: str | Sequence[str] | None) -> list[str]:
    """Return names of columns from a list, or from text with commas between them. A name with a
    comma must be in double quotes.

    >>> column_names('age, "a, b"')
    ['age', 'a, b']
    """
    if not columns or not isinstance(columns, str):
        return list(columns or ())
    names = next(csv.reader([columns], skipinitialspace=True))
    return [name for name in (names if '"' in columns else map(str.strip, names)) if name]


def _unprivileged(texts: Sequence[str], columns: list[str]) -> list[list[str]]:
    """Return pairs of a sensitive column and its unprivileged value. A list keeps their order: the
    first pair is the main one.
    """
    require(
        bool(columns),
        f"--unprivileged {texts[0]} needs a sensitive column; none is given. Name one with"
        " --sensitive (sensitive= in Python).",
    )
    pairs = [_pair(text, columns) for text in texts]
    names = [column for column, _ in pairs]
    twice = next((column for column in names if names.count(column) > 1), None)
    require(
        twice is None,
        f"--unprivileged must give one value of {twice}, got several. Merge them into one value of"
        " the table first.",
    )
    return pairs


def _pair(text: str, columns: list[str]) -> list[str]:
    for column in columns:
        if text.startswith(f"{column}="):
            return [column, text.removeprefix(f"{column}=")]
    require(
        len(columns) == 1,
        "With several sensitive columns --unprivileged must be COLUMN=VALUE (in Python"
        f" unprivileged={{COLUMN: VALUE}}), with a column of {', '.join(columns)}, got {text!r}.",
    )
    return [columns[0], text]


def is_table(name: str) -> bool:
    """Return whether a name is that of a file with a table, or of a folder of Parquet files. Names
    of data sets take precedence over folders.
    """
    if name.endswith((".csv", ".parquet", ".csv.gz")):
        return True
    known = name.partition("(")[0].strip() in DATASETS
    return not known and Path(name).is_dir() and bool(parquet_files(Path(name)))


def _in_memory(held: Any) -> Any:
    """Return the object that a plan's `data` describes."""
    require(
        held is not None,
        "The data of this plan were passed from Python and are not stored. Repeat the call of"
        " evenly.compare with the same data.",
    )
    return held


def _from_table(data: dict[str, Any], split_seed: int, held: Any) -> Federation:
    check_kinds(data, TABLE)
    absent = [name for name in ("client", "label", "sensitive") if name not in data]
    require(
        not absent,
        f"The data of a table must have the key {absent[0] if absent else ''!r} as well; there are"
        f" {shortened(list(data))}.",
    )
    in_file = "path" in data
    if in_file and "sha256" in data and digest_of(Path(data["path"])) != data["sha256"]:
        raise ValueError(
            f"The table {data['path']!r} has changed since these results were begun. Restore it, or"
            " choose another folder."
        )
    # Plans of earlier versions may lack favourable labels and unprivileged values; then the first
    # of each is taken, as at that time.
    choice = FairnessChoice(
        data.get("favourable"),
        dict(data["unprivileged"]) if "unprivileged" in data else None,
        in_order=True,
    )
    with _type_errors_as_values():
        name = Path(data["path"]).stem if in_file else data["frame"]
        return _source(data, held).federation(
            _choice(data), choice, shares=SHARES, seed=split_seed, name=name
        )


@contextmanager
def _type_errors_as_values() -> Iterator[None]:
    """Raise a ValueError for a TypeError: a column of the wrong type in a file is a mistake of the
    user.
    """
    try:
        yield
    except TypeError as error:
        raise ValueError(str(error)) from None


def _choice(data: dict[str, Any]) -> ColumnChoice:
    return ColumnChoice(data.get("features"), data.get("drop", ()))


def _roles(data: dict[str, Any]) -> list[str]:
    """Return the columns of a table that are not features."""
    named = (data.get(role) for role in ("client", "label", "split", "client_group"))
    return [*(column for column in named if column is not None), *data["sensitive"]]


def _source(data: dict[str, Any], held: Any, only: Sequence[str] | None = None) -> Source:
    sensitive, group = tuple(data["sensitive"]), data.get("client_group")
    words = [data["client"], *sensitive, *([group] if group else [])]
    frame = read_table(Path(data["path"]), words, only) if "path" in data else _in_memory(held)
    return Source(frame, data["client"], data["label"], sensitive, data.get("split"), group)


def read_table(path: Path, text: Sequence[str] = (), only: Sequence[str] | None = None) -> Any:
    """Return a pandas table from a CSV or Parquet file, all of it or only some columns. Errors name
    the file. A folder of Parquet files is returned unread, as a table that reads its columns.

    Columns in `text` identify clients or people. They are read from a CSV file as text, so that 007
    and 7 are different clients. Integers in a Parquet file stay exact.
    """
    if path.is_dir():
        return parquet_table(path)
    refuse_large(
        path.stat().st_size if path.is_file() else 0,
        f"The table {path.name!r}",
        "Take fewer rows, or keep fewer columns of it; or write it as Parquet into a folder of its"
        " own and pass the folder, which is streamed.",
    )
    import pandas as pd  # only here: the core runs without pandas

    try:
        return _parquet(path, only) if path.suffix == ".parquet" else _csv(path, text, only)
    except UnicodeDecodeError:
        raise ValueError(
            f"{path.name} must be UTF-8 text, but some bytes are not. Save it as UTF-8."
        ) from None
    except (EOFError, zlib.error) as error:
        raise ValueError(
            f"{path.name} is incomplete or damaged: {error}. Copy or download it again."
        ) from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, OSError) as error:
        raise ValueError(f"{path.name} could not be read as a table: {error}") from None


def _parquet(path: Path, only: Sequence[str] | None) -> Any:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as parquet

    # By default pandas converts integer columns with gaps to floating point, and large integers
    # become equal.
    kinds = [(sign, bits) for sign in ("", "u") for bits in (8, 16, 32, 64)]
    exact = {
        getattr(pa, f"{sign}int{bits}")(): pd.api.types.pandas_dtype(f"{sign.upper()}Int{bits}")
        for sign, bits in kinds
    }
    try:
        _check_header(path, parquet.read_schema(path).names, only)
        return parquet.read_table(
            path, columns=None if only is None else list(dict.fromkeys(only))
        ).to_pandas(
            types_mapper=lambda kind: (
                pd.api.types.pandas_dtype(exact[kind]) if kind in exact else None
            )
        )
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{path.name} could not be read as Parquet: {str(error).partition(chr(10))[0]}"
        ) from None


def _csv(path: Path, text: Sequence[str], only: Sequence[str] | None) -> Any:
    import pandas as pd

    header = [
        str(name).removeprefix("\ufeff")
        for name in pd.read_csv(path, header=None, nrows=1, dtype=str, na_filter=False).iloc[0]
    ]
    if len(header) == 1 and ";" in header[0]:
        raise ValueError(
            f"{path.name} must separate values by commas, but its header has semicolons. Convert it"
            " with pandas: pd.read_csv(path, sep=';', decimal=',').to_csv(new_path, index=False)."
        )
    _check_header(path, header, only)
    frame = pd.read_csv(
        path,
        dtype=dict.fromkeys(set(text) & set(header), str),
        usecols=None if only is None else list(dict.fromkeys(only)),
    )
    # pandas uses surplus values as row names, which shifts all columns
    if not isinstance(frame.index, pd.RangeIndex):
        raise ValueError(
            f"{path.name} must have as many values in a row as names in its header ({len(header)}),"
            " but rows have more."
        )
    for name in set(text) & set(header):
        codes, words = pd.factorize(frame[name].str.strip().replace("", None))
        # -1 is a missing value
        frame[name] = np.array([*whole_words(list(words)), None], dtype=object)[codes]
    return frame


def _check_header(path: Path, header: Sequence[str], only: Sequence[str] | None) -> None:
    """Raise if a column is missing, or if two have the same name: pandas would rename the second y
    to `y.1`, a feature.
    """
    for name in only or ():
        if name not in header:
            raise unknown("column", name, header, f" in {path.name}")
    names = [name.strip() for name in header if name.strip()]
    twice = list(dict.fromkeys(name for name in names if names.count(name) > 1))
    require(
        not twice,
        f"{path.name}: column names must be different, but {', '.join(map(repr, twice))}"
        f" {'occurs' if len(twice) == 1 else 'occur'} more than once. Rename or remove the other"
        " column.",
    )

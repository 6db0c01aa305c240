"""Tables that are read one column at a time: Arrow tables, Polars frames, data sets of Hugging Face
and folders of Parquet files, which may be larger than memory.

This is the one place that recognises the tables of other libraries. None of them is imported before
such an object is given: `as_table` looks at the protocol that an object speaks, or at the module of
its type. Arrow is the common form of all of them, so that columns are shared and not copied where
their memory layout allows it.

A folder of Parquet files is read three times: one column at a time to find clients, labels and
groups, one column at a time to fit the encoding, and then some rows at a time to encode them. The
features go to a temporary file that is mapped, not loaded. In memory stay some numbers for each
row, and one column at a time.
"""

import hashlib
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from evenly.data.columns import ColumnChoice
from evenly.data.encoding import Encoder, as_pandas
from evenly.records import require

PIECE_ROWS = 2**16  # rows that are encoded at a time
MAPPED_BYTES = 2**26  # of features; smaller ones are held in memory
PATIENCE, PAUSE = 2.0, 0.2  # seconds before progress is shown, and between two updates
TEMPORARY = "/var/tmp"  # on a disk, where /tmp is often memory; TMPDIR takes precedence


class ColumnTable:
    """A table of Arrow: what `Source` and `Encoder` read of a pandas table, one column at a time.

    Example:
        >>> import pyarrow as pa
        >>> table = as_table(pa.table({"site": ["n", "s"], "age": [30, 40]}))
        >>> table.columns, len(table), table["age"].tolist()
        (['site', 'age'], 2, [30, 40])
    """

    def __init__(self, source: Any, rows: int, *, on_disk: bool) -> None:
        self.source, self._rows, self.on_disk = source, rows, on_disk
        self.reading = Reading(0)
        self.columns: list[str] = list(source.schema.names)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, name: str) -> Any:
        """The values of a column: a NumPy array if it holds plain numbers, else a pandas column."""
        if self.on_disk:
            values = _values(self.source.to_table(columns=[name], **_frugal()).column(0))
            self.reading.advance(len(self))
            return values
        return _values(self.source.column(name))

    def pieces(self, names: Sequence[str]) -> "Iterator[ColumnTable]":
        """The table some rows at a time, in order, with only these columns."""
        import pyarrow as pa

        batches = (
            self.source.to_batches(columns=list(names), batch_size=PIECE_ROWS, **_frugal())
            if self.on_disk
            else self.source.select(list(names)).to_batches(max_chunksize=PIECE_ROWS)
        )
        for batch in batches:
            if len(batch):
                self.reading.advance(len(batch) * len(names))
                yield ColumnTable(pa.Table.from_batches([batch]), len(batch), on_disk=False)

    def encoded(self, encoder: Encoder) -> np.ndarray:
        """The features of all rows, float32. Many features of a table on disk are a mapped file."""
        names = [str(column.name) for column in encoder.columns]
        shape = (len(self), len(encoder.features))
        parts = (encoder.encode(piece) for piece in self.pieces(names))
        _release()  # what columns took that were read one at a time
        if self.on_disk and 4 * shape[0] * shape[1] > MAPPED_BYTES:
            return _mapped(parts, shape)
        x, start = np.empty(shape, np.float32), 0
        for part in parts:
            x[start : start + len(part)] = part
            start += len(part)
        return x

    def digest(self) -> str:
        """The hash of names, types and values of all columns, however they are cut into chunks."""
        digest = hashlib.sha256(repr([(f.name, str(f.type)) for f in self.source.schema]).encode())
        for name in self.columns:
            digest.update(hashed(name, self[name]).tobytes())
        return digest.hexdigest()


def hashed(name: Any, values: Any) -> np.ndarray:
    """A hash for each row of a column.

    Raises:
        ValueError: If rows hold lists or other objects.
    """
    from pandas import Series
    from pandas.core.util.hashing import hash_pandas_object

    try:
        return hash_pandas_object(Series(values), index=False).to_numpy()
    except TypeError as error:
        raise ValueError(
            f"Column {name!r} must hold numbers or words, but some rows hold something else"
            f" ({error}). Unpack it, or remove it from the table."
        ) from None


class Reading:
    """Progress of reading a table, on a terminal or in a notebook: a line with the time left, which
    appears after two seconds and goes at the end.
    """

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.began = self.written = time.monotonic()
        self.shows = total > 0 and (sys.stderr.isatty() or "ipykernel" in sys.modules)
        # other threads load data while the bar of an experiment is shown
        self.shows &= threading.current_thread() is threading.main_thread()

    def advance(self, cells: int) -> None:
        """Note that some cells were read."""
        self.done += cells
        now = time.monotonic()
        if self.shows and now - self.began > PATIENCE and now - self.written > PAUSE:
            self.written = now
            share = min(self.done / self.total, 1.0)
            left = (now - self.began) * (1 - share) / share
            line = f"Reading the table: {share:.0%}, {left:.0f} s left"
            print(f"\r{line:<60}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Remove the line, if there is one."""
        if self.shows and self.written > self.began:
            print(f"\r{'':<60}\r", end="", file=sys.stderr, flush=True)


@contextmanager
def shown(frame: Any, roles: int, choice: ColumnChoice) -> Iterator[None]:
    """Show progress while a table on disk becomes a federation. A table in memory takes no time."""
    if not isinstance(frame, ColumnTable) or not frame.on_disk:
        yield
        return
    features = len(frame.columns) - roles - len(choice.drop)
    # features are checked, fitted and encoded; those that the user lists are not checked
    read = 3 * features if choice.features is None else 2 * len(choice.features)
    frame.reading = Reading((roles + read) * len(frame))
    try:
        yield
    finally:
        frame.reading.end()
        frame.reading = Reading(0)


def as_table(data: Any) -> Any:
    """A table of any library as a pandas table or a `ColumnTable`; other objects unchanged.

    Text and paths are Parquet files, or folders of them.

    Raises:
        ValueError: If there are no Parquet files, or if they do not fit together.
    """
    if isinstance(data, str | Path):
        return parquet_table(Path(data))
    if callable(getattr(data, "isna", None)) or isinstance(data, ColumnTable):
        return data
    if from_package(data, "polars") and hasattr(data, "collect"):
        data = data.collect()  # a LazyFrame
    if from_package(data, "pyarrow") and hasattr(data, "count_rows"):
        return ColumnTable(data, data.count_rows(), on_disk=True)
    if is_hugging_face(data):
        data = _with_class_names(data)
    if hasattr(data, "__arrow_c_stream__"):
        import pyarrow as pa

        table = pa.table(data)
        return ColumnTable(table, len(table), on_disk=False)
    return as_pandas(data)


def joined_tables(tables: Mapping[str, ColumnTable], column: str) -> ColumnTable:
    """Tables one after another, with a column that holds the name of each.

    Raises:
        ValueError: If the tables differ in their columns, or in what these hold.
    """
    import pyarrow as pa

    schema = _common_schema(tables)
    parts = [table.source.select(schema.names).cast(schema) for table in tables.values()]
    every = pa.concat_tables(parts)
    owner = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
    names = pa.DictionaryArray.from_arrays(owner, list(tables))
    return ColumnTable(every.append_column(column, names), len(every), on_disk=False)


def _common_schema(tables: Mapping[str, ColumnTable]) -> Any:
    """The columns of all tables, with types that hold the numbers of each. Text is never read as
    numbers: 007 and 7 may be two people.
    """
    import pyarrow as pa

    (first, table), *others = tables.items()
    fields = {field.name: pa.field(field.name, field.type) for field in table.source.schema}
    for name, other in others:
        differing = fields.keys() ^ set(other.columns)
        require(
            not differing,
            "The data of all clients must have the same columns, but only one of"
            f" {first!r} and {name!r} has {', '.join(map(repr, sorted(differing)))}.",
        )
        for field in other.source.schema:
            known = fields[field.name]
            try:
                pair = [pa.schema([known]), pa.schema([pa.field(field.name, field.type)])]
                fields[field.name] = pa.unify_schemas(pair, promote_options="permissive").field(0)
            except pa.ArrowException:
                raise ValueError(
                    f"Column {field.name!r} must hold the same at all clients, but at {name!r} it"
                    f" holds {field.type}, and before that {known.type}. Convert it first."
                ) from None
    return pa.schema(list(fields.values()))


def is_frame(data: Any) -> bool:
    """Whether an object is a table that `as_table` takes, by the protocol that it speaks."""
    return (
        hasattr(type(data), "columns")  # the columns of a LazyFrame are costly
        or hasattr(data, "columns")
        or hasattr(data, "__arrow_c_stream__")
        or (from_package(data, "pyarrow") and hasattr(data, "count_rows"))
    )


def from_package(data: Any, package: str) -> bool:
    """Whether the type of an object, or one that it inherits from, belongs to a package."""
    return any(kind.__module__.split(".")[0] == package for kind in type(data).__mro__)


def is_hugging_face(data: Any) -> bool:
    """Whether an object is a `datasets.Dataset`. Refuses its relatives, which cannot be read in any
    order or hold several splits.
    """
    if not from_package(data, "datasets") or not hasattr(data, "features"):
        several = from_package(data, "datasets") and isinstance(data, dict)
        require(
            not several,
            f"The data must be one split of a DatasetDict, got all of {', '.join(data)}. Choose"
            " one, such as data['train']." if several else "",
        )  # fmt: skip
        return False
    require(
        hasattr(data, "__getitem__") and hasattr(data, "num_rows"),
        f"The data must be a Dataset with known rows, got an {type(data).__name__}. Save it as a"
        " folder of Parquet files, and pass the folder.",
    )
    return True


def _with_class_names(data: Any) -> Any:
    """A Hugging Face data set as an Arrow table, with names in place of class numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = data.with_format("arrow")[:]
    for place, (name, kind) in enumerate(data.features.items()):
        names = getattr(kind, "names", None)
        if names:
            numbers = table.column(name).combine_chunks()
            known = pc.if_else(pc.greater_equal(numbers, 0), numbers, None)  # type: ignore[attr-defined]
            words = pa.DictionaryArray.from_arrays(known.cast(pa.int32()), names)
            table = table.set_column(place, name, words)
    return table


# Parquet files: one, or a folder of them.


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder and of the folders in it, sorted by name. Files and folders
    whose names begin with a dot or an underscore are none, as elsewhere.
    """
    found = sorted(path for path in folder.rglob("*.parquet") if path.is_file())
    return [
        path
        for path in found
        if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    ]


def parquet_table(path: Path) -> ColumnTable:
    """A Parquet file, or a folder of them as one table. Folders such as `site=north` are a column.

    Raises:
        ValueError: If there is no such file, or if two files have different columns.
    """
    files = parquet_files(path) if path.is_dir() else [path]
    require(
        bool(files) and all(file.is_file() and file.suffix == ".parquet" for file in files),
        f"{str(path)!r} must be a .parquet file or a folder of them, but there is none. In Python,"
        " read other files first, for example with pandas.read_csv.",
    )
    import pyarrow as pa

    try:
        source = _dataset(files, path)
        if path.is_dir():
            source = _dataset(files, path, _folder_columns(source.partitioning.schema, files, path))
        for fragment in source.get_fragments():
            _refuse_other_columns(fragment, source.schema)
        return ColumnTable(source, source.count_rows(), on_disk=True)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path.name} could not be read as Parquet: {reason}") from None


def _dataset(files: Sequence[Path], path: Path, partitioning: Any = None) -> Any:
    import pyarrow.dataset as ds

    return ds.dataset(
        [str(file) for file in files],
        format="parquet",
        partitioning=(partitioning or ds.HivePartitioning.discover()) if path.is_dir() else None,
        partition_base_dir=str(path if path.is_dir() else path.parent),
    )


def _folder_columns(schema: Any, files: Sequence[Path], folder: Path) -> Any:
    """The columns that names of folders are: text where one of their numbers is written like 007,
    because `site=007` and `site=7` are two clients.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    text = ds.HivePartitioning(pa.schema([(name, pa.string()) for name in schema.names]))
    paths = {str(file.parent.relative_to(folder) / "file") for file in files}
    parts = [ds.get_partition_keys(text.parse(path)) for path in paths]

    def kind_of(field: Any) -> Any:
        words = {part[field.name] for part in parts if part.get(field.name) is not None}
        plain = pa.types.is_integer(field.type) and all(str(int(word)) == word for word in words)
        return field.type if plain else pa.string()

    keys = {key for part in parts for key in part}
    return ds.HivePartitioning(
        pa.schema([(field.name, kind_of(field)) for field in schema if field.name in keys])
    )


def _refuse_other_columns(fragment: Any, schema: Any) -> None:
    """Raise if a file lacks a column, has another one, or has one of another type: Arrow would fill
    it with missing values or leave it out.
    """
    import pyarrow.dataset as ds

    own = {field.name: field.type for field in fragment.physical_schema}
    folders = ds.get_partition_keys(fragment.partition_expression)
    file = Path(fragment.path).name
    require(
        len(own) == len(fragment.physical_schema.names),
        f"{file}: column names must be different. Rename or remove the columns that occur twice.",
    )
    for field in schema:
        kind = own.pop(field.name, None)
        in_path = kind is None and field.name in folders
        require(
            in_path or kind == field.type,
            f"All files must have the same columns, but {file} has {field.name!r}"
            f" {'not at all' if kind is None else f'as {kind}'}, and the first file as"
            f" {field.type}. Write them again with one schema.",
        )
    require(
        not own,
        f"All files must have the same columns, but only {file} has"
        f" {', '.join(map(repr, own))}. Write them again with one schema.",
    )


def digest_of_folder(folder: Path) -> str:
    """The hash of the names and contents of a folder's Parquet files."""
    digest = hashlib.sha256()
    for file in parquet_files(folder):
        with open(file, "rb") as opened:
            content = hashlib.file_digest(opened, "sha256").hexdigest()
        digest.update(f"{file.relative_to(folder).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def _release() -> None:
    """Give memory that Arrow keeps for later back to the system."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def _frugal() -> dict[str, Any]:
    """Options of a scan that reads little ahead: by default Arrow holds dozens of batches."""
    import pyarrow.dataset as ds

    options: Any = ds.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
    return {"batch_readahead": 2, "fragment_readahead": 1, "fragment_scan_options": options}


def _values(column: Any) -> Any:
    """An Arrow column as NumPy numbers, without a copy if it is one chunk; else as pandas would
    read it, with exact whole numbers, and with text stored once for each word.
    """
    import pandas as pd
    import pyarrow as pa

    kind = column.type
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if column.null_count == 0 and (numbers or pa.types.is_boolean(kind)):
        return column.chunk(0).to_numpy(zero_copy_only=False) if column.num_chunks == 1 else (
            column.to_numpy()
        )  # fmt: skip
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view":
        kind = pa.string() if str(kind) == "string_view" else kind
        return column.cast(kind).dictionary_encode().to_pandas()
    if pa.types.is_integer(kind):
        # By default pandas converts integer columns with gaps to floating point, and large integers
        # become equal.
        exact = pd.api.types.pandas_dtype(f"{kind}".replace("i", "I").replace("uI", "UI"))
        return column.to_pandas(types_mapper=lambda _: exact)
    return column.to_pandas()


def _mapped(parts: Iterable[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """Arrays, one after another, as a temporary file that is mapped and goes with the process."""
    folder = tempfile.gettempdir()
    if folder == "/tmp" and Path(TEMPORARY).is_dir():
        folder = TEMPORARY
    needed, free = 4 * shape[0] * shape[1], shutil.disk_usage(folder).free
    require(
        needed < free,
        f"The features of the table take {needed / 2**30:.1f} GiB in a temporary file, but"
        f" {free / 2**30:.1f} GiB are free in {folder}. Choose another folder with the environment"
        " variable TMPDIR, or use fewer columns.",
    )
    with tempfile.TemporaryFile(prefix="evenly-", dir=folder) as file:
        for part in parts:
            file.write(np.ascontiguousarray(part, np.float32).data)
        file.flush()
        return np.memmap(file, np.float32, "r", shape=shape)

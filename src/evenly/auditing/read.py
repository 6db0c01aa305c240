"""Read the columns that an audit needs from a pandas table, a CSV file or a Parquet file."""

import csv
import gzip
import io
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.data.encoding import TableColumn, count, whole_words
from evenly.notation import unknown
from evenly.validation import shortened

# Columns of categories: the distinct words, and a number for each row.

MISSING = -1


class CodedColumn(NamedTuple):
    """A column of categories: its distinct words in order, and for each row the number of its word,
    or MISSING.
    """

    name: str
    words: tuple[str, ...]
    codes: np.ndarray  # int32 [rows]

    @property
    def missing_rows(self) -> np.ndarray:
        """Which rows have no value. [rows]"""
        return self.codes == MISSING

    def require_complete(self, advice: str) -> None:
        """Raise a ValueError that ends with `advice` if a row has no value."""
        missing = self.missing_rows
        if missing.any():
            raise ValueError(
                f"Column {self.name!r} must be filled in every row;"
                f" {count(missing.sum(), len(missing))} empty, the first is"
                f" {row_words(int(missing.argmax()))}. {advice}"
            )


def of_values(name: str, values: Any, codes: np.ndarray) -> CodedColumn:
    """Code a column from its distinct values and for each row the number of its value, negative
    where there is none.

    Space around words is removed, and words that are then equal are merged. 1.0 becomes the word 1
    if all values are whole numbers.

    >>> of_values("sex", [" f", "m ", "f", ""], np.array([0, 1, 2, 3, -1]))
    CodedColumn(name='sex', words=('f', 'm'), codes=array([ 0,  1,  0, -1, -1], dtype=int32))
    """
    column = TableColumn.of(f"Column {name!r}", list(values))
    try:
        column.holds_numbers()  # refuses dates and lists
    except TypeError as error:
        raise ValueError(str(error)) from None
    column.refuse_rounded()
    raw = [str(word).strip() for word in column.words()]
    empty = column.missing() | np.array([not word for word in raw], bool)
    filled = whole_words([word for word, is_empty in zip(raw, empty, strict=True) if not is_empty])
    words, numbers = (
        TableColumn.of(column.what, filled).classes() if filled else ((), np.zeros(0, np.int32))
    )
    table = np.full(len(raw) + 1, MISSING, np.int32)  # the last entry is for rows without a value
    table[np.flatnonzero(~empty)] = numbers
    return CodedColumn(name, words, table[np.where(codes < 0, len(raw), codes)])


def from_pandas(frame: Any, name: Any) -> CodedColumn:
    """A column of a pandas table."""
    import pandas as pd

    try:
        codes, values = pd.factorize(frame[name], use_na_sentinel=True)
    except TypeError:  # lists and dictionaries are not hashable
        raise ValueError(
            f"Column {str(name)!r} must hold one word or number in each row, but holds lists or"
            " similar values. Unpack it."
        ) from None
    return of_values(str(name), np.asarray(values, dtype=object).tolist(), codes)


def from_arrow(table: Any, name: str) -> CodedColumn:
    """A column of a pyarrow table."""
    import pyarrow as pa

    column = table.column(name)
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    whole = encoded.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # no rows at all
        return CodedColumn(name, (), np.zeros(0, np.int32))
    return of_values(name, whole.dictionary.to_pylist(), plain_array(whole.indices, MISSING))


def plain_array(array: Any, missing: float) -> np.ndarray:
    """The numbers of a pyarrow array, with `missing` for nulls. pyarrow's own conversion imports
    pandas, which is slower.
    """
    valid, data = array.buffers()
    here = slice(array.offset, array.offset + len(array))
    values = np.frombuffer(data, np.dtype(str(array.type)))[here]
    if not array.null_count:
        return values
    return np.where(
        np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[here], values, missing
    )


def row_words(row: int) -> str:
    """The position of a row for a reader of the table: the first after the header is 1."""
    return f"row {row + 1:,} (counting from 1, without the header)"


def how_many(rows: int, min_cell: int) -> str:
    """A number of rows in words; numbers below `min_cell` are not disclosed.

    >>> how_many(3, 10), how_many(12, 10)
    ('fewer than 10 rows', '12 rows')
    """
    return (
        f"fewer than {min_cell} rows"
        if rows < min_cell
        else "1 row"
        if rows == 1
        else f"{rows:,} rows"
    )


# Files: CSV, compressed CSV or Parquet, a million rows per second. Only the needed columns are
# read.

ENDINGS = (".csv", ".csv.gz", ".parquet")
DELIMITERS = ",;\t|"
ICONV = "Save it as UTF-8, for example with `iconv -f WINDOWS-1252 -t UTF-8`."


def read(path: Path, words: Sequence[str], numbers: Sequence[str] = ()) -> Any:
    """Read columns of a file as a pyarrow table; `words` are read as categories, `numbers` as
    numbers.
    """
    if not path.name.endswith(ENDINGS):
        raise ValueError(
            f"{path.name} must be a {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]} file. Save the table"
            " as one of them."
        )
    if not path.is_file():
        raise ValueError(
            f"There is no file {str(path)!r}. Give the path of a table with one row per person."
        )
    return (
        _parquet(path, [*words, *numbers])
        if path.suffix == ".parquet"
        else _csv(path, words, numbers)
    )


def check_columns(where: str, columns: Sequence[str], needed: Sequence[str]) -> None:
    """Raise a ValueError if a needed column is missing or occurs twice."""
    for name in needed:
        if name not in columns:
            raise ValueError(f"{where}: {unknown('column', name, map(str, columns))}")
        if list(columns).count(name) > 1:
            raise ValueError(
                f"{where}: column names must be different, but {name!r} occurs"
                f" {list(columns).count(name)} times. Rename one."
            )


def _parquet(path: Path, names: Sequence[str]) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        schema = parquet.read_schema(path)
        check_columns(path.name, schema.names, names)
        for name in names:
            refuse_nested(path.name, name, schema.field(name).type)
        # names with dots are no paths into structs here
        return parquet.ParquetFile(path).read(columns=list(names))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{path.name} could not be read as Parquet: {_first_line(error)}"
        ) from None


def refuse_nested(where: str, name: str, kind: Any) -> None:
    """Raise a ValueError for a column of lists, structs, maps or bytes, which holds neither words
    nor numbers.
    """
    import pyarrow as pa

    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    if (
        pa.types.is_nested(inner)
        or pa.types.is_binary(inner)
        or pa.types.is_large_binary(inner)
        or pa.types.is_fixed_size_binary(inner)
    ):
        raise ValueError(
            f"{where}: column {name!r} must hold one word or number in each row, but holds"
            f" {shortened(str(kind))}. Name another column, or make one of words or numbers"
            " from it."
        )


def _csv(path: Path, words: Sequence[str], numbers: Sequence[str]) -> Any:
    import pyarrow as pa

    header, delimiter = _header(path)
    check_columns(path.name, header, [*words, *numbers])
    try:
        try:
            return _parse_csv(path, words, numbers, delimiter, newlines=False)
        except pa.ArrowInvalid:
            # a quoted line break at the border of two blocks; slower, so only on failure
            return _parse_csv(path, words, numbers, delimiter, newlines=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(_why(path, str(error), numbers)) from None


def _parse_csv(
    path: Path, words: Sequence[str], numbers: Sequence[str], delimiter: str, *, newlines: bool
) -> Any:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    word = pa.dictionary(pa.int32(), pa.string())
    options = arrow_csv.ConvertOptions(
        include_columns=[*words, *numbers],
        column_types={**dict.fromkeys(words, word), **dict.fromkeys(numbers, pa.float64())},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,  # "NA" in quotes is a word
    )
    parsing = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=newlines)
    return arrow_csv.read_csv(path, parse_options=parsing, convert_options=options)


def _header(path: Path) -> tuple[list[str], str]:
    """The column names and the delimiter: the character that divides the header into the most
    parts.
    """
    try:
        with _open(path) as file:
            line = file.readline()
    except (OSError, EOFError, zlib.error):
        raise ValueError(
            f"{path.name} could not be unpacked or read. Create it again, or unpack it first."
        ) from None
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(
            f"{path.name} must be UTF-8 text, but its header holds other bytes. {ICONV}"
        ) from None
    text = text.partition("\r")[0].strip("\n")
    if not text.strip():
        raise ValueError(
            f"{path.name} must have a header and rows; it begins with an empty line or is empty."
        )
    delimiter = max(DELIMITERS, key=text.count)
    return next(csv.reader([text], delimiter=delimiter)), delimiter


def _open(path: Path) -> io.BufferedIOBase:
    return gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")  # pyright: ignore[reportReturnType]


def _why(path: Path, error: str, numbers: Sequence[str]) -> str:
    """The reason why a file could not be read, in one sentence."""
    if "UTF8" in error:
        return (
            f"{path.name} must be UTF-8 text, but line {_first_foreign_line(path):,} holds other"
            f" bytes. {ICONV}"
        )
    if "conversion error to double" in error and numbers:
        value = error.rpartition("invalid value ")[2].strip("'")
        return (
            f"Column {numbers[0]!r} must hold numbers from 0 to 1, but {path.name} holds {value!r}"
            " there. Correct or drop such rows."
        )
    if "Expected" in error:
        return (
            f"{path.name} must have the same number of columns in every row:"
            f" {_first_line(error).removeprefix('CSV parse error: ')[:120]}"
        )
    return f"{path.name} could not be read as CSV: {_first_line(error)}"


def _first_foreign_line(path: Path) -> int:
    with _open(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 0


def _first_line(error: object) -> str:
    return str(error).partition("\n")[0]

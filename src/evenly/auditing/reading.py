"""Read the few columns of a file that an audit needs: CSV, compressed CSV or Parquet, a million rows in a second."""

import csv
import gzip
import io
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evenly.notation import unknown
from evenly.outside import shortened

ENDINGS = (".csv", ".csv.gz", ".parquet")
DELIMITERS = ",;\t|"
ICONV = "Save it as UTF-8, for example with `iconv -f WINDOWS-1252 -t UTF-8`."


def read(path: Path, words: Sequence[str], numbers: Sequence[str] = ()) -> Any:
    """A pyarrow table of these columns; `words` are to be told apart, `numbers` to be computed with."""
    if not path.name.endswith(ENDINGS):
        raise ValueError(f"{path.name} must be a {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]} file. Save the table as one of them.")
    if not path.is_file():
        raise ValueError(f"There is no file {str(path)!r}. Give the path of a table with one row per person.")
    return _parquet(path, [*words, *numbers]) if path.suffix == ".parquet" else _csv(path, words, numbers)


def check_columns(where: str, columns: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse a column that is not there, or there twice."""
    for name in wanted:
        if name not in columns:
            raise ValueError(f"{where}: {unknown('column', name, map(str, columns))}")
        if list(columns).count(name) > 1:
            raise ValueError(f"{where}: column names must be different, but {name!r} occurs {list(columns).count(name)} times. Rename one.")


def _parquet(path: Path, names: Sequence[str]) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        schema = parquet.read_schema(path)
        check_columns(path.name, schema.names, names)
        for name in names:
            refuse_nested(path.name, name, schema.field(name).type)
        return parquet.ParquetFile(path).read(columns=list(names))  # names with dots are no paths into structs here
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path.name} could not be read as Parquet: {_first_line(error)}") from None


def refuse_nested(where: str, name: str, kind: Any) -> None:
    """Refuse a column of lists, structs, maps or bytes, which is neither words nor numbers."""
    import pyarrow as pa

    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_nested(inner) or pa.types.is_binary(inner) or pa.types.is_large_binary(inner) or pa.types.is_fixed_size_binary(inner):
        raise ValueError(
            f"{where}: column {name!r} must hold one word or number in each row, but holds {shortened(str(kind))}. "
            "Name another column, or make one of words or numbers from it."
        )


def _csv(path: Path, words: Sequence[str], numbers: Sequence[str]) -> Any:
    import pyarrow as pa

    header, delimiter = _header(path)
    check_columns(path.name, header, [*words, *numbers])
    try:
        try:
            return _parsed(path, words, numbers, delimiter, newlines=False)
        except pa.ArrowInvalid:  # a quoted line break where the file is cut into blocks; slower, so only then
            return _parsed(path, words, numbers, delimiter, newlines=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(_why(path, str(error), numbers)) from None


def _parsed(path: Path, words: Sequence[str], numbers: Sequence[str], delimiter: str, *, newlines: bool) -> Any:
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
    """The column names, and the character between them: the one that cuts the header into most pieces."""
    try:
        with _opened(path) as file:
            line = file.readline()
    except (OSError, EOFError, zlib.error):
        raise ValueError(f"{path.name} could not be unpacked or read. Make it anew, or unpack it first.") from None
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} must be UTF-8 text, but its header holds other bytes. {ICONV}") from None
    text = text.partition("\r")[0].strip("\n")
    if not text.strip():
        raise ValueError(f"{path.name} must have a header and rows; it begins with an empty line or is empty.")
    delimiter = max(DELIMITERS, key=text.count)
    return next(csv.reader([text], delimiter=delimiter)), delimiter


def _opened(path: Path) -> io.BufferedIOBase:
    return gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")  # pyright: ignore[reportReturnType]


def _why(path: Path, error: str, numbers: Sequence[str]) -> str:
    """What is wrong with a file that could not be read, in a sentence."""
    if "UTF8" in error:
        return f"{path.name} must be UTF-8 text, but line {_first_foreign_line(path):,} holds other bytes. {ICONV}"
    if "conversion error to double" in error and numbers:
        value = error.rpartition("invalid value ")[2].strip("'")
        return f"Column {numbers[0]!r} must hold numbers from 0 to 1, but {path.name} holds {value!r} there. Correct or drop such rows."
    if "Expected" in error:
        return (
            f"{path.name} must have the same number of columns in every row: {_first_line(error).removeprefix('CSV parse error: ')[:120]}"
        )
    return f"{path.name} could not be read as CSV: {_first_line(error)}"


def _first_foreign_line(path: Path) -> int:
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 0


def _first_line(error: object) -> str:
    return str(error).partition("\n")[0]

"""Columns as a few words and a number for each row, which is all that counting needs."""

from typing import Any, NamedTuple

import numpy as np

from evenly.data.encoding import Column, whole_words

MISSING = -1


class Coded(NamedTuple):
    """A column whose rows are numbers into its distinct words, in order; MISSING where a row has no value."""

    name: str
    words: tuple[str, ...]
    codes: np.ndarray  # int32 [rows]

    @property
    def gone(self) -> np.ndarray:
        """Which rows have no value. [rows]"""
        return self.codes == MISSING

    def filled(self, why: str) -> "Coded":
        """The same column; refuses rows without a value."""
        gone = self.gone
        if gone.any():
            raise ValueError(
                f"Column {self.name!r} must be filled in every row; {count(gone.sum(), len(gone))} empty, the first is "
                f"{row_words(int(gone.argmax()))}. {why}"
            )
        return self


def of_values(name: str, values: Any, codes: np.ndarray) -> Coded:
    """From distinct values of any kind, and for each row the number of its value, below 0 where there is none.

    Space around words is dropped, and words that are then alike are one; 1.0 is the word 1 where all values are whole numbers.

    >>> of_values("sex", [" f", "m ", "f", ""], np.array([0, 1, 2, 3, -1]))
    Coded(name='sex', words=('f', 'm'), codes=array([ 0,  1,  0, -1, -1], dtype=int32))
    """
    column = Column.of(f"Column {name!r}", list(values))
    try:
        column.holds_numbers()  # refuses dates and lists
    except TypeError as error:
        raise ValueError(str(error)) from None
    column.refuse_rounded()
    gone = column.missing()
    raw = [str(word).strip() for word in column.words()]
    empty = gone | np.array([not word for word in raw], bool)
    known = whole_words([word for word, without in zip(raw, empty, strict=True) if not without])
    words, places = Column.of(column.what, known).classes() if known else ((), np.zeros(0, np.int32))
    table = np.full(len(raw) + 1, MISSING, np.int32)  # the last entry serves rows without a value
    table[np.flatnonzero(~empty)] = places
    return Coded(name, words, table[np.where(codes < 0, len(raw), codes)])


def from_pandas(frame: Any, name: Any) -> Coded:
    """A column of a pandas table."""
    import pandas as pd

    try:
        codes, values = pd.factorize(frame[name], use_na_sentinel=True)
    except TypeError:  # lists, dictionaries and the like cannot be told apart
        raise ValueError(
            f"Column {str(name)!r} must hold one word or number in each row, but holds lists or the like. Unpack it."
        ) from None
    return of_values(str(name), np.asarray(values, dtype=object).tolist(), codes)


def from_arrow(table: Any, name: str) -> Coded:
    """A column of a pyarrow table."""
    import pyarrow as pa

    column = table.column(name)
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    whole = encoded.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # no rows at all
        return Coded(name, (), np.zeros(0, np.int32))
    return of_values(name, whole.dictionary.to_pylist(), plain_array(whole.indices, MISSING))


def plain_array(array: Any, missing: float) -> np.ndarray:
    """The numbers of a pyarrow array, with `missing` where there is none. pyarrow's own way there imports pandas, which takes longer."""
    valid, data = array.buffers()
    here = slice(array.offset, array.offset + len(array))
    values = np.frombuffer(data, np.dtype(str(array.type)))[here]
    if not array.null_count:
        return values
    return np.where(np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[here], values, missing)


def row_words(row: int) -> str:
    """Where a row is, for somebody who looks at the table: the first after the header is 1."""
    return f"row {row + 1:,} (counting from 1, without the header)"


def how_many(rows: int, least: int) -> str:
    """A number of rows, or only that they are few where so few may not be told.

    >>> how_many(3, 10), how_many(12, 10)
    ('fewer than 10 rows', '12 rows')
    """
    return f"fewer than {least} rows" if rows < least else "1 row" if rows == 1 else f"{rows:,} rows"


def count(part: int, whole: int) -> str:
    """How many rows of how many, with its verb.

    >>> count(1, 2000)
    '1 of 2,000 rows is'
    """
    return f"{part:,} of {whole:,} rows {'is' if part == 1 else 'are'}"

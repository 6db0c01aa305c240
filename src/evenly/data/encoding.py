"""Turn the columns of a table into numbers, once for training and again for new rows.

The rules, which `docs/data.md` explains to users:

- numbers and booleans are standardised with the mean and deviation of the training rows; a missing
  value becomes the mean (0 after scaling), and where training rows have missing values a 0/1
  feature marks them;
- any other column becomes one 0/1 feature per category of the training rows; a missing value is a
  category of its own where training rows have one; a category that no training row has is all
  zeros;
- dates, lists, infinities and more than a thousand categories are refused; `evenly.data.columns`
  chooses the columns that are used.

Only whether a column holds numbers or words is decided by its type, and so by all rows. Everything
else comes from the training rows: two splits of a table with rare categories can have different
features. Tables are anything with `columns`, `frame[name]` and pandas' `isna`, or a
`evenly.data.arrow.ColumnTable`; pandas is not imported here.
"""

import datetime
import numbers
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import numpy as np

from evenly.notation import nearest
from evenly.records import record, static

MISSING = "(missing)"
MOST_CATEGORIES = 1000
MANY_CATEGORIES = 50  # of one column, beyond which there is a warning
FEW_CATEGORIES = 20  # never suspected of being one per row
EXACT = 2**53  # from here on a floating-point number stands for several whole numbers
WHOLE = re.compile(r"-?\d+\.0+")
# deviations from the mean; values beyond are cut there, so that float32 cannot overflow
FARTHEST = 1e6
CHECKED_ROWS = 2**16  # rows that are checked at once


class TableColumn(NamedTuple):
    """Values, one per row, and what a message calls them."""

    what: str
    values: Any

    @staticmethod
    def of(what: str, values: Any) -> "TableColumn":
        if not _is_pandas(values):
            # A list goes through objects: NumPy would turn the NaN of ["a", NaN] into the word
            # "nan".
            values = (
                np.asarray(values, dtype=object)
                if isinstance(values, list | tuple)
                else np.asarray(values)
            )
        if values.ndim != 1:
            raise ValueError(
                f"{what} must have one value per row, got an array of shape {tuple(values.shape)}."
            )
        return TableColumn(what, values)

    def missing(self) -> np.ndarray:
        if _is_pandas(self.values):
            return np.asarray(self.values.isna(), bool)
        kind = self.values.dtype.kind
        if kind == "O":
            return np.array([_is_missing(v) for v in self.values], bool)
        return (
            np.isnan(self.values)
            if kind == "f"
            else np.isnat(self.values)
            if kind in "Mm"
            else np.zeros(len(self.values), bool)
        )

    def holds_dates(self) -> bool:
        """Whether some values are dates, times or durations by their type."""
        code = getattr(self.values.dtype, "kind", "O")
        if code in "iufb" or str(self.values.dtype) == "category":
            return False
        return code in "Mm" or any(
            issubclass(t, datetime.date | datetime.time | datetime.timedelta | np.datetime64)
            for t in self._types()
        )

    def holds_numbers(self) -> bool:
        """Whether the column holds numbers (or booleans) rather than words. Refuses what is
        neither.
        """
        code = getattr(self.values.dtype, "kind", "O")
        if code in "iufb" or str(self.values.dtype) == "category":
            return code in "iufb"
        if self.holds_dates():
            raise TypeError(
                f"{self.what} holds dates or times, which have no single best number. Make a number"
                " of them first (for example frame[column].dt.year, or days since a start), or"
                " leave the column out."
            )
        types = self._types()
        for t in types:
            if issubclass(t, complex | np.complexfloating | list | tuple | dict | set | np.ndarray):
                raise TypeError(
                    f"{self.what} must hold numbers or words, but some rows hold a {t.__name__}."
                    " Unpack it or leave it out."
                )
        return bool(types) and all(issubclass(t, numbers.Number | np.bool_) for t in types)

    def numbers(self) -> np.ndarray:
        """As float64, NaN where missing; refuses infinities."""
        self.holds_numbers()
        try:
            raw = (
                self.values.to_numpy(dtype=np.float64, na_value=np.nan)
                if _is_pandas(self.values)
                else self.values.astype(np.float64)
            )
        except (TypeError, ValueError, OverflowError):
            raise ValueError(
                f"{self.what} was numeric in training, so it must hold numbers; it has dtype"
                f" {self.values.dtype}."
            ) from None
        if np.isinf(raw).any():
            row = int(np.isinf(raw).argmax())
            raise ValueError(
                f"{self.what} must be finite; row {row} (counting from 0) is infinite. Replace or"
                " drop it."
            )
        return raw

    def words(self) -> np.ndarray:
        """As strings, whole numbers without a decimal point, MISSING where missing."""
        words, missing = self._objects().copy(), self.missing()
        if set(map(type, words[~missing])) - {str}:
            words[:] = [_word(v) for v in words]
        words[missing] = MISSING
        return words

    def _types(self) -> set[type]:
        column, _ = self.distinct()
        return set(map(type, column._objects()[~column.missing()]))

    def _objects(self) -> np.ndarray:
        # Iterating over pandas' own arrays is ten times slower than over objects.
        return np.asarray(self.values, dtype=object)

    def refuse_missing(
        self, where: np.ndarray | None = None, advice: str = "Fill or drop these rows."
    ) -> None:
        """Raise a ValueError that ends with `advice` unless every row (of those in the mask
        `where`) has a value.
        """
        missing = self.missing() if where is None else self.missing() & where
        if missing.any():
            raise ValueError(
                f"{self.what} must be filled in every row; {count(missing.sum(), len(missing))}"
                f" empty, the first is row {int(missing.argmax())} (counting from 0). {advice}"
            )

    def refuse_rounded(self) -> None:
        """Raise if values must be distinct but are floating-point numbers so large that neighbours
        are equal.
        """
        types = {float} if getattr(self.values.dtype, "kind", "O") == "f" else self._types()
        if not any(issubclass(t, float | np.floating) for t in types):
            return
        if any(
            isinstance(v, float | np.floating) and abs(v) >= EXACT
            for v in self._objects()[~self.missing()]
        ):
            raise ValueError(
                f"{self.what} must have distinct values, but it holds whole numbers of at least"
                f" {EXACT:,} as floating-point numbers, which are not exact: neighbours may already"
                " be equal. Read or save the column as text or as integers."
            )

    def distinct(self) -> "tuple[TableColumn, np.ndarray]":
        """A column that may hold equal values only once, and the place in it of every row's value.

        Categories and plain arrays are reduced to their different values; other columns are
        returned as they are.
        """
        values = self.values
        if str(values.dtype) == "category":
            categorical = getattr(values, "cat", values)
            codes = np.asarray(categorical.codes)
            every = np.array([*categorical.categories, None], dtype=object)
            # Marking is many times faster than sorting. A missing value has the code -1, which is
            # the last place, that of None.
            occurs = np.zeros(len(every), bool)
            occurs[codes] = True
            places = np.cumsum(occurs, dtype=np.int32) - 1
            return TableColumn(self.what, every[occurs]), places[codes]
        if not _is_pandas(values) and values.dtype.kind in "iufbUS":
            values, inverse = np.unique(values, return_inverse=True)
            return TableColumn(self.what, values), inverse
        return self, np.arange(len(values))

    def classes(self) -> tuple[tuple[str, ...], np.ndarray]:
        """The distinct values as names, and which of them each row has. Sorted as numbers if all
        are, else as words.
        """
        column, inverse = self.distinct()
        words = column.words()
        names = sorted(set(words), key=_sort_key(set(words)))
        places = {name: i for i, name in enumerate(names)}
        return tuple(names), np.array([places[w] for w in words], np.int32)[inverse]


@record
class Numeric:
    """How one numeric column is scaled."""

    name: str | int = static()
    mean: float = static()
    deviation: float = static()
    flag_missing: bool = static()

    @property
    def features(self) -> tuple[str, ...]:
        return (
            (str(self.name), f"{self.name} is missing") if self.flag_missing else (str(self.name),)
        )

    def encode(self, column: TableColumn) -> np.ndarray:
        raw = column.numbers()
        missing = np.isnan(raw)
        with np.errstate(over="ignore"):
            scaled = np.clip(
                (np.where(missing, self.mean, raw) - self.mean) / self.deviation,
                -FARTHEST,
                FARTHEST,
            )
        return np.stack([scaled, missing] if self.flag_missing else [scaled], axis=1).astype(
            np.float32
        )


@record
class Categorical:
    """The categories that one column has in the training rows."""

    name: str | int = static()
    categories: tuple[str, ...] = static()

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={c}" for c in self.categories)

    def encode(self, column: TableColumn) -> np.ndarray:
        column.holds_numbers()  # refuses dates and lists
        places = {c: i for i, c in enumerate(self.categories)}
        values, inverse = column.distinct()
        codes = np.array([places.get(w, -1) for w in values.words()], np.int64)[inverse]
        return (codes[:, None] == np.arange(len(self.categories))).astype(np.float32)


@record
class Encoder:
    """The features of a table, in order."""

    columns: tuple[Numeric | Categorical, ...] = static()
    # columns of the table that are neither features nor have another meaning
    unused: tuple[str | int, ...] = static(default=())

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(f for column in self.columns for f in column.features)

    def encode(self, frame: Any) -> np.ndarray:
        """Features of the rows of `frame`, float32 [n, features]."""
        check_table(frame, [c.name for c in self.columns])
        return np.concatenate([c.encode(column_of(frame, c.name)) for c in self.columns], axis=1)


def fit_encoder(
    frame: Any, names: Sequence[Any], training: np.ndarray, unused: Sequence[Any] = ()
) -> Encoder:
    """Choose the features and their scaling from the training rows of these columns."""
    if not names:
        raise ValueError(
            "The table must have at least one feature column besides client, label, sensitive and"
            " split columns; it has none."
        )
    check_table(frame, names)
    return Encoder(
        columns=tuple(_fit_column(name, column_of(frame, name), training) for name in names),
        unused=tuple(unused),
    )


def column_of(frame: Any, name: Any) -> TableColumn:
    return TableColumn.of(f"Column {name!r}", frame[name])


def as_pandas(table: Any) -> Any:
    """A table of another library, such as Polars, as a pandas table; other objects unchanged."""
    convert = getattr(table, "to_pandas", None)
    return table if convert is None or _is_pandas(table) else convert()


def as_features(x: Any, *, exact: bool = False) -> np.ndarray:
    """Features as an array [rows, ...] of finite numbers; floats and tables become float32.

    With `exact`, whole numbers stay whole numbers in tables, too: they are numbers of tokens. The
    result is a copy, unless `x` is a memory-mapped file that needs no conversion.
    """
    mapped, given = isinstance(x, np.memmap), x
    listed = isinstance(x, list | tuple) or not hasattr(x, "__getitem__")
    try:
        # a Dataset that never raises IndexError would be read for ever
        x = np.asarray(x) if listed or hasattr(x, "__array__") else np.empty(0, object)
    except ValueError:
        x = np.empty(0, object)
    if x.ndim < 2 and x.dtype == object:
        raise TypeError(
            f"x must be an array, got a {type(given).__name__} whose rows have no common shape. Of"
            " a Dataset, pass the inputs: numpy.stack([one[0] for one in dataset])."
        )
    if x.ndim < 2:
        raise ValueError(
            f"x must have one row per example, [rows, features] or more axes, got shape {x.shape}."
            " Try x.reshape(-1, 1)."
        )
    if x.dtype.kind not in "fiub":
        raise TypeError(
            f"x must hold numbers, got dtype {x.dtype}. Federation.from_frame turns a table's words"
            " into numbers."
        )
    with np.errstate(over="ignore"):
        numbers = (x.ndim == 2 and not exact) or x.dtype.kind == "f"
        kind = np.int32 if exact and x.dtype.kind == "i" else x.dtype
        x = x.astype(np.float32 if numbers else kind, copy=not mapped)
    for start in range(0, len(x), CHECKED_ROWS):  # of large data, not all at once
        broken = ~np.isfinite(x[start : start + CHECKED_ROWS]).all(axis=tuple(range(1, x.ndim)))
        if broken.any():
            raise ValueError(
                f"Features must be finite in float32, but row {start + int(broken.argmax())}"
                " (counting from 0) holds NaN, infinity or a huge number. Impute, scale or drop"
                " these rows; Federation.from_frame does it for tables."
            )
    return x


def count(part: int, whole: int) -> str:
    """A part of all rows in words, with the verb.

    >>> count(1, 2000)
    '1 of 2,000 rows is'
    """
    return f"{part:,} of {whole:,} rows {'is' if part == 1 else 'are'}"


def check_table(frame: Any, names: Sequence[Any]) -> None:
    """Raise unless `frame` is a table that has each of these columns once."""
    by_column = hasattr(frame, "pieces")
    if not by_column and not (_is_pandas(frame) and getattr(frame, "ndim", 0) == 2):
        raise TypeError(
            f"The table must be a pandas DataFrame, got a {type(frame).__name__}. Convert it, for"
            " example with .to_pandas()."
        )
    columns = list(frame.columns)
    for name in names:
        if not isinstance(name, str | int):
            raise TypeError(
                f"Column names must be words or whole numbers, got {name!r}. Rename the columns."
            )
    absent = list(dict.fromkeys(name for name in names if name not in columns))
    if absent:
        near = [close for name in absent if (close := nearest(str(name), map(str, columns)))]
        hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
        raise ValueError(
            f"The table must have the column{'s' if len(absent) > 1 else ''}"
            f" {', '.join(map(repr, absent))}; it has {', '.join(map(repr, columns[:30]))}.{hint}"
        )
    for name in names:
        if columns.count(name) > 1:
            raise ValueError(
                f"Column names must be different, but {name!r} occurs {columns.count(name)} times."
                " Rename or drop one."
            )


def _fit_column(name: Any, column: TableColumn, training: np.ndarray) -> Numeric | Categorical:
    if not column.holds_numbers():
        values, inverse = column.distinct()
        categories = tuple(sorted(set(values.words()[np.unique(inverse[training])])))
        if len(categories) > MOST_CATEGORIES:
            raise ValueError(
                f"{column.what} has {len(categories):,} different words in {len(training):,}"
                f" training rows; at most {MOST_CATEGORIES:,} can be features. Leave it out, or"
                " merge its categories."
            )
        return Categorical(name=name, categories=categories)
    raw = column.numbers()
    mean, deviation = _moments(raw[training])
    return Numeric(
        name=name, mean=mean, deviation=deviation, flag_missing=bool(np.isnan(raw[training]).any())
    )


def _moments(raw: np.ndarray) -> tuple[float, float]:
    """Mean and deviation of what is not missing; 1 stands in for a deviation of 0."""
    values = raw[~np.isnan(raw)]
    # rounding can give a constant a tiny deviation
    if not values.size or values.min() == values.max():
        return (float(values[0]) if values.size else 0.0), 1.0
    peak = np.abs(values).max()  # squares of very large values would overflow
    scaled = values / peak
    return float(peak * scaled.mean()), float(peak * scaled.std()) or 1.0


def whole_words(words: list[str]) -> list[str]:
    """Whole numbers that were written with a decimal point, as programs do where a column has gaps,
    without it.

    >>> whole_words(["1.0", "2.0"]), whole_words(["1.0", "2.5"])
    (['1', '2'], ['1.0', '2.5'])
    """
    return (
        [word.partition(".")[0] for word in words]
        if words and all(map(WHOLE.fullmatch, words))
        else words
    )


def _is_pandas(values: Any) -> bool:
    return callable(getattr(values, "isna", None))


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        # pandas' NA has no truth value; neither has an array, which is not missing
        return not isinstance(value, np.ndarray)


def _word(value: Any) -> str:
    return (
        str(int(value))
        if isinstance(value, float | np.floating) and value.is_integer()
        else str(value)
    )


def are_numbers(names: Iterable[str]) -> bool:
    """Whether all of these words are finite numbers."""
    try:
        return all(Decimal(name).is_finite() for name in names)
    except InvalidOperation:
        return False


def _sort_key(names: set[str]) -> Any:
    return (lambda name: (Decimal(name), name)) if are_numbers(names) else str

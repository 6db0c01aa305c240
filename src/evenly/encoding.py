"""Turn the columns of a table into numbers, once for training and again for new rows.

The rules, which `docs/data.md` explains to users:

- a numeric column is standardised with the mean and deviation of the training rows; a missing value becomes the mean
  (0 after scaling), and where training rows had missing values a 0/1 column says so;
- any other column becomes one 0/1 column per category seen in training rows; a missing value is a category of its own
  where training rows had one; a category never seen in training is all zeros;
- infinities are refused.

Tables are anything with `columns`, `frame[name]` and pandas' `isna`; pandas itself is not imported here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evenly.records import record, static

MISSING = "(missing)"


@record
class Numeric:
    """How one numeric column is scaled."""

    name: str = static()
    mean: float = static()
    deviation: float = static()
    flag_missing: bool = static()

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} is missing") if self.flag_missing else (self.name,)

    def encode(self, values: Any) -> np.ndarray:
        raw = _numbers(self.name, values)
        gone = np.isnan(raw)
        scaled = np.where(gone, 0.0, (raw - self.mean) / self.deviation)
        return np.stack([scaled, gone], axis=1) if self.flag_missing else scaled[:, None]


@record
class Categorical:
    """The categories one column had in training rows."""

    name: str = static()
    categories: tuple[str, ...] = static()

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={c}" for c in self.categories)

    def encode(self, values: Any) -> np.ndarray:
        return _words(values)[:, None] == np.array(self.categories, dtype=object)[None, :]


@record
class Encoder:
    """The features of a table, in order."""

    columns: tuple[Numeric | Categorical, ...] = static()

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(f for column in self.columns for f in column.features)

    def encode(self, frame: Any) -> np.ndarray:
        """Features of the rows of `frame`, float32 [n, features]."""
        missing = [c.name for c in self.columns if c.name not in frame.columns]
        if missing:
            raise ValueError(f"The table must have the columns {missing}, which the model was trained on; it has {list(frame.columns)}.")
        return np.concatenate([c.encode(frame[c.name]) for c in self.columns], axis=1).astype(np.float32)


def fit_encoder(frame: Any, names: Sequence[str], training: np.ndarray) -> Encoder:
    """Choose the scaling and the categories from the training rows only."""
    if not names:
        raise ValueError("The table must have at least one feature column besides client, label and sensitive columns; it has none.")
    return Encoder(columns=tuple(_fit_column(name, frame[name], training) for name in names))


def _fit_column(name: str, values: Any, training: np.ndarray) -> Numeric | Categorical:
    if not _is_numeric(values):
        return Categorical(name=name, categories=tuple(sorted(set(_words(values)[training]))))
    raw = _numbers(name, values)[training]
    gone = np.isnan(raw)
    known = raw[~gone]
    mean = float(known.mean()) if known.size else 0.0
    deviation = float(known.std()) if known.size else 0.0
    return Numeric(name=name, mean=mean, deviation=deviation or 1.0, flag_missing=bool(gone.any()))


def _is_numeric(values: Any) -> bool:
    return getattr(values.dtype, "kind", "O") in "iufb"


def _numbers(name: str, values: Any) -> np.ndarray:
    try:
        raw = np.asarray(values.to_numpy(), np.float64) if hasattr(values, "to_numpy") else np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"Column {name!r} was numeric in training, so it must hold numbers; it has dtype {values.dtype}.") from None
    if np.isinf(raw).any():
        raise ValueError(f"Column {name!r} must be finite; row {int(np.isinf(raw).argmax())} is infinite. Replace or drop it.")
    return raw


def _words(values: Any) -> np.ndarray:
    words = np.array([str(v) for v in values], dtype=object)
    words[np.asarray(values.isna(), bool)] = MISSING
    return words


def words(values: Any) -> np.ndarray:
    """A column as strings, missing values as one category; used for client, label and sensitive columns."""
    return _words(values)

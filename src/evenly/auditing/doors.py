"""The two doors: a table in memory, and a file of which only the needed columns are read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.auditing.columns import Coded, from_arrow, from_pandas, plain_array
from evenly.auditing.measuring import Table, Wanted, measure
from evenly.auditing.reading import check_columns, read
from evenly.auditing.result import Audit


class Roles(NamedTuple):
    """Which column means what."""

    label: str
    prediction: str
    client: str | None
    score: str | None
    sensitive: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The columns that are told apart, not computed with."""
        return [name for name in (self.label, self.prediction, self.client, *self.sensitive) if name is not None]


def audit(
    frame: Any,
    *,
    label: str,
    prediction: str,
    client: str | None = None,
    score: str | None = None,
    sensitive: str | Sequence[str] = (),
    favourable: Any = None,
    unprivileged: Any = None,
    min_cell: int = 10,
    anonymous: bool = False,
    name: str = "table",
) -> Audit:
    """Audit the predictions in a pandas table with one row per person.

    `client` names the column of clients (hospitals, branches, devices), `sensitive` those of groups; one of them may be left out.
    `score` is the probability of the favourable label. `favourable` is the label that people want to get; of two numbers the larger
    and of yes and no the first unless named, and other words must be named to compare groups. `unprivileged` is the value of the
    sensitive column whose people are set against all others, or a dict from columns to values; without it, the value that is favoured
    least. Figures that rest on fewer than `min_cell` people are hidden, and with `anonymous` clients have numbers instead of names.
    """
    roles = _roles(label, prediction, client, score, sensitive)
    if not hasattr(frame, "columns") or not callable(getattr(frame, "isna", None)):
        raise TypeError(f"The table must be a pandas DataFrame, got a {type(frame).__name__}. Convert it, for example with .to_pandas().")
    check_columns("The table", list(frame.columns), [*roles.words, *([score] if score else [])])
    columns = {each: from_pandas(frame, each) for each in roles.words}
    numbers = None if score is None else _numbers(frame, score)
    return measure(_table(roles, columns, numbers), Wanted(favourable, unprivileged, min_cell, anonymous), name)


def audit_file(
    path: str | Path,
    *,
    label: str,
    prediction: str,
    client: str | None = None,
    score: str | None = None,
    sensitive: str | Sequence[str] = (),
    favourable: Any = None,
    unprivileged: Mapping[str, Any] | Any = None,
    min_cell: int = 10,
    anonymous: bool = False,
) -> Audit:
    """The same for a .csv, .csv.gz or .parquet file, of which only the named columns are read."""
    roles, file = _roles(label, prediction, client, score, sensitive), Path(path)
    table = read(file, roles.words, [score] if score else [])
    columns = {each: from_arrow(table, each) for each in roles.words}
    numbers = None if score is None else _floats(table, score)
    return measure(_table(roles, columns, numbers), Wanted(favourable, unprivileged, min_cell, anonymous), file.name)


def _roles(label: str, prediction: str, client: str | None, score: str | None, sensitive: str | Sequence[str]) -> Roles:
    roles = Roles(label, prediction, client, score, (sensitive,) if isinstance(sensitive, str) else tuple(sensitive))
    used = [*roles.words, *([score] if score else [])]
    twice = next((each for each in used if used.count(each) > 1), None)
    if twice is not None:
        raise ValueError(f"Every column must have one meaning, but {twice!r} is named {used.count(twice)} times. Name each only once.")
    return roles


def _table(roles: Roles, columns: Mapping[str, Coded], numbers: np.ndarray | None) -> Table:
    return Table(
        label=columns[roles.label],
        prediction=columns[roles.prediction],
        client=None if roles.client is None else columns[roles.client],
        sensitive=tuple(columns[name] for name in roles.sensitive),
        score=None if roles.score is None or numbers is None else (roles.score, numbers),
    )


def _numbers(frame: Any, name: str) -> np.ndarray:
    try:
        return frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise ValueError(f"Column {name!r} must hold numbers from 0 to 1, but its type is {frame[name].dtype}.") from None


def _floats(table: Any, name: str) -> np.ndarray:
    import pyarrow as pa

    try:
        chunks = table.column(name).cast(pa.float64()).chunks
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(f"Column {name!r} must hold numbers from 0 to 1, but its type is {table.column(name).type}.") from None
    return np.concatenate([np.zeros(0), *(plain_array(chunk, np.nan) for chunk in chunks)])

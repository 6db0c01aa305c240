"""Run an audit: turn a table of predictions into figures about clients, groups of people and
scores.

`audit` takes a table in memory, or a CSV or Parquet file. It matches labels with predictions,
counts rows by client, group, label and prediction, computes rates and scores with confidence
intervals, and hides figures that rest on too few people.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.auditing.estimates import (
    AuditRows,
    Scores,
    ScoreSummary,
    check_scores,
    count_rows,
    summarise_scores,
)
from evenly.auditing.measurement import AuditData, AuditedClients, AuditRequest, audit_counts
from evenly.auditing.people import (
    MatchedLabels,
    People,
    find_favourable,
    form_groups,
    match_labels,
    outcomes,
)
from evenly.auditing.read import (
    CodedColumn,
    check_columns,
    from_arrow,
    from_pandas,
    plain_array,
    read,
)
from evenly.auditing.requirements import parse_requirement
from evenly.auditing.result import Audit
from evenly.data.arrow import ColumnTable, as_table

Array = np.ndarray


class PredictionTable(NamedTuple):
    """The columns of an audit."""

    label: CodedColumn
    prediction: CodedColumn
    client: CodedColumn | None
    sensitive: tuple[CodedColumn, ...]
    score: tuple[str, Array] | None  # name and values


class RowScores(NamedTuple):
    """Scores of rows, for `measurement.ScoreSource`."""

    scores: Scores
    rows: AuditRows

    def of_clients(self, clients: int) -> ScoreSummary:
        """Summaries of the clients."""
        return summarise_scores(self.scores, self.rows.client, clients)

    def of_groups(self, of_group: Array | None, groups: int) -> ScoreSummary:
        """Summaries of groups of intersections, or of everybody."""
        if of_group is None or self.rows.group is None:
            return summarise_scores(self.scores, None, groups)
        return summarise_scores(self.scores, of_group[self.rows.group], groups)


def audit_columns(table: PredictionTable, request: AuditRequest, source: str) -> Audit:
    """Audit the columns of a table. `source` is the table's name."""
    _check(table, request)
    labels = match_labels(table.label, table.prediction, request.min_cell)
    people = form_groups(table.sensitive, request.min_cell)
    needed = bool(people.parts) or table.score is not None
    favourable = find_favourable(request.favourable, labels, needed=needed)
    return audit_counts(_counted(table, labels, people, favourable), request, source, _roles(table))


def _check(table: PredictionTable, request: AuditRequest) -> None:
    rows = len(table.label.codes)
    if rows == 0:
        raise ValueError("The table must have at least one row; it is empty.")
    if request.min_cell < 0:
        raise ValueError(f"min_cell must be 0 or more, got {request.min_cell}.")
    if rows < request.min_cell:
        raise ValueError(
            f"The table has {rows} rows, but with min_cell={request.min_cell} every figure must"
            f" rest on at least {request.min_cell} people. Choose a smaller min_cell."
        )
    if table.client is None and not table.sensitive:
        raise ValueError(
            "An audit needs a client column, sensitive columns, or both. Name at least one."
        )
    if table.client is not None:
        table.client.require_complete(
            "Fill or drop these rows, or use a separate name for people without a client."
        )


def _counted(
    table: PredictionTable, labels: MatchedLabels, people: People, favourable: int | None
) -> AuditData:
    """Count the rows and check the scores."""
    label, outcome, kinds = outcomes(labels, favourable)
    client = None if table.client is None else table.client.codes
    rows = AuditRows(client, people.groups.group, label, outcome)
    clients = 0 if table.client is None else len(table.client.words)
    if table.score is not None and favourable is None:
        raise ValueError(
            f"Column {table.score[0]!r} must be the score of the favourable label, but there are"
            f" {len(labels.labels)} labels and none is named as favourable. Name it with"
            " `favourable`."
        )
    by_label = [
        np.bincount(own, minlength=len(labels.labels))
        for own in (labels.label, labels.label[labels.label == labels.prediction])
    ]
    return AuditData(
        counts=count_rows(rows, clients=clients, groups=len(people.groups.names), kinds=kinds),
        people=people,
        clients=None if table.client is None else AuditedClients(*table.client[:2]),
        scores=None if table.score is None else RowScores(check_scores(*table.score, label), rows),
        labels=labels.labels,
        favourable=favourable,
        by_label=np.stack(by_label, axis=1),
        notes=labels.notes,
    )


def _roles(table: PredictionTable) -> dict[str, str]:
    roles = {
        "Label": table.label.name,
        "Prediction": table.prediction.name,
        "Score": "" if table.score is None else table.score[0],
        "Client": "" if table.client is None else table.client.name,
        "Sensitive": ", ".join(column.name for column in table.sensitive),
    }
    return {role: name for role, name in roles.items() if name}


class Roles(NamedTuple):
    """The names of the columns by their role."""

    label: str
    prediction: str
    client: str | None
    score: str | None
    sensitive: tuple[str, ...]

    @property
    def categories(self) -> list[str]:
        """The columns whose values are categories, not numbers."""
        return [
            name
            for name in (self.label, self.prediction, self.client, *self.sensitive)
            if name is not None
        ]

    @property
    def scores(self) -> list[str]:
        """The column of scores, if there is one."""
        return [self.score] if self.score else []


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
    require: str | Sequence[str] = (),
    name: str = "",
) -> Audit:
    """Audit the predictions of any model: how evenly it serves clients and groups of people.

    Args:
        frame: A table with one row per person: a DataFrame of pandas or Polars, an Arrow table, or
            the path of a .csv, .csv.gz or .parquet file, of which only the named columns are read.
        label: Column of the true labels.
        prediction: Column of the predicted labels.
        client: Column of the clients, such as hospitals, branches or devices. Needed unless
            `sensitive` is given.
        score: Column of the predicted probability of the favourable label, from 0 to 1.
        sensitive: One or more columns that define groups of people, such as sex or age group.
        favourable: The label that people want to get. By default the larger of two numbers, or yes
            of yes and no. Other labels must be named to compare groups.
        unprivileged: Value of the sensitive column to compare with all others, or a dict from
            columns to values. By default every value is compared with all others, and figures of
            the whole column are those of the value with the lowest selection rate.
        min_cell: Hide figures that rest on fewer people than this.
        anonymous: Replace the names of clients by numbers.
        require: Requirements that the report and audit.json check, such as
            ``"impact_ratio>=0.8"``.
        name: Name of the table in the report. By default the name of the file, or "table".

    Returns:
        The audit. Its `table` holds all figures, its `sentences` the findings, and `write` saves
        the report.

    Raises:
        TypeError: If `frame` is not a table.
        ValueError: If the file cannot be read, a column is missing, incomplete or unsuitable, or a
            requirement cannot be read.

    Example:
        >>> import pandas as pd
        >>> columns = {"sex": ["f", "m"] * 50, "y": [0, 0, 1, 1] * 25, "p": [0, 0, 0, 1] * 25}
        >>> frame = pd.DataFrame(columns)
        >>> result = audit(frame, label="y", prediction="p", sensitive="sex")
        >>> result.group_table["accuracy"].to_dict()
        {'sex=f': 50.0, 'sex=m': 100.0}
    """
    required = (require,) if isinstance(require, str) else tuple(require)
    for each in required:
        parse_requirement(each)  # before a long audit
    table, source = _read(frame, _check_roles(label, prediction, client, score, sensitive))
    request = AuditRequest(favourable, unprivileged, min_cell, anonymous)
    return audit_columns(table, request, name or source)._replace(required=required)


def _read(source: Any, roles: Roles) -> tuple[PredictionTable, str]:
    """The columns of a table or a file, and a name for it."""
    needed = [*roles.categories, *roles.scores]
    if isinstance(source, str | Path):
        found: Any = read(Path(source), roles.categories, roles.scores)
        name, column, numbers = Path(source).name, from_arrow, _arrow_scores
    else:
        found, name, column, numbers = _frame(source), "table", from_pandas, _pandas_scores
        check_columns("The table", list(found.columns), needed)
    columns = {each: column(found, each) for each in roles.categories}
    scores = None if roles.score is None else numbers(found, roles.score)
    return _table(roles, columns, scores), name


def _frame(table: Any) -> Any:
    """A table of pandas, or one that gives its columns in the same way."""
    found = as_table(table)
    if not isinstance(found, ColumnTable) and not callable(getattr(found, "isna", None)):
        raise TypeError(
            "The table must be a DataFrame of pandas or Polars, an Arrow table, or the path of a"
            f" file, got a {type(table).__name__}. Convert it, for example with .to_pandas()."
        )
    return found


def _check_roles(
    label: str,
    prediction: str,
    client: str | None,
    score: str | None,
    sensitive: str | Sequence[str],
) -> Roles:
    roles = Roles(
        label,
        prediction,
        client,
        score,
        (sensitive,) if isinstance(sensitive, str) else tuple(sensitive),
    )
    used = [*roles.categories, *roles.scores]
    twice = next((each for each in used if used.count(each) > 1), None)
    if twice is not None:
        raise ValueError(
            f"Every column must have one role, but {twice!r} is named {used.count(twice)} times."
            " Name each column only once."
        )
    return roles


def _table(
    roles: Roles, columns: Mapping[str, CodedColumn], scores: np.ndarray | None
) -> PredictionTable:
    return PredictionTable(
        label=columns[roles.label],
        prediction=columns[roles.prediction],
        client=None if roles.client is None else columns[roles.client],
        sensitive=tuple(columns[name] for name in roles.sensitive),
        score=None if roles.score is None or scores is None else (roles.score, scores),
    )


def _pandas_scores(frame: Any, name: str) -> np.ndarray:
    import pandas as pd

    column = pd.Series(frame[name])
    try:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise ValueError(
            f"Column {name!r} must hold numbers from 0 to 1, but its type is {column.dtype}."
        ) from None


def _arrow_scores(table: Any, name: str) -> np.ndarray:
    import pyarrow as pa

    try:
        chunks = table.column(name).cast(pa.float64()).chunks
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(
            f"Column {name!r} must hold numbers from 0 to 1, but its type is"
            f" {table.column(name).type}."
        ) from None
    return np.concatenate([np.zeros(0), *(plain_array(chunk, np.nan) for chunk in chunks)])

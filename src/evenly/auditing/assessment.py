"""Run an audit: turn a table of predictions into figures about clients, groups of people and
scores.

`audit` takes a pandas table and `audit_file` a CSV or Parquet file. Both match labels with
predictions, count rows by client, group, label and prediction, compute rates and scores with
confidence intervals, and hide figures that rest on too few people.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.auditing.estimates import (
    AuditRows,
    Counts,
    Estimate,
    Scores,
    check_scores,
    count_rows,
    curves,
    score_figures,
    summarise_scores,
)
from evenly.auditing.hiding import (
    Gap,
    HiddenClients,
    Veil,
    Veils,
    can_cross,
    gaps_expose,
    label_counts,
    veils,
)
from evenly.auditing.people import (
    NO_VALUE,
    MatchedLabels,
    People,
    find_favourable,
    form_groups,
    match_labels,
    outcomes,
    unprivileged_values,
)
from evenly.auditing.read import (
    CodedColumn,
    check_columns,
    from_arrow,
    from_pandas,
    plain_array,
    read,
)
from evenly.auditing.result import Audit, AuditFacts
from evenly.auditing.views import (
    ClientView,
    GroupView,
    add_client_gaps,
    add_worst_rates,
    client_view,
    compared_groups,
    group_view,
    intersection_view,
    overall,
)
from evenly.data.sensitive import FEW, Attribute
from evenly.metrics import by_attribute
from evenly.report.disclosure import hide, small_cells
from evenly.report.worst_served import Trivial, gap_half_width

Array = np.ndarray


class PredictionTable(NamedTuple):
    """The columns of an audit."""

    label: CodedColumn
    prediction: CodedColumn
    client: CodedColumn | None
    sensitive: tuple[CodedColumn, ...]
    score: tuple[str, Array] | None  # name and values


class AuditRequest(NamedTuple):
    """Settings of an audit: the favourable label, the unprivileged values, and what is hidden."""

    favourable: Any = None
    unprivileged: Any = None
    min_cell: int = 10
    anonymous: bool = False


class AuditData(NamedTuple):
    """Rows, counts, groups and scores that the views are computed from."""

    rows: AuditRows
    counts: Counts
    people: People
    scores: Scores | None
    # whether there is a favourable label that enough people have and enough do not have
    has_favourable: bool
    min_cell: int


def measure(table: PredictionTable, request: AuditRequest, source: str) -> Audit:
    """Audit the columns of a table. `source` is the table's name."""
    _check(table, request)
    min_cell, has_scores = request.min_cell, table.score is not None
    labels = match_labels(table.label, table.prediction, min_cell)
    people = form_groups(table.sensitive, min_cell)
    favourable = find_favourable(
        request.favourable, labels, needed=bool(people.parts) or has_scores
    )
    data = _prepare(table, labels, people, favourable, min_cell)
    hidden = veils(
        data.counts.groups, people.groups.attributes, min_cell, has_favourable=data.has_favourable
    )
    clients = _client_view(table.client, data, request.anonymous)
    sides = unprivileged_values(request.unprivileged, people.parts)
    columns = _column_views(data, hidden, sides, clients)
    name = None if favourable is None else labels.labels[favourable]
    assumption = _favourable_notes(labels, favourable, people) if request.favourable is None else []
    facts = AuditFacts(
        source, len(labels.label), _roles(table), labels.labels, name, min_cell, request.anonymous
    )
    return Audit(
        about=facts if data.has_favourable else facts._replace(favourable=None),
        whole=_whole(data),
        clients=clients,
        groups=_without_exposing_gaps(data, columns, hidden, clients),
        intersections=(
            None if hidden.intersections is None else _intersection_view(data, hidden.intersections)
        ),
        notes=(*labels.notes, *assumption, *_hiding_notes(data, hidden, name), *people.notes),
        trivial=_trivial(labels, favourable, min_cell),
    )


def _trivial(rows: MatchedLabels, favourable: int | None, min_cell: int) -> Trivial | None:
    """The model that predicts the most frequent label for everybody; None if its accuracy would
    reveal a small count.

    The number of people with the favourable label is shown as well, so the remaining labels
    together must not be few either.
    """
    counts = np.bincount(rows.label, minlength=len(rows.labels))
    frequent, people = int(np.argmax(counts)), len(rows.label)
    rest = people - int(counts[[*{frequent, frequent if favourable is None else favourable}]].sum())
    if small_cells([people - counts[frequent], rest], min_cell).any():
        return None
    right, trivially_right = rows.label == rows.prediction, rows.label == frequent
    gained, lost = int((right & ~trivially_right).sum()), int((~right & trivially_right).sum())
    half = gap_half_width(gained, lost, people)
    return Trivial(
        rows.labels[frequent],
        False,
        float(100 * counts[frequent] / people),
        half,
        frequent == favourable,
    )


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


def _prepare(
    table: PredictionTable,
    labels: MatchedLabels,
    people: People,
    favourable: int | None,
    min_cell: int,
) -> AuditData:
    """Count the rows and check the scores."""
    label, outcome, kinds = outcomes(labels, favourable)
    rows = AuditRows(
        None if table.client is None else table.client.codes, people.groups.group, label, outcome
    )
    clients = 0 if table.client is None else len(table.client.words)
    counts = count_rows(rows, clients=clients, groups=len(people.groups.names), kinds=kinds)
    if table.score is not None and favourable is None:
        raise ValueError(
            f"Column {table.score[0]!r} must be the score of the favourable label, but there are"
            f" {len(labels.labels)} labels and none is named as favourable. Name it with"
            " `favourable`."
        )
    scores = None if table.score is None else check_scores(*table.score, label)
    enough = (
        favourable is not None
        and not small_cells(label_counts(counts.groups.sum(0)), min_cell).any()
    )
    return AuditData(rows, counts, people, scores if enough else None, enough, min_cell)


def _client_view(column: CodedColumn | None, data: AuditData, anonymous: bool) -> ClientView | None:
    if column is None:
        return None
    view = client_view(
        column.name,
        column.words,
        data.counts.clients,
        min_cell=data.min_cell,
        few=FEW,
        anonymous=anonymous,
    )
    if data.has_favourable:
        view = add_worst_rates(view, data.counts.clients, data.min_cell)
    if data.scores is None:
        return view
    summary = summarise_scores(data.scores, data.rows.client, view.clients)
    counts = label_counts(data.counts.clients.sum(1))
    labels = hide(counts, data.min_cell, sums=[0, 1], also=view.hidden.cells[:, None]).cells
    return view._replace(
        scores=score_figures(summary, ~view.hidden.cells & ~labels.any(1), data.min_cell)
    )


def _column_views(
    data: AuditData, hidden: Veils, unprivileged: Mapping[str, int], clients: ClientView | None
) -> list[GroupView]:
    columns = zip(data.people.groups.attributes, hidden.columns, strict=True)
    return [
        _column_view(data, attribute, veil, unprivileged.get(attribute.name), clients)
        for attribute, veil in columns
    ]


def _column_view(
    data: AuditData,
    attribute: Attribute,
    veil: Veil,
    unprivileged: int | None,
    clients: ClientView | None,
) -> GroupView:
    """The view of one sensitive column."""
    units = by_attribute(data.counts.units, attribute)
    view = group_view(
        attribute.name,
        attribute.values,
        units,
        has_favourable=data.has_favourable,
        min_cell=data.min_cell,
        veil=veil,
        unprivileged=unprivileged,
    )
    if clients is not None and 1 < clients.clients == len(units):
        view = add_client_gaps(view, units, clients.hidden.cells, data.min_cell)
    if data.scores is None:
        return view
    part = next(part for part in data.people.parts if part.name == attribute.name)
    summary = summarise_scores(data.scores, part.codes, len(part.values))
    # The bins of a group reveal how many of its people have each label, and so does the mean of
    # scores that are all 0 or 1.
    visible = veil.both_labels & ~veil.groups.cells
    lines = curves(summary, visible, compared_groups(part.values, veil), data.min_cell)
    return view._replace(scores=score_figures(summary, visible, data.min_cell), curves=lines)


def _without_exposing_gaps(
    data: AuditData, views: Sequence[GroupView], hidden: Veils, clients: ClientView | None
) -> tuple[GroupView, ...]:
    """Remove the gaps within clients if they would reveal hidden counts."""
    attributes, gaps = data.people.groups.attributes, []
    for attribute, view in zip(attributes, views, strict=True):
        if view.client_gaps is not None and view.unprivileged is not None:
            of_group, others = np.array(attribute.of_group), compared_groups(view.names, view.veil)
            group = of_group == view.unprivileged
            gaps.append(
                Gap(
                    group,
                    others[of_group] & ~group,
                    np.array([gap.has_value for gap in view.client_gaps.spd]),
                )
            )
    if clients is None:
        return tuple(views)
    rated = HiddenClients(clients.hidden, clients.worst_first()[:1] if clients.worst_rates else ())
    if not gaps_expose(
        data.counts.units, attributes, hidden, clients=rated, gaps=gaps, min_cell=data.min_cell
    ):
        return tuple(views)
    return tuple(view._replace(client_gaps=None) for view in views)


def _intersection_view(data: AuditData, veil: Veil) -> GroupView:
    """The view of the intersections of all sensitive columns."""
    groups = data.people.groups
    complete = np.array(
        [
            all(a.values[a.of_group[g]] != NO_VALUE for a in groups.attributes)
            for g in range(len(groups.names))
        ]
    )
    title = " and ".join(data.people.names)
    view = intersection_view(
        title,
        groups.names,
        data.counts.units,
        has_favourable=data.has_favourable,
        veil=veil,
        compared=complete,
    )
    if data.scores is None:
        return view
    summary = summarise_scores(data.scores, groups.group, len(groups.names))
    return view._replace(
        scores=score_figures(summary, ~veil.groups.cells & veil.both_labels, data.min_cell)
    )


def _whole(data: AuditData) -> dict[str, Estimate]:
    """Rates, AUC, calibration error and bias of everybody."""
    rates = overall(
        data.counts.units.sum(1, keepdims=True),
        has_favourable=data.has_favourable,
        min_cell=data.min_cell,
    )
    if data.scores is None:
        return rates
    figures = score_figures(summarise_scores(data.scores, None, 1), np.ones(1, bool), data.min_cell)
    return rates | {name: estimates[0] for name, estimates in figures.items()}


def _roles(table: PredictionTable) -> dict[str, str]:
    roles = {
        "Label": table.label.name,
        "Prediction": table.prediction.name,
        "Score": "" if table.score is None else table.score[0],
        "Client": "" if table.client is None else table.client.name,
        "Sensitive": ", ".join(column.name for column in table.sensitive),
    }
    return {role: name for role, name in roles.items() if name}


def _favourable_notes(labels: MatchedLabels, favourable: int | None, people: People) -> list[str]:
    """The assumption about the favourable label, where the user did not name it."""
    if favourable is not None:
        return [
            f"“{labels.labels[favourable]}” is assumed to be the favourable label. Name another one"
            " with --favourable."
        ]
    if people.parts:
        return [
            "There are more than two labels and none is named as favourable: groups are compared by"
            " accuracy only."
        ]
    return [
        "No label is named as favourable, so only accuracy is shown. Name one with --favourable."
    ]


def _hiding_notes(data: AuditData, hidden: Veils, favourable: str | None) -> list[str]:
    """Which kinds of figures are left out of the whole audit, and why."""
    notes, attributes = [], data.people.groups.attributes
    if favourable is not None and not data.has_favourable:
        notes.append(
            f"Fewer than {data.min_cell} people have the label “{favourable}”, or fewer than"
            f" {data.min_cell} have another one. Only accuracy is shown, because every other figure"
            " would rest on these people."
        )
    if hidden.solvable:
        notes.append(
            "Intersections of the sensitive columns are not shown: hidden small numbers could be"
            " calculated from them, or there are too many intersections to rule that out."
        )
    if len(attributes) > 1 and not can_cross(attributes):
        notes.append(
            "The sensitive columns have too many combinations of values to examine intersections."
            " Each column is shown alone."
        )
    return notes


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
    name: str = "table",
) -> Audit:
    """Audit the predictions of any model: how evenly it serves clients and groups of people.

    Args:
        frame: A pandas table with one row per person.
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
        name: Name of the table in the report.

    Returns:
        The audit. Its `table` holds all figures, its `sentences` the findings, and `write` saves
        the report.

    Raises:
        TypeError: If `frame` is not a pandas table.
        ValueError: If a column is missing, incomplete or unsuitable.

    Example:
        >>> import pandas as pd
        >>> columns = {"sex": ["f", "m"] * 50, "y": [0, 0, 1, 1] * 25, "p": [0, 0, 0, 1] * 25}
        >>> frame = pd.DataFrame(columns)
        >>> result = audit(frame, label="y", prediction="p", sensitive="sex")
        >>> result.group_table["accuracy"].to_dict()
        {'sex=f': 50.0, 'sex=m': 100.0}
    """
    roles = _check_roles(label, prediction, client, score, sensitive)
    if not hasattr(frame, "columns") or not callable(getattr(frame, "isna", None)):
        raise TypeError(
            f"The table must be a pandas DataFrame, got a {type(frame).__name__}. Convert it, for"
            " example with .to_pandas()."
        )
    check_columns("The table", list(frame.columns), [*roles.categories, *roles.scores])
    columns = {each: from_pandas(frame, each) for each in roles.categories}
    scores = None if score is None else _pandas_scores(frame, score)
    return measure(
        _table(roles, columns, scores),
        AuditRequest(favourable, unprivileged, min_cell, anonymous),
        name,
    )


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
    """Audit the predictions in a file. Only the named columns are read.

    Args:
        path: A .csv, .csv.gz or .parquet file with one row per person. The other arguments are
            those of :func:`audit`.

    Returns:
        The audit, as :func:`audit` returns it.

    Raises:
        ValueError: If the file cannot be read, or a column is missing, incomplete or unsuitable.
    """
    roles, file = _check_roles(label, prediction, client, score, sensitive), Path(path)
    table = read(file, roles.categories, roles.scores)
    columns = {each: from_arrow(table, each) for each in roles.categories}
    scores = None if score is None else _arrow_scores(table, score)
    return measure(
        _table(roles, columns, scores),
        AuditRequest(favourable, unprivileged, min_cell, anonymous),
        file.name,
    )


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
    try:
        return frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise ValueError(
            f"Column {name!r} must hold numbers from 0 to 1, but its type is {frame[name].dtype}."
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

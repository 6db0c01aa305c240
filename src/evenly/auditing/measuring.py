"""An audit: from a table of predictions to what it says of clients, of groups of people and of scores."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.auditing.estimates import AuditRows, Counts, Estimate, Scores, counted, curves, score_figures, scored, scores
from evenly.auditing.hiding import Gap, HiddenClients, Veil, Veils, can_cross, gaps_expose, label_counts, veils
from evenly.auditing.people import NO_VALUE, Judged, People, favourable_of, judged, named, outcomes, people
from evenly.auditing.read import Coded, check_columns, from_arrow, from_pandas, plain_array, read
from evenly.auditing.result import Audit, AuditFacts
from evenly.auditing.views import (
    ClientView,
    GroupView,
    among_others,
    client_view,
    group_view,
    intersections,
    overall,
    with_clients,
    with_rates,
)
from evenly.data.sensitive import FEW, Attribute
from evenly.metrics import by_attribute
from evenly.report.disclosure import hide, small_cells
from evenly.report.worst_served import Trivial, gap_half_width

# From columns to an audit: match the words, count, measure, hide.

Array = np.ndarray


class PredictionTable(NamedTuple):
    """The columns of an audit."""

    label: Coded
    prediction: Coded
    client: Coded | None
    sensitive: tuple[Coded, ...]
    score: tuple[str, Array] | None  # its name and the numbers


class AuditRequest(NamedTuple):
    """What an audit is asked to look for and to hide."""

    favourable: Any = None
    unprivileged: Any = None
    least: int = 10
    anonymous: bool = False


class Prepared(NamedTuple):
    """Everything that the views are made from."""

    rows: AuditRows
    counts: Counts
    people: People
    scores: Scores | None
    wanted: bool  # whether there is a favourable label, which enough people have and enough do not
    least: int


def measure(table: PredictionTable, wanted: AuditRequest, source: str) -> Audit:
    """Audit the columns of a table."""
    _check(table, wanted)
    judgement, who = judged(table.label, table.prediction, wanted.least), people(table.sensitive, wanted.least)
    favourable = favourable_of(wanted.favourable, judgement, needed=bool(table.sensitive) or table.score is not None)
    made = _prepared(table, judgement, who, favourable, wanted.least)
    sides = named(wanted.unprivileged, who.parts)
    clients = _clients(table.client, made, wanted.anonymous)
    attributes = who.groups.attributes
    hidden = veils(made.counts.groups, attributes, made.least, has_favourable=made.wanted)
    columns = [_column(made, a, own, sides.get(a.name), clients) for a, own in zip(attributes, hidden.columns, strict=True)]
    whole = overall(made.counts.units.sum(1, keepdims=True), wanted=made.wanted, least=made.least)
    return Audit(
        about=AuditFacts(
            source=source,
            rows=len(made.rows.label),
            columns=_roles(table),
            labels=judgement.labels,
            favourable=judgement.labels[favourable] if favourable is not None and made.wanted else None,
            least=wanted.least,
            anonymous=wanted.anonymous,
        ),
        whole=whole | _whole_scores(made),
        clients=clients,
        groups=_guarded(made, columns, hidden, clients),
        crossed=None if hidden.intersections is None else _crossed(made, hidden.intersections),
        notes=(
            *judgement.notes,
            *_favourable_notes(wanted, judgement, favourable, who),
            *_notes(made, hidden, None if favourable is None else judgement.labels[favourable]),
            *who.notes,
        ),
        trivial=_trivial(judgement, favourable, wanted.least),
    )


def _trivial(rows: Judged, favourable: int | None, least: int) -> Trivial | None:
    """The model that predicts the most frequent label for everybody; nothing where its score would tell of few people.

    How many have the favourable label is told as well, so what is left beside the two labels must not be few either.
    """
    counts = np.bincount(rows.label, minlength=len(rows.labels))
    chosen, people = int(np.argmax(counts)), len(rows.label)
    rest = people - int(counts[[*{chosen, chosen if favourable is None else favourable}]].sum())
    if small_cells([people - counts[chosen], rest], least).any():
        return None
    right, own = rows.label == rows.prediction, rows.label == chosen
    gained, lost = int((right & ~own).sum()), int((~right & own).sum())
    half = gap_half_width(gained, lost, people)
    return Trivial(rows.labels[chosen], False, float(100 * counts[chosen] / people), half, chosen == favourable)


def _check(table: PredictionTable, wanted: AuditRequest) -> None:
    rows = len(table.label.codes)
    if rows == 0:
        raise ValueError("The table must have at least one row; it is empty.")
    if wanted.least < 0:
        raise ValueError(f"The least number of people in a cell must be 0 or more, got {wanted.least}.")
    if rows < wanted.least:
        raise ValueError(
            f"The table has {rows} rows, fewer than the {wanted.least} people that a figure must rest on. Ask for fewer to see it."
        )
    if table.client is None and not table.sensitive:
        raise ValueError("An audit needs a client column, sensitive columns, or both: name at least one.")
    if table.client is not None:
        table.client.filled("Fill or drop such rows, or give people without a client a word of their own.")


def _prepared(table: PredictionTable, judgement: Judged, who: People, favourable: int | None, least: int) -> Prepared:
    label, outcome, kinds = outcomes(judgement, favourable)
    rows = AuditRows(None if table.client is None else table.client.codes, who.groups.group, label, outcome)
    clients = 0 if table.client is None else len(table.client.words)
    counts = counted(rows, clients=clients, groups=len(who.groups.names), kinds=kinds)
    if table.score is not None and favourable is None:
        raise ValueError(
            f"Column {table.score[0]!r} must be the score of one label, but there are {len(judgement.labels)}: name the favourable."
        )
    found = None if table.score is None else scores(*table.score, label)
    enough = favourable is not None and not small_cells(label_counts(counts.groups.sum(0)), least).any()
    return Prepared(rows, counts, who, found if enough else None, enough, least)


def _clients(column: Coded | None, made: Prepared, anonymous: bool) -> ClientView | None:
    if column is None:
        return None
    found = client_view(column.name, column.words, made.counts.clients, least=made.least, few=FEW, anonymous=anonymous)
    if made.wanted:
        found = with_rates(found, made.counts.clients, made.least)
    if made.scores is None:
        return found
    own = scored(made.scores, made.rows.client, found.clients)
    counts = label_counts(made.counts.clients.sum(1))
    labels = hide(counts, made.least, sums=[0, 1], also=found.hidden.cells[:, None]).cells
    return found._replace(scores=score_figures(own, ~found.hidden.cells & ~labels.any(1), made.least))


def _column(made: Prepared, attribute: Attribute, own: Veil, unprivileged: int | None, clients: ClientView | None) -> GroupView:
    """One sensitive column on its own."""
    units = by_attribute(made.counts.units, attribute)
    view = group_view(
        attribute.name, attribute.values, units, wanted=made.wanted, least=made.least, veil=own, unprivileged=unprivileged
    )  # fmt: skip
    if clients is not None and 1 < clients.clients == len(units):
        view = with_clients(view, units, clients.hidden.cells, made.least)
    if made.scores is None:
        return view
    part = next(part for part in made.people.parts if part.name == attribute.name)
    found = scored(made.scores, part.codes, len(part.values))
    # The bins of a group together tell how many of its people have each label, and scores of 0 and 1 tell it from their mean.
    shown = own.both_labels & ~own.groups.cells
    drawn = curves(found, shown, among_others(part.values, own), made.least)
    return view._replace(scores=score_figures(found, shown, made.least), curves=drawn)


def _guarded(made: Prepared, views: Sequence[GroupView], hidden: Veils, clients: ClientView | None) -> tuple[GroupView, ...]:
    """The views without gaps within clients where these would give hidden counts away."""
    attributes, gaps = made.people.groups.attributes, []
    for attribute, view in zip(attributes, views, strict=True):
        if view.within is not None and view.unprivileged is not None:
            of_group, others = np.array(attribute.of_group), among_others(view.names, view.veil)
            own = of_group == view.unprivileged
            gaps.append(Gap(own, others[of_group] & ~own, np.array([gap.known for gap in view.within.spd])))
    if clients is None:
        return tuple(views)
    places = HiddenClients(clients.hidden, clients.ordered()[:1] if clients.worst_rates else ())
    if not gaps_expose(made.counts.units, attributes, hidden, clients=places, gaps=gaps, min_cell=made.least):
        return tuple(views)
    return tuple(view._replace(within=None) for view in views)


def _crossed(made: Prepared, own: Veil) -> GroupView:
    """The intersections of several columns."""
    groups = made.people.groups
    compared = np.array([all(a.values[a.of_group[g]] != NO_VALUE for a in groups.attributes) for g in range(len(groups.names))])
    title = " and ".join(made.people.names)
    view = intersections(title, groups.names, made.counts.units, wanted=made.wanted, veil=own, compared=compared)
    if made.scores is None:
        return view
    found = scored(made.scores, groups.group, len(groups.names))
    return view._replace(scores=score_figures(found, ~own.groups.cells & own.both_labels, made.least))


def _whole_scores(made: Prepared) -> dict[str, Estimate]:
    if made.scores is None:
        return {}
    return {name: found[0] for name, found in score_figures(scored(made.scores, None, 1), np.ones(1, bool), made.least).items()}


def _roles(table: PredictionTable) -> dict[str, str]:
    sensitive = ", ".join(column.name for column in table.sensitive)
    found = {
        "Label": table.label.name,
        "Prediction": table.prediction.name,
        "Score": "" if table.score is None else table.score[0],
        "Client": "" if table.client is None else table.client.name,
        "Sensitive": sensitive,
    }
    return {role: name for role, name in found.items() if name}


def _favourable_notes(wanted: AuditRequest, judgement: Judged, favourable: int | None, who: People) -> list[str]:
    """What was assumed of the label that people want to get."""
    if wanted.favourable is not None:
        return []
    if favourable is not None:
        return [f"“{judgement.labels[favourable]}” is taken for the label that people want to get; name another with --favourable."]
    if who.parts:
        return ["There are more than two labels and none is named as favourable: groups are compared by accuracy only."]
    return ["No label is named as favourable, so only accuracy is shown; name one with --favourable."]


def _notes(made: Prepared, hidden: Veils, favourable: str | None) -> list[str]:
    """What the reader must know of choices that were made for the table."""
    notes, attributes = [], made.people.groups.attributes
    if favourable is not None and not made.wanted:
        notes.append(
            f"Fewer than {made.least} people have the label “{favourable}”, or fewer than {made.least} have another: "
            "only accuracy is shown, since every other figure would rest on them."
        )
    if hidden.solvable:
        notes.append(
            "Intersections of the sensitive columns are not shown: small numbers that are hidden would follow from them by calculation, "
            "or there are too many to make sure that none does."
        )
    if len(attributes) > 1 and not can_cross(attributes):
        notes.append("The sensitive columns have too many combinations of values to look at their intersections; each is shown on its own.")
    return notes


# The two doors: a table in memory, and a file of which only the needed columns are read.


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
    roles = _named_roles(label, prediction, client, score, sensitive)
    if not hasattr(frame, "columns") or not callable(getattr(frame, "isna", None)):
        raise TypeError(f"The table must be a pandas DataFrame, got a {type(frame).__name__}. Convert it, for example with .to_pandas().")
    check_columns("The table", list(frame.columns), [*roles.words, *([score] if score else [])])
    columns = {each: from_pandas(frame, each) for each in roles.words}
    numbers = None if score is None else _numbers(frame, score)
    return measure(_table(roles, columns, numbers), AuditRequest(favourable, unprivileged, min_cell, anonymous), name)


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
    roles, file = _named_roles(label, prediction, client, score, sensitive), Path(path)
    table = read(file, roles.words, [score] if score else [])
    columns = {each: from_arrow(table, each) for each in roles.words}
    numbers = None if score is None else _floats(table, score)
    return measure(_table(roles, columns, numbers), AuditRequest(favourable, unprivileged, min_cell, anonymous), file.name)


def _named_roles(label: str, prediction: str, client: str | None, score: str | None, sensitive: str | Sequence[str]) -> Roles:
    roles = Roles(label, prediction, client, score, (sensitive,) if isinstance(sensitive, str) else tuple(sensitive))
    used = [*roles.words, *([score] if score else [])]
    twice = next((each for each in used if used.count(each) > 1), None)
    if twice is not None:
        raise ValueError(f"Every column must have one meaning, but {twice!r} is named {used.count(twice)} times. Name each only once.")
    return roles


def _table(roles: Roles, columns: Mapping[str, Coded], numbers: np.ndarray | None) -> PredictionTable:
    return PredictionTable(
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

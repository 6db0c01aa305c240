"""From columns to an audit: match the words, count, measure, hide."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.auditing.by_client import ClientView, client_view
from evenly.auditing.by_group import GroupView, among_others, group_view, intersections, overall, with_clients
from evenly.auditing.columns import Coded
from evenly.auditing.counting import Counts, Rows, counted
from evenly.auditing.estimates import Estimate
from evenly.auditing.hiding import Veil, both_shown, can_cross, crossed, veil
from evenly.auditing.labels import Judged, favourable_of, judged, outcomes
from evenly.auditing.people import NO_VALUE, People, named, people
from evenly.auditing.result import About, Audit
from evenly.auditing.scores import Scores, curves, score_figures, scored, scores
from evenly.metrics import by_attribute
from evenly.report.by_group import FEW
from evenly.sensitive import Attribute

Array = np.ndarray


class Table(NamedTuple):
    """The columns of an audit."""

    label: Coded
    prediction: Coded
    client: Coded | None
    sensitive: tuple[Coded, ...]
    score: tuple[str, Array] | None  # its name and the numbers


class Wanted(NamedTuple):
    """What an audit is asked to look for and to hide."""

    favourable: Any = None
    unprivileged: Any = None
    least: int = 10
    anonymous: bool = False


class Prepared(NamedTuple):
    """Everything that the views are made from."""

    rows: Rows
    counts: Counts
    people: People
    scores: Scores | None
    wanted: bool  # whether there is a favourable label
    least: int


def measure(table: Table, wanted: Wanted, source: str) -> Audit:
    """Audit the columns of a table."""
    _check(table, wanted)
    judgement, who = judged(table.label, table.prediction, wanted.least), people(table.sensitive, wanted.least)
    favourable = favourable_of(wanted.favourable, judgement)
    made = _prepared(table, judgement, who, favourable, wanted.least)
    sides = named(wanted.unprivileged, who.parts)
    clients = _clients(table.client, made, wanted.anonymous)
    views = [_column(made, attribute, sides.get(attribute.name), clients) for attribute in who.groups.attributes]
    whole = overall(made.counts.units.sum(1, keepdims=True), wanted=made.wanted, least=made.least)
    return Audit(
        about=About(
            source=source,
            rows=len(made.rows.label),
            columns=_roles(table),
            labels=judgement.labels,
            favourable=None if favourable is None else judgement.labels[favourable],
            least=wanted.least,
            anonymous=wanted.anonymous,
        ),
        whole=whole | _whole_scores(made),
        clients=clients,
        groups=tuple(view for view, _ in views),
        crossed=_crossed(made, [own for _, own in views]),
        notes=(*judgement.notes, *_notes(who, favourable), *who.notes),
    )


def _check(table: Table, wanted: Wanted) -> None:
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


def _prepared(table: Table, judgement: Judged, who: People, favourable: int | None, least: int) -> Prepared:
    label, outcome, kinds = outcomes(judgement, favourable)
    rows = Rows(None if table.client is None else table.client.codes, who.groups.group, label, outcome)
    clients = 0 if table.client is None else len(table.client.words)
    counts = counted(rows, clients=clients, groups=len(who.groups.names), kinds=kinds)
    if table.score is not None and favourable is None:
        raise ValueError(
            f"Column {table.score[0]!r} must be the score of one label, but there are {len(judgement.labels)}: name the favourable."
        )
    found = None if table.score is None else scores(*table.score, label)
    return Prepared(rows, counts, who, found, favourable is not None, least)


def _clients(column: Coded | None, made: Prepared, anonymous: bool) -> ClientView | None:
    if column is None:
        return None
    found = client_view(column.name, column.words, made.counts.clients, least=made.least, few=FEW, anonymous=anonymous)
    if made.scores is None:
        return found
    own = scored(made.scores, made.rows.client, found.clients)
    shown = ~found.hidden.cells
    return found._replace(scores=score_figures(own, shown, shown, made.least))


def _column(made: Prepared, attribute: Attribute, unprivileged: int | None, clients: ClientView | None) -> tuple[GroupView, Veil]:
    """One sensitive column on its own."""
    units = by_attribute(made.counts.units, attribute)
    own = veil(units.sum(0), made.least)
    view = group_view(
        attribute.name, attribute.values, units, wanted=made.wanted, least=made.least, veil=own, unprivileged=unprivileged
    )  # fmt: skip
    if clients is not None and 1 < clients.clients == len(units):
        view = with_clients(view, units, clients.hidden.cells, made.least)
    if made.scores is None:
        return view, own
    part = next(part for part in made.people.parts if part.name == attribute.name)
    found = scored(made.scores, part.codes, len(part.values))
    figures = score_figures(found, ~own.groups.cells, both_shown(own), made.least)
    # The bins of a group together tell how many of its people have each label.
    drawn = curves(found, both_shown(own) & ~own.groups.cells, among_others(part.values, own), made.least)
    return view._replace(scores=figures, curves=drawn), own


def _crossed(made: Prepared, single: Sequence[Veil]) -> GroupView | None:
    """The intersections of several columns; nothing of one, or where there are too many to be guarded."""
    groups = made.people.groups
    if len(groups.attributes) < 2 or not can_cross(groups.attributes):
        return None
    own = crossed(made.counts.groups, groups.attributes, single, made.least)
    compared = np.array([all(a.values[a.of_group[g]] != NO_VALUE for a in groups.attributes) for g in range(len(groups.names))])
    title = " and ".join(made.people.names)
    view = intersections(title, groups.names, made.counts.units, wanted=made.wanted, veil=own, compared=compared)
    if made.scores is None:
        return view
    found = scored(made.scores, groups.group, len(groups.names))
    return view._replace(scores=score_figures(found, ~own.groups.cells, both_shown(own), made.least))


def _whole_scores(made: Prepared) -> dict[str, Estimate]:
    if made.scores is None:
        return {}
    everybody = np.ones(1, bool)
    return {name: found[0] for name, found in score_figures(scored(made.scores, None, 1), everybody, everybody, made.least).items()}


def _roles(table: Table) -> dict[str, str]:
    sensitive = ", ".join(column.name for column in table.sensitive)
    found = {
        "Label": table.label.name,
        "Prediction": table.prediction.name,
        "Score": "" if table.score is None else table.score[0],
        "Client": "" if table.client is None else table.client.name,
        "Sensitive": sensitive,
    }
    return {role: name for role, name in found.items() if name}


def _notes(who: People, favourable: int | None) -> list[str]:
    """What the reader must know of choices that were made for the table."""
    notes = []
    if favourable is None and who.parts:
        notes.append("There are more than two labels and none is named as favourable: groups are compared by accuracy only.")
    if len(who.parts) > 1 and not can_cross(who.groups.attributes):
        notes.append("The sensitive columns have too many combinations of values to look at their intersections; each is shown on its own.")
    return notes

"""Measure counts and scores: the figures of an audit, from rows or from the count tables of sites.

`AuditData` holds what an audit rests on. `audit_counts` computes rates with confidence intervals,
hides figures that rest on too few people, and returns the audit.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from evenly.auditing.estimates import (
    Counts,
    Estimate,
    ScoreSummary,
    curves,
    score_figures,
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
from evenly.auditing.people import NO_VALUE, People, unprivileged_values
from evenly.auditing.result import Audit, AuditFacts
from evenly.auditing.views import (
    ClientView,
    GroupView,
    add_client_gaps,
    add_origins,
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


class AuditRequest(NamedTuple):
    """Settings of an audit: the favourable label, the unprivileged values, and what is hidden."""

    favourable: Any = None
    unprivileged: Any = None
    min_cell: int = 10
    anonymous: bool = False


class ScoreSource(Protocol):
    """Scores of all people, as rows or as counts."""

    def of_clients(self, clients: int) -> ScoreSummary:
        """Summaries of the clients."""
        ...

    def of_groups(self, of_group: Array | None, groups: int) -> ScoreSummary:
        """Summaries of groups, which `of_group` numbers for every intersection; of everybody
        together if it is None.
        """
        ...


class AuditedClients(NamedTuple):
    """The clients of an audit: the column or word that names them, and their names."""

    column: str
    names: tuple[str, ...]


class AuditData(NamedTuple):
    """Counts, groups and scores that an audit rests on."""

    counts: Counts
    people: People
    clients: AuditedClients | None
    scores: ScoreSource | None
    labels: tuple[str, ...]
    favourable: int | None  # number of the favourable label
    by_label: Array  # [labels, 2] people with each label, and those of them who are predicted right
    notes: tuple[str, ...] = ()  # about labels

    def has_favourable(self, min_cell: int) -> bool:
        """Whether there is a favourable label that enough people have and enough do not have."""
        labels = label_counts(self.counts.groups.sum(0))
        return self.favourable is not None and not small_cells(labels, min_cell).any()


class Measured(NamedTuple):
    """What the views of an audit are computed from."""

    counts: Counts
    people: People
    scores: ScoreSource | None
    has_favourable: bool
    min_cell: int


def audit_counts(
    data: AuditData, request: AuditRequest, source: str, columns: dict[str, str]
) -> Audit:
    """Audit counts and scores. `source` is the name of the table, and `columns` are the names of
    its columns by their role.
    """
    min_cell, people, favourable = request.min_cell, data.people, data.favourable
    enough = data.has_favourable(min_cell)
    measured = Measured(data.counts, people, data.scores if enough else None, enough, min_cell)
    hidden = veils(data.counts.groups, people.groups.attributes, min_cell, has_favourable=enough)
    clients = _client_view(data.clients, measured, request.anonymous)
    sides = unprivileged_values(request.unprivileged, people.parts)
    views = _column_views(measured, hidden, sides, clients)
    name = None if favourable is None else data.labels[favourable]
    assumption = _favourable_notes(name, people) if request.favourable is None else []
    rows = int(data.by_label[:, 0].sum())
    facts = AuditFacts(source, rows, columns, data.labels, name, min_cell, request.anonymous)
    return Audit(
        about=facts if enough else facts._replace(favourable=None),
        whole=_whole(measured),
        clients=clients,
        groups=_without_exposing_gaps(measured, views, hidden, clients),
        intersections=(
            None
            if hidden.intersections is None
            else _intersection_view(measured, hidden.intersections)
        ),
        notes=(*data.notes, *assumption, *_hiding_notes(measured, hidden, name), *people.notes),
        trivial=_trivial(data, min_cell),
    )


def _trivial(data: AuditData, min_cell: int) -> Trivial | None:
    """The model that predicts the most frequent label for everybody; None if its accuracy would
    reveal a small count.

    The number of people with the favourable label is shown as well, so the remaining labels
    together must not be few either.
    """
    counts, right = data.by_label.T
    frequent, people = int(np.argmax(counts)), int(counts.sum())
    shown = {frequent, frequent if data.favourable is None else data.favourable}
    rest = people - int(counts[[*shown]].sum())
    if small_cells([people - counts[frequent], rest], min_cell).any():
        return None
    gained, lost = int(right.sum() - right[frequent]), int(counts[frequent] - right[frequent])
    return Trivial(
        data.labels[frequent],
        False,
        float(100 * counts[frequent] / people),
        gap_half_width(gained, lost, people),
        frequent == data.favourable,
    )


def _client_view(
    clients: AuditedClients | None, data: Measured, anonymous: bool
) -> ClientView | None:
    if clients is None:
        return None
    view = client_view(
        clients.column,
        clients.names,
        data.counts.clients,
        min_cell=data.min_cell,
        few=FEW,
        anonymous=anonymous,
    )
    if data.has_favourable:
        view = add_worst_rates(view, data.counts.clients, data.min_cell)
    if data.scores is None:
        return view
    summary = data.scores.of_clients(view.clients)
    counts = label_counts(data.counts.clients.sum(1))
    labels = hide(counts, data.min_cell, sums=[0, 1], also=view.hidden.cells[:, None]).cells
    return view._replace(
        scores=score_figures(summary, ~view.hidden.cells & ~labels.any(1), data.min_cell)
    )


def _column_views(
    data: Measured, hidden: Veils, unprivileged: Mapping[str, int], clients: ClientView | None
) -> list[GroupView]:
    columns = zip(data.people.groups.attributes, hidden.columns, strict=True)
    return [
        _column_view(data, attribute, veil, unprivileged.get(attribute.name), clients)
        for attribute, veil in columns
    ]


def _column_view(
    data: Measured,
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
    summary = data.scores.of_groups(np.array(attribute.of_group), len(attribute.values))
    # The bins of a group reveal how many of its people have each label, and so does the mean of
    # scores that are all 0 or 1.
    visible = veil.both_labels & ~veil.groups.cells
    lines = curves(summary, visible, compared_groups(attribute.values, veil), data.min_cell)
    return view._replace(scores=score_figures(summary, visible, data.min_cell), curves=lines)


def _without_exposing_gaps(
    data: Measured, views: Sequence[GroupView], hidden: Veils, clients: ClientView | None
) -> tuple[GroupView, ...]:
    """Add where the gaps come from, or remove the gaps within clients if they would reveal hidden
    counts.

    Clients with people of one side only have parts of their own if that reveals nothing either.
    """
    if clients is None:
        return tuple(views)
    attributes = data.people.groups.attributes
    rated = HiddenClients(clients.hidden, clients.worst_first()[:1] if clients.worst_rates else ())
    some = any(view.client_gaps and view.client_gaps.one_sided.any() for view in views)
    for one_sided in (True, False) if some else (False,):
        gaps = [
            gap
            for attribute, view in zip(attributes, views, strict=True)
            for gap in _visible_gaps(attribute, view, one_sided)
        ]
        if not gaps_expose(
            data.counts.units, attributes, hidden, clients=rated, gaps=gaps, min_cell=data.min_cell
        ):
            return tuple(
                add_origins(view, by_attribute(data.counts.units, attribute), one_sided=one_sided)
                for attribute, view in zip(attributes, views, strict=True)
            )
    return tuple(view._replace(client_gaps=None) for view in views)


def _visible_gaps(attribute: Attribute, view: GroupView, one_sided: bool) -> list[Gap]:
    """The clients of which a view shows both sides, or with `one_sided` the only one."""
    if view.client_gaps is None or view.unprivileged is None:
        return []
    of_group, others = np.array(attribute.of_group), compared_groups(view.names, view.veil)
    group, found = of_group == view.unprivileged, view.client_gaps
    return [Gap(group, others[of_group] & ~group, found.visible | (found.one_sided & one_sided))]


def _intersection_view(data: Measured, veil: Veil) -> GroupView:
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
    summary = data.scores.of_groups(np.arange(len(groups.names)), len(groups.names))
    return view._replace(
        scores=score_figures(summary, ~veil.groups.cells & veil.both_labels, data.min_cell)
    )


def _whole(data: Measured) -> dict[str, Estimate]:
    """Rates, AUC, calibration error and bias of everybody."""
    rates = overall(
        data.counts.units.sum(1, keepdims=True),
        has_favourable=data.has_favourable,
        min_cell=data.min_cell,
    )
    if data.scores is None:
        return rates
    figures = score_figures(data.scores.of_groups(None, 1), np.ones(1, bool), data.min_cell)
    return rates | {name: estimates[0] for name, estimates in figures.items()}


def _favourable_notes(favourable: str | None, people: People) -> list[str]:
    """The assumption about the favourable label, where the user did not name it."""
    if favourable is not None:
        return [
            f"“{favourable}” is assumed to be the favourable label. Name another one with"
            " --favourable."
        ]
    if people.parts:
        return [
            "There are more than two labels and none is named as favourable: groups are compared by"
            " accuracy only."
        ]
    return [
        "No label is named as favourable, so only accuracy is shown. Name one with --favourable."
    ]


def _hiding_notes(data: Measured, hidden: Veils, favourable: str | None) -> list[str]:
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

"""Disclosure control: decide which figures about groups may be shown, so that no small count can be
worked out.

A figure is hidden if it rests on fewer than `min_cell` people. Hiding it alone is not enough,
because others can reveal it: totals minus the visible parts, or rates that amount to counts.
`veils` decides what is hidden of each sensitive column and of their intersections, and
`gaps_expose` whether the gaps within clients may be added. Both verify the result by integer
programming.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.data.sensitive import Attribute
from evenly.metrics import by_attribute
from evenly.randomness import generator
from evenly.report.disclosure import Hidden, hide, small_cells

# Which hidden counts a reader could work out exactly.
#
# Rates together with their numbers of people are counts, and counts are sums over people of certain
# groups, labels and outcomes. A hidden count is recoverable if it is the same in all tables of
# whole numbers that agree with every visible sum. A single other table that agrees disproves this
# for every count in which it differs, so a few tables usually settle all counts.

Array = np.ndarray
MOST_INFERRED_CELLS = 500  # integer programming is used up to this many hidden groups
# from weights of all counts to the table with the smallest weighted sum
Search = Callable[[Array], Array]
# searches that aim at all open secrets at once, and the time limit of each search
PROBES, SECONDS = 8, 5.0
SMALL = 1e-6


class Sum(NamedTuple):
    """The number of people in some cells and of some kinds."""

    cells: Array  # bool [cells]
    kinds: Array  # bool [kinds]

    def of(self, table: Array) -> int:
        """Compute the sum on a table [cells, kinds]."""
        return int(table[np.ix_(self.cells, self.kinds)].sum())


def recoverable(
    counts: Array, visible: Sequence[Sum], secrets: Sequence[Sum], occupied: Array | None = None
) -> list[bool]:
    """Decide which secret sums follow from the visible sums, for people by cell and kind [cells,
    kinds].

    The reader is assumed to know the total number of people, and that every cell holds somebody.
    With `occupied`, which numbers sets of cells, the reader knows only that every set holds
    somebody. A secret that cannot be decided counts as recoverable.

    >>> row, both = np.array([True, False]), np.array([True, True])  # two groups, two labels
    >>> recoverable(np.array([[3, 9], [20, 8]]), [Sum(row, both), Sum(both, row)], [Sum(row, row)])
    [False]
    >>> shown = [Sum(~row, both), Sum(~row, row), Sum(both, row)]
    >>> recoverable(np.array([[3, 0], [20, 8]]), shown, [Sum(row, row)])
    [True]
    """
    everybody = Sum(np.ones(len(counts), bool), np.ones(counts.shape[1], bool))
    if not secrets or len(counts) > MOST_INFERRED_CELLS:
        return [True] * len(secrets)
    remaining = dict(enumerate(secrets))
    search = _search(
        counts, [everybody, *visible], np.arange(len(counts)) if occupied is None else occupied
    )
    for table in _tables(counts, search, remaining):
        for i in [i for i, secret in remaining.items() if secret.of(table) != secret.of(counts)]:
            del remaining[i]
    return [i in remaining for i in range(len(secrets))]


def _tables(counts: Array, search: Search, remaining: dict[int, Sum]) -> Iterator[Array]:
    """Yield tables that agree with the visible sums and differ in the remaining secrets: first in
    all at once, then one by one.
    """
    chance = generator(0, "audit")
    for _ in range(PROBES):
        if remaining:
            yield search(
                np.sum(
                    [
                        chance.choice((-1, 1)) * _weights(secret, counts)
                        for secret in remaining.values()
                    ],
                    axis=0,
                )
            )
    for i, secret in list(remaining.items()):
        for sign in (1, -1):
            if i in remaining:
                yield search(sign * _weights(secret, counts))


def _weights(of: Sum, counts: Array) -> Array:
    """The sum as weights of all counts: 1 for every count in it, otherwise 0. [cells · kinds]"""
    weights = np.zeros(counts.shape)
    weights[np.ix_(of.cells, of.kinds)] = 1
    return weights.ravel()


def _search(counts: Array, visible: Sequence[Sum], occupied: Array) -> Search:
    """Return a function that finds the agreeing table with the smallest weighted sum, or the true
    table if it finds none.
    """
    from scipy.optimize import LinearConstraint, milp
    from scipy.sparse import csr_array, kron

    rows = csr_array(np.unique(np.stack([_weights(each, counts) for each in visible]), axis=0))
    totals = rows @ counts.ravel()
    somebody = csr_array(
        kron(np.unique(occupied)[:, None] == occupied, np.ones((1, counts.shape[1])))
    )
    limits = [LinearConstraint(rows, totals, totals), LinearConstraint(somebody, 1, np.inf)]

    def search(weights: Array) -> Array:
        solution = milp(
            weights,
            constraints=limits,
            integrality=np.ones(counts.size),
            options={"time_limit": SECONDS},
        ).x
        if solution is None or np.abs(solution - solution.round()).max() > SMALL:
            return counts
        table = solution.round()
        agrees = (rows @ table == totals).all() and (table >= 0).all()
        return table.reshape(counts.shape) if agrees else counts

    return search


# What is hidden of groups.
#
# Besides the groups, a page shows everybody together, each column's values next to the
# intersections, and rates of the people with each label. A group, or its part with one label, must
# not follow from these totals. Rates reveal more than totals do: where nobody of a group is
# selected, its errors are exactly its people with the favourable label. Therefore accuracy is
# hidden wherever the label counts are, and an integer program checks what still follows.

FAVOURABLE = 1  # the number of the favourable label in `people.outcomes`
# combinations of values up to which intersections are considered, whether they occur or not
MOST_CELLS = 20_000


class Veil(NamedTuple):
    """What is hidden of a set of groups."""

    groups: Hidden  # [groups]
    labels: Hidden  # [groups, 2] people with an unfavourable and with the favourable label

    @property
    def both_labels(self) -> Array:
        """Groups whose label counts are both visible. [groups]"""
        unfavourable, favourable = self.labels.cells.T
        return ~(unfavourable | favourable)


class Veils(NamedTuple):
    """What is hidden of each sensitive column and of their intersections; `intersections` is None
    if they are not shown at all.
    """

    columns: tuple[Veil, ...]
    intersections: Veil | None = None
    # whether intersections are left out because they would reveal hidden counts
    solvable: bool = False


class _Grouping(NamedTuple):
    """A set of groups on the page: the group of each of the smallest cells, and what is hidden of
    the groups.
    """

    group: Array  # [cells]
    veil: Veil


def label_counts(tables: Array) -> Array:
    """Count the rows of each group with an unfavourable and with the favourable label. [...,
    labels, outcomes] -> [..., 2]

    >>> label_counts(np.array([[[40, 10], [20, 30]]])).tolist()
    [[50, 50]]
    """
    favourable = tables[..., FAVOURABLE, :].sum(-1)
    return np.stack([tables.sum((-2, -1)) - favourable, favourable], axis=-1)


def column_veil(tables: Array, min_cell: int, also: Any = False) -> Veil:
    """Decide what is hidden of the groups of one column [groups, labels, outcomes]; groups marked
    in `also` are hidden in any case.
    """
    counts = label_counts(tables)
    groups = hide(counts.sum(1), min_cell, sums=[0], also=also)
    return Veil(groups, hide(counts, min_cell, sums=[0, 1], also=_both(groups.cells)))


def visible_rates(veil: Veil, has_favourable: bool) -> dict[str, Array]:
    """Decide for which groups each rate may be shown. Without a favourable label, accuracy is the
    only rate. [groups] each
    """
    group = ~veil.groups.cells
    if not has_favourable:
        return {"accuracy": group}
    both, unfavourable, favourable = (
        veil.both_labels,
        ~veil.labels.cells[:, 0],
        ~veil.labels.cells[:, 1],
    )
    masks = {
        "accuracy": both,
        "selection_rate": group,
        "tpr": favourable,
        "fpr": unfavourable,
        "base_rate": both,
    }
    return {rate: group & mask for rate, mask in masks.items()}


def can_cross(attributes: Sequence[Attribute]) -> bool:
    """Whether these columns have few enough combinations of values to examine their
    intersections.
    """
    return math.prod(len(attribute.values) for attribute in attributes) <= MOST_CELLS


def intersection_veil(
    tables: Array,
    attributes: Sequence[Attribute],
    columns: Sequence[Veil],
    min_cell: int,
    also: Any = False,
) -> Veil:
    """Decide what is hidden of intersections [groups, labels, outcomes] that are shown next to the
    values of each column.

    `columns` says what is hidden of each column; that must not follow from the intersections
    either. Intersections marked in `also` are hidden in any case.
    """
    cell = tuple(np.array(attribute.of_group) for attribute in attributes)
    counts = np.zeros((*(len(attribute.values) for attribute in attributes), 2), np.int64)
    counts[cell] = label_counts(tables)
    groups_also, labels_also = np.zeros(counts.shape[:-1], bool), np.zeros(counts.shape, bool)
    groups_also[cell] = also
    axes = range(groups_also.ndim)
    totals = [tuple(i for i in axes if i != axis) for axis in axes]  # of each value of each column
    for others, veil in zip(totals, columns, strict=True):
        groups_also |= np.expand_dims(veil.groups.cells, others)
        labels_also |= np.expand_dims(veil.labels.cells, others)
    groups = hide(counts.sum(-1), min_cell, sums=totals, also=groups_also & counts.any(-1))
    labels_also = (_both(groups.cells) | labels_also) & counts.astype(bool)
    labels = hide(counts, min_cell, sums=[*totals, len(axes)], also=labels_also)
    return Veil(*(Hidden(each.cells[cell], each.small[cell], {}) for each in (groups, labels)))


def veils(
    tables: Array, attributes: Sequence[Attribute], min_cell: int, *, has_favourable: bool
) -> Veils:
    """Decide what is hidden of each column and of the intersections [groups, labels, outcomes], so
    that no small count is recoverable.

    Where hiding single groups is not enough, all intersections are left out. Where a small
    intersection follows from the columns alone, for example because one value of each has all the
    errors, the columns' figures by label are left out as well.
    """
    cross = len(attributes) > 1 and can_cross(attributes)
    together = _veil_together(tables, attributes, min_cell, has_favourable) if cross else None
    if together is not None:
        return together
    columns = [
        _veil_alone(by_attribute(tables, attribute), min_cell, has_favourable)
        for attribute in attributes
    ]
    if cross and has_favourable and len(tables) <= MOST_INFERRED_CELLS:
        views = [*_column_views(attributes, columns), _invisible(tables, min_cell)]
        if any(each.any() for each in _exposed(tables, views, has_favourable, occupied=False)):
            columns = [
                Veil(veil.groups, veil.labels._replace(cells=np.ones_like(veil.labels.cells)))
                for veil in columns
            ]
    return Veils(tuple(columns), solvable=cross)


def _veil_alone(tables: Array, min_cell: int, has_favourable: bool) -> Veil:
    """Hide groups of one column entirely until none of its hidden counts is recoverable.

    This ends: people could be exchanged between two groups that are hidden entirely without
    changing any visible figure.
    """
    also = np.zeros(len(tables), bool)
    while True:
        veil = column_veil(tables, min_cell, also)
        (exposed,) = _exposed(tables, [_Grouping(np.arange(len(tables)), veil)], has_favourable)
        if not (exposed & ~veil.groups.cells).any():
            return veil
        also |= exposed


def _veil_together(
    tables: Array, attributes: Sequence[Attribute], min_cell: int, has_favourable: bool
) -> Veils | None:
    """Do the same for columns and their intersections. None if a count is recoverable although all
    such groups are hidden.
    """
    also = [
        *(np.zeros(len(attribute.values), bool) for attribute in attributes),
        np.zeros(len(tables), bool),
    ]
    while True:
        columns = [
            column_veil(by_attribute(tables, a), min_cell, mask)
            for a, mask in zip(attributes, also[:-1], strict=True)
        ]
        crossing = intersection_veil(tables, attributes, columns, min_cell, also[-1])
        views = [*_column_views(attributes, columns), _Grouping(np.arange(len(tables)), crossing)]
        exposed = _exposed(tables, views, has_favourable)
        if not any(each.any() for each in exposed):
            return Veils(tuple(columns), crossing)
        fresh = [each & ~view.veil.groups.cells for each, view in zip(exposed, views, strict=True)]
        if not any(each.any() for each in fresh):
            fresh[-1] = ~crossing.both_labels & ~crossing.groups.cells
        if not any(each.any() for each in fresh):
            return None
        also = [old | new for old, new in zip(also, fresh, strict=True)]


def _column_views(attributes: Sequence[Attribute], columns: Sequence[Veil]) -> list[_Grouping]:
    return [
        _Grouping(np.array(attribute.of_group), veil)
        for attribute, veil in zip(attributes, columns, strict=True)
    ]


class Gap(NamedTuple):
    """The comparison of a group with all others within each client."""

    group: Array  # bool [groups]
    others: Array  # bool [groups]
    clients: Array  # bool [clients] whether the client's gap is visible


class HiddenClients(NamedTuple):
    """What is visible of clients besides their accuracy."""

    hidden: Hidden  # [clients]
    rated: Sequence[int] = ()  # clients whose true and false positive rates are visible


def gaps_expose(
    units: Array,
    attributes: Sequence[Attribute],
    veils: Veils,
    *,
    clients: HiddenClients,
    gaps: Sequence[Gap],
    min_cell: int,
) -> bool:
    """Whether the gaps within clients, together with all other figures, reveal a small count.
    `units` is [clients, groups, ...].

    False where there are too many cells for integer programming: exact numbers hardly follow from
    rates of many cells.
    """
    client, group = np.nonzero(units.sum((2, 3)))
    if not any(gap.clients.any() for gap in gaps) or len(client) > MOST_INFERRED_CELLS:
        return False
    counts, kinds = units[client, group].reshape(len(client), -1), _kinds(units.shape[-1])
    views = [
        _Grouping(view.group[group], view.veil) for view in _column_views(attributes, veils.columns)
    ]
    views += [] if veils.intersections is None else [_Grouping(group, veils.intersections)]
    # by label, nothing is visible of clients that are not rated
    by_client = _Grouping(client, Veil(clients.hidden, clients.hidden))
    visible, secrets = _sums_without_gaps(views, by_client, kinds)
    visible += [
        Sum(client == k, kinds[kind])
        for k in clients.rated
        for kind in ("favourable", "tpr", "fpr")
    ]
    for cells, shows_gap in _client_sides(gaps, client, group):
        visible += [Sum(cells, kinds[kind]) for kind in GAP_COUNTS if shows_gap]
        secrets += [
            part for kind in PARTS if 0 < (part := Sum(cells, kinds[kind])).of(counts) < min_cell
        ]
    occupied = group if veils.intersections is not None else np.zeros(len(client), int)
    return any(recoverable(counts, visible, secrets, occupied))


def _sums_without_gaps(
    views: Sequence[_Grouping], by_client: _Grouping, kinds: dict[str, Array]
) -> tuple[list[Sum], list[Sum]]:
    """The visible sums and the secret small counts of everybody, groups and clients."""
    visible = [
        each
        for view in (_everybody(len(by_client.group)), *views)
        for each in _visible_sums(view, kinds, True)
    ]
    visible += _visible_sums(by_client, kinds, False)
    secrets = [each for view in views for _, each in _secrets(view, kinds, True)]
    secrets += [each for _, each in _secrets(by_client, kinds, False)]
    return visible, secrets


def _client_sides(gaps: Sequence[Gap], client: Array, group: Array) -> Iterator[tuple[Array, bool]]:
    """Yield the cells of each side of each gap in each client, and whether the client's gap is
    visible.
    """
    for gap in gaps:
        for side in (gap.group[group], gap.others[group]):
            for k in np.unique(client):
                yield side & (client == k), bool(gap.clients[k])


def _exposed(
    tables: Array, views: Sequence[_Grouping], has_favourable: bool, *, occupied: bool = True
) -> list[Array]:
    """Find the groups of each view whose small counts follow from all visible figures. The last
    view has the smallest cells.

    `occupied` says whether the reader knows which of these cells hold somebody.
    """
    kinds, finest = _kinds(tables.shape[-1]), views[-1].veil
    uncertain = np.flatnonzero(~finest.both_labels if has_favourable else finest.groups.cells)
    views = [_Grouping(view.group[uncertain], view.veil) for view in views]
    visible = [
        each
        for view in (_everybody(len(uncertain)), *views)
        for each in _visible_sums(view, kinds, has_favourable)
    ]
    secrets = [
        (v, g, each)
        for v, view in enumerate(views)
        for g, each in _secrets(view, kinds, has_favourable)
    ]
    counts = tables.reshape(len(tables), -1)[uncertain]
    exposed = [np.zeros(len(view.veil.groups.cells), bool) for view in views]
    sets = np.arange(len(counts)) if occupied else np.zeros(len(counts), int)
    for (v, g, _), follows in zip(
        secrets, recoverable(counts, visible, [each for *_, each in secrets], sets), strict=True
    ):
        exposed[v][g] |= follows
    return exposed


def _kinds(outcomes: int) -> dict[str, Array]:
    """Which combinations of label and outcome belong to each count. [labels · outcomes]"""
    label, outcome = (each.ravel() for each in np.indices((outcomes, outcomes)))
    favourable, selected = label == FAVOURABLE, outcome == FAVOURABLE
    return {
        "rows": np.ones(len(label), bool), "accuracy": label == outcome, "selection_rate": selected,
        "base_rate": favourable, "tpr": favourable & selected, "fpr": ~favourable & selected,
        "favourable": favourable, "unfavourable": ~favourable,
    }  # fmt: skip


PARTS = ("rows", "favourable", "unfavourable")
# what the gaps of a client tell of both sides
GAP_COUNTS = ("rows", "selection_rate", "favourable", "tpr")
# the people that a rate is a share of, if not all rows
BEHIND = {"tpr": "favourable", "fpr": "unfavourable"}


def _visible_sums(view: _Grouping, kinds: dict[str, Array], has_favourable: bool) -> Iterator[Sum]:
    """Yield the counts that the visible rates of a view amount to."""
    for rate, mask in visible_rates(view.veil, has_favourable).items():
        for g in np.intersect1d(np.flatnonzero(mask), view.group):
            yield Sum(view.group == g, kinds[rate])
            yield Sum(view.group == g, kinds[BEHIND.get(rate, "rows")])


def _secrets(
    view: _Grouping, kinds: dict[str, Array], has_favourable: bool
) -> Iterator[tuple[int, Sum]]:
    """Yield the small counts of a view, each with its group."""
    small = {"rows": view.veil.groups.small}
    small |= (
        {"unfavourable": view.veil.labels.small[:, 0], "favourable": view.veil.labels.small[:, 1]}
        if has_favourable
        else {}
    )
    for kind, mask in small.items():
        yield from ((int(g), Sum(view.group == g, kinds[kind])) for g in np.flatnonzero(mask))


def _everybody(cells: int) -> _Grouping:
    """All people as one group of which nothing is hidden."""
    nothing = np.zeros((1, 2), bool)
    return _Grouping(
        np.zeros(cells, int),
        Veil(Hidden(nothing[:, 0], nothing[:, 0], {}), Hidden(nothing, nothing, {})),
    )


def _invisible(tables: Array, min_cell: int) -> _Grouping:
    """Groups that are not shown at all."""
    counts = label_counts(tables)
    groups, labels = small_cells(counts.sum(-1), min_cell), small_cells(counts, min_cell)
    veil = Veil(Hidden(np.ones_like(groups), groups, {}), Hidden(np.ones_like(labels), labels, {}))
    return _Grouping(np.arange(len(tables)), veil)


def _both(cells: Array) -> Array:
    return np.repeat(cells[..., None], 2, axis=-1)

"""Which figures must not be shown because they rest on too few people, also where others would reveal them."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.data.sensitive import Attribute
from evenly.metrics import by_attribute
from evenly.randomness import generator
from evenly.report.disclosure import Hidden, hide, small_cells

# Which hidden counts the reader of an audit could work out exactly: integer programming over everything that is shown.
#
# Rates with their numbers of people are counts, and counts are sums over people of certain groups, labels and outcomes. A hidden count
# is recovered if it is the same in all tables of whole numbers that agree with every sum that is shown. One other table that agrees
# proves this for every count in which it differs, so a few tables usually settle all of them.

Array = np.ndarray
MOST_INFERRED_CELLS = 500  # hidden groups up to which the question is decided
Search = Callable[[Array], Array]  # from weights of all counts to the table with the least weighted sum
PROBES, SECONDS = 8, 5.0  # tables that are looked for with many counts in mind at once, and the time for each
SMALL = 1e-6


class Sum(NamedTuple):
    """The people of some cells and kinds, counted together."""

    cells: Array  # bool [cells]
    kinds: Array  # bool [kinds]

    def of(self, table: Array) -> int:
        return int(table[np.ix_(self.cells, self.kinds)].sum())


def recovered(counts: Array, shown: Sequence[Sum], secrets: Sequence[Sum], listed: Array | None = None) -> list[bool]:
    """Which of the secrets follow from the sums that are shown, for people by cell and kind [cells, kinds].

    The reader is taken to know the number of everybody, and that somebody is in every cell, or in every set of cells that `listed`
    numbers. What cannot be decided counts as recovered.

    >>> row, both = np.array([True, False]), np.array([True, True])  # two groups, two labels
    >>> recovered(np.array([[3, 9], [20, 8]]), [Sum(row, both), Sum(both, row)], [Sum(row, row)])
    [False]
    >>> recovered(np.array([[3, 0], [20, 8]]), [Sum(~row, both), Sum(~row, row), Sum(both, row)], [Sum(row, row)])
    [True]
    """
    everybody = Sum(np.ones(len(counts), bool), np.ones(counts.shape[1], bool))
    if not secrets or len(counts) > MOST_INFERRED_CELLS:
        return [True] * len(secrets)
    open_ones = dict(enumerate(secrets))
    search = _search(counts, [everybody, *shown], np.arange(len(counts)) if listed is None else listed)
    for table in _tables(counts, search, open_ones):
        for i in [i for i, secret in open_ones.items() if secret.of(table) != secret.of(counts)]:
            del open_ones[i]
    return [i in open_ones for i in range(len(secrets))]


def _tables(counts: Array, search: Search, open_ones: dict[int, Sum]) -> Iterator[Array]:
    """Tables that agree with what is shown and differ as much as possible in the secrets that are open, first all, then one by one."""
    chance = generator(0, "audit")
    for _ in range(PROBES):
        if open_ones:
            yield search(np.sum([chance.choice((-1, 1)) * _weights(secret, counts) for secret in open_ones.values()], axis=0))
    for i, secret in list(open_ones.items()):
        for sign in (1, -1):
            if i in open_ones:
                yield search(sign * _weights(secret, counts))


def _weights(chosen: Sum, counts: Array) -> Array:
    found = np.zeros(counts.shape)
    found[np.ix_(chosen.cells, chosen.kinds)] = 1
    return found.ravel()


def _search(counts: Array, shown: Sequence[Sum], listed: Array) -> Search:
    """A function that finds the table with the least value of a weighted sum among all that agree; the true one if none is found."""
    from scipy.optimize import LinearConstraint, milp
    from scipy.sparse import csr_array, kron

    rows = csr_array(np.unique(np.stack([_weights(each, counts) for each in shown]), axis=0))
    known = rows @ counts.ravel()
    somebody = csr_array(kron(np.unique(listed)[:, None] == listed, np.ones((1, counts.shape[1]))))
    limits = [LinearConstraint(rows, known, known), LinearConstraint(somebody, 1, np.inf)]

    def search(weights: Array) -> Array:
        found = milp(weights, constraints=limits, integrality=np.ones(counts.size), options={"time_limit": SECONDS})
        if found.x is None or np.abs(found.x - found.x.round()).max() > SMALL:
            return counts
        table = found.x.round()
        agrees = (rows @ table == known).all() and (table >= 0).all()
        return table.reshape(counts.shape) if agrees else counts

    return search


# What of the groups must not be shown because it rests on too few people, also not by calculation from what is shown.
#
# Shown are, besides the groups, everybody together, every column's values where there are intersections, and rates of those with and of
# those without the favourable label: so a group, or the part of a group with one label, may follow from none of these totals. Rates
# tell more than totals. Where nobody of a group is selected, its errors are exactly its people with the favourable label. So accuracy
# is withheld wherever the numbers of people with each label are, and an integer program looks for what still follows.

FAVOURABLE = 1  # how `labels.outcomes` numbers the favourable label
MOST_CELLS = 20_000  # combinations of values that are looked at, whether they occur or not


class Veil(NamedTuple):
    """What is hidden of some groups."""

    groups: Hidden  # [groups]
    labels: Hidden  # [groups, 2] their people with an unfavourable and with the favourable label


class Veils(NamedTuple):
    """What is hidden of every sensitive column and of their intersections; None: these are not shown at all."""

    single: tuple[Veil, ...]
    crossed: Veil | None = None
    solvable: bool = False  # whether intersections are left out because they would give hidden counts away


class _HidingView(NamedTuple):
    """Groups that are shown: which of them each of the smallest cells belongs to, and what is hidden."""

    group: Array  # [cells]
    veil: Veil


def label_counts(tables: Array) -> Array:
    """Rows of every group with an unfavourable and with the favourable label: what most rates are shares of. [..., 2]

    >>> label_counts(np.array([[[40, 10], [20, 30]]])).tolist()
    [[50, 50]]
    """
    favourable = tables[..., FAVOURABLE, :].sum(-1)
    return np.stack([tables.sum((-2, -1)) - favourable, favourable], axis=-1)


def veil(tables: Array, least: int, also: Any = False) -> Veil:
    """What is hidden of the groups of one column, from their tables [groups, labels, outcomes]; `also` are hidden in any case."""
    counts = label_counts(tables)
    groups = hide(counts.sum(-1), least, sums=[0], also=(counts.sum(-1) > 0) & also)
    return Veil(groups, hide(counts, least, sums=[0, 1], also=_both(groups.cells)))


def shown_rates(veil: Veil, wanted: bool) -> dict[str, Array]:
    """Which groups each rate may be shown for; `wanted` says whether there is a favourable label. [groups] each"""
    group = ~veil.groups.cells
    if not wanted:
        return {"accuracy": group}
    both, unfavourable, favourable = both_shown(veil), ~veil.labels.cells[:, 0], ~veil.labels.cells[:, 1]
    own = {"accuracy": both, "selection_rate": group, "tpr": favourable, "fpr": unfavourable, "base_rate": both}
    return {rate: group & mask for rate, mask in own.items()}


def both_shown(own: Veil) -> Array:
    """Groups of which neither label's people are hidden. [groups]"""
    return ~(own.labels.cells[:, 0] | own.labels.cells[:, 1])


def can_cross(attributes: Sequence[Attribute]) -> bool:
    """Whether the combinations of these columns' values are few enough to be looked at together."""
    return math.prod(len(attribute.values) for attribute in attributes) <= MOST_CELLS


def crossed(tables: Array, attributes: Sequence[Attribute], single: Sequence[Veil], least: int, also: Any = False) -> Veil:
    """What is hidden of intersections [groups, labels, outcomes], of which each column's values are shown as well.

    `single` says what is hidden of each column on its own; that must not follow from its intersections either. `also` are hidden
    in any case.
    """
    place = tuple(np.array(attribute.of_group) for attribute in attributes)
    counts = np.zeros((*(len(attribute.values) for attribute in attributes), 2), np.int64)
    counts[place] = label_counts(tables)
    gone, parts = np.zeros(counts.shape[:-1], bool), np.zeros(counts.shape, bool)
    gone[place] = also
    axes = range(gone.ndim)
    for axis, own in enumerate(single):
        others = tuple(i for i in axes if i != axis)
        gone |= np.expand_dims(own.groups.cells, others)
        parts |= np.expand_dims(own.labels.cells, others)
    totals = [tuple(i for i in axes if i != axis) for axis in axes]  # of each value of each column
    groups = hide(counts.sum(-1), least, sums=totals, also=gone & (counts.sum(-1) > 0))
    labels = hide(counts, least, sums=[*totals, gone.ndim], also=(_both(groups.cells) | parts) & (counts > 0))
    return Veil(_gathered(groups, place), _gathered(labels, place))


def veils(tables: Array, attributes: Sequence[Attribute], least: int, *, wanted: bool) -> Veils:
    """What is hidden of every column and of the intersections [groups, labels, outcomes], so that no small count can be recovered.

    Where hiding groups does not help, intersections are left out. Where a small intersection follows even from its columns, as when
    one value of each has all the errors, what rests on labels is left out as well.
    """
    cross = len(attributes) > 1 and can_cross(attributes)
    found = _together(tables, attributes, least, wanted) if cross else None
    if found is not None:
        return found
    single = [_alone(by_attribute(tables, a), least, wanted) for a in attributes]
    if cross and wanted and len(tables) <= MOST_INFERRED_CELLS:
        views = [_HidingView(np.array(a.of_group), own) for a, own in zip(attributes, single, strict=True)]
        if any(each.any() for each in _exposed(tables, [*views, _unseen(tables, least)], wanted, listed=False)):
            single = [Veil(own.groups, own.labels._replace(cells=np.ones_like(own.labels.cells))) for own in single]
    return Veils(tuple(single), solvable=cross)


def _alone(tables: Array, least: int, wanted: bool) -> Veil:
    """A group whose hidden counts follow from all that is shown is hidden entirely.

    This ends: between two groups that are hidden entirely, people could be exchanged, and all that is shown would stay the same.
    """
    gone = np.zeros(len(tables), bool)
    while True:
        own = veil(tables, least, gone)
        (exposed,) = _exposed(tables, [_HidingView(np.arange(len(tables)), own)], wanted)
        if not (exposed & ~own.groups.cells).any():
            return own
        gone |= exposed


def _together(tables: Array, attributes: Sequence[Attribute], least: int, wanted: bool) -> Veils | None:
    """The same for columns and their intersections; None if a count would follow although all such groups are hidden."""
    gone = [*(np.zeros(len(attribute.values), bool) for attribute in attributes), np.zeros(len(tables), bool)]
    while True:
        single = [veil(by_attribute(tables, a), least, hidden) for a, hidden in zip(attributes, gone[:-1], strict=True)]
        both = crossed(tables, attributes, single, least, gone[-1])
        views = [_HidingView(np.array(a.of_group), own) for a, own in zip(attributes, single, strict=True)]
        views.append(_HidingView(np.arange(len(tables)), both))
        exposed = _exposed(tables, views, wanted)
        if not any(each.any() for each in exposed):
            return Veils(tuple(single), both)
        fresh = [each & ~view.veil.groups.cells for each, view in zip(exposed, views, strict=True)]
        if not any(each.any() for each in fresh):
            fresh[-1] = ~both_shown(both) & ~both.groups.cells
        if not any(each.any() for each in fresh):
            return None
        gone = [old | new for old, new in zip(gone, fresh, strict=True)]


class Gap(NamedTuple):
    """A group against all others within clients."""

    own: Array  # bool [groups]
    others: Array  # bool [groups]
    shown: Array  # bool [clients]


class HiddenClients(NamedTuple):
    """What is shown of clients besides their accuracy."""

    hidden: Hidden  # [clients]
    rated: Sequence[int] = ()  # clients whose true and false positive rates are shown


def gaps_expose(
    units: Array, attributes: Sequence[Attribute], found: Veils, clients: HiddenClients, gaps: Sequence[Gap], least: int
) -> bool:
    """Whether a small count follows from gaps within clients together with everything else, from tables [clients, groups, ...].

    Asked only as long as integer programming can decide it; of more people in more cells, exact numbers hardly follow from rates.
    """
    client, group = np.nonzero(units.sum((2, 3)))
    if not any(gap.shown.any() for gap in gaps) or len(client) > MOST_INFERRED_CELLS:
        return False
    tables, kinds, cells = units[client, group], _kinds(units.shape[-1]), np.arange(len(client))
    views = [_HidingView(np.array(a.of_group)[group], own) for a, own in zip(attributes, found.single, strict=True)]
    views += [] if found.crossed is None else [_HidingView(group, found.crossed)]
    places = _HidingView(client, Veil(clients.hidden, clients.hidden))  # of clients, nothing is shown by label unless they are rated
    shown = [each for view in (_everybody(len(client)), *views) for each in _told(view, cells, kinds, True)]
    shown += _told(places, cells, kinds, False)
    shown += [Sum(client == k, kinds[kind]) for k in clients.rated for kind in ("favourable", "tpr", "fpr")]
    sides = [(gap.shown[client], side[group]) for gap in gaps for side in (gap.own, gap.others)]
    for known, side in sides:
        told = ("rows", "selection_rate", "favourable", "tpr")
        shown += [Sum(side & (client == k), kinds[kind]) for k in np.unique(client[known]) for kind in told]
    secrets = [each for view in views for _, each in _secrets(view, cells, kinds, True)]
    secrets += [each for _, each in _secrets(places, cells, kinds, False)]
    parts = [Sum(side & (client == k), kinds[kind]) for _, side in sides for k in np.unique(client) for kind in PARTS]
    counts = tables.reshape(len(client), -1)
    secrets += [each for each in parts if 0 < each.of(counts) < least]
    return any(recovered(counts, shown, secrets, group if found.crossed is not None else np.zeros(len(client), int)))


def _exposed(tables: Array, views: Sequence[_HidingView], wanted: bool, *, listed: bool = True) -> list[Array]:
    """Groups of each view of which a small count follows from everything that the views show. The last view has the smallest cells.

    `listed` says whether the reader knows which of these hold somebody.
    """
    kinds = _kinds(tables.shape[-1])
    finest = views[-1].veil
    unknown = np.flatnonzero(~both_shown(finest) if wanted else finest.groups.cells)
    shown = [each for view in (_everybody(len(tables)), *views) for each in _told(view, unknown, kinds, wanted)]
    secrets = [(v, g, each) for v, view in enumerate(views) for g, each in _secrets(view, unknown, kinds, wanted)]
    counts = tables.reshape(len(tables), -1)[unknown]
    found = [np.zeros(len(view.veil.groups.cells), bool) for view in views]
    cells = np.arange(len(counts)) if listed else np.zeros(len(counts), int)
    for (v, g, _), told in zip(secrets, recovered(counts, shown, [each for *_, each in secrets], cells), strict=True):
        found[v][g] |= told
    return found


def _kinds(outcomes: int) -> dict[str, Array]:
    """Which combinations of label and outcome each count is of. [labels · outcomes]"""
    label, outcome = (each.ravel() for each in np.indices((outcomes, outcomes)))
    favourable, selected = label == FAVOURABLE, outcome == FAVOURABLE
    return {
        "rows": label >= 0, "accuracy": label == outcome, "selection_rate": selected, "base_rate": favourable,
        "tpr": favourable & selected, "fpr": ~favourable & selected, "favourable": favourable, "unfavourable": ~favourable,
    }  # fmt: skip


PARTS = ("rows", "favourable", "unfavourable")
BEHIND = {"tpr": "favourable", "fpr": "unfavourable"}  # who a rate is a share of, if not all rows


def _told(view: _HidingView, unknown: Array, kinds: dict[str, Array], wanted: bool) -> Iterator[Sum]:
    """The counts that the rates of a view tell, of cells that are not known anyway."""
    for rate, mask in shown_rates(view.veil, wanted).items():
        for g in np.intersect1d(np.flatnonzero(mask), view.group[unknown]):
            cells = view.group[unknown] == g
            yield Sum(cells, kinds[rate])
            yield Sum(cells, kinds[BEHIND.get(rate, "rows")])


def _secrets(view: _HidingView, unknown: Array, kinds: dict[str, Array], wanted: bool) -> Iterator[tuple[int, Sum]]:
    """The small counts of a view with the group that each is of."""
    small = {"rows": view.veil.groups.small}
    small |= {"unfavourable": view.veil.labels.small[:, 0], "favourable": view.veil.labels.small[:, 1]} if wanted else {}
    for kind, mask in small.items():
        yield from ((int(g), Sum(view.group[unknown] == g, kinds[kind])) for g in np.flatnonzero(mask))


def _everybody(cells: int) -> _HidingView:
    nothing = np.zeros((1, 2), bool)
    return _HidingView(np.zeros(cells, int), Veil(Hidden(nothing[:, 0], nothing[:, 0], {}), Hidden(nothing, nothing, {})))


def _unseen(tables: Array, least: int) -> _HidingView:
    """Groups that are not shown at all."""
    counts = label_counts(tables)
    groups, labels = small_cells(counts.sum(-1), least), small_cells(counts, least)
    veil = Veil(Hidden(np.ones_like(groups), groups, {}), Hidden(np.ones_like(labels), labels, {}))
    return _HidingView(np.arange(len(tables)), veil)


def _both(cells: Array) -> Array:
    return np.repeat(cells[..., None], 2, axis=-1)


def _gathered(hidden: Hidden, place: Any) -> Hidden:
    return Hidden(hidden.cells[place], hidden.small[place], {})

"""What may be shown: cells that rest on too few people are hidden, also where subtraction would
reveal them.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evenly.data.federation import Federation
from evenly.data.sensitive import Attribute
from evenly.data.splits import SPLITS
from evenly.experiment.comparison import Comparison
from evenly.metrics import GROUP_METRICS, METRICS, accuracy, by_attribute, examples, pooled, sides
from evenly.metrics.clients import tenth
from evenly.metrics.metric import (
    BEST_CLIENT,
    BEST_TENTH,
    GROUPS,
    OF_CLIENTS,
    SIDES,
    SOME_CLIENTS,
    WORST_CLIENT,
    WORST_TENTH,
)
from evenly.types import Trace

# Which cells of a table may not be shown because they rest on too few people, also not by
# subtraction from a total.
#
# Everything here is a pure function of counts. A cell is small if it counts somebody, but fewer
# than `least` people. Hiding it alone does not help where the total of its line is shown as well:
# the rest of the line would give it away. Therefore in every line that has a total, what is hidden
# is at least two cells which together count at least `least` people; the smallest other cells are
# hidden as well until that holds. Where no cell is left to hide, the total itself must be withheld.
#
# The totals of several directions are equations that can be solved together. So a small cell that
# has only one solution is joined by one more until it has several, in tables of up to MOST_SOLVED
# hidden cells. Not guarded against are bounds that follow from the totals, and a reader who knows
# some of the cells from elsewhere.

Array = np.ndarray
Axes = int | tuple[int, ...]  # summed over together
Line = tuple[int | slice, ...]  # the index of the cells of one total
MOST_SOLVED = 400  # hidden cells up to which the totals are solved for them


class Hidden(NamedTuple):
    """The hidden cells of a table, and the reasons."""

    cells: Array  # [...] bool: not to be shown
    # [...] bool: hidden for their own sake; the other hidden cells are so for the sake of these
    small: Array
    # by axes that are summed over: the sums that would give a cell away and must be withheld too
    totals: dict[Axes, Array]

    @property
    def any(self) -> bool:
        return bool(self.cells.any())


def hide(counts: Any, least: int, *, sums: Sequence[Axes] = (), also: Any = None) -> Hidden:
    """Find the cells of a table that must not be shown.

    Args:
        counts: People in each cell.
        least: Cells with at least one but fewer than this many people are small and must be hidden.
        sums: Axes over which totals are shown as well. A tuple is summed over together.
        also: Cells that are hidden for other reasons. They are protected in the same way.

    Returns:
        The hidden cells, and the totals that must be withheld.

    Raises:
        ValueError: If a count is negative or NaN.

    >>> # The total would reveal the 3, so the smallest other count is hidden too.
    >>> hide([3, 500, 40], 10, sums=[0]).cells.tolist()
    [True, False, True]
    >>> hide([3, 500, 40], 10).cells.tolist()
    [True, False, False]
    """
    counts = np.asarray(counts, np.float64)
    if np.isnan(counts).any() or (counts < 0).any():
        raise ValueError(
            f"Counts must be 0 or more, got {counts[np.isnan(counts) | (counts < 0)].ravel()[0]:g}."
        )
    small = small_cells(counts, least)
    guarded = small | (np.zeros(counts.shape, bool) if also is None else np.asarray(also, bool))
    cells = guarded.copy()
    while any(_protect(cells, counts, least, axes) for axes in sums) or _join(
        cells, counts, least, sums, guarded
    ):
        pass  # a cell hidden for its row may stand alone in its column
    return Hidden(cells, small, {axes: _withheld(cells, counts, least, axes) for axes in sums})


def small_cells(counts: Any, least: int) -> Array:
    """Cells with at least one but fewer than `least` people.

    >>> small_cells([0, 1, 9, 10], 10).tolist()
    [False, True, True, False]
    """
    counts = np.asarray(counts)
    return (counts > 0) & (counts < least)


def _line(place: Sequence[int], axes: Axes) -> Line:
    """The index of all cells that are summed together with a cell."""
    summed = (axes,) if isinstance(axes, int) else axes
    return tuple(slice(None) if axis in summed else int(at) for axis, at in enumerate(place))


def _lines(shape: tuple[int, ...], axes: Axes) -> list[Line]:
    summed = (axes,) if isinstance(axes, int) else axes
    return [
        _line(place, axes)
        for place in np.ndindex(*(1 if axis in summed else size for axis, size in enumerate(shape)))
    ]


def _protect(cells: Array, counts: Array, least: int, axes: Axes) -> bool:
    """Hide more cells of each line until its total reveals nothing, in place. Returns whether
    anything changed.
    """
    changed = False
    for line in _lines(cells.shape, axes):
        own, people = cells[line], counts[line]  # views
        while not is_safe(own, people, least):
            free = np.argwhere(~own & (people > 0))
            if not len(free):
                break
            own[tuple(free[np.argmin(people[tuple(free.T)])])] = changed = True
    return changed


def _join(cells: Array, counts: Array, least: int, sums: Sequence[Axes], guarded: Array) -> bool:
    """Hide one more cell next to a cell that all totals together would reveal, in place. Returns
    whether there was one.
    """
    for at in find_solvable(cells, counts, least, sums):
        told = np.zeros(cells.shape, bool)
        for line in (_line(at, axes) for axes in sums):
            told[line] |= is_safe(cells[line], counts[line], least)
        free = np.argwhere(told & ~cells & (counts > 0))
        if guarded[at] and len(free):
            cells[tuple(min(free.tolist(), key=lambda cell: counts[tuple(cell)]))] = True
            return True
    return False


def find_solvable(
    cells: Array, counts: Array, least: int, sums: Sequence[Axes]
) -> list[tuple[int, ...]]:
    """Hidden, non-empty cells that follow from the totals over several axes together. Checked for
    up to 400 hidden cells.

    >>> # Within a block, what is added to one cell can be subtracted from another.
    >>> blocks = np.kron(np.eye(2), np.ones((2, 2))).astype(bool)
    >>> blocks[1, 2] = True  # the totals of the first two rows less those of the first two columns
    >>> find_solvable(blocks, np.full((4, 4), 20), 10, [0, 1])
    [(1, 2)]
    """
    places = np.argwhere(cells & (counts > 0))
    if len(sums) < 2 or not 0 < len(places) <= MOST_SOLVED:
        return []
    equations: dict[str, Array] = {}
    for j, place in enumerate(places.tolist()):
        for line in (_line(place, axes) for axes in sums):
            if is_safe(cells[line], counts[line], least):  # else its total is withheld
                equations.setdefault(str(line), np.zeros(len(places)))[j] = 1
    if not equations:
        return []
    _, sizes, directions = np.linalg.svd(np.stack(list(equations.values())), full_matrices=False)
    # 1 where a cell alone is a combination of totals
    known = (directions[sizes > 1e-9] ** 2).sum(0)
    return [
        tuple(place) for place, part in zip(places.tolist(), known, strict=True) if part > 1 - 1e-9
    ]


def is_safe(hidden: Array, counts: Array, least: int) -> bool:
    """Whether the total of a line reveals neither a hidden cell nor a small sum."""
    counted = hidden & (counts > 0)
    return not counted.any() or (int(counted.sum()) > 1 and counts[counted].sum() >= least)


def _withheld(cells: Array, counts: Array, least: int, axes: Axes) -> Array:
    gone = [not is_safe(cells[line], counts[line], least) for line in _lines(cells.shape, axes)]
    return np.array(gone, bool).reshape(counts.sum(axes).shape)


def hidden_words(
    hidden: Sequence[Hidden],
    least: int,
    *,
    what: str = "cell",
    several: str = "",
    whom: str = "people",
) -> str:
    """A sentence that says how many cells are hidden and why; "" if none are. `several` is the
    plural of `what`, if it is not made with an s.

    >>> hidden_words([hide([3, 500, 40], 10, sums=[0])], 10, what="group")
    '2 groups are not shown: 1 rests on fewer than 10 people, and 1 is hidden because totals \
would give the others away.'
    """
    small = int(sum((found.cells & found.small).sum() for found in hidden))
    every = int(sum(found.cells.sum() for found in hidden))
    if not every:
        return ""
    beside = every - small
    named = what if every == 1 else several or f"{what}s"
    text = f"{every:,} {named} {_be(every)} not shown: "
    parts = (
        [f"{small:,} {'rests' if small == 1 else 'rest'} on fewer than {least} {whom}"]
        if small
        else []
    )
    parts += (
        [f"{beside:,} {_be(beside)} hidden because totals would give the others away"]
        if beside
        else []
    )
    return f"{text}{', and '.join(parts)}."


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


# What a report leaves out when nothing may rest on fewer than so many people: clients by name,
# groups, and metrics made of them.

ALL_ROWS, POSITIVE, NEGATIVE = range(3)
# hidden clients: more than could be solved for from a method's figures, curves and bars over all
# clients
MANY = 100
# The cells that a rate tells something of. Accuracy and selection rate together would tell how many
# people have each label.
RESTS_ON = {
    "accuracy": (ALL_ROWS, POSITIVE, NEGATIVE),
    "selection_rate": (ALL_ROWS,),
    "tpr": (POSITIVE,),
    "fpr": (NEGATIVE,),
}
# where among the clients in order of accuracy these lie
ENDS = {WORST_TENTH: 1, WORST_CLIENT: 1, BEST_TENTH: -1, BEST_CLIENT: -1}


class HiddenGroups(NamedTuple):
    """Hidden rates by group and by denominator: all rows, rows with the favourable label, rows with
    another label.
    """

    cells: np.ndarray  # bool [groups, 3]
    small: np.ndarray  # bool [groups, 3]: hidden for their own sake
    withheld: frozenset[str]  # metrics that would give hidden cells away


def hidden_clients(comparison: Comparison, split: str, least: int) -> Hidden:
    """Clients that must not be named: those with few training rows, or few rows to evaluate on, in
    any seed.

    The averages of all clients are shown, so a single client is never hidden alone.
    """
    # [runs, splits, clients]
    rows = np.stack([run.trace.tables[-1].sum((-3, -2, -1)) for run in comparison.runs])
    measured, trained = rows[:, SPLITS.index(split)], rows[:, SPLITS.index("train")]
    # deployed clients may tell only how many they are
    trained = np.where(trained > 0, trained, comparison.federation.train.counts)
    return hide(
        fewest_rows(measured), least, sums=[0], also=small_cells(fewest_rows(trained), least)
    )


def hidden_numbers(comparison: Comparison, split: str, least: int) -> frozenset[int]:
    """The numbers of the clients that may not be named."""
    return frozenset(
        np.flatnonzero(hidden_clients(comparison, split, least).cells).tolist() if least > 1 else ()
    )


def without_clients(comparison: Comparison, hidden: Collection[int]) -> Comparison:
    """The results without the rows and losses of hidden clients. With more than 100 hidden clients,
    the results stay as they are.

    A mean and a variance over all clients are two equations for two hidden accuracies, and a Lorenz
    curve reveals all of them.
    """
    if not hidden or len(hidden) > MANY:
        return comparison
    return comparison._replace(
        runs=[run._replace(trace=_without(run.trace, list(hidden))) for run in comparison.runs]
    )


def withheld_client_metrics(
    comparison: Comparison, split: str, hidden: Collection[int], least: int
) -> frozenset[str]:
    """Client metrics that would reveal a hidden client in some run; none if hidden clients are
    excluded from all figures.
    """
    if len(hidden) <= MANY:
        return frozenset()
    cells = np.isin(np.arange(comparison.federation.clients), list(hidden))
    tables = [run.trace.tables[-1, SPLITS.index(split)] for run in comparison.runs]
    seen = [(accuracy(table), examples(table)) for table in tables]
    safe = {kind: all(may_show(kind, a, n, cells, least) for a, n in seen) for kind in OF_CLIENTS}
    return frozenset(metric.name for metric in METRICS.values() if not safe[metric.rests_on])


def may_show(
    rests_on: str, shares: np.ndarray, rows: np.ndarray, hidden: np.ndarray, least: int
) -> bool:
    """Whether a client metric may be shown, given the clients it is computed from and the hidden
    ones. [clients] each
    """
    known = np.isfinite(shares)
    if rests_on == SOME_CLIENTS:
        return not (hidden & known).any()
    behind = clients_behind(rests_on, shares)
    return bool(rows[behind].sum() >= least and is_safe(hidden[behind], rows[behind], least))


def clients_behind(rests_on: str, shares: np.ndarray) -> np.ndarray:
    """The clients that a client metric is computed from: all with an accuracy, or those at one end.

    >>> clients_behind("worst client", np.array([0.9, np.nan, 0.2])).tolist()
    [2]
    """
    order = np.argsort(shares, kind="stable")[: int(np.isfinite(shares).sum())]
    number = tenth(len(order)) if rests_on in (WORST_TENTH, BEST_TENTH) else 1
    return order[:: ENDS[rests_on]][:number] if rests_on in ENDS else order


def _without(trace: Trace, hidden: list[int]) -> Trace:
    tables, losses = trace.tables.copy(), trace.losses.copy()
    tables[:, :, hidden], losses[:, :, hidden] = 0, np.nan
    return trace._replace(tables=tables, losses=losses)


def hidden_groups(
    comparison: Comparison, split: str, least: int, attribute: Attribute | None = None
) -> HiddenGroups:
    """Groups, or values of one attribute, whose rates must not be shown. All methods share them,
    since they share the test rows.
    """
    federation = comparison.federation
    # [runs, groups, labels, outcomes]
    tables = np.stack([pooled(run.trace, split)[-1] for run in comparison.runs])
    counts = _counts(tables, federation.favourable)
    cells = _protected(federation, counts, least) if least > 1 else np.zeros(counts.shape, bool)
    told = partial(_told, cells, counts, least)
    if attribute is not None:
        also = np.array(
            [told(np.array(attribute.of_group) == value) for value in range(len(attribute.values))]
        )
        counts = _counts(by_attribute(tables, attribute), federation.favourable)
        cells = _of_line(counts, least, also) if least > 1 else np.zeros(counts.shape, bool)
        return HiddenGroups(
            cells,
            small_cells(counts, least),
            _withheld_metrics(groups=cells.any(), sides=cells.any()),
        )
    unprivileged = np.isin(np.arange(len(counts)), federation.unprivileged)
    both = _counts(sides(tables, federation.unprivileged), federation.favourable)
    few = small_cells(both, least).any() or told(unprivileged).any() or told(~unprivileged).any()
    return HiddenGroups(
        cells, small_cells(counts, least), _withheld_metrics(groups=cells.any(), sides=few)
    )


def _withheld_metrics(*, groups: bool | np.bool_, sides: bool | np.bool_) -> frozenset[str]:
    """The metrics that would reveal hidden cells, by what they declare to rest on: single groups,
    or the two sides.
    """
    kinds = {kind for kind, hidden in ((GROUPS, groups), (SIDES, sides)) if hidden}
    return frozenset(metric.name for metric in GROUP_METRICS.values() if metric.rests_on in kinds)


def _told(cells: np.ndarray, counts: np.ndarray, least: int, line: np.ndarray) -> np.ndarray:
    """Which totals over these groups would reveal a hidden cell. bool [3]"""
    return np.array([not is_safe(cells[line, i], counts[line, i], least) for i in range(3)])


def fewest_rows(rows: np.ndarray) -> np.ndarray:
    """The smallest positive count over the runs; 0 if there is none. [runs, ...] -> [...]"""
    least = np.where(rows > 0, rows, np.iinfo(np.int64).max).min(0)
    return np.where(rows.any(0), least, 0)


def _counts(tables: np.ndarray, favourable: int) -> np.ndarray:
    """Rows, and rows with and without the favourable label. [runs, groups, labels, outcomes] ->
    [groups, 3]
    """
    rows, wanted = tables.sum((-2, -1)), tables[..., favourable, :].sum(-1)
    return np.stack([fewest_rows(rows), fewest_rows(wanted), fewest_rows(rows - wanted)], axis=-1)


def _of_line(counts: np.ndarray, least: int, also: np.ndarray) -> np.ndarray:
    """Hidden cells of groups whose total is shown. A hidden group hides its labels, and neither of
    two labels reveals the other.
    """
    whole = hide(counts[:, ALL_ROWS], least, sums=[0], also=also[:, ALL_ROWS]).cells
    labels = hide(counts[:, 1:], least, sums=[0, 1], also=also[:, 1:] | whole[:, None]).cells
    return np.column_stack([whole, labels])


def _protected(federation: Federation, counts: np.ndarray, least: int) -> np.ndarray:
    """Hidden cells such that the totals of sides and of single attributes reveal no group."""
    cells = np.zeros(counts.shape, bool)
    lines = _shown_lines(federation)
    while True:
        before = cells.copy()
        for line in lines:
            cells[line] = _of_line(counts[line], least, cells[line])
        if (cells == before).all():
            return cells


def _shown_lines(federation: Federation) -> list[np.ndarray]:
    """The sets of groups whose totals are shown: everybody, both sides, and for intersections all
    groups that share an attribute.
    """
    everybody = np.arange(len(federation.groups))
    unprivileged = np.isin(everybody, federation.unprivileged)
    found = [everybody, everybody[unprivileged], everybody[~unprivileged]]
    for attribute in federation.attributes if len(federation.attributes) > 1 else ():
        found += [
            np.flatnonzero(np.array(attribute.of_group) == value)
            for value in range(len(attribute.values))
        ]
    return [line for line in found if len(line)]


# Which groups a client's people belong to, in a few words.

MOST = 3


def client_groups(comparison: Comparison, least: int = 0) -> list[str]:
    """Each client's group or, if people have groups, its largest groups with their shares, for each
    attribute; [] without groups.

    Shares refer to all rows of the first run. Groups with fewer than `least` people at a client are
    not named, and no single one follows by subtraction.
    """
    federation = comparison.federation
    if federation.client_group is not None:
        return [f"group {group + 1}" for group in federation.client_group.tolist()]
    if len(federation.groups) < 2:
        return []
    # [clients, groups, labels, outcomes], all splits together
    tables = comparison.runs[0].trace.tables[-1].sum(0)
    if len(federation.attributes) < 2:
        return _shares(federation.groups, tables, least)
    single = [_shares(a.values, by_attribute(tables, a), least) for a in federation.attributes]
    return [
        "; ".join(
            f"{a.name}: {own[k]}" for a, own in zip(federation.attributes, single, strict=True)
        )
        for k in range(len(tables))
    ]


def _shares(names: tuple[str, ...], tables: np.ndarray, least: int) -> list[str]:
    """The largest groups of every client in words, from tables [clients, groups, labels,
    outcomes].
    """
    counts = tables.sum((-2, -1))
    hidden = hide(counts, least, sums=[1]).cells
    return [_words(names, counts[k], hidden[k]) for k in range(len(counts))]


def _words(names: tuple[str, ...], counts: np.ndarray, hidden: np.ndarray) -> str:
    order = [
        g for g in np.argsort(-counts, kind="stable").tolist() if counts[g] > 0 and not hidden[g]
    ]
    told = [f"{names[g]} {100 * counts[g] / counts.sum():.0f} %" for g in order[:MOST]]
    left = int((counts > 0).sum()) - len(told)
    more = [f"{left} more"] if left and told else []
    between = "; " if any("," in name for name in names) else ", "
    return between.join([*told, *more]) if told else "too few people to tell"

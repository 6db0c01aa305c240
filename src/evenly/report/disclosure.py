"""Which cells of a table may not be shown because they rest on too few people, also not by subtraction from a total.

Everything here is a pure function of counts. A cell is small if it counts somebody, but fewer than `least` people. Hiding it alone
does not help where the total of its line is shown as well: the rest of the line would give it away. Therefore in every line that
has a total, what is hidden is at least two cells which together count at least `least` people; the smallest other cells are
hidden as well until that holds. Where no cell is left to hide, the total itself must be withheld.

The totals of several directions are equations that can be solved together. So a small cell that has only one solution is joined by
one more until it has several, in tables of up to MOST_SOLVED hidden cells. Not guarded against are bounds that follow from the
totals, and a reader who knows some of the cells from elsewhere.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray
Axes = int | tuple[int, ...]  # summed over together
Line = tuple[int | slice, ...]  # the index of the cells of one total
MOST_SOLVED = 400  # hidden cells up to which the totals are solved for them


class Hidden(NamedTuple):
    """What of a table is hidden, and why."""

    cells: Array  # [...] bool: not to be shown
    small: Array  # [...] bool: hidden for their own sake; the other hidden cells are so for the sake of these
    totals: dict[Axes, Array]  # by axes that are summed over: the sums that would give a cell away and must be withheld too

    @property
    def any(self) -> bool:
        return bool(self.cells.any())


def hide(counts: Any, least: int, *, sums: Sequence[Axes] = (), also: Any = None) -> Hidden:
    """The cells of a table that may not be shown. `sums` are the axes over which totals are shown as well, each one or several.

    `also` marks cells that are hidden for other reasons; they are protected in the same way. With `least` at 1 or less nothing
    is small. Cells that count nobody are never small.

    >>> hide([3, 500, 40], 10, sums=[0]).cells.tolist()  # the total would give away the 3, so the smallest other goes too
    [True, False, True]
    >>> hide([3, 500, 40], 10).cells.tolist()
    [True, False, False]
    """
    counts = np.asarray(counts, np.float64)
    if np.isnan(counts).any() or (counts < 0).any():
        raise ValueError(f"Counts must be 0 or more, got {counts[np.isnan(counts) | (counts < 0)].ravel()[0]:g}.")
    small = small_cells(counts, least)
    guarded = small | (np.zeros(counts.shape, bool) if also is None else np.asarray(also, bool))
    cells = guarded.copy()
    while any(_protect(cells, counts, least, axes) for axes in sums) or _join(cells, counts, least, sums, guarded):
        pass  # a cell hidden for its row may stand alone in its column
    return Hidden(cells, small, {axes: _withheld(cells, counts, least, axes) for axes in sums})


def small_cells(counts: Any, least: int) -> Array:
    """Cells that count somebody, but fewer than `least`.

    >>> small_cells([0, 1, 9, 10], 10).tolist()
    [False, True, True, False]
    """
    counts = np.asarray(counts)
    return (counts > 0) & (counts < least)


def _line(place: Sequence[int], axes: Axes) -> Line:
    """The line of a cell: all cells that are summed with it."""
    summed = (axes,) if isinstance(axes, int) else axes
    return tuple(slice(None) if axis in summed else int(at) for axis, at in enumerate(place))


def _lines(shape: tuple[int, ...], axes: Axes) -> list[Line]:
    summed = (axes,) if isinstance(axes, int) else axes
    return [_line(place, axes) for place in np.ndindex(*(1 if axis in summed else size for axis, size in enumerate(shape)))]


def _protect(cells: Array, counts: Array, least: int, axes: Axes) -> bool:
    """Hide more of every line until its total gives nothing away, in place; whether anything changed."""
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
    """Hide one more cell beside one that all totals together would tell, in place; whether there was one to hide."""
    for at in solved(cells, counts, least, sums):
        told = np.zeros(cells.shape, bool)
        for line in (_line(at, axes) for axes in sums):
            told[line] |= is_safe(cells[line], counts[line], least)
        free = np.argwhere(told & ~cells & (counts > 0))
        if guarded[at] and len(free):
            cells[tuple(min(free.tolist(), key=lambda cell: counts[tuple(cell)]))] = True
            return True
    return False


def solved(cells: Array, counts: Array, least: int, sums: Sequence[Axes]) -> list[tuple[int, ...]]:
    """Hidden cells that count somebody and follow from the totals over several axes together, as long as there are few hidden.

    >>> blocks = np.kron(np.eye(2), np.ones((2, 2))).astype(bool)  # in each block what is added here can be taken away there
    >>> blocks[1, 2] = True  # the totals of the first two rows less those of the first two columns
    >>> solved(blocks, np.full((4, 4), 20), 10, [0, 1])
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
    known = (directions[sizes > 1e-9] ** 2).sum(0)  # 1 where a cell alone is a combination of totals
    return [tuple(place) for place, part in zip(places.tolist(), known, strict=True) if part > 1 - 1e-9]


def is_safe(hidden: Array, counts: Array, least: int) -> bool:
    """Whether nothing is hidden in a line, or enough that its total tells neither a cell nor a small sum."""
    counted = hidden & (counts > 0)
    return not counted.any() or (int(counted.sum()) > 1 and counts[counted].sum() >= least)


def _withheld(cells: Array, counts: Array, least: int, axes: Axes) -> Array:
    gone = [not is_safe(cells[line], counts[line], least) for line in _lines(cells.shape, axes)]
    return np.array(gone, bool).reshape(counts.sum(axes).shape)


def hidden_words(hidden: Sequence[Hidden], least: int, *, what: str = "cell", whom: str = "people") -> str:
    """What was hidden and why, for the reader; "" where nothing was.

    >>> hidden_words([hide([3, 500, 40], 10, sums=[0])], 10, what="group")
    '2 groups are not shown: 1 rests on fewer than 10 people, and 1 is hidden because totals would give the others away.'
    """
    small = int(sum((found.cells & found.small).sum() for found in hidden))
    every = int(sum(found.cells.sum() for found in hidden))
    if not every:
        return ""
    beside = every - small
    text = f"{_number(every, what)} {_be(every)} not shown: "
    parts = [f"{small:,} {'rests' if small == 1 else 'rest'} on fewer than {least} {whom}"] if small else []
    parts += [f"{beside:,} {_be(beside)} hidden because totals would give the others away"] if beside else []
    return f"{text}{', and '.join(parts)}."


def _number(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"

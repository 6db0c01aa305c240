"""Sensitive attributes become groups: one attribute's values, or the intersections of several.

A group is a number; its name is the value ("Female"), or with several attributes every value ("sex=Female, race=Black").
Groups are numbered in the order of the first attribute's values, then of the second's, and only those that occur exist.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.encoding import Column, are_numbers
from evenly.notation import unknown
from evenly.records import require

MOST_CLASSES = 1000  # of labels, and of groups: counts are kept for every combination
MOST_NUMBERS = 50  # of a table's column that are taken for groups; more are likely an age or an income
MOST_LABEL_NUMBERS = 20  # of a table's column that are taken for classes


class Attribute(NamedTuple):
    """A sensitive attribute: several of them make up the groups, which are then their intersections."""

    name: str
    values: tuple[str, ...]
    of_group: tuple[int, ...]  # each group's value, a number into `values`
    unprivileged: int = 0  # the value whose people a model is expected to serve worse


class Sensitive(NamedTuple):
    """One sensitive attribute of every row."""

    name: str
    values: tuple[str, ...]
    codes: np.ndarray  # [rows], numbers into `values`
    unprivileged: int = 0


class Groups(NamedTuple):
    """The groups of all rows and what they are made of."""

    names: tuple[str, ...] = ("all",)
    group: np.ndarray | None = None  # int32 [rows]; None: all rows are in one group
    attributes: tuple[Attribute, ...] = ()
    unprivileged: tuple[int, ...] = (0,)


def cross(parts: Sequence[Sensitive], decider: str | None = None) -> Groups:
    """The intersections of these attributes that occur.

    Unprivileged are the groups that hold the unprivileged value of the attribute `decider`; without one, group 0.
    """
    held, group = _combinations(parts)
    attributes = tuple(Attribute(part.name, part.values, values, part.unprivileged) for part, values in zip(parts, held, strict=True))
    deciding = next((a for a in attributes if a.name == decider), None)
    unprivileged = (0,) if deciding is None else tuple(g for g, value in enumerate(deciding.of_group) if value == deciding.unprivileged)
    if len(attributes) == 1:
        names = tuple(attributes[0].values[value] for value in held[0])
    else:
        names = tuple(", ".join(f"{a.name}={a.values[a.of_group[g]]}" for a in attributes) for g in range(len(held[0])))
    return Groups(names, group, attributes, unprivileged)


def _combinations(parts: Sequence[Sensitive]) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """For each attribute the value that every group has, and the group of every row."""
    sizes = [len(part.values) for part in parts]
    _refuse_many(parts, 0 if math.prod(sizes) < 2**62 else math.prod(sizes))  # beyond, a combination's number would overflow
    found, group = np.unique(np.ravel_multi_index(tuple(part.codes for part in parts), sizes), return_inverse=True)
    _refuse_many(parts, len(found))
    return [tuple(map(int, values)) for values in np.unravel_index(found, sizes)], group.astype(np.int32)


def _refuse_many(parts: Sequence[Sensitive], groups: int) -> None:
    require(
        groups <= MOST_CLASSES,
        f"The sensitive columns {', '.join(part.name for part in parts)} must make at most {MOST_CLASSES} groups, got {groups}. "
        "Use fewer columns, or cut them into fewer values.",
    )


def groups_of(columns: Mapping[str, Column], unprivileged: Any = None) -> Groups:
    """The groups of a table's sensitive columns.

    `unprivileged` is a value of the only column, or a dict from columns to values, of which the first decides which groups
    are unprivileged. Columns that it does not name keep their first value; without it group 0 is the unprivileged one.
    """
    if not columns:
        require(unprivileged is None, f"unprivileged={unprivileged!r} needs a sensitive column; none is given. Name one.")
        return Groups()
    parts = {name: _attribute(name, column) for name, column in columns.items()}
    chosen = _chosen(unprivileged, list(parts))
    for name, value in chosen.items():
        if name not in parts:
            raise unknown("sensitive column", str(name), map(str, parts))
        parts[name] = parts[name]._replace(unprivileged=_place("value", value, parts[name].values, f" in column {name!r}"))
    return cross(list(parts.values()), next(iter(chosen), None))


def refuse_measurement(column: Column) -> None:
    """Raise if a table's column looks like something measured, of which every value would be a group."""
    names = column.classes()[0]
    found = len(names) if column.holds_numbers() or are_numbers(names) else 0
    require(
        found <= MOST_NUMBERS,
        f"{column.what} must have at most {MOST_NUMBERS} different numbers to make groups, got {found}. Cut it into classes first, "
        "such as ages into '18 to 29' and so on; if the numbers are codes, write them as words such as 'code 7'.",
    )


def refuse_quantity(column: Column) -> None:
    """Raise if a table's label looks like a quantity, of which every value would be a class."""
    if not column.holds_numbers():
        return
    raw = column.numbers()
    known = np.unique(raw[~np.isnan(raw)])
    if len(known) > MOST_LABEL_NUMBERS:
        third, two = (f"{edge:g}" for edge in np.quantile(raw[~np.isnan(raw)], [1 / 3, 2 / 3]))
        raise ValueError(
            f"{column.what} must hold classes, but it holds {len(known):,} different numbers from {known[0]:g} to {known[-1]:g}, so it "
            f"seems to be a quantity. Make at most {MOST_LABEL_NUMBERS} classes of it first and name their column as the label, for "
            f"example pandas.cut(column, [-inf, {third}, {two}, inf], labels=['low', 'middle', 'high']). If the numbers are codes of "
            "classes, write them as words such as 'class 7'."
        )


def favourable_label(value: Any, labels: tuple[str, ...]) -> int:
    """The number of the label that people want to get; label 1 unless one is named."""
    return 1 if value is None else _place("label", value, labels)


def _attribute(name: str, column: Column) -> Sensitive:
    column.refuse_missing()
    column.holds_numbers()  # refuses dates and lists
    column.refuse_rounded()
    values, codes = column.classes()
    require(
        len(values) > 1,
        f"{column.what} must hold at least two values to make groups, but every row holds {values[0]!r}. Choose another sensitive column.",
    )
    require(
        len(values) <= MOST_CLASSES,
        f"{column.what} must have at most {MOST_CLASSES} different values, got {len(values)}. Cut it into fewer classes first.",
    )
    return Sensitive(str(name), values, codes)


def _chosen(unprivileged: Any, names: list[str]) -> dict[str, Any]:
    if unprivileged is None:
        return {}
    if isinstance(unprivileged, Mapping):
        return dict(unprivileged)
    require(
        len(names) == 1,
        f"With several sensitive columns, unprivileged must be a dict such as {{{names[0]!r}: value}}, got {unprivileged!r}.",
    )
    return {names[0]: unprivileged}


def _place(kind: str, value: Any, known: tuple[str, ...], where: str = "") -> int:
    word = str(Column.of(kind, [value]).words()[0])
    if word not in known:
        raise unknown(kind, word, known, where)
    return known.index(word)

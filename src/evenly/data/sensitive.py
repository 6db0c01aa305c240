"""Sensitive attributes become groups: one attribute's values, or the intersections of several.

A group is a number; its name is the value ("Female"), or with several attributes every value
("sex=Female, race=Black"). Groups are numbered in the order of the first attribute's values, then
of the second's, and only those that occur exist.
"""

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from evenly.data.columns import numbers_among
from evenly.data.encoding import TableColumn, are_numbers
from evenly.notation import unknown
from evenly.records import require
from evenly.validation import check_kinds, kinds_of

MOST_CLASSES = 1000  # of labels, and of groups: counts are kept for every combination
# of a table's column that are taken for groups; more are likely an age or an income
MOST_NUMBERS = 50
# rows below which a rate is marked: the 95 % interval of one half is then 35 points wide, and more
# with fewer
FEW = 30
POSITIVE = {
    "yes": "no",
    "y": "n",
    "true": "false",
    "t": "f",
    "positive": "negative",
    "pos": "neg",
    "ja": "nein",
    "oui": "non",
    "sí": "no",
}
MOST_LABEL_NUMBERS = 20  # of a table's column that are taken for classes


class Attribute(NamedTuple):
    """A sensitive attribute, such as sex. With several attributes, the groups are the intersections
    of their values.

    Example:
        >>> sex = Attribute("sex", ("female", "male"), of_group=(0, 1, 0, 1))
        >>> sex.unprivileged_groups
        {0, 2}
    """

    name: str
    values: tuple[str, ...]
    of_group: tuple[int, ...]  # index into `values` for each group
    # index of the value whose people a model is expected to serve worse; below 0: nobody said which
    unprivileged: int = 0

    @property
    def unprivileged_groups(self) -> set[int]:
        """Numbers of the groups with the unprivileged value."""
        return {g for g, value in enumerate(self.of_group) if value == self.unprivileged}


def attributes_from(plain: Iterable[Mapping[str, Any]]) -> tuple[Attribute, ...]:
    """Attributes whose fields were stored. Raises a ValueError if they cannot be theirs.

    >>> sex = Attribute("sex", ("female", "male"), (0, 1, 0, 1), 1)
    >>> attributes_from([sex._asdict()]) == (sex,)
    True
    """
    found = []
    for told in plain:
        check_kinds(told, kinds_of(Attribute), complete=True)
        made = Attribute(
            told["name"], tuple(told["values"]), tuple(told["of_group"]), told["unprivileged"]
        )
        legal = range(len(made.values))
        if not set(made.of_group) <= set(legal) or made.unprivileged not in (-1, *legal):
            raise ValueError(f"The values of {made.name!r} are damaged.")
        found.append(made)
    return tuple(found)


class Sensitive(NamedTuple):
    """One sensitive attribute of every row."""

    name: str
    values: tuple[str, ...]
    codes: np.ndarray  # [rows], numbers into `values`
    unprivileged: int = 0


class Training(NamedTuple):
    """Training rows, from which the least favoured value of a sensitive column is determined."""

    rows: np.ndarray  # numbers of rows
    favoured: np.ndarray  # bool, of all rows: whether each has the favourable label


class Groups(NamedTuple):
    """The groups of all rows and what they are made of."""

    names: tuple[str, ...] = ("all",)
    group: np.ndarray | None = None  # int32 [rows]; None: all rows are in one group
    attributes: tuple[Attribute, ...] = ()
    unprivileged: tuple[int, ...] = (0,)


def cross(parts: Sequence[Sensitive], decider: str | None = None) -> Groups:
    """The intersections of these attributes that occur.

    Unprivileged are the groups that hold the unprivileged value of the attribute `decider`; without
    one, group 0.
    """
    held, group = _combinations(parts)
    attributes = tuple(
        Attribute(part.name, part.values, values, part.unprivileged)
        for part, values in zip(parts, held, strict=True)
    )
    deciding = next((a for a in attributes if a.name == decider), None)
    unprivileged = (
        (0,)
        if deciding is None
        else tuple(g for g, value in enumerate(deciding.of_group) if value == deciding.unprivileged)
    )
    if len(attributes) == 1:
        names = tuple(attributes[0].values[value] for value in held[0])
    else:
        names = tuple(
            ", ".join(f"{a.name}={a.values[a.of_group[g]]}" for a in attributes)
            for g in range(len(held[0]))
        )
    return Groups(names, group, attributes, unprivileged)


def _combinations(parts: Sequence[Sensitive]) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """For each attribute the value that every group has, and the group of every row."""
    sizes = [len(part.values) for part in parts]
    # beyond, a combination's number would overflow
    _refuse_many(parts, 0 if math.prod(sizes) < 2**62 else math.prod(sizes))
    numbers, group = np.unique(
        np.ravel_multi_index(tuple(part.codes for part in parts), sizes), return_inverse=True
    )
    _refuse_many(parts, len(numbers))
    return [tuple(map(int, values)) for values in np.unravel_index(numbers, sizes)], group.astype(
        np.int32
    )


def _refuse_many(parts: Sequence[Sensitive], groups: int) -> None:
    require(
        groups <= MOST_CLASSES,
        f"The sensitive columns {', '.join(part.name for part in parts)} must make at most"
        f" {MOST_CLASSES} groups, got {groups}. Use fewer columns, or cut them into fewer values.",
    )


def groups_of(
    columns: Mapping[str, TableColumn], unprivileged: Any = None, training: Training | None = None
) -> Groups:
    """The groups of a table's sensitive columns.

    `unprivileged` is a value of the only column, or a dict from columns to values. Its first
    column, or else the first of all, determines the unprivileged groups. Of columns that it does
    not name, the value favoured least in the training rows is unprivileged. Without `training` that
    is their first value, and without both group 0 is the unprivileged one.
    """
    if not columns:
        require(
            unprivileged is None,
            f"unprivileged={unprivileged!r} needs a sensitive column; none is given. Name one.",
        )
        return Groups()
    parts = {name: _attribute(name, column) for name, column in columns.items()}
    chosen = _chosen(unprivileged, list(parts))
    for name, value in chosen.items():
        if name not in parts:
            raise unknown("sensitive column", str(name), map(str, parts))
        parts[name] = parts[name]._replace(
            unprivileged=_place("value", value, parts[name].values, f" in column {name!r}")
        )
    if training is not None:
        for name in parts.keys() - chosen.keys():
            parts[name] = parts[name]._replace(unprivileged=_least_favoured(parts[name], training))
    return cross(
        list(parts.values()),
        str(next(iter(chosen), next(iter(parts)))) if chosen or training else None,
    )


def _least_favoured(part: Sensitive, training: Training) -> int:
    values = part.codes[training.rows]
    rows = np.bincount(values, minlength=len(part.values))
    favoured = np.bincount(values, training.favoured[training.rows], minlength=len(part.values))
    return least_favoured(
        np.divide(favoured, rows, out=np.full(len(rows), np.nan), where=rows > 0).tolist(),
        rows.tolist(),
    )


def least_favoured(rates: Sequence[float], rows: Sequence[float]) -> int:
    """Default of the unprivileged group: the one with the lowest rate. Groups with at least 30 rows
    take precedence, because few rows make extreme rates; groups without a rate (NaN) are ignored.

    >>> least_favoured([0.5, 0.2, 0.0, math.nan], [100, 100, 3, 0])
    1
    """
    known = [g for g, rate in enumerate(rates) if not math.isnan(rate)]
    return min(known, key=lambda g: (rows[g] < FEW, rates[g], g), default=0)


def refuse_measurement(column: TableColumn) -> None:
    """Raise if a sensitive column looks like a measurement, such as an age: every value would be a
    group.
    """
    names = column.classes()[0]
    count = len(names) if column.holds_numbers() else len(numbers_among(names))
    require(
        count <= MOST_NUMBERS,
        f"{column.what} must have at most {MOST_NUMBERS} different numbers to make groups, got"
        f" {count}. Cut it into classes first, such as ages into '18 to 29' and so on; if the"
        " numbers are codes, write them as words such as 'code 7'.",
    )


def refuse_quantity(column: TableColumn) -> None:
    """Raise if a label looks like a quantity, such as an income: every value would be a class."""
    raw, words = _numbers_of(column)
    filled = raw[~np.isnan(raw)]
    values = np.unique(filled)
    if len(values) > MOST_LABEL_NUMBERS:
        third, two = (f"{edge:g}" for edge in np.quantile(filled, [1 / 3, 2 / 3]))
        first = f" Before that, drop the rows with {', '.join(map(repr, words))}." if words else ""
        raise ValueError(
            f"{column.what} must hold classes, but it holds {len(values):,} different numbers from"
            f" {values[0]:g} to {values[-1]:g}, so it seems to be a quantity. Make at most"
            f" {MOST_LABEL_NUMBERS} classes of it first and name their column as the label, for"
            f" example pandas.cut(column, [-inf, {third}, {two}, inf], labels=['low', 'middle',"
            f" 'high']).{first} If the numbers are codes of classes, write them as words such as"
            " 'class 7'."
        )


def _numbers_of(column: TableColumn) -> tuple[np.ndarray, list[str]]:
    """The number in each row, NaN where there is none, and the first words among them. A column of
    text holds numbers if nearly all of its different words are numbers. Categories that are all
    numbers are the names of classes.
    """
    if column.holds_numbers():
        return column.numbers(), []
    names, codes = column.classes()
    numbers = numbers_among(names)
    if str(column.values.dtype) == "category" and len(numbers) == len(names):
        numbers = {}
    raw = np.array([numbers.get(name, np.nan) for name in names])
    return raw[codes], [name for name in names if name not in numbers][:3]


def favourable_label(value: Any, labels: tuple[str, ...], *, needed: bool = False) -> int:
    """The number of the label that people want to get: the one that is named, else the usual one,
    else label 1.

    Where it is `needed`, to compare groups, it must be named unless there is a usual one.
    """
    if value is not None:
        return _place("label", value, labels)
    usual = usual_favourable(labels)
    if usual is None and needed:
        raise unnamed_favourable(labels)
    return 1 if usual is None else usual


def usual_favourable(labels: Sequence[str]) -> int | None:
    """The favourable one of two labels, if the labels imply it: the larger number, or yes rather
    than no; else None.

    >>> [usual_favourable(labels) for labels in (("0", "1"), ("No", "Yes"), ("bad", "good"), "abc")]
    [1, 1, None, None]
    """
    if len(labels) != 2:
        return None
    if are_numbers(labels):
        return 1 if Decimal(labels[1]) > Decimal(labels[0]) else 0
    first, second = (label.strip().lower() for label in labels)
    return 0 if POSITIVE.get(first) == second else 1 if POSITIVE.get(second) == first else None


def unnamed_favourable(labels: Sequence[str]) -> ValueError:
    """The error if groups are compared and the favourable label is not named."""
    why = "Groups are compared by the label that people want to get, and"
    if len(labels) == 2:
        first, second = (shlex.quote(label) for label in labels)
        return ValueError(
            f"{why} the labels {labels[0]!r} and {labels[1]!r} do not say which that is. Name it:"
            f" --favourable {first} or --favourable {second} (favourable= in Python and in"
            " experiment files)."
        )
    more = ", ..." if len(labels) > 10 else ""
    return ValueError(
        f"{why} there are {len(labels)} labels: {', '.join(labels[:10])}{more}. Name it with"
        " --favourable (favourable= in Python and in experiment files); all others then count as"
        " unfavourable."
    )


def _attribute(name: str, column: TableColumn) -> Sensitive:
    column.refuse_missing(advice="Fill these rows, for example with 'not stated', or drop them.")
    column.holds_numbers()  # refuses dates and lists
    column.refuse_rounded()
    values, codes = column.classes()
    require(
        len(values) > 1,
        f"{column.what} must hold at least two values to make groups, but every row holds"
        f" {values[0]!r}. Choose another sensitive column.",
    )
    require(
        len(values) <= MOST_CLASSES,
        f"{column.what} must have at most {MOST_CLASSES} different values, got {len(values)}. Cut"
        " it into fewer classes first.",
    )
    return Sensitive(str(name), values, codes)


def _chosen(unprivileged: Any, names: list[str]) -> dict[str, Any]:
    if unprivileged is None:
        return {}
    if isinstance(unprivileged, Mapping):
        return dict(unprivileged)
    require(
        len(names) == 1,
        f"With several sensitive columns, unprivileged must be a dict such as {{{names[0]!r}:"
        f" value}}, got {unprivileged!r}.",
    )
    return {names[0]: unprivileged}


def _place(kind: str, value: Any, known: tuple[str, ...], where: str = "") -> int:
    word = str(TableColumn.of(kind, [value]).words()[0])
    if word not in known:
        raise unknown(kind, word, known, where)
    return known.index(word)

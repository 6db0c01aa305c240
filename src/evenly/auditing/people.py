"""Sensitive columns become groups; people without a value are a group of their own, which is compared with nobody."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.auditing.columns import Coded, how_many
from evenly.data.encoding import MISSING as NO_VALUE
from evenly.data.encoding import Column
from evenly.data.sensitive import MOST_CLASSES, Groups, Sensitive, cross
from evenly.notation import unknown
from evenly.records import require


class People(NamedTuple):
    """The groups of all rows: the intersections of the sensitive columns that occur."""

    groups: Groups
    parts: tuple[Sensitive, ...]  # one per sensitive column; people without a value have the last one, NO_VALUE
    notes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts)


def people(columns: Sequence[Coded], least: int) -> People:
    """The groups of these columns; without any, all people are one group."""
    parts = tuple(map(_part, columns))
    notes = tuple(_absent(column, least) for column in columns if column.gone.any())
    return People(cross(parts) if parts else Groups(), parts, notes)


def known(part: Sensitive) -> tuple[str, ...]:
    """The values of a column without that of people who have none."""
    return tuple(value for value in part.values if value != NO_VALUE)


def _part(column: Coded) -> Sensitive:
    require(
        len(column.words) > 1,
        f"Column {column.name!r} must hold at least two values to make groups, but holds {', '.join(map(repr, column.words)) or 'none'}. "
        "Leave it out, or choose another sensitive column.",
    )
    require(
        len(column.words) <= MOST_CLASSES,
        f"Column {column.name!r} must have at most {MOST_CLASSES} different values, got {len(column.words):,}. Cut it into fewer first.",
    )
    gone = column.gone
    values = (*column.words, NO_VALUE) if gone.any() else column.words
    return Sensitive(column.name, values, np.where(gone, len(column.words), column.codes))


def _absent(column: Coded, least: int) -> str:
    rows = how_many(int(column.gone.sum()), least)
    unless = ", unless it is hidden: then it is among all others" if least > 1 else ""
    return f"Without a value of {column.name}: {rows}, counted as the group “{NO_VALUE}”, which is compared with nobody{unless}."


def named(unprivileged: Any, parts: Sequence[Sensitive]) -> dict[str, int]:
    """The number of the unprivileged value of every sensitive column that `unprivileged` names.

    That is a value of the only column, or a dict from columns to values.
    """
    if unprivileged is None:
        return {}
    columns = {part.name: part for part in parts}
    require(bool(columns), f"unprivileged={unprivileged!r} needs a sensitive column; none is given. Name one.")
    if not isinstance(unprivileged, Mapping):
        require(
            len(columns) == 1,
            f"With several sensitive columns, the unprivileged value must be given with its column, such as "
            f"{next(iter(columns))}={unprivileged}, got only {unprivileged!r}.",
        )
        unprivileged = {next(iter(columns)): unprivileged}
    for name in unprivileged:
        if name not in columns:
            raise unknown("sensitive column", str(name), columns)
    return {str(name): _place(columns[name], value) for name, value in unprivileged.items()}


def _place(part: Sensitive, value: Any) -> int:
    word = str(Column.of(part.name, [value]).words()[0]).strip()
    if word not in part.values or word == NO_VALUE:
        raise unknown("value", word, known(part), f" in column {part.name!r}")
    return part.values.index(word)

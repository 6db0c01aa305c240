"""Labels and predictions as numbers, and which people belong to which groups."""

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import numpy as np

from evenly.auditing.read import Coded, how_many
from evenly.data.encoding import MISSING as NO_VALUE
from evenly.data.encoding import TableColumn
from evenly.data.sensitive import MOST_CLASSES, Groups, Sensitive, cross, unnamed_favourable, usual_favourable
from evenly.notation import unknown
from evenly.records import require

# Labels and predictions in the same words, and every row as one of a few outcomes.
#
# A program may write 1 where another writes 1.0 or True. Two columns that hold numbers are matched as numbers; a column of True and
# False beside one of 1 and 0 is read as numbers; all else must be the same words.

MOST_LABELS = 1000
SHOWN = 5
TRUTH = {"true": "1", "false": "0"}


class Judged(NamedTuple):
    """Label and prediction of every row, as numbers into the same words."""

    labels: tuple[str, ...]
    label: np.ndarray  # int32 [rows]
    prediction: np.ndarray  # int32 [rows]
    notes: tuple[str, ...]  # what was made alike, for the reader
    true: tuple[str, ...] = ()  # those of the words that occur as labels


def judged(label: Coded, prediction: Coded, least: int) -> Judged:
    """Match the words of the two columns."""
    label.filled("Nobody can say there whether the prediction is right: fill or drop such rows.")
    prediction.filled("Fill or drop such rows, or give what the system did there a word of its own.")
    if len(label.words) < 2:
        raise ValueError(
            f"Column {label.name!r} must hold at least two labels, but every row holds {_some(list(label.words))}. Check the column."
        )
    own, predicted, notes = _alike(label, prediction)
    _refuse_regression(label, own)
    if not set(own) & set(predicted) or _fractions(predicted):
        scores = (
            "It seems to hold scores: give it as the score, and a column of decisions as the prediction. " if _fractions(predicted) else ""
        )
        raise ValueError(
            f"The values of {prediction.name!r} ({_some(predicted)}) are not those of {label.name!r} ({_some(own)}). {scores}"
            "Write predictions in the words of the labels."
        )
    words = [*dict.fromkeys([*own, *predicted])]
    names, places = TableColumn.of("label", words).classes()
    place = dict(zip(words, places.tolist(), strict=True))
    strange = [word for word in dict.fromkeys(predicted) if word not in set(own)]
    if strange:
        rows = int(np.isin(prediction.codes, [i for i, word in enumerate(predicted) if word in strange]).sum())
        notes.append(f"Predicted {_some(strange)}, which never occurs as a label: {how_many(rows, least)}, counted as wrong.")
    known = tuple(name for name in names if name in own)
    return Judged(names, _numbers(place, own, label.codes), _numbers(place, predicted, prediction.codes), tuple(notes), known)


def favourable_of(value: object, rows: Judged, *, needed: bool = False) -> int | None:
    """The number of the label that people want to get. Of two labels it is the usual one unless one is named, and where it is
    `needed` there must be one; of more labels there is none."""
    if value is None:
        usual = usual_favourable(rows.true)
        if usual is None and needed and len(rows.true) == 2:
            raise unnamed_favourable(rows.true)
        return None if usual is None else rows.labels.index(rows.true[usual])
    word = str(TableColumn.of("label", [value]).words()[0]).strip()
    found = next((form for form in (word, _number(word), TRUTH.get(word.lower())) if form in rows.labels), None)
    if found is None:
        raise unknown("label", word, rows.labels)
    return rows.labels.index(found)


def outcomes(rows: Judged, favourable: int | None) -> tuple[np.ndarray, np.ndarray, int]:
    """Label and prediction of every row among as few kinds as the metrics tell apart, of which 1 is the favourable one.

    With two labels those are the labels. With more, all unfavourable labels are 0, and an unfavourable prediction is 0 where it is
    right and 2 where it is not: accuracy and every rate of the favourable label stay what they are. Without a favourable label
    only right (0, 0) and wrong (0, 1) are told apart.
    """
    right = rows.label == rows.prediction
    if favourable is None:
        return np.zeros(len(right), np.int8), (~right).astype(np.int8), 2
    label, prediction = ((codes == favourable).astype(np.int8) for codes in (rows.label, rows.prediction))
    if len(rows.labels) == 2:
        return label, prediction, 2
    wrong = ~right & (label == 0) & (prediction == 0)
    return label, np.where(wrong, np.int8(2), prediction), 3


def _alike(label: Coded, prediction: Coded) -> tuple[list[str], list[str], list[str]]:
    """The words of both columns in one form, and what had to be done to them."""
    own, predicted = list(label.words), list(prediction.words)
    truths = _truths(own), _truths(predicted)
    if all(truths):
        return [word.capitalize() for word in own], [word.capitalize() for word in predicted], []
    notes = []
    if any(truths):
        other, column = (predicted, label) if truths[0] else (own, prediction)
        if {_number(word) for word in other} & set(TRUTH.values()):
            own, predicted = ([TRUTH.get(word.lower(), word) for word in words] for words in (own, predicted))
            notes = [f"In column {column.name!r} True is read as 1 and False as 0, as the other column has them."]
    numbers = [[_number(word) for word in words] for words in (own, predicted)]
    if all(None not in found for found in numbers):
        return [str(word) for word in numbers[0]], [str(word) for word in numbers[1]], notes
    return own, predicted, notes


def _truths(words: list[str]) -> bool:
    return all(word.lower() in TRUTH for word in words)


def _number(word: str) -> str | None:
    """A number in its plainest form, so that 1, 1.0 and 1e0 are one word; None for what is no number."""
    try:
        value = Decimal(word)
    except InvalidOperation:
        return None
    if not value.is_finite():
        return None
    return str(int(value)) if value == value.to_integral_value() else format(value.normalize(), "f")


def _refuse_regression(label: Coded, words: list[str]) -> None:
    if _fractions(words) or len(words) > MOST_LABELS:
        raise ValueError(
            f"Column {label.name!r} holds {len(words):,} different values ({_some(words)}), so it seems to be a quantity. Audits are of "
            "classes, not of regression: cut it into classes first."
        )


def _fractions(words: list[str]) -> bool:
    """Whether these are numbers of which most are not whole."""
    numbers = [_number(word) for word in words]
    return None not in numbers and 2 * sum("." in str(number) for number in numbers) > len(words)


def _numbers(place: dict[str, int], words: list[str], codes: np.ndarray) -> np.ndarray:
    return np.array([place[word] for word in words], np.int32)[codes]


def _some(words: list[str]) -> str:
    return ", ".join(map(repr, words[:SHOWN])) + (", …" if len(words) > SHOWN else "")


# Sensitive columns become groups; people without a value are a group of their own, which is compared with nobody.


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
    word = str(TableColumn.of(part.name, [value]).words()[0]).strip()
    if word not in part.values or word == NO_VALUE:
        raise unknown("value", word, known(part), f" in column {part.name!r}")
    return part.values.index(word)

"""Match labels with predictions, reduce them to a few outcomes, and assign people to groups."""

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import numpy as np

from evenly.auditing.read import CodedColumn, how_many
from evenly.data.encoding import MISSING as NO_VALUE
from evenly.data.encoding import TableColumn
from evenly.data.sensitive import (
    MOST_CLASSES,
    Groups,
    Sensitive,
    cross,
    unnamed_favourable,
    usual_favourable,
)
from evenly.notation import unknown
from evenly.records import require

# Labels and predictions may be written differently: 1, 1.0 or True. Two columns of numbers are
# matched as numbers. A column of True and False next to one of 1 and 0 is read as numbers.
# Everything else must be the same words.

MOST_LABELS = 1000
SHOWN = 5
TRUTH = {"true": "1", "false": "0"}


class MatchedLabels(NamedTuple):
    """Label and prediction of every row, as numbers of the same words."""

    labels: tuple[str, ...]
    label: np.ndarray  # int32 [rows]
    prediction: np.ndarray  # int32 [rows]
    notes: tuple[str, ...]  # conversions that the reader should know about
    true_labels: tuple[str, ...] = ()  # the words that occur in the label column


def match_labels(label: CodedColumn, prediction: CodedColumn, min_cell: int) -> MatchedLabels:
    """Write labels and predictions in the same words. Raises a ValueError if the columns do not fit
    each other.
    """
    label.require_complete(
        "Without a label, a prediction is neither right nor wrong. Fill or drop these rows."
    )
    prediction.require_complete("Fill or drop these rows, or use a separate word for them.")
    if len(label.words) < 2:
        raise ValueError(
            f"Column {label.name!r} must hold at least two labels, but every row holds"
            f" {_some(list(label.words))}. Check the column."
        )
    labels, predictions, notes = _align(label, prediction)
    _refuse_regression(label, labels)
    _refuse_other_words(label.name, labels, prediction.name, predictions)
    words = [*dict.fromkeys([*labels, *predictions])]
    names, numbers = TableColumn.of("label", words).classes()
    number = dict(zip(words, numbers.tolist(), strict=True))
    foreign = [word for word in dict.fromkeys(predictions) if word not in set(labels)]
    if foreign:
        rows = int(
            np.isin(
                prediction.codes, [i for i, word in enumerate(predictions) if word in foreign]
            ).sum()
        )
        notes.append(
            f"Predicted {_some(foreign)}, which never occurs as a label:"
            f" {how_many(rows, min_cell)}, counted as wrong."
        )
    codes = (np.array([number[word] for word in each], np.int32) for each in (labels, predictions))
    of_label, of_prediction = (
        table[column.codes] for table, column in zip(codes, (label, prediction), strict=True)
    )
    return MatchedLabels(
        names,
        of_label,
        of_prediction,
        tuple(notes),
        tuple(name for name in names if name in labels),
    )


def _refuse_other_words(
    label: str, labels: list[str], prediction: str, predictions: list[str]
) -> None:
    are_scores = _fractions(predictions)
    if set(labels) & set(predictions) and not are_scores:
        return
    hint = (
        "It seems to hold scores: pass it as the score, and a column of decisions as the"
        " prediction. "
        if are_scores
        else ""
    )
    raise ValueError(
        f"The values of {prediction!r} ({_some(predictions)}) are not those of {label!r}"
        f" ({_some(labels)}). {hint}Write predictions in the words of the labels."
    )


def find_favourable(value: object, rows: MatchedLabels, *, needed: bool = False) -> int | None:
    """Return the number of the favourable label, the one that people want to get.

    If none is named, it is the usual one of two labels. If it is `needed`, two labels without a
    usual one are an error. With more labels there is none.
    """
    if value is None:
        usual = usual_favourable(rows.true_labels)
        if usual is None and needed and len(rows.true_labels) == 2:
            raise unnamed_favourable(rows.true_labels)
        return None if usual is None else rows.labels.index(rows.true_labels[usual])
    word = str(TableColumn.of("label", [value]).words()[0]).strip()
    match = next(
        (form for form in (word, _number(word), TRUTH.get(word.lower())) if form in rows.labels),
        None,
    )
    if match is None:
        raise unknown("label", word, rows.labels)
    return rows.labels.index(match)


def outcomes(rows: MatchedLabels, favourable: int | None) -> tuple[np.ndarray, np.ndarray, int]:
    """Reduce labels and predictions to the few kinds that the metrics distinguish, where 1 is the
    favourable one.

    Two labels stay as they are. Of more labels, all unfavourable ones become 0, and an unfavourable
    prediction becomes 0 where it is right and 2 where it is wrong. This changes neither accuracy
    nor any rate of the favourable label. Without a favourable label, only right (0, 0) and wrong
    (0, 1) are distinguished.
    """
    right = rows.label == rows.prediction
    if favourable is None:
        return np.zeros(len(right), np.int8), (~right).astype(np.int8), 2
    label, prediction = (
        (codes == favourable).astype(np.int8) for codes in (rows.label, rows.prediction)
    )
    if len(rows.labels) == 2:
        return label, prediction, 2
    wrong = ~right & (label == 0) & (prediction == 0)
    return label, np.where(wrong, np.int8(2), prediction), 3


def _align(label: CodedColumn, prediction: CodedColumn) -> tuple[list[str], list[str], list[str]]:
    """The words of both columns in one form, and notes on conversions."""
    labels, predictions = list(label.words), list(prediction.words)
    truths = _truths(labels), _truths(predictions)
    if all(truths):
        return (
            [word.capitalize() for word in labels],
            [word.capitalize() for word in predictions],
            [],
        )
    notes = []
    if any(truths):
        other, column = (predictions, label) if truths[0] else (labels, prediction)
        if {_number(word) for word in other} & set(TRUTH.values()):
            labels, predictions = (
                [TRUTH.get(word.lower(), word) for word in words] for words in (labels, predictions)
            )
            notes = [
                f"In column {column.name!r} True is read as 1 and False as 0, because the other"
                " column holds numbers."
            ]
    numbers = [[_number(word) for word in words] for words in (labels, predictions)]
    if all(None not in each for each in numbers):
        return [str(word) for word in numbers[0]], [str(word) for word in numbers[1]], notes
    return labels, predictions, notes


def _truths(words: list[str]) -> bool:
    return all(word.lower() in TRUTH for word in words)


def _number(word: str) -> str | None:
    """A number in its simplest form, so that 1, 1.0 and 1e0 are one word; None for other words."""
    try:
        value = Decimal(word)
    except InvalidOperation:
        return None
    if not value.is_finite():
        return None
    return str(int(value)) if value == value.to_integral_value() else format(value.normalize(), "f")


def _refuse_regression(label: CodedColumn, words: list[str]) -> None:
    if _fractions(words) or len(words) > MOST_LABELS:
        raise ValueError(
            f"Column {label.name!r} holds {len(words):,} different values ({_some(words)}), so it"
            " seems to be a quantity. Audits support classification, not regression. Divide it"
            " into classes first."
        )


def _fractions(words: list[str]) -> bool:
    """Whether these are numbers, and most of them are not whole."""
    numbers = [_number(word) for word in words]
    return None not in numbers and 2 * sum("." in str(number) for number in numbers) > len(words)


def _some(words: list[str]) -> str:
    return ", ".join(map(repr, words[:SHOWN])) + (", …" if len(words) > SHOWN else "")


# Sensitive columns define groups. People without a value form a separate group that is not compared
# with others.


class People(NamedTuple):
    """The groups of all rows: the combinations of sensitive values that occur."""

    groups: Groups
    # one per sensitive column; people without a value have the last value, NO_VALUE
    parts: tuple[Sensitive, ...]
    notes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The sensitive columns."""
        return tuple(part.name for part in self.parts)


def form_groups(columns: Sequence[CodedColumn], min_cell: int) -> People:
    """Form the groups of sensitive columns; without columns, all people are one group."""
    parts = tuple(map(_part, columns))
    notes = tuple(
        _missing_note(column, min_cell) for column in columns if column.missing_rows.any()
    )
    return People(cross(parts) if parts else Groups(), parts, notes)


def _part(column: CodedColumn) -> Sensitive:
    require(
        len(column.words) > 1,
        f"Column {column.name!r} must hold at least two values to make groups, but holds"
        f" {', '.join(map(repr, column.words)) or 'none'}. Remove it, or choose another sensitive"
        " column.",
    )
    require(
        len(column.words) <= MOST_CLASSES,
        f"Column {column.name!r} must have at most {MOST_CLASSES} different values, got"
        f" {len(column.words):,}. Group its values first.",
    )
    missing = column.missing_rows
    values = (*column.words, NO_VALUE) if missing.any() else column.words
    return Sensitive(column.name, values, np.where(missing, len(column.words), column.codes))


def _missing_note(column: CodedColumn, min_cell: int) -> str:
    rows = how_many(int(column.missing_rows.sum()), min_cell)
    unless = ". If the group is hidden, it counts among all others" if min_cell > 1 else ""
    return (
        f"Without a value of {column.name}: {rows}, in the group “{NO_VALUE}”, which is not"
        f" compared with other groups{unless}."
    )


def unprivileged_values(unprivileged: Any, parts: Sequence[Sensitive]) -> dict[str, int]:
    """Return the number of the unprivileged value of each sensitive column for which the user named
    one.

    `unprivileged` is a value of the only column, or a dict from columns to values.
    """
    if unprivileged is None:
        return {}
    columns = {part.name: part for part in parts}
    require(
        bool(columns),
        f"unprivileged={unprivileged!r} needs a sensitive column, but there is none. Name one.",
    )
    if not isinstance(unprivileged, Mapping):
        require(
            len(columns) == 1,
            "With several sensitive columns, the unprivileged value must be given with its column,"
            f" such as {next(iter(columns))}={unprivileged}, got only {unprivileged!r}.",
        )
        unprivileged = {next(iter(columns)): unprivileged}
    for name in unprivileged:
        if name not in columns:
            raise unknown("sensitive column", str(name), columns)
    return {str(name): _value_number(columns[name], value) for name, value in unprivileged.items()}


def _value_number(part: Sensitive, value: Any) -> int:
    word = str(TableColumn.of(part.name, [value]).words()[0]).strip()
    if word not in part.values or word == NO_VALUE:
        raise unknown(
            "value",
            word,
            [each for each in part.values if each != NO_VALUE],
            f" in column {part.name!r}",
        )
    return part.values.index(word)

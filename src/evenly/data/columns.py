"""Which columns of a table become features, which are refused, and what became of each.

Columns that the user lists are taken as they are. Otherwise every column is a feature that has no
other meaning (client, label, sensitive, split) and was not dropped, and those that cannot teach a
model anything are refused together, in one sentence:

- dates and times, also where they are written as text: each day would be a category of its own;
- identifiers: text with almost as many different values as rows, and whole numbers that are all
  different and are called an id, or that count the rows. Numbers with fractions are measurements
  and never taken for an identifier;
- text with more categories than a model can learn from;
- a split into train and other parts that was not named as the split.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.data.encoding import (
    FEW_CATEGORIES,
    MANY_CATEGORIES,
    MISSING,
    MOST_CATEGORIES,
    Categorical,
    Encoder,
    Numeric,
    TableColumn,
    check_table,
    column_of,
)
from evenly.data.splits import CENTRAL, SPLITS
from evenly.notation import unknown
from evenly.records import require

# share of different values from which text is an identifier, and share of dates from which it is a
# date
MOSTLY = 0.9
LOOKED_AT = 1000  # different values of a column that are tried as dates
SHOWN = 12  # names in a line

SHORT = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
MONTH = rf"{SHORT}[a-z]*"
YEAR = r"(19|20)\d\d"
IN_YEAR = r"(0[1-9]|1[0-2])"  # the number of a month
CLOCK = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?(\s?(z|[ap]m|utc|[+-]\d{2}:?\d{2}))*"
FORMS = (
    rf"{YEAR}(?P<s>[-/.])(?P<a>\d{{1,2}})(?P=s)(?P<b>\d{{1,2}})",  # 2024-01-31
    r"(?P<a>\d{1,2})(?P<s>[-/])(?P<b>\d{1,2})(?P=s)(\d{4}|\d\d)",  # 31/01/2024, 1/31/24
    rf"(?P<a>\d{{1,2}})\.(?P<b>\d{{1,2}})\.{YEAR}",  # 31.1.2024
    r"(?P<a>\d\d)\.(?P<b>\d\d)\.\d\d",  # 31.01.24; 1.2.24 may be a version
    # 31 Jan 2024, January 31, 2024
    rf"([a-z]{{3,9}},?\s)?(\d{{1,2}}[\s-]{MONTH}[,\s-]\s?\d{{2,4}}|{MONTH}\s\d{{1,2}},?\s\d{{4}})",
    rf"\d{{1,2}}{SHORT}({YEAR}|\d\d)",  # 31JAN2024
    rf"{YEAR}{IN_YEAR}(0[1-9]|[12]\d|3[01])",  # 20240131
    rf"{YEAR}[-/]{IN_YEAR}|{IN_YEAR}[-/]{YEAR}",  # 2024-01, 01/2024
    rf"{MONTH}[\s-]{YEAR}|{YEAR}[\s-]{MONTH}|{SHORT}-\d\d",  # Jan 2024, 2024-Jan, Jan-24
)
DATES = [re.compile(rf"{form}([t\s]\s?{CLOCK})?", re.IGNORECASE) for form in FORMS] + [
    re.compile(CLOCK, re.IGNORECASE)
]
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
ID_WORDS = {
    "id",
    "ids",
    "identifier",
    "uuid",
    "guid",
    "key",
    "nr",
    "no",
    "num",
    "number",
    "index",
    "idx",
    "row",
    "mrn",
    "ssn",
    "pid",
}
ID_NAME = re.compile(
    r"(patient|person|user|customer|client|subject|case|record|row|member|account|employee|student|visit|encounter|study|order)ids?",
    re.IGNORECASE,
)


class ColumnChoice(NamedTuple):
    """The user's choice of features."""

    # these and no others; None: every column without another meaning
    features: Sequence[Any] | None = None
    drop: Sequence[Any] = ()  # columns that are no features


def feature_columns(frame: Any, roles: Mapping[Any, str], choice: ColumnChoice) -> list[Any]:
    """The columns of a table that become features; `roles` names the client, label, sensitive and
    split columns.

    Raises ValueError if a column is not there, has another meaning, or cannot be a feature.
    """
    columns = list(frame.columns)
    check_table(frame, columns)
    for option, names in (("features", choice.features or ()), ("drop", choice.drop)):
        for name in names:
            if name not in columns:
                raise unknown("column", str(name), map(str, columns), f" for {option}")
    for name in choice.drop:
        require(
            name not in roles,
            f"drop must not hold {name!r}, which is the {roles.get(name)} column. Leave it out of"
            " drop.",
        )
        require(
            name not in (choice.features or ()),
            f"Column {name!r} is in features and in drop. Leave it out of one of them.",
        )
    if choice.features is not None:
        for name in choice.features:
            require(
                roles.get(name) != "label",
                f"features must not hold the label column {name!r}: the model would read the"
                " answer.",
            )
        return list(dict.fromkeys(choice.features))
    names = [name for name in columns if name not in roles and name not in choice.drop]
    refuse_unfit(frame, names, choice.drop)
    return names


def refuse_unfit(frame: Any, names: Sequence[Any], dropped: Sequence[Any] = ()) -> None:
    """Raise, naming all of them at once, if some columns cannot be features."""
    reasons = {name: why for name in names if (why := _unfit(name, column_of(frame, name)))}
    if not reasons:
        return
    what = (
        f"{len(reasons)} columns of the table cannot be features"
        if len(reasons) > 1
        else "A column of the table cannot be a feature"
    )
    each = "; ".join(f"{str(name)!r} {why}" for name, why in reasons.items())
    every = [*dropped, *reasons]
    raise ValueError(
        f"{what}: {each}. Leave {'them' if len(reasons) > 1 else 'it'} out with --drop"
        f" {option_text(every)} (in Python and in experiment files: drop ="
        f" {json.dumps(every, ensure_ascii=False)}), or name the columns to use with --features."
    )


def _unfit(name: Any, column: TableColumn) -> str:
    """Why a column cannot be a feature; nothing where it can."""
    if column.holds_dates():
        return "holds dates or times"
    filled = len(column.values) - int(column.missing().sum())
    try:
        numeric = column.holds_numbers()
    except TypeError:
        return "holds neither numbers nor words"
    if numeric:
        return _numbering(str(name), column.numbers())
    words = set(column.distinct()[0].words()) - {MISSING}
    if _are_dates(words):
        return "holds dates or times as text"
    if "train" in words and len(words) > 1 and words <= {*SPLITS, CENTRAL}:
        parts = ", ".join(sorted(words))
        return f"divides the rows into {parts} (compare and tune take it as --split)"
    count = f"({len(words):,} different values in {filled:,} rows)"
    if len(words) > max(FEW_CATEGORIES, filled / 2) and numbers_among(words):
        return (
            f"holds numbers that are written as text {count}; write them as plain numbers such as"
            " 1.5 to use them"
        )
    called_so = len(words) == filled > 1 and is_id_name(str(name))
    if called_so or len(words) >= max(FEW_CATEGORIES + 1, MOSTLY * filled):
        return f"looks like an identifier {count}"
    if len(words) > MOST_CATEGORIES or len(words) > max(FEW_CATEGORIES, len(column.values) / 2):
        return f"has too many categories to learn from {count}"
    return ""


def _numbering(name: str, raw: np.ndarray) -> str:
    """Why a column of numbers is an identifier: it is called one and has no number twice, or it
    counts the rows.
    """
    values, named_id = raw[~np.isnan(raw)], is_id_name(name)
    counts = (
        len(raw) == len(values) > FEW_CATEGORIES and values.max() - values.min() == len(values) - 1
    )
    if (
        not (named_id or counts)
        or len(values) < 2
        or (values != np.floor(values)).any()
        or len(np.unique(values)) < len(values)
    ):
        return ""
    return (
        f"looks like an identifier ({len(values):,} different numbers in {len(values):,} rows)"
        if named_id
        else "only numbers the rows"
    )


def _are_dates(words: set[Any]) -> bool:
    """Whether nearly all of these words are dates or times."""
    some = sorted(map(str, words))[:: max(1, len(words) // LOOKED_AT)]
    return bool(some) and sum(_is_date(word.strip()) for word in some) >= MOSTLY * len(some)


def _is_date(word: str) -> bool:
    date = next((match for form in DATES if (match := form.fullmatch(word))), None)
    parts = date.groupdict() if date else {}
    # day and month, in any order
    low, high = sorted((int(parts["a"]), int(parts["b"]))) if "a" in parts else (1, 1)
    return date is not None and 1 <= low <= 12 and high <= 31


def numbers_among(words: Iterable[Any]) -> dict[Any, float]:
    """The words that are numbers, perhaps with a decimal comma, if nearly all of these are; else
    none.

    >>> numbers_among(["18", "1,5", *map(str, range(20, 28)), "unknown"])["1,5"]
    1.5
    >>> numbers_among(["18", "unknown"])
    {}
    """
    every = {word: str(word).replace(",", ".").strip() for word in words}
    found = {word: float(text) for word, text in every.items() if NUMBER.fullmatch(text)}
    return found if len(found) >= MOSTLY * len(every) else {}


def is_id_name(name: str) -> bool:
    """Whether a column is called an identifier.

    >>> names = ("patient_id", "patientID", "patientid", "Row", "paid", "covid", "age")
    >>> [is_id_name(name) for name in names]
    [True, True, True, True, False, False, False]
    """
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return (
        any(word.lower() in ID_WORDS for word in words)
        or ID_NAME.fullmatch(re.sub(r"[\W_]", "", name)) is not None
    )


def option_text(names: Iterable[Any]) -> str:
    """Columns as `--drop` and `--features` take them: separated by commas, in quotes where a name
    or the shell needs them.

    >>> print(option_text(["age", "a, b"]))
    'age,"a, b"'
    """
    doubled = [str(name).replace('"', '""') for name in names]
    return shlex.quote(
        ",".join(
            f'"{name}"' if set(name) & set(',"') or name != name.strip() else name
            for name in doubled
        )
    )


class Fact(NamedTuple):
    """A line about the columns of a table."""

    about: str
    text: str
    warning: bool = False


def column_facts(encoder: Encoder, x: np.ndarray, sensitive: Sequence[str] = ()) -> list[Fact]:
    """What became of the columns of the table with these features: which are numbers and which
    categories, what is done about missing and unknown values, and what is not used. `sensitive`
    columns are features only if the user listed them.
    """
    features = {str(column.name) for column in encoder.columns}
    apart = [name for name in sensitive if name not in features]
    numbers = [column for column in encoder.columns if isinstance(column, Numeric)]
    words = [column for column in encoder.columns if isinstance(column, Categorical)]
    averaged = [str(column.name) for column in numbers if column.flag_missing]
    with_category = [str(column.name) for column in words if MISSING in column.categories]
    facts = [
        Fact("numbers", some(str(column.name) for column in numbers)),
        Fact("one-hot", some(f"{column.name} ({len(column.categories)})" for column in words)),
        Fact(
            "missing",
            (
                f"{some(averaged)}: the mean of the training rows, and a 0/1 feature marks them"
                if averaged
                else ""
            ),
        ),
        Fact("missing", f"{some(with_category)}: a category of its own" if with_category else ""),
        Fact("not features", f"{some(apart)} (sensitive)" if apart else ""),
        Fact("not used", some(map(str, encoder.unused))),
        *(Fact("unknown", text) for text in _strangers(encoder, x)),
        *(Fact("warning", text, warning=True) for text in many_categories(encoder)),
    ]
    return [fact for fact in facts if fact.text]


def many_categories(encoder: Encoder) -> list[str]:
    """A sentence for every column of text that became very many features."""
    sentences = []
    for column in encoder.columns:
        if isinstance(column, Categorical) and len(column.categories) > MANY_CATEGORIES:
            numbers = (
                " Nearly all of them are numbers: is a missing value marked by a word?"
                if numbers_among(column.categories)
                else ""
            )
            sentences.append(
                f"Column {str(column.name)!r} holds {len(column.categories):,} different words,"
                f" each a 0/1 feature of its own.{numbers} Merge rare words, or add"
                f" {option_text([column.name])} to --drop."
            )
    return sentences


def _strangers(encoder: Encoder, x: np.ndarray) -> list[str]:
    """Rows that hold a category which no training row has."""
    columns, start = [], 0
    for column in encoder.columns:
        stop = start + len(column.features)
        if isinstance(column, Categorical):
            rows = int((x[:, start:stop].sum(1) == 0).sum())
            columns += [f"{column.name} in {rows:,} row{'' if rows == 1 else 's'}"] if rows else []
        start = stop
    return (
        [f"{some(columns)}: a value that no training row has counts as none of the categories"]
        if columns
        else []
    )


def some(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    names = list(names)
    return ", ".join(names[:SHOWN]) + (
        f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    )

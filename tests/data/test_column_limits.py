"""The first and the last column on each side of a limit: identifiers, categories, dates, numbers as
text, and names in a line.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from evenly.data.columns import SHOWN, many_categories, refuse_unfit, some
from evenly.data.encoding import (
    EXACT,
    FEW_CATEGORIES,
    MANY_CATEGORIES,
    MOST_CATEGORIES,
    TableColumn,
    fit_encoder,
)


def why(values: Sequence[object], name: str = "c") -> str:
    """What is said against a column; nothing where it can be a feature."""
    try:
        refuse_unfit(pd.DataFrame({name: values}), [name])
    except ValueError as error:
        return str(error)
    return ""


def words(different: int, rows: int, form: str = "w{}") -> list[str]:
    return [form.format(i % different) for i in range(rows)]


@pytest.mark.parametrize(
    "values, reason",
    [
        # from nine tenths of the rows on, but never up to 20 words
        (words(36, 40), "looks like an identifier"),
        (words(35, 40), "too many categories"),
        (words(FEW_CATEGORIES, FEW_CATEGORIES), ""),
        (words(FEW_CATEGORIES + 1, FEW_CATEGORIES + 1), "looks like an identifier"),
        # more than half of the rows
        (words(30, 60), ""),
        (words(31, 60), "too many categories"),
        (words(FEW_CATEGORIES, 30), ""),
        (words(FEW_CATEGORIES + 1, 30), "too many categories"),
        (words(MOST_CATEGORIES, 2 * MOST_CATEGORIES), ""),
        (words(MOST_CATEGORIES + 1, 2 * MOST_CATEGORIES + 2), "too many categories"),
        # numbers as text: more than half of the rows, more than 20
        (words(30, 60, "{},5"), ""),
        (words(31, 60, "{},5"), "written as text"),
        (words(FEW_CATEGORIES, FEW_CATEGORIES, "{},5"), ""),
        (words(FEW_CATEGORIES + 1, FEW_CATEGORIES + 1, "{},5"), "written as text"),
        # nearly all of them
        ([*words(36, 36, "{},5"), *words(4, 4)], "written as text"),
        ([*words(35, 35, "{},5"), *words(5, 5)], "looks like an identifier"),
    ],
)
def test_text_is_refused_from_a_number_of_different_words_on(values: list[str], reason: str):
    found = why(values)
    assert reason in found
    assert bool(found) == bool(reason)


def test_a_name_of_an_identifier_needs_two_rows_to_count():
    assert why(["a"], "id") == ""
    assert "looks like an identifier (2 different values in 2 rows)" in why(["a", "b"], "id")
    assert why(["a", "b", "b"], "id") == ""
    assert why([7], "id") == ""
    assert "looks like an identifier (2 different numbers in 2 rows)" in why([7, 9], "id")


def test_numbers_that_count_the_rows_are_more_than_twenty():
    assert why(range(FEW_CATEGORIES)) == ""
    assert "only numbers the rows" in why(range(FEW_CATEGORIES + 1))
    assert why([*range(FEW_CATEGORIES), FEW_CATEGORIES + 1]) == "", "one is left out"
    assert why([*range(FEW_CATEGORIES + 1), None]) == "", "a row without a number"


@pytest.mark.parametrize(
    "word, is_date",
    [
        ("01/31/2024", True),
        ("12/31/2024", True),
        ("12/12/2024", True),
        ("01/01/2024", True),
        ("13/13/2024", False),
        ("01/32/2024", False),
        ("00/01/2024", False),
    ],
)
def test_a_date_has_a_month_up_to_12_and_a_day_up_to_31(word: str, is_date: bool):
    assert ("dates or times as text" in why([word] * 3)) == is_date


def test_nine_of_ten_different_words_make_dates():
    days = words(9, 9, "2024-01-1{}")
    assert "dates or times as text" in why([*days, "unknown"])
    assert why([*days, "unknown", "none"]) == ""


def test_a_column_of_more_than_fifty_words_is_warned_about():
    for count, warnings in ((MANY_CATEGORIES, 0), (MANY_CATEGORIES + 1, 1)):
        frame = pd.DataFrame({"ward": words(count, 3 * count), "age": 1.0})
        assert len(many_categories(fit_encoder(frame, ["ward", "age"], np.arange(3)))) == 0
        everyone = np.arange(len(frame))
        assert len(many_categories(fit_encoder(frame, ["ward", "age"], everyone))) == warnings


def test_more_categories_than_can_be_features_are_refused():
    frame = pd.DataFrame({"ward": words(MOST_CATEGORIES + 1, MOST_CATEGORIES + 1)})
    most = np.arange(MOST_CATEGORIES)
    assert len(fit_encoder(frame, ["ward"], most).features) == MOST_CATEGORIES
    with pytest.raises(ValueError, match="1,001 different words in 1,001 training rows"):
        fit_encoder(frame, ["ward"], np.arange(MOST_CATEGORIES + 1))


def test_up_to_twelve_names_stand_in_a_line():
    names = [str(i) for i in range(SHOWN + 1)]
    assert some(names[:SHOWN]) == ", ".join(names[:SHOWN])
    assert some(names) == f"{', '.join(names[:SHOWN])} and 1 more"


def test_floats_from_2_to_the_53_on_are_rounded():
    TableColumn.of("c", [float(EXACT - 1)]).refuse_rounded()
    TableColumn.of("c", [EXACT + 1]).refuse_rounded()  # whole numbers are exact
    for number in (float(EXACT), -float(EXACT)):
        with pytest.raises(ValueError, match="c"):
            TableColumn.of("c", [number]).refuse_rounded()

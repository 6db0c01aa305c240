"""Sensitive columns become groups: borders of what is accepted, and what is assumed."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from evenly.data.encoding import TableColumn
from evenly.data.sensitive import (
    MOST_CLASSES,
    MOST_LABEL_NUMBERS,
    MOST_NUMBERS,
    Sensitive,
    Training,
    cross,
    favourable_label,
    groups_of,
    least_favoured,
    refuse_measurement,
    refuse_quantity,
    usual_favourable,
)


def attributes(sizes: Sequence[int]) -> list[Sensitive]:
    """Columns with these many values and three rows, of which the first two are alike."""
    return [
        Sensitive(f"c{i}", tuple(map(str, range(size))), np.array([0, 0, size - 1]))
        for i, size in enumerate(sizes)
    ]


def test_combinations_are_numbered_up_to_2_to_the_62():
    groups = cross(attributes([4] * 30 + [2]))
    assert groups.group is not None
    assert groups.group.tolist() == [0, 0, 1]
    assert groups.unprivileged == (0,)
    with pytest.raises(ValueError, match=f"got {2**62}"):
        cross(attributes([4] * 31))


def column(values: Sequence[object]) -> TableColumn:
    return TableColumn.of("Column 'c'", list(values))


def test_as_many_groups_as_allowed_are_made_and_one_more_is_refused():
    codes = np.arange(MOST_CLASSES + 1)
    values = tuple(map(str, codes))
    halves = Sensitive("b", ("0", "1"), codes % 2)
    most = [Sensitive("a", values, codes[:-1]), halves._replace(codes=halves.codes[:-1])]
    assert len(cross(most).names) == MOST_CLASSES
    with pytest.raises(ValueError, match=f"got {MOST_CLASSES + 1}"):
        cross([Sensitive("a", values, codes), halves])
    with pytest.raises(ValueError, match=f"different values, got {MOST_CLASSES + 1}"):
        groups_of({"a": column([f"v{i}" for i in codes])})
    assert len(groups_of({"a": column([f"v{i}" for i in codes[:-1]])}).names) == MOST_CLASSES


def test_different_numbers_are_groups_and_labels_up_to_a_limit():
    refuse_measurement(column(range(MOST_NUMBERS)))
    refuse_measurement(column([f"code {i}" for i in range(MOST_NUMBERS + 1)]))
    for numbers in (range(MOST_NUMBERS + 1), map(str, range(MOST_NUMBERS + 1))):
        with pytest.raises(ValueError, match=f"got {MOST_NUMBERS + 1}"):
            refuse_measurement(column(list(numbers)))
    refuse_quantity(column(range(MOST_LABEL_NUMBERS)))
    refuse_quantity(column([f"class {i}" for i in range(MOST_LABEL_NUMBERS + 1)]))
    edges = f"{MOST_LABEL_NUMBERS / 3:g}, {2 * MOST_LABEL_NUMBERS / 3:g}"
    with pytest.raises(ValueError, match=rf"from 0 to {MOST_LABEL_NUMBERS}, .*inf, {edges}, inf"):
        refuse_quantity(column(range(MOST_LABEL_NUMBERS + 1)))


def test_a_word_among_numbers_makes_no_classes_and_no_groups_of_them():
    """Sixty-one ages and "unknown" were classes in silence, because pandas reads them as text."""
    ages = [*map(str, range(18, 79)), "unknown"]
    with pytest.raises(ValueError, match=r"61 different numbers from 18 to 78, .*with 'unknown'\."):
        refuse_quantity(column(ages * 3))
    with pytest.raises(ValueError, match="at most 50 different numbers to make groups, got 61"):
        refuse_measurement(column(ages))
    with pytest.raises(ValueError, match=r"from 0\.5 to 29\.5, .*inf, 10\.1"):
        refuse_quantity(column([f"{i},5" for i in range(30)]))
    refuse_quantity(column([*ages[:MOST_LABEL_NUMBERS], "unknown"]))
    refuse_quantity(column([*map(str, range(30)), *"abcd"]))  # codes of letters and digits
    classes = pd.Series(list(map(str, range(30))), dtype="category")
    refuse_quantity(TableColumn.of("Column 'c'", classes))
    with pytest.raises(ValueError, match="seems to be a quantity"):  # Arrow's text is categories
        refuse_quantity(TableColumn.of("Column 'c'", pd.Series(ages, dtype="category")))


@pytest.mark.parametrize(
    "rates, rows, expected",
    [
        ([0.5, 0.2, 0.3], [30, 30, 30], 1),
        ([0.5, 0.2, 0.3], [30, 29, 30], 2),  # 29 rows are few
        ([0.5, 0.2, 0.3], [29, 29, 29], 1),  # where all have few, the lowest rate counts
        ([0.2, 0.2, 0.2], [40, 50, 60], 0),  # the first of equals
        ([math.nan, 0.4, math.nan], [0, 1, 0], 1),
        ([math.nan, math.nan], [0, 0], 0),
    ],
)
def test_the_least_favoured_has_the_lowest_rate_of_those_with_enough_rows(
    rates: list[float], rows: list[float], expected: int
):
    assert least_favoured(rates, rows) == expected


def test_rates_are_those_of_the_training_rows_and_values_without_any_are_ignored():
    """Of value c there is a test row only."""
    sex = column(["a", "a", "b", "b", "c"])
    favoured = np.array([False, True, True, True, False])
    groups = groups_of({"sex": sex}, training=Training(np.array([0, 1, 2, 3]), favoured))
    assert groups.unprivileged == (0,)
    turned = groups_of({"sex": sex}, training=Training(np.array([1, 2, 3, 0]), ~favoured))
    assert turned.unprivileged == (1,)


@pytest.mark.parametrize(
    "labels, expected",
    [
        (("0", "1"), 1),
        (("1", "0"), 0),
        (("no", "yes"), 1),
        (("YES ", "no"), 0),
        (("10", "9"), 0),
        (("good", "bad"), None),
        (("0", "1", "2"), None),
        (("1",), None),
    ],
)
def test_of_two_labels_the_larger_number_or_yes_is_favourable(
    labels: tuple[str, ...], expected: int | None
):
    assert usual_favourable(labels) == expected
    assert favourable_label(None, labels) == (1 if expected is None else expected)
    assert favourable_label(labels[0], labels, needed=True) == 0
    if expected is None:
        with pytest.raises(ValueError, match="Name it"):
            favourable_label(None, labels, needed=True)


@pytest.mark.parametrize("count, shown", [(10, "label 9. Name"), (11, "label 9, .... Name")])
def test_an_error_lists_up_to_ten_labels(count: int, shown: str):
    with pytest.raises(ValueError) as error:
        favourable_label(None, tuple(f"label {i}" for i in range(count)), needed=True)
    assert shown in str(error.value)

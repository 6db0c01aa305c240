"""Columns as words and numbers: what is accepted as labels, predictions and groups, at the borders
of what is.
"""

import re
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from evenly.auditing.people import (
    MOST_LABELS,
    NO_VALUE,
    MatchedLabels,
    find_favourable,
    form_groups,
    match_labels,
    outcomes,
    unprivileged_values,
)
from evenly.auditing.read import (
    MISSING,
    CodedColumn,
    count,
    from_arrow,
    how_many,
    of_values,
    plain_array,
    refuse_nested,
    row_words,
)
from evenly.data.sensitive import MOST_CLASSES, Sensitive


def coded(words: list[str], codes: list[int] | None = None, name: str = "y") -> CodedColumn:
    return CodedColumn(
        name, tuple(words), np.array(range(len(words)) if codes is None else codes, np.int32)
    )


def both(label: list[str], prediction: list[str], min_cell: int = 10) -> MatchedLabels:
    return match_labels(coded(label), coded(prediction, name="p"), min_cell)


# Columns


def test_numbers_of_rows_are_told_unless_they_are_too_few():
    assert [how_many(rows, 10) for rows in (9, 10, 1200)] == [
        "fewer than 10 rows",
        "10 rows",
        "1,200 rows",
    ]
    assert (how_many(1, 0), how_many(1, 1), how_many(2, 1), how_many(0, 0)) == (
        "1 row",
        "1 row",
        "2 rows",
        "0 rows",
    )
    assert (count(1, 3), count(2, 3)) == ("1 of 3 rows is", "2 of 3 rows are")
    assert row_words(0) == "row 1 (counting from 1, without the header)"


def test_words_are_told_apart_without_the_space_around_them():
    found = of_values("sex", ["m", " f", None, "f ", "  "], np.array([0, 1, 2, 3, 4, -1, 0]))
    assert found.words == ("f", "m")
    assert found.codes.tolist() == [1, 0, MISSING, 0, MISSING, MISSING, 1]
    assert found.missing_rows.tolist() == [False, False, True, False, True, True, False]
    nothing = of_values("sex", [None, ""], np.array([0, 1, -1]))
    assert (nothing.words, nothing.codes.tolist()) == ((), [MISSING] * 3)
    with pytest.raises(ValueError, match=r"1 of 3 rows is empty, the first is row 2 "):
        CodedColumn("sex", ("f",), np.array([0, -1, 0])).require_complete("")


def test_a_piece_of_an_array_is_read_from_where_it_begins():
    whole = pa.array([1.5, None, 2.5, None, 4.5, 5.5])
    np.testing.assert_array_equal(plain_array(whole[2:5], np.nan), [2.5, np.nan, 4.5])
    np.testing.assert_array_equal(plain_array(whole[4:], np.nan), [4.5, 5.5])
    chunks = pa.chunked_array([pa.array(["b", None]), pa.array(["a", "b", "a"])[1:]])
    for column in (chunks, chunks.dictionary_encode()):
        found = from_arrow(pa.table({"g": column}), "g")
        assert (found.words, found.codes.tolist()) == (("a", "b"), [1, MISSING, 1, 0])
    empty = from_arrow(pa.table({"g": pa.chunked_array([], pa.string())}), "g")
    assert (empty.words, len(empty.codes)) == ((), 0)
    # some versions of pyarrow leave a column without pieces as it is
    left = pa.chunked_array([], pa.string()).dictionary_encode()
    column = SimpleNamespace(type=left.type, unify_dictionaries=lambda: column)
    column.combine_chunks = lambda: left
    found = from_arrow(SimpleNamespace(column=lambda name: column), "g")
    assert (found.words, len(found.codes)) == ((), 0)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int8()),
        pa.struct({"a": pa.int8()}),
        pa.binary(),
        pa.large_binary(),
        pa.binary(4),
        pa.dictionary(pa.int8(), pa.binary()),
    ],
    ids=str,
)
def test_columns_of_neither_words_nor_numbers_are_refused(kind: pa.DataType):
    with pytest.raises(ValueError, match=r"t\.parquet: column 'g' must hold one word or number"):
        refuse_nested("t.parquet", "g", kind)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.int64(), pa.bool_(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_columns_of_words_or_numbers_are_accepted(kind: pa.DataType):
    refuse_nested("t.parquet", "g", kind)


# Labels


def test_labels_and_predictions_have_the_same_numbers():
    found = match_labels(
        coded(["no", "yes"], [1, 0, 1]), coded(["maybe", "no", "yes"], [2, 0, 1], "p"), 0
    )
    assert (found.labels, found.true_labels) == (("maybe", "no", "yes"), ("no", "yes"))
    assert (found.label.tolist(), found.prediction.tolist()) == ([2, 1, 2], [2, 0, 1])
    assert found.notes == (
        "Predicted 'maybe', which never occurs as a label: 1 row, counted as wrong.",
    )
    assert both(["no", "yes"], ["no", "yes"]).notes == ()


def test_true_and_false_beside_numbers_are_numbers():
    words = "True is read as 1 and False as 0, because the other column holds numbers."
    for label, prediction, column in (
        (["False", "True"], ["0", "1.0"], "y"),
        (["0", "1"], ["FALSE", "true"], "p"),
    ):
        found = both(label, prediction)
        assert (found.labels, found.label.tolist(), found.prediction.tolist()) == (
            ("0", "1"),
            [0, 1],
            [0, 1],
        )
        assert found.notes == (f"In column {column!r} {words}",)
    alike = both(["false", "TRUE"], ["False", "True"])
    assert (alike.labels, alike.notes) == (("False", "True"), ())
    with pytest.raises(ValueError, match="are not those of 'y'"):
        both(["False", "True"], ["2", "3"])  # no 1 and no 0: these are other words


def test_numbers_are_matched_as_numbers_only_where_both_columns_hold_them():
    assert both(["1.0", "2e0"], ["01", "2"]).labels == ("1", "2")
    assert both(["-1.50", "2", "3"], ["-1.5", "2"]).labels == ("-1.5", "2", "3")
    assert both(["1.0", "a"], ["1.0", "2"]).labels == ("1.0", "2", "a")
    assert both(["nan", "1"], ["nan", "1"]).labels == ("1", "nan")  # words: there is no such number


def test_most_labels_that_are_classes():
    names = [f"c{i}" for i in range(MOST_LABELS + 1)]
    assert len(both(names[:MOST_LABELS], names[:2]).labels) == MOST_LABELS
    with pytest.raises(
        ValueError, match=r"holds 1,001 different values \('c0', 'c1', 'c2', 'c3', 'c4', …\)"
    ):
        both(names, names[:2])


def test_labels_of_which_most_are_fractions_are_a_quantity():
    assert both(["1", "1.5"], ["1"]).labels == ("1", "1.5")
    assert both(["0.5", "1.5", "a"], ["a"]).labels == ("0.5", "1.5", "a")
    with pytest.raises(ValueError, match="holds 3 different values"):
        both(["1", "1.5", "2.5"], ["1"])
    with pytest.raises(ValueError, match="It seems to hold scores"):
        both(["0", "1"], ["0", "0.25", "0.5"])
    with pytest.raises(
        ValueError,
        match=re.escape(
            "The values of 'p' ('a', 'b', 'c', 'd', 'e') are not those of 'y' ('0', '1'). Write"
        ),
    ):
        both(["0", "1"], list("abcde"))


def test_two_labels_are_needed():
    assert both(["a", "b"], ["a"]).labels == ("a", "b")
    with pytest.raises(ValueError, match="must hold at least two labels, but every row holds 'a'"):
        match_labels(coded(["a"], [0, 0]), coded(["a"], [0, 0], "p"), 10)


@pytest.mark.parametrize(
    ("value", "label"),
    [(1, "1"), (1.0, "1"), ("1.0", "1"), (True, "1"), ("false", "0"), (" 0 ", "0"), (None, "1")],
)
def test_the_favourable_label_may_be_written_in_many_ways(value: object, label: str):
    found = both(["0", "1"], ["0", "1"])
    place = find_favourable(value, found)
    assert place is not None
    assert found.labels[place] == label


def test_a_favourable_label_is_asked_for_only_where_one_of_two_is_needed():
    words, three = both(["bad", "good"], ["bad"]), both(["a", "b", "c"], ["a"])
    assert find_favourable(None, words) is None
    assert find_favourable(None, three, needed=True) is None
    assert find_favourable(None, both(["no", "yes"], ["no"]), needed=True) == 1
    assert find_favourable("c", three) == 2
    with pytest.raises(ValueError, match="do not say which that is"):
        find_favourable(None, words, needed=True)
    with pytest.raises(ValueError, match="There is no label 'd'"):
        find_favourable("d", three)


def test_outcomes_tell_right_from_wrong_and_favourable_from_not():
    rows = MatchedLabels(
        ("a", "b", "c"), np.array([0, 0, 0, 1, 1, 2, 2]), np.array([0, 1, 2, 1, 0, 2, 0]), ()
    )
    label, outcome, kinds = outcomes(rows, 1)
    assert (label.tolist(), outcome.tolist(), kinds) == (
        [0, 0, 0, 1, 1, 0, 0],
        [0, 1, 2, 1, 0, 0, 2],
        3,
    )
    label, outcome, kinds = outcomes(rows, None)
    assert (label.tolist(), outcome.tolist(), kinds) == ([0] * 7, [0, 1, 1, 0, 1, 0, 1], 2)
    two = MatchedLabels(("a", "b"), np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), ())
    label, outcome, kinds = outcomes(two, 0)
    assert (label.tolist(), outcome.tolist(), kinds) == ([1, 1, 0, 0], [1, 0, 1, 0], 2)


# People


def test_people_without_a_value_are_the_last_group():
    found = form_groups([coded(["f", "m"], [1, -1, 0], "sex")], 2)
    assert found.parts[0].codes.tolist() == [1, 2, 0]
    assert found.names == ("sex",)
    assert found.parts[0].values == ("f", "m", NO_VALUE) == ("f", "m", "(missing)")
    whole = form_groups([coded(["f", "m"], [1, 0], "sex")], 2)
    assert (whole.parts[0].values, whole.notes) == (("f", "m"), ())
    assert form_groups([], 2).groups.names == ("all",)


@pytest.mark.parametrize(
    ("min_cell", "words"),
    [
        (1, "1 row, in the group “(missing)”, which is not compared with other groups."),
        (
            2,
            (
                "fewer than 2 rows, in the group “(missing)”, which is not compared with other"
                " groups. If the group is hidden"
            ),
        ),
    ],
)
def test_it_is_said_what_becomes_of_people_without_a_value(min_cell: int, words: str):
    (note,) = form_groups([coded(["f", "m"], [1, -1, 0], "sex")], min_cell).notes
    assert note.startswith(f"Without a value of sex: {words}")


def test_a_column_of_groups_has_from_two_to_a_thousand_values():
    names = [f"v{i}" for i in range(MOST_CLASSES + 1)]
    assert len(form_groups([coded(names[:MOST_CLASSES])], 10).parts[0].values) == MOST_CLASSES
    with pytest.raises(ValueError, match="at most 1000 different values, got 1,001"):
        form_groups([coded(names)], 10)
    with pytest.raises(ValueError, match="at least two values to make groups, but holds 'v0'"):
        form_groups([coded(names[:1])], 10)


def test_unprivileged_values_are_found_in_their_columns():
    sex, age = (
        Sensitive("sex", ("f", "m", "(missing)"), np.zeros(1, int)),
        Sensitive("age", ("18", "30"), np.zeros(1, int)),
    )
    assert unprivileged_values(None, [sex, age]) == {}
    assert unprivileged_values("m", [sex]) == {"sex": 1}
    assert unprivileged_values(" m ", [sex]) == {"sex": 1}
    assert unprivileged_values({"age": 30, "sex": "f"}, [sex, age]) == {"age": 1, "sex": 0}
    for value, parts, words in (
        ("(missing)", [sex], "There is no value '(missing)' in column 'sex'"),
        ("x", [sex], "There is no value 'x' in column 'sex'"),
        ({"race": "x"}, [sex], "There is no sensitive column 'race'"),
        ("m", [], "needs a sensitive column, but there is none"),
        ("m", [sex, age], "must be given with its column, such as sex=m, got only 'm'"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            unprivileged_values(value, parts)

"""Columns of every kind become finite numbers, and what cannot is refused by name."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.data.encoding import MISSING, Categorical, Encoder, TableColumn, fit_encoder


def fitted(frame: pd.DataFrame, training: list[int] | None = None) -> Encoder:
    return fit_encoder(
        frame,
        list(frame.columns),
        np.arange(len(frame)) if training is None else np.array(training),
    )


def encoded(*values: Any, dtype: Any = None) -> tuple[tuple[str, ...], np.ndarray]:
    frame = pd.DataFrame({"c": pd.Series(list(values), dtype=dtype)})
    encoder = fitted(frame)
    return encoder.features, encoder.encode(frame)


@pytest.mark.parametrize(
    "dtype", ["int64", "uint8", "float32", "Int64", "Float64", "int64[pyarrow]", object]
)
def test_numbers_of_every_dtype_are_standardised(dtype: Any) -> None:
    features, x = encoded(1, 2, 6, dtype=dtype)
    # mean 3, deviation sqrt((4 + 1 + 9) / 3)
    np.testing.assert_allclose(x[:, 0], np.array([-2, -1, 3]) / np.sqrt(14 / 3), rtol=1e-6)
    assert features == ("c",)
    assert x.dtype == np.float32


@pytest.mark.parametrize("dtype", ["float64", "Int64", "Float64", "int64[pyarrow]", object])
def test_a_missing_number_is_the_mean_and_flagged(dtype: Any) -> None:
    features, x = encoded(1, None, 3, dtype=dtype)
    np.testing.assert_array_equal(x, [[-1, 0], [0, 1], [1, 0]])
    assert features == ("c", "c is missing")


@pytest.mark.parametrize("dtype", ["boolean", "bool[pyarrow]", object])
def test_booleans_are_numbers_missing_or_not(dtype: Any) -> None:
    np.testing.assert_array_equal(
        encoded(False, None, True, dtype=dtype)[1], [[-1, 0], [0, 1], [1, 0]]
    )


def test_decimals_and_sparse_columns_are_numbers() -> None:
    assert encoded(Decimal("1.5"), Decimal("2.5"))[1].tolist() == [[-1], [1]]
    assert fitted(pd.DataFrame({"c": pd.arrays.SparseArray([0.0, 0.0, 3.0])})).features == ("c",)


@pytest.mark.parametrize(
    "dtype", ["str", "string", "category", "string[pyarrow]", pd.ArrowDtype(pa.string()), object]
)
def test_words_of_every_dtype_are_categories(dtype: Any) -> None:
    features, x = encoded("b", "a", None, "b", dtype=dtype)
    assert features == (f"c={MISSING}", "c=a", "c=b")
    np.testing.assert_array_equal(x, [[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 1]])


def test_numbers_declared_as_categories_are_categories_whatever_their_type_later() -> None:
    frame = pd.DataFrame({"zip": pd.Series([10, 20, 10], dtype="category")})
    encoder = fitted(frame)
    assert encoder.features == ("zip=10", "zip=20")
    for later in ([20], [20.0], ["20"]):
        np.testing.assert_array_equal(encoder.encode(pd.DataFrame({"zip": later})), [[0, 1]])


def test_a_mix_of_words_and_numbers_is_words() -> None:
    assert encoded("a", 1, 2.0)[0] == ("c=1", "c=2", "c=a")


@pytest.mark.parametrize("value", [0.1, 1e300, -3, True, 0])
def test_a_constant_number_is_zero(value: Any) -> None:
    assert encoded(*[value] * 7)[1].tolist() == [[0.0]] * 7


def test_a_constant_word_is_one_feature() -> None:
    assert encoded("a", "a")[1].tolist() == [[1.0], [1.0]]


def test_an_empty_column_is_constant() -> None:
    assert encoded(None, None, dtype="float64")[1].tolist() == [[0.0, 1.0]] * 2
    assert encoded(None, None, dtype="str")[1].tolist() == [[1.0]] * 2


def test_a_category_never_seen_is_all_zeros_and_a_new_gap_is_the_mean() -> None:
    encoder = fitted(pd.DataFrame({"w": ["a", "b"], "n": [1.0, 3.0]}))
    np.testing.assert_array_equal(
        encoder.encode(pd.DataFrame({"w": ["z", None], "n": [None, 4.0]})), [[0, 0, 0], [0, 0, 2]]
    )


def test_columns_are_found_by_name_and_others_ignored() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    encoder = fitted(frame)
    np.testing.assert_array_equal(
        encoder.encode(frame.assign(z=0)[["z", "b", "a"]]), encoder.encode(frame)
    )


def test_scaling_categories_and_missing_flags_come_from_training_rows_only() -> None:
    """Test rows must not decide which features there are: a value that only they have is none of
    the categories.
    """
    frame = pd.DataFrame({"n": [0.0, 2.0, 100.0, None], "w": ["a", "c", "b", None]})
    encoder = fitted(frame, [0, 1])
    assert encoder.features == ("n", "w=a", "w=c")
    np.testing.assert_array_equal(
        encoder.encode(frame), [[-1, 1, 0], [1, 0, 1], [99, 0, 0], [0, 0, 0]]
    )
    assert fitted(frame, [0, 3]).features == ("n", "n is missing", f"w={MISSING}", "w=a")


@pytest.mark.parametrize(
    "values",
    [
        pd.to_datetime(["2020-01-01", "2020-01-02"]),
        pd.to_datetime(["2020-01-01", "2020-01-02"]).tz_localize("UTC"),
        pd.to_timedelta([1, 2], unit="D"),
        [datetime.date(2020, 1, 1), None],
        pd.Series([1, None], dtype=pd.ArrowDtype(pa.date32())),
    ],
)
def test_dates_are_refused_in_training_and_later(values: Any) -> None:
    with pytest.raises(
        TypeError, match=r"Column 'when' holds dates or times.*leave the column out"
    ):
        fitted(pd.DataFrame({"when": values}))
    for first in ([1.0, 2.0], ["a", "b"]):
        with pytest.raises(TypeError, match="Column 'when' holds dates"):
            fitted(pd.DataFrame({"when": first})).encode(pd.DataFrame({"when": values}))


@pytest.mark.parametrize(
    ("value", "kind"), [([1], "list"), ({"a": 1}, "dict"), (1j, "complex"), (np.ones(2), "ndarray")]
)
def test_what_is_neither_a_number_nor_a_word_is_refused(value: Any, kind: str) -> None:
    with pytest.raises(
        TypeError, match=f"Column 'c' must hold numbers or words, but some rows hold a {kind}"
    ):
        encoded(value, None, dtype=object)


def test_infinity_is_refused_with_its_row() -> None:
    with pytest.raises(ValueError, match=r"Column 'c' must be finite; row 2 \(counting from 0\)"):
        encoded(1.0, 2.0, -np.inf)


def test_a_column_that_turned_into_words_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match="Column 'c' was numeric in training, so it must hold numbers; it has dtype str",
    ):
        fitted(pd.DataFrame({"c": [1, 2]})).encode(pd.DataFrame({"c": ["a", "b"]}))


def test_more_than_a_thousand_categories_are_refused_even_if_asked_for() -> None:
    with pytest.raises(ValueError, match="1,001 different words in 9,009 training rows"):
        fitted(pd.DataFrame({"name": [f"p{i % 1001}" for i in range(9009)]}))


def test_a_table_is_required() -> None:
    encoder = fitted(pd.DataFrame({"a": [1, 2], 0: [1, 2]}))
    with pytest.raises(TypeError, match="must be a pandas DataFrame, got a dict"):
        encoder.encode({"a": [1]})
    with pytest.raises(ValueError, match="must have the column 0; it has 'a'"):
        encoder.encode(pd.DataFrame({"a": [1]}))
    with pytest.raises(ValueError, match="'a' occurs 2 times"):
        encoder.encode(pd.DataFrame([[1, 2, 3]], columns=pd.Index(["a", "a", 0])))
    with pytest.raises(TypeError, match=r"words or whole numbers, got \('a', 'b'\)"):
        fitted(pd.DataFrame({("a", "b"): [1, 2]}))
    with pytest.raises(ValueError, match="at least one feature column"):
        fitted(pd.DataFrame(index=[0, 1]))


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([10, 9, 9], ("9", "10")),
        (["10", "9"], ("9", "10")),
        ([1.0, 0.0], ("0", "1")),
        ([True, False], ("False", "True")),
        (["b", "a", "nan"], ("a", "b", "nan")),
        ([2**60 + 1, 2**60], (str(2**60), str(2**60 + 1))),
        (["01", "1", "2"], ("01", "1", "2")),
        (["b", 1, 2], ("1", "2", "b")),
    ],
)
def test_classes_are_sorted_as_numbers_if_all_are(
    values: list[Any], names: tuple[str, ...]
) -> None:
    for kind in (list, np.array, pd.Series):
        found, codes = TableColumn.of("y", kind(values)).classes()
        assert found == names
        assert [found[c] for c in codes] == [
            str(int(v)) if type(v) is float else str(v) for v in values
        ]


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, pd.NaT])
def test_every_kind_of_gap_is_seen(gap: Any) -> None:
    for values in (
        ["a", gap],
        pd.Series(["a", gap], dtype=object),
        np.array(["a", gap], dtype=object),
    ):
        assert TableColumn.of("y", values).missing().tolist() == [False, True]


numbers = st.one_of(
    st.floats(allow_infinity=False),
    st.integers(-(2**60), 2**60).map(float),
    st.sampled_from([5e-324, 1.7e308, -1.7e308]),
)
words = st.one_of(st.none(), st.text(max_size=3), st.booleans(), st.integers(0, 3))


@given(
    st.lists(st.tuples(numbers, words), min_size=1, max_size=15),
    st.lists(st.tuples(numbers, words), min_size=1, max_size=5),
    st.data(),
)
def test_encoding_never_gives_nan_or_infinity(
    rows: list[Any], more: list[Any], data: st.DataObject
) -> None:
    frame = pd.DataFrame(rows, columns=pd.Index(["n", "w"]))
    training = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    encoder = fitted(frame, training)
    words_allowed = isinstance(encoder.columns[1], Categorical)
    new = pd.DataFrame(
        {
            "n": [n for n, _ in more],
            "w": pd.Series([w if words_allowed else None for _, w in more], dtype=object),
        }
    )
    for table in (frame, new):
        x = encoder.encode(table)
        assert x.shape == (len(table), len(encoder.features))
        assert np.isfinite(x).all()


@given(st.permutations(range(8)), st.lists(words, min_size=8, max_size=8))
def test_row_order_does_not_change_the_features_of_the_same_training_rows(
    order: list[int], column: list[Any]
) -> None:
    frame = pd.DataFrame({"w": pd.Series(column, dtype=object), "n": [1.0, None, *range(6)]})
    moved = [order.index(row) for row in (0, 1, 2)]
    assert fitted(frame, [0, 1, 2]).features == fitted(frame.iloc[order], moved).features


@pytest.mark.parametrize("values", [[2.0**53, 1.0], pd.Series([2.0**60, None]), [1e300, "a"]])
def test_floats_too_large_to_tell_apart_are_refused(values: Any) -> None:
    with pytest.raises(
        ValueError, match="it holds whole numbers of at least 9,007,199,254,740,992 as floating"
    ):
        TableColumn.of("Column 'site'", values).refuse_rounded()
    for exact in ([2**60, 1], ["1e300"], [2.0**53 - 1], pd.Series([2**60, None], dtype="Int64")):
        TableColumn.of("site", exact).refuse_rounded()

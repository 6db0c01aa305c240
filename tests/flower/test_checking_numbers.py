"""The first and the last number that a reply may hold, and the first beyond."""

import math
from typing import Any

import numpy as np
import pytest

from evenly.flower import checks as numbers
from evenly.flower import wire
from evenly.flower.checks import ReplyError, ReplySpec, _fits, _places, is_finite

MOST = 2**31 - 1
DOUBLE, SINGLE = float(np.finfo(np.float64).max), float(np.finfo(np.float32).max)


def expected(**changes: Any) -> ReplySpec:
    return ReplySpec(7, 2, 3, **changes)


def words(reading: Any) -> str:
    with pytest.raises(ReplyError) as caught:
        reading()
    return caught.value.args[0]


@pytest.mark.parametrize("rows", [0, 1, 5.0, MOST, np.int64(3), np.float64(4)])
def test_rows_that_a_client_can_have(rows: Any):
    found = numbers.count("rows", rows, "kind")
    assert (found, type(found)) == (int(rows), int)


@pytest.mark.parametrize(
    "rows, said",
    [
        (-1, "whole number of at least 0"),
        (0.5, "whole number of at least 0"),
        (MOST + 1, "no client can have"),
        (True, "one number"),
        ("3", "one number"),
        (None, "one number"),
        (math.inf, "finite"),
        (math.nan, "finite"),
        (10**400, "a whole number beyond any float"),
        (-(10**400), "a whole number beyond any float"),
        (list(range(20)), "[0, 1, 2, 3, 4, 5, 6, 7, 8] as 'rows'"),
    ],
)
def test_rows_that_no_client_can_have(rows: Any, said: str):
    assert said in words(lambda: numbers.count("rows", rows, "kind"))


def test_a_number_may_be_as_large_as_a_float_and_is_quoted_in_part():
    assert [numbers.number("x", value) for value in (DOUBLE, -DOUBLE, int(DOUBLE))] == [
        DOUBLE,
        -DOUBLE,
        DOUBLE,
    ]
    assert (
        words(lambda: numbers.number("x", "y" * 100))
        == f"sent '{'y' * 59} as 'x', which must be one number"
    )


def test_a_loss_is_from_nothing_to_the_largest():
    assert [numbers.loss("loss", value, expected()) for value in (0, 0.5, 1e6)] == [0, 0.5, 1e6]
    assert "at least 0" in words(lambda: numbers.loss("loss", -1e-9, expected()))
    assert "far above" in words(lambda: numbers.loss("loss", 1e6 + 1, expected()))


def test_a_part_may_be_the_whole_and_a_choice_is_of_a_model():
    assert [numbers.part("rows", rows, 10) for rows in (0, 10)] == [0, 10]
    assert "more than its 10 rows" in words(lambda: numbers.part("rows", 11, 10))
    assert [numbers.choice(model, expected(models=3)) for model in (0, 2.0)] == [0, 2]
    for model in (-1, 3, 1.5):
        assert "models 0 to 2" in words(
            lambda model=model: numbers.choice(model, expected(models=3))
        )
    assert numbers.choice(0, expected()) == 0
    assert "models 0 to 0" in words(lambda: numbers.choice(1, expected()))


def sent(array: Any) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    wire.put(metrics, "x", np.asarray(array))
    return metrics


@pytest.mark.parametrize(
    "wanted, fits",
    [((2, 3), True), ((None, 3), True), ((2, None), True), ((3, 2), False), ((2,), False)],
)
def test_an_array_has_the_shape_that_is_wanted(wanted: tuple[int | None, ...], fits: bool):
    metrics = sent(np.arange(6).reshape(2, 3))
    if fits:
        assert numbers.array("x", metrics, wanted).tolist() == [[0, 1, 2], [3, 4, 5]]
    else:
        assert "with shape [2, 3], where" in words(lambda: numbers.array("x", metrics, wanted))


@pytest.mark.parametrize("entry", [-1e-9, math.nan, math.inf])
def test_an_array_holds_finite_numbers_from_0(entry: float):
    assert "negative or not finite" in words(lambda: numbers.array("x", sent([1.0, entry]), (2,)))
    assert "without an entry" in words(
        lambda: numbers.array("x", {"x": [], "x-shape": [0]}, (None,))
    )


def test_a_table_counts_as_many_rows_as_there_are():
    one = np.zeros((1, 2, 2))
    assert not numbers.table("x", sent(one), 0, expected()).any()
    one[0, 0, 0] = MOST
    assert numbers.table("x", sent(one), None, expected()).sum() == MOST
    one[0, 1, 1] = 1
    assert "no client can have" in words(lambda: numbers.table("x", sent(one), None, expected()))
    assert "counts 4 rows, but says that there are 3" in words(
        lambda: numbers.table("x", sent(np.ones((1, 2, 2))), 3, expected())
    )
    assert "2 labels but 3 outcomes" in words(
        lambda: numbers.table("x", sent(np.ones((1, 2, 3))), 6, expected())
    )
    assert "where [2, 2, 2] is needed" in words(
        lambda: numbers.table("x", sent(np.ones((1, 2, 2))), 4, expected(cells=(2, 2)))
    )


def test_losses_of_cells_are_bounded_by_the_rows():
    assert numbers.cell_loss("x", sent([[2e6, 1e6]]), 3, expected()).sum() == 3e6
    assert "with a mean of 1.5e+06 a row" in words(
        lambda: numbers.cell_loss("x", sent([[2e6, 1e6]]), 2, expected())
    )
    assert "where [2, 1] is needed" in words(
        lambda: numbers.cell_loss("x", sent([[1.0, 1.0]]), 2, expected(cells=(2, 1)))
    )


def test_a_squared_length_is_a_number_of_single_precision():
    for square in (0, 1.0, SINGLE):
        numbers.check_norm({"square-norm": square}, expected())
    numbers.check_norm({}, expected())
    assert "negative" in words(lambda: numbers.check_norm({"square-norm": -1e-9}, expected()))
    assert "infinity in single" in words(
        lambda: numbers.check_norm({"square-norm": SINGLE * 1.01}, expected())
    )
    assert "sent no 'square-norm'. The method needs" in words(
        lambda: numbers.check_norm({}, expected(needs=frozenset({"square_norm"})))
    )
    numbers.check_norm({"square-norm": 1.0}, expected(needs=frozenset({"square_norm"})))


def test_a_coefficient_is_repeated_as_it_was_told():
    one, two = expected(coefficient=np.array(0.25)), expected(coefficient=np.array([0.25, 0.0]))
    numbers.check_coefficient({}, expected())
    numbers.check_coefficient({"coefficient": 0.25 * (1 + 1e-6)}, one)
    numbers.check_coefficient({"coefficient": [0.25, 0.0]}, two)
    assert "sent no 'coefficient'" in words(lambda: numbers.check_coefficient({}, one))
    assert words(lambda: numbers.check_coefficient({"coefficient": 0.2501}, one)).endswith(
        "by 0.2501, where it was told 0.25"
    )
    for wrong in (0.25, [0.25], [0.25, 1e-9]):
        assert words(
            lambda wrong=wrong: numbers.check_coefficient({"coefficient": wrong}, two)
        ).endswith("was told [0.25, 0.0]")


FITS = [
    (np.array([3.4e38]), np.float32, True), (np.array([-3.4e38, 0]), np.float32, True),
    (np.array([SINGLE]), np.float32, True), (np.array([3.5e38, 0]), np.float32, False),
    (np.array([-3.5e38, 0]), np.float32, False), (np.array([7e4], np.float32), np.float16, False),
    (np.array([7e4], np.float32), np.float64, True), (np.array([-128, 127]), np.int8, True),
    (np.array([0, 128]), np.int8, False), (np.array([-129, 0]), np.int8, False),
    (np.array([0, 255]), np.uint8, True), (np.array([-1]), np.uint8, False),
    (np.zeros(0), np.float16, True), (np.array([2**40]), np.bool_, True),
]  # fmt: skip


@pytest.mark.parametrize("array, kind, fits", FITS)
def test_numbers_fit_a_type_up_to_its_largest(array: np.ndarray, kind: Any, fits: bool):
    assert _fits(array, np.dtype(kind)) is fits


def test_an_order_is_of_places_from_0():
    assert [
        _places(np.array(own)) for own in ([0], [1, 0], [1], [0, 0], [-1, 0], [[3, 1], [0, 2]])
    ] == [
        True,
        True,
        False,
        False,
        False,
        True,
    ]
    assert _places(np.zeros(0))
    assert not _places(np.array([0, 2**40]))  # and nothing is allocated for it


def test_whole_numbers_are_finite_and_complex_ones_may_be_not():
    assert is_finite(np.array([2**62]))
    assert not is_finite(np.array([1, np.nan], np.complex64))
    assert not is_finite(np.array([-np.inf, np.inf]))

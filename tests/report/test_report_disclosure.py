"""Hidden cells stay hidden: no small cell is shown, and no total gives one away."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from evenly.report.disclosure import find_solvable, hidden_words, hide, small_cells

TABLES = arrays(
    np.int64, array_shapes(min_dims=2, max_dims=3, max_side=4), elements=st.integers(0, 40)
)


@given(TABLES, st.integers(0, 15))
def test_small_cells_are_hidden_and_empty_ones_are_not_small(counts, least):
    found = hide(counts, least)
    np.testing.assert_array_equal(found.cells, (counts > 0) & (counts < least))
    np.testing.assert_array_equal(found.cells, small_cells(counts, least))


@given(TABLES, st.integers(2, 15))
def test_no_total_gives_a_cell_or_a_small_sum_away(counts, least):
    axes = range(counts.ndim)
    found = hide(counts, least, sums=axes)
    assert (found.cells >= found.small).all()
    for axis in axes:
        # what a reader gets by subtracting what is shown from the total
        remainder = np.where(found.cells, counts, 0).sum(axis)
        number = (found.cells & (counts > 0)).sum(axis)
        shown = ~found.totals[axis]
        assert ((number == 0) | ((number > 1) & (remainder >= least)))[shown].all()


@given(
    arrays(
        np.int64,
        array_shapes(min_dims=2, max_dims=2, min_side=3, max_side=6),
        elements=st.integers(5, 25),
    ),
    st.integers(8, 12),
)
def test_no_small_cell_follows_from_all_totals_together(counts, least):
    found = hide(counts, least, sums=[0, 1])
    told = [at for at in find_solvable(found.cells, counts, least, [0, 1]) if found.small[at]]
    assert not told or found.cells.all()


def test_a_cell_between_two_blocks_is_not_left_to_be_solved_for():
    counts = np.array(
        [
            [17, 14, 16, 11, 10],
            [15, 9, 16, 21, 14],
            [15, 6, 16, 18, 14],
            [13, 17, 13, 14, 17],
            [17, 12, 8, 8, 10],
        ]
    )
    counts = np.vstack([counts, [11, 15, 10, 14, 21]])
    found = hide(counts, 10, sums=[0, 1])
    # With x in the corner of a rectangle of hidden cells, all totals stay the same; a linear solver
    # finds no unique answer.
    places = np.argwhere(found.cells).tolist()
    totals = np.array(
        [[place[0] == i for place in places] for i in range(6)]
        + [[place[1] == j for place in places] for j in range(5)],
        float,
    )
    for at in np.argwhere(found.small).tolist():
        alone = np.eye(len(places))[places.index(at)]
        assert (
            np.linalg.norm(np.linalg.lstsq(totals.T, alone, rcond=None)[0] @ totals - alone) > 1e-6
        )


@given(TABLES, st.integers(2, 15))
def test_a_total_is_withheld_only_where_nothing_is_left_to_hide(counts, least):
    found = hide(counts, least, sums=range(counts.ndim))
    for axis, withheld in found.totals.items():
        assert not (withheld & (~found.cells & (counts > 0)).any(axis)).any()


@given(TABLES, st.integers(-2, 1))
def test_nothing_is_hidden_where_nothing_is_asked(counts, least):
    found = hide(counts, least, sums=range(counts.ndim))
    assert not found.any
    assert not any(withheld.any() for withheld in found.totals.values())


def test_two_small_cells_whose_sum_is_small_take_a_third_with_them():
    # The total less what is shown would tell of 3 people; with the 20 hidden as well it tells of
    # 23.
    assert hide([1, 2, 20, 88], 10, sums=[0]).cells.tolist() == [True, True, True, False]
    assert hide([4, 7, 20, 88], 10, sums=[0]).cells.tolist() == [True, True, False, False]


def test_a_single_cell_cannot_be_hidden_behind_its_total():
    found = hide([[3, 0], [50, 60]], 10, sums=[1])
    assert found.cells.tolist() == [[True, False], [False, False]]
    assert found.totals[1].tolist() == [True, False]


def test_cells_hidden_for_other_reasons_are_protected_too():
    assert hide([50, 60, 70], 10, sums=[0], also=[False, False, True]).cells.tolist() == [
        True,
        False,
        True,
    ]


def test_a_cell_hidden_for_its_row_is_covered_in_its_column_as_well():
    counts = np.array([[3, 30, 90], [40, 80, 70], [60, 50, 99]])
    found = hide(counts, 10, sums=[0, 1])
    assert (found.cells.sum(0)[found.cells.any(0)] >= 2).all()
    assert (found.cells.sum(1)[found.cells.any(1)] >= 2).all()
    assert not found.totals[0].any()
    assert not found.totals[1].any()


@pytest.mark.parametrize("bad", [[-1, 2], [float("nan"), 2]])
def test_impossible_counts_are_refused(bad):
    with pytest.raises(ValueError, match="Counts must be 0 or more, got"):
        hide(bad, 10)


def test_the_words_count_what_is_hidden():
    assert hidden_words([hide([30, 40], 10)], 10) == ""
    assert (
        hidden_words([hide([3, 40], 10)], 10)
        == "1 cell is not shown: 1 rests on fewer than 10 people."
    )
    both = [hide([3, 40, 50], 10, sums=[0]), hide([2, 4], 10)]
    assert (
        hidden_words(both, 10, what="client", whom="rows")
        == "4 clients are not shown: 3 rest on fewer than 10 rows, and 1 is hidden because totals"
        " would give the others away."
    )

"""Inferred groups against true ones."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from evenly.metrics.runs import best_matching, group_accuracy


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(st.integers(-5, 9), min_size=n, max_size=n), min_size=n, max_size=n)))
def test_no_matching_gains_more(rows: list):
    gain = np.array(rows)
    n = len(gain)
    found = best_matching(gain)
    assert sorted(found) == list(range(n))
    total = lambda columns: sum(gain[i, j] for i, j in enumerate(columns))  # noqa: E731
    assert total(found) == max(total(p) for p in itertools.permutations(range(n)))


@pytest.mark.parametrize("n", [10, 60])
def test_it_agrees_with_scipy_on_larger_tables(n: int):
    gain = np.random.default_rng(n).normal(size=(n, n))
    rows, columns = linear_sum_assignment(gain, maximize=True)
    np.testing.assert_array_equal(best_matching(gain), columns[np.argsort(rows)])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.permutations(range(4)))
def test_names_do_not_matter(true: list, names: list):
    assert group_accuracy([names[g] for g in true], true) == 100


def test_clients_in_the_wrong_group_count():
    assert group_accuracy([0, 0, 0, 1], [1, 1, 0, 0]) == 75
    assert group_accuracy([0, 1, 2, 3], [0, 0, 0, 0]) == 25, "only one inferred group can be the true one"
    assert group_accuracy([0, 0, 0, 0], [0, 1, 2, 3]) == 25
    assert np.isnan(group_accuracy([], []))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"one inferred and one true group per client, got \[1\] and \[2\]"):
        group_accuracy([0], [0, 1])
    with pytest.raises(ValueError, match=r"square table, got \[2, 3\]"):
        best_matching(np.zeros((2, 3)))


def test_matching_by_hand():
    assert best_matching(np.array([[3]])).tolist() == [0]
    assert best_matching(np.zeros((0, 0))).tolist() == []
    # Taking 9 for the first row would leave 1 for the second: 8 + 7 is more.
    assert best_matching(np.array([[9, 8], [7, 1]])).tolist() == [1, 0]
    assert best_matching(np.array([[0, 0, 5], [5, 0, 0], [0, 5, 0]])).tolist() == [2, 0, 1]
    assert group_accuracy([0], [0]) == group_accuracy([4], [0]) == 100
    with pytest.raises(ValueError, match="one inferred and one true group per client"):
        group_accuracy([[0]], [[0]])

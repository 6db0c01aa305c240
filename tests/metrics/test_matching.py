"""Inferred groups against true ones."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.metrics.runs import group_accuracy


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=14))
def test_no_other_names_of_the_inferred_groups_match_more_clients(pairs: list):
    inferred, true = np.array(pairs).T
    best = max(
        np.mean(np.array(names)[inferred] == true) for names in itertools.permutations(range(4))
    )
    assert group_accuracy(inferred, true) == 100 * best


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.permutations(range(4)))
def test_names_do_not_matter(true: list, names: list):
    assert group_accuracy([names[g] for g in true], true) == 100


def test_clients_in_the_wrong_group_count():
    assert group_accuracy([0, 0, 0, 1], [1, 1, 0, 0]) == 75
    assert group_accuracy([0, 1, 2, 3], [0, 0, 0, 0]) == 25, (
        "only one inferred group can be the true one"
    )
    assert group_accuracy([0, 0, 0, 0], [0, 1, 2, 3]) == 25
    assert np.isnan(group_accuracy([], []))


def test_bad_input_is_refused():
    with pytest.raises(
        ValueError, match=r"one inferred and one true group per client, got \[1\] and \[2\]"
    ):
        group_accuracy([0], [0, 1])


def test_matching_by_hand():
    # Naming group 0 for the nine clients that it shares with 0 would leave one for group 1: 8 + 7
    # is more.
    inferred, true = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], [9, 8, 7, 1], axis=0).T
    assert group_accuracy(inferred, true) == 100 * 15 / 25
    assert group_accuracy([0], [0]) == group_accuracy([4], [0]) == 100
    with pytest.raises(ValueError, match="one inferred and one true group per client"):
        group_accuracy([[0]], [[0]])


def test_negative_group_numbers_are_refused():
    with pytest.raises(ValueError, match="numbered from 0"):
        group_accuracy([-1, -1], [0, 1])

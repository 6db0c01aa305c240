import numpy as np
import pytest

from evenly.metrics import covered, good_clients, representation_rates, represented

CELLS = np.array([[10, 20], [30, 40], [0, 0]])


def test_rates_are_shares_of_all_rows_and_sum_to_one():
    np.testing.assert_allclose(representation_rates(CELLS), [0.3, 0.7, 0])
    assert np.isnan(representation_rates(np.zeros((2, 2), int))).all()
    many = np.stack([CELLS, 2 * CELLS])  # clients
    np.testing.assert_allclose(representation_rates(many).sum(-1), 1)


def test_thresholds_are_reached_at_equality():
    np.testing.assert_array_equal(represented(CELLS, 0.3), [True, True, False])
    np.testing.assert_array_equal(covered(CELLS, 30), [True, True, False])
    np.testing.assert_array_equal(covered(CELLS, 31), [False, True, False])


def test_good_clients_reach_the_coverage_less_the_tolerance():
    # The thesis' example: coverage 1000 with a tolerance of a tenth asks for 900.
    np.testing.assert_array_equal(
        good_clients(np.array([899, 900, 1000]), 1000, 0.1), [False, True, True]
    )
    np.testing.assert_array_equal(good_clients(np.array([999, 1000]), 1000, 0), [False, True])
    with pytest.raises(ValueError, match=r"tolerance must be from 0 to 1, got 2\."):
        good_clients(np.array([1]), 1000, 2)
    for tolerance in (-0.1, 1.01):
        with pytest.raises(ValueError, match="tolerance must be from 0 to 1"):
            good_clients(np.array([1]), 1000, tolerance)
    np.testing.assert_array_equal(good_clients(np.array([0, 1]), 1000, 1), [True, True])
    np.testing.assert_array_equal(good_clients(np.array([89, 90]), 100), [False, True])

"""The federation as arrays on the device, laid out by hand."""

import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.data.splits import SPLITS, Ragged
from evenly.parts.work import Reweigh
from evenly.records import replace
from evenly.simulate.measuring import device_data, evaluation_lists, prepare_weights
from evenly.simulate.traces import row_owners


@pytest.fixture
def two() -> Federation:
    """Seven rows of two clients: five and one to train on, none and one to validate, none to test;
    the first is also central.
    """
    group = np.array(["a", "b", "a", "a", "b", "b", "a"])
    made = Federation.from_arrays(
        np.arange(7.0)[:, None], np.arange(7) % 2, np.array([0, 0, 0, 0, 0, 1, 1]), group=group
    )
    lists = ([[0, 1, 2, 3, 4], [5]], [[], [6]], [[], []])
    parts = {
        split: Ragged.from_lists([np.array(own, np.int64) for own in of])
        for split, of in zip(SPLITS, lists, strict=True)
    }
    return replace(made, **parts, central=np.array([0]))


def test_tables_end_with_a_row_of_padding_and_lists_with_whole_chunks(two: Federation):
    data = device_data(two, None, 4)
    assert data.x.shape == (8, 1)
    assert data.x[:, 0].tolist() == [*two.x[:, 0].tolist(), 0]
    assert data.y.tolist() == [0, 1, 0, 1, 0, 1, 0, 0]
    assert data.weight is data.eval_shared is data.valid_rows is data.valid_start is None
    assert data.train_rows.tolist() == [0, 1, 2, 3, 4, 5, 0, 0]
    assert data.train_start.tolist() == [0, 5, 6]
    # Training, validation and test rows of both clients, then the central row; padding is in no
    # list and points to no row.
    assert data.eval_rows.tolist() == [0, 1, 2, 3, 4, 5, 6, 0]
    assert data.eval_list.tolist() == [0, 0, 0, 0, 0, 1, 3, 6]
    assert data.eval_start.tolist() == [0, 5, 6, 6, 7, 7, 7, 8]
    assert data.examples.tolist() == [5, 1]
    longer = device_data(two, None, 5, valid=True)
    assert longer.eval_rows.tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 7, 7]
    assert longer.eval_list.tolist() == [0, 0, 0, 0, 0, 1, 3, 6, 7, 7]
    assert longer.train_rows.shape == (10,)
    assert longer.valid_rows is not None
    assert longer.valid_start is not None
    assert longer.valid_rows.tolist() == [6, 0, 0, 0, 0]
    assert longer.valid_start.tolist() == [0, 0, 1]


def test_validation_rows_that_nobody_has_are_one_row_of_padding(two: Federation):
    none = replace(two, valid=Ragged(np.zeros(0, np.int64), np.zeros(3, np.int64)))
    data = device_data(none, None, 4, valid=True)
    assert data.valid_rows is not None
    assert data.valid_rows.tolist() == [0]


def test_rows_count_as_the_data_say_and_as_they_are_prepared(two: Federation):
    weighted_sum = replace(two, weight=np.arange(1.0, 8))
    assert prepare_weights(two, [None]) is None
    assert prepare_weights(two, [None, None]) is None
    only = prepare_weights(weighted_sum, [None])
    assert only is not None
    assert only.tolist() == [1, 2, 3, 4, 5, 6, 7]
    # Client 0 has labels 0 1 0 1 0 and groups a b a a b: of a and 0 two rows, 3 * 3 / 5 expected,
    # and so on; client 1 trains on one row.
    expected = np.array([0.9, 0.8, 0.9, 1.2, 1.2, 1, 1])
    found = prepare_weights(two, [Reweigh()])
    assert found is not None
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    both = prepare_weights(weighted_sum, [None, Reweigh()])
    assert both is not None
    np.testing.assert_allclose(
        both, np.stack([np.arange(1, 8), np.arange(1, 8) * expected], 1), rtol=1e-6
    )


def test_only_clients_share_lists_and_empty_ones_are_not_shared(two: Federation):
    """The central row begins the list of client 0 too; that alone makes nobody share."""
    lists, shared = evaluation_lists(two)
    assert shared is None
    assert lists.counts.tolist() == [5, 1, 0, 1, 0, 0, 1]
    same = replace(
        two, test=Ragged.from_lists([np.array([6]), np.array([6])]), central=np.array([6])
    )
    lists, shared = evaluation_lists(same)
    assert shared is not None
    # validation of client 1 and both tests: one list; the central one stays apart
    assert shared.tolist() == [0, 1, 2, 3, 3, 3, 4]
    assert lists.counts.tolist() == [5, 1, 0, 1, 1]


def test_a_panels_rows_are_found_among_those_of_all():
    assert row_owners(np.array([2, 0]), 4).tolist() == [2, 0, 6, 4, 10, 8, 12]

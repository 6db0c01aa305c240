"""The crowd is as large and as unequal as asked for, and is the same however many of it
are drawn.
"""

import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.data.splits import SPLITS
from evenly.datasets import DATASETS, Sizes, synthetic_crowd
from evenly.datasets.synthetic import AT_ONCE, _alive, crowd_sizes


def right_of_one_model(federation: Federation) -> float:
    """How many labels the best linear model that all clients share gets right: least squares on 0/1
    labels.
    """
    x = np.column_stack([federation.x, np.ones(len(federation.y))])
    weights = np.linalg.lstsq(x, np.eye(len(federation.labels))[federation.y], rcond=None)[0]
    return float(((x @ weights).argmax(1) == federation.y).mean())


def test_the_usual_one_is_as_its_card_says():
    federation = synthetic_crowd()
    assert Sizes.of(federation) == DATASETS["synthetic-crowd"].expected
    assert (
        federation.x.dtype,
        federation.y.dtype,
        federation.x.shape[1],
        len(federation.labels),
    ) == (np.float32, np.int32, 60, 10)
    assert federation.names[:2] == ("client 000", "client 001")


def test_every_row_belongs_to_one_client_and_one_split():
    federation = synthetic_crowd(300, features=3)
    sizes = sum(federation.split(name).counts for name in SPLITS)
    np.testing.assert_array_equal(sizes, crowd_sizes(300, 14.0, 0.8, 0))
    owner = np.repeat(np.arange(300), sizes)
    for name in SPLITS:
        part = federation.split(name)
        np.testing.assert_array_equal(owner[part.rows], np.repeat(np.arange(300), part.counts))
    assert sorted(np.concatenate([federation.split(name).rows for name in SPLITS])) == list(
        range(len(owner))
    )
    assert federation.train.counts.min() >= 1


def test_shares_are_cut_as_elsewhere():
    federation = synthetic_crowd(20, rows=10, spread=0, features=2)
    assert [set(federation.split(name).counts) for name in SPLITS] == [{8}, {1}, {1}]
    assert set(
        synthetic_crowd(20, rows=10, spread=0, features=2, train=1.0, valid=0.0).test.counts
    ) == {0}


def test_sizes_have_the_mean_and_the_spread_that_were_asked_for():
    sizes = crowd_sizes(200_000, 40.0, 0.8, 0)
    assert sizes.mean() == pytest.approx(40, rel=0.01)
    assert np.log(sizes).std() == pytest.approx(0.8, abs=0.02)
    assert set(crowd_sizes(50, 14.0, 0.0, 3)) == {14}


def test_the_first_clients_are_those_of_a_larger_crowd():
    settings = {"rows": 3, "features": 4, "classes": 3, "spread": 0.5}
    few, many = synthetic_crowd(100, **settings), synthetic_crowd(AT_ONCE + 50, **settings)
    rows = len(few.y)
    np.testing.assert_array_equal(few.x, many.x[:rows])
    np.testing.assert_array_equal(few.y, many.y[:rows])
    for name in SPLITS:
        np.testing.assert_array_equal(
            few.split(name).rows, many.split(name).rows[: len(few.split(name).rows)]
        )
    assert len(np.unique(many.x[:, 0])) > 0.999 * len(many.x)  # no block repeats another


def test_seeds_decide_data_and_split_apart():
    first, again, other, split = (
        synthetic_crowd(50, **given) for given in ({}, {}, {"seed": 1}, {"split_seed": 1})
    )
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.train.rows, again.train.rows)
    assert first.x.shape != other.x.shape
    np.testing.assert_array_equal(first.x, split.x)
    assert (first.train.rows != split.train.rows).any()


def test_federations_that_differ_only_in_their_split_share_their_rows_while_one_is_in_use():
    first, other = synthetic_crowd(30, features=3), synthetic_crowd(30, features=3, split_seed=1)
    assert first.x is other.x
    assert not first.x.flags.writeable
    assert synthetic_crowd(30, features=3, seed=1).x is not first.x
    kept = first.x.copy()
    del first, other
    assert not [crowd for crowd in _alive if crowd.clients == 30]  # other tests may hold others
    np.testing.assert_array_equal(synthetic_crowd(30, features=3).x, kept)


def test_the_more_clients_disagree_the_less_one_model_is_right():
    right = [
        right_of_one_model(synthetic_crowd(400, classes=4, disagreement=d)) for d in (0.0, 0.5, 2.0)
    ]
    assert right[0] > 0.85 > right[1] > right[2] + 0.1
    assert right[2] > 0.25  # and there is still something that they share


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"clients": 0}, "clients must be at least 1, got 0"),
        ({"rows": 1}, "rows must be at least 2"),
        ({"classes": 1}, "classes must be at least 2"),
        ({"features": 0}, "features must be at least 1"),
        ({"spread": -1}, "spread must be at least 0"),
        ({"disagreement": -0.1}, "disagreement must be at least 0"),
        ({"train": 0}, "train must be above 0"),
        ({"valid": 0.3}, "valid must be from 0 to 1 - train = 0.2, got 0.3"),
        ({"clients": 200_000_000}, "below 2 billion"),
    ],
)
def test_impossible_settings_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        synthetic_crowd(**settings)

"""The synthetic federation: its sizes, its kinds, and what its two seeds decide."""

import numpy as np
import pytest

from evenly.data.splits import SPLITS
from evenly.datasets import synthetic
from evenly.datasets.synthetic import KINDS


def test_a_hundred_clients_have_about_as_many_rows_as_in_the_paper():
    # 100 (exp(4 + 1/2) + 49.5) = 13,950 rows are expected, with a deviation of 10 exp(4.5) sqrt(e -
    # 1) = 1,180.
    totals = np.array([len(synthetic(seed=seed).y) for seed in range(5)])
    assert 12_000 <= totals.mean() <= 15_000
    assert (np.abs(totals - 13_950) < 3 * 1180).all()


def test_shapes_and_shares():
    federation = synthetic(clients=12, features=7, classes=4)
    rows = np.sum([federation.split(s).counts for s in SPLITS], axis=0)
    assert federation.x.shape == (rows.sum(), 7)
    assert federation.x.dtype == np.float32
    assert federation.labels == ("0", "1", "2", "3")
    assert federation.names == tuple(f"client {k:02d}" for k in range(12))
    assert (rows >= 50).all()
    np.testing.assert_array_equal(federation.train.counts, np.floor(np.round(0.8 * rows, 9)))
    assert len(federation.central) == 0


def test_spread_makes_sizes_unequal():
    even, uneven = (
        np.sum([synthetic(clients=30, spread=s).split(n).counts for n in SPLITS], axis=0)
        for s in (0.0, 2.0)
    )
    assert set(even) == {50 + 54}  # floor(exp(4)) = 54
    assert uneven.std() > 100


def centres(kind: str) -> np.ndarray:
    federation = synthetic(kind, clients=20)
    return np.array(
        [np.abs(federation.x[federation.train.of(k)].mean(0)).mean() for k in range(20)]
    )


def test_kinds_differ_in_which_clients_are_alike():
    # Features of alike clients are centred at 0; the others' own centres have deviation at least 1.
    assert (centres("iid") < 0.2).all()
    assert (centres("non-iid") > 0.3).all()
    assert (centres("hybrid")[:10] < 0.2).all()
    assert (centres("hybrid")[10:] > 0.3).all()


def test_clients_that_are_alike_share_one_model():
    # With one linear model for all, a least-squares classifier does as well on other clients as on
    # its own.
    federation = synthetic("iid", clients=10)
    rows = federation.train.rows[: federation.train.offsets[5]]
    with_bias = np.c_[federation.x, np.ones(len(federation.y))]
    weights = np.linalg.lstsq(with_bias[rows], np.eye(10)[federation.y[rows]], rcond=None)[0]
    right = (with_bias @ weights).argmax(1) == federation.y
    others = federation.train.rows[federation.train.offsets[5] :]
    assert right[others].mean() > 0.6


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides_the_data(kind: str):
    one, same, other = (synthetic(kind, clients=5, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.x, same.x)
    np.testing.assert_array_equal(one.train.rows, same.train.rows)
    assert one.x.shape != other.x.shape or (one.x != other.x).any()


def test_the_split_seed_changes_only_the_split():
    one, other = (synthetic(clients=5, split_seed=s) for s in (0, 1))
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_array_equal(one.y, other.y)
    np.testing.assert_array_equal(one.train.offsets, other.train.offsets)
    assert (one.train.rows != other.train.rows).any()


def test_more_clients_do_not_change_the_first_ones():
    small, large = synthetic(clients=3), synthetic(clients=4)
    np.testing.assert_array_equal(small.x, large.x[: len(small.x)])


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="kind must be one of non-iid, iid, hybrid, got 'random'"):
        synthetic("random")
    with pytest.raises(
        ValueError, match="at least 1 client, 1 feature and 2 classes, got 0, 60 and 10"
    ):
        synthetic(clients=0)
    with pytest.raises(ValueError, match="spread must be at least 0, got -1"):
        synthetic(spread=-1)


def test_split_seeds_go_through_the_draws():
    drawn = [synthetic(clients=6, seed=3, draws=2, split_seed=s) for s in range(4)]
    alone = [synthetic(clients=6, seed=3 + s % 2, split_seed=s) for s in range(4)]
    for one, other in zip(drawn, alone, strict=True):
        np.testing.assert_array_equal(one.x, other.x)
        np.testing.assert_array_equal(one.test.rows, other.test.rows)
    # the splits of one draw divide the same rows
    assert sorted(map(tuple, drawn[0].x)) == sorted(map(tuple, drawn[2].x))


def test_at_least_one_draw_is_needed():
    with pytest.raises(ValueError, match="draws must be at least 1, got 0"):
        synthetic(clients=6, draws=0)

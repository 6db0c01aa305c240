"""Equality over clients and equity over groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.datasets.mnist import SIZES
from evenly.metrics.clients import EQUITY_METRICS, equity, group_means, measure_equity

CLIENTS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3)), min_size=1, max_size=20)


def test_numbers_by_hand():
    # Groups (0.5, 0.7) and (0.9): clients have mean 70 and variance (20^2 + 0 + 20^2) / 3; groups
    # 60 and 90.
    found = equity([0.5, 0.7, 0.9], [0, 0, 1], 2)
    expected = {
        "average": 70, "worst10": 50, "best10": 90, "variance": 800 / 3, "std": np.sqrt(800 / 3),
        "group_average": 75, "group_worst10": 60, "group_best10": 90, "group_variance": 225,
        "group_std": 15,
    }  # fmt: skip
    assert found == pytest.approx(expected)


@given(CLIENTS)
def test_it_is_the_plain_formula(cast: list):
    a, g = np.array([x for x, _ in cast]), np.array([q for _, q in cast])
    means = [a[g == q].mean() for q in range(4) if (g == q).any()]
    found = equity(a, g, 4)
    assert found["group_std"] == pytest.approx(100 * np.std(means), abs=1e-9)
    assert found["std"] == pytest.approx(100 * np.std(a), abs=1e-9)
    assert found["group_worst10"] == pytest.approx(100 * min(means))
    assert found["group_best10"] == pytest.approx(100 * max(means))


@given(CLIENTS, st.randoms())
def test_neither_the_order_of_clients_nor_copies_inside_a_group_matter(cast: list, draw):
    shuffled = [pair for pair in cast for _ in range(3 if pair[1] == 0 else 1)]
    draw.shuffle(shuffled)
    one, other = (equity([x for x, _ in c], [q for _, q in c], 4) for c in (cast, shuffled))
    for name in ("group_average", "group_variance", "group_worst10", "group_best10"):
        assert one[name] == pytest.approx(other[name], abs=1e-9)


@given(CLIENTS)
def test_one_group_is_perfectly_equitable_and_one_client_a_group_is_equality(cast: list):
    a = [x for x, _ in cast]
    assert equity(a, np.zeros(len(a), int), 1)["group_variance"] == 0
    alone = equity(a, np.arange(len(a)), len(a))
    assert alone["group_variance"] == pytest.approx(alone["variance"], abs=1e-9)


def test_clients_of_a_group_that_share_their_test_rows():
    # The best tenth of a thousand clients and the best of ten groups coincide where the best group
    # has over a hundred clients, as E2FL's Table 1 shows for every federated method.
    accuracy = 0.8 + 0.001 * np.array(SIZES) / 2
    found = equity(np.repeat(accuracy, SIZES), np.repeat(np.arange(10), SIZES), 10)
    assert found["best10"] == pytest.approx(found["group_best10"])
    assert found["worst10"] > found["group_worst10"]


def test_nobody_and_nothing():
    found = equity([np.nan, 0.5], [0, 1], 3)
    assert found["average"] == found["group_average"] == 50
    np.testing.assert_array_equal(group_means([np.nan, 0.5], [0, 1], 3), [np.nan, 0.5, np.nan])
    assert all(np.isnan(value) for value in equity([np.nan], [0], 1).values())


def test_unknown_groups_are_refused():
    with pytest.raises(ValueError, match=r"numbered from 0 to 1, got numbers from 0 to 2"):
        equity([0.1, 0.2], [0, 2], 2)
    with pytest.raises(
        ValueError, match=r"one group per client, got \[1\] groups for \[2\] accuracies"
    ):
        equity([0.1, 0.2], [0], 2)


def test_groups_are_numbered_from_0_and_empty_input_is_undefined():
    np.testing.assert_array_equal(group_means([0.5], [1], 2), [np.nan, 0.5])
    np.testing.assert_array_equal(group_means([], np.zeros(0, int), 2), [np.nan, np.nan])
    for group in (-1, 2):
        with pytest.raises(
            ValueError, match=f"numbered from 0 to 1, got numbers from {group} to {group}"
        ):
            group_means([0.5], [group], 2)
    with pytest.raises(ValueError, match="one group per client"):
        group_means([[0.5]], [[0]], 2)
    assert all(np.isnan(value) for value in measure_equity([], np.zeros(0, int)).values())
    assert all(np.isnan(value) for value in measure_equity([np.nan], [0]).values())


def test_the_metrics_of_groups_are_those_of_the_summary():
    a, group = [0.5, 0.7, 0.9, np.nan], [0, 0, 3, 1]  # groups 1 and 2 have nobody with rows
    found, expected = measure_equity(a, group), equity(a, group, 4)
    assert found == pytest.approx({name: expected[name] for name in found})
    assert found == pytest.approx(
        {
            "group_average": 75,
            "group_worst10": 60,
            "group_best10": 90,
            "group_variance": 225,
            "group_std": 15,
        }
    )
    assert {name: EQUITY_METRICS[name].better for name in found} == dict(
        zip(found, (1, 1, 1, -1, -1), strict=True)
    )

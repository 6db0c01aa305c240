"""Figures with their intervals, and how rows are counted for them."""

import numpy as np
import pytest

from evenly.auditing.estimates import (
    NOTHING,
    AuditRows,
    Estimate,
    count_rows,
    estimates,
    newcombe,
    rate_ends,
    resampled_interval,
)
from evenly.metrics.statistics import MOST_BLOCKS
from evenly.report.values import wilson


def test_nothing_is_known_of_nothing_and_it_rests_on_no_rows():
    assert NOTHING.rows == Estimate(0.5).rows == 0
    assert not NOTHING.has_value
    assert Estimate(0.5).has_value
    assert not Estimate(0.5, 0.4).has_interval
    assert Estimate(0.0, -1.0, 1.0).has_interval
    assert Estimate(0.5, 0.25, 0.75, 8).times(100) == Estimate(50, 25, 75, 8)


def test_parallel_arrays_become_estimates():
    value, low, high = np.array([[0.5, np.nan, 0.0], [0.4, 0.1, np.nan], [0.6, 0.2, np.nan]])
    first, second, third = estimates(value, low, high, np.array([7, 8, 9]))
    assert first == (0.5, 0.4, 0.6, 7)
    assert second is NOTHING
    assert (third.value, third.rows, third.has_interval) == (0.0, 9, False)


def halves(units: int) -> np.ndarray:
    """Clients of twenty people, one after the other all right and all wrong. [units, 1, 2, 2]"""
    tables = np.zeros((units, 1, 2, 2), int)
    tables[::2, 0, 0, 0] = tables[1::2, 0, 0, 1] = 20
    return tables


def share(tables: np.ndarray) -> np.ndarray:
    return tables[..., 0, 0] / tables.sum((-2, -1))


def test_ten_clients_are_resampled_and_nine_are_not():
    """The clients are all of one kind, so that drawing clients finds far wider intervals than
    drawing people.
    """
    clients, people = (
        float(found.high[0] - found.low[0])
        for found in (resampled_interval(halves(n), share) for n in (10, 9))
    )
    assert clients == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(10), rel=0.1)
    assert people == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(180), rel=0.1)


def test_a_rate_has_the_wider_of_both_intervals():
    for units in (9, 10):
        tables = halves(units)
        total = tables.sum(0)
        low, high = rate_ends(tables, share(total), total.sum((-2, -1)), share)
        min_cell, most = wilson(share(total), total.sum((-2, -1)))
        assert ((low < min_cell - 0.1) & (high > most + 0.1)).all() == (units == 10)
        assert (low == min_cell).all() == (high == most).all() == (units == 9)
    # clients that are all alike: only chance is left
    same = np.repeat(np.array([[[[10, 10], [0, 0]]]]), 10, axis=0)
    ends = rate_ends(same, np.array([0.5]), np.array([200]), share)
    np.testing.assert_allclose(ends, wilson(np.array([0.5]), np.array([200])))


def test_newcombes_interval_joins_the_distances_to_wilsons_ends():
    share_of, rows = np.array([[0.8, 0.6], [0.1, 0.9]]), np.array([[70, 80], [20, 30]])
    low, high = newcombe(share_of, rows)
    for i in range(2):
        ends = [
            wilson(np.array([p]), np.array([n])) for p, n in zip(share_of[i], rows[i], strict=True)
        ]
        (first_low, first_high), (second_low, second_high) = (
            (float(a[0]), float(b[0])) for a, b in ends
        )
        p, q = share_of[i]
        assert low[i] == pytest.approx(p - q - np.hypot(p - first_low, second_high - q))
        assert high[i] == pytest.approx(p - q + np.hypot(first_high - p, q - second_low))


# Counts


def looped(places: list, shape: tuple[int, ...]) -> np.ndarray:
    table = np.zeros(shape, int)
    for place in zip(*places, strict=True):
        table[place] += 1
    return table


@pytest.mark.parametrize("clients", [3, MOST_BLOCKS, MOST_BLOCKS + 1])
@pytest.mark.parametrize("grouped", [True, False])
def test_rows_are_counted_by_client_or_block_of_clients(clients: int, grouped: bool):
    draw, rows = np.random.default_rng(0), 50
    client = draw.integers(0, clients, rows)
    client[:3] = 0, 1, clients - 1
    group, label, outcome = (draw.integers(0, n, rows) for n in (4, 3, 3))
    found = count_rows(
        AuditRows(client, group if grouped else None, label, outcome),
        clients=clients,
        groups=4 if grouped else 1,
        kinds=3,
    )
    own, none = group if grouped else np.zeros(rows, int), np.zeros(rows, int)
    units = min(clients, MOST_BLOCKS)
    np.testing.assert_array_equal(
        found.units,
        looped([client % units, own, label, outcome], (units, 4 if grouped else 1, 3, 3)),
    )
    np.testing.assert_array_equal(
        found.clients, looped([client, none, label, outcome], (clients, 1, 3, 3))
    )
    np.testing.assert_array_equal(found.groups, found.units.sum(0))


def test_without_clients_there_is_one_unit_and_no_client():
    label, outcome, group = np.array([0, 1, 1]), np.array([0, 1, 0]), np.array([1, 1, 0])
    found = count_rows(AuditRows(None, group, label, outcome), clients=0, groups=2, kinds=2)
    assert found.clients.shape == (0, 1, 2, 2)
    assert found.units.tolist() == [[[[0, 0], [1, 0]], [[1, 0], [0, 1]]]]
    assert found.groups.tolist() == found.units[0].tolist()

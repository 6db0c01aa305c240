"""Resampling clients: the same draws every time, intervals that cover, and no value where there is
none.
"""

import numpy as np
import pytest

from evenly.metrics import measure_groups, over_clients, statistics
from tests.metrics.tables import random_table

# [clients, groups, labels, outcomes]
CLIENTS = np.stack([random_table(s, groups=2, least=0) for s in range(12)])


def eod(tables: np.ndarray) -> np.ndarray:
    return measure_groups(tables, favourable=1, unprivileged=(0,))["eod"]


def share(tables: np.ndarray) -> np.ndarray:
    return tables[..., 0, 0, 0] / tables.sum((-3, -2, -1))


def drawn_tables(tables: np.ndarray, draws: int, seed: int) -> np.ndarray:
    return np.concatenate(list(statistics.resampled(tables, draws, seed)))


def test_resamples_are_sums_of_as_many_clients():
    one_each = np.eye(5, dtype=int)[:, :, None, None]  # client k fills cell k
    drawn = drawn_tables(one_each, 200, seed=0)
    assert drawn.shape == (200, 5, 1, 1)
    np.testing.assert_array_equal(drawn.sum((1, 2, 3)), 5)
    assert drawn.max() > 1  # with replacement


def test_the_interval_is_numpys_percentile_of_the_resamples():
    found = over_clients(CLIENTS, eod, draws=300, level=0.9, seed=3)
    values = eod(drawn_tables(CLIENTS, 300, seed=3))
    np.testing.assert_allclose([found.low, found.high], np.percentile(values, [5, 95]), rtol=1e-12)
    assert found.defined == 1
    assert found.low < eod(CLIENTS.sum(0)) < found.high


def test_the_same_seed_gives_the_same_interval_however_it_is_cut(monkeypatch: pytest.MonkeyPatch):
    before = over_clients(CLIENTS, eod, seed=1)
    monkeypatch.setattr(statistics, "AT_ONCE", 50)
    assert over_clients(CLIENTS, eod, seed=1) == before
    assert over_clients(CLIENTS, eod, seed=2) != before


def test_several_figures_at_once_each_with_its_own_undefined_draws():
    # Only the first client has rows of group 0; where it is not drawn, EOD is undefined and the
    # share is not.
    tables = CLIENTS.copy()
    tables[1:, 0] = 0
    found = over_clients(tables, lambda t: np.stack([eod(t), share(t)], axis=-1), draws=2000)
    assert found.defined[1] == 1
    assert found.defined[0] == pytest.approx(1 - (1 - 1 / 12) ** 12, abs=0.04)
    assert np.isfinite([found.low, found.high]).all()


def test_very_many_clients_are_joined_and_the_interval_stays_as_wide(
    monkeypatch: pytest.MonkeyPatch,
):
    draw = np.random.default_rng(8)
    tables = draw.poisson(3, (1200, 2, 2, 2))
    alone = over_clients(tables, eod, draws=2000)
    monkeypatch.setattr(statistics, "MOST_BLOCKS", 200)
    joined = over_clients(tables, eod, draws=2000)
    np.testing.assert_array_equal(
        statistics.blocks(tables.reshape(1200, -1)).sum(0), tables.sum(0).ravel()
    )
    assert joined.high - joined.low == pytest.approx(alone.high - alone.low, rel=0.15)


def test_one_client_says_nothing_and_neither_do_empty_tables():
    for tables in (CLIENTS[:1], CLIENTS * 0):
        found = over_clients(tables, eod, draws=50)
        assert np.isnan([found.low, found.high]).all()
        assert found.defined == 0


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    # 40 clients whose true shares vary around 0.6, 30 rows each; 95 % intervals of the pooled
    # share, 200 times.
    draw, hits = np.random.default_rng(5), 0
    for _ in range(200):
        right = draw.binomial(30, draw.beta(6, 4, 40))
        tables = np.zeros((40, 1, 2, 2), int)
        tables[:, 0, 0, 0], tables[:, 0, 0, 1] = right, 30 - right
        found = over_clients(tables, share, draws=200)
        hits += bool(found.low <= 0.6 <= found.high)
    assert 0.88 <= hits / 200 <= 0.99


def test_mistakes_are_refused():
    with pytest.raises(
        ValueError,
        match=(
            r"draws must be at least 1 and level between 0 and 1, got draws = 0 and level = 0\.95\."
        ),
    ):
        over_clients(CLIENTS, eod, draws=0)


@pytest.mark.parametrize(
    "over",
    [
        lambda **how: over_clients(CLIENTS, eod, **how),
        lambda **how: statistics.over_people(CLIENTS.sum(0), eod, **how),
    ],
)
def test_draws_and_level_are_accepted_up_to_their_bounds(over):
    for how in ({"draws": 1}, {"draws": 2}, {"level": 1e-9}, {"level": 0.999}):
        assert np.isfinite(over(**how).low)
    for how in (
        {"draws": 0},
        {"draws": -1},
        {"level": 0},
        {"level": 1},
        {"level": -0.5},
        {"level": 1.5},
        {"level": np.nan},
    ):
        with pytest.raises(ValueError, match="draws must be at least 1 and level between 0 and 1"):
            over(**how)
    assert over() == over(draws=1000, level=0.95, seed=0)
    assert over() != over(seed=1)
    one = over(draws=1)
    assert one.low == one.high


@pytest.mark.parametrize(
    ("values", "level", "low", "high", "defined"),
    [
        ([4.0, 1, 3, 2, 0], 0.5, 1, 3, 1),
        ([4.0, 1, 3, 2, 0], 0.8, 0.4, 3.6, 1),  # a tenth and nine tenths of the way from 0 to 4
        ([np.nan, 1, np.inf, 2], 0.5, 1.25, 1.75, 0.5),
        ([np.nan, 7, -np.inf, np.nan], 0.95, 7, 7, 0.25),
        ([np.nan, np.nan], 0.95, np.nan, np.nan, 0),
    ],
)
def test_percentiles_by_hand(values: list, level: float, low: float, high: float, defined: float):
    found = statistics.percentile_interval(np.array(values), level=level)
    np.testing.assert_allclose(found, (low, high, defined), atol=1e-12)
    unknown = statistics.percentile_interval(np.array(values), level=level, enough=False)
    np.testing.assert_array_equal(unknown, (np.nan, np.nan, 0))


def test_two_clients_or_people_are_enough_and_one_or_none_is_not():
    for number, known in ((0, False), (1, False), (2, True)):
        people = np.array([[[number, 0], [0, 0]]])
        assert np.isfinite(statistics.over_people(people, lambda t: t[:, 0, 0, 0]).low) == known
        clients = np.ones((max(1, number), 1, 2, 2), int)
        assert np.isfinite(over_clients(clients, lambda t: t[:, 0, 0, 0]).low) == known


def test_people_are_drawn_with_the_shares_of_their_table():
    table, seen = np.array([[[30, 10], [0, 60]]]), []

    def look(tables: np.ndarray) -> np.ndarray:
        seen.append(tables)
        return tables[:, 0, 0, 0] / 100

    found = statistics.over_people(table, look, draws=4000)
    assert seen[0].shape == (4000, 1, 2, 2)
    np.testing.assert_array_equal(seen[0].sum((1, 2, 3)), 100)
    np.testing.assert_allclose(seen[0].mean(0), table, atol=0.5)
    # 1.96 deviations of sqrt(0.3 * 0.7 / 100) around 0.3.
    np.testing.assert_allclose([found.low, found.high], [0.21, 0.39], atol=0.015)


def test_clients_go_round_the_blocks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(statistics, "MOST_BLOCKS", 3)
    rows = np.arange(10.0).reshape(5, 2)
    np.testing.assert_array_equal(statistics.blocks(rows), [[0 + 6, 1 + 7], [2 + 8, 3 + 9], [4, 5]])
    np.testing.assert_array_equal(statistics.blocks(rows[:3]), rows[:3])
    np.testing.assert_array_equal(statistics.blocks(rows[:2]), rows[:2])


@pytest.mark.parametrize(
    ("at_once", "pieces"),
    [(0, [1] * 7), (1, [1] * 7), (8, [2, 2, 2, 1]), (14, [3, 3, 1]), (28, [7]), (10**6, [7])],
)
def test_no_piece_holds_more_counts_than_allowed(
    at_once: int, pieces: list, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(statistics, "AT_ONCE", at_once)
    tables = np.arange(12).reshape(3, 1, 2, 2)
    found = list(statistics.resampled(tables, 7, seed=0))
    assert [len(piece) for piece in found] == pieces
    assert {piece.shape[1:] for piece in found} == {(1, 2, 2)}


def test_tables_of_one_cell_or_none_are_cut_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(statistics, "AT_ONCE", 3)
    assert [
        len(piece) for piece in statistics.resampled(np.ones((3, 1, 1, 1), int), 7, seed=0)
    ] == [3, 3, 1]
    assert [
        piece.shape for piece in statistics.resampled(np.ones((3, 0, 2, 2), int), 4, seed=0)
    ] == [(3, 0, 2, 2), (1, 0, 2, 2)]

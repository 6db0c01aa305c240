"""The clients of an audit: who is shown, in which order, and which figures over all of them."""

import numpy as np
import pytest

from evenly.auditing import views
from evenly.auditing.views import ClientView, add_worst_rates, client_view
from evenly.metrics import METRICS


def seen(
    right: list[int], rows: list[int], *, min_cell: int = 10, anonymous: bool = False
) -> ClientView:
    wrong = np.array(rows) - right
    tables = np.stack([np.array(right), wrong], axis=-1)[:, None, None, :]
    tables = np.concatenate([tables, np.zeros_like(tables)], axis=2)
    return client_view(
        "site",
        tuple(f"k{i}" for i in range(len(rows))),
        tables,
        min_cell=min_cell,
        few=30,
        anonymous=anonymous,
    )


def test_clients_come_with_the_worst_served_first_and_the_larger_of_equals():
    # 80, 50, 50 and 80 %, and two that are hidden
    view = seen([40, 20, 30, 40, 5], [50, 40, 60, 50, 8])
    assert view.hidden.cells.tolist() == [False, True, False, False, True]
    assert view.worst_first() == [2, 0, 3]
    assert view.rows.tolist() == [50, 0, 60, 50, 0]
    assert [each.has_value for each in view.accuracy] == [True, False, True, True, False]
    assert seen([20, 30], [40, 60]).worst_first() == [1, 0]
    first = view.accuracy[0]
    assert (first.value, first.rows) == (80, 50)
    assert 66 < first.low < 68 < 88 < first.high < 89  # Wilson's: 67.0 to 88.8


def test_shown_clients_with_fewer_than_thirty_rows_are_counted():
    # of two with 29, one is hidden beside the one with 4
    assert seen([10, 10, 10, 2, 20], [29, 30, 31, 4, 29]).few == 1
    assert seen([10, 10, 10], [29, 30, 31]).few == 1


@pytest.mark.parametrize("hidden", [len(METRICS), len(METRICS) + 1])
def test_hidden_clients_count_where_they_are_more_than_the_figures_over_all(hidden: int):
    view = seen([4] * hidden + [60] * 12, [5] * hidden + [100] * 12)
    assert int(view.hidden.cells.sum()) == hidden
    few = hidden <= len(METRICS)
    assert view.clients_in_summary == (12 if few else 12 + hidden)
    assert view.summary["average_devices"].value == pytest.approx(
        60 if few else (12 * 60 + hidden * 80) / (12 + hidden)
    )


def test_numbers_instead_of_names_begin_with_the_largest_client():
    assert seen([1, 1, 1], [50, 70, 60], anonymous=True).names == (
        "client 3",
        "client 1",
        "client 2",
    )
    assert seen([1] * 10, [50] * 10, anonymous=True).names[:2] == ("client 01", "client 02")
    assert seen([1] * 2, [50] * 2).names == ("k0", "k1")


@pytest.mark.parametrize(("clients", "ranged"), [(9, False), (10, True)])
def test_ten_clients_have_intervals_from_resampling(clients: int, ranged: bool):
    view = seen([50 + 4 * k for k in range(clients)], [100] * clients)
    assert {name for name in METRICS if view.summary[name].has_interval} == (
        {"average", "average_devices", "variance", "std", "gini"} if ranged else set()
    )
    if ranged:
        mean, shares = (
            view.summary["average_devices"],
            np.array([50 + 4 * k for k in range(clients)]),
        )
        assert (mean.high - mean.low) / 2 == pytest.approx(
            1.96 * shares.std() / np.sqrt(clients), rel=0.1
        )
        assert mean.low < mean.value == shares.mean() < mean.high
        assert mean.rows == 1000
        assert view.summary["worst10"].rows == 100


def test_a_tenth_has_an_interval_where_it_is_more_than_one_client():
    ends = [seen([50 + 2 * k for k in range(n)], [100] * n).summary for n in (19, 20)]
    assert (
        [found["worst10"].has_interval for found in ends]
        == [found["best10"].has_interval for found in ends]
        == [False, True]
    )
    assert not ends[1]["min"].has_interval


def test_very_many_clients_are_drawn_less_often_and_at_last_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
):
    for most, ranged in {100 * 12: True, 100 * 12 - 1: False}.items():
        monkeypatch.setattr(views, "MOST_DRAWS", most)
        assert (
            seen([50 + 4 * k for k in range(12)], [100] * 12).summary["variance"].has_interval
            == ranged
        )


def test_where_every_client_is_hidden_nothing_is_known():
    view = seen([2, 3], [5, 6])
    assert (view.clients_in_summary, view.few, view.worst_first()) == (0, 0, [])
    assert not any(figure.has_value for figure in view.summary.values())


@pytest.mark.parametrize(("clients", "listed"), [(10_000, True), (10_001, False)])
def test_ten_thousand_clients_are_listed(clients: int, listed: bool):
    assert seen([1, 1], [50, 50])._replace(names=("k",) * clients).can_list == listed


def rated(*tables: list[list[int]], min_cell: int = 10) -> dict[str, float]:
    units = np.array(tables)[:, None]
    view = client_view(
        "site",
        tuple(map(str, range(len(units)))),
        units,
        min_cell=min_cell,
        few=30,
        anonymous=False,
    )
    return dict(add_worst_rates(view, units, min_cell).worst_rates)


def test_the_worst_served_client_has_its_rates():
    worst, other = [[12, 8], [15, 5]], [[30, 10], [10, 30]]
    assert rated(other, worst) == pytest.approx({"tpr": 25, "fpr": 40})
    assert rated(worst) == {}  # alone it is not the worst of any


@pytest.mark.parametrize("few", [9, 10])
def test_rates_of_the_worst_are_not_told_where_one_label_has_few_people(few: int):
    told = few == 10
    favourable, unfavourable = [[12, 28], [few - 2, 2]], [[2, few - 2], [30, 10]]
    good = [[90, 10], [10, 90]]
    assert bool(rated(good, favourable)) == told
    assert bool(rated(good, unfavourable)) == told
    # what all others have follows from everybody's
    assert bool(rated([[90, 10], [0, few]], [[12, 28], [30, 10]])) == told
    assert bool(rated([[few, 0], [10, 90]], [[12, 28], [30, 10]])) == told

"""The front, Lorenz curves, bytes and weights over the rounds, as data."""

from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.invented import comparison, federation, with_groups

from evenly.experiment.comparison import Comparison
from evenly.metrics import METRICS, on_front
from evenly.report.charts.accuracy import gini_of, lorenz, lorenz_chart
from evenly.report.charts.convergence import bytes_after, convergence
from evenly.report.charts.tradeoff import front_chart, points
from evenly.report.charts.weighing import History, weight_history, weight_history_chart
from evenly.report.group_values import with_groups as values_with_groups
from evenly.report.page import render
from evenly.report.values import final_values

SHARES = st.lists(st.floats(0.01, 1), min_size=1, max_size=30)


def rows(chart) -> list[dict]:
    return [row for data in chart.to_dict()["datasets"].values() for row in data]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12))
def test_the_front_is_what_nobody_beats(values):
    front = on_front(values)
    assert front.any()
    for i, own in enumerate(values):
        beaten = any(a >= own[0] and b >= own[1] and (a, b) != own for a, b in values)
        assert front[i] == (not beaten)


def test_undefined_values_are_not_on_the_front_and_beat_nobody():
    assert on_front([[1.0, np.nan], [0.5, 1.0]]).tolist() == [False, True]


def test_lower_variance_and_higher_worst_tenth_are_both_fairer():
    values = {
        "a": {0: {"average": 80.0, "variance": 100.0, "worst10": 60.0}},
        "b": {0: {"average": 70.0, "variance": 50.0, "worst10": 50.0}},
    }
    assert {p.label: p.front for p in points(values, "variance")} == {"a": True, "b": True}
    assert {p.label: p.front for p in points(values, "worst10")} == {"a": True, "b": False}


def test_the_line_joins_the_front_only_and_every_method_has_a_mark():
    found = with_groups(
        comparison(("fedavg", "a", "b", "c"), data=federation(20, rows=(40, 10, 60))), differ=True
    )
    values = values_with_groups(found, final_values(found))
    for metric in ("variance", "eod_abs"):
        drawn = rows(front_chart(values, metric, ("fedavg", "a")))
        marks = [row for row in drawn if "method" in row]
        front = {p.label for p in points(values, metric) if p.front}
        assert {row["method"] for row in marks} == {"fedavg", "a", "b", "c"}
        assert {row["method"] for row in marks if row["front"]} == front
        assert len([row for row in drawn if "method" not in row]) == len(front)


@given(SHARES)
def test_the_gini_coefficient_is_twice_the_area_above_the_curve(accuracies):
    a = np.array(accuracies)
    curve = lorenz(a, steps=len(a))
    area = ((curve[1:] + curve[:-1]) / 2).mean()
    assert 1 - 2 * area == pytest.approx(METRICS["gini"].function(a, np.ones(len(a))), abs=1e-9)
    assert (curve <= np.linspace(0, 1, len(curve)) + 1e-9).all()


def test_equal_clients_lie_on_the_line_and_nobody_served_has_no_curve():
    np.testing.assert_allclose(lorenz(np.full(7, 0.3)), np.linspace(0, 1, 41))
    assert np.isnan(lorenz(np.zeros(4))).all()
    np.testing.assert_allclose(lorenz(np.array([0.5, np.nan, 0.5])), np.linspace(0, 1, 41))


def test_the_lorenz_chart_says_the_gini_of_each_method():
    found = comparison()
    expected = np.mean([seed["gini"] for seed in final_values(found)["fedavg"].values()])
    assert gini_of(found, "fedavg", "test") == pytest.approx(expected)
    assert f"fedavg: {expected:.3f}" in lorenz_chart(found, found.labels).to_dict()["description"]


def test_bytes_grow_with_rounds_and_with_who_takes_part():
    found = comparison(("fedavg",), seeds=1)
    assert bytes_after(found.runs[0], 30) == 30 * 5 * (2440 + 2440)  # five clients a round
    last = max(
        rows(convergence(found, "average", found.labels, against="bytes")),
        key=lambda row: row["round"],
    )
    assert last["moved"] == pytest.approx(732)  # in kB, the unit that suits it
    assert last["sent"] == pytest.approx(732_000)


def test_bytes_choose_the_unit_of_the_axis():
    spec = convergence(comparison(), "average", ["fedavg"], against="bytes").to_dict()
    assert "Sent and received (kB)" in str(spec)
    assert spec["title"] == "Average (rows) by data sent"


def history_of(found: Comparison, hidden: Collection[int] = ()) -> History:
    history = weight_history(found, "fedavg", hidden)
    assert history is not None
    return history


def test_weights_over_the_rounds_sum_to_one_in_every_part():
    found = comparison(data=federation(50), evaluations=11)
    history = history_of(found)
    assert len(history.bands) == 10
    assert history.rounds[0][0] == 1
    assert history.rounds[-1][1] == 100
    np.testing.assert_allclose(history.shares.sum(0), 1)
    assert history.rows.sum() == pytest.approx(1)


def test_few_clients_are_drawn_by_name_and_hidden_ones_are_not():
    found = comparison(data=federation(6))
    assert history_of(found).bands == [f"client {k}" for k in (5, 4, 3, 2, 1, 0)]
    assert "client 3" not in history_of(found, {3}).bands


def test_a_clients_share_is_what_it_was_given():
    found = comparison(("fedavg",), data=federation(2), seeds=1)
    trace = found.runs[0].trace
    weights = np.zeros_like(trace.weights)
    weights[:, 0] = 1.0
    cohort = np.tile(np.array([0, 1], np.int32), (len(weights), 1))
    one = found._replace(
        runs=[found.runs[0]._replace(trace=trace._replace(weights=weights, cohort=cohort))]
    )
    history = history_of(one)
    np.testing.assert_allclose(history.shares[history.bands.index("client 0")], 1)
    drawn = [row for row in rows(weight_history_chart(history, "fedavg")) if "share" in row]
    assert {row["band"] for row in drawn} == {"client 0"}
    assert weight_history(comparison(evaluations=1), "fedavg") is None


def test_a_single_method_has_no_front():
    assert '<section id="tradeoff"' not in render(comparison(("fedavg",)))
    assert '<section id="tradeoff"' in render(comparison(("fedavg", "afl")))

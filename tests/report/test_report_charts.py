"""The charts as data: what they draw, not how it looks (tests/browser looks)."""

import json
import re

import numpy as np
import pytest
import vl_convert
from hypothesis import given
from hypothesis import strategies as st
from tests.report.invented import comparison, federation

from evenly.report.charts.accuracy import distribution, span_of
from evenly.report.charts.convergence import convergence, rounds_axis
from evenly.report.charts.theme import DARK, LIGHT, save_chart
from evenly.report.charts.tradeoff import front_chart
from evenly.report.charts.weighing import History, influence_chart, weight_history_chart
from evenly.report.values import final_values


def rows(chart) -> list[dict]:
    return [row for data in chart.to_dict()["datasets"].values() for row in data]


def test_the_histogram_counts_every_client_once():
    found = comparison(seeds=3)
    bars = [
        row
        for row in rows(distribution(found, found.labels))
        if "bin" in row and row["method"] == "fedavg"
    ]
    assert sum(row["clients"] for row in bars) == pytest.approx(20, rel=1e-4)


@pytest.mark.parametrize(
    ("accuracies", "span"),
    [
        ([73.2, 84.0], (70, 85, 1)),
        ([70.0, 85.0], (70, 85, 1)),
        ([100 * 0.7, 100 * 0.29], (20, 80, 5)),  # floats just below 70 and 29
        ([61.0, 98.0], (60, 100, 2)),
        ([5.0, 98.0], (0, 100, 5)),
        ([41.0, 99.0], (40, 100, 5)),
        ([100.0, 100.0], (90, 100, 1)),
        ([0.0, 0.0], (0, 10, 1)),
        ([74.0, 74.5], (70, 80, 1)),
        ([71.0, 71.5], (65, 75, 1)),
        ([np.nan, 80.5], (75, 85, 1)),
        ([np.nan], (0, 100, 5)),
    ],
)
def test_the_axis_of_the_histogram_follows_the_clients(accuracies, span):
    assert span_of(np.array(accuracies)) == span


@given(st.lists(st.floats(0, 100), min_size=1, max_size=5))
def test_every_accuracy_lies_on_an_axis_of_at_least_ten_points_in_at_most_twenty_bins(accuracies):
    span = span_of(np.array(accuracies))
    assert 0 <= span.low <= min(accuracies) + 1e-9
    assert max(accuracies) - 1e-9 <= span.high <= 100
    assert 10 <= span.high - span.low <= 20 * span.step
    assert (span.edges[0], span.edges[-1]) == (span.low, span.high)
    assert np.histogram(np.array(accuracies).round(9), span.edges)[0].sum() == len(accuracies)


@pytest.mark.parametrize("width", [280, 480])
def test_long_names_keep_both_ends_and_are_whole_where_they_fit(width):
    labels = (
        "fedavg",
        "fairfed(metric=eod, beta=0.01)+reweigh",
        "fairfed(metric=eod, beta=0.01, weights=equal)+parity(share=0.5)+reweigh",
    )
    chart = distribution(comparison(labels, seeds=1), labels).properties(width=width)
    # as on the page
    svg = vl_convert.vegalite_to_svg(chart.to_json(), config={"legend": {"disable": True}})
    drawn = re.findall(r">([^<>]*(?:fedavg|fairfed)[^<>]*)</text>", svg)
    whole = [label for label in labels if label in drawn]
    assert whole == ([labels[0]] if width == 280 else list(labels[:2]))
    for short, label in zip(
        [name for name in drawn if name not in labels],
        [label for label in labels if label not in whole],
        strict=True,
    ):
        start, end = short.split("…")
        assert len(start) > 5 < len(end)
        assert (label.startswith(start), label.endswith(end)) == (True, True)


def test_the_whole_name_appears_on_hovering():
    found = comparison()
    text = next(
        layer
        for layer in distribution(found, found.labels).to_dict()["layer"]
        if layer["mark"]["type"] == "text"
    )
    assert text["encoding"]["tooltip"]["field"] == "method"


def test_single_clients_are_drawn_only_where_they_can_be_seen():
    few, many = comparison(), comparison(data=federation(3000), seeds=1)
    assert any("client" in row for row in rows(distribution(few, few.labels)))
    assert not any("client" in row for row in rows(distribution(many, many.labels)))


def test_convergence_shows_the_mean_and_the_range_of_the_seeds():
    found = comparison(("fedavg",), seeds=3)
    last = [row for row in rows(convergence(found, "average", found.labels)) if row["round"] == 30]
    seeds = [seed["average"] for seed in final_values(found)["fedavg"].values()]
    assert last[0]["mean"] == pytest.approx(np.mean(seeds), rel=1e-4)
    assert (last[0]["low"], last[0]["high"]) == (
        pytest.approx(min(seeds), rel=1e-4),
        pytest.approx(max(seeds), rel=1e-4),
    )


def test_convergence_thins_many_evaluations_and_keeps_the_ends():
    found = comparison(("fedavg",), seeds=1, evaluations=1000, data=federation(2))
    done = [row["round"] for row in rows(convergence(found, "variance", found.labels))]
    assert len(done) <= 120
    assert (min(done), max(done)) == (0, 9990)


def test_few_rounds_are_all_named_and_none_twice():
    """Ticks at 1.5 and 2.5 would be named 2 and 3 again."""
    found = comparison(seeds=1)
    runs = [run._replace(trace=run.trace._replace(rounds=np.arange(4))) for run in found.runs]
    line = convergence(found._replace(runs=runs), "average", found.labels).to_dict()
    shares = np.full((1, 3), 1 / 3)
    history = History(["a"], np.ones(1), [(1, 1), (2, 2), (3, 3)], shares)
    squares = weight_history_chart(history, "fedavg").to_dict()
    for chart in (line, squares):
        assert chart["layer"][0]["encoding"]["x"]["axis"]["values"] == [0, 1, 2, 3]
    assert "values" not in rounds_axis(40).to_dict()


def test_names_over_the_squares_are_nearer_to_their_own():
    history = History(["a", "b"], np.full(2, 0.5), [(1, 1)], np.full((2, 1), 0.5))
    places: dict[str, list[float]] = {"a": [], "b": []}
    for row in rows(weight_history_chart(history, "fedavg")):
        places[row["band"]].append(row["y"])
    (_, above), (name, own) = map(sorted, places.values())
    assert own - name < 0.8 * (name - above)


def test_influence_is_joined_for_very_many_clients():
    few, many = comparison(), comparison(data=federation(5000), seeds=1)
    assert len([row for row in rows(influence_chart(few, few.labels)) if "client" in row]) == 40
    joined = [row for row in rows(influence_chart(many, many.labels)) if "client" in row]
    assert len(joined) == 80
    assert "125 clients" in joined[0]["client"]


def test_no_influence_chart_without_weights_or_with_one_client():
    assert influence_chart(comparison(evaluations=1), ["fedavg"]) is None
    assert influence_chart(comparison(data=federation(1)), ["fedavg"]) is None


def test_undefined_points_are_left_out_of_the_front():
    values = final_values(comparison(data=federation(3, rows=(10, 5, 0))))
    assert "NaN" not in json.dumps(front_chart(values, "variance", list(values)).to_dict())


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_charts_can_be_saved_without_a_browser(tmp_path, ending):
    found = comparison()
    path = tmp_path / f"chart.{ending}"
    save_chart(front_chart(final_values(found), "variance", found.labels), path)
    assert path.stat().st_size > 2000
    assert b"var(--" not in path.read_bytes()


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2.2."""

    def luminance(colour: str) -> float:
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_can_be_told_from_the_background(theme):
    assert set(theme) == set(LIGHT)
    assert all(contrast(theme[f"series-{i}"], theme["paper"]) >= 3 for i in range(1, 9))
    assert contrast(theme["muted"], theme["paper"]) >= 3  # the marks of all other methods
    assert all(
        contrast(theme[name], theme[back]) >= 4.5
        for name in ("ink", "soft", "accent")
        for back in ("paper", "card")
    )
    assert contrast(theme["ink"], theme["tint"]) >= 4.5

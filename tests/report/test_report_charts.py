"""The charts as data: what they draw, not how it looks (tests/browser looks)."""

import json

import numpy as np
import pytest
from invented import comparison, federation

from evenly.report.charts import convergence, distribution, influence_chart, save_chart, tradeoff
from evenly.report.charts.theme import DARK, LIGHT
from evenly.report.table import final_values


def rows(chart) -> list[dict]:
    return [row for data in chart.to_dict()["datasets"].values() for row in data]


def test_the_histogram_counts_every_client_once():
    found = comparison(seeds=3)
    bars = [row for row in rows(distribution(found, found.labels)) if "bin" in row and row["method"] == "fedavg"]
    assert sum(row["clients"] for row in bars) == pytest.approx(20, rel=1e-4)


def test_single_clients_are_drawn_only_where_they_can_be_seen():
    few, many = comparison(), comparison(data=federation(3000), seeds=1)
    assert any("client" in row for row in rows(distribution(few, few.labels)))
    assert not any("client" in row for row in rows(distribution(many, many.labels)))


def test_convergence_shows_the_mean_and_the_range_of_the_seeds():
    found = comparison(("fedavg",), seeds=3)
    last = [row for row in rows(convergence(found, "average", found.labels)) if row["round"] == 30]
    seeds = [seed["average"] for seed in final_values(found)["fedavg"].values()]
    assert last[0]["mean"] == pytest.approx(np.mean(seeds), rel=1e-4)
    assert (last[0]["low"], last[0]["high"]) == (pytest.approx(min(seeds), rel=1e-4), pytest.approx(max(seeds), rel=1e-4))


def test_convergence_thins_many_evaluations_and_keeps_the_ends():
    found = comparison(("fedavg",), seeds=1, evaluations=1000, data=federation(2))
    done = [row["round"] for row in rows(convergence(found, "variance", found.labels))]
    assert len(done) <= 120
    assert (min(done), max(done)) == (0, 9990)


def test_influence_is_joined_for_very_many_clients():
    few, many = comparison(), comparison(data=federation(5000), seeds=1)
    assert len([row for row in rows(influence_chart(few, few.labels)) if "client" in row]) == 40
    joined = [row for row in rows(influence_chart(many, many.labels)) if "client" in row]
    assert len(joined) == 80
    assert "125 clients" in joined[0]["client"]


def test_no_influence_chart_without_weights_or_with_one_client():
    assert influence_chart(comparison(evaluations=1), ["fedavg"]) is None
    assert influence_chart(comparison(data=federation(1)), ["fedavg"]) is None


def test_undefined_points_are_left_out_of_the_tradeoff():
    values = final_values(comparison(data=federation(3, rows=(10, 5, 0))))
    assert "NaN" not in json.dumps(tradeoff(values, "variance", list(values)).to_dict())


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_charts_can_be_saved_without_a_browser(tmp_path, ending):
    found = comparison()
    path = tmp_path / f"chart.{ending}"
    save_chart(tradeoff(final_values(found), "variance", found.labels), path)
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
    assert all(contrast(theme[name], theme[back]) >= 4.5 for name in ("ink", "soft", "accent") for back in ("paper", "card"))
    assert contrast(theme["ink"], theme["tint"]) >= 4.5

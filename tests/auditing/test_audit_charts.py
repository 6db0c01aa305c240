"""The charts of an audit as data: every figure, label and mark that is drawn, and nothing that is
not known.
"""

import numpy as np
import pytest

from evenly.auditing.charts import OTHERS, SHORT, Dot, calibration, dots, histogram, thresholds
from evenly.auditing.estimates import BINS, THRESHOLDS, Curves, Estimate
from evenly.data.sensitive import FEW

SURE, UNSURE = Estimate(70.0, 65.0, 74.0, 400), Estimate(40.0, 20.5, 61.0, FEW - 1)
POINT, ENOUGH = Estimate(55.0, np.nan, np.nan, 90), Estimate(50.0, 40.0, 60.0, FEW)
NOTHING = Estimate(np.nan, np.nan, np.nan, 3)


def drawn(chart) -> dict:
    return chart.to_dict()


def rows(layer: dict, chart: dict) -> list[dict]:
    return chart["datasets"][layer["data"]["name"]]


def same(found: list[dict], expected: list[dict]) -> None:
    """Rows as charts round them: to five digits."""
    assert [
        {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in row.items()}
        for row in expected
    ] == found


def lines(*names: str) -> dict:
    """A chart of these names; the second is set apart, and a last one has no figure."""
    figures = (SURE, UNSURE, POINT, ENOUGH)
    found = [
        Dot(name, figure, i == 1)
        for i, (name, figure) in enumerate(zip(names, figures, strict=False))
    ]
    return drawn(
        dots(
            [*found, Dot("unknown", NOTHING)],
            title="Who",
            unit="Accuracy (%)",
            middle=63.0,
            what="Group",
            highlight="worst",
        )
    )


def test_every_known_figure_has_a_row_with_its_interval_and_its_people():
    chart = lines("north", "east", "south", "west")
    found = rows(chart["layer"][1], chart)
    assert [row["name"] for row in found] == ["north", "east", "south", "west"]
    assert [(row["value"], row["low"], row["high"]) for row in found] == [
        (70, 65, 74),
        (40, 20.5, 61),
        (55, 55, 55),
        (50, 40, 60),
    ]
    assert [row["span"] for row in found] == [
        "65.0 to 74.0",
        "20.5 to 61.0",
        "none",
        "40.0 to 60.0",
    ]
    assert [row["people"] for row in found] == [
        "400",
        f"{FEW - 1} (fewer than {FEW})",
        "90",
        f"{FEW}",
    ]
    assert [row["few"] for row in found] == [False, True, False, False]
    assert [row["method"] for row in found] == [OTHERS, "worst", OTHERS, OTHERS]


def test_few_people_are_hollow_and_everybody_is_a_dashed_rule():
    chart = lines("north", "east")
    everybody, interval, filled, hollow = chart["layer"]
    assert [layer["mark"]["type"] for layer in chart["layer"]] == [
        "rule",
        "rule",
        "circle",
        "point",
    ]
    assert rows(everybody, chart) == [{"value": 63.0}]
    assert everybody["mark"]["strokeDash"] == [4, 3]
    assert (filled["transform"], hollow["transform"]) == (
        [{"filter": "!datum.few"}],
        [{"filter": "datum.few"}],
    )
    assert hollow["mark"]["filled"] is False
    # seen through, hollow and filled would look alike
    assert filled["mark"]["opacity"] == hollow["mark"]["opacity"] == 1
    assert (interval["encoding"]["x"]["field"], interval["encoding"]["x2"]["field"]) == (
        "low",
        "high",
    )
    assert "2 with their intervals" in chart["description"]


def test_the_axis_holds_every_interval_and_everybody():
    scale = lines("north", "east")["layer"][1]["encoding"]["x"]["scale"]
    assert scale["domain"] == [20, 80]  # from 20.5 to 74
    assert (scale["nice"], scale["zero"]) == (False, False)
    alone = drawn(
        dots([Dot("a", SURE)], title="", unit="", middle=12.0, what="", highlight="worst")
    )
    assert alone["layer"][1]["encoding"]["x"]["scale"]["domain"] == [0, 80]


def test_a_colour_is_there_for_the_marked_only_where_somebody_is_marked():
    assert lines("a", "b")["layer"][1]["encoding"]["color"]["scale"]["domain"] == [OTHERS, "worst"]
    assert lines("a")["layer"][1]["encoding"]["color"]["scale"]["domain"] == [OTHERS]


def test_short_names_stand_beside_the_plot_and_long_ones_above_their_lines():
    short, long = lines("north", "x" * SHORT), lines("north", "x" * (SHORT + 1))
    assert len(short["layer"]) == 4
    beside = short["layer"][1]["encoding"]["y"]
    assert (beside["field"], beside["sort"]) == ("name", ["north", "x" * SHORT])
    above = long["layer"][4]
    assert above["mark"]["type"] == "text"
    assert (above["encoding"]["x"]["field"], above["encoding"]["y"]["field"]) == ("at", "name_y")
    domain = above["encoding"]["y"]["scale"]["domain"]
    assert above["encoding"]["y"]["scale"]["reverse"] is True
    assert domain == long["layer"][1]["encoding"]["y"]["scale"]["domain"]
    assert domain[0] == 0
    band = domain[1] / 2
    for i, row in enumerate(rows(above, long)):  # the name, then the line, in the band of their own
        assert band * i + 6 < row["name_y"] < row["y"] - 6 < band * (i + 1) - 12
        # nearly twice as far from the line before
        assert row["name_y"] - (row["y"] - band) > 1.9 * (row["y"] - row["name_y"])
        assert row["at"] == 20  # where the axis begins
    text = above["mark"]["text"]["expr"]
    assert "<= width ? datum.name : slice(datum.name, 0, floor(width / 6.6) - 1) + '…'" in text


def test_the_chart_grows_with_its_lines():
    heights = [lines(*"abcd"[:n])["height"] for n in (1, 2, 4)]
    assert heights[2] - heights[1] == 2 * (heights[1] - heights[0]) > 0
    assert heights[0] < lines("x" * 40)["height"] < 3 * heights[0]
    assert 0 <= heights[1] - 2 * (heights[1] - heights[0]) <= 20  # and hardly more than they need


def test_the_histogram_of_an_audit_counts_every_client_in_its_bin():
    accuracies = [61.0, 61.5, 62.0, 70.0, 74.99, 75.0]
    chart = drawn(histogram(accuracies, mean=67.4, worst=61.0))
    bars, marks = chart["layer"]
    found = rows(bars, chart)
    assert [(row["from"], row["to"], row["clients"]) for row in found] == [
        (61, 62, 2),
        (62, 63, 1),
        (70, 71, 1),
        (74, 75, 2),
    ]
    assert found[0]["bin"] == "61 to 62 %"
    assert {row["base"] for row in found} == {0}
    assert bars["encoding"]["x"]["scale"]["domain"] == [60, 75]
    assert bars["encoding"]["x"]["axis"]["values"] == [60, 65, 70, 75]
    assert bars["encoding"]["y"]["axis"]["tickMinStep"] == 1
    assert rows(marks, chart) == [
        {"value": 67.4, "what": "mean of all clients"},
        {"value": 61.0, "what": "mean of the worst tenth"},
    ]
    assert marks["encoding"]["strokeDash"]["scale"]["range"] == [[1, 0], [4, 3]]


def test_a_line_without_a_number_is_not_drawn():
    chart = drawn(histogram([50.0, 60.0], mean=55.0, worst=np.nan))
    assert [row["what"] for row in rows(chart["layer"][1], chart)] == ["mean of all clients"]


@pytest.fixture(scope="module")
def curves() -> Curves:
    draw = np.random.default_rng(3)
    stated, seen = draw.random((2, 3, BINS))
    people = draw.integers(0, 4, (3, BINS)) * 5
    spd, eod = draw.normal(size=(2, 3, THRESHOLDS))
    return Curves(stated, seen, people, spd, eod)


def test_calibration_has_a_point_for_every_bin_that_is_shown(curves: Curves):
    chart = drawn(calibration(["a", "b", "c"], [2, 0], curves))
    even, line, points = chart["layer"]
    expected = [
        {
            "method": "abc"[g],
            "stated": 100 * curves.score[g, b],
            "seen": 100 * curves.frequency[g, b],
            "people": int(curves.rows[g, b]),
        }
        for g in (2, 0)
        for b in range(BINS)
        if curves.rows[g, b] > 0
    ]
    assert 0 < len(expected) < 2 * BINS
    same(rows(points, chart), expected)
    same(rows(line, chart), expected)
    assert rows(even, chart) == [{"stated": 0, "seen": 0}, {"stated": 100, "seen": 100}]
    assert {axis: points["encoding"][axis]["scale"]["domain"] for axis in "xy"} == {
        "x": [0, 100],
        "y": [0, 100],
    }
    assert (
        points["encoding"]["color"]["scale"]["domain"]
        == points["encoding"]["shape"]["scale"]["domain"]
        == ["c", "a"]
    )
    assert points["mark"]["filled"] is True
    assert points["mark"]["opacity"] == 1


def test_thresholds_show_both_gaps_where_they_are_known(curves: Curves):
    spd, eod = curves.spd[0].copy(), curves.eod[0]
    spd[[0, 7]] = np.nan
    chart = drawn(thresholds("women", spd, eod))
    zero, line, points = chart["layer"]
    expected = [
        {"method": name, "threshold": t / THRESHOLDS, "gap": gaps[t]}
        for name, gaps in (("SPD", spd), ("EOD", eod))
        for t in range(THRESHOLDS)
        if not np.isnan(gaps[t])
    ]
    same(rows(points, chart), expected)
    same(rows(line, chart), expected)
    assert rows(zero, chart) == [{"gap": 0}]
    assert points["encoding"]["x"]["scale"]["domain"] == [0, 1]
    assert "“women” minus all others" in points["encoding"]["y"]["axis"]["title"]

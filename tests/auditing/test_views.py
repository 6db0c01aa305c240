"""What an audit measures: clients, groups, scores and their intervals."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

import evenly
from evenly.auditing.estimates import at_thresholds, check_scores, summarise_scores
from evenly.auditing.people import MatchedLabels, outcomes
from evenly.auditing.views import client_gaps
from evenly.metrics import accuracy, examples, measure, rates
from tests.auditing.invented import WHO, predictions


@pytest.fixture(scope="module")
def frame():
    return predictions()


@pytest.fixture(scope="module")
def found(frame):
    return evenly.audit(frame, **WHO, score="s")


def test_client_metrics_are_those_of_the_package(frame, found):
    own = frame.assign(right=frame["y"] == frame["p"]).groupby("hospital")["right"]
    expected = measure(own.mean().to_numpy(), own.count().to_numpy())
    assert {name: each.value for name, each in found.clients.summary.items()} == pytest.approx(
        expected, nan_ok=True
    )
    assert found.clients.worst_first()[0] == 0
    assert found.client_table.index[0] == "hospital 00"


def test_intervals_hold_their_figures_and_are_as_wide_as_the_data_are_few(frame, found):
    few = evenly.audit(frame.head(300), **WHO)
    for name in ("accuracy", "selection_rate", "tpr", "fpr", "base_rate"):
        large, small = found.groups[0].rates[name][0], few.groups[0].rates[name][0]
        assert large.low < large.value < large.high
        assert large.high - large.low < small.high - small.low
    gap = found.groups[0].against["spd"][0]
    assert gap.low < gap.value < gap.high < 0


def test_without_enough_clients_people_are_resampled(frame):
    alone = evenly.audit(frame, label="y", prediction="p", sensitive="sex")
    assert alone.clients is None
    assert alone.intersections is None
    gap, rows = alone.groups[0].against["spd"][0], frame.groupby("sex")["p"].agg(["mean", "count"])
    # of two independent shares
    half = 1.96 * np.sqrt((rows["mean"] * (1 - rows["mean"]) / rows["count"]).sum())
    assert (gap.high - gap.low) / 2 == pytest.approx(half, rel=0.1)


def test_only_clients_can_be_looked_at(frame):
    found = evenly.audit(frame, label="y", prediction="p", client="hospital")
    assert found.groups == ()
    assert {figure.level for figure in found.figures} == {"model", "clients", "client"}


def test_the_record_has_every_figure_and_null_where_there_is_none(found):
    record = found.json()
    assert len(record["rows"]) == len(found.figures)
    for row, figure in zip(record["rows"], found.figures, strict=True):
        for key, value in figure._asdict().items():
            assert (
                row[key] is None
                if isinstance(value, float) and not math.isfinite(value)
                else row[key] == value
            )
    assert any(row["value"] is None for row in record["rows"]) or any(
        row["low"] is None for row in record["rows"]
    )
    assert json.loads(json.dumps(record, allow_nan=False)) == json.loads(json.dumps(record))


def test_the_order_of_rows_does_not_matter(frame, found):
    shuffled = evenly.audit(frame.sample(frac=1, random_state=1), **WHO, score="s")
    assert [each[:3] for each in shuffled.figures] == [each[:3] for each in found.figures]
    np.testing.assert_allclose(
        [each.value for each in shuffled.figures], [each.value for each in found.figures], rtol=1e-9
    )


def test_people_without_a_value_are_shown_but_compared_with_nobody(frame, found):
    some = frame.copy()
    some.loc[some.index[:200], "sex"] = None
    with_gaps = evenly.audit(some, **WHO)
    assert with_gaps.groups[0].names == ("female", "male", "(missing)")
    assert not with_gaps.groups[0].against["spd"][2].has_value
    known = evenly.audit(some.iloc[200:], **WHO)
    assert with_gaps.groups[0].against["spd"][0].value == pytest.approx(
        known.groups[0].against["spd"][0].value
    )
    assert with_gaps.warnings[-1].startswith("Without a value of sex: 200 rows")


def test_the_unprivileged_value_can_be_named(frame):
    found = evenly.audit(frame, **WHO, unprivileged={"race": "C"})
    assert [view.names[view.unprivileged or 0] for view in found.groups] == ["female", "C"]
    assert [view.by_default for view in found.groups] == [True, False]
    column = {
        figure.metric: figure.value
        for figure in found.figures
        if (figure.level, figure.name) == ("column", "race")
    }
    assert column["spd"] == found.groups[1].against["spd"][2].value


def test_without_a_favourable_label_only_accuracy_is_compared(frame):
    three = frame.assign(y=frame["y"] + 2 * (frame["s"] > 0.9), p=frame["p"])
    found = evenly.audit(three, **WHO)
    assert set(found.groups[0].rates) == {"accuracy"}
    assert set(found.groups[0].against) == {"acc_diff"}
    assert "none is named as favourable" in found.warnings[-1]


def test_few_outcomes_tell_as_much_as_all_labels():
    draw = np.random.default_rng(0)
    label, prediction = draw.integers(0, 4, (2, 500))
    full = np.zeros((1, 4, 4), int)
    np.add.at(full[0], (label, prediction), 1)
    few = np.zeros((1, 3, 3), int)
    np.add.at(
        few[0], outcomes(MatchedLabels(("a", "b", "c", "d"), label, prediction, ()), 2)[:2], 1
    )
    for one, other in zip(rates(full, 2), rates(few, 1), strict=True):
        np.testing.assert_allclose(one, other)


def test_calibration_error_is_the_weighted_distance_in_every_bin():
    label, score = np.array([0, 1, 1, 0]), np.array([0.05, 0.05, 0.91, 0.97])
    found = summarise_scores(check_scores("s", score, label), None, 1)
    assert found.ece[0] == pytest.approx(0.5 * abs(0.05 - 0.5) + 0.5 * abs(0.94 - 0.5))
    assert found.bias[0] == pytest.approx(score.mean() - label.mean())
    assert found.auc[0] == pytest.approx((0.5 + 0 + 1 + 0) / 4)  # pairs: a tie, lost, won, lost


def test_thresholds_select_everybody_from_a_score_on(frame):
    found = summarise_scores(
        check_scores("s", frame["s"].to_numpy(), frame["y"].to_numpy()), None, 1
    )
    selected, right = at_thresholds(found.steps)
    assert selected[0, 10] == pytest.approx((frame["s"] >= 0.5).mean())
    assert right[0, 10] == pytest.approx((frame["s"] >= 0.5)[frame["y"] == 1].mean())


def test_very_many_clients_are_measured_but_not_listed():
    frame = predictions(24_000, clients=12_000)
    found = evenly.audit(frame, **WHO, min_cell=0)
    assert found.clients is not None
    assert not found.clients.can_list
    assert "client" not in {figure.level for figure in found.figures}
    assert "more than 10,000" in found.warnings[0]
    tables = np.zeros((found.clients.clients, 1, 2, 2), int)
    np.add.at(
        tables, (frame["hospital"].astype("category").cat.codes, 0, frame["y"], frame["p"]), 1
    )
    assert found.clients.summary["average_devices"].value == pytest.approx(
        measure(accuracy(tables), examples(tables))["average_devices"]
    )


def test_a_gap_that_comes_only_from_where_people_live_is_not_there_within_clients():
    """Every client treats women and men alike, but women live where few are selected."""
    draw, rows = np.random.default_rng(0), 12_000
    client = draw.integers(0, 12, rows)
    sex = np.where(draw.random(rows) < np.where(client < 6, 0.8, 0.2), "f", "m")
    frame = pd.DataFrame(
        {
            "client": client,
            "sex": sex,
            "y": draw.integers(0, 2, rows),
            "p": draw.random(rows) < np.where(client < 6, 0.3, 0.7),
        }
    )
    view = evenly.audit(
        frame.astype({"p": int}),
        label="y",
        prediction="p",
        client="client",
        sensitive="sex",
        unprivileged="f",
    ).groups[0]
    assert view.against["spd"][0].high < -0.1
    assert view.client_gaps is not None
    assert view.client_gaps.mean.low < 0 < view.client_gaps.mean.high
    own: Any = frame[frame["client"] == 3].groupby("sex")["p"].mean()
    assert view.client_gaps.spd[3].value == pytest.approx(own["f"] - own["m"])


def test_the_interval_within_a_client_is_newcombes():
    # 56 of 70 and 48 of 80 are selected
    pairs = np.array([[[[0, 0], [14, 56]], [[0, 0], [32, 48]]]])
    gap = client_gaps(pairs, np.zeros((1, 2, 2), int), np.zeros(1, bool), 0).spd[0]
    # his table, method 10
    assert (gap.value, gap.low, gap.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "rows"), [(30, 60), (12, 150)])
def test_intervals_hold_the_truth_of_other_clients_about_as_often_as_they_say(
    clients: int, rows: int
):
    inside = 0
    for seed in range(100):
        draw = np.random.default_rng(seed)
        client, female = np.repeat(np.arange(clients), rows), draw.random(clients * rows) < 0.5
        # the gap differs from client to client
        chance = np.clip(0.5 + female * (draw.normal(-0.1, 0.08, clients)[client]), 0, 1)
        sex, p = np.where(female, "f", "m"), (draw.random(len(client)) < chance).astype(int)
        frame = pd.DataFrame(
            {"client": client, "sex": sex, "y": draw.integers(0, 2, len(client)), "p": p}
        )
        found = evenly.audit(
            frame,
            label="y",
            prediction="p",
            client="client",
            sensitive="sex",
            unprivileged="f",
            min_cell=0,
        )
        gap = found.groups[0].against["spd"][0]
        inside += gap.low <= -0.1 <= gap.high
    assert inside >= 88  # 95 of 100 with a deviation of 2.2, and a little less for few clients


def test_a_gap_of_nothing_among_few_people_is_not_certain():
    """All are predicted right: resampling finds no width at all, however few they are."""
    frame = pd.DataFrame({"sex": ["f", "m"] * 24, "y": [0, 0, 1, 1] * 12, "p": [0, 0, 1, 1] * 12})
    view = evenly.audit(frame, label="y", prediction="p", sensitive="sex").groups[0]
    for name in ("acc_diff", "eod"):
        gap = view.against[name][0]
        assert gap.value == 0
        assert gap.low < -0.1 < 0.1 < gap.high

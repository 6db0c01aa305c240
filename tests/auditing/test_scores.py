"""Scores against slow and plain calculations: pairs of people, one after another, for AUC; loops
over bins and thresholds.
"""

import numpy as np
import pytest

from evenly.auditing.estimates import (
    BINS,
    THRESHOLDS,
    ScoreSummary,
    at_thresholds,
    check_scores,
    curves,
    score_figures,
    summarise_scores,
)

GROUPS = 4
Z = 1.96  # of a 95 % interval


def people(
    rows: int = 160, seed: int = 0, digits: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores with many ties, labels, and groups; the last group has one label only, and the third
    nobody.
    """
    draw = np.random.default_rng(seed)
    group = draw.choice([0, 1, 3], rows, p=[0.6, 0.3, 0.1])
    score = draw.random(rows).round(digits)
    label = (draw.random(rows) < 0.2 + 0.6 * score).astype(int)
    label[group == 3] = 1
    return score, label, group


def placements(score: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each person with the favourable label, the share of the others who are scored lower, ties
    half; and the reverse.
    """
    ours, theirs = score[label == 1], score[label == 0]
    won = (ours[:, None] > theirs) + 0.5 * (ours[:, None] == theirs)
    return won.mean(1), won.mean(0)


@pytest.mark.parametrize("digits", [1, 6])
@pytest.mark.parametrize("seed", [0, 1])
def test_auc_and_its_interval_are_delongs(seed: int, digits: int):
    score, label, group = people(seed=seed, digits=digits)
    found = summarise_scores(check_scores("s", score, label), group, GROUPS)
    for g in (0, 1):
        rows, columns = placements(score[group == g], label[group == g])
        variance = rows.var(ddof=1) / len(rows) + columns.var(ddof=1) / len(columns)
        auc = rows.mean()
        assert found.auc[g] == pytest.approx(auc)
        half = Z * np.sqrt(variance) / (auc * (1 - auc))
        ends = [1 / (1 + np.exp(-(np.log(auc / (1 - auc)) + side * half))) for side in (-1, 1)]
        assert (found.auc_low[g], found.auc_high[g]) == pytest.approx(ends, rel=1e-5)
    assert np.isnan(found.auc[2:]).all()  # nobody, and nobody to be compared with
    assert np.isnan(found.auc_low[2:]).all()


def test_an_auc_at_its_end_has_no_interval():
    found = summarise_scores(
        check_scores("s", np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 0, 1, 1])), None, 1
    )
    assert found.auc[0] == 1
    assert np.isnan([found.auc_low[0], found.auc_high[0]]).all()
    worst = summarise_scores(
        check_scores("s", np.array([0.8, 0.9, 0.1, 0.2]), np.array([0, 0, 1, 1])), None, 1
    )
    assert worst.auc[0] == 0
    assert np.isnan(worst.auc_low[0])


def test_scores_that_are_all_equal_rank_nobody_and_have_no_interval():
    tied = summarise_scores(check_scores("s", np.full(4, 0.5), np.array([0, 0, 1, 1])), None, 1)
    assert tied.auc[0] == 0.5
    assert np.isnan([tied.auc_low[0], tied.auc_high[0]]).all()


def test_one_person_of_each_label_is_enough_for_an_auc():
    group = np.array([0, 0, 0, 1, 1, 1])
    summary = summarise_scores(
        check_scores("s", np.array([0.5, 0.2, 0.9, 0.3, 0.1, 0.2]), np.array([0, 1, 1, 0, 0, 1])),
        group,
        2,
    )
    assert summary.auc.tolist() == [0.5, 0.5]
    assert np.isnan(summary.auc_low).all()  # the placement of a single person has no variance


def test_scores_outside_of_0_and_1_are_refused():
    for value in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match="must hold probabilities from 0 to 1"):
            check_scores("s", np.array([0.5, value]), np.array([0, 1]))
    assert check_scores("s", np.array([1.0, 0.0]), np.array([0, 1])).order.tolist() == [1, 0]


def test_calibration_bias_and_counts_are_those_of_loops():
    score, label, group = people(400, digits=2)
    score[:3] = 1.0, 0.0, 0.05  # the borders of bins
    found = summarise_scores(check_scores("s", score, label), group, GROUPS)
    for g in (0, 1, 3):
        s, y = score[group == g], label[group == g]
        assert (found.rows[g], found.favourable[g]) == (len(s), y.sum())
        gaps = s - y
        half = Z * gaps.std(ddof=1) / np.sqrt(len(s))
        assert (found.bias[g], found.bias_low[g], found.bias_high[g]) == pytest.approx(
            (gaps.mean(), gaps.mean() - half, gaps.mean() + half)
        )
        error = 0.0
        for b in range(BINS):
            inside = np.minimum((s * BINS).astype(int), BINS - 1) == b
            assert found.bins[g, b] == pytest.approx(
                [inside.sum(), s[inside].sum(), y[inside].sum()]
            )
            error += abs(s[inside].sum() - y[inside].sum()) / len(s)
        assert found.ece[g] == pytest.approx(error)
        for kind in (0, 1):
            for t in range(THRESHOLDS):
                inside = (np.minimum((s * THRESHOLDS).astype(int), THRESHOLDS - 1) == t) & (
                    y == kind
                )
                assert found.steps[g, kind, t] == inside.sum()
        selected, right = at_thresholds(found.steps)
        for t in range(THRESHOLDS):
            above = (s * THRESHOLDS).astype(int) >= t
            assert selected[g, t] == pytest.approx(above.mean())
            assert right[g, t] == pytest.approx(above[y == 1].mean())
    assert np.isnan(found.bias[2])
    assert np.isnan(found.ece[2])


def test_one_person_has_a_bias_and_no_width():
    found = summarise_scores(check_scores("s", np.array([0.3]), np.array([1])), None, 1)
    assert (found.bias[0], found.bias_low[0], found.bias_high[0]) == pytest.approx(
        (-0.7, -0.7, -0.7)
    )


@pytest.fixture(scope="module")
def many() -> ScoreSummary:
    score, label, group = people(6000, digits=3)
    return summarise_scores(check_scores("s", score, label), group, GROUPS)


def test_what_may_be_shown_is_shown(many: ScoreSummary):
    shown = np.array([True, False, True, False])
    found = score_figures(many, shown, 5)
    assert all(
        [estimate.has_value for estimate in found[name]] == [True, False, False, False]
        for name in ("auc", "bias", "ece")
    )
    assert not found["ece"][0].has_interval
    assert found["bias"][0].value == pytest.approx(many.bias[0])
    fewest = int(min(many.favourable[0], many.rows[0] - many.favourable[0]))
    enough = [
        score_figures(many, shown, min_cell)["auc"][0].has_value
        for min_cell in (fewest, fewest + 1)
    ]
    assert enough == [True, False]


def test_curves_are_means_of_bins_and_gaps_to_all_others(many: ScoreSummary):
    shown = compared = np.array([True, True, False, False])
    found = curves(many, shown, compared, 5)
    rows, stated, seen = np.moveaxis(many.bins, -1, 0)
    np.testing.assert_allclose(found.score[:2], stated[:2] / rows[:2])
    np.testing.assert_allclose(found.frequency[:2], seen[:2] / rows[:2])
    assert not found.rows[2:].any()
    selected, right = at_thresholds(np.stack([many.steps[0], many.steps[1]]))
    np.testing.assert_allclose(found.spd[0], selected[0] - selected[1])
    np.testing.assert_allclose(found.eod[1], right[1] - right[0])
    assert np.isnan(found.spd[2:]).all()


def test_a_curve_of_thresholds_needs_ten_times_as_many_people_of_each_label(many: ScoreSummary):
    both = np.array([True, True, False, False])
    fewest = int(many.steps[:2].sum(-1).min())
    min_cell = fewest // 10
    assert np.isfinite(curves(many, both, both, min_cell).spd[0]).all()
    assert np.isnan(curves(many, both, both, min_cell + 1).spd[0]).all()
    assert np.isfinite(curves(many, both, both, 0).spd[0]).all()


@pytest.mark.parametrize(("people", "visible"), [(9, False), (10, True)])
def test_a_curve_of_thresholds_needs_ten_people_of_each_label_even_if_nothing_is_hidden(
    people: int, visible: bool
):
    label = np.tile([0, 1], 2 * people)
    summary = summarise_scores(
        check_scores("s", np.linspace(0, 1, len(label)), label),
        np.arange(len(label)) // (2 * people),
        2,
    )
    lines = curves(summary, np.ones(2, bool), np.ones(2, bool), 0)
    assert np.isfinite(lines.spd).all() == np.isfinite(lines.eod).all() == visible


def test_bins_with_few_people_are_hidden_with_one_more_that_would_tell_them():
    score = np.array([0.05] * 3 + [0.15] * 9 + [0.25] * 20 + [0.95] * 30)
    label = (np.arange(len(score)) % 2).astype(int)
    found = curves(
        summarise_scores(check_scores("s", score, label), None, 1),
        np.array([True]),
        np.array([True]),
        5,
    )
    assert found.rows[0].tolist() == [0, 0, 20, 0, 0, 0, 0, 0, 0, 30]
    assert np.isnan(found.score[0, :2]).all()
    assert (found.score[0, 2], found.frequency[0, 9]) == pytest.approx((0.25, 0.5))

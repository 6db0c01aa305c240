"""An audit's figures are those of fairlearn and scikit-learn on the same rows."""

import warnings
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fairlearn import metrics as fairlearn
    from sklearn.metrics import accuracy_score, roc_auc_score

import evenly
from evenly.auditing import Audit
from tests.auditing.invented import WHO, predictions

RATES = {
    "accuracy": accuracy_score,
    "selection_rate": fairlearn.selection_rate,
    "tpr": fairlearn.true_positive_rate,
    "fpr": fairlearn.false_positive_rate,
}
EXACT = {"rtol": 0, "atol": 1e-12}


@pytest.fixture(scope="module")
def frame():
    return predictions()


@pytest.fixture(scope="module")
def found(frame) -> Audit:
    return evenly.audit(frame, **WHO, score="s", min_cell=0)


def theirs(frame, columns):
    return fairlearn.MetricFrame(
        metrics=RATES, y_true=frame["y"], y_pred=frame["p"], sensitive_features=frame[columns]
    )


@pytest.mark.parametrize("column", ["sex", "race"])
def test_rates_of_groups_are_those_of_a_metric_frame(frame, found: Audit, column: str):
    by_group = theirs(frame, column).by_group
    view = next(view for view in found.groups if view.title == column)
    for rate in RATES:
        np.testing.assert_allclose(
            [each.value / 100 for each in view.rates[rate]],
            by_group.loc[list(view.names), rate],
            **EXACT,
        )


def test_rates_of_intersections_are_those_of_a_metric_frame(frame, found: Audit):
    by_group: Any = theirs(frame, ["sex", "race"]).by_group
    ours = found.group_table
    for (sex, race), row in by_group.iterrows():
        np.testing.assert_allclose(
            ours.loc[f"sex={sex}, race={race}", list(RATES)].to_numpy(float) / 100, row, **EXACT
        )


def test_ranges_are_fairlearns_differences(frame, found: Audit):
    for view, columns in [(found.groups[1], "race"), (found.intersections, ["sex", "race"])]:
        difference = theirs(frame, columns).difference()
        assert view is not None
        for name, rate in {
            "spd_range": "selection_rate",
            "eod_range": "tpr",
            "acc_range": "accuracy",
        }.items():
            np.testing.assert_allclose(view.ranges[name].value, difference[rate], **EXACT)


def test_a_group_against_all_others_is_fairlearns_difference_between_the_two(frame, found: Audit):
    female = frame["sex"] == "female"
    spd = fairlearn.demographic_parity_difference(frame["y"], frame["p"], sensitive_features=female)
    ratio = fairlearn.demographic_parity_ratio(frame["y"], frame["p"], sensitive_features=female)
    odds = fairlearn.equalized_odds_difference(frame["y"], frame["p"], sensitive_features=female)
    against = {name: each[0].value for name, each in found.groups[0].against.items()}
    np.testing.assert_allclose(
        [-against["spd"], against["impact_ratio"], against["odds_diff"]],
        [spd, ratio, odds],
        **EXACT,
    )


def test_auc_is_that_of_scikit_learn_for_everybody_groups_and_clients(frame, found: Audit):
    np.testing.assert_allclose(
        found.whole["auc"].value, roc_auc_score(frame["y"], frame["s"]), **EXACT
    )
    ours = {"sex": found.groups[0], "race": found.groups[1], "hospital": found.clients}
    for column, view in ours.items():
        assert view is not None
        expected = [roc_auc_score(rows["y"], rows["s"]) for _, rows in frame.groupby(column)]
        np.testing.assert_allclose([each.value for each in view.scores["auc"]], expected, **EXACT)


def test_more_than_two_labels_are_set_against_the_favourable_one(frame):
    three = frame.assign(
        y=frame["y"] + (frame["s"] > 0.9), p=frame["p"] + (frame["s"] > 0.8)
    ).astype({"y": str, "p": str})
    found = evenly.audit(three, **WHO, favourable=2, min_cell=0)
    wanted = {
        "y_true": three["y"] == "2",
        "y_pred": three["p"] == "2",
        "sensitive_features": three["race"],
    }
    expected = fairlearn.MetricFrame(
        metrics={name: RATES[name] for name in ("selection_rate", "tpr", "fpr")}, **wanted
    ).by_group
    right = (three["y"] == three["p"]).groupby(three["race"]).mean()
    for g, name in enumerate(found.groups[1].names):
        ours = {rate: each[g].value / 100 for rate, each in found.groups[1].rates.items()}
        np.testing.assert_allclose(ours["accuracy"], right[name], **EXACT)
        np.testing.assert_allclose(
            [ours[rate] for rate in expected.columns], expected.loc[name], **EXACT
        )

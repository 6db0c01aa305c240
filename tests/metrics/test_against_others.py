"""Agreement with other people's programs: fairlearn, run here, and AIF360, whose figures are kept
beside this file.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fairlearn import metrics as fairlearn
    from sklearn.metrics import accuracy_score, f1_score, precision_score

from evenly.metrics import measure_groups, rates
from tests.metrics.tables import as_rows, random_table

EXACT = {"rtol": 0, "atol": 1e-12}
KEPT = json.loads((Path(__file__).parent / "aif360.json").read_text())


@pytest.mark.parametrize("seed", range(5))
def test_rates_of_groups_are_those_of_fairlearn(seed: int):
    table = random_table(seed, groups=4)
    group, label, outcome = as_rows(table)
    theirs = fairlearn.MetricFrame(
        metrics={
            "examples": fairlearn.count,
            "accuracy": accuracy_score,
            "selection_rate": fairlearn.selection_rate,
            "tpr": fairlearn.true_positive_rate,
            "fpr": fairlearn.false_positive_rate,
            "precision": precision_score,
            "f1": f1_score,
        },
        y_true=label,
        y_pred=outcome,
        sensitive_features=group,
    ).by_group
    for name in theirs.columns:
        np.testing.assert_allclose(
            getattr(rates(table, 1), name), np.asarray(theirs[name]), **EXACT
        )


@pytest.mark.parametrize("seed", range(5))
def test_ranges_over_groups_are_fairlearns_differences(seed: int):
    table = random_table(seed, groups=5)
    group, label, outcome = as_rows(table)
    ours = measure_groups(table, favourable=1, unprivileged=(0, 1))
    for name, function in {
        "spd_range": fairlearn.demographic_parity_difference,
        "eod_range": fairlearn.equal_opportunity_difference,
        "odds_range": fairlearn.equalized_odds_difference,
    }.items():
        np.testing.assert_allclose(
            ours[name], function(label, outcome, sensitive_features=group), **EXACT
        )
    # Pooled into two sides, the unsigned differences are fairlearn's too.
    side = np.where(np.isin(group, (0, 1)), 0, 1)
    for name, function in {
        "spd_abs": fairlearn.demographic_parity_difference,
        "eod_abs": fairlearn.equal_opportunity_difference,
        "odds_diff": fairlearn.equalized_odds_difference,
    }.items():
        np.testing.assert_allclose(
            ours[name], function(label, outcome, sensitive_features=side), **EXACT
        )


@pytest.mark.parametrize("case", KEPT["cases"], ids=lambda case: f"seed{case['seed']}")
def test_signed_differences_are_those_of_aif360(case: dict):
    table = random_table(case["seed"], groups=4)
    assert int(table.sum()) == case["rows"]  # the very table that AIF360 was given
    found = measure_groups(table, favourable=1, unprivileged=(0, 2))
    for name, value in case["aif360"].items():
        np.testing.assert_allclose(found[name], value, err_msg=name, **EXACT)

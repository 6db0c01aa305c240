"""The gaps of the synthetic census follow from its settings, up to sampling noise."""

import numpy as np
import pytest

from evenly.data.splits import SPLITS
from evenly.datasets import DATASETS, Sizes, synthetic_census
from evenly.datasets.synthetic import is_qualified

ROWS = 200_000  # standard errors of the rates below are under 0.003


def gap(values: np.ndarray, rare: np.ndarray) -> float:
    """Mean of the unprivileged less that of the privileged."""
    return float(values[rare].mean() - values[~rare].mean())


def test_the_usual_one_is_as_its_card_says():
    federation = synthetic_census()
    assert Sizes.of(federation) == DATASETS["synthetic-census"].expected
    assert (federation.groups, federation.unprivileged, federation.favourable) == (
        ("unprivileged", "privileged"),
        (0,),
        1,
    )
    assert federation.x.dtype == np.float32
    np.testing.assert_array_equal(federation.x[:, -1], federation.group)
    rows = np.concatenate([*(federation.split(name).rows for name in SPLITS), federation.central])
    assert sorted(rows) == list(range(10_000))


@pytest.mark.parametrize("bias", [0.0, 0.2, 0.6])
def test_the_rates_of_favourable_labels_differ_by_half_the_label_bias(bias):
    federation = synthetic_census(rows=ROWS, label_bias=bias, angle=40)
    assert gap(federation.y, federation.group == 0) == pytest.approx(-bias / 2, abs=0.01)
    assert federation.y[federation.group == 1].mean() == pytest.approx(0.5, abs=0.01)


def test_true_qualification_is_a_fair_model_that_recorded_labels_blame():
    bias, angle = 0.3, 50.0
    federation = synthetic_census(rows=ROWS, label_bias=bias, angle=angle)
    y, rare = federation.y == 1, federation.group == 0
    truth = is_qualified(federation.x, rare, angle)
    assert gap(truth, rare) == pytest.approx(0, abs=0.01)  # SPD
    assert truth[y].all()  # every recorded favourable label is deserved, so EOD is 0
    assert gap(truth[~y], rare[~y]) == pytest.approx(bias / (1 + bias), abs=0.01)  # FPR
    assert gap(truth == y, rare) == pytest.approx(-bias / 2, abs=0.01)  # accuracy


@pytest.mark.parametrize("bias", [0.0, 0.4])
def test_the_privileged_groups_model_misses_others_by_the_angle(bias):
    federation = synthetic_census(rows=ROWS, label_bias=bias, angle=45)
    y, rare = federation.y == 1, federation.group == 0
    theirs = federation.x[:, 0] > 0
    assert gap(theirs, rare) == pytest.approx(0, abs=0.01)  # SPD
    assert gap(theirs[y], rare[y]) == pytest.approx(-45 / 180, abs=0.01)  # EOD
    if bias == 0:
        assert gap(theirs == y, rare) == pytest.approx(-45 / 180, abs=0.01)


def test_shares_of_the_unprivileged_go_evenly_from_low_to_high():
    federation = synthetic_census(clients=5, rows=ROWS, share=0.4, skew=0.75)
    cells = federation.census().cells.sum(2)
    assert cells[:, 0] / cells.sum(1) == pytest.approx(
        0.4 * (1 + 0.75 * np.linspace(-1, 1, 5)), abs=0.01
    )
    assert (federation.group[federation.central] == 0).mean() == pytest.approx(0.4, abs=0.01)
    even = synthetic_census(clients=5, rows=ROWS, skew=0).census().cells.sum(2)
    assert even[:, 0] / even.sum(1) == pytest.approx(np.full(5, 0.3), abs=0.01)
    assert synthetic_census(clients=1, rows=100).clients == 1


def test_seeds_decide_people_and_validation_rows():
    first, again, other, split = (
        synthetic_census(),
        synthetic_census(),
        synthetic_census(seed=1),
        synthetic_census(split_seed=1),
    )
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.valid.rows, again.valid.rows)
    assert not np.array_equal(first.x, other.x)
    np.testing.assert_array_equal(first.x, split.x)
    assert set(first.valid.of(0).tolist()) != set(split.valid.of(0).tolist())


def test_label_bias_alone_changes_labels_only():
    fair, biased = synthetic_census(label_bias=0), synthetic_census(label_bias=1)
    np.testing.assert_array_equal(fair.x, biased.x)
    changed = fair.y != biased.y
    assert (biased.group[changed] == 0).all()
    assert not biased.y[biased.group == 0].any()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"clients": 0},
            "clients must be between 1 and the rows outside the test set, 8000, got 0",
        ),
        ({"features": 1}, "features must be at least 2, got 1"),
        ({"share": 0}, "share must be between 0 and 1, got 0"),
        ({"share": 0.6, "skew": 1.0}, r"share \* \(1 \+ skew\) must be at most 1, got 1.2"),
        ({"skew": -0.1}, "skew must be at least 0 and at most 1, got -0.1"),
        ({"label_bias": 1.1}, "label_bias must be at least 0 and at most 1, got 1.1"),
        ({"angle": 200}, "angle must be between 0 and 180 degrees, got 200"),
        ({"test": 1.0}, "test and valid must be at least 0 and below 1, got 1.0 and 0.1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        synthetic_census(**settings)

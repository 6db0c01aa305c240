"""Group metrics: the specification's numbers, what is undefined, and what must not change them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.data.sensitive import Attribute
from evenly.metrics import (
    EQUITY_METRICS,
    EVERY_METRIC,
    GROUP_METRICS,
    METRICS,
    RUN_METRICS,
    by_attribute,
    measure_groups,
    pooled,
    rates,
    rows_behind,
    sides,
)
from evenly.metrics.groups import GroupedRates, fas_abs, fas_thesis, lowest, spread_over_groups
from evenly.metrics.outcomes import Rates
from evenly.types import Trace
from tests.metrics.tables import WORKED, as_rows, random_table, tables

TWO = {"favourable": 1, "unprivileged": (0,)}
SIGNED = ("spd", "eod", "aod", "acc_diff", "f1_diff")


@pytest.mark.parametrize(
    "name, expected",
    {
        "spd": -0.2,
        "eod": -0.15,
        "aod": -0.1892857143,
        "acc_diff": 0.0333333333,
        "f1_diff": -0.0392156863,
        "accuracy": 68,
        "fas_abs": 0.5826547619,
        "fas_thesis": 0.5826547619,
        # By hand: TPR 0.6 and 0.75, FPR 0.2 and 3/7, selected 40/100 and 90/150, precision 90/130,
        # accuracies 0.7 and 2/3.
        "odds_diff": 3 / 7 - 0.2,
        "odds_range": 3 / 7 - 0.2,
        "spd_range": 0.2,
        "eod_range": 0.15,
        "acc_range": 0.7 - 2 / 3,
        "precision": 100 * 90 / 130,
        "worst_accuracy": 200 / 3,
        "worst_tpr": 60,
        "worst_selection": 40,
        "representation": 40,
    }.items(),
)
def test_worked_example(name: str, expected: float):
    assert measure_groups(WORKED, **TWO)[name] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    "accuracy, eod, spd, aod, gap, thesis, printed",
    [
        (0.555, 0.029, 0.023, 0.017, -0.058, 0.55347, 0.554),
        (0.571, 0.064, 0.072, 0.057, -0.052, 0.55087, 0.551),
    ],
)
def test_the_thesis_tables_have_the_signed_accuracy_difference(
    accuracy: float, eod: float, spd: float, aod: float, gap: float, thesis: float, printed: float
):
    # Rates that give exactly these differences, put in place of counted ones.
    def pair(difference: float) -> np.ndarray:
        return np.array([0.5 + difference, 0.5])

    none = np.full(2, np.nan)
    both = Rates(none, pair(gap), pair(spd), none, pair(eod), pair(2 * aod - eod), none, none)
    seen = GroupedRates(both, both, Rates(*(np.array(accuracy),) * 8))
    assert fas_thesis(seen) == pytest.approx(thesis, abs=5e-6)
    # from figures that are rounded themselves
    assert fas_thesis(seen) == pytest.approx(printed, abs=1e-3)
    assert abs(fas_abs(seen) - printed) > 0.01
    assert fas_abs(seen) == pytest.approx(accuracy * (1 - (eod + spd + aod - gap) / 4))


@given(tables())
def test_rates_are_what_counting_rows_gives(table: np.ndarray):
    group, label, outcome = as_rows(table)
    found = rates(table, 1)

    def share(of: np.ndarray, among: np.ndarray) -> float:
        return of[among].mean() if among.any() else np.nan

    for g in range(3):
        here = group == g
        expected = {
            "examples": here.sum(),
            "accuracy": share(label == outcome, here),
            "selection_rate": share(outcome == 1, here),
            "base_rate": share(label == 1, here),
            "tpr": share(outcome == 1, here & (label == 1)),
            "fpr": share(outcome == 1, here & (label == 0)),
            "precision": share(label == 1, here & (outcome == 1)),
        }
        for name, value in expected.items():
            np.testing.assert_allclose(getattr(found, name)[g], value, rtol=1e-12, err_msg=name)
    full = table[:, 1, 1] > 0
    np.testing.assert_allclose(
        found.f1[full], 2 / (1 / found.precision[full] + 1 / found.tpr[full]), rtol=1e-12
    )


@given(tables())
def test_undefined_is_nan_exactly_where_the_rows_are_missing_and_nothing_warns(table: np.ndarray):
    found, behind = rates(table, 1), rows_behind(table, 1)
    for name in behind._fields:
        np.testing.assert_array_equal(np.isnan(getattr(found, name)), getattr(behind, name) == 0)
    np.testing.assert_array_equal(np.isnan(found.f1), behind.tpr + behind.precision == 0)
    measure_groups(table, **TWO)  # warnings are errors here


@pytest.mark.parametrize("name", GROUP_METRICS)
def test_each_metric_is_undefined_where_it_says_and_defined_elsewhere(name: str):
    one_label = WORKED.copy()
    one_label[0, 1] = 0  # nobody of the unprivileged is labelled favourable
    never = WORKED.copy()
    never[:, :, 0] += never[:, :, 1]
    never[:, :, 1] = 0  # nobody is predicted favourable
    cases = {
        "full": (WORKED, set()),
        "one label": (one_label, {"eod", "aod", "odds", "eod_range", "odds_range", "fas"}),
        "never predicted": (never, {"precision"}),
        "one side": (WORKED * [[[0]], [[1]]], {*SIGNED, "fas", "odds", "range"}),
        "nobody": (WORKED * 0, {*GROUP_METRICS}),
    }
    for case, (table, undefined) in cases.items():
        stem = name.removesuffix("_abs")
        expected = (
            name in undefined
            or stem in undefined
            or name.split("_")[0] in undefined & {"fas", "odds"}
        )
        expected |= "range" in undefined and name.endswith("_range")
        assert bool(np.isnan(measure_groups(table, **TWO)[name])) == expected, case


@given(tables(groups=2))
def test_swapping_the_sides_turns_the_sign_and_nothing_else(table: np.ndarray):
    there, back = measure_groups(table, **TWO), measure_groups(table[::-1], **TWO)
    for name in SIGNED:
        np.testing.assert_allclose(back[name], -there[name], atol=1e-12, err_msg=name)
    for name in GROUP_METRICS:
        if name not in (*SIGNED, "fas_thesis", "representation"):
            np.testing.assert_allclose(back[name], there[name], atol=1e-12, err_msg=name)


@given(tables(groups=4), st.permutations(range(4)))
def test_the_order_of_groups_does_not_matter(table: np.ndarray, order: list[int]):
    moved = measure_groups(
        table[order], favourable=1, unprivileged=[order.index(g) for g in (0, 2)]
    )
    for name, value in measure_groups(table, favourable=1, unprivileged=(0, 2)).items():
        np.testing.assert_allclose(moved[name], value, atol=1e-12, err_msg=name)


@given(tables())
def test_a_group_without_rows_changes_nothing(table: np.ndarray):
    more = np.concatenate([table, np.zeros((1, 2, 2), int)])
    for name, value in measure_groups(table, **TWO).items():
        np.testing.assert_allclose(measure_groups(more, **TWO)[name], value, err_msg=name)


@given(tables(), st.integers(2, 9))
def test_every_row_several_times_changes_nothing(table: np.ndarray, times: int):
    for name, value in measure_groups(table, **TWO).items():
        np.testing.assert_allclose(
            measure_groups(times * table, **TWO)[name], value, atol=1e-12, err_msg=name
        )


@given(tables())
def test_metrics_stay_in_their_ranges(table: np.ndarray):
    for name, value in measure_groups(table, **TWO).items():
        low, high = (
            float(end)
            for end in GROUP_METRICS[name].range.replace("−", "-").removesuffix(" %").split(" to ")
        )
        assert np.isnan(value) or low - 1e-9 <= value <= high + 1e-9, name


def test_all_leading_axes_at_once():
    many = np.stack([random_table(s, groups=3) for s in range(6)]).reshape(2, 3, 3, 2, 2)
    found = measure_groups(many, favourable=0, unprivileged=(1, 2))
    for i, j in np.ndindex(2, 3):
        for name, value in measure_groups(many[i, j], favourable=0, unprivileged=(1, 2)).items():
            np.testing.assert_array_equal(found[name][i, j], value)


@given(tables(groups=2, labels=4), st.integers(0, 3))
def test_many_labels_are_the_favourable_one_against_the_rest(table: np.ndarray, favourable: int):
    rest = [label for label in range(4) if label != favourable]
    order = [rest[0], favourable]
    merged = np.zeros((2, 2, 2), int)
    for i, a in enumerate(order):
        for j, b in enumerate(order):
            rows, columns = rest if a != favourable else [a], rest if b != favourable else [b]
            merged[:, i, j] = table[:, rows][:, :, columns].sum((1, 2))
    whole, two = (
        measure_groups(table, favourable=favourable, unprivileged=(0,)),
        measure_groups(merged, **TWO),
    )
    for name in ("spd", "eod", "aod", "f1_diff", "odds_range", "precision", "worst_tpr"):
        np.testing.assert_allclose(whole[name], two[name], atol=1e-12, err_msg=name)
    # Accuracy still asks for the very label, so mistaking one unfavourable label for another is a
    # mistake.
    np.testing.assert_allclose(
        whole["accuracy"] / 100, (np.trace(table.sum(0)) / table.sum()) if table.any() else np.nan
    )


def test_groups_are_pooled_before_they_are_compared():
    table = random_table(3, groups=4)
    pair = sides(table, (0, 2))
    np.testing.assert_array_equal(pair, [table[0] + table[2], table[1] + table[3]])
    found = measure_groups(table, favourable=1, unprivileged=(0, 2))
    assert found["eod"] == pytest.approx(measure_groups(pair, **TWO)["eod"])


def test_an_attribute_pools_the_groups_with_its_value():
    # four intersections of two attributes
    table = np.stack([random_table(s, groups=4) for s in range(2)])
    race = Attribute("race", ("a", "b"), of_group=(0, 1, 0, 1))
    found = by_attribute(table, race)
    np.testing.assert_array_equal(
        found, np.stack([table[:, [0, 2]].sum(1), table[:, [1, 3]].sum(1)], axis=1)
    )
    assert found.sum() == table.sum()
    with pytest.raises(
        ValueError,
        match=(
            r"'race' must have a value for every group: it has 4 values, but the tables have 3"
            r" groups\."
        ),
    ):
        by_attribute(random_table(0, groups=3), race)


@pytest.mark.parametrize(
    "given, sentence",
    [
        (
            {"favourable": 2, "unprivileged": (0,)},
            r"The favourable label must be a number from 0 to 1, got 2\.",
        ),
        (
            {"favourable": 1, "unprivileged": (5,)},
            r"Unprivileged groups must be numbers from 0 to 1, got \(5,\)\.",
        ),
    ],
)
def test_mistakes_are_refused(given: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        measure_groups(WORKED, **given)


def test_rows_of_all_clients_or_of_the_central_test_set(some_trace: Trace):
    np.testing.assert_array_equal(pooled(some_trace, "valid"), some_trace.tables[:, 1].sum(1))
    np.testing.assert_array_equal(pooled(some_trace, "central"), some_trace.central)
    assert pooled(some_trace, "central").shape == pooled(some_trace, "test").shape


def test_every_metric_tells_its_formula_range_and_direction():
    others = GROUP_METRICS | EQUITY_METRICS | RUN_METRICS
    assert len(EVERY_METRIC) == len(METRICS) + len(GROUP_METRICS) + len(EQUITY_METRICS) + len(
        RUN_METRICS
    ), "no name stands for two"
    for name, metric in others.items():
        assert metric.name == name
        assert metric.title
        assert metric.formula
        assert " to " in metric.range or " or more" in metric.range
        assert metric.undefined
        assert metric.doc
        assert "partial(" not in metric.doc
        assert (
            metric.direction == "closer to 0 is fairer"
            if name in SIGNED
            else metric.direction != "closer to 0 is fairer"
        )


def test_labels_and_groups_are_accepted_up_to_their_bounds():
    for favourable in (0, 1):
        assert np.isfinite(rates(WORKED, favourable).tpr).all()
    for favourable in (-1, 2):
        with pytest.raises(ValueError, match="favourable label must be a number from 0 to 1"):
            rates(WORKED, favourable)
    for unprivileged in ((), (0,), (1,), (0, 1)):
        assert sides(WORKED, unprivileged)[0].sum() == WORKED[list(unprivileged)].sum()
    for unprivileged in ((-1,), (2,), (0, 2)):
        with pytest.raises(ValueError, match="Unprivileged groups must be numbers from 0 to 1"):
            sides(WORKED, unprivileged)


def test_ranges_are_over_the_groups_where_a_rate_is_defined():
    np.testing.assert_array_equal(
        lowest(np.array([[3.0, 1, 2], [np.nan, 5, 4], [np.nan] * 3])), [1, 4, np.nan]
    )
    values = np.array([[3.0, 1, 2], [np.nan, 5, 4], [np.nan, np.nan, 7], [np.nan] * 3])
    np.testing.assert_array_equal(spread_over_groups(values), [2, 1, np.nan, np.nan])
    np.testing.assert_array_equal(lowest(np.zeros((2, 0))), [np.nan, np.nan])


@pytest.mark.parametrize(
    ("better", "names"),
    [
        (1, "accuracy precision worst_accuracy worst_tpr fas_abs fas_thesis"),
        (0, "spd eod aod acc_diff f1_diff worst_selection representation"),
        (
            -1,
            (
                "spd_abs eod_abs aod_abs acc_diff_abs f1_diff_abs odds_diff spd_range eod_range"
                " odds_range acc_range"
            ),
        ),
    ],
)
def test_which_way_each_metric_is_better(better: int, names: str):
    assert {name for name, metric in GROUP_METRICS.items() if metric.better == better} == set(
        names.split()
    )
    words = {
        1: {"higher is better"},
        -1: {"lower is fairer"},
        0: {"closer to 0 is fairer", "neither"},
    }[better]
    assert {GROUP_METRICS[name].direction for name in names.split()} == words


def test_which_way_client_and_run_metrics_are_better():
    found = {name: metric.better for name, metric in (METRICS | RUN_METRICS).items()}
    assert {name for name, better in found.items() if better == 0} == {
        "variance_noise",
        "models_used",
    }
    lower = {"variance", "variance_true", "std", "angle", "kl", "gini", "upload", "download"}
    assert {name for name, better in found.items() if better == -1} == lower

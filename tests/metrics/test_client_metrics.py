import doctest
import importlib
import pkgutil

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import evenly.metrics
from evenly.data.splits import SPLITS
from evenly.metrics import METRICS, accuracy, examples, final_metrics, measure, ratio
from evenly.metrics.clients import angle, noise_floor, tenth, true_variance, variance
from evenly.types import Trace

# The worked example of the specification, from a float64 script.
A = np.array([0.5, 0.7, 0.9, 1, 0.6, 0.8, 0.95, 0.4, 0.85, 0.3, 0.75])
N = np.array([10, 20, 30, 40, 10, 20, 20, 10, 20, 10, 10])
EXPECTED = {
    "average": 79.25,
    "average_devices": 70.4545454545,
    "worst10": 30,
    "best10": 100,
    "variance": 479.3388429752,
    "std": 21.8938083251,
    "angle": 17.2626754270,
    "kl": 0.0525998309,
    "entropy": 2.3452954419,
    "gini": 0.1759530792,
    "jain": 0.9119377491,
    "min": 30,
    "max": 100,
}
# Relative to the mean, so undefined when every accuracy is 0.
SCALE_FREE = ("angle", "kl", "entropy", "gini", "jain")

shares = st.floats(0.01, 1)
clients = st.integers(1, 30).flatmap(
    lambda m: st.tuples(
        arrays(np.float64, m, elements=shares), arrays(np.int64, m, elements=st.integers(2, 99))
    )
)


@pytest.mark.parametrize("name", EXPECTED)
def test_worked_example(name: str):
    assert measure(A, N)[name] == pytest.approx(EXPECTED[name], abs=1e-8)


def test_worked_example_of_the_noise_floor():
    # (m-1)/m * mean a(1-a)/(n-1), in percent squared, term by term.
    own = [a * (1 - a) / (n - 1) for a, n in zip(A, N, strict=True)]
    assert measure(A, N)["variance_noise"] == pytest.approx(1e4 * sum(own) / 11 * 10 / 11, abs=1e-8)
    assert measure(A, N)["variance_true"] == pytest.approx(
        479.3388429752 - 1e4 * sum(own) / 11 * 10 / 11, abs=1e-7
    )


def test_the_papers_vehicle_row_has_its_printed_angle():
    # q-FFL prints mean 85.6, variance 291 and angle 11.3 degrees: arctan(sqrt(291) / 85.6).
    a = (85.6 + np.sqrt(291) * np.array([-1, 1])) / 100
    assert variance(a, N[:2]) == pytest.approx(291)
    assert angle(a, N[:2]) == pytest.approx(11.3, abs=0.05)


@pytest.mark.parametrize(
    "count, expected", [(1, 1), (3, 1), (10, 1), (19, 1), (23, 2), (50, 5), (100, 10)]
)
def test_a_tenth_is_rounded_down_but_at_least_one(count: int, expected: int):
    assert tenth(count) == expected


def test_the_worst_tenth_of_many_is_a_mean():
    a = np.arange(20) / 20
    assert measure(a, np.ones(20))["worst10"] == pytest.approx(2.5)
    assert measure(a, np.ones(20))["best10"] == pytest.approx(92.5)


@given(clients, st.randoms(use_true_random=False))
def test_the_order_of_clients_does_not_matter(case: tuple, random):
    a, n = case
    order = np.array(random.sample(range(len(a)), len(a)))
    before, after = measure(a, n), measure(a[order], n[order])
    for name in METRICS:
        np.testing.assert_allclose(after[name], before[name], atol=1e-8, err_msg=name)


@given(clients, st.floats(0.1, 1))
def test_scaling_squares_the_variance_and_leaves_relative_metrics(case: tuple, factor: float):
    a, n = case
    before, after = measure(a, n), measure(factor * a, n)
    for name in SCALE_FREE:
        np.testing.assert_allclose(after[name], before[name], atol=1e-6, err_msg=name)
    assert after["variance"] == pytest.approx(factor**2 * before["variance"], abs=1e-8)
    for name in ("average", "average_devices", "worst10", "best10", "std", "min", "max"):
        assert after[name] == pytest.approx(factor * before[name], abs=1e-8)


@given(clients)
def test_metrics_stay_in_their_ranges(case: tuple):
    a, n = case
    m, found, slack = len(a), measure(a, n), 1e-9
    assert 0 <= found["min"] <= found["worst10"] + slack
    assert found["worst10"] <= found["average_devices"] + slack
    assert found["average_devices"] <= found["best10"] + slack
    assert found["best10"] <= found["max"] + slack <= 100 + 2 * slack
    assert found["min"] - slack <= found["average"] <= found["max"] + slack
    assert 0 <= found["variance"] <= 2500 + slack
    assert 0 <= found["variance_true"] <= found["variance"] + slack
    assert 0 <= found["angle"] < 90
    assert 0 <= found["kl"] <= np.log(m) + slack
    assert -slack <= found["entropy"] <= np.log(m) + slack
    assert -slack <= found["gini"] <= 1 - 1 / m + slack
    assert 1 / m - slack <= found["jain"] <= 1 + slack


@given(clients)
def test_metrics_that_say_the_same_agree(case: tuple):
    a, n = case
    found = measure(a, n)
    assert found["std"] ** 2 == pytest.approx(found["variance"], abs=1e-8)
    assert found["jain"] == pytest.approx(np.cos(np.radians(found["angle"])) ** 2, abs=1e-9)
    assert found["entropy"] + found["kl"] == pytest.approx(np.log(len(a)), abs=1e-9)
    cosine = a.mean() / np.sqrt((a**2).mean())
    assert np.cos(np.radians(found["angle"])) == pytest.approx(cosine, abs=1e-9)


@given(clients)
def test_gini_is_half_the_mean_difference_over_the_mean(case: tuple):
    a, n = case
    difference = np.abs(a[:, None] - a[None, :]).mean()
    assert measure(a, n)["gini"] == pytest.approx(difference / (2 * a.mean()), abs=1e-9)


@given(st.integers(2, 30), shares)
def test_equal_accuracies_are_perfectly_even(m: int, share: float):
    found = measure(np.full(m, share), np.full(m, 10))
    for name, perfect in {
        "variance": 0,
        "std": 0,
        "angle": 0,
        "kl": 0,
        "gini": 0,
        "jain": 1,
        "entropy": np.log(m),
    }.items():
        assert found[name] == pytest.approx(perfect, abs=1e-6), name


def test_one_client_served_and_the_rest_not_is_the_least_even():
    found = measure(np.array([1.0, 0, 0, 0]), np.full(4, 10))
    assert found["gini"] == pytest.approx(0.75)
    assert found["jain"] == pytest.approx(0.25)
    assert found["kl"] == pytest.approx(np.log(4))
    assert found["entropy"] == pytest.approx(0, abs=1e-12)


@given(clients, st.integers(0, 29))
def test_clients_without_rows_are_left_out(case: tuple, at: int):
    a, n = case
    at = min(at, len(a))
    with_gap = measure(np.insert(a, at, np.nan), np.insert(n, at, 0))
    for name, value in measure(a, n).items():
        np.testing.assert_allclose(with_gap[name], value, err_msg=name)


def test_without_any_rows_every_metric_is_undefined():
    assert all(np.isnan(value) for value in measure(np.full(3, np.nan), np.zeros(3)).values())
    assert all(np.isnan(value) for value in measure(np.zeros(0), np.zeros(0)).values())


def test_where_nobody_is_served_relative_metrics_are_undefined():
    found = measure(np.zeros(4), np.full(4, 5))
    assert {name for name, value in found.items() if np.isnan(value)} == set(SCALE_FREE)
    assert found["variance"] == found["average"] == found["max"] == 0


def test_the_noise_floor_is_an_unbiased_estimate():
    # Clients that differ (0.5 to 0.9) with test sets of 5 to 40 rows, drawn 4000 times: the
    # observed variance exceeds the true one by the mean noise floor. Both means have a standard
    # error below 1 percent squared.
    draw = np.random.default_rng(11)
    p, n = np.linspace(0.5, 0.9, 12), np.linspace(5, 40, 12).astype(int)
    observed = draw.binomial(n, p, (4000, 12)) / n
    floors = np.array([noise_floor(a, n) for a in observed])
    variances = np.array([variance(a, n) for a in observed])
    exact = 1e4 * (p * (1 - p) / n).mean() * 11 / 12
    assert floors.mean() == pytest.approx(exact, rel=0.01)
    assert variances.mean() - floors.mean() == pytest.approx(variance(p, n), abs=5)


def test_equally_served_clients_have_no_true_variance_on_average():
    draw = np.random.default_rng(12)
    n = np.full(20, 10)
    observed = draw.binomial(n, 0.7, (2000, 20)) / n
    surplus = np.mean([variance(a, n) - noise_floor(a, n) for a in observed])
    assert abs(surplus) < 5  # of a variance of about 200
    assert min(true_variance(a, n) for a in observed) == 0


def test_a_single_row_says_nothing_about_noise():
    assert np.isnan(noise_floor(np.array([1.0, 0.0]), np.array([1, 1])))
    assert np.isnan(true_variance(np.array([1.0, 0.0]), np.array([1, 1])))
    # Only the second client has two rows: 0.25 / 1, times (2 - 1) / 2.
    assert noise_floor(np.array([1.0, 0.5]), np.array([1, 2])) == pytest.approx(1250)


def test_accuracy_is_read_off_the_diagonal():
    tables = np.zeros((2, 2, 3, 3), int)  # two clients, two groups; the second client has no rows
    tables[0, 0] = [[3, 1, 0], [0, 2, 0], [0, 0, 0]]
    tables[0, 1] = [[1, 0, 0], [0, 0, 2], [0, 0, 1]]
    np.testing.assert_array_equal(examples(tables), [10, 0])
    np.testing.assert_array_equal(accuracy(tables), [0.7, np.nan])


@given(
    arrays(np.int64, 4, elements=st.integers(0, 9)), arrays(np.int64, 4, elements=st.integers(0, 9))
)
def test_a_ratio_is_undefined_exactly_where_the_whole_is_zero(part: np.ndarray, whole: np.ndarray):
    found = ratio(part, whole)
    np.testing.assert_array_equal(np.isnan(found), whole == 0)
    np.testing.assert_allclose(found[whole > 0] * whole[whole > 0], part[whole > 0])


def test_final_metrics_are_of_the_last_evaluation(some_trace: Trace):
    for split in SPLITS:
        tables = some_trace.tables[-1, SPLITS.index(split)]
        expected = measure(accuracy(tables), examples(tables))
        for name, value in final_metrics(some_trace, split).items():
            np.testing.assert_array_equal(value, expected[name])
    assert final_metrics(some_trace)["average"] != final_metrics(some_trace, "train")["average"]
    with pytest.raises(ValueError, match=r"There is no split 'validation'\. Did you mean 'valid'"):
        final_metrics(some_trace, "validation")


def test_every_metric_tells_its_formula_range_and_direction():
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.title
        assert metric.formula
        assert " to " in metric.range
        assert metric.better in (-1, 0, 1)
        assert metric.function.__doc__


@given(clients)
def test_directions_are_right(case: tuple):
    # Moving everyone half-way to the mean is fairer: what is better when small falls, and what is
    # better when large rises.
    a, n = case
    assume(len(a) > 1)
    fairer = (a + a.mean()) / 2
    before, after = measure(a, n), measure(fairer, n)
    for name, metric in METRICS.items():
        if metric.better == -1 and name != "variance_true":
            assert after[name] <= before[name] + 1e-7, name
        if name in ("jain", "entropy", "worst10", "min"):
            assert metric.better == 1
            assert after[name] >= before[name] - 1e-7, name


@pytest.mark.parametrize(
    "name", [module.name for module in pkgutil.iter_modules(evenly.metrics.__path__)]
)
def test_examples_in_docstrings_hold(name: str):
    module = importlib.import_module(f"evenly.metrics.{name}")
    results = doctest.testmod(module)
    assert results.failed == 0
    assert results.attempted > 0

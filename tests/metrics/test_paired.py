"""Paired comparisons against SciPy, and Holm's correction against its definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evenly.metrics.statistics import Paired, holm, paired, t_quantile, two_sided

NUMBERS = st.floats(-1e3, 1e3)
SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 10, 29, 99, 100, 999])
def test_the_tails_are_scipys(freedom):
    t = np.concatenate([np.linspace(0, 6, 61), [10.0, 50.0, 1e3]])
    np.testing.assert_allclose(
        [two_sided(x, freedom) for x in t], 2 * stats.t.sf(t, freedom), rtol=1e-9, atol=1e-13
    )
    assert two_sided(-1.5, freedom) == two_sided(1.5, freedom)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 30, 31, 120])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_the_quantiles_are_scipys(freedom, level):
    assert t_quantile(freedom, level) == pytest.approx(
        stats.t.ppf((1 + level) / 2, freedom), rel=1e-10
    )


@given(st.lists(NUMBERS, min_size=2, max_size=8))
def test_p_and_interval_are_scipys(differences):
    found = paired(differences)
    if np.std(differences, ddof=1) <= 1e-6 * max(1.0, abs(np.mean(differences))):
        return  # SciPy warns of what is left by rounding
    test = stats.ttest_1samp(differences, 0.0)
    assert found.p == pytest.approx(test.pvalue, rel=1e-7, abs=1e-12)  # pyright: ignore[reportAttributeAccessIssue]
    interval = test.confidence_interval()
    assert found.difference - found.half_width == pytest.approx(interval.low, rel=1e-7, abs=1e-7)
    assert found.difference + found.half_width == pytest.approx(interval.high, rel=1e-7, abs=1e-7)
    assert found.seeds == len(differences)


@given(st.lists(NUMBERS, min_size=2, max_size=6))
def test_an_interval_without_0_is_a_p_below_5_percent(differences):
    found = paired(differences)
    if abs(found.p - 0.05) > 1e-9 and not math.isnan(found.half_width):
        assert (abs(found.difference) > found.half_width) == (found.p < 0.05)


def test_one_seed_says_nothing_and_none_less():
    one, none = paired([2.5]), paired([float("nan")])
    assert (one.difference, one.seeds, none.seeds) == (2.5, 1, 0)
    assert all(map(math.isnan, (one.half_width, one.p, one.effect, none.difference, none.p)))


def test_equal_differences_have_only_their_signs_and_no_difference_is_none():
    found = paired([1.5, 1.5, 1.5])
    assert (found.difference, found.p, found.effect) == (1.5, 0.25, math.inf)
    assert math.isnan(found.half_width)
    assert paired([1.5] * 6).p < 0.05 < paired([1.5] * 5).p
    assert paired([-0.1, -0.1, -0.1])[3] == -math.inf
    assert paired([0.0, 0.0])[:4] == (0.0, 0.0, 1.0, 0.0)


@given(SHARES)
def test_holm_is_its_definition(p):
    ranked = sorted(range(len(p)), key=p.__getitem__)
    expected = [0.0] * len(p)
    for rank, i in enumerate(ranked):
        expected[i] = min(1.0, max((len(p) - r) * p[j] for r, j in enumerate(ranked[: rank + 1])))
    np.testing.assert_allclose(holm(p), expected, rtol=1e-12)


@given(SHARES)
def test_holm_lies_between_p_and_bonferroni(p):
    corrected = holm(p)
    assert (corrected >= np.array(p) - 1e-12).all()
    assert (corrected <= np.minimum(1, np.array(p) * len(p)) + 1e-12).all()


def test_coarse_accuracies_of_two_seeds_are_not_called_clear_by_chance():
    draw = np.random.default_rng(0)
    # one client of ten rows, no difference
    differences = 10.0 * (draw.binomial(10, 0.6, (1000, 2)) - draw.binomial(10, 0.6, (1000, 2)))
    assert np.mean([paired(own).p < 0.05 for own in differences]) < 0.05


def test_undefined_p_values_do_not_count():
    np.testing.assert_allclose(holm([0.02, float("nan"), 0.5]), [0.04, float("nan"), 0.5])


def test_no_freedom_is_refused():
    with pytest.raises(ValueError, match="at least one degree of freedom, got 0"):
        two_sided(1.0, 0)


def test_differences_are_equal_only_up_to_rounding():
    """A deviation within 1e-12 of the mean, or of 1 where the mean is smaller, is rounding;
    anything larger is a difference.
    """
    assert paired([1e-13, 1e-13])[:4] == (0.0, 0.0, 1.0, 0.0)
    assert paired([1e-11, 1e-11]).effect == math.inf
    assert paired([1e6, 1e6 + 1e-7]).effect == math.inf
    assert math.isfinite(paired([1e6, 1e6 + 1e-3]).effect)
    assert math.isfinite(paired([1e-3, 1e-3 + 1e-10]).effect)
    assert paired([2.0, 2.0])[2:] == (0.5, math.inf, 2)
    assert paired([-2.0] * 4)[2:] == (0.125, -math.inf, 4)


def test_a_mean_and_a_deviation_of_1e_12_are_taken_for_rounding_errors():
    assert paired([1e-12, 1e-12]) == Paired(0.0, 0.0, 1.0, 0.0, 2)
    assert paired([-1e-12, 0.0, 1e-12]) == Paired(0.0, 0.0, 1.0, 0.0, 3)
    assert paired([-2e-12, 0.0, 2e-12]).half_width > 0


def test_undefined_seeds_are_left_out():
    assert paired([1.0, float("nan"), 2.0, float("inf"), 3.0]) == paired([1.0, 2.0, 3.0])
    none = paired([])
    assert none.seeds == 0
    assert all(map(math.isnan, none[:4]))


def test_tails_and_quantiles_by_hand():
    """One degree of freedom is the Cauchy distribution, P(|t| > x) = 1 - 2 arctan(x) / pi; two have
    P(|t| <= x) = x / sqrt(2 + x^2).
    """
    for x in (0.0, 0.5, 3.0):
        assert two_sided(x, 1) == pytest.approx(1 - 2 * math.atan(x) / math.pi)
        assert two_sided(x, 2) == pytest.approx(1 - x / math.sqrt(2 + x * x))
    assert t_quantile(1, 0.5) == pytest.approx(1)
    assert t_quantile(2, 0.5) == pytest.approx(math.sqrt(2 / 3))
    # far below 1, where the search begins
    assert t_quantile(1, 0.01) == pytest.approx(math.tan(0.005 * math.pi))
    assert t_quantile(3) == t_quantile(3, 0.95) == pytest.approx(3.182446305)
    for freedom in (0, -1):
        with pytest.raises(ValueError, match="at least one degree of freedom"):
            two_sided(1.0, freedom)


def test_holm_by_hand():
    assert holm([]).tolist() == []
    assert holm([0.3]).tolist() == [0.3]
    np.testing.assert_allclose(holm([0.01, 0.011, 0.6, 0.9]), [0.04, 0.04, 1, 1])
    np.testing.assert_allclose(holm([0.9, 0.001, 0.02]), [0.9, 0.003, 0.04])

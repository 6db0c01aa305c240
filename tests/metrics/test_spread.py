import numpy as np
import pytest
from scipy import stats

from evenly.metrics import half_width, spread

DRAW = np.random.default_rng(2)


@pytest.mark.parametrize("count", [2, 3, 5, 10, 20, 30, 31, 32, 33, 50, 100, 1000])
def test_the_interval_is_students_for_any_number_of_seeds(count: int):
    """A table of quantiles that ends at 31 seeds, followed by the normal distribution's 1.96, made
    the interval too narrow.
    """
    values = DRAW.normal(50, 3, count)
    found = spread(values)
    low, high = stats.t.interval(0.95, count - 1, loc=values.mean(), scale=stats.sem(values))
    assert found.mean == pytest.approx(values.mean())
    assert found.deviation == pytest.approx(values.std(ddof=1))
    assert found.half_width == pytest.approx((high - low) / 2, rel=1e-9)
    assert found.seeds == count


def test_the_interval_shrinks_steadily_as_seeds_are_added():
    factors = [
        spread(np.arange(count)).half_width / spread(np.arange(count)).deviation * np.sqrt(count)
        for count in range(2, 200)
    ]
    assert (np.diff(factors) < 0).all()
    assert factors[-1] > 1.96


def test_a_single_seed_has_no_interval():
    found = spread(np.array([3.0]))
    assert (found.mean, found.seeds) == (3.0, 1)
    assert np.isnan(found.deviation)
    assert np.isnan(found.half_width)


def test_undefined_values_are_left_out():
    assert spread(np.array([1.0, np.nan, 3.0])) == spread(np.array([1.0, 3.0]))
    nothing = spread(np.array([np.nan]))
    assert nothing.seeds == 0
    assert np.isnan(nothing.mean)


def test_the_interval_covers_the_mean_nineteen_times_in_twenty():
    # 3000 experiments of three seeds each; the deviation of the share is sqrt(0.95 * 0.05 / 3000) =
    # 0.004.
    draws = np.random.default_rng(3).normal(7, 2, (3000, 3))
    covered = [abs(spread(values).mean - 7) <= spread(values).half_width for values in draws]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


def test_half_a_width_by_hand():
    # One degree of freedom: tan(0.475 pi) = 12.7062, times the deviation over the root of two
    # seeds.
    assert half_width(3.0, 2) == pytest.approx(np.tan(0.475 * np.pi) * 3 / np.sqrt(2))
    assert np.isnan([half_width(3.0, 1), half_width(3.0, 0)]).all()
    nothing = spread(np.array([]))
    assert np.isnan(nothing[:3]).all()
    assert (nothing.seeds, spread(np.array([2.0, 2.0]))) == (0, (2.0, 0.0, 0.0, 2))

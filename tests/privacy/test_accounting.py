"""The account of privacy: PRIVACY.md 3.4 and 3.5, and a Gaussian mechanism by hand."""

import math

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from evenly.privacy import accounting
from evenly.privacy.accounting import REPLACE, Releases, epsilon_of, joint, noise_for, usual_delta
from evenly.privacy.claims import claim_words, rounded_up

DELTA = 1e-5


@pytest.mark.parametrize(
    "noise, releases, epsilon",
    [
        (1.0, Releases(500, rate=0.05), 7.523828),
        (1.0, Releases(500, rate=0.01), 1.326),
        (1.0, Releases(500, rate=0.1), 16.562),
        (1.0, Releases(500, 0.05, slots=100, registered=1000), 7.52383),
        (1.0, Releases(500, 0.05, slots=80, registered=1000), 7.54776),
        (1.0, Releases(500, 0.05, slots=60, registered=1000), 15.67276),
        (1.0, Releases(500), 344.4510),
        (1.0, Releases(1), 4.377178),
        (10.0, Releases(50), 2.9432),
        (10.0, Releases(100), 4.3772),
        (10.0, Releases(500), 11.48),
        (1.0, Releases(500, 0.05, REPLACE, slots=50, registered=1000), 130.8112),
        (0.8, Releases(20, rate=0.2), 9.898),
    ],
)
def test_epsilon_is_that_of_the_specification(noise, releases, epsilon):
    assert epsilon_of(noise, releases, DELTA) == pytest.approx(epsilon, abs=6e-4)


def test_epsilon_equals_that_of_dp_accounting_called_directly():
    from dp_accounting import dp_event, pld

    event = dp_event.SelfComposedDpEvent(
        dp_event.PoissonSampledDpEvent(0.03, dp_event.GaussianDpEvent(1.3)), 200
    )
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3).compose(event)
    expected = accountant.get_epsilon(1e-6)
    assert epsilon_of(1.3, Releases(200, rate=0.03), 1e-6) == expected


@pytest.mark.parametrize("rate, epsilon", [(0.05, 8.301589), (1.0, 354.86)])
def test_renyi_privacy_gives_the_upper_bounds_that_flower_reports(rate: float, epsilon: float):
    from dp_accounting.rdp import RdpAccountant

    found = accounting._composed(RdpAccountant(), 1.0, Releases(500, rate=rate), DELTA)
    assert found == pytest.approx(epsilon, rel=2e-5)
    assert found > epsilon_of(1.0, Releases(500, rate=rate), DELTA)


@pytest.mark.parametrize("noise", [0.5, 1.0, 7.0])
@pytest.mark.parametrize("times", [1, 30])
def test_unsampled_releases_are_one_gaussian_mechanism(noise, times):
    z = noise / math.sqrt(times)

    def delta(epsilon: float) -> float:  # Balle and Wang 2018
        return norm.cdf(0.5 / z - epsilon * z) - math.exp(epsilon) * norm.cdf(
            -0.5 / z - epsilon * z
        )

    expected = brentq(lambda epsilon: delta(epsilon) - DELTA, 0.0, 500.0)
    assert epsilon_of(noise, Releases(times), DELTA) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "epsilon, sampled, unsampled",
    [(1, 4.309, 83.42), (2, 2.404, 44.58), (4, 1.446, 24.18), (8, 0.969, 13.42)],
)
def test_noise_is_calibrated_as_in_the_specification(epsilon, sampled, unsampled):
    assert noise_for(epsilon, Releases(500, rate=0.05), DELTA) == pytest.approx(sampled, rel=2.5e-3)
    assert noise_for(epsilon, Releases(500), DELTA) == pytest.approx(unsampled, rel=2e-3)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_calibrated_noise_never_exceeds_its_epsilon_and_comes_close(epsilon):
    releases = Releases(40, rate=0.1)
    spent = epsilon_of(noise_for(epsilon, releases, DELTA), releases, DELTA)
    assert 0.999 * epsilon <= spent <= epsilon


@pytest.mark.parametrize("share", [0.001, 0.1, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("noise", [2.0, 20.0])
def test_a_draw_of_a_fixed_number_never_costs_more_than_taking_part_in_all_rounds(share, noise):
    drawn = Releases(100, share, REPLACE, slots=round(share * 1000), registered=1000)
    whole = epsilon_of(noise / 2, Releases(100), DELTA)
    assert epsilon_of(noise, drawn, DELTA) <= whole
    assert epsilon_of(noise, drawn._replace(rate=1.0), DELTA) == whole


def test_two_phases_of_a_round_are_one_release():
    one, other = 3.0, 1 / math.sqrt(1 - 1 / 9)
    assert joint([one, other]) == pytest.approx(1.0)
    wrong = epsilon_of(math.sqrt(2), Releases(1000, rate=0.05), DELTA)
    assert wrong == pytest.approx(6.0515, abs=1e-3)
    assert wrong < epsilon_of(joint([math.sqrt(2)] * 2), Releases(500, rate=0.05), DELTA)


def test_more_rounds_and_further_releases_cost_more_and_more_noise_costs_less():
    some = Releases(10, rate=0.1)
    cost = epsilon_of(1.0, some, DELTA)
    assert cost < epsilon_of(1.0, some._replace(times=20), DELTA)
    assert cost < epsilon_of(1.0, some._replace(more=(5.0,)), DELTA)
    assert cost > epsilon_of(1.5, some, DELTA)
    assert cost > epsilon_of(1.0, some._replace(rate=0.05), DELTA)
    alone = epsilon_of(1.0, Releases(0, more=(5.0,)), DELTA)
    assert alone == epsilon_of(5.0, Releases(1), DELTA)


def test_what_is_claimed_is_rounded_up():
    words = claim_words({"no_claim": "", "epsilon": 7.524, "delta": 1e-5})
    assert words == "epsilon 7.53 at delta 1e-05"
    assert [rounded_up(x) for x in (8.0, 0.1001, 1e-7, 1234.5)] == [
        "8",
        "0.101",
        "1e-07",
        "1.24e+03",
    ]


def test_states_without_a_number_and_refusals():
    assert epsilon_of(1.0, Releases(0), DELTA) == 0
    assert epsilon_of(0.0, Releases(5), DELTA) == math.inf
    # tiny noise would need gigabytes; an upper bound is reported
    assert epsilon_of(0.2, Releases(3, rate=0.1), DELTA) > epsilon_of(
        0.3, Releases(3, rate=0.1), DELTA
    )
    sampled = Releases(3, 0.1, slots=20, registered=100)
    some = epsilon_of(1.0, sampled._replace(more=(0.1,)), DELTA)
    assert some < epsilon_of(1.0, sampled._replace(more=(0.09,)), DELTA) < 1.5 * some
    for wrong in (0.0, 1.0, -1e-5):
        with pytest.raises(ValueError, match="delta must be above 0"):
            epsilon_of(1.0, Releases(1), wrong)
    with pytest.raises(ValueError, match="epsilon must be above 0"):
        noise_for(0.0, Releases(1), DELTA)
    with pytest.raises(ValueError, match="is spent before training"):
        noise_for(1.0, Releases(10, more=(0.5,)), DELTA)
    assert usual_delta(10) == 1e-5
    assert usual_delta(10**5) == pytest.approx(10**-5.5)

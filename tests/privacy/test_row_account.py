"""The account of private rows: the numbers of the specification, calibration, and sums of several
deployments.
"""

import math

import pytest

from evenly.algorithms import algorithm
from evenly.privacy.row_account import (
    calibrated,
    reads_census,
    row_epsilon,
    row_facts,
    row_noise,
    run_epsilon,
)

ROUNDS = 100
ONE = "noise_multiplier=1, rate=0.02"

# a client of 5,000 rows with batches of 100, in 100 rounds of one epoch; a table on top every so
# many rounds, with so much noise
LISTED = {
    f"fedavg+dp(unit=row, {ONE})": 9.403,
    "fedavg+dp(unit=row, noise_multiplier=1, rate=0.2)": 38.17,
    f"q-fedavg+dp(unit=row, {ONE}, measure_every=1, signal_noise=20)": 9.779,
    f"q-fedavg+dp(unit=row, {ONE}, measure_every=10, signal_noise=20)": 9.441,
    f"q-fedavg+dp(unit=row, {ONE}, measure_every=100, signal_noise=20)": 9.407,
    f"fairfed+dp(unit=row, {ONE}, measure_every=1, signal_noise=6)": 13.29,
    f"fairfed+dp(unit=row, {ONE}, measure_every=10, signal_noise=6)": 9.821,
    f"fairfed+dp(unit=row, {ONE}, measure_every=100, signal_noise=6)": 9.445,
    "fedsgd+dp(unit=row, noise_multiplier=1)": 91.82,  # all rows in one step, nothing amplified
}


@pytest.mark.parametrize("notation", LISTED)
def test_epsilon_is_that_of_the_specification(notation: str) -> None:
    figures = 2 if LISTED[notation] > 10 else 3
    assert run_epsilon(algorithm(notation), ROUNDS) == pytest.approx(
        LISTED[notation], abs=0.6 * 10**-figures
    )


def test_epsilon_is_that_of_the_library() -> None:
    from dp_accounting import dp_event, pld

    event = dp_event.ComposedDpEvent([
        dp_event.SelfComposedDpEvent(
            dp_event.PoissonSampledDpEvent(0.05, dp_event.GaussianDpEvent(1.3)), 40
        ),
        dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(15.0), 2),
        dp_event.GaussianDpEvent(15.0),
    ])  # fmt: skip
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    expected = accountant.compose(event).get_epsilon(1e-6)
    method = algorithm(
        "fairfed+reweigh+dp(unit=row, rate=0.05, noise_multiplier=1.3, signal_noise=15, delta=1e-6,"
        " measure_every=1)"
    )
    assert run_epsilon(method, 2, 1e-6) == pytest.approx(expected, abs=2e-3)


def test_the_census_of_a_deployment_is_one_more_release() -> None:
    method = algorithm(f"fairfed+dp(unit=row, {ONE}, signal_noise=3)")
    asked = row_facts([method], ROUNDS, census=reads_census(method))
    assert asked["signals"] == 11
    expected = row_epsilon([(0.02, 1.0, 5000), (1.0, 3.0, 11)], 1e-5)
    assert asked["epsilon"] == pytest.approx(expected, abs=1e-6)
    assert row_facts([method], ROUNDS)["epsilon"] < expected - 0.1
    assert not reads_census(algorithm(f"q-fedavg+full+dp(unit=row, {ONE})"))


@pytest.mark.parametrize("epsilon", [1, pytest.param(8, marks=pytest.mark.further)])
@pytest.mark.parametrize("method", ["fedavg", "q-fedavg(q=1)", "fairfed+reweigh", "fedcvg"])
def test_calibrated_noise_spends_the_budget_and_not_more(method: str, epsilon: float) -> None:
    built = calibrated(algorithm(f"{method}+dp(unit=row, epsilon={epsilon})"), ROUNDS)
    spent = run_epsilon(built, ROUNDS)
    assert 0.999 * epsilon <= spent <= epsilon


def test_signals_get_a_tenth_of_the_budget() -> None:
    from dp_accounting import gaussian_mechanism

    noise = row_noise(algorithm("q-fedavg+dp(unit=row, epsilon=8, delta=1e-5)"), ROUNDS)
    tenth = 10 / noise.signal_noise**2  # ten measurements
    whole = gaussian_mechanism.get_sigma_gaussian(8, 1e-5) ** -2
    assert tenth / whole == pytest.approx(0.1, rel=1e-3)


def test_noise_that_is_given_is_not_changed() -> None:
    given = algorithm("fedavg+dp(unit=row, noise_multiplier=2)")
    assert calibrated(given, ROUNDS) is given


def test_noise_that_was_not_calibrated_reveals_nothing() -> None:
    work = algorithm("fairfed+reweigh+dp(unit=row, epsilon=8)").work
    assert math.isinf(work.noise_multiplier)
    assert math.isinf(work.signals.noise)


def test_several_deployments_add_up() -> None:
    one = [(0.02, 1.0, 2500), (1.0, 20.0, 5)]
    same = row_epsilon([*one, *one], 1e-5)
    assert same == pytest.approx(row_epsilon([(0.02, 1.0, 5000), (1.0, 20.0, 10)], 1e-5), abs=1e-6)
    other = row_epsilon([*one, (0.05, 2.0, 100)], 1e-5)
    assert row_epsilon(one, 1e-5) < other
    assert row_epsilon([*one, (0.05, 0.0, 1)], 1e-5) == math.inf
    assert row_epsilon([], 1e-5) == 0

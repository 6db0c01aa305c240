import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from evenly.algorithms import FedAvg, FedSGD, algorithm
from tests.aggregation import (
    GRADIENTS,
    LOSSES,
    RATE,
    TRAINED,
    Round,
    W,
    aggregate,
    powers,
    rates,
    rounds,
    single_round,
)
from tests.oracles import server
from tests.simulations import Simulated, flat


def test_worked_example():
    # Mean gradient (3, 3) / 3 = (1, 1), times 0.1.
    np.testing.assert_allclose(
        aggregate(FedSGD(weights="equal"), W, TRAINED, losses=LOSSES).model, [0.9, 1.9], atol=1e-8
    )
    np.testing.assert_allclose(
        server.fedsgd(W, GRADIENTS, RATE, np.ones(3) / 3), [0.9, 1.9], atol=1e-8
    )


def test_worked_example_with_q():
    # q = 1: (0.5 * (2, 0) + 2 * (0, 5) + 1 * (1, -2)) / 3 = (2, 8) / 3, times 0.1.
    expected = [1 - 0.2 / 3, 2 - 0.8 / 3]
    np.testing.assert_allclose(
        aggregate(FedSGD(weights="equal", q=1.0), W, TRAINED, losses=LOSSES).model,
        expected,
        atol=1e-8,
    )
    np.testing.assert_allclose(
        server.fixed_step(W, LOSSES, GRADIENTS, 1.0, RATE), expected, atol=1e-8
    )


@given(rounds(), rates)
def test_by_size_is_the_papers_step(case: Round, rate: float):
    gradients = case.trained  # any vectors will do
    moved = case._replace(trained=case.received - rate * gradients)
    expected = server.fedsgd(case.received, gradients, rate, case.sizes / case.sizes.sum())
    np.testing.assert_allclose(moved.apply(FedSGD(weights="size")).model, expected, atol=1e-8)


@given(rounds(), rates, powers)
def test_with_q_it_is_the_fixed_step_solver(case: Round, rate: float, q: float):
    gradients = case.trained
    moved = case._replace(trained=case.received - rate * gradients)
    expected = server.fixed_step(case.received, case.losses, gradients, q, rate)
    # Taking the update out of the trained model again costs some digits, which F^q multiplies.
    tolerance = 1e-8 + 1e-14 * (case.losses**q).max()
    np.testing.assert_allclose(
        moved.apply(FedSGD(weights="equal", q=q)).model, expected, rtol=1e-8, atol=tolerance
    )


@pytest.mark.parametrize("q", [None, 0.0])
@pytest.mark.parametrize("weights", ["size", "equal"])
@given(case=rounds())
def test_without_q_it_weighs_like_fedavg(case: Round, weights: str, q: float | None):
    plain, average = case.apply(FedSGD(weights=weights, q=q)), case.apply(FedAvg(weights=weights))
    np.testing.assert_allclose(plain.weights, average.weights, rtol=1e-15)
    # up to rounding: FedSGD divides the sum, because its weights need not sum to 1
    np.testing.assert_allclose(plain.model, average.model, rtol=1e-14, atol=1e-14)


@given(rounds(), powers)
def test_with_q_weights_sum_to_the_mean_power_of_the_losses(case: Round, q: float):
    weights = case.apply(FedSGD(weights="equal", q=q)).weights
    np.testing.assert_allclose(weights.sum(), (case.losses**q).mean(), rtol=1e-10)


def test_zero_loss_counts_fully_without_q_and_not_at_all_with_it():
    assert aggregate(FedSGD(weights="equal", q=0.0), W, TRAINED, losses=[0, 1, 1]).weights[
        0
    ] == pytest.approx(1 / 3)
    assert aggregate(FedSGD(weights="equal", q=0.5), W, TRAINED, losses=[0, 1, 1]).weights[0] == 0


@pytest.mark.parametrize("q", [0.5, 1.0, 2.0])
def test_negative_losses_are_not_turned_into_weights(q: float):
    rule = FedSGD(weights="equal", q=q)
    weights, change = single_round(rule, np.ones((2, 1)), loss=jnp.array([-1.0, 1.0]))
    assert np.isnan(weights[0])
    assert np.isnan(change).all()


def test_one_full_batch_step_of_fedavg_is_fedsgd(simulated: Simulated):
    average = simulated("fedavg(epochs=1, batch_size=64, learning_rate=0.3)", rounds=8)
    gradient = simulated("fedsgd(learning_rate=0.3)", rounds=8)
    assert np.linalg.norm(flat(average.model)) > 0.1
    np.testing.assert_allclose(flat(average.model), flat(gradient.model), atol=1e-6)


def test_negative_q_is_refused():
    with pytest.raises(ValueError, match=r"^fedsgd: q must be at least 0, got -1\. Meaning: .*$"):
        algorithm("fedsgd(q=-1)")
    with pytest.raises(
        ValueError, match=r"^fedsgd: weights must be 'size' or 'equal', got 'big'\.$"
    ):
        algorithm("fedsgd(weights=big)")

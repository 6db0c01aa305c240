import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evenly.algorithms import FedAvg, QFedAvg, algorithm
from tests.aggregation import (
    LOSSES,
    TRAINED,
    L,
    Round,
    W,
    aggregate,
    powers,
    rates,
    rounds,
    single_round,
)
from tests.oracles import server

GUARD = 1e-10  # what the authors' code, and ours, adds to every loss

# w+ and h of fixture T, from a float64 script of Algorithm 1. For q = 1: h_k = ||d_k||^2 + 10 F_k
# with ||d||^2 = 4, 25, 5; Delta = (1, 0), (0, 10), (1, -2); w+ = (1, 2) - (2, 8) / 69.
SCALED = {
    0.0: ([10, 10, 10], [0.9, 1.9]),
    0.1: ([10.0767563086, 12.0574514535, 10.5], [0.9121760208, 1.8970752611]),
    1.0: ([9, 45, 15], [0.9710144928, 1.8840579710]),
    2.0: ([6.5, 140, 20], [0.9909909910, 1.8918918919]),
}
# Without the factor L in d_k. For q = 0: w - sum (w - w_k) / 30; for q = 1: h_k = ||w - w_k||^2 +
# 10 F_k.
LITERAL = {
    0.0: ([10, 10, 10], [0.99, 1.99]),
    1.0: ([5.04, 20.25, 10.05], [0.9943406904, 1.9773627617]),
}


@pytest.mark.parametrize("q", SCALED)
def test_worked_example(q: float):
    h, model = SCALED[q]
    np.testing.assert_allclose(server.q_fedavg(W, TRAINED, LOSSES, q, L).h, h, atol=1e-8)
    np.testing.assert_allclose(server.q_fedavg(W, TRAINED, LOSSES, q, L).model, model, atol=1e-8)
    np.testing.assert_allclose(
        aggregate(QFedAvg(q=q, lipschitz=L), W, TRAINED, losses=LOSSES).model, model, atol=1e-8
    )


@pytest.mark.parametrize("q", LITERAL)
def test_worked_example_as_printed_in_the_paper(q: float):
    h, model = LITERAL[q]
    rule = QFedAvg(q=q, lipschitz=L, scale_update=False)
    np.testing.assert_allclose(
        server.q_fedavg(W, TRAINED, LOSSES, q, L, scaled=False).h, h, atol=1e-8
    )
    np.testing.assert_allclose(
        server.q_fedavg(W, TRAINED, LOSSES, q, L, scaled=False).model, model, atol=1e-8
    )
    np.testing.assert_allclose(aggregate(rule, W, TRAINED, losses=LOSSES).model, model, atol=1e-8)


@pytest.mark.parametrize("scaled", [True, False])
@given(case=rounds(), q=powers, rate=rates)
def test_the_step_is_algorithm_1(case: Round, q: float, rate: float, scaled: bool):
    rule = QFedAvg(q=q, lipschitz=1 / rate, scale_update=scaled)
    expected = server.q_fedavg(case.received, case.trained, case.losses, q, 1 / rate, scaled, GUARD)
    np.testing.assert_allclose(case.apply(rule).model, expected.model, rtol=1e-8, atol=1e-8)


@given(rounds(), powers)
def test_weights_are_powers_of_the_losses(case: Round, q: float):
    powered = (case.losses + GUARD) ** q
    np.testing.assert_allclose(
        case.apply(QFedAvg(q=q)).weights, powered / powered.sum(), rtol=1e-9, atol=1e-300
    )


@given(rounds(), rates)
def test_q_zero_is_fedavg(case: Round, rate: float):
    fair, plain = (
        case.apply(QFedAvg(q=0.0, lipschitz=1 / rate)),
        case.apply(FedAvg(weights="equal")),
    )
    np.testing.assert_array_equal(fair.weights, plain.weights)
    np.testing.assert_array_equal(fair.model, plain.model)


@given(rounds(), powers, rates)
def test_one_full_batch_step_makes_it_q_fedsgd(case: Round, q: float, rate: float):
    gradients = case.trained
    moved = case._replace(trained=case.received - rate * gradients)
    expected = server.q_fedsgd(case.received, case.losses, gradients, q, 1 / rate, GUARD).model
    np.testing.assert_allclose(
        moved.apply(QFedAvg(q=q, lipschitz=1 / rate)).model, expected, rtol=1e-8, atol=1e-8
    )


def test_worked_example_of_q_fedsgd():
    gradients = (W - TRAINED) * L
    step = server.q_fedsgd(W, LOSSES, gradients, 1.0, L)
    np.testing.assert_allclose(step.h, [9, 45, 15], atol=1e-8)
    np.testing.assert_allclose(step.model, [0.9710144928, 1.8840579710], atol=1e-8)
    np.testing.assert_allclose(
        server.q_fedsgd(W, LOSSES, gradients, 0.0, L).model, [0.9, 1.9], atol=1e-8
    )


@given(rounds(), powers, rates, st.floats(0.1, 10))
def test_the_unit_of_the_loss_does_not_matter(case: Round, q: float, rate: float, unit: float):
    # Losses, and with them gradients and L, times c: a full-batch step at rate 1/L ends at the same
    # place.
    before = case.apply(QFedAvg(q=q, lipschitz=1 / rate))
    after = case._replace(losses=unit * case.losses).apply(QFedAvg(q=q, lipschitz=unit / rate))
    # the 1e-10 added to a loss has a unit
    np.testing.assert_allclose(after.model, before.model, atol=1e-5)


@given(rounds((1,)), powers, rates)
def test_a_single_client_is_damped(case: Round, q: float, rate: float):
    d = (case.received - case.trained[0]) / rate
    expected = case.received - d / (1 / rate + q * (d @ d) / (case.losses[0] + GUARD))
    np.testing.assert_allclose(
        case.apply(QFedAvg(q=q, lipschitz=1 / rate)).model, expected, atol=1e-8
    )


@given(rounds((2, 4)), st.floats(0.01, 15), st.floats(1e-2, 1e2))
def test_equal_losses_give_fedavgs_direction_and_a_shorter_step(case: Round, q: float, loss: float):
    even = case._replace(losses=np.full(len(case.losses), loss))
    fair = even.apply(QFedAvg(q=q)).model - case.received
    plain = even.apply(FedAvg(weights="equal")).model - case.received
    length = np.linalg.norm(plain)
    assume(length > 1e-3)
    assert np.linalg.norm(fair) < length
    np.testing.assert_allclose(fair @ plain, np.linalg.norm(fair) * length, rtol=1e-9)


@given(rounds(), powers, rates)
def test_no_step_is_longer_than_the_longest_clients(case: Round, q: float, rate: float):
    step = np.linalg.norm(case.apply(QFedAvg(q=q, lipschitz=1 / rate)).model - case.received)
    assert step <= np.linalg.norm(case.trained - case.received, axis=1).max() + 1e-12


@given(rounds((2, 4)))
def test_large_q_follows_the_worst_client(case: Round):
    worst = int(case.losses.argmax())
    assume(np.delete(case.losses, worst).max() < case.losses[worst] / 1.5)
    own = case.trained[worst] - case.received
    assume(np.linalg.norm(own) > 0.1)
    outcome = case.apply(QFedAvg(q=100.0))
    step = outcome.model - case.received
    assert outcome.weights[worst] > 1 - 1e-12
    assert step @ own / np.linalg.norm(step) / np.linalg.norm(own) > 1 - 1e-9


@given(rounds((2, 4)), st.floats(0.1, 10), st.floats(0.1, 5))
def test_more_q_gives_the_worst_client_no_less(case: Round, q: float, more: float):
    worst = int(case.losses.argmax())
    assert (
        case.apply(QFedAvg(q=q + more)).weights[worst]
        >= case.apply(QFedAvg(q=q)).weights[worst] - 1e-12
    )


def single_precision(
    rule: QFedAvg, vectors: np.ndarray, losses: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    return single_round(rule, vectors, loss=jnp.asarray(losses, jnp.float32))


@pytest.mark.parametrize("q", [0.0, 0.001, 0.5, 0.999, 1.0, 2.0])
@given(case=rounds((1, 4)))
def test_zero_loss_is_finite(case: Round, q: float):
    losses = np.where(np.arange(len(case.losses)) == 0, 0.0, case.losses)
    weights, change = single_precision(QFedAvg(q=q), case.trained, losses)
    assert np.isfinite(weights).all()
    assert np.isfinite(change).all()
    assert np.isfinite(case._replace(losses=losses).apply(QFedAvg(q=q)).model).all()


def test_zero_loss_with_small_q_freezes_the_round():
    # A property of the method: q F^(q-1) ||d||^2 of such a client dominates the sum of h. F^(q-1) =
    # 1e-10^-0.5 = 1e5 and ||d||^2 = 4, so sum h is above 2e5 while the updates are of order 10.
    step = aggregate(QFedAvg(q=0.5, lipschitz=L), W, TRAINED, losses=[0, 2, 1]).model - W
    assert 0 < np.linalg.norm(step) < 1e-3


@given(rounds((1, 4)), st.floats(0, 1e4))
def test_the_largest_published_q_is_finite_in_single_precision(case: Round, largest: float):
    losses = (
        np.linspace(0, largest, len(case.losses)) if len(case.losses) > 1 else np.array([largest])
    )
    weights, change = single_precision(QFedAvg(q=15.0, lipschitz=1000.0), case.trained, losses)
    assert np.isfinite(change).all()
    assert weights.sum() == pytest.approx(1, abs=1e-5)


def test_huge_losses_give_the_step_of_double_precision():
    # F^15 = 1e60 overflows float32; the float64 transcription of Algorithm 1 does not.
    losses = np.array([1e4, 9e3, 5e3])
    _, change = single_precision(QFedAvg(q=15.0, lipschitz=L), TRAINED - W, losses)
    np.testing.assert_allclose(
        W + change, server.q_fedavg(W, TRAINED, losses, 15.0, L).model, rtol=1e-5
    )


@pytest.mark.parametrize("q", [0.5, 1.0, 15.0])
def test_a_negative_loss_makes_the_weights_not_finite(q: float):
    assert not np.isfinite(aggregate(QFedAvg(q=q), W, TRAINED, losses=[-0.5, 2, 1]).weights).any()


def test_a_negative_loss_of_a_client_that_dropped_out_does_not_matter():
    outcome = aggregate(
        QFedAvg(q=1.0), W, TRAINED, losses=[-0.5, 2, 1], returned=[False, True, True]
    )
    np.testing.assert_allclose(outcome.weights, [0, 2 / 3, 1 / 3], atol=1e-8)


def test_lipschitz_follows_the_learning_rate_unless_given():
    assert algorithm("q-fedavg(learning_rate=0.05)").rule.lipschitz == pytest.approx(20)  # pyright: ignore[reportAttributeAccessIssue]
    assert algorithm("q-fedavg", learning_rate=0.5).rule.lipschitz == pytest.approx(2)  # pyright: ignore[reportAttributeAccessIssue]
    assert algorithm("q-fedavg(learning_rate=0.05, lipschitz=3)").rule.lipschitz == 3  # pyright: ignore[reportAttributeAccessIssue]
    assert algorithm("q-fedsgd(learning_rate=0.05)").rule.lipschitz == pytest.approx(20)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("q-fedavg(q=-1)", r"q-fedavg: q must be at least 0, got -1\. Meaning: .*"),
        ("q-fedavg(lipschitz=0)", r"q-fedavg: lipschitz must be above 0, got 0\."),
        ("q-fedsgd(q=-0.5)", r"q-fedsgd: q must be at least 0, got -0\.5\. Meaning: .*"),
        (
            "q-fedavg(learning_rate=-1, lipschitz=1)",
            r"q-fedavg: learning_rate must be above 0, got -1\.",
        ),
        ("q-fedavg(learning_rate=0)", r"q-fedavg: learning_rate must be above 0, got 0\."),
        ("q-fedavg(epochs=0)", r"q-fedavg: epochs must be a whole number of at least 1, got 0\."),
        (
            "q-fedavg(batch_size=2.5)",
            r"q-fedavg: batch_size must be a whole number of at least 1, got 2\.5\.",
        ),
    ],
)
def test_bad_settings_are_refused(text: str, sentence: str):
    with pytest.raises(ValueError, match=f"^{sentence}( Meaning: .*)?$"):
        algorithm(text)

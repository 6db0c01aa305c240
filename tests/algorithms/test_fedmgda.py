import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evenly.algorithms import algorithm
from evenly.algorithms.fedmgda import FedMGDA
from tests.aggregation import SIZES, TRAINED, Round, W, aggregate, rounds
from tests.oracles import fair

EQUAL = {"weights": "equal"}


def lambdas(found, received: np.ndarray, trained: np.ndarray) -> np.ndarray:
    """Coefficients are lambda_k over the length of the update."""
    return found.weights * np.linalg.norm(trained - received, axis=1)


def lengths(case: Round) -> np.ndarray:
    return np.linalg.norm(case.trained - case.received, axis=1)


@given(rounds((2, 4)))
def test_epsilon_zero_is_the_mean_of_normalised_updates(case: Round):
    assume((lengths(case) > 1e-3).all())
    unit = (case.trained - case.received) / lengths(case)[:, None]
    shares = case.sizes / case.sizes.sum()
    np.testing.assert_allclose(
        case.apply(FedMGDA(epsilon=0.0)).model, case.received + shares @ unit, atol=1e-8
    )
    np.testing.assert_allclose(
        case.apply(FedMGDA(epsilon=0.0, **EQUAL)).model, case.received + unit.mean(0), atol=1e-8
    )  # pyright: ignore[reportArgumentType]


@given(rounds((2, 4)), st.sampled_from([0.1, 0.2, 1.0]))
def test_the_step_is_the_papers(case: Round, epsilon: float):
    assume((lengths(case) > 1e-3).all())
    found = case.apply(FedMGDA(epsilon=epsilon))
    expected = fair.fedmgda(case.received, case.trained, case.sizes, epsilon)
    ours = lambdas(found, case.received, case.trained)
    # The minimiser need not be unique (more clients than dimensions), its value and its sum are.
    np.testing.assert_allclose(found.model, expected.model, atol=1e-4)
    assert (
        np.linalg.norm(found.model - case.received)
        <= np.linalg.norm(expected.model - case.received) + 1e-5
    )
    centre = case.sizes / case.sizes.sum()
    assert ours.sum() == pytest.approx(1, abs=1e-8)
    assert (ours >= -1e-12).all()
    assert (np.abs(ours - centre) <= epsilon + 1e-9).all()


@given(rounds((2,)))
def test_two_unit_vectors_are_weighed_alike(case: Round):
    unit = (case.trained - case.received) / np.maximum(lengths(case), 1e-9)[:, None]
    assume((lengths(case) > 1e-3).all() and np.linalg.norm(unit[0] - unit[1]) > 0.1)
    found = case.apply(FedMGDA(epsilon=1.0))
    np.testing.assert_allclose(lambdas(found, case.received, case.trained), 0.5, atol=1e-6)


def test_unnormalised_the_shorter_vector_would_win():
    # min |(2 x, 1 - x)|^2 is at x = 0.2: the paper's closed form, and what normalising changes.
    g = np.array([[2.0, 0.0], [0.0, 1.0]])
    assert np.clip(g[1] @ (g[1] - g[0]) / ((g[0] - g[1]) ** 2).sum(), 0, 1) == pytest.approx(0.2)
    np.testing.assert_allclose(
        fair.shortest(g @ g.T, np.array([0.5, 0.5]), 1.0), [0.2, 0.8], atol=1e-6
    )
    found = aggregate(FedMGDA(epsilon=1.0, **EQUAL), np.zeros(2), -g)  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose(lambdas(found, np.zeros(2), -g), 0.5, atol=1e-8)
    np.testing.assert_allclose(found.model, [-0.5, -0.5], atol=1e-8)


def test_mgda_descends_for_everyone_whom_a_mean_would_hurt():
    updates = np.array([[1.0, 0.2], [1.0, -0.2], [-1.0, 0.8]])
    common, mean = (
        aggregate(FedMGDA(epsilon=e, **EQUAL), np.zeros(2), updates).model for e in (1.0, 0.0)
    )  # pyright: ignore[reportArgumentType]
    assert (updates @ mean).min() < 0, "the mean moves against the third client"
    assert (updates @ common).min() > 0


def test_a_client_that_did_not_move_is_dropped():
    trained = np.array([W, TRAINED[1], TRAINED[2]])
    for epsilon in (0.0, 0.2, 1.0):
        rule = FedMGDA(epsilon=epsilon)
        found = aggregate(rule, W, trained, sizes=SIZES)
        assert found.weights[0] == 0
        np.testing.assert_allclose(
            found.model, aggregate(rule, W, trained[1:], sizes=SIZES[1:]).model, atol=1e-10
        )
        np.testing.assert_allclose(
            found.model, fair.fedmgda(W, trained, SIZES, epsilon).model, atol=1e-6
        )
    still = aggregate(FedMGDA(), W, np.array([W, W]))
    np.testing.assert_array_equal(still.model, W)
    assert not still.weights.any()


@given(rounds((4,)), st.floats(0.1, 10))
def test_the_length_of_an_update_does_not_matter_to_its_weight(case: Round, factor: float):
    assume((lengths(case) > 1e-3).all())
    longer = case.trained.copy()
    longer[0] = case.received + factor * (case.trained[0] - case.received)
    rule = FedMGDA(epsilon=0.2)
    np.testing.assert_allclose(
        case._replace(trained=longer).apply(rule).model, case.apply(rule).model, atol=1e-6
    )


def test_the_server_rate_scales_the_step():
    one, half = (
        aggregate(FedMGDA(server_rate=rate), W, TRAINED, sizes=SIZES).model - W
        for rate in (1.0, 0.5)
    )
    np.testing.assert_allclose(half, one / 2, atol=1e-12)


def test_it_says_that_it_needs_the_updates_themselves():
    assert algorithm("fedmgda").rule.needs == {"gram", "examples"}
    assert algorithm("fedmgda+weighted").rule.needs == {"gram"}


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("fedmgda(epsilon=2)", r"epsilon must be at least 0 and at most 1, got 2\. Meaning: .*"),
        ("fedmgda(server_rate=0)", r"server_rate must be above 0, got 0\."),
        ("fedmgda(weights=big)", r"weights must be 'size' or 'equal', got 'big'\."),
    ],
)
def test_mistakes_are_refused(text: str, sentence: str):
    with pytest.raises(ValueError, match=f"^fedmgda: {sentence}( Meaning: .*)?$"):
        algorithm(text)

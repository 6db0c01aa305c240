import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.algorithms import FedAvg, algorithm
from evenly.algorithms.fedcvg import FedCvg
from tests.aggregation import Round, aggregate, grouped_rounds, single_round
from tests.oracles import groups

tilts = st.one_of(st.sampled_from([0.0001, 0.001, 0.01]), st.floats(0, 0.1))


@pytest.mark.parametrize(
    "alpha, weights",
    [
        (0.0001, [0.3285648280, 0.3385711167, 0.3328640552]),
        (0.001, [0.2866407750, 0.3869245747, 0.3264346503]),
        (0.01, [0.0403961512, 0.8113783859, 0.1482254629]),
    ],
)
def test_worked_examples(alpha: float, weights: list):
    n, u = [1000, 1000, 1000], [200, 500, 330]
    found = aggregate(FedCvg(alpha=alpha), np.zeros(2), np.ones((3, 2)), sizes=n, unprivileged=u)
    np.testing.assert_allclose(found.weights, weights, atol=1e-8)
    np.testing.assert_allclose(groups.fedcvg(n, u, alpha, coverage=330), weights, atol=1e-8)


@given(grouped_rounds(), tilts, st.floats(-50, 50))
def test_weights_are_the_papers_whatever_the_coverage(case: Round, alpha: float, coverage: float):
    expected = groups.fedcvg(case.sizes, case.unprivileged, alpha, coverage)
    np.testing.assert_allclose(case.apply(FedCvg(alpha=alpha)).weights, expected, atol=1e-9)
    equal = groups.fedcvg(np.ones(len(case.sizes)), case.unprivileged, alpha, coverage)
    np.testing.assert_allclose(
        case.apply(FedCvg(alpha=alpha, weights="equal")).weights, equal, atol=1e-9
    )


@pytest.mark.parametrize("weights", ["size", "equal"])
@given(case=grouped_rounds(), alpha=tilts)
def test_alpha_zero_and_equal_counts_are_fedavg(case: Round, alpha: float, weights: str):
    average = case.apply(FedAvg(weights=weights)).model
    np.testing.assert_allclose(
        case.apply(FedCvg(alpha=0.0, weights=weights)).model, average, atol=1e-12
    )
    alike = case._replace(unprivileged=np.full(len(case.sizes), 11))
    np.testing.assert_allclose(
        alike.apply(FedCvg(alpha=alpha, weights=weights)).model, average, atol=1e-10
    )


@given(grouped_rounds(), tilts, st.integers(0, 1000))
def test_only_differences_of_counts_matter(case: Round, alpha: float, more: int):
    shifted = case._replace(unprivileged=case.unprivileged + more)
    np.testing.assert_allclose(
        shifted.apply(FedCvg(alpha=alpha)).weights,
        case.apply(FedCvg(alpha=alpha)).weights,
        atol=1e-10,
    )


def test_counts_of_any_size_are_finite_and_the_largest_takes_it_all():
    # exp(0.01 * 16000) is beyond single precision; on Adult there are such clients.
    rows, unprivileged = (
        jnp.array([20_000.0, 30_000.0, 10_000.0]),
        jnp.array([16_000.0, 1_000.0, 200.0]),
    )
    weights, _ = single_round(
        FedCvg(alpha=0.01), np.ones((3, 1)), examples=rows, unprivileged=unprivileged
    )
    np.testing.assert_allclose(weights, [1, 0, 0], atol=1e-12)


def test_what_clients_reveal_follows_the_settings():
    assert algorithm("fedcvg").rule.needs == {"unprivileged", "examples"}
    assert algorithm("fedcvg+weighted").rule.needs == {"unprivileged"}


def test_mistakes_are_refused():
    with pytest.raises(
        ValueError, match=r"^fedcvg: alpha must be at least 0, got -1\. Meaning: .*$"
    ):
        algorithm("fedcvg(alpha=-1)")
    with pytest.raises(ValueError, match=r"^fedcvg: There is no setting 'coverage'\."):
        algorithm("fedcvg(coverage=300)")  # it would have no effect

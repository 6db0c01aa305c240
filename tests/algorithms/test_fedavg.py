import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.algorithms import FedAvg, algorithm
from evenly.parts.sampling import Full, Weighted
from evenly.types import Algorithm
from tests.aggregation import SIZES, TRAINED, Round, W, aggregate, rounds
from tests.oracles import server

BOTH = pytest.mark.parametrize("weights", ["size", "equal"])


def test_worked_example_by_size():
    # Shares 0.1, 0.3, 0.6: (0.08 + 0.3 + 0.54, 0.2 + 0.45 + 1.32).
    outcome = aggregate(FedAvg(weights="size"), W, TRAINED, sizes=SIZES)
    np.testing.assert_allclose(outcome.model, [0.92, 1.97], atol=1e-8)
    np.testing.assert_allclose(outcome.weights, [0.1, 0.3, 0.6], atol=1e-8)
    np.testing.assert_allclose(server.fedavg_by_size(TRAINED, SIZES), [0.92, 1.97], atol=1e-8)


def test_worked_example_equal():
    # ((0.8 + 1 + 0.9) / 3, (2 + 1.5 + 2.2) / 3).
    np.testing.assert_allclose(
        aggregate(FedAvg(weights="equal"), W, TRAINED, sizes=SIZES).model, [0.9, 1.9], atol=1e-8
    )
    np.testing.assert_allclose(server.fedavg_plain(TRAINED), [0.9, 1.9], atol=1e-8)


@given(rounds())
def test_by_size_is_the_papers_mean(case: Round):
    np.testing.assert_allclose(
        case.apply(FedAvg(weights="size")).model,
        server.fedavg_by_size(case.trained, case.sizes),
        atol=1e-8,
    )


@given(rounds())
def test_equal_is_the_papers_mean(case: Round):
    np.testing.assert_allclose(
        case.apply(FedAvg(weights="equal")).model, server.fedavg_plain(case.trained), atol=1e-8
    )


@given(rounds())
def test_equal_sizes_make_both_forms_agree(case: Round):
    same = case._replace(sizes=np.full(len(case.sizes), 7))
    np.testing.assert_allclose(
        same.apply(FedAvg(weights="size")).model,
        same.apply(FedAvg(weights="equal")).model,
        atol=1e-12,
    )


@BOTH
@given(case=rounds())
def test_when_all_clients_agree_the_server_follows(case: Round, weights: str):
    agreed = case._replace(trained=np.repeat(case.trained[:1], len(case.trained), 0))
    np.testing.assert_allclose(
        agreed.apply(FedAvg(weights=weights)).model, case.trained[0], atol=1e-12
    )


@given(rounds((4,)), st.integers(1, 50))
def test_only_the_ratio_of_sizes_matters(case: Round, factor: int):
    scaled = case._replace(sizes=case.sizes * factor)
    np.testing.assert_allclose(
        scaled.apply(FedAvg(weights="size")).model,
        case.apply(FedAvg(weights="size")).model,
        atol=1e-12,
    )


def test_weights_follow_the_sampling():
    assert algorithm("fedavg+weighted").rule.weights == "equal"  # pyright: ignore[reportAttributeAccessIssue]
    assert algorithm("fedavg+uniform").rule.weights == "size"  # pyright: ignore[reportAttributeAccessIssue]
    assert algorithm("fedavg+full").rule.weights == "size"  # pyright: ignore[reportAttributeAccessIssue]
    assert algorithm("fedavg(weights=equal)+uniform").rule.weights == "equal"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedsgd"])
def test_counting_sizes_twice_is_refused(name: str):
    with pytest.raises(
        ValueError, match=rf"^{name}.*: client sizes would count twice, .* or sample uniformly\.$"
    ):
        algorithm(f"{name}(weights=size)+weighted")


def test_counting_sizes_twice_is_refused_when_parts_are_put_together_by_hand():
    work = algorithm("fedavg").work
    with pytest.raises(ValueError, match=r"^FedAvg: client sizes would count twice"):
        Algorithm(work=work, rule=FedAvg(weights="size"), select=Weighted())
    assert Algorithm(work=work, rule=FedAvg(weights="size"), select=Full()).label == ""


def test_unknown_weights_are_refused():
    with pytest.raises(
        ValueError, match=r"^fedavg: weights must be 'size' or 'equal', got 'big'\.$"
    ):
        algorithm("fedavg(weights=big)")

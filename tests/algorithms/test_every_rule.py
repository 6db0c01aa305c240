"""Properties that hold for every rule, whatever its settings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.algorithms import FedAvg, FedSGD, QFedAvg
from evenly.algorithms.afl import AFL
from evenly.algorithms.fairfed import FairFed
from evenly.algorithms.fedcvg import FedCvg
from evenly.algorithms.fedcvg_ratio import FedCvgRatio
from evenly.algorithms.fedfb import FedFB
from evenly.algorithms.fedmgda import FedMGDA
from evenly.algorithms.p_fedavg import PFedAvg
from evenly.algorithms.term import Term
from evenly.types import Rule
from tests.aggregation import Round, grouped_rounds

RULES = {
    "fedavg by size": FedAvg(weights="size"),
    "fedavg equal": FedAvg(weights="equal"),
    "fedsgd by size": FedSGD(weights="size"),
    "fedsgd with q": FedSGD(weights="equal", q=2.0),
    "q-fedavg q=0": QFedAvg(q=0.0),
    "q-fedavg q=0.1": QFedAvg(q=0.1),
    "q-fedavg q=5": QFedAvg(q=5.0, lipschitz=2.0),
    "q-fedavg as printed": QFedAvg(q=1.0, lipschitz=2.0, scale_update=False),
    "afl": AFL(rate_lambda=0.1),
    "afl local": AFL(form="local", rate_lambda=0.1),
    "afl stochastic": AFL(form="stochastic", rate_lambda=0.1),
    "term": Term(alpha=0.3),
    "term equal": Term(alpha=0.3, weights="equal"),
    "term of its authors": Term(alpha=0.3, weights="equal", form="authors"),
    "p-fedavg gini": PFedAvg(),
    "p-fedavg harmonic by size": PFedAvg(family="harmonic", weights="size"),
    "p-fedavg geometric": PFedAvg(family="geometric"),
    "p-fedavg by n": PFedAvg(sort_key="n"),
    "fairfed": FairFed(beta=0.4),
    "fairfed by spd": FairFed(metric="spd", beta=0.4),
    "fairfed by accuracy, equal": FairFed(metric="accuracy", weights="equal", carry="normalised"),
    "fairfed exponential": FairFed(form="exponential"),
    "fedcvg": FedCvg(alpha=0.02),
    "fedcvg equal": FedCvg(alpha=0.02, weights="equal"),
    "fedcvg-ratio": FedCvgRatio(),
    "fedcvg-ratio from sizes": FedCvgRatio(start="size"),
    "fedfb": FedFB(alpha=0.3),
    "fedmgda": FedMGDA(epsilon=0.2),
}
# What these document instead: F^q in the sum, about 1/K, lambda_k / ||g_k||.
ANOTHER_SUM = {"fedsgd with q", "term of its authors", "fedmgda"}
# Weights by rank, a step over K, a box around the centre and a mean with earlier weights depend on how many clients there are.
COUNTS_HEADS = {"term of its authors", "p-fedavg harmonic by size", "p-fedavg geometric", "fedcvg-ratio from sizes", "fedmgda"}
EVERY = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())


def close(found: np.ndarray, expected: np.ndarray, rule: Rule) -> None:
    tolerance = 1e-5 if isinstance(rule, FedMGDA) else 1e-10  # which iterates
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


masks = st.lists(st.booleans(), min_size=4, max_size=4)


@EVERY
@given(case=grouped_rounds((4,)), order=st.permutations(range(4)))
def test_the_order_of_clients_does_not_matter(case: Round, order: list[int], rule: Rule):
    before, after = case.apply(rule), case.only(order).apply(rule)
    close(after.weights, before.weights[order], rule)
    close(after.model, before.model, rule)


@EVERY
@given(case=grouped_rounds((4,)), returned=masks)
def test_a_client_that_drops_out_might_as_well_not_exist(case: Round, returned: list[bool], rule: Rule):
    masked = case.apply(rule, returned=returned)
    assert (masked.weights[~np.array(returned)] == 0).all()
    if not any(returned):
        np.testing.assert_array_equal(masked.model, case.received)
        return
    without = case.only(np.flatnonzero(returned)).apply(rule)
    close(masked.weights[returned], without.weights, rule)
    close(masked.model, without.model, rule)


@EVERY
@given(case=grouped_rounds())
def test_nobody_returned_changes_nothing(case: Round, rule: Rule):
    outcome = case.apply(rule, returned=np.zeros(len(case.losses), bool))
    np.testing.assert_array_equal(outcome.model, case.received)
    np.testing.assert_array_equal(outcome.weights, 0)


@pytest.mark.parametrize("name", RULES)
@given(case=grouped_rounds((4,)), returned=masks)
def test_weights_are_not_negative_and_sum_to_one(case: Round, returned: list[bool], name: str):
    weights = case.apply(RULES[name], returned=returned).weights
    assert (weights >= 0).all()
    if any(returned) and name not in ANOTHER_SUM:
        assert weights.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", [name for name in RULES if name not in COUNTS_HEADS])
@given(case=grouped_rounds((2,)))
def test_counting_every_client_twice_changes_nothing(case: Round, name: str):
    rule = RULES[name]
    np.testing.assert_allclose(case.only([0, 1, 0, 1]).apply(rule).model, case.apply(rule).model, rtol=1e-10, atol=1e-10)

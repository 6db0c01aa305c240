"""Properties that hold for every rule of this family, whatever its settings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.algorithms import FedAvg, FedSGD, QFedAvg
from evenly.types import Rule
from tests.aggregation import Round, rounds

RULES = {
    "fedavg by size": FedAvg(weights="size"),
    "fedavg equal": FedAvg(weights="equal"),
    "fedsgd by size": FedSGD(weights="size"),
    "fedsgd with q": FedSGD(weights="equal", q=2.0),
    "q-fedavg q=0": QFedAvg(q=0.0),
    "q-fedavg q=0.1": QFedAvg(q=0.1),
    "q-fedavg q=5": QFedAvg(q=5.0, lipschitz=2.0),
    "q-fedavg as printed": QFedAvg(q=1.0, lipschitz=2.0, scale_update=False),
}
EVERY = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
masks = st.lists(st.booleans(), min_size=4, max_size=4)


@EVERY
@given(case=rounds((4,)), order=st.permutations(range(4)))
def test_the_order_of_clients_does_not_matter(case: Round, order: list[int], rule: Rule):
    before, after = case.apply(rule), case.only(order).apply(rule)
    np.testing.assert_allclose(after.weights, before.weights[order], rtol=1e-10)
    np.testing.assert_allclose(after.model, before.model, rtol=1e-10, atol=1e-10)


@EVERY
@given(case=rounds((4,)), returned=masks)
def test_a_client_that_drops_out_might_as_well_not_exist(case: Round, returned: list[bool], rule: Rule):
    masked = case.apply(rule, returned=returned)
    assert (masked.weights[~np.array(returned)] == 0).all()
    if not any(returned):
        np.testing.assert_array_equal(masked.model, case.received)
        return
    without = case.only(np.flatnonzero(returned)).apply(rule)
    np.testing.assert_allclose(masked.weights[returned], without.weights, rtol=1e-10)
    np.testing.assert_allclose(masked.model, without.model, rtol=1e-10, atol=1e-10)


@EVERY
@given(case=rounds())
def test_nobody_returned_changes_nothing(case: Round, rule: Rule):
    outcome = case.apply(rule, returned=np.zeros(len(case.losses), bool))
    np.testing.assert_array_equal(outcome.model, case.received)
    np.testing.assert_array_equal(outcome.weights, 0)


@EVERY
@given(case=rounds((4,)), returned=masks)
def test_weights_are_not_negative_and_sum_to_one(case: Round, returned: list[bool], rule: Rule):
    weights = case.apply(rule, returned=returned).weights
    assert (weights >= 0).all()
    if any(returned) and not (isinstance(rule, FedSGD) and rule.q):  # that one documents another sum
        assert weights.sum() == pytest.approx(1, abs=1e-12)


@EVERY
@given(case=rounds((2,)))
def test_counting_every_client_twice_changes_nothing(case: Round, rule: Rule):
    np.testing.assert_allclose(case.only([0, 1, 0, 1]).apply(rule).model, case.apply(rule).model, rtol=1e-10, atol=1e-10)

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

RULES: dict[str, Rule] = {
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
    "afl per-domain": AFL(form="per-domain", rate_lambda=0.1),
    "afl stochastic": AFL(form="stochastic", rate_lambda=0.1),
    "term": Term(alpha=0.3),
    "term equal": Term(alpha=0.3, weights="equal"),
    "term of its authors": Term(alpha=0.3, weights="equal", form="authors"),
    "p-fedavg gini": PFedAvg(),
    "p-fedavg harmonic by size": PFedAvg(family="harmonic", weights="size"),
    "p-fedavg geometric": PFedAvg(family="geometric"),
    "p-fedavg by n": PFedAvg(sort_key="n"),
    "p-fedavg with bins": PFedAvg(bins=6),
    "p-fedavg with bins, geometric": PFedAvg(bins=6, family="geometric"),
    "fairfed": FairFed(beta=0.4),
    "fairfed by spd": FairFed(metric="spd", beta=0.4),
    "fairfed by accuracy, equal": FairFed(metric="accuracy", weights="equal", carry="normalised"),
    "fairfed carried on": FairFed(beta=0.4, carry="normalised"),
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
# Weights by rank, a step over K, a box around the centre and a mean with earlier weights depend on
# how many clients there are.
COUNTS_HEADS = {
    "term of its authors",
    "p-fedavg harmonic by size",
    "p-fedavg geometric",
    "p-fedavg with bins, geometric",
    "fedcvg-ratio from sizes",
    "fedmgda",
}


def close(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    tolerance = 1e-5 if name == "fedmgda" else 1e-10  # which iterates
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=name)


# Every rule is tried on every example: drawing one takes longer than a round of all of them. There
# are always four clients, of whom some are in the round: compiling takes longer than anything else,
# and every number of clients is a program of its own. Other tests have rounds of two and four.
masks = st.lists(st.booleans(), min_size=4, max_size=4).filter(lambda here: sum(here) != 3)


@given(case=grouped_rounds((4,)), order=st.permutations(range(4)))
def test_the_order_of_clients_does_not_matter(case: Round, order: list[int]):
    before, after = case.apply_each(RULES), case.only(order).apply_each(RULES)
    for name in RULES:
        close(after[name].weights, before[name].weights[order], name)
        close(after[name].model, before[name].model, name)


@given(case=grouped_rounds((4,)), returned=masks)
def test_a_client_that_drops_out_might_as_well_not_exist(case: Round, returned: list[bool]):
    masked = case.apply_each(RULES, returned=returned)
    without = case.only(np.flatnonzero(returned)).apply_each(RULES) if any(returned) else {}
    for name in RULES:
        assert (masked[name].weights[~np.array(returned)] == 0).all(), name
        if not without:
            np.testing.assert_array_equal(masked[name].model, case.received, err_msg=name)
            continue
        close(masked[name].weights[returned], without[name].weights, name)
        close(masked[name].model, without[name].model, name)


@given(case=grouped_rounds((4,)), count=st.sampled_from([1, 2, 4]))
def test_nobody_returned_changes_nothing(case: Round, count: int):
    case = case.only(np.arange(count))
    for name, outcome in case.apply_each(RULES, returned=np.zeros(len(case.losses), bool)).items():
        np.testing.assert_array_equal(outcome.model, case.received, err_msg=name)
        np.testing.assert_array_equal(outcome.weights, 0, err_msg=name)


@given(case=grouped_rounds((4,)), returned=masks)
def test_weights_are_not_negative_and_sum_to_one(case: Round, returned: list[bool]):
    for name, outcome in case.apply_each(RULES, returned=returned).items():
        assert (outcome.weights >= 0).all(), name
        if any(returned) and name not in ANOTHER_SUM:
            assert outcome.weights.sum() == pytest.approx(1, abs=1e-12), name


@given(case=grouped_rounds((4,)))
def test_counting_every_client_twice_changes_nothing(case: Round):
    once, twice = (case.only(who).apply_each(RULES) for who in ([0, 1], [0, 1, 0, 1]))
    for name in RULES.keys() - COUNTS_HEADS:
        np.testing.assert_allclose(
            twice[name].model, once[name].model, rtol=1e-10, atol=1e-10, err_msg=name
        )

"""However they get there, all fair methods end at the same client: the one with the
largest loss.
"""

import numpy as np
import pytest

from evenly.algorithms import QFedAvg
from evenly.algorithms.afl import AFL
from evenly.algorithms.p_fedavg import PFedAvg
from evenly.algorithms.term import Term
from evenly.metrics import dual_weights
from evenly.types import Rule
from tests.aggregation import LOSSES, SIZES, TRAINED, W, aggregate

EXTREMES = {
    "q-fedavg": QFedAvg(q=200.0),
    "term": Term(alpha=200.0),
    "p-fedavg": PFedAvg(family="geometric", ratio=1e-12),
    "afl full": AFL(rate_lambda=0.1),
    "afl local": AFL(form="local", rate_lambda=0.1),
}
ROUNDS = 40  # at a model that does not move; only AFL needs more than one


@pytest.mark.parametrize("rule", EXTREMES.values(), ids=EXTREMES.keys())
def test_in_the_limit_all_weight_is_on_the_worst_client(rule: Rule):
    state, weights = None, np.zeros(3)
    for _ in range(ROUNDS):
        found = aggregate(rule, W, TRAINED, losses=LOSSES, sizes=SIZES, state=state)
        weights, state = found.weights, found.state
    np.testing.assert_allclose(weights, [0, 1, 0], atol=1e-10)


@pytest.mark.parametrize("kind, parameter", [("q-ffl", 200.0), ("term", 200.0), ("afl", 0.0)])
def test_so_do_their_generalised_means(kind: str, parameter: float):
    np.testing.assert_allclose(dual_weights(LOSSES, kind, parameter), [0, 1, 0], atol=1e-10)

"""Whom a uniform number draws, where it falls between two clients."""

import numpy as np
import pytest

from evenly.algorithms.afl import AFL
from tests.aggregation import W, aggregate


@pytest.mark.parametrize(
    "chance, drawn", [(0.0, 0), (0.24, 0), (0.25, 1), (0.5, 2), (0.74, 2), (0.75, 3), (1.0, 3)]
)
def test_a_chance_at_the_border_of_two_clients_draws_the_second(chance: float, drawn: int):
    """λ starts at a quarter for each of four; the first chance draws whose model counts, the second
    whose loss moves λ.
    """
    found = aggregate(
        AFL(form="stochastic", rate_lambda=0.01), W, np.ones((4, 2)), chance=(chance, chance)
    )
    assert found.weights.tolist() == [float(k == drawn) for k in range(4)]
    np.testing.assert_allclose(
        found.memory, [0.25 + (0.03 if k == drawn else -0.01) for k in range(4)], atol=1e-12
    )

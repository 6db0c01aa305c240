"""Methods go together with samplings, local optimisers and server optimisers, and several runs
advance as one.
"""

import numpy as np
import pytest

from evenly.simulate import simulate
from tests.simulations import Simulated, algorithms, flat

COMPOSITIONS = [
    "term+uniform(clients=3)+server-adam(learning_rate=0.01)",
    "p-fedavg+fraction(share=0.5)",
    "ditto+uniform(clients=3)+local-momentum+server-yogi",
    "fedmgda+weighted(clients=3)",
    "afl(form=local)+weighted(clients=8, replace=true)",
]
LESS_OFTEN = [
    "propfair+local-momentum",
    "afl(form=local)+uniform(clients=3)",
    "afl+uniform(clients=3)+server-momentum",
    "q-fedavg+weighted(clients=4, replace=true)",
]


@pytest.mark.parametrize(
    "text", [*COMPOSITIONS, *(pytest.param(text, marks=pytest.mark.further) for text in LESS_OFTEN)]
)
def test_two_rounds_of_a_composition(simulated: Simulated, text: str):
    trace = simulated(text, 2)
    assert np.isfinite(flat(trace.model)).all()
    assert np.linalg.norm(flat(trace.model)) > 1e-3
    assert (trace.weights >= 0).all()
    assert trace.weights.any(1).all()
    assert not trace.excluded.any()
    if not text.startswith("fedmgda"):
        np.testing.assert_allclose(trace.weights.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "afl(rate_lambda=[0.1, 0.5])",
        "ditto(pull=[0, 0.5])",
        pytest.param("propfair(M=[2, 5])", marks=pytest.mark.further),
        pytest.param("fedmgda(epsilon=[0, 0.5])", marks=pytest.mark.further),
    ],
)
def test_runs_that_advance_together_are_the_runs_made_alone(simulated: Simulated, text: str):
    members = algorithms(text)
    together = simulated.all(text, 3)
    for member, trace in zip(members, together, strict=True):
        (alone,) = simulate(simulated.task, simulated.federation, [member], 3)
        np.testing.assert_allclose(flat(trace.model), flat(alone.model), atol=1e-5)
        np.testing.assert_allclose(trace.weights, alone.weights, atol=1e-5)
        np.testing.assert_allclose(trace.losses, alone.losses, atol=1e-5)
    assert np.abs(together[0].losses - together[1].losses)[-1, 0].max() > 1e-4, (
        "the two runs differ"
    )

"""A limit on local steps ends a visit early, and changes nothing else."""

from itertools import chain

import numpy as np
import pytest

from evenly.algorithms import algorithm
from evenly.types import Seeds
from tests.oracles.run import Settings, visits
from tests.simulate.test_whole_runs import compare
from tests.simulations import Simulated, algorithms


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("epochs", [1, 2])
def test_a_visit_is_the_first_steps_of_the_whole_one(simulated: Simulated, limit: int, epochs: int):
    limited, whole = (
        visits(
            simulated.federation,
            algorithms(f"fedavg(epochs={epochs}, max_steps={steps})+full")[0],
            2,
            Seeds(),
            0.0,
        )
        for steps in (limit, 0)
    )
    cut = 0
    for some, all_of_them in zip(chain(*limited), chain(*whole), strict=True):
        assert len(some.batches) == min(limit, len(all_of_them.batches))
        cut += len(some.batches) < len(all_of_them.batches)
        for (x, y), (long_x, long_y) in zip(some.batches, all_of_them.batches, strict=False):
            np.testing.assert_array_equal(x, long_x)
            np.testing.assert_array_equal(y, long_y)
    assert cut >= 4


def test_the_simulator_stops_there_too(simulated: Simulated):
    compare(simulated, "fedavg(max_steps=2)", Settings("fedavg"))


def test_the_stochastic_form_of_afl_takes_one_step_of_one_client(simulated: Simulated):
    trace = simulated("afl(form=stochastic, served=last)+full", 20)
    assert set(np.unique(trace.weights)) == {0.0, 1.0}
    np.testing.assert_array_equal(trace.weights.sum(1), 1)
    assert len(np.unique(trace.weights.argmax(1))) > 2, "not always the same one"


@pytest.mark.parametrize("value", [-1, 2.5])
def test_a_limit_is_a_whole_number(value: float):
    for name in ("fedavg", "ditto"):
        with pytest.raises(
            ValueError,
            match=(
                rf"^{name}: max_steps must be a whole number of at least 0, got {value}\. Meaning:"
                r" maximum number of local steps"
            ),
        ):
            algorithm(f"{name}(max_steps={value})")

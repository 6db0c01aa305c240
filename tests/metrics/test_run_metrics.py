"""What is known of a run besides its counts."""

import numpy as np
import pytest

from evenly.metrics import RUN_METRICS, idle_rounds, run_metrics
from evenly.types import Trace


def test_cost_occupancy_and_inference(some_trace: Trace):
    plain = run_metrics(some_trace, None)
    assert plain == {"upload": some_trace.upload / 2**20, "download": some_trace.download / 2**20}
    chosen = some_trace._replace(choice=np.array([[0, 0, 0, 0, 0, 0], [2, 2, 0, 0, 0, 2]], np.int32))
    found = run_metrics(chosen, np.array([0, 0, 1, 1, 1, 1]))
    assert set(found) == set(RUN_METRICS)
    assert found["models_used"] == 2
    np.testing.assert_allclose(found["group_inference"], 100 * 5 / 6)
    assert "group_inference" not in run_metrics(chosen, None)


@pytest.mark.parametrize(
    ("weights", "idle"),
    [
        ([[0.5, 0.5], [1, 0]], 0),
        ([[0.5, 0.5], [0, 0], [0, 0], [-1, 0]], 2),  # a negative weight counts
        ([[0, 0], [0, 0]], 0),  # nothing is shared
        (np.zeros((0, 2)), 0),
    ],
)
def test_idle_rounds_are_those_without_any_weight(some_trace: Trace, weights: list, idle: int):
    assert idle_rounds(some_trace._replace(weights=np.array(weights, np.float32))) == idle

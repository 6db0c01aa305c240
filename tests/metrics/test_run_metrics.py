"""What is known of a run besides its counts."""

import numpy as np

from evenly.metrics import RUN_METRICS, run_metrics
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

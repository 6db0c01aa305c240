"""What is known of a run besides its counts."""

import numpy as np
import pytest

from evenly.metrics import RUN_METRICS, idle_rounds, on_front, run_metrics, slots_of_evaluated
from evenly.types import Trace


def test_cost_occupancy_and_inference(some_trace: Trace):
    plain = run_metrics(some_trace, None)
    assert plain == {"upload": some_trace.upload / 2**20, "download": some_trace.download / 2**20}
    chosen = some_trace._replace(
        choice=np.array([[0, 0, 0, 0, 0, 0], [2, 2, 0, 0, 0, 2]], np.int32)
    )
    found = run_metrics(chosen, np.array([0, 0, 1, 1, 1, 1]))
    assert set(found) == set(RUN_METRICS)
    assert found["models_used"] == 2
    np.testing.assert_allclose(found["group_inference"], 100 * 5 / 6)
    assert "group_inference" not in run_metrics(chosen, None)


def test_fewer_bytes_are_better_and_not_fairer():
    assert {RUN_METRICS[name].direction for name in ("upload", "download")} == {"lower is better"}


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


def test_a_panel_gives_its_clients_their_numbers_and_others_no_weight(some_trace: Trace):
    trace = some_trace._replace(
        panel=np.array([4, 1]),
        excluded=np.zeros(6, bool),
        cohort=np.array([[1, 4], [0, 1]]),
        weights=np.array([[0.25, 0.75], [0.5, 0.5]]),
    )
    who, weight = slots_of_evaluated(trace)
    assert (who.tolist(), weight.tolist()) == ([[1, 0], [0, 1]], [[0.25, 0.75], [0, 0.5]])
    who, weight = slots_of_evaluated(trace._replace(panel=None))
    assert (who.tolist(), weight.tolist()) == ([[1, 4], [0, 1]], [[0.25, 0.75], [0.5, 0.5]])


def test_equal_choices_share_the_front_and_undefined_ones_beat_nobody():
    assert on_front([[1, 1], [1, 1], [0, 2], [np.nan, 9], [0, 1], [1, 0]]).tolist() == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    assert on_front([[3.0]]).tolist() == [True]
    assert on_front([[np.nan], [np.inf], [1.0]]).tolist() == [False, False, True]

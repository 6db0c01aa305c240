"""How many lanes and devices there are, at the sizes where the answer changes. GPUs are pretended:
only the choice is tested.
"""

from typing import Any

import jax
import numpy as np
import pytest

from evenly.models import MLP, LinearSVM, Logistic, Softmax
from evenly.simulate import layout, program
from evenly.simulate.layout import (
    RunGroup,
    choose_lanes,
    choose_strides,
    group_runs,
    worth_batching,
)
from evenly.simulate.program import fuses_loops
from evenly.simulate.schedule import block_rounds
from tests.simulations import algorithms

TASK, NUMBERS = Softmax(features=3, classes=2), 8  # a model of 8 numbers, 32 bytes
BYTES = 4 * NUMBERS


@pytest.fixture
def plain() -> RunGroup:
    return group_runs(algorithms("fedavg"))


def pretend(patch: pytest.MonkeyPatch, backend: str, devices: int = 1, **limits: int) -> None:
    patch.setattr(jax, "default_backend", lambda: backend)
    patch.setattr(jax, "devices", lambda: [None] * devices)
    for name, value in limits.items():
        patch.setattr(layout, name, value)


@pytest.mark.parametrize(
    "backend, limit, runs, used",
    [
        ("gpu", BYTES, 1, 4),  # just large enough for all devices
        ("gpu", BYTES + 1, 1, 1),
        ("gpu", 2 * BYTES, 2, 4),  # runs count together
        ("gpu", 2 * BYTES + 1, 2, 1),
        ("cpu", 0, 1, 1),
    ],
)
def test_models_of_a_size_are_spread_over_all_gpus(
    monkeypatch: pytest.MonkeyPatch, backend: str, limit: int, runs: int, used: int
):
    pretend(monkeypatch, backend, 4, DEVICES_BYTES=limit)
    run_group = group_runs(algorithms("q-fedavg(q=[0, 1])" if runs == 2 else "fedavg"))
    assert choose_lanes(TASK, run_group, 8, lanes=1, devices=0) == (1, used)


@pytest.mark.parametrize(
    "backend, limit, slots, asked, lanes",
    [
        ("gpu", BYTES, 9, 0, 9),  # just small enough to train side by side
        ("gpu", BYTES - 1, 9, 0, 1),
        ("gpu", BYTES, 64, 0, 64),
        ("gpu", BYTES, 65, 0, 64),  # never more
        ("gpu", BYTES, 100, 70, 70),  # unless asked for
        ("gpu", 0, 9, 5, 5),
        ("gpu", BYTES, 1, 0, 1),
        ("cpu", BYTES, 9, 0, 1),
        ("cpu", 0, 9, 5, 5),
        ("cpu", 0, 9, 10, 9),
        ("cpu", 0, 9, 1, 1),
    ],
)
def test_lanes_are_as_many_as_asked_for_or_fill_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
    plain: RunGroup,
    backend: str,
    limit: int,
    slots: int,
    asked: int,
    lanes: int,
):
    pretend(monkeypatch, backend, LANE_BYTES=limit)
    assert choose_lanes(TASK, plain, slots, lanes=asked, devices=1) == (lanes, 1)


@pytest.mark.parametrize(
    "slots, devices, found",
    [(7, 2, (4, 2)), (8, 2, (4, 2)), (7, 3, (3, 3)), (2, 3, (1, 2)), (1, 4, (1, 1))],
)
def test_lanes_are_those_of_each_device(
    monkeypatch: pytest.MonkeyPatch,
    plain: RunGroup,
    slots: int,
    devices: int,
    found: tuple[int, int],
):
    pretend(monkeypatch, "gpu", 4)
    assert choose_lanes(TASK, plain, slots, lanes=0, devices=devices) == found


@pytest.mark.parametrize("devices", [-1, 5])
def test_devices_that_are_not_there_are_refused(
    monkeypatch: pytest.MonkeyPatch, plain: RunGroup, devices: int
):
    pretend(monkeypatch, "gpu", 4)
    with pytest.raises(
        ValueError,
        match=(
            r"^devices must be between 0 \(choose\) and 4, as many as JAX has here, got"
            rf" {devices}\.$"
        ),
    ):
        choose_lanes(TASK, plain, 9, lanes=0, devices=devices)


@pytest.mark.parametrize(
    "text, found",
    [
        ("fedmgda", (1, 1)),  # vectors are kept one by one
        # a second visit reads what the first one left
        ("ditto+weighted(clients=3, replace=true)", (5, 1)),
        ("ditto", (5, 2)),
        ("fedavg+weighted(clients=3, replace=true)", (5, 2)),  # nothing is left to read
    ],
)
def test_only_visits_that_depend_on_each_other_stay_on_one_device(
    monkeypatch: pytest.MonkeyPatch, text: str, found: tuple[int, int]
):
    pretend(monkeypatch, "cpu", 4)
    assert choose_lanes(TASK, group_runs(algorithms(text)), 12, lanes=5, devices=2) == found


@pytest.mark.parametrize(
    "lanes, runs, limit, steps, found",
    [
        (2, 1, BYTES + 1, [3, 3], (16, 16, 0)),
        (2, 1, BYTES, [3, 3], (1, 1, 3)),  # long steps: all at once where clients take equally many
        (2, 1, BYTES, [3], (1, 1, 3)),
        (2, 1, BYTES, [3, 4], (1, 1, 0)),
        (2, 2, BYTES + 1, [3, 4], (1, 1, 0)),  # two runs make a step twice as long
        (2, 2, 2 * BYTES + 1, [3, 4], (16, 16, 0)),
        (1, 1, BYTES + 1, [3, 3], (1, 1, 0)),
    ],
)
def test_short_steps_follow_one_another_unasked(
    monkeypatch: pytest.MonkeyPatch,
    lanes: int,
    runs: int,
    limit: int,
    steps: list[int],
    found: tuple[int, int, int],
):
    pretend(monkeypatch, "gpu", DEVICES_BYTES=limit)
    assert choose_strides(TASK, runs, lanes, np.array(steps)) == found


@pytest.mark.parametrize(
    "rounds, small, room",
    [
        (100, True, 25),
        (128, True, 32),
        (129, True, 33),
        (32, True, 8),
        (33, True, 9),
        (1, True, 8),
        (100, False, 1024),
    ],
)
def test_a_run_of_small_steps_has_up_to_four_blocks(rounds: int, small: bool, room: int):
    assert block_rounds(rounds, small) == room


@pytest.mark.parametrize(
    "task", [TASK, Logistic(features=7), LinearSVM(features=7)], ids=["softmax", "logistic", "svm"]
)
def test_small_steps_of_linear_models_are_compiled_as_one_function(
    monkeypatch: pytest.MonkeyPatch, task: Any
):
    monkeypatch.setattr(program, "can_fuse_loops", lambda: True)
    monkeypatch.setattr(program, "MOST_TERMS", 3 * 5 * NUMBERS)
    assert fuses_loops(task, 3, 5, 1)
    assert not fuses_loops(task, 4, 5, 1)
    assert not fuses_loops(task, 3, 6, 1)
    assert not fuses_loops(task, 3, 5, 2), "not in lanes"
    assert not fuses_loops(MLP(features=1, classes=2, hidden=(1,)), 1, 1, 1)
    monkeypatch.setattr(program, "can_fuse_loops", lambda: False)
    assert not fuses_loops(task, 3, 5, 1)


@pytest.mark.parametrize(
    "backend, devices, runs, limit, worth",
    [
        ("gpu", 1, 1, BYTES + 1, True),
        ("gpu", 1, 1, BYTES, False),
        ("gpu", 1, 2, BYTES + 1, False),
        ("gpu", 2, 1, BYTES + 1, False),
        ("cpu", 1, 1, BYTES + 1, False),
    ],
)
def test_seeds_meet_where_one_would_not_fill_the_only_gpu(
    monkeypatch: pytest.MonkeyPatch, backend: str, devices: int, runs: int, limit: int, worth: bool
):
    pretend(monkeypatch, backend, devices, DEVICES_BYTES=limit)
    assert worth_batching(TASK, runs) == worth

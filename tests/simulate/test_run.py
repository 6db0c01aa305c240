"""What a simulation settles before its first block: its shape, where data lie, and what it asks the
others. Nothing is trained.
"""

from typing import Any

import jax
import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.models import MLP, Softmax
from evenly.models.layers import MOST_ROWS
from evenly.simulate import program, run
from evenly.simulate.layout import NEVER
from evenly.types import Seeds, Task
from tests.simulations import algorithms

JOINT, APART = Softmax(features=5, classes=3), MLP(features=5, classes=3, hidden=(4,))
TWO, ONE = "q-fedavg(q=[0, 1])", "fedavg"


def begun(
    federation: Federation, text: str, task: Task = JOINT, *, stream: bool | None = False,
    lanes: int = 1, advance: Any = program.advance, rounds: int = 20,
) -> Any:  # fmt: skip
    settings = run.RunSettings(
        seeds=Seeds(), evaluate_every=4, lanes=lanes, devices=1, stream=stream, advance=advance
    )
    return run._Simulation(task, federation, algorithms(text), rounds, settings)


@pytest.fixture(params=[True, False], ids=["whole", "not whole"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether loops of small steps are compiled as one function."""
    monkeypatch.setattr("evenly.simulate.program.can_fuse_loops", lambda: request.param)
    return request.param


@pytest.mark.parametrize(
    "text, task, axis",
    [
        (TWO, JOINT, -1),  # runs that share a product lie last
        (ONE, JOINT, 0),
        (TWO, APART, 0),
        ("ifca(groups=2, learning_rate=[0.1, 0.2])", JOINT, 0),
    ],
)
def test_runs_lie_last_where_one_product_serves_them_all(
    tiny: Federation, loops: bool, text: str, task: Task, axis: int
):
    shape = begun(tiny, text, task).shape
    assert shape.axis == (0 if loops else axis)
    assert shape.fused == (loops and task is JOINT)
    assert shape.runs == len(algorithms(text))


@pytest.mark.parametrize(
    "backend, chunk, joint, apart", [("cpu", 256, 1024, MOST_ROWS), ("gpu", 1024, 1024, 1024)]
)
def test_rows_are_read_in_chunks_that_suit_the_device(
    tiny: Federation,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    chunk: int,
    joint: int,
    apart: int,
):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr("evenly.simulate.program.can_fuse_loops", lambda: False)
    for task, rows in ((JOINT, joint), (APART, apart)):
        shape = begun(tiny, ONE, task).shape
        assert (shape.chunk, shape.eval_chunk) == (chunk, rows)


def test_what_is_evaluated_and_kept_follows_the_method_and_the_data(tiny: Federation):
    plain, several, streamed = (
        begun(tiny, ONE),
        begun(tiny, "ifca(groups=2)"),
        begun(tiny, ONE, stream=True),
    )
    # three lists for each client, and a central one
    assert (plain.shape.lists, plain.shape.models, plain.shape.clients) == (19, 0, 6)
    assert (several.shape.lists, several.shape.models) == (19, 2)
    assert (streamed.shape.lists, streamed.shape.models) == (0, 0)
    assert begun(tiny, "fedavg+uniform(clients=1)", stream=True, rounds=3).shape.clients == 6, (
        "no more than there are"
    )
    with pytest.raises(
        ValueError,
        match=(
            r"ifca\(groups=2\) keeps several models, and needs the data on the device; leave"
            r" stream out"
        ),
    ):
        begun(tiny, "ifca(groups=2)", stream=True)


def test_a_streamed_block_has_room_for_the_clients_of_its_rounds(
    tiny: Federation, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run, "most_rounds", lambda *_: 2)
    assert begun(tiny, "fedavg+uniform(clients=2)", stream=True).shape.clients == 4
    assert begun(tiny, "fedavg+uniform(clients=5)", stream=True).shape.clients == 6


@pytest.mark.parametrize("text, task, runs", [(ONE, JOINT, 1), (TWO, JOINT, 2), (ONE, APART, 1)])
def test_blocks_are_told_the_cells_of_an_evaluation(
    tiny: Federation, monkeypatch: pytest.MonkeyPatch, text: str, task: Task, runs: int
):
    told: list[dict[str, Any]] = []
    really = run.Blocks
    monkeypatch.setattr(
        run, "Blocks", lambda *given, **about: told.append(about) or really(*given, **about)
    )
    monkeypatch.setattr("evenly.simulate.program.can_fuse_loops", lambda: True)
    begun(tiny, text, task, rounds=100)
    # 19 owners, two groups, three labels and outcomes; up to four blocks where steps are small.
    assert told == [
        {
            "rounds": 100,
            "every": 4,
            "runs": runs,
            "cells": 19 * 2 * 9 * runs,
            "most": 25 if task is JOINT else 1024,
        }
    ]
    begun(tiny, text, task, stream=True)
    assert [about["cells"] for about in told[1:]] == [0, 0]


@pytest.mark.parametrize(
    "text, task, other, faster, large, stream, asked",
    [
        (ONE, JOINT, False, True, False, True, True),
        (ONE, JOINT, False, False, False, False, True),
        (ONE, JOINT, False, False, True, True, True),
        (ONE, APART, False, True, False, False, False),  # longer steps do not wait for rows
        # who shares a program has tables of the same size
        (ONE, JOINT, True, True, False, False, False),
        (ONE, JOINT, True, True, True, True, False),
        ("ifca(groups=2)", JOINT, False, True, True, False, True),
    ],
)
def test_data_are_streamed_where_that_is_faster_or_they_are_large(
    tiny: Federation,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    task: Task,
    other: bool,
    faster: bool,
    large: bool,
    stream: bool,
    asked: bool,
):
    about: list[Any] = []
    monkeypatch.setattr(run, "faster_to_stream", lambda *given: about.append(given[1:]) or faster)
    monkeypatch.setattr(run, "worth_streaming", lambda *given: large)
    monkeypatch.setattr("evenly.simulate.program.can_fuse_loops", lambda: True)
    advance = (lambda *given: program.advance(*given)) if other else program.advance
    made = begun(tiny, text, task, stream=None, advance=advance)
    assert made.stream == stream
    assert about == ([(3, 20, 6)] if asked else [])  # clients, rounds, evaluations
    assert made.steady == (stream or task is JOINT or other)


def test_the_largest_sampling_decides_how_many_train_side_by_side(tiny: Federation):
    assert begun(tiny, "fedavg+uniform(clients=2),fedavg+full", lanes=100).shape.lanes == 6


def test_weights_that_are_not_finite_end_the_run_whose_round_was_first(tiny: Federation):
    made = begun(tiny, TWO)
    state = made._first_state()
    made._refuse_broken(state._replace(broken=np.array([NEVER, NEVER])), 10)
    for broken, label in (([NEVER, 3], "q=1"), ([3, NEVER], "q=0"), ([7, 3], "q=1")):
        with pytest.raises(
            ValueError, match=rf"^q-fedavg\({label}\): the weights of round 13 are not finite\."
        ):
            made._refuse_broken(state._replace(broken=np.array(broken)), 10)


def test_unless_told_otherwise_nothing_is_chosen_and_nobody_drops_out(
    tiny: Federation, monkeypatch: pytest.MonkeyPatch
):
    given: list[tuple[Any, ...]] = []

    class Recorded:
        def __init__(self, *about: Any) -> None:
            given.append(about)

        def run(self) -> list[Any]:
            return []

    monkeypatch.setattr(run, "_Simulation", Recorded)
    assert run.simulate(JOINT, tiny, algorithms(ONE), 1) == []
    *_, rounds, settings = given[0]
    assert (rounds, repr(settings.seeds), settings.evaluate_every, settings.dropout) == (
        1,
        repr(Seeds()),
        0,
        0.0,
    )
    assert (settings.lanes, settings.devices, settings.stream, settings.panel) == (0, 0, None, None)
    assert settings.advance is program.advance
    assert (settings.checkpoint, settings.progress, settings.observe, settings.leave) == (
        None,
        None,
        None,
        None,
    )
    run.simulate(JOINT, tiny, algorithms(ONE), 2, seeds=Seeds(model=3), panel=np.array([5, 0]))
    settings = given[1][-1]
    assert settings.seeds.model == 3
    assert settings.panel.tolist() == [5, 0]


def test_what_cannot_share_a_program_is_refused(tiny: Federation):
    with pytest.raises(ValueError, match="These algorithms differ in more than numbers"):
        run.simulate(JOINT, tiny, algorithms("fedavg,fedavg(epochs=2)"), 1)
    with pytest.raises(ValueError, match=r"^At least one algorithm is needed, got none\.$"):
        run.simulate(JOINT, tiny, [], 1)
    with pytest.raises(
        ValueError, match=r"with people = true all clients are evaluated; leave panel out\.$"
    ):
        run.simulate(APART, tiny, algorithms("e2fl(people=true)+full"), 1, panel=np.array([0]))

"""What `evenly.train` makes of what people write: programs, their order, and their share of
progress. Nothing is trained.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evenly.algorithms import METHODS, algorithm, variants
from evenly.data.federation import Federation
from evenly.models import MLP, Softmax
from evenly.simulate import train as module
from evenly.types import Seeds

train, TASK = module.train, Softmax(features=5, classes=3)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What every program is asked for; the traces are the labels of its algorithms."""
    seen: list[dict[str, Any]] = []

    def simulate(
        task: Any, federation: Any, algorithms: list[Any], rounds: int, **about: Any
    ) -> list[Any]:
        labels = [one.label for one in algorithms]
        seen.append({"labels": labels, "rounds": rounds, **about})
        if about["progress"]:
            about["progress"](1, rounds)
        return labels

    monkeypatch.setattr(module, "simulate", simulate)
    return seen


def test_traces_come_in_the_order_given_whatever_shares_a_program(
    tiny: Federation, programs: list[dict[str, Any]]
):
    told: list[tuple[int, int]] = []
    rounds: Any = np.int64(4)
    found: list[Any] = train(
        TASK, tiny, ["fedavg", algorithm("fedavg(epochs=2)"), *variants("q-fedavg(q=[0, 1])")],
        rounds, seeds=7, progress=lambda done, of: told.append((done, of)),
        checkpoint=Path("a/half.npz"),
    )  # fmt: skip
    assert found == ["fedavg", "fedavg(epochs=2)", "q-fedavg(q=0)", "q-fedavg(q=1)"]
    assert [own["labels"] for own in programs] == [
        ["fedavg", "q-fedavg(q=0)", "q-fedavg(q=1)"],
        ["fedavg(epochs=2)"],
    ]
    assert [own["checkpoint"] for own in programs] == [Path("a/half-0.npz"), Path("a/half-1.npz")]
    assert [repr(own["seeds"]) for own in programs] == [repr(Seeds.all(7))] * 2
    assert told == [(1, 8), (5, 8)], "each is half of all rounds"


def test_one_program_has_the_file_and_the_progress_to_itself(
    tiny: Federation, programs: list[dict[str, Any]]
):
    told: list[tuple[int, int]] = []
    assert (
        len(
            train(
                TASK,
                tiny,
                "fedavg",
                4,
                progress=lambda *own: told.append(own),
                checkpoint=Path("half.npz"),
                observe=print,
            )
        )
        == 1
    )
    assert told == [(1, 4)]
    (asked,) = programs
    assert asked["checkpoint"] == Path("half.npz")
    assert asked["observe"] is print


def test_nothing_is_asked_for_that_was_not(tiny: Federation, programs: list[dict[str, Any]]):
    seeds = Seeds(model=2)
    train(TASK, tiny, algorithm("fedavg"), 4, seeds=seeds)
    expected: dict[str, Any] = dict.fromkeys(
        ("progress", "observe", "checkpoint", "stream", "panel")
    )
    expected |= {
        "labels": ["fedavg"],
        "rounds": 4,
        "seeds": seeds,
        "evaluate_every": 0,
        "dropout": 0.0,
        "lanes": 0,
        "devices": 0,
        "memories": False,
    }
    assert programs == [expected]


def test_members_of_one_method_become_one_trace(tiny: Federation, programs: list[dict[str, Any]]):
    (variant,) = variants("multi-q(q=[0, 1])")
    joined = SimpleNamespace(combine=lambda traces: "+".join(traces))
    found: list[Any] = train(TASK, tiny, [variant._replace(method=joined), "fedavg"], 4)  # type: ignore[arg-type]
    assert len(found) == 2
    assert found[0] == "+".join(one.label for one in variant.members)
    assert found[1] == "fedavg"


@pytest.mark.parametrize("rounds", [True, 2.0, "4", None])
def test_rounds_are_a_whole_number(tiny: Federation, rounds: Any):
    with pytest.raises(TypeError, match=r"^rounds must be a whole number, got "):
        train(TASK, tiny, "fedavg", rounds)


def test_an_observer_sees_one_program_only(tiny: Federation, programs: list[dict[str, Any]]):
    with pytest.raises(
        ValueError, match=r"^observe needs algorithms that share one program, but these need 2\."
    ):
        train(TASK, tiny, "fedavg, fedavg(epochs=2)", 4, observe=print)
    assert not programs


@pytest.mark.parametrize(
    "federation, hint",
    [
        (
            SimpleNamespace(columns=["bank", "age", "loan", "late"]),
            r"Make one of the table: .*client='bank', label='loan'\)",
        ),
        (SimpleNamespace(columns=["bank"]), r"client='bank', label='bank'\)"),
        (SimpleNamespace(columns=[]), r"client='\.\.\.', label='\.\.\.'\)"),
        (
            "adult",
            (
                r"got str\. Load the data set, such as"
                r" evenly\.datasets\.DATASETS\['adult'\]\.load\(\)\. See evenly\.Federation"
            ),
        ),
        (3, r"got int\. See evenly\.Federation\.from_frame"),
    ],
)
def test_other_data_are_refused_with_what_to_do(federation: Any, hint: str):
    with pytest.raises(TypeError, match=rf"^The second argument must be a Federation, .*{hint}"):
        train(TASK, federation, "fedavg", 1)


@pytest.mark.parametrize(
    "algorithms, sentence",
    [
        (3, r"^algorithms must be an algorithm, its notation or a list of them, got int\.$"),
        ([3], r"^An algorithm is needed, or its notation such as 'q-fedavg\(q=1\)', got int\.$"),
        (
            METHODS["fedprox"],
            r"^An algorithm is needed, or its notation such as 'fedprox', got Method\.$",
        ),
    ],
)
def test_what_is_no_algorithm_is_refused(tiny: Federation, algorithms: Any, sentence: str):
    with pytest.raises(TypeError, match=sentence):
        train(MLP(features=5, classes=3, hidden=(4,)), tiny, algorithms, 1)

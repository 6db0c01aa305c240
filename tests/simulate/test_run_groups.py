"""Which runs share a program, and how they lie in it."""

from typing import Any

import jax
import numpy as np
import pytest

from evenly.models import MLP, Softmax
from evenly.simulate.layout import RunGroup, companions, group_runs
from tests.simulations import algorithms

JOINT, APART = Softmax(features=3, classes=2), MLP(features=3, classes=2, hidden=(2,))


def numbers(run_group: RunGroup) -> tuple[Any, Any]:
    """The rule of the last rule group, and the work of the clients; both hold the numbers of all
    runs.
    """
    return run_group.parts.rules[-1].rule, run_group.parts.work


@pytest.mark.parametrize(
    "text, task, groups",
    [
        ("fedavg,q-fedavg(q=1),fedavg(learning_rate=0.3)", JOINT, [[0, 1, 2]]),
        # rules differ in more than numbers
        ("fedavg,q-fedavg(q=1),fedavg(learning_rate=0.3)", APART, [[0, 2], [1]]),
        ("fedavg,fedavg+server-adam", APART, [[0], [1]]),
        ("fedavg,fedavg+server-adam", JOINT, [[0, 1]]),
        ("fedavg,fedavg(epochs=2),fedavg", JOINT, [[0, 2], [1]]),  # other work is another program
        ("fedavg,fedmgda,fedavg", JOINT, [[0, 2], [1]]),  # vectors are kept: alone
        ("fairfed(metric=[eod, spd, accuracy])", APART, [[0, 1, 2]]),  # read at the beginning only
        ("ifca(groups=2),fedavg", JOINT, [[0], [1]]),
        ("fedavg,fedavg+uniform(clients=2)", JOINT, [[0], [1]]),
    ],
)
def test_runs_share_a_program_where_they_can(
    text: str, task: Softmax | MLP, groups: list[list[int]]
):
    assert companions(algorithms(text), task) == groups


def test_samplings_share_a_program_where_everybody_takes_part_in_some_run(
    monkeypatch: pytest.MonkeyPatch,
):
    some, with_full = (
        algorithms("fedavg,fedavg+uniform(clients=2)"),
        algorithms("fedavg,fedavg+full,fedavg+uniform(clients=2)"),
    )
    assert companions(with_full, JOINT, join=True) == [[0, 1, 2]]
    assert (
        companions(with_full, JOINT, join=False) == companions(with_full, JOINT) == [[0], [1], [2]]
    ), "on a CPU every run costs"
    assert companions(with_full, APART, join=True) == [[0], [1], [2]]
    assert companions(some, JOINT, join=True) == [[0], [1]]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert companions(with_full, JOINT) == [[0, 1, 2]]


def test_equal_structures_lie_together_and_those_that_look_at_rows_last():
    run_group = group_runs(
        algorithms(
            "term(alpha=1),fedavg,q-fedavg(q=1),fedavg(learning_rate=0.3)+reweigh,q-fedavg(q=2)+full"
        )
    )
    labels = [a.label for a in run_group.algorithms]
    assert labels == [
        "fedavg",
        "fedavg(learning_rate=0.3)+reweigh",
        "term(alpha=1)",
        "q-fedavg(q=1)",
        "q-fedavg(q=2)+full",
    ]
    assert run_group.positions == [2, 0, 3, 1, 4]
    assert run_group.bounds == (0, 2, 3, 5)
    assert len(run_group.parts.rules) == 3
    rule, work = numbers(run_group)
    np.testing.assert_array_equal(rule.q, [1, 2])
    np.testing.assert_allclose(work.learning_rate, [0.1, 0.3, 0.1, 0.1, 0.1])
    assert [prepare is None for prepare in run_group.prepares] == [True, False]
    assert run_group.parts.weight_column is not None
    assert run_group.parts.weight_column.tolist() == [0, 1, 0, 0, 0]
    assert len(run_group.selects) == 2
    assert run_group.parts.cohort is not None
    assert run_group.parts.cohort.tolist() == [0, 0, 0, 0, 1]


def test_what_all_share_is_not_numbered_and_a_pull_of_0_is_left_out():
    run_group = group_runs(algorithms("fedavg,fedprox(mu=0)"))
    assert (run_group.bounds, run_group.positions) == ((0, 2), [0, 1])
    assert run_group.parts.weight_column is run_group.parts.cohort is None
    assert numbers(run_group)[1].mu is None
    pulled = group_runs(algorithms("fedavg,fedprox(mu=0.5)"))
    np.testing.assert_array_equal(numbers(pulled)[1].mu, [0, 0.5])

"""Which runs share a program, and how they lie in it."""

from typing import Any

import jax
import numpy as np
import pytest

from evenly.models import MLP, Softmax
from evenly.simulate.layout import Company, companions, gather
from tests.simulations import algorithms

JOINT, APART = Softmax(features=3, classes=2), MLP(features=3, classes=2, hidden=(2,))


def numbers(company: Company) -> tuple[Any, Any]:
    """The last band's rule and the clients' work, whose numbers are those of all runs."""
    return company.parts.bands[-1].rule, company.parts.work


@pytest.mark.parametrize(
    "text, task, groups",
    [
        ("fedavg,q-fedavg(q=1),fedavg(learning_rate=0.3)", JOINT, [[0, 1, 2]]),
        ("fedavg,q-fedavg(q=1),fedavg(learning_rate=0.3)", APART, [[0, 2], [1]]),  # rules differ in more than numbers
        ("fedavg,fedavg+server-adam", APART, [[0], [1]]),
        ("fedavg,fedavg+server-adam", JOINT, [[0, 1]]),
        ("fedavg,fedavg(epochs=2),fedavg", JOINT, [[0, 2], [1]]),  # other work is another program
        ("fedavg,fedmgda,fedavg", JOINT, [[0, 2], [1]]),  # vectors are kept: alone
        ("ifca(groups=2),fedavg", JOINT, [[0], [1]]),
        ("fedavg,fedavg+uniform(clients=2)", JOINT, [[0], [1]]),
    ],
)
def test_runs_share_a_program_where_they_can(text: str, task: Softmax | MLP, groups: list[list[int]]):
    assert companions(algorithms(text), task) == groups


def test_samplings_share_a_program_where_everybody_takes_part_in_some_run(monkeypatch: pytest.MonkeyPatch):
    some, with_full = algorithms("fedavg,fedavg+uniform(clients=2)"), algorithms("fedavg,fedavg+full,fedavg+uniform(clients=2)")
    assert companions(with_full, JOINT, join=True) == [[0, 1, 2]]
    assert companions(with_full, JOINT, join=False) == companions(with_full, JOINT) == [[0], [1], [2]], "on a CPU every run costs"
    assert companions(with_full, APART, join=True) == [[0], [1], [2]]
    assert companions(some, JOINT, join=True) == [[0], [1]]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert companions(with_full, JOINT) == [[0, 1, 2]]


def test_equal_structures_lie_together_and_those_that_look_at_rows_last():
    company = gather(algorithms("term(alpha=1),fedavg,q-fedavg(q=1),fedavg(learning_rate=0.3)+reweigh,q-fedavg(q=2)+full"))
    labels = [a.label for a in company.algorithms]
    assert labels == ["fedavg", "fedavg(learning_rate=0.3)+reweigh", "term(alpha=1)", "q-fedavg(q=1)", "q-fedavg(q=2)+full"]
    assert company.place == [2, 0, 3, 1, 4]
    assert company.bands == (0, 2, 3, 5)
    assert len(company.parts.bands) == 3
    rule, work = numbers(company)
    np.testing.assert_array_equal(rule.q, [1, 2])
    np.testing.assert_allclose(work.learning_rate, [0.1, 0.3, 0.1, 0.1, 0.1])
    assert [prepare is None for prepare in company.prepares] == [True, False]
    assert company.parts.prepared is not None
    assert company.parts.prepared.tolist() == [0, 1, 0, 0, 0]
    assert len(company.selects) == 2
    assert company.parts.cohort is not None
    assert company.parts.cohort.tolist() == [0, 0, 0, 0, 1]


def test_what_all_share_is_not_numbered_and_a_pull_of_0_is_left_out():
    company = gather(algorithms("fedavg,fedprox(mu=0)"))
    assert (company.bands, company.place) == ((0, 2), [0, 1])
    assert company.parts.prepared is company.parts.cohort is None
    assert numbers(company)[1].mu is None
    pulled = gather(algorithms("fedavg,fedprox(mu=0.5)"))
    np.testing.assert_array_equal(numbers(pulled)[1].mu, [0, 0.5])

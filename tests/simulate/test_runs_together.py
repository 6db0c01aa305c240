"""Runs made together equal runs made alone, whatever the model and the optimisers."""

from typing import Any

import jax
import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.models import MLP, LinearSVM, Softmax
from evenly.simulate import companions, simulate
from evenly.simulate.layout import group_runs
from tests import federations
from tests.simulations import Simulated, algorithms, flat

ROUNDS = 20


def agree(together: list, alone: list, tolerance: float = 1e-6) -> None:
    models = [flat(trace.model) for trace in together]
    assert all(np.abs(models[0] - other).max() > 1e-3 for other in models[1:]), (
        "the runs must differ for this to prove anything"
    )
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(
            flat(one.model), flat(other.model), atol=tolerance, rtol=tolerance
        )
        np.testing.assert_allclose(one.weights, other.weights, atol=tolerance)
        np.testing.assert_allclose(
            one.losses, other.losses, atol=10 * tolerance, rtol=10 * tolerance
        )
        np.testing.assert_array_equal(one.cohort, other.cohort)


@pytest.mark.parametrize(
    "text",
    [
        "q-fedavg(q=[0, 1, 5])",
        "q-fedsgd(q=[1, 2], learning_rate=0.3)",
        "q-fedavg(q=[0, 1])+local-momentum(learning_rate=0.05)+server-fedadam(learning_rate=0.05)",
        pytest.param("fedavg(learning_rate=[0.1, 0.3])", marks=pytest.mark.further),
        pytest.param(
            "fedprox(mu=[0, 0.5])+local-adam(learning_rate=0.02)"
            "+server-momentum(learning_rate=0.5)",
            marks=pytest.mark.further,
        ),
    ],
)
def test_runs_together_equal_runs_alone(simulated: Simulated, text: str):
    together = simulated.all(text, ROUNDS)
    alone = [
        simulate(simulated.task, simulated.federation, [one], ROUNDS)[0] for one in algorithms(text)
    ]
    agree(together, alone)


def test_a_model_that_is_not_joint_runs_together_too(tiny: Federation):
    task = MLP(features=5, classes=3, hidden=(4,))
    runs = algorithms("q-fedavg(q=[0, 1])")
    agree(
        simulate(task, tiny, runs, ROUNDS), [simulate(task, tiny, [one], ROUNDS)[0] for one in runs]
    )


def test_a_penalty_and_summed_losses_run_together_too():
    federation, task = (
        federations.tiny(classes=2),
        LinearSVM(features=5, reduction="sum", regularisation=0.1),
    )
    runs = algorithms("q-fedavg(q=[0, 1], learning_rate=0.01)")
    agree(
        simulate(task, federation, runs, 8),
        [simulate(task, federation, [one], 8)[0] for one in runs],
        1e-5,
    )


MIXED = (
    "q-fedavg(q=[0, 1]), fedavg, q-fedavg(q=2, epochs=2), q-fedavg(q=3)+uniform(clients=3),"
    " q-fedavg(q=5), fedprox, fedmgda"
)


def test_companions_of_a_joint_model_share_clients_work_and_sampling():
    assert companions(algorithms(MIXED), Softmax(features=5, classes=3)) == [
        [0, 1, 2, 5, 6],
        [3],
        [4],
        [7],
    ]


def test_companions_of_other_models_differ_in_numbers_only():
    assert companions(algorithms(MIXED), MLP(features=5, classes=3)) == [
        [0, 1, 5],
        [2, 6],
        [3],
        [4],
        [7],
    ]


@pytest.mark.parametrize(
    "text",
    [
        (
            "q-fedavg(q=1), fedavg, term(alpha=[0.1, 1]), fedavg(learning_rate=0.3), q-fedavg(q=0),"
            " p-fedavg"
        ),
        (
            "fedavg, fedavg+server-adam(learning_rate=0.05), q-fedavg,"
            " fedavg+server-adam(learning_rate=0.02), afl(form=local)"
        ),
    ],
)
def test_different_rules_and_servers_in_one_program_equal_each_alone(
    simulated: Simulated, text: str
):
    together = simulated.all(text, ROUNDS)
    assert len(companions(algorithms(text), simulated.task)) == 1
    agree(
        together,
        [
            simulate(simulated.task, simulated.federation, [one], ROUNDS)[0]
            for one in algorithms(text)
        ],
    )


def test_algorithms_of_different_shape_are_refused(simulated: Simulated):
    with pytest.raises(
        ValueError,
        match=(
            r"^These algorithms differ in more than numbers .*\. evenly\.train groups them by"
            r" itself\.$"
        ),
    ):
        simulate(simulated.task, simulated.federation, algorithms("fedavg, fedavg(epochs=2)"), 2)


def test_the_first_model_is_shared(tiny: Federation):
    task = MLP(features=5, classes=3, hidden=(4,))
    one, other = simulate(task, tiny, algorithms("q-fedavg(q=[0, 1])"), ROUNDS)
    np.testing.assert_array_equal(one.losses[0], other.losses[0])
    assert jax.tree.structure(one.model) == jax.tree.structure(task.init(jax.random.key(0)))


def test_a_pull_of_nothing_is_left_out_unless_some_run_has_one(simulated: Simulated):
    works: list[Any] = [
        group_runs(algorithms(text)).parts.work for text in ("fedavg", "fedavg,fedprox(mu=0.5)")
    ]
    assert works[0].mu is None
    np.testing.assert_allclose(works[1].mu, [0.0, 0.5])
    (alone,) = simulated.all("fedavg", 4)
    together = simulated.all("fedavg,fedprox(mu=0.5)", 4)
    np.testing.assert_allclose(flat(alone.model), flat(together[0].model), atol=1e-6)
    assert np.abs(flat(alone.model) - flat(together[1].model)).max() > 1e-3

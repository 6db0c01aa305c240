"""IFCA: whole runs against NumPy, FedAvg as its limit, and clusters that nobody chose."""

from typing import Any

import numpy as np
import pytest

from evenly.algorithms import algorithm
from evenly.data.federation import Census, Federation
from evenly.models import MLP, Softmax
from evenly.parts.client_groups import drawn_groups
from evenly.records import replace
from evenly.simulate import simulate
from evenly.types import Seeds, Trace
from tests.aggregation import SIZES, TRAINED, W, single_round
from tests.oracles import client, server
from tests.oracles.run import visits
from tests.simulations import Simulated, flat

ROUNDS = 8
UNIFORM = "+uniform(clients=4)"


def ran(simulated: Simulated, text: str, **options: Any) -> Trace:
    return simulated(text, ROUNDS, **options)


def oracle(
    federation: Federation, text: str, groups: int, seeds: Seeds, dropout: float
) -> tuple[list[np.ndarray], list[int]]:
    """The models after the last round, and which of them each client would choose; softmax starts
    at 0 in all of them.
    """
    drawn = drawn_groups(federation.clients, groups, seeds.cohort)
    models = [np.zeros((federation.x.shape[1] + 1) * len(federation.labels))] * groups
    data = [
        (federation.x[rows].astype(np.float64), federation.y[rows])
        for rows in map(federation.train.of, range(federation.clients))
    ]
    chosen = lambda k: int(np.argmin([client.loss(w, *data[k]) for w in models]))  # noqa: E731
    begun = False
    for seats in visits(federation, algorithm(text, batch_size=5), ROUNDS, seeds, dropout):
        present = [v for v in seats if v.returned]
        group = [chosen(v.who) if begun else drawn[v.who] for v in present]
        begun |= bool(present)
        trained = [
            client.local_sgd(models[q], v.batches, 0.1) for v, q in zip(present, group, strict=True)
        ]
        for q in set(group):
            members = [i for i, g in enumerate(group) if g == q]
            sizes = np.array([len(data[present[i].who][1]) for i in members], float)
            models = [
                server.fedavg_by_size([trained[i] for i in members], sizes) if j == q else w
                for j, w in enumerate(models)
            ]
    return models, [chosen(k) for k in range(federation.clients)]  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize("groups, dropout, seed", [(2, 0.0, 0), (3, 0.0, 1), (2, 0.5, 2)])
def test_whole_runs_are_the_oracles(simulated: Simulated, groups: int, dropout: float, seed: int):
    text, seeds = f"ifca(groups={groups})" + UNIFORM, Seeds.all(seed)
    models, choice = oracle(simulated.federation, text, groups, seeds, dropout)
    trace = ran(simulated, text, seeds=seeds, dropout=dropout)
    for q in range(groups):
        own = {name: leaf[q] for name, leaf in trace.model.items()}
        np.testing.assert_allclose(flat(own), models[q], atol=1e-5)
    assert trace.choice[-1].tolist() == choice
    assert len(set(choice)) > 1, "the clusters did not collapse"


def test_one_cluster_is_fedavg(simulated: Simulated):
    one, plain = ran(simulated, "ifca(groups=1)" + UNIFORM), ran(simulated, "fedavg" + UNIFORM)
    np.testing.assert_allclose(
        flat({n: leaf[0] for n, leaf in one.model.items()}), flat(plain.model), atol=1e-6
    )
    np.testing.assert_array_equal(one.tables, plain.tables)
    np.testing.assert_array_equal(one.central, plain.central)
    np.testing.assert_allclose(one.weights, plain.weights, atol=1e-7)
    assert (one.upload, one.download) == (
        plain.upload + 4,
        plain.download,
    ), "a client also says which model it chose"


def test_models_start_different_where_the_model_starts_at_random(tiny: Federation):
    mlp = MLP(features=5, classes=3, hidden=(8,))
    (trace,) = simulate(mlp, tiny, [algorithm("ifca(groups=3)+uniform(clients=3)")], 3)
    first = trace.choice[0]
    assert len(set(first)) > 1, "so that clients choose before the first round"
    (plain,) = simulate(mlp, tiny, [algorithm("ifca(groups=1)+uniform(clients=3)")], 3)
    (fedavg,) = simulate(mlp, tiny, [algorithm("fedavg+uniform(clients=3)")], 3)
    np.testing.assert_array_equal(plain.tables, fedavg.tables)
    for k in range(tiny.clients):
        # The model a client is served is the one with its lowest training loss, so it can only do
        # better than with another.
        assert trace.losses[0, 0, k] <= plain.losses[0, 0, k] + 1e-6


def test_lanes_and_several_runs_change_nothing(simulated: Simulated):
    text = "ifca(groups=2)" + UNIFORM
    in_turn, in_lanes = ran(simulated, text), ran(simulated, text, lanes=3)
    np.testing.assert_array_equal(in_turn.choice, in_lanes.choice)
    np.testing.assert_allclose(flat(in_turn.model), flat(in_lanes.model), atol=1e-6)
    together = simulate(
        simulated.task,
        simulated.federation,
        [algorithm(f"ifca(learning_rate={r})" + UNIFORM, batch_size=5) for r in (0.1, 0.3)],
        ROUNDS,
    )
    np.testing.assert_array_equal(together[0].choice, ran(simulated, text).choice)
    np.testing.assert_allclose(flat(together[0].model), flat(ran(simulated, text).model), atol=1e-6)
    assert np.abs(flat(together[1].model) - flat(together[0].model)).max() > 1e-3


def test_each_cluster_is_the_mean_of_its_members_and_an_empty_one_stays():
    rule = algorithm("ifca(groups=3)+full").rule
    weights, change = single_round(
        rule, TRAINED - W, examples=SIZES.astype(np.float32), choice=np.array([2, 0, 2])
    )
    np.testing.assert_allclose(weights.T, [[0, 1, 0], [0, 0, 0], [10 / 70, 0, 60 / 70]], rtol=1e-6)
    np.testing.assert_allclose(
        W + change, [TRAINED[1], W, (10 * TRAINED[0] + 60 * TRAINED[2]) / 70], rtol=1e-6
    )
    assert rule.begin(Census(SIZES, np.ones((3, 1, 2), int))) == ()


def test_settings_and_mistakes(tiny: Federation):
    assert (algorithm("ifca").rule.weights, algorithm("ifca+uniform").rule.weights) == (
        "equal",
        "size",
    )  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(
        ValueError,
        match=r"^ifca: groups must be a whole number of at least 0, got 1\.5\. Meaning: .*$",
    ):
        algorithm("ifca(groups=1.5)")
    with pytest.raises(
        ValueError,
        match=(
            r"^ifca: the method has a server step of its own; leave the server's optimiser out\.$"
        ),
    ):
        algorithm("ifca+server-adam")
    task = Softmax(features=5, classes=3)
    with pytest.raises(
        ValueError,
        match=r"^ifca\(groups=7\): 7 groups need at least as many clients, but there are 6\.$",
    ):
        simulate(task, tiny, [algorithm("ifca(groups=7)")], 1)
    with pytest.raises(
        ValueError,
        match=(
            r"^ifca\(groups=0\): set the number of groups, such as groups=2; the data do"
            r" not define it\.$"
        ),
    ):
        simulate(task, replace(tiny, client_group=None), [algorithm("ifca(groups=0)")], 1)
    (trace,) = simulate(task, tiny, [algorithm("ifca(groups=0)")], 1)
    assert trace.model["w"].shape == (3, 5, 3)

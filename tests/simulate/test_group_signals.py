"""What the simulator tells rules about groups, and how rows come to count more or less."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.algorithms import algorithm
from evenly.algorithms.fedavg import FedAvg
from evenly.data.federation import Federation
from evenly.models import MLP, Logistic, Softmax
from evenly.parts.sampling import Full, Uniform
from evenly.records import record, replace
from evenly.simulate import layout as companies
from evenly.simulate import simulate
from evenly.simulate.program import compiled
from evenly.types import Algorithm, Own, Rule, Task, Totals, Tree, Weighed
from tests.simulations import flat, same_bits

ROUNDS = 4


@pytest.fixture(scope="module")
def people() -> Federation:
    """Four clients of unequal size, two groups, two labels; the third client has one group only."""
    draw = np.random.default_rng(5)
    client = np.repeat(np.arange(4), [30, 12, 20, 45])
    group = np.where(client == 2, 1, draw.integers(0, 2, len(client)))
    x = draw.normal(size=(len(client), 3)).astype(np.float32) + group[:, None] * 0.5
    y = (x.sum(1) + draw.normal(size=len(client)) > 0.5).astype(int)
    return Federation.from_arrays(x, y, client, group=group, shares=(0.7, 0.1))


@record
class Listening(Rule):
    """A rule that shows in its weights what it is told, and changes nothing."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"table", "cell_loss", "loss", "unprivileged"})

    def weigh(self, public: Tree, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        """A weight that is a fingerprint of everything that was told, so that a trace shows it."""
        table = own.table * (1 + jnp.arange(own.table.size).reshape(own.table.shape))
        told = table.sum() + 10 * own.cell_loss[0].sum() + 100 * own.unprivileged + 1000 * own.loss
        return Weighed(told)

    def norm(self, public: Tree, totals: Totals) -> jax.Array:
        return jnp.ones(())

    def step(self, public: Tree, sums: tuple[Tree, ...], totals: Totals) -> tuple[Tree, Tree]:
        return jax.tree.map(lambda leaf: leaf * 0, totals.mean), public


def expected(task: Task, federation: Federation) -> np.ndarray:
    """The same fingerprint, counted row by row in NumPy."""
    model = task.init(jax.random.key(0))
    told = []
    for k in range(federation.clients):
        rows = federation.train.of(k)
        y, group = federation.y[rows], federation.group[rows]
        shard = _shard(federation, rows)
        loss, outcome = (
            np.asarray(task.losses(model, shard), np.float64),
            np.asarray(task.predict(model, shard.x)),
        )
        table = np.zeros((2, 2, 2))
        np.add.at(table, (group, y, outcome), 1)
        weights = 1 + np.arange(8).reshape(2, 2, 2)
        told.append(
            (table * weights).sum()
            + 10 * loss[group == 0].sum()
            + 100 * (group == 0).sum()
            + 1000 * loss.mean()
        )
    return np.array(told)


def _shard(federation: Federation, rows: np.ndarray) -> Any:
    from evenly.data.federation import Shard

    ones = np.ones(len(rows), np.float32)
    return Shard(federation.x[rows], federation.y[rows], federation.group[rows], ones, ones)


LOGISTIC, SOFTMAX, NETWORK = (
    Logistic(features=3),
    Softmax(features=3, classes=2),
    MLP(features=3, classes=2, hidden=(4,)),
)


@pytest.fixture
def scattered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Counts come from a scatter, in programs that are forgotten afterwards."""
    monkeypatch.setattr("evenly.simulate.measuring.MOST_CELLS", 0)
    compiled.cache_clear()
    yield
    compiled.cache_clear()


@pytest.mark.parametrize("task", [LOGISTIC, pytest.param(NETWORK, marks=pytest.mark.further)])
def test_rules_are_told_the_same_where_counts_are_scattered(
    people: Federation, task: Task, scattered: None
):
    test_rules_are_told_counts_and_losses_by_group_and_label(people, task)


@pytest.mark.parametrize("task", [LOGISTIC, SOFTMAX, NETWORK])
def test_rules_are_told_counts_and_losses_by_group_and_label(people: Federation, task: Task):
    one = replace(algorithm("fedavg"), rule=Listening(), select=Full())
    runs = [one, replace(one, work=replace(one.work, learning_rate=0.3))]
    for trace in simulate(task, people, runs, 2):
        np.testing.assert_allclose(trace.weights[0], expected(task, people), rtol=1e-5)


@record
class Doubling:
    """Rows of group 0 count twice."""

    def weights(self, y: np.ndarray, group: np.ndarray) -> np.ndarray:
        return np.where(group == 0, 2.0, 1.0)


@pytest.mark.parametrize("task", [LOGISTIC, pytest.param(NETWORK, marks=pytest.mark.further)])
def test_runs_that_prepare_their_rows_differently_share_a_program(people: Federation, task: Task):
    plain = replace(algorithm("fedavg(batch_size=5)"), select=Full())
    prepared = replace(plain, prepare=Doubling())
    together = simulate(task, people, [plain, prepared], ROUNDS)
    alone = [simulate(task, people, [one], ROUNDS)[0] for one in (plain, prepared)]
    assert np.abs(flat(together[0].model) - flat(together[1].model)).max() > 1e-3
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(flat(one.model), flat(other.model), atol=1e-6)


def test_prepared_rows_equal_a_federation_with_those_weights(people: Federation):
    task, plain = Logistic(features=3), replace(algorithm("fedavg(batch_size=5)"), select=Full())
    weight = np.where(people.group == 0, 2.0, 1.0).astype(np.float32)
    same_bits(
        simulate(task, people, [replace(plain, prepare=Doubling())], ROUNDS)[0],
        simulate(task, replace(people, weight=weight), [plain], ROUNDS)[0],
    )


@record
class Telling(FedAvg):
    """FedAvg that tells clients to count rows of group 0 twice."""

    def row_weights(self, state: Tree) -> jax.Array:
        return jnp.array([[2.0, 2.0], [1.0, 1.0]])


@pytest.mark.parametrize("task", [LOGISTIC, NETWORK])
def test_row_weights_told_by_a_rule_reach_the_clients(people: Federation, task: Task):
    plain = replace(algorithm("fedavg(batch_size=5)"), select=Full(), rule=FedAvg())
    told = replace(plain, rule=Telling())
    mixed = (
        [told, plain]
        if task.joint
        else [told, replace(told, work=replace(told.work, learning_rate=0.3))]
    )
    doubled = simulate(task, people, [replace(plain, prepare=Doubling())], ROUNDS)[0]
    np.testing.assert_allclose(
        flat(simulate(task, people, [told], ROUNDS)[0].model), flat(doubled.model), atol=1e-6
    )
    np.testing.assert_allclose(
        flat(simulate(task, people, mixed, ROUNDS)[0].model), flat(doubled.model), atol=1e-6
    )


def test_joined_samplings_equal_each_alone(people: Federation, monkeypatch: pytest.MonkeyPatch):
    task, full = Logistic(features=3), replace(algorithm("fedavg(batch_size=5)"), select=Full())
    runs = [
        full,
        replace(full, select=Uniform(clients=2)),
        replace(full, select=Uniform(clients=1)),
        replace(full, rule=QFair),
    ]
    monkeypatch.setattr(companies.jax, "default_backend", lambda: "gpu")
    assert companies.companions(runs, task) == [[0, 1, 2, 3]]
    together = simulate(task, people, runs, ROUNDS, dropout=0.2, lanes=1)
    for one, run in zip(together, runs, strict=True):
        (other,) = simulate(task, people, [run], ROUNDS, dropout=0.2, lanes=1)
        np.testing.assert_allclose(flat(one.model), flat(other.model), atol=1e-6)
        order = np.argsort(other.cohort, axis=1)  # joined cohorts come in the order of the clients
        np.testing.assert_array_equal(
            np.sort(one.cohort, axis=1), np.take_along_axis(other.cohort, order, 1)
        )
        mine = np.take_along_axis(one.weights, np.argsort(one.cohort, axis=1), 1)
        np.testing.assert_allclose(mine, np.take_along_axis(other.weights, order, 1), atol=1e-6)


QFair = algorithm("q-fedavg(q=1)").rule


def test_samplings_stay_apart_on_a_cpu(people: Federation):
    full: Algorithm = replace(algorithm("fedavg"), select=Full())
    assert companies.companions(
        [full, replace(full, select=Uniform(clients=2))], Logistic(features=3)
    ) == [[0], [1]]

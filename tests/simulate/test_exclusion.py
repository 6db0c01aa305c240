"""Clients whose training breaks are left out and counted; what cannot be weighed is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly import trees
from evenly.data.federation import Federation
from evenly.models import Softmax
from evenly.records import record, static
from evenly.simulate import simulate
from tests import federations
from tests.oracles import run as oracle
from tests.oracles.run import Settings
from tests.simulations import algorithms, flat

ROUNDS = 8
# the largest client: drawn often, and with enough batches to overflow in its first round
BROKEN = 5


# what is not finite after the first round
@pytest.mark.parametrize("value", [1e30, 3e38], ids=["update", "update and loss"])
@pytest.mark.parametrize(
    "text, settings",
    [
        ("fedavg", Settings("fedavg")),
        ("fedavg+uniform(clients=3)", Settings("fedavg", by_size=True)),
        ("q-fedavg(q=0.5)", Settings("q-fedavg", q=0.5)),
    ],
)
def test_a_client_whose_update_is_not_finite_is_left_out_and_counted(
    task: Softmax, text: str, settings: Settings, value: float
):
    federation = federations.with_broken_clients(federations.tiny(), (BROKEN,), value)
    (algorithm,) = algorithms(text)
    (trace,) = simulate(task, federation, [algorithm], ROUNDS)
    drawn = np.array([(trace.cohort == k).sum() for k in range(6)])
    assert drawn[BROKEN] > 1
    np.testing.assert_array_equal(trace.excluded, np.where(np.arange(6) == BROKEN, drawn, 0))
    assert (trace.weights[trace.cohort == BROKEN] == 0).all()
    np.testing.assert_allclose(trace.weights.sum(1), 1, atol=1e-5)
    expected = oracle.run(federation, algorithm, settings, ROUNDS, broken=(BROKEN,))
    assert np.linalg.norm(expected.model) > 0.1
    np.testing.assert_allclose(trace.weights, expected.weights, atol=1e-5)
    np.testing.assert_allclose(flat(trace.model), expected.model, atol=1e-5)


@pytest.mark.parametrize("text", ["q-fedsgd(q=1)+full", "fedmgda+full"])
def test_an_update_whose_norm_overflows_is_left_out_like_one_that_is_not_finite(
    task: Softmax, text: str
):
    # One gradient at the zero model is of order 1e30: finite, but its squared norm is not, and no
    # rule could use it.
    federation = federations.with_broken_clients(federations.tiny(), (BROKEN,))
    (trace,) = simulate(task, federation, algorithms(text), 3)
    np.testing.assert_array_equal(trace.excluded, np.where(np.arange(6) == BROKEN, 3, 0))
    assert (trace.weights[:, BROKEN] == 0).all()
    assert np.isfinite(flat(trace.model)).all()
    assert np.linalg.norm(flat(trace.model)) > 0.01, "the others go on without it"


@pytest.mark.parametrize("text", ["fedavg(epochs=3)+server-adam", "q-fedavg(q=[0, 1], epochs=3)"])
def test_when_everyone_breaks_nothing_changes(task: Softmax, text: str):
    # Three epochs, because the smallest client has a single batch and needs a second step to
    # overflow.
    federation = federations.with_broken_clients(federations.tiny(), tuple(range(6)))
    traces = simulate(task, federation, algorithms(text), 4)
    for trace in traces:
        assert not flat(trace.model).any()
        assert not trace.weights.any()
        assert trace.excluded.sum() == trace.cohort.size


@record
class NegativeLoss:
    """A loss that no method with powers of losses can use."""

    softmax: Softmax = static()
    below: float = 5.0
    joint: bool = static(default=True)
    reduction: str = static(default="mean")

    def init(self, key):
        return self.softmax.init(key)

    def losses(self, params, shard):
        return self.softmax.losses(params, shard) - self.below

    def penalty(self, params):
        return 0.0

    def predict(self, params, x):
        return self.softmax.predict(params, x)


@pytest.mark.parametrize(
    "text", ["q-fedavg(q=1)", "q-fedsgd(q=2)", "fedsgd(q=2)", "q-fedavg(q=[1, 2])"]
)
def test_a_negative_loss_is_refused(task: Softmax, tiny: Federation, text: str):
    with pytest.raises(
        ValueError,
        match=(
            r"^(q-)?fed.*: the weights of round 0 are not finite\. A loss was negative or too large"
        ),
    ):
        simulate(NegativeLoss(softmax=task), tiny, algorithms(text), 3)


def test_a_negative_loss_does_not_matter_where_losses_are_not_used(task: Softmax, tiny: Federation):
    (shifted,), (plain,) = (
        simulate(t, tiny, algorithms("fedavg"), 3) for t in (NegativeLoss(softmax=task), task)
    )
    np.testing.assert_allclose(flat(shifted.model), flat(plain.model), atol=1e-6)


def test_finite_is_told_run_by_run():
    tree = {"a": jnp.array([[1.0, jnp.nan, 2.0]]), "b": jnp.array([1.0, 1.0, jnp.inf])}
    assert trees.all_finite(tree, -1).tolist() == [True, False, False]
    assert trees.square_norm(
        {"a": jnp.array([[1.0, 2.0]]), "b": jnp.array([2.0, 3.0])}, -1
    ).tolist() == [5.0, 13.0]
    assert not bool(trees.all_finite(tree))
    assert bool(trees.all_finite(jax.tree.map(jnp.zeros_like, tree)))


def test_a_round_without_anybody_changes_nothing_not_even_by_the_servers_momentum(
    task: Softmax, tiny: Federation
):
    (trace,) = simulate(
        task,
        tiny,
        algorithms("fedavg+uniform(clients=2)+server-adam(learning_rate=0.1)"),
        12,
        evaluate_every=1,
        dropout=0.7,
    )
    somebody = np.asarray(trace.weights.any(1))
    nobody = ~somebody
    assert nobody[1:].any()
    assert somebody.any()
    moved = np.any(trace.losses[1:, 0] != trace.losses[:-1, 0], axis=1)
    np.testing.assert_array_equal(moved, somebody)


def test_the_last_row_of_a_cohort_is_measured_also_where_it_is_alone_in_a_chunk():
    """257 training rows, read 256 at a time; at a model of zeros all rows have the same loss, so
    that both clients count alike.
    """
    draw = np.random.default_rng(0)
    sizes = (256, 1)
    x, y = draw.normal(size=(sum(sizes), 4)), np.arange(sum(sizes)) % 2
    clients = np.repeat(["many", "one"], sizes)
    federation = Federation.from_arrays(
        x, y, clients, split=np.repeat("train", sum(sizes)), name="chunks"
    )
    assert federation.train.counts.tolist() == list(sizes)
    (trace,) = simulate(
        Softmax(features=4, classes=2), federation, algorithms("q-fedavg(q=1)+full"), 1
    )
    assert trace.weights[0, 0] == pytest.approx(trace.weights[0, 1], rel=1e-4)

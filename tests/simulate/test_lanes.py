"""Clients side by side give what clients one after another give."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.algorithms import variants
from evenly.data.federation import Federation
from evenly.datasets import synthetic
from evenly.models import MLP, Softmax
from evenly.models.networks import Custom
from evenly.notation import parse
from evenly.parts.sampling import Full
from evenly.simulate import simulate
from evenly.simulate.layout import STRIDE, choose_strides
from evenly.simulate.schedule import deal
from evenly.simulate.training import stride_count
from evenly.types import Seeds
from tests.simulations import Simulated, algorithms, flat

ROUNDS = 20


OPTIMISERS = "fedavg+local-momentum(learning_rate=0.05)+server-adam(learning_rate=0.05)"
OFTEN = [("q-fedavg(q=[0, 1])", 2), (OPTIMISERS, 3), ("ditto(pull=0.5)", 2)]
LESS_OFTEN = [
    ("q-fedavg(q=[0, 1])", 3),
    (OPTIMISERS, 2),
    ("ditto(pull=0.5)", 3),
    ("q-fedavg(q=1)", 2),
    ("q-fedavg(q=1)", 3),
    ("fedsgd", 2),
    ("fedsgd", 3),
]


@pytest.mark.parametrize(
    "text, lanes",
    [*OFTEN, *(pytest.param(*case, marks=pytest.mark.further) for case in LESS_OFTEN)],
)
def test_lanes_change_nothing(simulated: Simulated, text: str, lanes: int):
    turn = simulated.all(text, ROUNDS, dropout=0.3)
    side = simulated.all(text, ROUNDS, dropout=0.3, lanes=lanes)
    for one, other in zip(turn, side, strict=True):
        for a, b in zip(jax.tree.leaves(one.model), jax.tree.leaves(other.model), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)
        np.testing.assert_array_equal(one.cohort, other.cohort)
        np.testing.assert_allclose(one.losses, other.losses, atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def in_turn() -> Simulated:
    """Twenty unequal clients, all of which take part."""
    return Simulated(Softmax(features=60, classes=10), synthetic(clients=20))


@pytest.mark.parametrize(
    "lanes", [5, *(pytest.param(lanes, marks=pytest.mark.further) for lanes in (2, 16))]
)
def test_neither_do_many_lanes_of_many_clients(in_turn: Simulated, lanes: int):
    (turn,), (side,) = (
        in_turn.all("q-fedavg(q=1, learning_rate=0.01)+full", ROUNDS, lanes=n) for n in (1, lanes)
    )
    for a, b in zip(jax.tree.leaves(turn.model), jax.tree.leaves(side.model), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    np.testing.assert_array_equal(turn.cohort, side.cohort)


def test_more_lanes_than_clients_are_not_used(simulated: Simulated):
    (run,) = algorithms("fedavg")
    (trace,) = simulate(simulated.task, simulated.federation, [run], 2, lanes=100)
    assert np.isfinite(trace.losses[-1, 0]).all()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 8))
def test_every_visit_is_dealt_once_and_no_lane_waits_long(steps: list[int], lanes: int):
    dealt = deal(np.array(steps), lanes)
    assert sorted(k for _, visits in dealt for k in visits) == [k for k, n in enumerate(steps) if n]
    assert all(load == sum(steps[k] for k in visits) for load, visits in dealt)
    # Longest first: no lane ends later than the mean load plus the longest visit.
    assert max(load for load, _ in dealt) <= sum(steps) / lanes + max(steps)


def test_steps_follow_unasked_where_they_are_short_or_equally_many(monkeypatch: pytest.MonkeyPatch):
    small, large = Softmax(features=3, classes=2), MLP(features=2000, classes=10, hidden=(200,))
    unequal, equal = np.array([3, 7, 7]), np.array([7, 7, 7])
    # on a CPU nothing is gained by writing them out
    assert choose_strides(small, 1, 5, unequal) == (STRIDE, 1, 0)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert choose_strides(small, 1, 5, unequal) == (STRIDE, STRIDE, 0)
    assert choose_strides(large, 1, 5, unequal) == (1, 1, 0)
    assert choose_strides(large, 1, 5, equal) == (1, 1, 7)
    assert choose_strides(large, 1, 1, equal) == (1, 1, 0)


@given(st.integers(0, 400), st.integers(1, 40))
def test_strides_hold_every_step_and_no_stride_is_idle(steps: int, stride: int):
    taken = int(stride_count(jnp.array(steps), stride))
    assert steps <= taken * stride < steps + stride


def test_lanes_of_unequal_clients_take_no_more_strides_than_the_longest_needs():
    """Counts the batches that are read: more strides would change no result and cost their time in
    every round.
    """
    read: list[int] = []

    def apply(params: Any, x: jax.Array) -> jax.Array:
        if x.shape[0] == 1:  # a step of training, not an evaluation
            jax.debug.callback(lambda _: read.append(1), x)
        return x @ params

    task = Custom(initialise=lambda key: jnp.zeros((2, 2)), apply=apply)
    sizes = (3, STRIDE + 1)
    x = np.random.default_rng(0).normal(size=(sum(sizes), 2)).astype(np.float32)
    federation = Federation.from_arrays(
        x, np.arange(len(x)) % 2, np.repeat([0, 1], sizes), shares=(1.0, 0.0)
    )
    (run,) = variants(parse("fedavg"), {"batch_size": 1}, Full())[0].members
    rounds = 3
    simulate(task, federation, [run], rounds, lanes=2)
    jax.effects_barrier()
    assert len(read) == rounds * 2 * 2 * STRIDE  # two lanes, two strides of the longer client


@pytest.mark.slow
def test_equal_clients_of_a_large_model_train_as_in_turn():
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(60, 600)).astype(np.float32), draw.integers(0, 3, 60)
    federation = Federation.from_arrays(x, y, np.repeat(np.arange(6), 10), shares=(0.8, 0.0))
    task, seeds = MLP(features=600, classes=3, hidden=(500,)), Seeds(cohort=1)
    assert choose_strides(task, 1, 3, np.array([4] * 6)).equal == 4
    for methods in map(
        algorithms,
        (
            "fedavg(epochs=2)+full",
            "fedavg(epochs=2)+full+local-momentum",
            "ditto(pull=0.5, epochs=2)+full",
        ),
    ):
        (turn,), (lanes,) = (
            simulate(task, federation, methods, 3, lanes=lanes, dropout=0.8, seeds=seeds)
            for lanes in (1, 6)
        )
        np.testing.assert_allclose(flat(lanes.model), flat(turn.model), atol=1e-6)
        np.testing.assert_array_equal(lanes.weights, turn.weights)

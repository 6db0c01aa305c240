"""One pass gives what two give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.data.federation import Shard
from evenly.models import CNN, MLP, CharLSTM, LeNet, ResNet, Softmax
from evenly.models.networks import Custom
from evenly.models.task import Judging, judged
from evenly.parts.ranking import supernetwork
from evenly.types import Task

IMAGES = (5, 8, 8, 1)
TASKS: dict[str, tuple[Task, tuple[int, ...]]] = {
    "mlp": (MLP(features=4, classes=3, hidden=(5,), bias=False), (5, 4)),
    "lenet": (LeNet(shape=(8, 8, 1), classes=3, mean=(0.0,), deviation=(1.0,)), IMAGES),
    "cnn": (
        CNN(
            shape=(8, 8, 1),
            classes=3,
            channels=(2,),
            hidden=(4,),
            kernel=3,
            mean=(0.0,),
            deviation=(1.0,),
        ),
        IMAGES,
    ),
    "custom": (
        Custom(initialise=lambda key: {"w": jnp.ones((4, 3))}, apply=lambda p, x: x @ p["w"]),
        (5, 4),
    ),
}


@pytest.mark.parametrize("name", TASKS)
def test_networks_give_losses_and_outcomes_at_once(name: str):
    task, shape = TASKS[name]
    _compare(task, shape)


def test_so_does_a_network_of_which_some_edges_are_kept():
    _compare(supernetwork(TASKS["mlp"][0], seed=1), (5, 4))


def test_other_tasks_are_asked_twice():
    assert not isinstance(Softmax(features=4, classes=3), Judging)
    _compare(Softmax(features=4, classes=3), (5, 4), judging=False)


def test_every_network_has_it():
    assert all(hasattr(kind, "judge") for kind in (MLP, LeNet, CNN, ResNet, CharLSTM, Custom))


def _compare(task: Task, shape: tuple[int, ...], *, judging: bool = True) -> None:
    assert isinstance(task, Judging) == judging
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=shape).astype(np.float32), draw.integers(0, 3, shape[0])
    shard, params = (
        Shard(jnp.asarray(x), jnp.asarray(y), None, None, None),
        task.init(jax.random.key(0)),
    )
    losses, outcomes = judged(task, params, shard)
    np.testing.assert_allclose(losses, task.losses(params, shard), rtol=1e-6)
    np.testing.assert_array_equal(outcomes, task.predict(params, shard.x))

"""What is known of a task by its shapes is found out once, unless the task may change."""

import gc
import weakref

import jax
import jax.numpy as jnp

from evenly.models import Softmax
from evenly.models.task import cache_per_task, skeleton


class Mutable:
    """A user's task that is no record."""

    width = 3

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        return {"w": jnp.zeros(self.width)}


def test_it_has_the_shapes_of_the_first_model():
    task = Softmax(features=3, classes=2)
    found, model = skeleton(task), task.init(jax.random.key(0))
    assert jax.tree.structure(found) == jax.tree.structure(model)
    assert [leaf.shape for leaf in jax.tree.leaves(found)] == [
        leaf.shape for leaf in jax.tree.leaves(model)
    ]


def test_a_record_is_asked_once_for_each_question():
    asked = []
    ask = cache_per_task(lambda task, *rest: asked.append(rest) or len(asked))
    one, other = Softmax(features=3, classes=2), Softmax(features=3, classes=2)
    assert [ask(one, 1), ask(one, 2), ask(one, 1), ask(other, 1), ask(one, 2)] == [1, 2, 1, 3, 2]


def test_a_task_that_may_change_is_asked_again():
    task = Mutable()
    assert skeleton(task)["w"].shape == (3,)
    task.width = 5
    assert skeleton(task)["w"].shape == (5,)


def test_a_task_is_not_kept():
    task = Softmax(features=3, classes=2)
    skeleton(task)
    gone = weakref.ref(task)
    del task
    gc.collect()
    assert gone() is None

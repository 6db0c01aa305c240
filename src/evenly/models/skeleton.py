"""What can be known of a task from shapes alone, found out once for each task: tracing takes as long as several rounds of a small model."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

import jax

from evenly.types import Task, Tree

T = TypeVar("T")
MOST = 8  # tasks that are remembered; a network's frozen weights may be large


def remembered(function: Callable[..., T]) -> Callable[..., T]:
    """A function of a task, and of other things that can be hashed, whose answers are kept; for a task that cannot, it is asked again."""
    kept = lru_cache(maxsize=MOST)(function)

    @wraps(function)
    def ask(task: Task, *rest: Any) -> T:
        try:
            hash(task)
        except TypeError:
            return function(task, *rest)
        return kept(task, *rest)

    return ask


@remembered
def skeleton(task: Task) -> Tree:
    """The structure, shapes and types of a task's parameters, without computing them."""
    return jax.eval_shape(task.init, jax.random.key(0))

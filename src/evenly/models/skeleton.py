"""What can be known of a task from shapes alone, found out once for each task: tracing takes as long as several rounds of a small model."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import jax

from evenly.records import is_record
from evenly.types import Task, Tree

T = TypeVar("T")


def remembered(function: Callable[..., T]) -> Callable[..., T]:
    """A function of a task, and of other things that can be hashed, whose answers are kept while the task is there. Only a record cannot
    change; of any other task it is asked every time."""
    kept: WeakKeyDictionary[Any, dict[Any, T]] = WeakKeyDictionary()

    @wraps(function)
    def ask(task: Task, *rest: Any) -> T:
        if not is_record(task):
            return function(task, *rest)
        answers, question = kept.setdefault(task, {}), (*rest, jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
        if question not in answers:
            answers[question] = function(task, *rest)
        return answers[question]

    return ask


@remembered
def skeleton(task: Task) -> Tree:
    """The structure, shapes and types of a task's parameters, without computing them."""
    return jax.eval_shape(task.init, jax.random.key(0))

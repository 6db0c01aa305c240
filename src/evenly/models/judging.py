"""What an evaluation asks of a model: every row's loss and outcome.

XLA does not see that two passes over the same rows in a loop are one: evaluating a network took twice as long with `losses` and
`predict` one after the other. Networks therefore have one method for both.
"""

from typing import Protocol, runtime_checkable

from evenly.data.federation import Shard
from evenly.types import Array, Task, Tree


@runtime_checkable
class Judging(Protocol):
    """A task that gives losses and outcomes from one pass."""

    def judge(self, params: Tree, shard: Shard) -> tuple[Array, Array]: ...  # [n] and [n], as `losses` and `predict` give them


def judged(task: Task, params: Tree, shard: Shard) -> tuple[Array, Array]:
    """Losses and class numbers of these rows."""
    return task.judge(params, shard) if isinstance(task, Judging) else (task.losses(params, shard), task.predict(params, shard.x))

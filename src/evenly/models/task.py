"""What a task must offer, and whether it fits a federation; found out from shapes, before anything is trained."""

from collections.abc import Callable
from functools import wraps
from math import prod
from typing import Any, Protocol, TypeVar, runtime_checkable
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp

from evenly.data.federation import Federation, Shard
from evenly.records import is_record
from evenly.types import Array, Task, Tree

# What an evaluation asks of a model: every row's loss and outcome.
#
# XLA does not see that two passes over the same rows in a loop are one: evaluating a network took twice as long with `losses` and
# `predict` one after the other. Networks therefore have one method for both.


@runtime_checkable
class Judging(Protocol):
    """A task that gives losses and outcomes from one pass."""

    def judge(self, params: Tree, shard: Shard) -> tuple[Array, Array]: ...  # [n] and [n], as `losses` and `predict` give them


def judged(task: Task, params: Tree, shard: Shard) -> tuple[Array, Array]:
    """Losses and class numbers of these rows."""
    return task.judge(params, shard) if isinstance(task, Judging) else (task.losses(params, shard), task.predict(params, shard.x))


# What can be known of a task from shapes alone, found out once for each task: tracing takes as long as several rounds of a small model.

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


# Whether a task fits a federation, found out from shapes alone before anything is trained.

ROWS = 3
PARTS = ("init", "losses", "penalty", "predict")


@runtime_checkable
class Probabilistic(Protocol):
    """A task that knows how likely each class is."""

    def probabilities(self, params: Tree, x: Array) -> Array: ...  # [n, classes]


def check_task(task: Task, federation: Federation) -> None:
    """Raise unless the task gives one loss and one class number per row, and as many classes as there are labels."""
    _refuse_others(task)
    features = getattr(task, "features", None)
    if isinstance(features, int) and features != prod(federation.x.shape[1:]):
        raise ValueError(
            f"{type(task).__name__} expects {features} features, but rows of {federation.name or 'the data'} have "
            f"{prod(federation.x.shape[1:])}. Give it features={prod(federation.x.shape[1:])}."
        )
    _check(task, federation.x.shape[1:], federation.x.dtype, len(federation.labels))


@remembered
def _check(task: Task, row: tuple[int, ...], dtype: Any, labels: int) -> None:
    name = type(task).__name__
    if any(leaf is task for leaf in jax.tree.leaves(task)):
        raise TypeError(f"A task must be a pytree, which {name} is not. Decorate the class with evenly.records.record.")
    params = skeleton(task)
    if not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(params)):
        raise TypeError(f"{name}: init must give arrays of floats only; keep anything else in fields of the task.")
    shard = _example(row, dtype)
    try:
        losses = jax.eval_shape(task.losses, params, shard)
        outcome = jax.eval_shape(task.predict, params, shard.x)
    except Exception as error:  # whatever a model of one's own raises
        raise ValueError(f"{name} cannot be applied to rows of shape {list(row)}: {error}") from error
    _require_shape(name, "losses", losses, jnp.floating)
    _require_shape(name, "predict", outcome, jnp.integer)
    if isinstance(task, Probabilistic):
        classes = jax.eval_shape(task.probabilities, params, shard.x).shape[1]
        if classes != labels:
            raise ValueError(f"{name} has {classes} classes, but the data have {labels} labels. Give it as many.")


def _refuse_others(task: Any) -> None:
    """Raise for what is often given in place of a task."""
    missing = [part for part in PARTS if not hasattr(task, part)]
    if not missing and not isinstance(task, type):
        return
    what = f"the class {task.__name__}" if isinstance(task, type) else f"{task!r:.60}" if isinstance(task, str) else type(task).__name__
    family = {kind.__module__.partition(".")[0] for kind in (task if isinstance(task, type) else type(task)).__mro__}
    hint = "Use one of evenly.models, such as evenly.models.Softmax(features=60, classes=10), or evenly.models.from_equinox for a network."
    if isinstance(task, type) and not missing:
        hint = f"Make one of it, with the sizes of your data: {task.__name__}(...)."
    elif "torch" in family:
        hint = f"PyTorch models train in real federations (docs/flower-clients.md); the simulator trains JAX models. {hint}"
    elif "equinox" in family:
        hint = "Wrap it: evenly.models.from_equinox(lambda key: YourModule(..., key=key))."
    raise TypeError(f"The first argument must be a task: a model with {', '.join(PARTS)}. Got {what}. {hint}")


def _example(row: tuple[int, ...], dtype: Any) -> Shard:
    x = jax.ShapeDtypeStruct((ROWS, *row), jax.dtypes.canonicalize_dtype(dtype))
    whole, real = jax.ShapeDtypeStruct((ROWS,), jnp.int32), jax.ShapeDtypeStruct((ROWS,), jnp.float32)
    return Shard(x, whole, whole, real, real)


def _require_shape(name: str, method: str, found: Any, kind: Any) -> None:
    if found.shape != (ROWS,) or not jnp.issubdtype(found.dtype, kind):
        raise ValueError(
            f"{name}: {method} must give one {'number' if kind is jnp.floating else 'class number'} per row, "
            f"but {ROWS} rows gave {found.dtype}{list(found.shape)}."
        )

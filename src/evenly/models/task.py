"""Checks whether a task fits a federation, from shapes alone, and the optional abilities
of tasks.
"""

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

# An evaluation needs the loss and the prediction of every row.
#
# XLA does not merge two passes over the same rows in a loop: evaluating a network took twice as
# long with `losses` followed by `predict`. Networks therefore have one method for both.


@runtime_checkable
class Judging(Protocol):
    """A task that computes losses and predictions in one pass."""

    def judge(self, params: Tree, shard: Shard) -> tuple[Array, Array]:
        """Results of `losses` and `predict`. [n] and [n]"""
        ...


def judged(task: Task, params: Tree, shard: Shard) -> tuple[Array, Array]:
    """Losses and class numbers of these rows."""
    return (
        task.judge(params, shard)
        if isinstance(task, Judging)
        else (task.losses(params, shard), task.predict(params, shard.x))
    )


@runtime_checkable
class TrainingTask(Protocol):
    """A task that behaves differently while it is trained, because of dropout, batch statistics or
    augmentation.

    Its model may be a `evenly.trees.Stateful`, which `losses` and `predict` then receive, too.
    """

    def train_losses(self, model: Tree, shard: Shard, key: Array) -> tuple[Array, Tree]:
        """Loss of each row in training, and the new state of the model; () if it has none. [n]"""
        ...


def uses_keys(task: Task) -> bool:
    """Whether training the task takes random numbers."""
    return isinstance(getattr(task, "inner", task), TrainingTask)


# Properties of a task that follow from shapes alone. They are computed once for each task: tracing
# takes as long as several rounds of a small model.

T = TypeVar("T")


def cache_per_task(function: Callable[..., T]) -> Callable[..., T]:
    """Cache a function of a task and further hashable arguments, as long as the task exists. Tasks
    that are not records can change, so their results are not cached.
    """
    caches: WeakKeyDictionary[Any, dict[Any, T]] = WeakKeyDictionary()

    @wraps(function)
    def cached(task: Task, *rest: Any) -> T:
        if not is_record(task):
            return function(task, *rest)
        cache = caches.setdefault(task, {})
        key = (*rest, jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
        if key not in cache:
            cache[key] = function(task, *rest)
        return cache[key]

    return cached


@cache_per_task
def skeleton(task: Task) -> Tree:
    """The structure, shapes and types of a task's parameters, without computing them."""
    return jax.eval_shape(task.init, jax.random.key(0))


# Whether a task fits a federation, from shapes alone, before training.

ROWS = 3
PARTS = ("init", "losses", "penalty", "predict")


@runtime_checkable
class Probabilistic(Protocol):
    """A task that also predicts the probability of each class.

    Example:
        >>> from evenly.models import LinearSVM, Softmax
        >>> isinstance(Softmax(features=2, classes=3), Probabilistic)
        True
        >>> isinstance(LinearSVM(features=2), Probabilistic)
        False
    """

    def probabilities(self, params: Tree, x: Array) -> Array:
        """Probabilities of the classes of each row. [n, classes]"""
        ...


def check_task(task: Task, federation: Federation) -> None:
    """Raise unless a task can be trained on a federation. Only shapes are computed, and the range
    of the features where the task reads symbols.

    Args:
        task: Task to check.
        federation: Data to train on.

    Raises:
        TypeError: If `task` is not a task, or its parameters are not floats.
        ValueError: If it has another number of features or classes than the data, reads fewer
            symbols, or does not return one loss and one class per row.

    Example:
        >>> import evenly
        >>> task = evenly.models.Softmax(features=3, classes=10)
        >>> evenly.models.check_task(task, evenly.synthetic(clients=2))
        Traceback (most recent call last):
        ValueError: Softmax expects 3 features, but rows of synthetic non-iid have 60. \
Pass features=60.
    """
    refuse_other_objects(task)
    for name in ("task", "inner"):
        inner: Any = getattr(task, name, None)
        if all(hasattr(inner, part) for part in PARTS):  # of an Augmented, or of what ranks edges
            check_task(inner, federation)
    features = getattr(task, "features", None)
    if isinstance(features, int) and features != prod(federation.x.shape[1:]):
        raise ValueError(
            f"{type(task).__name__} expects {features} features, but rows of"
            f" {federation.name or 'the data'} have {prod(federation.x.shape[1:])}. Pass"
            f" features={prod(federation.x.shape[1:])}."
        )
    _check(task, federation.x.shape[1:], federation.x.dtype, len(federation.labels))
    symbols = getattr(task, "symbols", None)
    if isinstance(symbols, int) and federation.x.size:
        outside = next(
            (n for n in (federation.x.min(), federation.x.max()) if not 0 <= n < symbols), None
        )
        if outside is not None:
            raise ValueError(
                f"{type(task).__name__} reads symbols 0 to {symbols - 1}, but the features of"
                f" {federation.name or 'the data'} hold {outside:g}. Let it read more symbols, or"
                " replace those that it does not know."
            )


@cache_per_task
def _check(task: Task, row: tuple[int, ...], dtype: Any, labels: int) -> None:
    name = type(task).__name__
    if any(leaf is task for leaf in jax.tree.leaves(task)):
        raise TypeError(
            f"A task must be a pytree, which {name} is not. Decorate the class with"
            " evenly.records.record."
        )
    params = skeleton(task)
    if not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(params)):
        raise TypeError(
            f"{name}: init must return arrays of floats only. Keep anything else in fields of the"
            " task."
        )
    shard = _example(row, dtype)
    try:
        losses = jax.eval_shape(task.losses, params, shard)
        outcome = jax.eval_shape(task.predict, params, shard.x)
    except Exception as error:  # a user's model may raise anything
        raise ValueError(
            f"{name} cannot be applied to rows of shape {list(row)}: {error}"
        ) from error
    _require_shape(name, "losses", losses, jnp.floating)
    _require_shape(name, "predict", outcome, jnp.integer)
    if isinstance(task, Probabilistic):
        classes = jax.eval_shape(task.probabilities, params, shard.x).shape[1]
        if classes != labels:
            raise ValueError(
                f"{name} has {classes} classes, but the data have {labels} labels."
                + (
                    f" Pass classes={labels}."
                    if hasattr(task, "classes")
                    else f" Let it return {labels} scores."
                )
            )


def refuse_other_objects(task: Any) -> None:
    """Raise for objects that are often passed in place of a task, such as a class or a PyTorch
    model.
    """
    missing = [part for part in PARTS if not hasattr(task, part)]
    if not missing and not isinstance(task, type):
        return
    what = (
        f"the class {task.__name__}"
        if isinstance(task, type)
        else f"{task!r:.60}"
        if isinstance(task, str)
        else type(task).__name__
    )
    family = {
        kind.__module__.partition(".")[0]
        for kind in (task if isinstance(task, type) else type(task)).__mro__
    }
    hint = (
        "Use one of evenly.models, such as evenly.models.Softmax(features=60, classes=10), or"
        " evenly.models.from_equinox for a network."
    )
    if isinstance(task, type) and not missing:
        hint = f"Create one with the sizes of your data: {task.__name__}(...)."
    elif "torch" in family:
        hint = "Translate it: evenly.from_torch(module, example), where example is a few rows."
    elif "equinox" in family:
        hint = "Wrap it: evenly.models.from_equinox(lambda key: YourModule(..., key=key))."
    raise TypeError(f"task must be a model with {', '.join(PARTS)}. Got {what}. {hint}")


def _example(row: tuple[int, ...], dtype: Any) -> Shard:
    x = jax.ShapeDtypeStruct((ROWS, *row), jax.dtypes.canonicalize_dtype(dtype))
    whole, real = (
        jax.ShapeDtypeStruct((ROWS,), jnp.int32),
        jax.ShapeDtypeStruct((ROWS,), jnp.float32),
    )
    return Shard(x, whole, whole, real, real)


def _require_shape(name: str, method: str, result: Any, kind: Any) -> None:
    if result.shape != (ROWS,) or not jnp.issubdtype(result.dtype, kind):
        raise ValueError(
            f"{name}: {method} must return one"
            f" {'number' if kind is jnp.floating else 'class number'} per row, but {ROWS} rows gave"
            f" {result.dtype}{list(result.shape)}."
        )

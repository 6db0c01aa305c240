"""Frozen dataclasses that are pytrees.

A `record` is immutable, keyword-only, and registered with JAX, so that it can be passed to a
compiled function, stacked and vmapped. Fields declared with `leaf`, or without either, are leaves:
numbers that may change without compiling again. Fields declared with `static` are part of the
program's shape. Both declare which values are legal; a record checks them when it is created.

>>> @record
... class Tilt:
...     alpha: float = leaf(default=0.1, least=0, doc="tilt: 0 is FedAvg")
...     weights: str = static(default="size", choices=("size", "equal"), doc="whether sizes count")
>>> Tilt(weights="equal")
Tilt(alpha=0.1, weights='equal')
>>> Tilt(alpha=-1)
Traceback (most recent call last):
ValueError: alpha must be at least 0, got -1. Meaning: tilt: 0 is FedAvg.
"""

import dataclasses
import numbers
import operator
from collections.abc import Sequence
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

T = TypeVar("T")

HOLDS = {
    "at least": operator.ge,
    "above": operator.gt,
    "at most": operator.le,
    "below": operator.lt,
}


def leaf(
    *,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    doc: str = "",
) -> Any:
    """Declare a field whose number may change, or be swept, without compiling again.

    Args:
        default: Value where none is given.
        default_factory: Function that makes the default.
        least: Smallest legal number.
        above: Number that must be exceeded.
        most: Largest legal number.
        below: Number that must not be reached.
        doc: Meaning of the field. A field with a meaning is a setting of its method.

    Returns:
        The declaration, which `record` reads.

    Example:
        >>> @record
        ... class Tilt:
        ...     alpha: float = leaf(default=0.1, least=0, most=1, doc="tilt")
        >>> Tilt(alpha=2)
        Traceback (most recent call last):
        ValueError: alpha must be at least 0 and at most 1, got 2. Meaning: tilt.
    """
    bounds = _bounds(least, above, most, below)
    return dataclasses.field(
        default=default, default_factory=default_factory, metadata={"doc": doc, "bounds": bounds}
    )


def static(
    *,
    default: Any = dataclasses.MISSING,
    choices: Sequence[str] = (),
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    doc: str = "",
) -> Any:
    """Declare a field that shapes the compiled program: another value is another program.

    A field whose default is true or false takes only these. A field with bounds takes numbers, and
    whole numbers where its default is one.

    Args:
        default: Value where none is given.
        choices: Legal values; without them, any.
        least: Smallest legal number.
        above: Number that must be exceeded.
        most: Largest legal number.
        below: Number that must not be reached.
        doc: Meaning of the field. A field with a meaning is a setting of its method.

    Returns:
        The declaration, which `record` reads.

    Example:
        >>> @record
        ... class Average:
        ...     weights: str = static(default="size", choices=("size", "equal"), doc="weights")
        >>> Average(weights="rows")
        Traceback (most recent call last):
        ValueError: weights must be 'size' or 'equal', got 'rows'.
    """
    metadata = {
        "static": True,
        "doc": doc,
        "choices": tuple(choices),
        "bounds": _bounds(least, above, most, below),
    }
    return dataclasses.field(default=default, metadata=metadata)


def _bounds(
    least: float | None, above: float | None, most: float | None, below: float | None
) -> dict[str, float]:
    return {
        words: bound
        for words, bound in zip(HOLDS, (least, above, most, below), strict=True)
        if bound is not None
    }


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(leaf, static, dataclasses.field)
)
def record(cls: type[T]) -> type[T]:
    """Make a class a frozen keyword-only dataclass and a pytree, whose values are checked as its
    fields declare.

    Args:
        cls: The class. Declare its fields with `leaf` and `static`.

    Returns:
        The same class.

    Example:
        >>> @record
        ... class Tilt:
        ...     alpha: float = leaf(default=0.1, least=0, doc="tilt: 0 is FedAvg")
        >>> Tilt(alpha=2)
        Tilt(alpha=2)
    """
    declared = {
        name: field for name, field in vars(cls).items() if isinstance(field, dataclasses.Field)
    }
    own_check = getattr(cls, "__post_init__", None)

    def check(self: T) -> None:
        for name, field in declared.items():
            _check_field(name, field, getattr(self, name))
        if own_check is not None:
            own_check(self)

    cls.__post_init__ = check  # pyright: ignore[reportAttributeAccessIssue]
    cls = dataclasses.dataclass(frozen=True, kw_only=True, eq=False)(cls)
    _register(cls)
    return cls


def _register(cls: type[Any]) -> None:
    """Register a record with JAX.

    Not with `jax.tree_util.register_dataclass`: in JAX 0.10 the structures of two such classes are
    equal if their fields and static values are, so that a compiled function could be called for a
    record of another class.
    """
    fields = dataclasses.fields(cls)
    meta = [f.name for f in fields if f.metadata.get("static")]
    data = [f.name for f in fields if not f.metadata.get("static")]
    keys = [jax.tree_util.GetAttrKey(name) for name in data]

    def values(record: Any, names: list[str]) -> tuple[Any, ...]:
        return tuple(getattr(record, name) for name in names)

    def flatten(record: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return values(record, data), values(record, meta)

    def flatten_with_keys(record: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(zip(keys, values(record, data), strict=True)), values(record, meta)

    def unflatten(static_values: tuple[Any, ...], leaves: Any) -> Any:
        named = zip(meta + data, (*static_values, *leaves), strict=True)
        return cls(**dict(named))

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


def _check_field(name: str, field: "dataclasses.Field[Any]", value: Any) -> None:
    choices, bounds = field.metadata.get("choices"), field.metadata.get("bounds")
    if field.metadata.get("static") and isinstance(field.default, bool):
        require(isinstance(value, bool | np.bool_), f"{name} must be true or false, got {value!r}.")
    if choices:
        words = (
            " or ".join(map(repr, choices)) if len(choices) == 2 else f"one of {', '.join(choices)}"
        )
        require(value in choices, f"{name} must be {words}, got {value!r}.")
    if bounds and (field.metadata.get("static") or is_number(value)):
        whole = isinstance(field.default, int) and bool(field.metadata.get("static"))
        legal = (
            isinstance(value, numbers.Integral if whole else numbers.Real)
            and not isinstance(value, bool)
            and all(HOLDS[words](value, bounds[words]) for words in bounds)
        )
        limits = " and ".join(f"{words} {bound:g}" for words, bound in bounds.items())
        meaning = f" Meaning: {field.metadata['doc']}." if field.metadata["doc"] else ""
        require(
            legal,
            f"{name} must be {'a whole number of ' if whole else ''}{limits}, got"
            f" {value!r}.{meaning}",
        )


def is_record(value: Any) -> bool:
    """Whether a value is immutable, and equal to nothing but itself, as records are."""
    settings = getattr(type(value), "__dataclass_params__", None)
    return settings is not None and settings.frozen and not settings.eq


def replace(value: T, **changes: Any) -> T:
    """A copy of a record with some fields changed."""
    return dataclasses.replace(value, **changes)  # pyright: ignore[reportArgumentType, reportReturnType]


def is_number(value: Any) -> bool:
    """Whether a leaf is a concrete number, so that it can be checked.

    Inside a trace, leaves are tracers; while JAX rebuilds a record they may be any object. Neither
    is checked.
    """
    return isinstance(value, int | float) and not isinstance(value, bool)


def require(holds: bool, sentence: str) -> None:
    """Raise ValueError with a whole sentence unless a requirement holds."""
    if not holds:
        raise ValueError(sentence)

"""Frozen dataclasses that are pytrees.

A `record` is immutable, keyword-only, and registered with JAX, so that it can be passed to a compiled function, stacked
and vmapped. Ordinary fields are leaves (numbers that may change without recompiling); fields declared with `static()`
are part of the program's shape.
"""

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax

T = TypeVar("T")


def leaf(*, default: Any = dataclasses.MISSING, default_factory: Any = dataclasses.MISSING, doc: str = "") -> Any:
    """A field whose number may change, or be swept, without recompiling; `doc` makes it a setting shown to users."""
    return dataclasses.field(default=default, default_factory=default_factory, metadata={"doc": doc})


def static(*, default: Any = dataclasses.MISSING, doc: str = "") -> Any:
    """A field that shapes the compiled program: changing it recompiles."""
    return dataclasses.field(default=default, metadata={"static": True, "doc": doc})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(leaf, static, dataclasses.field))
def record(cls: type[T]) -> type[T]:
    """Make a class a frozen keyword-only dataclass and a pytree."""
    cls = dataclasses.dataclass(frozen=True, kw_only=True, eq=False)(cls)
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    meta = [f.name for f in fields if f.metadata.get("static")]
    data = [f.name for f in fields if not f.metadata.get("static")]
    return jax.tree_util.register_dataclass(cls, data_fields=data, meta_fields=meta)


def is_record(value: Any) -> bool:
    """Whether a value is immutable, and equal to nothing but itself, as records are."""
    made = getattr(type(value), "__dataclass_params__", None)
    return made is not None and made.frozen and not made.eq


def replace(value: T, **changes: Any) -> T:
    """A copy of a record with some fields changed."""
    return dataclasses.replace(value, **changes)  # pyright: ignore[reportArgumentType, reportReturnType]


def is_number(value: Any) -> bool:
    """Whether a leaf is a concrete number, so that it can be checked.

    Inside a trace, leaves are tracers; while JAX rebuilds a record they may be any object. Neither is checked.
    """
    return isinstance(value, int | float) and not isinstance(value, bool)


def require(holds: bool, sentence: str) -> None:
    """Raise ValueError with a whole sentence unless a requirement holds."""
    if not holds:
        raise ValueError(sentence)

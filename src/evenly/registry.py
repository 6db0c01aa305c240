"""Registries: dictionaries from a name to what it stands for. Users add methods, metrics and data sets of their own to them.

`evenly.register` is the one way to do so; each registry's own `register` checks what is particular to it and comes here.
"""

import re
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

NAME = re.compile(r"[A-Za-z][\w-]*")


class Named(Protocol):
    """What a registry holds: it knows its own name."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)

_own: set[tuple[str, str]] = set()  # kind and name of what users added
_journal: list[tuple[str, MutableMapping[str, Any], str]] = []  # what was asked to be added, in order


def add(kind: str, registry: MutableMapping[str, T], thing: T, *, taken: Mapping[str, Any] | None = None, replace: bool = False) -> None:
    """Put something into a registry under its own name, which must be free there and among those `taken`.

    The very same object may come twice. With `replace`, what a user added before is replaced; what is part of evenly never is.

    >>> from types import SimpleNamespace
    >>> add("method", {}, SimpleNamespace(name="2fast"))
    Traceback (most recent call last):
    ValueError: The name of a method must begin with a letter and have only letters, digits, - and _, got '2fast'.
    """
    name = thing.name
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"The name of a {kind} must begin with a letter and have only letters, digits, - and _, got {name!r}.")
    _journal.append((kind, registry, name))
    present = (taken if taken is not None else registry).get(name)
    if present is thing:
        return
    if present is not None and not (replace and is_own(kind, name)):
        why = "registered before: pass replace=True to replace it" if is_own(kind, name) else "part of evenly"
        raise ValueError(f"There is already a {kind} {name!r}, which is {why}. Otherwise choose another name.")
    registry[name] = thing
    _own.add((kind, name))


def is_own(kind: str, name: str) -> bool:
    """Whether a user added it."""
    return (kind, name) in _own


def forget(kind: str, registry: MutableMapping[str, Any], name: str) -> None:
    """Take away what a user added, where it is in this registry."""
    if is_own(kind, name) and registry.pop(name, None) is not None:
        _own.discard((kind, name))


@contextmanager
def all_or_nothing() -> Iterator[list[str]]:
    """What is added inside is taken away again if the block fails. Filled at the end: the names that were registered."""
    start, before = len(_journal), set(_own)
    names: list[str] = []
    try:
        yield names
        names += [name for _, _, name in _journal[start:]]
    except BaseException:
        for kind, registry, name in _journal[start:]:
            if (kind, name) not in before:
                forget(kind, registry, name)
        raise

"""Registries: dictionaries of methods, metrics and data sets by name, to which users can add their
own.

`evenly.register` is the public function. It calls the `register` of the registry, which checks the
object and calls `add`.
"""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

NAME = re.compile(r"[A-Za-z][\w-]*")
DETAILS = re.compile(r"\n\s*(?:Args|Returns|Raises|Examples?):|\n\s*>>>")


def description(thing: Any) -> str:
    """The sentences of a docstring, without its sections on arguments and its examples.

    >>> description(description)
    'The sentences of a docstring, without its sections on arguments and its examples.'
    """
    return DETAILS.split(inspect.getdoc(thing) or "", maxsplit=1)[0].strip()


class Named(Protocol):
    """An entry of a registry: anything with a name."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)

_own: set[tuple[str, str]] = set()  # kind and name of the entries that users added
# every call of `add`, in order, with the entry that had the name before
_journal: list[tuple[str, MutableMapping[str, Any], str, Any]] = []
_renewed: set[tuple[str, str]] = set()  # entries that may be replaced in `all_or_nothing`


def add(
    kind: str,
    registry: MutableMapping[str, T],
    thing: T,
    *,
    taken: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> None:
    """Add an entry to a registry under its name, which must be free there, or in `taken` if that is
    given.

    Adding the same object twice has no effect. `replace` replaces an entry that a user added
    before, never a part of evenly.

    >>> from types import SimpleNamespace
    >>> add("method", {}, SimpleNamespace(name="2fast"))
    Traceback (most recent call last):
    ValueError: The name of a method must begin with a letter and contain only letters, digits, \
- and _, got '2fast'.
    """
    name = thing.name
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f"The name of a {kind} must begin with a letter and contain only letters, digits, - and"
            f" _, got {name!r}."
        )
    _journal.append((kind, registry, name, registry.get(name)))
    replace = replace or (kind, name) in _renewed
    present = (taken if taken is not None else registry).get(name)
    if present is thing:
        return
    if present is not None and not (replace and is_own(kind, name)):
        remedy = (
            "Pass replace=True to replace it, or" if is_own(kind, name) else "It is part of evenly:"
        )
        raise ValueError(f"There is already a {kind} {name!r}. {remedy} choose another name.")
    registry[name] = thing
    _own.add((kind, name))


def is_own(kind: str, name: str) -> bool:
    """Whether a user added this entry."""
    return (kind, name) in _own


def forget(kind: str, registry: MutableMapping[str, Any], name: str) -> None:
    """Remove an entry that a user added."""
    if is_own(kind, name) and registry.pop(name, None) is not None:
        _own.discard((kind, name))


@contextmanager
def all_or_nothing(
    renews: Iterable[tuple[str, str]] = (),
) -> Iterator[list[tuple[str, str]]]:
    """Undo everything that was added in the block if the block fails. The list is filled with kinds
    and names when the block ends. Entries in `renews` may be replaced.
    """
    start, names = len(_journal), []
    _renewed.update(renews)
    try:
        yield names
        names += [(kind, name) for kind, _, name, _ in _journal[start:]]
    except BaseException:
        for kind, registry, name, before in reversed(_journal[start:]):
            if before is None:
                forget(kind, registry, name)
            else:
                registry[name] = before
        raise
    finally:
        _renewed.clear()

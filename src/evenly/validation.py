"""Checks of values that come from files or users, and shortened values for messages.

Files of results may be damaged or edited. Their contents are checked to be plain data of the
expected kinds before they are used.
"""

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LISTS = (tuple, list, Sequence)
MOST_SHOWN = 100  # characters of a value that a message repeats
MOST_NESTED = 20  # levels of lists and objects


def shortened(value: Any, most: int = MOST_SHOWN) -> str:
    """A value as a message repeats it: in quotes if it is text, and cut if it is long.

    >>> shortened("ab")
    "'ab'"
    >>> shortened("a" * 200, most=10)
    "'aaaaaaaaa… (200 characters)"
    """
    if isinstance(value, int) and abs(value) >= 10**most:
        return f"a whole number of about {int(value.bit_length() * 0.30103):,} digits"
    text = repr(value[: most + 1] if isinstance(value, str | list | tuple) else value)
    size = (
        f" ({len(value):,} {'characters' if isinstance(value, str) else 'entries'})"
        if isinstance(value, str | list | dict)
        else ""
    )
    return text if len(text) <= most else f"{text[:most]}…{size}"


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind that an annotation names; whole numbers are also numbers, true
    and false are not.

    >>> fits([1, 2], tuple[int, ...]), fits(True, int), fits({"a": "b"}, dict[str, int] | None)
    (True, False, False)
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if origin in (types.UnionType, typing.Union):
        return any(fits(value, one) for one in inner)
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    if origin in LISTS:
        return isinstance(value, list | tuple) and all(fits(each, inner[0]) for each in value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(
            fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items()
        )
    if kind in (None, types.NoneType):
        return value is None
    return kind not in (str, bool, dict, list, tuple) or isinstance(value, kind)


LARGEST = {int: 2**31 - 1, float: 3.4e38}  # of the 32-bit numbers that devices compute with


def check_size(name: str, value: Any, kind: Any) -> None:
    """Refuse a number that devices cannot represent; NaN and values of other kinds pass.

    >>> check_size("learning_rate", float("inf"), float)
    Traceback (most recent call last):
    ValueError: learning_rate must be a number of at most 3.4e+38, got inf.
    """
    kind = int if kind is int else float
    if isinstance(value, int | float) and abs(value) > LARGEST[kind]:
        most = f"{LARGEST[kind]:,}" if kind is int else f"{LARGEST[kind]:g}"
        raise ValueError(
            f"{name} must be {kind_words(kind)} of at most {most}, got {shortened(value)}."
        )


def check_kinds(
    fields: Mapping[str, Any], kinds: Mapping[str, Any], *, complete: bool = False
) -> None:
    """Refuse the first value that is not of its kind, and with `complete` the first name that has
    no value.

    Names without a kind are not checked.
    """
    for name, kind in kinds.items():
        if complete and name not in fields:
            raise ValueError(f"{name} is missing.")
        if name in fields and not fits(fields[name], kind):
            raise ValueError(f"{name} must be {kind_words(kind)}, got {shortened(fields[name])}.")


@functools.cache
def kinds_of(kind: type) -> dict[str, Any]:
    """The kinds of the fields of a dataclass or named tuple."""
    hints = typing.get_type_hints(kind)
    names = (
        [field.name for field in dataclasses.fields(kind)]
        if dataclasses.is_dataclass(kind)
        else list(getattr(kind, "_fields", ()))
    )
    return {name: hints[name] for name in names}


def kind_words(kind: Any) -> str:
    plain = {
        int: "a whole number",
        float: "a number",
        str: "text",
        bool: "true or false",
        types.NoneType: "nothing",
        Any: "anything",
    }
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(kind_words(one) for one in inner)
    if origin in LISTS:
        return f"a list ({kind_words(inner[0])} each)"
    if origin is not None:
        return (
            "an object with names"
            if inner[1] is Any
            else f"an object with names ({kind_words(inner[1])} each)"
        )
    return plain.get(kind, getattr(kind, "__name__", str(kind)))


def plain_json(text: str | bytes) -> Any:
    """What JSON text holds; text that is nested too deeply is refused like text that is no JSON."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError(f"JSON may be nested {MOST_NESTED} levels deep; this is deeper.") from None
    check_nesting(data)
    return data


def check_nesting(value: Any) -> None:
    """Refuse data nested so deeply that going through it could fail."""
    level: list[Any] = [value]
    for _ in range(MOST_NESTED + 1):
        level = [inner for each in level if isinstance(each, dict | list) for inner in _inner(each)]
        if not level:
            return
    raise ValueError(f"Lists and tables may be nested {MOST_NESTED} levels deep; these are deeper.")


def _inner(value: dict[Any, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def listed_names(names: Sequence[str], most: int = 5) -> str:
    """The first names in quotes, and how many more there are.

    >>> listed_names(["north", "south", "west"], most=2)
    "'north', 'south' and 1 more"
    """
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"

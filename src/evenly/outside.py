"""Values and files that come from outside: checked before they are used, and shortened before they are repeated.

A file of results may be damaged, edited or made by somebody else. What is read here is plain data of the expected kinds or a
ValueError that says what is wrong; nothing in a file can run code or claim more memory than its size allows.
"""

import dataclasses
import functools
import json
import types
import typing
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenly.writing import READING

LISTS = (tuple, list, Sequence)
MOST_SHOWN = 100  # characters of a value that a message repeats
MOST_NESTED = 20  # levels of lists and objects
DEFLATE = 1032  # bytes that one compressed byte can stand for at most
# What reading a damaged npz raises; NotImplementedError where a flipped bit names a compression that zipfile does not know.
DAMAGED = (ValueError, KeyError, TypeError, EOFError, OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, SyntaxError)


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
    size = f" ({len(value):,} {'characters' if isinstance(value, str) else 'entries'})" if isinstance(value, str | list | dict) else ""
    return text if len(text) <= most else f"{text[:most]}…{size}"


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind that an annotation names; whole numbers are also numbers, true and false are not.

    >>> fits([1, 2], tuple[int, ...]), fits(True, int), fits({"a": "b"}, dict[str, int] | None), fits(None, float | None)
    (True, False, False, True)
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
        return isinstance(value, Mapping) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    if kind in (None, types.NoneType):
        return value is None
    return kind not in (str, bool, dict, list, tuple) or isinstance(value, kind)


def check_kinds(fields: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Refuse the first value that is not of its kind; names without a kind, and kinds without a value, are somebody else's affair."""
    for name, kind in kinds.items():
        if name in fields and not fits(fields[name], kind):
            raise ValueError(f"{name} must be {kind_words(kind)}, got {shortened(fields[name])}.")


@functools.cache
def kinds_of(kind: type) -> dict[str, Any]:
    """The kinds of the fields of a dataclass or named tuple."""
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else list(getattr(kind, "_fields", ()))
    return {name: hints[name] for name in names}


def kind_words(kind: Any) -> str:
    plain = {int: "a whole number", float: "a number", str: "text", bool: "true or false", types.NoneType: "nothing", Any: "anything"}
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(kind_words(one) for one in inner)
    if origin in LISTS:
        return f"a list ({kind_words(inner[0])} each)"
    if origin is not None:
        return "an object with names" if inner[1] is Any else f"an object with names ({kind_words(inner[1])} each)"
    return plain.get(kind, getattr(kind, "__name__", str(kind)))


def plain_json(text: str | bytes) -> Any:
    """What JSON text holds; text that is nested too deeply is refused like text that is no JSON."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError(f"JSON may be nested {MOST_NESTED} levels deep; this is deeper.") from None
    check_nesting(found)
    return found


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


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an npz file. Each must be as large as the file says and can hold, which is seen before it is read.

    Raises one of DAMAGED where that is not so. Nothing is unpickled.
    """
    size = path.stat().st_size
    with READING, open(path, "rb") as raw:  # numpy leaves a damaged file open
        with zipfile.ZipFile(raw) as packed:
            for member in packed.infolist():
                _check_member(packed, member, size)
        raw.seek(0)
        with np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}


def _check_member(packed: zipfile.ZipFile, member: zipfile.ZipInfo, size: int) -> None:
    """Refuse an array whose shape claims other bytes than its part of the file holds."""
    stored = member.compress_type == zipfile.ZIP_STORED
    if member.compress_size > size or member.file_size > (member.compress_size if stored else DEFLATE * member.compress_size + 64):
        raise ValueError(f"{member.filename} claims {member.file_size:,} bytes, more than the file can hold.")
    with packed.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        held = member.file_size - file.tell()
    needed = dtype.itemsize
    for length in shape:  # Python's whole numbers do not overflow
        needed *= int(length)
    if dtype.hasobject or any(length < 0 for length in shape) or needed != held:
        raise ValueError(f"{member.filename} claims shape {shortened(shape)} of {dtype}, {needed:,} bytes, but holds {held:,}.")

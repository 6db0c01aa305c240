"""The arrays of a reply: the model's names, shapes and kinds of numbers, all of them finite. One pass, no copies."""

from typing import Any

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from evenly.flower import wire
from evenly.flower.expecting import ARRAYS, LONGEST_REASON, Expected, Wrong


def arrays_of(content: RecordDict, expected: Expected) -> ArrayRecord:
    """The record that holds the trained model, as it came."""
    arrays, layout = record_of(content, expected), expected.layout
    assert layout is not None  # the caller asked for arrays
    if arrays.keys() != set(layout.names):
        raise Wrong(_other_names(list(arrays), list(layout.names)), ARRAYS)
    for name, shape, dtype in zip(*layout, strict=True):
        try:
            found = wire.read(arrays[name])
        except (ValueError, TypeError, EOFError) as error:
            raise Wrong(f"sent array {name!r} in a form that cannot be read: {str(error)[:LONGEST_REASON]}", ARRAYS) from None
        if found.shape != shape:
            raise Wrong(f"sent array {name!r} with shape {list(found.shape)}, where the model has {list(shape)}", ARRAYS)
        if _kind(found.dtype) != _kind(dtype):
            raise Wrong(f"sent array {name!r} with numbers of type {found.dtype}, where the model has {dtype}", ARRAYS)
        if not is_finite(found):
            raise Wrong(f"sent NaN or infinity in array {name!r}", ARRAYS)
        if not _fits(found, dtype):
            what = "NaN or infinity in" if dtype.kind == "f" else "beyond"
            raise Wrong(f"sent numbers in array {name!r} that are {what} the model's {dtype}", ARRAYS)
        if expected.ranked and not _places(found):
            raise Wrong(f"sent an order in array {name!r} that does not name every place once", ARRAYS)
    return arrays


def record_of(content: RecordDict, expected: Expected) -> ArrayRecord:
    """The record of arrays; nobody has looked into it."""
    records = content.array_records
    if expected.arrays_key not in records and len(records) != 1:
        raise Wrong(f"sent {len(records)} models, where one is needed (named {expected.arrays_key!r})", ARRAYS)
    return records.get(expected.arrays_key) or next(iter(records.values()))


def _other_names(found: list[str], wanted: list[str]) -> str:
    text = f"sent {len(found)} arrays, where the model has {len(wanted)}"
    missing, strange = [name for name in wanted if name not in found], [name for name in found if name not in wanted]
    parts = ([f"{missing[0]!r} is missing"] if missing else []) + ([f"{strange[0]!r} is not one of them"] if strange else [])
    return f"{text}: {' and '.join(parts)}"


def is_finite(array: np.ndarray) -> bool:
    """Whether all entries are finite, in one pass: a sum of squares is finite only then, unless it overflows."""
    if array.dtype.kind not in "fc" or not array.size:
        return True
    flat = array.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        square = np.vdot(flat, flat)
    return bool(np.isfinite(square) or np.isfinite(flat).all())


def _fits(array: np.ndarray, dtype: np.dtype[Any]) -> bool:
    """Whether the model's type can hold the numbers."""
    if not array.size or array.dtype == dtype or dtype.kind not in "fiu":
        return True
    if dtype.kind == "f":
        return array.dtype.itemsize <= dtype.itemsize or bool(max(array.max(), -array.min()) <= np.finfo(dtype).max)
    return np.iinfo(dtype).min <= int(array.min()) and int(array.max()) <= np.iinfo(dtype).max


def _places(array: np.ndarray) -> bool:
    flat = array.ravel()
    inside = flat.size == 0 or (flat.min() >= 0 and flat.max() < flat.size)
    return bool(inside and (np.bincount(flat.astype(np.int64), minlength=flat.size) == 1).all())


def _kind(dtype: np.dtype[Any]) -> str:
    """Types of one kind can stand for each other: float16, float32 and float64, say; signs of whole numbers are no matter."""
    return "i" if dtype.kind == "u" else dtype.kind

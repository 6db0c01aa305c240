"""The numbers of a reply: sizes, losses, tables and choices that can be what they say they are."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from evenly.flower import wire
from evenly.flower.expecting import SIGNALS, Expected, Wrong

MOST_ROWS = 2**31 - 1  # tables of counts hold no more
LARGEST, LARGEST_SINGLE = float(np.finfo(np.float64).max), float(np.finfo(np.float32).max)


def count(key: str, value: Any, kind: str) -> int:
    """How many rows."""
    rows = number(key, value, kind)
    if rows < 0 or rows != np.floor(rows):
        raise Wrong(f"sent {rows:g} as {key!r}, which must be a whole number of at least 0", kind)
    if rows > MOST_ROWS:
        raise Wrong(f"sent {rows:g} as {key!r}, which no client can have", kind)
    return int(rows)


def number(key: str, value: Any, kind: str = SIGNALS) -> float:
    """One finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise Wrong(f"sent {_brief(value)} as {key!r}, which must be one number", kind)
    if not abs(value) <= LARGEST:  # NaN is not, either; and a whole number may be beyond any float
        raise Wrong(f"sent {_brief(value)} as {key!r}, which must be a finite number", kind)
    return float(value)


def signal(need: str, metrics: Mapping[str, Any], examples: int, expected: Expected) -> np.ndarray:
    """One of the fields of Signals that clients measure."""
    key = wire.SIGNALS[need]
    if key not in metrics:
        how = wire.HOW_TO_SEND[key]
        raise Wrong(f"sent no {key!r}. {expected.method or 'The method'} needs {how}: metrics[{key!r}] = ...", SIGNALS)
    if need == "loss":
        return np.asarray(loss(key, metrics[key], expected))
    if need == "unprivileged":
        return np.asarray(part(key, metrics[key], examples))
    if need == "choice":
        return np.asarray(choice(metrics[key], expected))
    if need == "table":
        return table(key, metrics, examples, expected)
    if need == "valid_table":
        return table(key, metrics, None, expected)
    return cell_loss(key, metrics, examples, expected)


def loss(key: str, value: Any, expected: Expected) -> float:
    """A mean loss."""
    mean = number(key, value)
    if mean < 0:
        raise Wrong(f"sent {mean:g} as {key!r}, and a loss must be at least 0", SIGNALS)
    if mean > expected.largest_loss:
        raise Wrong(f"sent {mean:g} as {key!r}, far above what a mean loss can be ({expected.largest_loss:g})", SIGNALS)
    return mean


def part(key: str, value: Any, examples: int) -> int:
    """Some of a client's rows."""
    rows = count(key, value, SIGNALS)
    if rows > examples:
        raise Wrong(f"sent {rows:,} as {key!r}, more than its {examples:,} rows", SIGNALS)
    return rows


def choice(value: Any, expected: Expected) -> int:
    """One of several models."""
    model = number(wire.CHOICE, value)
    if model != np.floor(model) or not 0 <= model < expected.models:
        raise Wrong(f"chose model {model:g}, but there are models 0 to {expected.models - 1}", SIGNALS)
    return int(model)


def array(key: str, metrics: Mapping[str, Any], wanted: tuple[int | None, ...]) -> np.ndarray:
    """Numbers of at least 0 in a shape; None: any length."""
    try:
        found = wire.get(metrics, key)
    except ValueError as error:
        raise Wrong(f"sent {key!r} in a form that cannot be read: {error}", SIGNALS) from None
    assert found is not None  # it is there: the caller looked
    if found.ndim != len(wanted) or any(w not in (None, own) for own, w in zip(found.shape, wanted, strict=True)):
        shape, said = [*("any" if w is None else w for w in wanted)], f"{key}{wire.SHAPE}"
        raise Wrong(f"sent {key!r} with shape {list(found.shape)}, where {shape} is needed; {said!r} says the shape", SIGNALS)
    if not found.size:
        raise Wrong(f"sent {key!r} without an entry, with shape {list(found.shape)}", SIGNALS)
    if not np.isfinite(found).all() or (found < 0).any():
        raise Wrong(f"sent {key!r} with entries that are negative or not finite", SIGNALS)
    return found


def table(key: str, metrics: Mapping[str, Any], examples: int | None, expected: Expected) -> np.ndarray:
    """Counts of all rows by group, label and outcome; None: nobody says how many rows there are."""
    groups, labels = expected.cells or (None, None)
    counts = array(key, metrics, (groups, labels, labels))
    if counts.shape[1] != counts.shape[2]:
        raise Wrong(f"sent {key!r} with {counts.shape[1]} labels but {counts.shape[2]} outcomes", SIGNALS)
    if (counts != np.floor(counts)).any():
        raise Wrong(f"sent {key!r} with entries that are not whole numbers, though they count rows", SIGNALS)
    if counts.sum() > MOST_ROWS:
        raise Wrong(f"sent {key!r} that counts {counts.sum():,.0f} rows, which no client can have", SIGNALS)
    if examples is not None and counts.sum() != examples:
        raise Wrong(f"sent {key!r} that counts {counts.sum():,.0f} rows, but says that there are {examples:,}", SIGNALS)
    return counts


def cell_loss(key: str, metrics: Mapping[str, Any], examples: int, expected: Expected) -> np.ndarray:
    """Summed losses by group and label."""
    losses = array(key, metrics, expected.cells or (None, None))
    if losses.sum() > expected.largest_loss * examples:
        raise Wrong(f"sent {key!r} with a mean of {losses.sum() / examples:g} a row, far above what a loss can be", SIGNALS)
    return losses


def check_norm(metrics: Mapping[str, Any], expected: Expected) -> None:
    """Where a client tells the length of its update; it must where the server sees only a sum and the method needs it."""
    if "square_norm" in expected.needs and wire.SQUARE_NORM not in metrics:
        key, how = wire.SQUARE_NORM, wire.HOW_TO_SEND[wire.SQUARE_NORM]
        raise Wrong(f"sent no {key!r}. {expected.method or 'The method'} needs {how}: metrics[{key!r}] = ...", SIGNALS)
    if wire.SQUARE_NORM not in metrics:
        return
    square = number(wire.SQUARE_NORM, metrics[wire.SQUARE_NORM])
    if square < 0:
        raise Wrong(f"sent a negative {wire.SQUARE_NORM!r}", SIGNALS)
    if square > LARGEST_SINGLE:
        raise Wrong(f"sent {square:g} as {wire.SQUARE_NORM!r}, which is infinity in single precision", SIGNALS)


def check_coefficient(metrics: Mapping[str, Any], expected: Expected) -> None:
    """A client that multiplied its update says so: from one that does not know two-phase rounds a whole model would come."""
    if expected.coefficient is None:
        return
    key, told = wire.COEFFICIENT, np.ravel(expected.coefficient).tolist()
    if key not in metrics:
        how = "multiply trained minus received by it and repeat it"
        raise Wrong(f"sent no {key!r}. In two-phase rounds it must {how}: metrics[{key!r}] = config[{key!r}]", SIGNALS)
    sent = metrics[key]
    found = np.array([number(key, one) for one in (sent if isinstance(sent, list) else [sent])])
    if found.shape != np.shape(told) or not np.allclose(found, told, rtol=1e-5, atol=0):
        raise Wrong(f"multiplied its update by {_brief(metrics[key])}, where it was told {told if len(told) > 1 else told[0]}", SIGNALS)


def _brief(value: Any) -> str:
    """The beginning of what was sent. Python does not write whole numbers of thousands of digits."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return "a whole number beyond any float"
    return repr(value[:9] if isinstance(value, list) else value)[:60]

"""Names and formats of the records that Flower's server and clients exchange. docs/flower-record.md
documents them for users.

This module only translates between records and arrays.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any, NamedTuple

import jax
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord

from evenly import trees
from evenly.flower.aggregation import Leaves
from evenly.models.task import skeleton
from evenly.records import require
from evenly.types import Algorithm, Seeds, Task, Tree

# Message types besides Flower's own "train" and "evaluate".
CENSUS = "query.census"  # asked once, before the first round
MEASURE = "query.measure"  # the first half of a two-phase round
AUDIT = "query.audit"  # how a model, or the client's own predictions, serve its test rows
REFUSED = 901  # code of the error with which a client's policy refuses, beside Flower's own
REFUSES = "The policy of this site refuses the request: "  # how its reason begins

# Records in a message; the first two can be renamed, as in Flower's own strategies.
ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
OFFERED = "offered"  # models to choose from, where the one to train is not among them
ABOUT = "about"  # a config record in the answer to a census
# Before the name of a sensitive attribute in it: the value of each group, and the unprivileged one.
ATTRIBUTE, SIDE = "attribute ", "unprivileged "

# Entries of the config that clients are sent.
ROUND = "server-round"  # from 1
METHOD = "evenly-method"  # the algorithm in its notation
CLIENT = "client"  # the client's number
BATCH_SEED = "batch-seed"
MODEL_SEED = "model-seed"  # of a frozen network, for methods that rank edges
ROW_WEIGHTS = "row-weights"  # [groups, labels]
MODELS = "models"  # how many models the arrays hold, under names that begin with "0/", "1/", ...
GROUP = "group"  # which of several models is the client's; absent: the client chooses
COEFFICIENT = "coefficient"  # two-phase rounds: what the client multiplies its vector by
# where clients keep models of their own: whose they are, and after which round (clients.memory)
DEPLOYMENT, TRAINED = "evenly-deployment", "trained-round"

# Entries of the metrics that clients reply with.
EXAMPLES = "num-examples"
LOSS, TABLE, CELL_LOSS, UNPRIVILEGED, CHOICE = (
    "loss",
    "table",
    "cell-loss",
    "unprivileged-examples",
    "choice",
)
VALID_TABLE = "valid-table"
# of an audit: scores by the first and by the last bin of their cells, [groups, 2, bins] each
SCORE_FIRST, SCORE_LAST = "score-first", "score-last"
SQUARE_NORM = "square-norm"
CELLS, CLIENT_GROUP = "cells", "client-group"  # of a census
NUMPY = "numpy.ndarray"  # how an array is written: as NumPy saves it
SHAPE = "-shape"  # after the name of a metric that is an array, the name of its shape
MOST_SIDES, LONGEST_SIDE = 8, 2**31 - 1  # of such a shape
LONGEST_HEADER = 10_000  # bytes, of an array; NumPy reads no longer ones, either

# What a rule's needs are called on the wire. Inner products are made by the server, from the
# arrays.
SIGNALS = {
    "loss": LOSS, "table": TABLE, "valid_table": VALID_TABLE, "cell_loss": CELL_LOSS,
    "unprivileged": UNPRIVILEGED, "choice": CHOICE,
}  # fmt: skip

HOW_TO_SEND = {
    LOSS: "the mean loss of the model it received, on its training rows, before it trains",
    TABLE: (
        "counts of the received model's predictions on its training rows by group, label and "
        "outcome (wire.put does it)"
    ),
    VALID_TABLE: (
        "counts of the received model's predictions on its validation rows by group, label and "
        "outcome (wire.put does it)"
    ),
    CELL_LOSS: (
        "summed losses of the received model on its training rows by group and label "
        "(wire.put does it)"
    ),
    UNPRIVILEGED: "how many of its training rows belong to unprivileged people",
    CHOICE: "the number of the model that it chose among those it received",
    SQUARE_NORM: (
        "the squared length of its update, trained minus received, before it multiplies it by "
        "its coefficient"
    ),
    EXAMPLES: "how many training rows it has",
    CELLS: "its training rows counted by group and label (wire.put does it)",
    CLIENT_GROUP: "the number of the group that the client belongs to",
}


class Layout(NamedTuple):
    """Names, shapes and types of a model's arrays, in order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]


def names_of(tree: Tree) -> tuple[str, ...]:
    """Name of every leaf: the path to it, joined by dots, such as "w" or "layers.0.w"."""
    return tuple(
        ".".join(map(_step, path)) or "value"
        for path, _ in jax.tree_util.tree_leaves_with_path(tree)
    )


def leaves_of(tree: Tree) -> list[np.ndarray]:
    """The leaves in the order of their names."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def to_arrays(tree: Tree, prefix: str = "", dtype: Any = None) -> ArrayRecord:
    """A model as a Flower array record."""
    return record_of(
        names_of(tree),
        [leaf if dtype is None else leaf.astype(dtype) for leaf in leaves_of(tree)],
        prefix,
    )


def record_of(names: Iterable[str], leaves: Iterable[np.ndarray], prefix: str = "") -> ArrayRecord:
    return ArrayRecord(
        {prefix + name: write(np.asarray(leaf)) for name, leaf in zip(names, leaves, strict=True)}
    )


def from_arrays(arrays: ArrayRecord, like: Tree, prefix: str = "") -> Tree:
    """The model in a record, with the structure of `like`; leaves are matched by name."""
    leaves, structure = jax.tree.flatten(like)
    wanted = [prefix + name for name in names_of(like)]
    missing = [name for name in wanted if name not in arrays]
    if missing:
        raise ValueError(
            f"The model has an array {missing[0]!r}, but the record holds only"
            f" {', '.join(map(repr, arrays))}."
        )
    found = [read(arrays[name]) for name in wanted]
    for name, leaf, own in zip(wanted, leaves, found, strict=True):
        if tuple(np.shape(leaf)) != own.shape:
            raise ValueError(
                f"Array {name!r} must have shape {list(np.shape(leaf))}, got {list(own.shape)}."
            )
    return jax.tree.unflatten(
        structure, [np.asarray(own, leaf.dtype) for leaf, own in zip(leaves, found, strict=True)]
    )


def record_of_models(models: Sequence[Tree]) -> ArrayRecord:
    """Several models in one record, with names that begin with "0/", "1/" and so on."""
    return merge(to_arrays(model, prefix_of(q)) for q, model in enumerate(models))


def merge(records: Iterable[ArrayRecord]) -> ArrayRecord:
    return ArrayRecord({name: array for record in records for name, array in record.items()})


def prefix_of(model: int) -> str:
    return f"{model}/"


def are_learned(names: Sequence[str]) -> list[bool]:
    """Which of a model's arrays are learned: not the running statistics of PyTorch's normalisation
    layers, and not the state of a `trees.Stateful`.
    """
    stateful = {name.split(".", 1)[0] for name in names} == set(trees.Stateful._fields)
    return [
        name.rsplit(".", 1)[-1] not in ("running_mean", "running_var")
        and not (stateful and name.startswith("state."))
        for name in names
    ]


def layout_of(arrays: ArrayRecord) -> Layout:
    """Layout of a record, without decoding it."""
    held = arrays.values()
    return Layout(
        tuple(arrays), tuple(tuple(a.shape) for a in held), tuple(np.dtype(a.dtype) for a in held)
    )


def read(array: Array) -> np.ndarray:
    """Decode an array without copying it; the result is read-only. Raises ValueError for anything
    but plain NumPy arrays.
    """
    if array.stype != NUMPY:
        raise ValueError(f"Arrays must be written by NumPy (stype {NUMPY!r}), got {array.stype!r}.")
    shape, by_columns, dtype, start = _header(array.data[: _header_end(array.data)])
    flat = np.frombuffer(array.data, dtype, int(np.prod(shape, dtype=np.int64)), start)
    return flat.reshape(shape, order="F" if by_columns else "C")


def _header_end(data: bytes) -> int:
    """Offset of the numbers: after NumPy's magic string, version and header."""
    if data[:6] != b"\x93NUMPY" or len(data) < 12:
        raise ValueError("Arrays must be written by NumPy, but this one has another header.")
    wide = data[6] > 1
    length = int.from_bytes(data[8:12] if wide else data[8:10], "little")
    if length > LONGEST_HEADER:
        raise ValueError(
            f"The header of an array must have at most {LONGEST_HEADER:,} bytes, got {length:,}."
        )
    return (12 if wide else 10) + length


@lru_cache(maxsize=4096)
def _header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order, type and offset of the numbers. Replies of a round share their headers."""
    held = BytesIO(header)
    version = np.lib.format.read_magic(held)
    read_header = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    try:
        shape, by_columns, dtype = read_header(held)
        np.prod(shape, dtype=np.int64)
    except Exception as error:
        # NumPy reads it as Python, and whoever wrote it chooses how that fails
        raise ValueError(
            f"The header of an array cannot be read ({type(error).__name__})."
        ) from None
    if dtype.hasobject:
        raise ValueError("Arrays must hold numbers, got Python objects.")
    return shape, by_columns, dtype, len(header)


def write(array: np.ndarray) -> Array:
    """Encode an array like Flower, with one copy of its bytes instead of three."""
    header = BytesIO()
    # which would give a single number an axis
    whole = array if array.flags.c_contiguous else np.ascontiguousarray(array)
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(whole))
    data = b"".join((header.getvalue(), whole.reshape(-1).view(np.uint8).data))
    return Array(str(array.dtype), tuple(array.shape), NUMPY, data)


def put(metrics: MetricRecord | ConfigRecord | dict[str, Any], name: str, value: Any) -> None:
    """Write a number, or an array and its shape, into a reply's metrics."""
    array = np.asarray(value)
    if array.ndim == 0:
        metrics[name] = array.item()
        return
    metrics[name] = array.ravel().tolist()
    metrics[name + SHAPE] = list(array.shape)


def get(metrics: Mapping[str, Any], name: str) -> np.ndarray | None:
    """A number or an array from a reply's metrics; None if absent. Raises ValueError if array and
    shape do not fit.
    """
    if name not in metrics:
        return None
    try:
        flat = np.asarray(metrics[name], float)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name!r} must be numbers, got {type(metrics[name]).__name__}.") from None
    shape = metrics.get(name + SHAPE)
    if shape is None:
        return flat
    sides = _sides(shape)
    if sides is None or math.prod(sides) != flat.size:
        raise ValueError(
            f"{name!r} has {flat.size} entries, but {name + SHAPE!r} says {str(shape)[:60]}."
        )
    return flat.reshape(sides)


def _sides(shape: Any) -> list[int] | None:
    """A received shape as integers; None if it is not one. It is checked before anything is
    converted.
    """
    if not isinstance(shape, list | tuple) or len(shape) > MOST_SIDES:
        return None
    fine = all(
        isinstance(side, int | float) and 0 <= side <= LONGEST_SIDE and side % 1 == 0
        for side in shape
    )
    return [int(side) for side in shape] if fine else None


def _step(entry: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


# Models between the wire and a round: names and types on one side, a list of float arrays on the
# other.
#
# Entries that nobody learns are no part of the model that rules and servers see: they are carried
# along as the mean of those that counted. These are whole numbers, such as PyTorch's
# `num_batches_tracked`, and the running statistics of its normalisation layers: in an update they
# are many times as long as the weights, so that q-FedAvg would hardly step, and an optimiser's step
# can make a variance negative. Models that are kept apart keep their statistics apart, as part of
# each. Half precision travels as it is and is added up in single precision.

ENVELOPE = 1024  # bytes that an array may have besides its numbers


class Form(NamedTuple):
    """Form of a model on the wire."""

    layout: Layout
    # whether the arrays are places of edges: whole numbers, each from 0 to the size of its layer
    ranks: bool
    models: int  # that are kept apart; 0: there is one

    @property
    def moving(self) -> list[bool]:
        """Whether each array is learned."""
        names, _, dtypes = self.layout
        learned = [self.models > 0 or own for own in are_learned(names)]
        return [
            self.ranks or (dtype.kind == "f" and own)
            for dtype, own in zip(dtypes, learned, strict=True)
        ]

    def scaled(self, models: tuple[int, ...]) -> Layout:
        """Layout of coefficient times update, for each of several models: floats for any type of
        the model.
        """
        names, shapes, _ = self.layout
        prefixes = [prefix_of(q) for q in range(*models)] if models else [""]
        every = tuple(prefix + name for prefix in prefixes for name in names)
        return Layout(every, shapes * len(prefixes), (np.dtype(np.float32),) * len(every))

    def most_bytes(self, models: tuple[int, ...]) -> int:
        """Largest size in bytes of one model, or of one for each coefficient, in double
        precision.
        """
        names, shapes, _ = self.scaled(models)
        return sum(
            ENVELOPE + len(name) + 8 * math.prod(shape)
            for name, shape in zip(names, shapes, strict=True)
        )


class ModelParts(NamedTuple):
    """Arrays of a model, divided into learned and carried ones."""

    model: Leaves
    carried: Leaves


def read_initial(arrays: ArrayRecord, *, ranks: bool, apart: int) -> tuple[Form, ModelParts]:
    """Form and parts of the initial arrays. `apart` models are stacked, and are equal if the record
    holds one.
    """
    require(
        len(arrays) > 0,
        "The initial arrays must be those of the model, got none. Pass for example"
        " ArrayRecord(model.state_dict()).",
    )
    prefix = prefix_of(0)
    held = apart if any(name.startswith(prefix) for name in arrays) else 0
    one = {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if not held or name.startswith(prefix)
    }
    form = Form(layout_of(ArrayRecord(one)), ranks, apart)
    require(
        any(form.moving),
        f"None of the initial arrays {', '.join(map(repr, one))} holds floats, so there is nothing"
        " to learn.",
    )
    if not held:
        parts = _writable_parts(form, [read(array) for array in arrays.values()])
        return form, (
            parts
            if not apart
            else parts._replace(model=[np.stack([leaf] * apart) for leaf in parts.model])
        )
    require(
        list(arrays) == [prefix_of(q) + name for q in range(apart) for name in form.layout.names],
        f"The initial arrays must hold {apart} models with the same arrays each, named {prefix}...,"
        f" got {', '.join(map(repr, arrays))}.",
    )
    models = [
        _writable_parts(form, [read(arrays[prefix_of(q) + name]) for name in form.layout.names])
        for q in range(apart)
    ]
    return form, ModelParts(
        [np.stack(leaves) for leaves in zip(*(m.model for m in models), strict=True)],
        models[0].carried,
    )


def split_model(form: Form, arrays: ArrayRecord) -> ModelParts:
    """Parts of the model in a reply, without copying it."""
    found = [read(arrays[name]) for name in form.layout.names]
    return ModelParts(
        _select(found, form.moving), _select(found, [not moves for moves in form.moving])
    )


def require_task(arrays: ArrayRecord, algorithm: Algorithm, task: Task, seeds: Seeds) -> None:
    """Raise unless the initial arrays are a model of this task, or several."""
    like = skeleton(algorithm.task(task, seeds))
    several = any(name.startswith(prefix_of(0)) for name in arrays)
    from_arrays(arrays, like, prefix_of(0) if several else "")


def model_record(form: Form, parts: ModelParts, prefix: str = "") -> ArrayRecord:
    """Record of one model."""
    model, carried = iter(parts.model), iter(parts.carried)
    leaves = [next(model) if moves else next(carried) for moves in form.moving]
    return record_of(
        form.layout.names,
        [leaf.astype(t, copy=False) for leaf, t in zip(leaves, form.layout.dtypes, strict=True)],
        prefix,
    )


def models_record(form: Form, models: Leaves, carried: Leaves) -> ArrayRecord:
    """Record of several models [models, ...]."""
    return merge(
        model_record(form, ModelParts([leaf[q] for leaf in models], carried), prefix_of(q))
        for q in range(len(models[0]))
    )


def average_carried(before: Leaves, replies: Sequence[Leaves], weights: np.ndarray) -> Leaves:
    """Mean of the carried arrays of clients that count: statistics weighted by coefficients,
    integers unweighted and rounded. Unchanged if all coefficients are 0.
    """
    if not weights.any():
        return before
    shares = weights if weights.sum() > 0 and weights.min() >= 0 else np.ones(len(replies))
    return [
        _as(
            leaf,
            np.average(
                [own[i] for own in replies],
                axis=0,
                weights=shares if leaf.dtype.kind == "f" else None,
            ),
        )
        for i, leaf in enumerate(before)
    ]


def split_sum(form: Form, total: Mapping[str, np.ndarray], models: tuple[int, ...]) -> ModelParts:
    """Parts of a sum of coefficient times update: learned arrays [models, ...], and carried arrays
    summed over models.
    """
    layout = form.scaled(models)
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        given = list(total[name].shape) if name in total else None
        require(
            given == list(shape),
            f"The sum of updates must hold {name!r} with shape {list(shape)}, got {given}.",
        )
    count = len(form.layout.names)
    # one for each model
    of_each = [[total[name] for name in layout.names[i::count]] for i in range(count)]
    types = [
        np.float64 if form.ranks or dtype == np.float64 else np.float32
        for dtype in form.layout.dtypes
    ]
    whole = [
        (np.stack(sums) if models else sums[0]).astype(t)
        for sums, t in zip(of_each, types, strict=True)
    ]
    return ModelParts(
        _select(whole, form.moving),
        _select([np.sum(sums, axis=0) for sums in of_each], [not moves for moves in form.moving]),
    )


def not_finite(form: Form, models: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Arrays of NaN in place of a sum that cannot be computed."""
    names, shapes, _ = form.scaled(models)
    return {name: np.full(shape, np.nan) for name, shape in zip(names, shapes, strict=True)}


def move_carried(before: Leaves, total: Leaves, mass: float) -> Leaves:
    """Carried arrays moved by the mean of a weighted sum of changes; unchanged where that is not
    finite.
    """
    moved = [leaf + own / mass for leaf, own in zip(before, total, strict=True)]
    return [
        _as(old, new) if np.isfinite(new).all() else old
        for old, new in zip(before, moved, strict=True)
    ]


def _as(before: np.ndarray, mean: np.ndarray) -> np.ndarray:
    return (mean if before.dtype.kind == "f" else np.rint(mean)).astype(before.dtype)


def _writable_parts(form: Form, leaves: list[np.ndarray]) -> ModelParts:
    """Parts with writable copies of the learned arrays, in at least single precision."""
    return ModelParts(
        [_float(leaf) for leaf in _select(leaves, form.moving)],
        _select(leaves, [not moves for moves in form.moving]),
    )


def _select(leaves: list[np.ndarray], wanted: list[bool]) -> Leaves:
    return [leaf for leaf, own in zip(leaves, wanted, strict=True) if own]


def _float(leaf: np.ndarray) -> np.ndarray:
    return np.array(leaf, np.float64 if leaf.dtype == np.float64 else np.float32)

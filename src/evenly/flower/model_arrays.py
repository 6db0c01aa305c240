"""Models between the wire and a round: names and types on one side, a list of float arrays on the other.

Entries that nobody learns are no part of the model that rules and servers see: they are carried along as the mean of those that counted.
These are whole numbers, such as PyTorch's `num_batches_tracked`, and the running statistics of its normalisation layers: in an update they
are many times as long as the weights, so that q-FedAvg would hardly step, and an optimiser's step can make a variance negative. Models
that are kept apart keep their statistics apart, as part of each. Half precision travels as it is and is added up in single precision.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from flwr.app import ArrayRecord

from evenly.flower import wire
from evenly.flower.rounds import Leaves
from evenly.models.task import skeleton
from evenly.records import require
from evenly.types import Algorithm, Seeds, Task

ENVELOPE = 1024  # bytes that an array may have besides its numbers


class Form(NamedTuple):
    """How one model lies on the wire."""

    layout: wire.Layout
    ranks: bool  # whether the arrays are places of edges: whole numbers, each from 0 to the size of its layer
    models: int  # that are kept apart; 0: there is one

    @property
    def moving(self) -> list[bool]:
        """Which of the arrays are learned."""
        names, _, dtypes = self.layout
        learned = [self.models > 0 or not wire.is_statistic(name) for name in names]
        return [self.ranks or (dtype.kind == "f" and own) for dtype, own in zip(dtypes, learned, strict=True)]

    def scaled(self, models: tuple[int, ...]) -> wire.Layout:
        """Of coefficient times update, one for each of several models: floats, whatever the model's arrays are."""
        names, shapes, _ = self.layout
        prefixes = [wire.prefix_of(q) for q in range(*models)] if models else [""]
        every = tuple(prefix + name for prefix in prefixes for name in names)
        return wire.Layout(every, shapes * len(prefixes), (np.dtype(np.float32),) * len(every))

    def most_bytes(self, models: tuple[int, ...]) -> int:
        """Of one model, or of as many as there are coefficients: clients may send double precision for any type."""
        names, shapes, _ = self.scaled(models)
        return sum(ENVELOPE + len(name) + 8 * math.prod(shape) for name, shape in zip(names, shapes, strict=True))


class Parts(NamedTuple):
    """A model's arrays, sorted out."""

    model: Leaves
    carried: Leaves


def opened(arrays: ArrayRecord, *, ranks: bool, apart: int) -> tuple[Form, Parts]:
    """The form of a record and what it holds; `apart` models [models, ...], all equal where the record holds only one."""
    require(len(arrays) > 0, "The initial arrays are empty; give the model's, such as ArrayRecord(model.state_dict()).")
    prefix = wire.prefix_of(0)
    held = apart if any(name.startswith(prefix) for name in arrays) else 0
    one = {name.removeprefix(prefix): array for name, array in arrays.items() if not held or name.startswith(prefix)}
    form = Form(wire.layout_of(ArrayRecord(one)), ranks, apart)
    require(any(form.moving), f"None of the initial arrays {', '.join(map(repr, one))} holds floats, so there is nothing to learn.")
    if not held:
        parts = _sorted_out(form, [wire.read(array) for array in arrays.values()])
        return form, parts if not apart else parts._replace(model=[np.stack([leaf] * apart) for leaf in parts.model])
    require(
        list(arrays) == [wire.prefix_of(q) + name for q in range(apart) for name in form.layout.names],
        f"The initial arrays must hold {apart} models with the same arrays each, named {prefix}..., got {', '.join(map(repr, arrays))}.",
    )
    models = [_sorted_out(form, [wire.read(arrays[wire.prefix_of(q) + name]) for name in form.layout.names]) for q in range(apart)]
    return form, Parts([np.stack(leaves) for leaves in zip(*(m.model for m in models), strict=True)], models[0].carried)


def received(form: Form, arrays: ArrayRecord) -> Parts:
    """What a client sent back: one model, whatever it was sent; read without a copy."""
    found = [wire.read(arrays[name]) for name in form.layout.names]
    return Parts(_those(found, form.moving), _those(found, [not moves for moves in form.moving]))


def require_task(arrays: ArrayRecord, algorithm: Algorithm, task: Task, seeds: Seeds) -> None:
    """Raise unless the first arrays are a model of this task, or several."""
    like = skeleton(algorithm.task(task, seeds))
    several = any(name.startswith(wire.prefix_of(0)) for name in arrays)
    wire.from_arrays(arrays, like, wire.prefix_of(0) if several else "")


def sent(form: Form, parts: Parts, prefix: str = "") -> ArrayRecord:
    """One model as it travels."""
    model, carried = iter(parts.model), iter(parts.carried)
    leaves = [next(model) if moves else next(carried) for moves in form.moving]
    return wire.named(form.layout.names, [leaf.astype(t, copy=False) for leaf, t in zip(leaves, form.layout.dtypes, strict=True)], prefix)


def sent_several(form: Form, models: Leaves, carried: Leaves) -> ArrayRecord:
    """Models [models, ...] as they travel."""
    return wire.merged(sent(form, Parts([leaf[q] for leaf in models], carried), wire.prefix_of(q)) for q in range(len(models[0])))


def carried_on(before: Leaves, replies: Sequence[Leaves], weights: np.ndarray) -> Leaves:
    """The mean of what those who counted carry: of statistics by their weights, of whole numbers plain and rounded."""
    if not replies:
        return before
    shares = weights if weights.sum() > 0 and weights.min() >= 0 else np.ones(len(replies))
    return [
        _as(leaf, np.average([own[i] for own in replies], axis=0, weights=shares if leaf.dtype.kind == "f" else None))
        for i, leaf in enumerate(before)
    ]


def summed(form: Form, total: Mapping[str, np.ndarray], models: tuple[int, ...]) -> Parts:
    """A sum of coefficient times update: what is learned, [models, ...] where there are several, and of the rest one for all."""
    layout = form.scaled(models)
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        given = list(total[name].shape) if name in total else None
        require(given == list(shape), f"The sum of updates must hold {name!r} with shape {list(shape)}, got {given}.")
    count = len(form.layout.names)
    of_each = [[total[name] for name in layout.names[i::count]] for i in range(count)]  # one for each model
    types = [np.float64 if form.ranks or dtype == np.float64 else np.float32 for dtype in form.layout.dtypes]
    whole = [(np.stack(sums) if models else sums[0]).astype(t) for sums, t in zip(of_each, types, strict=True)]
    return Parts(_those(whole, form.moving), _those([np.sum(sums, axis=0) for sums in of_each], [not moves for moves in form.moving]))


def not_finite(form: Form, models: tuple[int, ...]) -> dict[str, np.ndarray]:
    """In place of a sum of updates that cannot be made."""
    names, shapes, _ = form.scaled(models)
    return {name: np.full(shape, np.nan) for name, shape in zip(names, shapes, strict=True)}


def carried_by(before: Leaves, total: Leaves, mass: float) -> Leaves:
    """What is not learned, moved by a sum of weighted changes: by its mean. Where that is not finite, it stays."""
    moved = [leaf + own / mass for leaf, own in zip(before, total, strict=True)]
    return [_as(old, new) if np.isfinite(new).all() else old for old, new in zip(before, moved, strict=True)]


def _as(before: np.ndarray, mean: np.ndarray) -> np.ndarray:
    return (mean if before.dtype.kind == "f" else np.rint(mean)).astype(before.dtype)


def _sorted_out(form: Form, leaves: list[np.ndarray]) -> Parts:
    """Copies that may be written to, floats in at least single precision."""
    return Parts([_float(leaf) for leaf in _those(leaves, form.moving)], _those(leaves, [not moves for moves in form.moving]))


def _those(leaves: list[np.ndarray], wanted: list[bool]) -> Leaves:
    return [leaf for leaf, own in zip(leaves, wanted, strict=True) if own]


def _float(leaf: np.ndarray) -> np.ndarray:
    return np.array(leaf, np.float64 if leaf.dtype == np.float64 else np.float32)

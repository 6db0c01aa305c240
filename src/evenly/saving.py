"""A trained model in one file, and its predictions for new rows.

A file is an npz: a JSON header (format, task, labels, encoder, leaves) and one array per leaf of the parameters. There is
no pickle in it, so reading a file cannot run code. It is written beside its place and renamed into it.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evenly.data.encoding import Categorical, Encoder, Numeric
from evenly.data.federation import Federation, as_features
from evenly.models import TASKS, Probabilistic, check_task
from evenly.models.task import skeleton
from evenly.outside import DAMAGED, check_kinds, kinds_of, plain_json, read_arrays, shortened
from evenly.parts.ranking import Supernetwork
from evenly.records import record, require, static
from evenly.types import Task, Trace, Tree
from evenly.writing import write_whole

FORMAT = 1
HEADER = {
    "task": dict[str, Any] | None, "labels": list[str], "shape": list[int], "dtype": str, "encoder": list[dict[str, Any]] | None,
    "leaves": list[dict[str, Any]],
}  # fmt: skip
STORED = {"name": str, "settings": dict[str, Any]}  # of a task
LEAF = {"path": str, "shape": list[int], "dtype": str}
MOST_TOLD = 200  # characters of what is wrong with a file
REPEATED = ("layers", "blocks")  # settings that say how often something is repeated: each time adds parameters
COLUMNS = {"numeric": Numeric, "categorical": Categorical}


@record
class Model:
    """A trained model with what it takes to use it: how rows become numbers, and what its classes are called."""

    task: Task = static()
    params: Tree
    labels: tuple[str, ...] = static()
    shape: tuple[int, ...] = static()  # of one example
    dtype: str = static(default="float32")  # of the features
    encoder: Encoder | None = static(default=None)  # None: trained on arrays

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features; empty where the model was trained on arrays."""
        return () if self.encoder is None else self.encoder.features

    def predict(self, rows: Any) -> np.ndarray:
        """The label of each row of a table (encoded as in training) or of an array of features. [n]"""
        outcome = self.task.predict(self.params, self._examples(rows))
        return np.array(self.labels)[np.asarray(outcome)]

    def probabilities(self, rows: Any) -> np.ndarray:
        """How likely each label is, in the order of `labels`. [n, classes]"""
        if not isinstance(self.task, Probabilistic):
            raise TypeError(f"{type(self.task).__name__} gives no probabilities, only labels; use predict, or train a softmax or logistic.")
        return np.asarray(self.task.probabilities(self.params, self._examples(rows)))

    def _examples(self, rows: Any) -> Any:
        if getattr(rows, "columns", None) is not None:
            if self.encoder is None:
                raise TypeError(f"This model was trained on arrays, so give an array of shape [n, {_shown(self.shape)}], not a table.")
            return jax.numpy.asarray(self.encoder.encode(rows))
        x = as_features(rows)
        if x.shape[1:] != self.shape:
            raise ValueError(f"Rows must have shape [n, {_shown(self.shape)}], as in training; got {list(x.shape)}.")
        kept = x.astype(self.dtype)
        if not np.array_equal(kept, x):
            raise ValueError(f"Features must be {self.dtype}, as in training; got {x.dtype} with values that {self.dtype} cannot hold.")
        return jax.numpy.asarray(kept)


def from_trace(trace: Trace, task: Task, federation: Federation) -> Model:
    """The model that a run ended with; where edges were ranked, the network that keeps the best of them."""
    check_task(task, federation)
    _check_leaves(_described(trace.model), _described(skeleton(task)), "The trace", type(task).__name__)
    ranked = isinstance(task, Supernetwork)
    return Model(
        task=task.inner if ranked else task,
        params=task.subnetwork(task.masks(trace.model)) if ranked else trace.model,
        labels=federation.labels,
        shape=federation.x.shape[1:],
        dtype=str(federation.x.dtype),
        encoder=federation.encoder,
    )


def models_of(trace: Trace, task: Task, federation: Federation) -> list[Model]:
    """The models that a run ended with: one, or as many as its clients are served."""
    if not trace.choice.size:
        return [from_trace(trace, task, federation)]
    count = jax.tree.leaves(trace.model)[0].shape[0]
    each = [trace._replace(model=jax.tree.map(lambda leaf, q=q: leaf[q], trace.model)) for q in range(count)]
    return [from_trace(one, task, federation) for one in each]


def save(model: Model, path: str | Path) -> None:
    """Write a model to a file, whole or not at all."""
    header = {
        "format": FORMAT,
        "task": _task_to_json(model.task),
        "labels": model.labels,
        "shape": model.shape,
        "dtype": model.dtype,
        "encoder": None if model.encoder is None else [_column_to_json(c) for c in model.encoder.columns],
        "leaves": _described(model.params),
    }
    arrays = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(model.params))}
    write_whole(Path(path), lambda file: np.savez(file, header=np.array(json.dumps(header)), **arrays))  # pyright: ignore[reportArgumentType]


def load(path: str | Path, *, task: Task | None = None) -> Model:
    """Read a model. `task` is needed where the model was the user's own: code is not stored."""
    path = Path(path)
    header, leaves = _read(path)
    found = task or _task_from_json(path, header["task"], len(leaves))
    try:
        form = skeleton(found)
    except Exception as error:  # settings of the right kinds can still make no model
        raise _damaged(path, f"its task cannot be made: {error}") from None
    _check_leaves(header["leaves"], _described(form), f"The model in {path.name}", type(found).__name__)
    columns = header["encoder"]
    try:
        model = Model(
            task=found,
            params=jax.tree.unflatten(jax.tree.structure(form), leaves),
            labels=tuple(header["labels"]),
            shape=tuple(header["shape"]),
            dtype=header["dtype"],
            encoder=None if columns is None else Encoder(columns=tuple(map(_column_from_json, columns))),
        )
        if task is None:
            _check_use(model)
    except Exception as error:  # whatever a header of the right kinds can still make wrong
        raise _damaged(path, f"{type(error).__name__}: {error}") from None
    return model


def _check_use(model: Model) -> None:
    """Refuse a model that could not predict: features and labels that its parameters do not fit."""
    classes = getattr(model.task, "classes", getattr(model.task, "symbols", 2))
    require(len(model.labels) == classes, f"it has {len(model.labels)} labels for {classes} classes")
    named = model.encoder is None or model.shape == (len(model.features),)
    require(named, f"it names {len(model.features)} features for rows of shape {shortened(list(model.shape))}")
    jax.eval_shape(model.task.predict, model.params, jax.ShapeDtypeStruct((1, *model.shape), np.dtype(model.dtype)))


def _damaged(path: Path, why: str) -> ValueError:
    return ValueError(
        f"{path.name} is not a whole model file written by evenly.save ({why if len(why) <= 200 else why[:200] + '…'}); save it again."
    )


def _read(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    if not path.is_file():
        raise FileNotFoundError(f"There is no model file {str(path)!r}. Give the path that evenly.save wrote.")
    try:
        arrays = read_arrays(path)
        header = plain_json(str(arrays.pop("header")))
        check_kinds({"header": header}, {"header": dict[str, Any]})
        check_kinds(header, {"format": int})
        newest = header["format"]
    except DAMAGED as error:
        raise _damaged(path, type(error).__name__ if not str(error) else str(error)) from None
    if newest > FORMAT:
        raise ValueError(f"{path.name} has format {shortened(newest)}, but this evenly reads up to {FORMAT}. Update evenly to read it.")
    try:
        check_kinds(header, HEADER)
        require(HEADER.keys() <= header.keys() and len(header["leaves"]) == len(arrays), "its header is incomplete")
        return header, [_leaf(arrays[f"leaf{i}"], described) for i, described in enumerate(header["leaves"])]
    except DAMAGED as error:
        raise _damaged(path, str(error)) from None


def _leaf(array: np.ndarray, described: dict[str, Any]) -> np.ndarray:
    """A parameter as its header describes it. npz knows only NumPy's own types: bfloat16, say, comes back as plain bytes."""
    require(LEAF.keys() == described.keys(), "a parameter is not described")
    check_kinds(described, LEAF)
    found = array.view(jax.numpy.dtype(described["dtype"]))
    require(list(found.shape) == described["shape"], f"a parameter has shape {list(found.shape)}, not {shortened(described['shape'])}")
    return found


def _described(params: Tree) -> list[dict[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return [{"path": jax.tree_util.keystr(at), "shape": list(leaf.shape), "dtype": str(leaf.dtype)} for at, leaf in leaves]


def _check_leaves(found: list[dict[str, Any]], wanted: list[dict[str, Any]], what: str, task: str) -> None:
    if found != wanted:
        raise ValueError(
            f"{what} must have the parameters that {task} has ({_listed(wanted)}), but has {_listed(found)}. "
            "Use the task that it was trained with."
        )


def _listed(leaves: list[dict[str, Any]]) -> str:
    shown = ", ".join(f"{d['path'][:60]} {d['dtype']}{d['shape']}" for d in leaves[:6])
    return f"{shown}, and {len(leaves) - 6} more" if len(leaves) > 6 else shown


def _shown(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


def _task_to_json(task: Task) -> dict[str, Any] | None:
    for name, kind in TASKS.items():
        if type(task) is kind:
            settings = {f.name: getattr(task, f.name) for f in dataclasses.fields(kind)}
            return {
                "name": name,
                "settings": {k: v if v is None or isinstance(v, str | int | tuple) else float(v) for k, v in settings.items()},
            }
    return None


def _task_from_json(path: Path, stored: dict[str, Any] | None, leaves: int) -> Task:
    if stored is None:
        raise ValueError(f"{path.name} holds a model of your own, whose code is not stored. Give it again: load(path, task=...).")
    try:
        require(STORED.keys() == stored.keys(), "its task has no name or no settings")
        check_kinds(stored, STORED)
        if stored["name"] in TASKS:
            kind = TASKS[stored["name"]]
            settings = {k: tuple(v) if isinstance(v, list) else v for k, v in stored["settings"].items()}
            check_kinds(settings, kinds_of(kind))
            often = sum(int(np.sum(settings.get(name, 0))) for name in REPEATED)
            require(often <= leaves, f"it has {leaves} parameters, too few for {often:,} layers")
            return kind(**settings)
    except (ValueError, TypeError, OverflowError) as error:
        raise _damaged(path, str(error)) from None
    raise ValueError(
        f"{path.name} holds a {shortened(stored['name'])} model, which this evenly does not know; it knows {', '.join(TASKS)}."
    )


def _column_to_json(column: Numeric | Categorical) -> dict[str, Any]:
    kind = next(name for name, cls in COLUMNS.items() if isinstance(column, cls))
    return {"kind": kind, **{f.name: getattr(column, f.name) for f in dataclasses.fields(column)}}  # pyright: ignore[reportArgumentType]


def _column_from_json(stored: dict[str, Any]) -> Numeric | Categorical:
    kind = COLUMNS[stored["kind"]]
    settings = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items() if k != "kind"}
    check_kinds(settings, kinds_of(kind))
    return kind(**settings)

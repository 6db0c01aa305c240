"""Save trained models, load them, and predict with them.

A saved model is an archive (`evenly.archives`) whose header describes the task, the labels, the
encoder and the parameters.
"""

import dataclasses
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evenly.archives import Archive, DamagedError, leaves_of, read_archive, write_archive
from evenly.data.encoding import Categorical, Encoder, Numeric, TableColumn, as_features, as_pandas
from evenly.data.federation import Federation
from evenly.models import TASKS, Augmented, Probabilistic, check_task
from evenly.models.task import refuse_other_objects, skeleton
from evenly.parts.ranking import Supernetwork
from evenly.records import record, require, static
from evenly.types import Task, Trace, Tree
from evenly.validation import check_kinds, kinds_of, listed_names, shortened

FORMAT = 1
HEADER = {
    "format": int, "task": dict[str, Any] | None, "labels": list[str], "shape": list[int],
    "dtype": str, "encoder": list[dict[str, Any]] | None, "leaves": list[dict[str, Any]],
}  # fmt: skip
STORED = {"name": str, "settings": dict[str, Any]}  # of a task
LEAF = {"path": str, "shape": list[int], "dtype": str}
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")  # a label that is a whole number, as numbers are written
REPEATED = ("layers", "blocks")  # settings that count repeated layers, each of which has parameters
COLUMNS = {"numeric": Numeric, "categorical": Categorical}


@record
class Model:
    """A trained model, the encoding of its features and the names of its classes. `from_trace` and
    `load` return models.

    Args:
        task: Model and loss.
        params: Trained parameters of the task.
        labels: Names of the classes, by class number, as text.
        shape: Shape of one example.
        dtype: Type of the features.
        encoder: Encoding of a table's columns as features; None if the model was trained on arrays.

    Example:
        >>> from evenly.models import Logistic
        >>> params = {"w": np.array([1.0, -1.0], np.float32), "b": np.zeros((), np.float32)}
        >>> task = Logistic(features=2)
        >>> model = Model(task=task, params=params, labels=("no", "yes"), shape=(2,))
        >>> model.predict([[3.0, 1.0], [1.0, 3.0]]).tolist()
        ['yes', 'no']
    """

    task: Task = static()
    params: Tree
    labels: tuple[str, ...] = static()
    shape: tuple[int, ...] = static()
    dtype: str = static(default="float32")
    encoder: Encoder | None = static(default=None)

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape))
        named = f" ({listed_names(self.features)})" if self.features else ""
        labels = listed_names(self.labels)
        return f"Model: {type(self.task).__name__} of {size} features{named}; labels {labels}"

    @property
    def classes(self) -> np.ndarray:
        """The labels by class number, as `predict` returns them.

        Example:
            >>> from evenly.models import Logistic
            >>> params = {"w": np.ones(1, np.float32), "b": np.zeros((), np.float32)}
            >>> task = Logistic(features=1)
            >>> Model(task=task, params=params, labels=("0", "1"), shape=(1,)).classes
            array([0, 1])
        """
        if all(WHOLE.fullmatch(label) for label in self.labels):
            return np.array([int(label) for label in self.labels])
        if set(self.labels) <= {"False", "True"}:
            return np.array([label == "True" for label in self.labels])
        return np.array(self.labels)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features; empty if the model was trained on arrays."""
        return () if self.encoder is None else self.encoder.features

    def predict(self, rows: Any) -> np.ndarray:
        """Predict the label of each row.

        Args:
            rows: If the model was trained on a table, a table with the same columns, which are
                encoded as in training. An array then holds encoded features in float32, as
                `Federation.x` does. Otherwise an array of features [n, ...].

        Returns:
            Labels [n]: whole numbers or booleans if all labels of the training data are, otherwise
            text.

        Raises:
            TypeError: If `rows` is a table and the model was trained on arrays, or the reverse.
            ValueError: If columns are missing, or rows have another shape or type than in training.
        """
        return self.classes[self._outcome(rows)]

    def _outcome(self, rows: Any) -> np.ndarray:
        """The class number of each row."""
        return np.asarray(self.task.predict(self.params, self._examples(rows)))

    def probabilities(self, rows: Any) -> np.ndarray:
        """Predict the probability of each label.

        Args:
            rows: As for `predict`.

        Returns:
            Probabilities [n, classes], in the order of `labels`.

        Raises:
            TypeError: If the task has no probabilities, as a support vector machine; otherwise as
                `predict`.
            ValueError: As `predict`.
        """
        if not isinstance(self.task, Probabilistic):
            raise TypeError(
                f"{type(self.task).__name__} has no probabilities, only labels. Use predict, or"
                " train a softmax or logistic."
            )
        return np.asarray(self.task.probabilities(self.params, self._examples(rows)))

    def predict_proba(self, rows: Any) -> np.ndarray:
        """The same as `probabilities`, under scikit-learn's name."""
        return self.probabilities(rows)

    def score(self, rows: Any, labels: Any) -> float:
        """The share of rows whose label is predicted, as scikit-learn's classifiers compute it.

        Args:
            rows: As for `predict`.
            labels: The true label of each row, as text or in the type of the training labels.

        Returns:
            The accuracy, from 0 to 1.

        Raises:
            TypeError: As `predict`.
            ValueError: If there is not one label for each row, or a label does not occur in
                `Model.labels`; otherwise as `predict`.

        Example:
            >>> import evenly
            >>> results = evenly.compare("synthetic(clients=5)", "fedavg", rounds=2, seeds=1)
            >>> federation, model = results.federation, results.model()
            >>> labels = [federation.labels[number] for number in federation.y]
            >>> 0 <= model.score(federation.x, labels) <= 1
            True
        """
        true = TableColumn.of("The labels", as_pandas(labels)).words()
        predicted = np.array(self.labels)[self._outcome(rows)]
        require(
            0 < len(predicted) == len(true),
            f"There must be one label for each of the {len(predicted):,} rows, and at least one"
            f" row, got {len(true):,} labels.",
        )
        unknown = sorted(set(true.tolist()) - set(self.labels))
        require(
            not unknown,
            f"Labels must be among {', '.join(self.labels[:20])}, got {', '.join(unknown[:5])}.",
        )
        return float((predicted == true).mean())

    def to_torch(self) -> dict[str, Any]:
        """Return the weights as a state dict of PyTorch, for a model of `evenly.from_torch`.

        Returns:
            Tensors by name: ``module.load_state_dict(model.to_torch())``.

        Raises:
            TypeError: If the model was not made of a PyTorch module.
        """
        if not hasattr(self.task, "to_torch"):
            raise TypeError(
                f"{type(self.task).__name__} was not made of a PyTorch module. Only models of"
                " evenly.from_torch become state dicts; `params` has the arrays of any model."
            )
        return self.task.to_torch(self.params)  # pyright: ignore[reportAttributeAccessIssue]

    def _examples(self, rows: Any) -> Any:
        if getattr(rows, "columns", None) is not None:
            if self.encoder is None:
                raise TypeError(
                    "This model was trained on arrays, so rows must be an array of shape [n,"
                    f" {_shown(self.shape)}], not a table."
                )
            return jax.numpy.asarray(self.encoder.encode(as_pandas(rows)))
        if self.encoder is not None and getattr(rows, "dtype", None) != np.float32:
            names = listed_names(tuple(str(column.name) for column in self.encoder.columns))
            raise TypeError(
                f"This model was trained on a table, so rows must be a table with the columns"
                f" {names}, got a {type(rows).__name__}. An array of features that are encoded, as"
                " in Federation.x, must have the type float32."
            )
        x = as_features(rows)
        if x.shape[1:] != self.shape:
            raise ValueError(
                f"Rows must have shape [n, {_shown(self.shape)}], as in training; got"
                f" {list(x.shape)}."
            )
        converted = x.astype(self.dtype)
        if not np.array_equal(converted, x):
            raise ValueError(
                f"Features must be {self.dtype}, as in training; got {x.dtype} with values that"
                f" {self.dtype} cannot hold."
            )
        return jax.numpy.asarray(converted)


def from_trace(trace: Trace, task: Task, federation: Federation) -> Model:
    """The final model of a run, ready for predictions and for `save`.

    Args:
        trace: Result of a run, as `evenly.train` returns it.
        task: Task that was trained. For methods that rank edges, `Algorithm.task` gives it, and the
            model keeps the best edges.
        federation: Data that the run was trained on. They determine labels, shapes and the encoding
            of tables.

    Returns:
        The model.

    Raises:
        ValueError: If task and federation do not fit, or the trace holds the parameters of another
            task.

    Example:
        >>> import evenly
        >>> federation = evenly.synthetic(clients=20)
        >>> task = evenly.models.Softmax(features=60, classes=10)
        >>> (trace,) = evenly.train(task, federation, "fedavg", rounds=1)
        >>> evenly.from_trace(trace, task, federation).predict(federation.x[:4]).shape
        (4,)
    """
    check_task(task, federation)
    _check_leaves(
        _described(trace.model), _described(skeleton(task)), "The trace", type(task).__name__
    )
    task = _plain(task)
    ranked = isinstance(task, Supernetwork)
    return Model(
        task=task.inner if ranked else task,
        params=task.subnetwork(task.masks(trace.model)) if ranked else trace.model,
        labels=federation.labels,
        shape=federation.x.shape[1:],
        dtype=str(federation.x.dtype),
        encoder=federation.encoder,
    )


def _plain(task: Task) -> Task:
    """The task without augmentations: predictions see rows as they are."""
    while isinstance(task, Augmented):
        task = task.task
    return task


def models_of(trace: Trace, task: Task, federation: Federation) -> list[Model]:
    """The final models of a run: one, or several if the method trains several."""
    if not trace.choice.size:
        return [from_trace(trace, task, federation)]
    count = jax.tree.leaves(trace.model)[0].shape[0]
    each = [
        trace._replace(model=jax.tree.map(lambda leaf, q=q: leaf[q], trace.model))
        for q in range(count)
    ]
    return [from_trace(one, task, federation) for one in each]


def save(model: Model, path: str | Path) -> None:
    """Write a model to a file, atomically: the file is complete or unchanged.

    Args:
        model: Model to save.
        path: File to write, usually named ``*.npz``. Missing folders are created.

    Raises:
        OSError: If the file cannot be written.

    Example:
        >>> import evenly, tempfile
        >>> from evenly.models import Logistic
        >>> params = {"w": np.ones(2, np.float32), "b": np.zeros((), np.float32)}
        >>> path = f"{tempfile.mkdtemp()}/model.npz"
        >>> task = Logistic(features=2)
        >>> evenly.save(Model(task=task, params=params, labels=("no", "yes"), shape=(2,)), path)
        >>> evenly.load(path).labels
        ('no', 'yes')
    """
    entries = {
        "task": _task_to_json(model.task),
        "labels": model.labels,
        "shape": model.shape,
        "dtype": model.dtype,
        "encoder": (
            None if model.encoder is None else [_column_to_json(c) for c in model.encoder.columns]
        ),
        "leaves": _described(model.params),
    }
    write_archive(Path(path), leaves_of(model.params), entries, format=FORMAT)


def load(path: str | Path, *, task: Task | None = None) -> Model:
    """Read a model that `save` wrote. Nothing in the file is executed.

    Args:
        path: File to read.
        task: Task of the model. Required for models of your own, whose code is not stored;
            otherwise taken from the file.

    Returns:
        The model.

    Raises:
        FileNotFoundError: If there is no file.
        TypeError: If `task` is not a task.
        ValueError: If the file is damaged, has a newer format, or does not fit the task.

    Example:
        >>> import evenly, tempfile
        >>> from evenly.models import Logistic
        >>> params = {"w": np.ones(2, np.float32), "b": np.zeros((), np.float32)}
        >>> path = f"{tempfile.mkdtemp()}/model.npz"
        >>> task = Logistic(features=2)
        >>> evenly.save(Model(task=task, params=params, labels=("no", "yes"), shape=(2,)), path)
        >>> evenly.load(path).task
        Logistic(features=2, joint=True, reduction='mean', start='zero')
    """
    path = Path(path)
    header, leaves = _read(path)
    if task is not None:
        refuse_other_objects(task)
        task = _plain(task)
    task_used = task or _task_from_json(path, header["task"], len(leaves))
    try:
        form = skeleton(task_used)
    except Exception as error:  # settings of the right kinds can still make no model
        raise _damaged(path, f"its task cannot be created: {error}") from None
    _check_leaves(
        header["leaves"], _described(form), f"The model in {path.name}", type(task_used).__name__
    )
    columns = header["encoder"]
    try:
        model = Model(
            task=task_used,
            params=jax.tree.unflatten(jax.tree.structure(form), leaves),
            labels=tuple(header["labels"]),
            shape=tuple(header["shape"]),
            dtype=header["dtype"],
            encoder=(
                None if columns is None else Encoder(columns=tuple(map(_column_from_json, columns)))
            ),
        )
        if task is None:
            _check_use(model)
    except Exception as error:  # entries of the right kinds can still contradict each other
        raise _damaged(path, f"{type(error).__name__}: {error}") from None
    return model


def _check_use(model: Model) -> None:
    """Refuse a model whose features or labels do not fit its parameters."""
    classes = getattr(model.task, "classes", getattr(model.task, "symbols", 2))
    require(
        len(model.labels) == classes, f"it has {len(model.labels)} labels for {classes} classes"
    )
    named = model.encoder is None or model.shape == (len(model.features),)
    require(
        named,
        f"it names {len(model.features)} features for rows of shape {shortened(list(model.shape))}",
    )
    jax.eval_shape(
        model.task.predict,
        model.params,
        jax.ShapeDtypeStruct((1, *model.shape), np.dtype(model.dtype)),
    )


def _damaged(path: Path, why: str) -> ValueError:
    return ValueError(
        f"{path.name} is not a whole model file written by evenly.save"
        f" ({why if len(why) <= 200 else why[:200] + '…'}); save it again."
    )


def _read(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no model file {str(path)!r}. Pass the path that evenly.save wrote."
        )
    try:
        return read_archive(path, _parsed, newest=FORMAT)
    except DamagedError as error:
        raise _damaged(path, str(error)) from None


def _parsed(archive: Archive) -> tuple[dict[str, Any], list[np.ndarray]]:
    header, leaves = archive.header, archive.leaves()
    check_kinds(header, HEADER, complete=True)
    return header, [
        _leaf(leaf, described) for leaf, described in zip(leaves, header["leaves"], strict=True)
    ]


def _leaf(array: np.ndarray, described: dict[str, Any]) -> np.ndarray:
    """A parameter with the type that its header describes: npz files store types that NumPy lacks,
    such as bfloat16, as plain bytes.
    """
    require(LEAF.keys() == described.keys(), "a parameter is not described")
    check_kinds(described, LEAF)
    leaf = array.view(jax.numpy.dtype(described["dtype"]))
    require(
        list(leaf.shape) == described["shape"],
        f"a parameter has shape {list(leaf.shape)}, not {shortened(described['shape'])}",
    )
    return leaf


def _described(params: Tree) -> list[dict[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return [
        {"path": jax.tree_util.keystr(at), "shape": list(leaf.shape), "dtype": str(leaf.dtype)}
        for at, leaf in leaves
    ]


def _check_leaves(
    leaves: list[dict[str, Any]], expected: list[dict[str, Any]], what: str, task: str
) -> None:
    if leaves != expected:
        raise ValueError(
            f"{what} must have the parameters that {task} has ({_listed(expected)}), but has"
            f" {_listed(leaves)}. Use the task that it was trained with."
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
                "settings": {
                    k: v if v is None or isinstance(v, str | int | tuple) else float(v)
                    for k, v in settings.items()
                },
            }
    return None


def _task_from_json(path: Path, stored: dict[str, Any] | None, leaves: int) -> Task:
    if stored is None:
        raise ValueError(
            f"{path.name} holds a model of your own, whose code is not stored. Pass the task that"
            " was trained with `task=...`."
        )
    try:
        require(STORED.keys() == stored.keys(), "its task has no name or no settings")
        check_kinds(stored, STORED)
        if stored["name"] in TASKS:
            kind = TASKS[stored["name"]]
            settings = {
                k: tuple(v) if isinstance(v, list) else v for k, v in stored["settings"].items()
            }
            check_kinds(settings, kinds_of(kind))
            often = sum(int(np.sum(settings.get(name, 0))) for name in REPEATED)
            require(often <= leaves, f"it has {leaves} parameters, too few for {often:,} layers")
            return kind(**settings)
    except (ValueError, TypeError, OverflowError) as error:
        raise _damaged(path, str(error)) from None
    raise ValueError(
        f"{path.name} holds a {shortened(stored['name'])} model, which this version of evenly does"
        f" not have. It has {', '.join(TASKS)}."
    )


def _column_to_json(column: Numeric | Categorical) -> dict[str, Any]:
    kind = next(name for name, cls in COLUMNS.items() if isinstance(column, cls))
    return {
        "kind": kind,
        **{f.name: getattr(column, f.name) for f in dataclasses.fields(column)},
    }  # pyright: ignore[reportArgumentType]


def _column_from_json(stored: dict[str, Any]) -> Numeric | Categorical:
    kind = COLUMNS[stored["kind"]]
    settings = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items() if k != "kind"}
    check_kinds(settings, kinds_of(kind))
    return kind(**settings)

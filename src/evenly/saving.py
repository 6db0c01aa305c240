"""Archives of arrays, and trained models that are saved in them.

An *archive* is an npz file with a JSON header and named arrays. Checkpoints of simulations, stored
traces, states of deployments and trained models are archives. The header holds a format number, a
fingerprint where the file belongs to one particular run, and further entries. An archive is written
to a temporary file and renamed, so it is complete or absent. Reading an archive never unpickles
anything and refuses arrays that are larger than the file before memory is allocated for them.

A saved model is an archive whose header describes the task, the labels, the encoder and the
parameters.
"""

import dataclasses
import json
import math
import threading
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from evenly.data.encoding import Categorical, Encoder, Numeric
from evenly.data.federation import Federation, as_features
from evenly.models import TASKS, Probabilistic, check_task
from evenly.models.task import skeleton
from evenly.outside import check_kinds, kinds_of, plain_json, shortened
from evenly.parts.ranking import Supernetwork
from evenly.records import record, require, static
from evenly.types import Task, Trace, Tree
from evenly.writing import write_whole

T = TypeVar("T")

DEFLATE = 1032  # largest number of bytes that one compressed byte can expand to
# NumPy parses the header of an array as Python source, which fails in some Python versions when two
# threads do it at once (CPython issue 106905).
_READING = threading.Lock()
# What reading a damaged npz file raises. NotImplementedError: a flipped bit can name a compression
# that zipfile does not support.
_DAMAGE = (
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    OSError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    SyntaxError,
)


class DamagedError(ValueError):
    """A file is not a complete archive with the expected contents."""


class Archive(NamedTuple):
    """Contents of an archive: the entries of its header, and its arrays by name."""

    header: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def leaves(self) -> list[np.ndarray]:
        """Arrays of an archive that was written with `leaves_of`, in order."""
        return [self.arrays[f"leaf{i}"] for i in range(len(self.arrays))]


def leaves_of(tree: Tree) -> dict[str, np.ndarray]:
    """Leaves of a pytree under the names that `Archive.leaves` expects."""
    return {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def write_archive(
    path: Path,
    arrays: Mapping[str, Any],
    entries: Mapping[str, Any],
    *,
    format: int = 0,
    fingerprint: str = "",
    compress: bool = False,
) -> Path:
    """Write arrays and a header to an npz file, atomically.

    Args:
        path: File to write. An existing file is replaced once the new one is complete.
        arrays: Arrays by name. The name "header" is reserved.
        entries: Further entries of the header; values that JSON can represent.
        format: Format number. 0 writes none: for formats whose older readers refuse additional
            entries.
        fingerprint: Identifies the run that the file belongs to. An empty fingerprint is not
            written.
        compress: Whether to compress the arrays.

    Returns:
        The path.
    """
    header = {
        **({"format": format} if format else {}),
        **({"fingerprint": fingerprint} if fingerprint else {}),
        **entries,
    }
    save: Callable[..., None] = np.savez_compressed if compress else np.savez
    return write_whole(path, lambda file: save(file, header=np.array(json.dumps(header)), **arrays))


def read_archive(path: Path, parse: Callable[[Archive], T], *, newest: int = 0) -> T:
    """Read an archive and return `parse` of its contents.

    Args:
        path: File to read.
        parse: Turns the contents into the result. Any error that unexpected contents cause in it
            (ValueError, KeyError, TypeError) is reported as damage.
        newest: Largest format number that `parse` reads. Files without a format number have format
            0.

    Raises:
        DamagedError: If the file is not a complete archive, or `parse` fails. The message is the
            reason.
        ValueError: If the file has a newer format.
    """
    try:
        arrays = _read_arrays(path)
        header = plain_json(str(arrays.pop("header")))
        check_kinds({"header": header}, {"header": dict[str, Any]})
        check_kinds(header, {"format": int, "fingerprint": str})
        if header.get("format", 0) <= newest:
            return parse(Archive(header, arrays))
    except _DAMAGE as error:
        raise DamagedError(str(error) or type(error).__name__) from None
    raise ValueError(
        f"{str(path)!r} has format {shortened(header['format'])}, but this version of evenly reads"
        f" up to format {newest}. Update evenly."
    )


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an npz file, after each member's claimed size was checked."""
    size = path.stat().st_size
    with _READING, open(path, "rb") as raw:  # numpy leaves a damaged file open
        with zipfile.ZipFile(raw) as packed:
            for member in packed.infolist():
                _check_member(packed, member, size)
        raw.seek(0)
        with np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}


def _check_member(packed: zipfile.ZipFile, member: zipfile.ZipInfo, size: int) -> None:
    """Refuse an array whose shape claims a different number of bytes than its part of the file
    holds.
    """
    stored = member.compress_type == zipfile.ZIP_STORED
    if member.compress_size > size or member.file_size > (
        member.compress_size if stored else DEFLATE * member.compress_size + 64
    ):
        raise ValueError(
            f"{member.filename} claims {member.file_size:,} bytes, more than the file can hold."
        )
    with packed.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
        held = member.file_size - file.tell()
    needed = dtype.itemsize * math.prod(map(int, shape))  # Python integers do not overflow
    if dtype.hasobject or any(length < 0 for length in shape) or needed != held:
        raise ValueError(
            f"{member.filename} claims shape {shortened(shape)} of {dtype}, {needed:,} bytes, but"
            f" holds {held:,}."
        )


# Trained models.

FORMAT = 1
HEADER = {
    "format": int, "task": dict[str, Any] | None, "labels": list[str], "shape": list[int],
    "dtype": str, "encoder": list[dict[str, Any]] | None, "leaves": list[dict[str, Any]],
}  # fmt: skip
STORED = {"name": str, "settings": dict[str, Any]}  # of a task
LEAF = {"path": str, "shape": list[int], "dtype": str}
REPEATED = ("layers", "blocks")  # settings that count repeated layers, each of which has parameters
COLUMNS = {"numeric": Numeric, "categorical": Categorical}


@record
class Model:
    """A trained model, the encoding of its features and the names of its classes. `from_trace` and
    `load` return models.

    Args:
        task: Model and loss.
        params: Trained parameters of the task.
        labels: Names of the classes, by class number.
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

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features; empty if the model was trained on arrays."""
        return () if self.encoder is None else self.encoder.features

    def predict(self, rows: Any) -> np.ndarray:
        """Predict the label of each row.

        Args:
            rows: A table, which is encoded as in training, or an array of features [n, ...].

        Returns:
            Labels, text [n].

        Raises:
            TypeError: If `rows` is a table and the model was trained on arrays.
            ValueError: If columns are missing, or rows have another shape or type than in training.
        """
        outcome = self.task.predict(self.params, self._examples(rows))
        return np.array(self.labels)[np.asarray(outcome)]

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

    def _examples(self, rows: Any) -> Any:
        if getattr(rows, "columns", None) is not None:
            if self.encoder is None:
                raise TypeError(
                    "This model was trained on arrays, so rows must be an array of shape [n,"
                    f" {_shown(self.shape)}], not a table."
                )
            return jax.numpy.asarray(self.encoder.encode(rows))
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
        ValueError: If the file is damaged, has a newer format, or does not fit the task.
    """
    path = Path(path)
    header, leaves = _read(path)
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
            f"{path.name} holds a model of your own, whose code is not stored. Pass it again:"
            " load(path, task=...)."
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

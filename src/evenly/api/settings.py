"""Arguments of `evenly.compare` and `evenly.tune`, and the plans that are made of them."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

import numpy as np

from evenly.algorithms import Method, Variant
from evenly.data.arrow import as_table, is_frame
from evenly.data.examples import ExampleRoles, is_dataset, table_of
from evenly.data.federation import Federation
from evenly.datasets.load import SPLIT_ANEW, is_table, table_source
from evenly.experiment.plan import Plan, seeds_of
from evenly.experiment.python_objects import (
    REFERENCE,
    PlanObjects,
    reference_of,
    stored_federation,
    stored_method,
    stored_model,
)
from evenly.notation import parse_one, unknown
from evenly.plugins import load_files
from evenly.types import Algorithm, Task
from evenly.validation import shortened

F = TypeVar("F", bound=Callable[..., Any])


class ColumnSettings(NamedTuple):
    """The columns of a table, for data that are a DataFrame or a file."""

    client: str | None = None
    label: str | None = None
    sensitive: str | Sequence[str] | None = None
    favourable: Any = None
    unprivileged: Any = None
    features: str | Sequence[str] | None = None
    drop: str | Sequence[str] | None = None
    split: str | None = None
    client_group: str | None = None
    name: str = "table"


class TrainingSettings(NamedTuple):
    """How methods are trained. The numbers hold for methods whose notation does not set them."""

    rounds: int = 2000
    seeds: int | Sequence[int] = 3
    model: str | Task = ""
    sampling: str = "weighted(clients=10)"
    learning_rate: float = 0.1
    batch_size: int = 10
    epochs: int = 1
    dropout: float = 0.0
    evaluate_every: int = 0


def with_settings(*records: type) -> Callable[[F], F]:
    """Decorate a function whose keyword arguments are the fields of records. They appear in its
    signature, and an unknown name is refused with the most similar one.
    """
    fields = {name: (record, name) for record in records for name in record._fields}  # type: ignore[attr-defined]

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        fixed = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=record._field_defaults[name],
                annotation=get_type_hints(record)[name],
            )
            for name, (record, _) in fields.items()
        ]
        known = [*(parameter.name for parameter in fixed), *fields]

        @functools.wraps(function)
        def checked(*arguments: Any, **settings: Any) -> Any:
            for name in settings:
                if name not in known:
                    raise TypeError(
                        f"{function.__name__}: {unknown('argument', name, known)}"
                    ) from None
            return function(*arguments, **settings)

        checked.__signature__ = own.replace(parameters=[*fixed, *added])  # type: ignore[attr-defined]
        return checked  # type: ignore[return-value]

    return decorate


R = TypeVar("R")
MethodLike = str | Algorithm | Variant


def record_of(record: type[R], settings: Mapping[str, Any]) -> R:
    """The fields of a record among other settings."""
    return record(**{name: settings[name] for name in record._fields if name in settings})  # type: ignore[attr-defined]


def plan_comparison(
    data: Any, methods: Any, settings: Mapping[str, Any], plugins: Iterable[str | Path] = ()
) -> Plan:
    """The plan of a comparison."""
    files = load_files(plugins)
    training = record_of(TrainingSettings, settings)
    source, held = source_of(data, record_of(ColumnSettings, settings))
    texts, algorithms = methods_of(methods)
    fields = plan_fields(training, held)
    if algorithms:
        own = {label: stored_method(one) for label, one in algorithms.items()}
        fields["own"]["methods"] = own
        fields["objects"] = fields["objects"]._replace(methods=algorithms)
    return Plan(name="compare", data=source, methods=texts, plugins=files, **fields)


def plan_fields(training: TrainingSettings, held: Any = None) -> dict[str, Any]:
    """The fields of a plan that say how its methods are trained. `held` is the object that holds
    the data, if they are not a file or a data set.
    """
    model, task = model_of(training.model)
    return {
        "rounds": training.rounds,
        "seeds": seeds_of(training.seeds),
        "model": model,
        "sampling": training.sampling,
        "training": {
            "learning_rate": training.learning_rate,
            "batch_size": training.batch_size,
            "epochs": training.epochs,
        },
        "evaluate_every": training.evaluate_every,
        "dropout": training.dropout,
        "own": {} if task is None else {"model": stored_model(task)},
        "objects": PlanObjects(held, task),
    }


def source_of(data: Any, columns: ColumnSettings) -> tuple[dict[str, Any], Any]:
    """A plan's `data`, and the object that it describes if it is not a file or a data set."""
    if isinstance(data, str | Path) and is_table(str(data)):
        return table_source(str(data), **_columns(columns)), None
    if is_frame(data):
        frame, reference = as_table(data), reference_of(data)
        source = table_source(frame, **_columns(columns))
        return source | ({REFERENCE: reference} if reference else {}), frame
    if is_dataset(data):
        return _dataset_source(data, columns)
    if not isinstance(data, str | Federation | Mapping):
        arrays = " For arrays pass evenly.Federation.from_arrays(x, y, client)."
        raise TypeError(
            "data must be a DataFrame, the path of a .csv or .parquet file or of a Parquet folder,"
            " a Dataset, a Federation, or the name of a data set such as 'synthetic', got"
            f" {_data_words(data)}.{arrays * isinstance(data, tuple | list | np.ndarray)}"
        )
    defaults = ColumnSettings()._asdict()
    names = [name for name, value in columns._asdict().items() if value != defaults[name]]
    if names:
        raise ValueError(
            f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} for a table, but the data"
            f" are {_data_words(data)}. Pass a DataFrame, or the path of a .csv or .parquet file."
        )
    if isinstance(data, Federation):
        return dict(stored_federation(data)), data
    if isinstance(data, Mapping):
        return dict(data), None
    part = parse_one(data, "data set")
    return {"name": part.name, **part.settings}, None


def _dataset_source(data: Any, columns: ColumnSettings) -> tuple[dict[str, Any], Any]:
    """A plan's `data` for a data set of PyTorch, Hugging Face or flwr-datasets: a table, or a
    federation whose rows are split anew for each seed.
    """
    given = {name: value for name, value in columns._asdict().items() if value is not None}
    if given.pop("client_group", None) is not None:
        raise ValueError(
            "client_group is for a table, but the data are a Dataset. Make a Federation of it, and"
            " set its client_group."
        )
    names = [name for name in ExampleRoles._fields if name in given]
    found = table_of(data, ExampleRoles(**{name: given[name] for name in names}))
    if found is not None:
        frame, client = found
        label = columns.label or "label"
        return table_source(frame, **_columns(columns._replace(client=client, label=label))), frame
    federation = Federation.from_dataset(data, **given)
    anew = {} if columns.split is not None else {SPLIT_ANEW: True}
    return {**stored_federation(federation), **anew}, federation


def _columns(columns: ColumnSettings) -> dict[str, Any]:
    values, sides = columns._asdict(), columns.unprivileged
    if isinstance(sides, Mapping):
        values["unprivileged"] = [f"{column}={value}" for column, value in sides.items()]
    elif sides is not None and (isinstance(sides, str) or not isinstance(sides, Sequence)):
        values["unprivileged"] = [str(sides)]
    return values


def _data_words(data: Any) -> str:
    return shortened(data) if isinstance(data, str) else f"a {type(data).__name__}"


def methods_of(methods: Any) -> tuple[tuple[str, ...], dict[str, Algorithm]]:
    """The methods of a plan: notations and labels of algorithms in order, and the algorithms."""
    several = [methods] if isinstance(methods, str | Algorithm | Variant | Method) else methods
    if not isinstance(several, Iterable):
        raise TypeError(
            "methods must be a notation such as 'q-fedavg(q=1)', an Algorithm, or a list of them,"
            f" got a {type(methods).__name__}."
        )
    texts, algorithms = [], dict[str, Algorithm]()
    for one in several:
        if isinstance(one, str):
            texts.append(one)
            continue
        algorithm = _algorithm(one)
        label = algorithm.label or type(algorithm.rule).__name__
        if label in texts:
            raise ValueError(
                f"Two methods are called {label!r}. Give your algorithm another label:"
                " evenly.Algorithm(..., label='...')."
            )
        texts.append(label)
        algorithms[label] = algorithm
    return tuple(texts), algorithms


def _algorithm(one: Any) -> Algorithm:
    if isinstance(one, Variant) and len(one.members) == 1:
        return one.members[0]
    if isinstance(one, Algorithm):
        return one
    name = one.name if isinstance(one, Method) else "q-fedavg(q=1)"
    hint = ""
    if isinstance(one, Method):
        hint = " Register the method first: evenly.register(...)."
    elif hasattr(one, "weigh"):
        hint = " Make a method of the rule, evenly.Method(..., rule=...), and register it."
    raise TypeError(
        f"A method must be a notation such as {name!r} or an Algorithm, got a"
        f" {type(one).__name__}.{hint}"
    )


def model_of(model: Any) -> tuple[str, Task | None]:
    """The notation of a model, or the model itself."""
    if isinstance(model, str):
        return model, None
    if isinstance(model, type) or not hasattr(model, "losses"):
        name = model.__name__ if isinstance(model, type) else type(model).__name__
        wrap = "evenly.models.Custom and evenly.models.from_equinox wrap other JAX models."
        if hasattr(model, "state_dict"):
            wrap = "It seems to be a PyTorch module: pass evenly.from_torch(module, example=rows)."
        raise TypeError(
            "model must be a name such as 'mlp(hidden=[64])' or a model of evenly.models, got"
            f" {'the class ' if isinstance(model, type) else 'a '}{name}. {wrap}"
        )
    return "", model

"""`from_torch`: make a task of a PyTorch module."""

import copy
import dataclasses
import warnings
from collections.abc import Callable
from contextlib import suppress
from inspect import signature
from typing import Any, NamedTuple

import jax
import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from evenly.data.federation import Shard
from evenly.torch_models.gradients import (
    gradient_of,
    own_backwards,
    refuse_other_gradients,
    refuse_unknown_backwards,
    weights_for,
)
from evenly.torch_models.graph import SAME_NUMBERS, Graph
from evenly.torch_models.module_task import (
    Origin,
    StateEntry,
    TorchModel,
    TorchTrainingModel,
    Translated,
    built,
    weights_of,
)
from evenly.torch_models.objectives import Objective, objective_of
from evenly.torch_models.tracing import (
    REPLACE,
    ROWS,
    Traced,
    first_lines,
    name_of,
    place_of,
    quiet_export,
    stored_orders,
    traced,
    with_stored,
)
from evenly.trees import Stateful, learned, with_learned
from evenly.types import Task, Tree
from evenly.validation import listed_names, shortened

# by how much outputs may differ from PyTorch's in float32, relative to the largest
TOLERANCE = 1e-3
# compiled for one example, of which compiling is the most
SOON = {"xla_backend_optimization_level": 0}
CONTAINED = {"cross-entropy": "softmax", "binary": "sigmoid"}  # what a loss applies to scores


def from_torch(
    module: nn.Module | Callable[[], nn.Module],
    example: Any,
    *,
    loss: str | Callable[..., Any] = "cross-entropy",
) -> Task:
    """Make a task of a PyTorch module, so that the simulator trains it.

    The module is translated to JAX, in training and in evaluation. Its parameters are trained and
    start with the module's own values; parameters with ``requires_grad=False`` stay fixed. Buffers
    that training changes, such as the running statistics of batch norm, travel with the model and
    are averaged. Dropout draws its masks from the seed of the batches. The module itself is not
    changed.

    Args:
        module: The module, or a function without arguments that builds it. Of a module, all seeds
            start with the same weights. A function is called after ``torch.manual_seed(seed)`` for
            each seed of the initial model; what is not trained must not depend on the seed.
        example: A few rows of features [n, ...], as the module takes them: a tensor or an array.
        loss: "cross-entropy" for scores [n, classes]; "binary" for one score per row, [n] or [n,
            1]; or a function of outputs and labels [n]. A function in PyTorch returns the mean or
            the sum over the batch, or one loss per row; a function in JAX returns one loss per row.

    Returns:
        The task, for `evenly.compare`, `evenly.train` and `evenly.tune`. Its method
        ``to_torch(model)`` returns a trained model as a state dict for the module, and so does
        ``results.model(method).to_torch()``.

    Raises:
        ImportError: If PyTorch is not installed.
        TypeError: If `module` is not a module or does not build one.
        ValueError: If the module cannot be traced, has operations that cannot be translated, or
            the loss does not fit.

    Example:
        >>> import evenly, torch
        >>> from torch import nn
        >>> network = nn.Sequential(nn.Linear(60, 16), nn.Dropout(0.1), nn.Linear(16, 10))
        >>> task = evenly.from_torch(network, torch.zeros(2, 60))
        >>> federation = evenly.synthetic(clients=20)
        >>> (trace,) = evenly.train(task, federation, "fedavg", rounds=2)
        >>> keys = network.load_state_dict(task.to_torch(trace.model))
        >>> keys
        <All keys matched successfully>
    """
    build = None if isinstance(module, nn.Module) else _builder(module)
    own = copy.deepcopy(module) if isinstance(module, nn.Module) else built(build, 0)
    _refuse_forms(own)
    own = own.to("cpu")
    rows, trial = _rows(example, own), copy.deepcopy(own)  # its buffers may change
    outputs = _first_outputs(trial, rows, np.shape(example))
    traces = traced(own, rows, training=False), traced(own, rows, training=True)
    _check_outputs(trial, rows, outputs)
    task = _task(own, traces, rows, build, objective_of(loss, outputs))
    if build is not None:
        _refuse_drawn_constants(task, own, built(build, 1))
    _check_last_operation(task, outputs)
    try:
        _compare(task, own, rows, outputs)
        _try_training(task, own, rows)
    except (AttributeError, LookupError, TypeError) as error:  # an operation got unknown arguments
        where = " ".join(getattr(error, "__notes__", []))
        raise ValueError(
            f"{type(own).__name__} has operations that cannot be translated to JAX: {where}"
            f" {first_lines(error)}. {REPLACE}"
        ) from error
    return task


def _builder(module: Any) -> Any:
    wanted = (
        "from_torch requires a torch.nn.Module, or a function without arguments that builds one"
    )
    if callable(module):
        try:
            with suppress(ValueError):  # some functions written in C do not tell their arguments
                signature(module).bind()
        except TypeError as error:
            raise TypeError(
                f"{wanted}, got {shortened(module)}: {error}. Name its arguments in a function:"
                " from_torch(lambda: Net(width=8), ...)."
            ) from None
    if not callable(module) or not isinstance(built(module, 0), nn.Module):
        raise TypeError(f"{wanted}, got {shortened(module)}.")
    return module


def _refuse_forms(module: nn.Module) -> None:
    """Raise if a module was compiled already, has no weights yet, or holds what no task can."""
    title = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
        raise ValueError(
            f"{title} is compiled. Pass the module as it was before torch.compile or"
            " torch.jit.script: evenly compiles it with the whole round."
        )
    lazy = [name for name, value in module.named_parameters() if is_lazy(value)]
    if lazy:
        raise ValueError(
            f"{title} has lazy layers without weights: {', '.join(lazy)}. Give their sizes, or"
            " apply the module to the example once before it is passed or returned."
        )
    tensors = dict([*module.named_parameters(remove_duplicate=False),
                    *module.named_buffers(remove_duplicate=False)])  # fmt: skip
    small = [name for name, value in tensors.items() if value.dtype == torch.bfloat16]
    if small:
        raise ValueError(
            f"{title} has weights of type bfloat16, which NumPy does not have: {', '.join(small)}."
            " Pass module.float()."
        )
    extra = [key for key in module.state_dict() if key not in tensors]
    if extra:
        raise ValueError(
            f"The state dict of {title} has entries that are neither parameters nor buffers:"
            f" {', '.join(extra)}. Training cannot keep them. Leave out get_extra_state, or keep"
            " tensors in register_buffer."
        )


def _rows(example: Any, module: nn.Module) -> torch.Tensor:
    """Three rows of the example, in the type of the module's parameters if they are floats."""
    rows = torch.as_tensor(example).detach().to("cpu")
    if rows.ndim < 2 or not len(rows):
        raise ValueError(
            "example must hold at least one row of features, [n, features] or more axes, got shape"
            f" {list(rows.shape)}. Pass a few rows, such as x[:2]."
        )
    if rows.is_floating_point():
        kinds = [one.dtype for one in module.parameters() if one.is_floating_point()]
        rows = rows.to(kinds[0] if kinds else torch.float32)
    return rows[torch.arange(ROWS) % len(rows)].clone()


def _first_outputs(module: nn.Module, rows: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Outputs for rows of an example of this shape."""
    try:
        outputs = _outputs(module, rows)
    except Exception as error:  # of the user's code
        raise ValueError(
            f"{type(module).__name__} cannot be applied to an example of shape {list(shape)}"
            f"{place_of(module, error)}: {first_lines(error)}. Pass a few rows as its forward takes"
            " them, such as [n, channels, height, width], in one tensor."
        ) from error
    if isinstance(outputs, torch.Tensor):
        return outputs
    raise ValueError(
        f"{type(module).__name__} must return one tensor of scores [n, classes], but it returns a"
        f" {type(outputs).__name__}. Wrap it in a module whose forward returns the scores alone."
    )


def _outputs(module: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    with quiet_export(), torch.no_grad():
        return module.eval()(rows)


def _check_outputs(module: nn.Module, rows: torch.Tensor, outputs: torch.Tensor) -> None:
    title = type(module).__name__
    if outputs.ndim not in (1, 2) or outputs.shape[0] != len(rows):
        raise ValueError(
            f"{title} must return scores [n, classes], or one score per row, but {len(rows)} rows"
            f" gave shape {list(outputs.shape)}."
        )
    # The second row meets the third in place of the first. Rows of an example may be equal, or 0.
    for x, scores in ((rows, outputs), _varied(module, rows)):
        if not torch.allclose(_outputs(module, x), scores, rtol=1e-3, atol=1e-5):
            raise ValueError(
                f"{title} draws random numbers in evaluation. Dropout and noise must depend on"
                " self.training, as nn.Dropout and F.dropout(..., training=self.training) do."
            )
        if not torch.allclose(_outputs(module, x[1:])[0], scores[1], rtol=1e-3, atol=1e-5):
            raise ValueError(
                f"{title} mixes the rows of a batch in evaluation: the scores of a row depend on"
                " the others. Each row must be scored by itself. In training, batch norm may mix"
                " rows."
            )


def _check_last_operation(task: Translated, outputs: torch.Tensor) -> None:
    """Warn if the module ends with the function that its loss contains already. Raise if it returns
    the probability of one class to a loss of the user: a score decides by its sign.
    """
    nodes = {node.name: node for node in task.evaluation.nodes}
    node = nodes.get(task.evaluation.output.name)
    while node and node.operation.split(".")[1] in (*SAME_NUMBERS, "select", "clamp"):
        node = nodes.get(getattr(node.args[0], "name", ""))
    ends = "" if node is None else node.operation.split(".")[1].strip("_")
    loss = "" if task.objective.digest else task.objective.name
    if ends == "sigmoid" and not loss and outputs.numel() == len(outputs):
        raise ValueError(
            f"{task.origin.title} ends with sigmoid, but the sign of a single score decides between"
            " the two classes: every row would get the second. Leave the sigmoid out of the module,"
            " and pass loss='binary', or a function of the score."
        )
    if loss and ends == CONTAINED[loss]:
        warnings.warn(
            f"{task.origin.title} ends with {ends}, and the loss {loss!r} contains one: the loss"
            " takes scores. Training is slow and stops early with both. Leave it out of the"
            " module; `probabilities` of the trained model applies it.",
            stacklevel=3,
        )


class _Parts(NamedTuple):
    """The tensors of a module by their part in a task. Of several names, the first counts."""

    trained: dict[str, torch.Tensor]
    changed: dict[str, torch.Tensor]  # buffers that training changes
    fixed: dict[str, torch.Tensor]
    names: dict[str, str]  # the first name of each tensor, by every name


def _parts(module: nn.Module, traces: tuple[Traced, Traced]) -> _Parts:
    tensors = [*module.named_parameters(remove_duplicate=False),
               *module.named_buffers(remove_duplicate=False)]  # fmt: skip
    first = {id(value): name for name, value in reversed(tensors)}
    names = {name: first[id(value)] for name, value in tensors}
    once = {name: value for name, value in tensors if names[name] == name}
    written = {names[name] for name in traces[1].graph.changes}
    trained = {name: value for name, value in once.items() if value.requires_grad}
    if not trained:
        raise ValueError(
            f"{type(module).__name__} has no parameters to train: none has requires_grad=True."
        )
    changed = {name: value for name, value in once.items() if name in written}
    fixed = {name: v for name, v in once.items() if name not in trained and name not in changed}
    return _Parts(trained, changed, fixed, names)


def _task(
    module: nn.Module,
    traces: tuple[Traced, Traced],
    rows: torch.Tensor,
    build: Any,
    objective: Objective,
) -> Translated:
    trained, changed, fixed, names = _parts(module, traces)
    graphs = [_named(trace.graph, names) for trace in traces]
    orders = stored_orders(graphs, {name: value.ndim for name, value in trained.items()})
    evaluation, training = (with_stored(graph, orders) for graph in graphs)
    entries = tuple(
        StateEntry(key, names.get(key, key), name_of(value.dtype))
        for key, value in module.state_dict().items()
    )
    written = {name: value for trace in traces for name, value in trace.constants.items()}
    parts: dict[str, Any] = {
        "initial": weights_of(module, _form(trained, changed), orders),
        "constants": {name: _array(value) for name, value in {**fixed, **written}.items()},
        "evaluation": evaluation,
        "objective": objective,
        "origin": Origin(
            type(module).__name__,
            tuple(rows.shape[1:]),
            name_of(rows.dtype),
            entries,
            orders,
            build,
        ),
        "reduction": objective.reduction,
    }
    if evaluation.same_as(training) and not training.changes:
        return TorchModel(**parts)
    return TorchTrainingModel(training=training, **parts)


def _refuse_drawn_constants(task: Translated, module: nn.Module, other: nn.Module) -> None:
    """Raise if tensors that are not trained differ between two seeds: the task has only one of
    each.
    """
    first, second = (dict([*m.named_parameters(), *m.named_buffers()]) for m in (module, other))
    drawn = [
        name
        for name, value in first.items()
        if name in task.constants
        and not (name in second and torch.equal(value, second[name].to("cpu")))
    ]
    if drawn:
        raise ValueError(
            f"The function that builds {task.origin.title} gives {listed_names(drawn)} other values"
            " for each seed, but what is not trained must be the same for all seeds. Pass the"
            " module itself, build these values without random numbers, or train them with"
            " requires_grad=True."
        )


def _named(graph: Graph, names: dict[str, str]) -> Graph:
    """The graph with the first name of each tensor."""
    places = {place: names.get(name, name) for place, name in graph.places.items()}
    changes = {names.get(name, name): ref for name, ref in graph.changes.items()}
    return dataclasses.replace(graph, places=places, changes=changes)


def _form(trained: dict[str, torch.Tensor], changed: dict[str, torch.Tensor]) -> Tree:
    """The form of the model: floats only, of at least 32 bits."""

    def leaves(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {
            name: jax.ShapeDtypeStruct(
                tuple(value.shape),
                jax.dtypes.canonicalize_dtype(
                    np.float64 if value.dtype == torch.float64 else np.float32
                ),
            )
            for name, value in tensors.items()
        }

    return Stateful(leaves(trained), leaves(changed)) if changed else leaves(trained)


def _array(value: torch.Tensor) -> np.ndarray:
    array = value.detach().cpu().numpy()
    return np.array(array, jax.dtypes.canonicalize_dtype(array.dtype))


def _try_training(task: Translated, module: nn.Module, rows: torch.Tensor) -> None:
    """Raise unless the graph of training can be computed, and leaves padding out."""
    if not isinstance(task, TorchTrainingModel):
        return
    with quiet_export(), torch.enable_grad(), torch.random.fork_rng(devices=[]):
        known = own_backwards(module.eval()(rows))
        refuse_unknown_backwards(task.origin.title, own_backwards(module.train()(rows)) - known)
    count, train = len(rows), jax.jit(task.train_losses, compiler_options=SOON)
    zeros, mask = np.zeros(2 * count, np.int32), np.repeat(np.array([1, 0], np.float32), count)

    def losses_and_state(padding: torch.Tensor) -> tuple[np.ndarray, Tree]:
        x = torch.cat([rows, padding]).numpy()
        shard = Shard(x, zeros, zeros, np.ones_like(mask), mask)
        losses, state = train(task.initial, shard, jax.random.key(0))
        return np.asarray(losses), state

    (losses, state), (others, changed) = map(losses_and_state, (rows, _changed(rows)))
    if not np.isfinite(others).all():
        return  # the module is not defined for these rows
    mixed = [name for name in state if not _close(state[name], changed[name])] if state else []
    if mixed or not _close(losses[:count], others[:count]):
        what = listed_names(mixed) if mixed else "the scores of rows"
        raise ValueError(
            f"{task.origin.title} mixes the rows of a batch in training: {what} would depend on the"
            " padding of a small last batch. Only batch norm leaves padding out. Normalise each row"
            " by itself, without statistics of the batch (track_running_stats=False)."
        )


def _changed(rows: torch.Tensor) -> torch.Tensor:
    """Other rows of the same form."""
    if rows.dtype == torch.bool:
        return ~rows
    return 255 - rows if rows.dtype == torch.uint8 else rows + 1


def _close(one: Any, other: Any) -> bool:
    return np.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


def _compare(
    task: Translated, module: nn.Module, rows: torch.Tensor, expected: torch.Tensor
) -> None:
    """Raise unless the translation returns what PyTorch returns for the example, and has the same
    gradient.
    """
    weights = weights_for(expected).numpy()

    def weighted(params: Tree, x: Any) -> tuple[Any, Any]:
        outputs = task.outputs(with_learned(task.initial, params), x)
        _refuse_difference(task.origin.title, outputs.shape == weights.shape)
        return (outputs * weights).sum(), outputs

    both = jax.jit(jax.grad(weighted, has_aux=True), compiler_options=SOON)
    found = np.asarray(both(learned(task.initial), rows.numpy())[1])
    wanted = expected.detach().numpy()
    scale = max(1.0, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)))
    close = np.allclose(found, wanted, rtol=0, atol=TOLERANCE * scale, equal_nan=True)
    _refuse_difference(task.origin.title, close)
    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    x, outputs = _varied(module, rows)
    own = own_backwards(outputs)
    if not own and len(x.unique()) == 1:
        return  # rounding decides gradients
    gradient = both(learned(task.initial), x.numpy())[0]
    orders = task.origin.orders
    refuse_other_gradients(
        task.origin.title,
        {
            name: np.transpose(value, np.argsort(orders[name])) if name in orders else value
            for name, value in gradient.items()
        },
        gradient_of(outputs, trained),
        own,
    )


def _refuse_difference(title: str, same: bool) -> None:
    if not same:
        raise ValueError(
            f"The translation of {title} does not return what PyTorch returns for the example. This"
            " is an error of evenly: please report it with the module."
        )


def _varied(module: nn.Module, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows like those of the example and their outputs, in which no numbers are equal: between
    equal numbers, a norm or a maximum passes on what rounding decides.
    """
    generator = torch.Generator().manual_seed(0)
    number = torch.arange(ROWS).reshape(ROWS, *(1,) * (rows.ndim - 1))
    if rows.is_floating_point():
        varied = rows + torch.randn(rows.shape, generator=generator).to(rows.dtype)
    elif rows.dtype == torch.uint8:
        varied = torch.randint(256, rows.shape, generator=generator, dtype=torch.uint8)
    else:
        varied = rows ^ (number == 1) if rows.dtype == torch.bool else rows + number.to(rows.dtype)
    with quiet_export(), torch.enable_grad():
        with suppress(Exception):  # numbers of symbols are no longer such
            outputs = module.eval()(varied)
            if outputs.isfinite().all():
                return varied, outputs
        return rows, module.eval()(rows)

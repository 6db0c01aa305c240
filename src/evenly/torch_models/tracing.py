"""Trace a PyTorch module into graphs of core ATen operations.

`torch.export` records what the module computes, once in training and once in evaluation. Layers
that JAX computes better as a whole (dense layers, recurrent layers, attention, normalisation) stay
one operation; everything else is reduced to core ATen. The first axis of the features stays open,
so that a graph holds for any number of rows.
"""

import dataclasses
import hashlib
import linecache
import logging
import re
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from evenly.torch_models.graph import Graph, Node, Ref, operation_of
from evenly.torch_models.images import FILTERS

# operations of the trace that are kept as they are
WHOLE = (
    "linear", "matmul", "layer_norm", "group_norm", "scaled_dot_product_attention", "lstm", "gru",
    "rnn_tanh", "rnn_relu", "upsample_nearest2d", "upsample_bilinear2d", "silu",
    # their decompositions have other gradients: that of detach passes all of it
    "detach", "hardsigmoid", "hardswish", "sinc",
)  # fmt: skip
# a region of the trace in which gradients are on or off
WITHOUT_GRADIENT = "wrap_with_set_grad_enabled"
# how values are stored, which JAX decides
STORAGE = ("device", "layout", "pin_memory", "memory_format", "non_blocking")
ROWS = 3  # of the example; PyTorch treats sizes 0 and 1 as special


REPLACE = (
    "Replace them by others in your module, or train it in a real federation"
    " (docs/flower-clients.md), where PyTorch itself runs."
)
# what to do where torch.export fails
PACKED = (
    "Packed sequences depend on values. Apply the layer to the padded sequence, and take the output"
    " of each row's last symbol: out[torch.arange(x.shape[0]), lengths - 1]."
)
SIZES = (
    "It must hold for any number of rows: apply layers to the whole batch instead of row by row,"
    " and write the number of rows as x.shape[0] or -1, not as len(x)."
)
CUMULATIVE = (
    "Batch norm with momentum=None averages over all batches, which cannot be traced. Give it a"
    " momentum, such as 0.1."
)
NUMPY = "Use operations of PyTorch in place of NumPy's."
VALUES = (
    "torch.export must be able to follow `forward`: replace conditions and loops that depend on"
    " values of tensors, for example by torch.where."
)
# where an error of torch.export turns to its own options
ADVICE = re.compile(
    r"\s*(\(unhinted|Caused by:|For more information|For extended logs|consider using|- You marked)"
)


class Traced(NamedTuple):
    """A graph, and the tensors that the module wrote down as numbers."""

    graph: Graph
    constants: dict[str, torch.Tensor]


def traced(module: nn.Module, *inputs: torch.Tensor, training: bool, rows: bool = True) -> Traced:
    """What a module computes in training or in evaluation.

    Args:
        module: The module.
        inputs: Example of the inputs.
        training: Whether to trace it as after `train()`, or as after `eval()`.
        rows: Whether the first axis of the inputs may have any length.

    Raises:
        ValueError: If PyTorch cannot trace the module, or an operation has no translation.
    """
    module.train(training)
    shapes = tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs) if rows else None
    try:
        with quiet_export(), LastStates(), torch.enable_grad():
            exported = torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
            _detach_what_has_no_gradient(exported.graph)
            exported = exported.run_decompositions(_decompositions())
    except Exception as error:  # PyTorch raises many kinds
        raise ValueError(
            f"PyTorch cannot trace {type(module).__name__} in"
            f" {'training' if training else 'evaluation'}{place_of(module, error)}:"
            f" {first_lines(error)}. {_remedy(error)}"
        ) from error
    named = exported.graph_signature.inputs_to_lifted_tensor_constants.values()
    found: dict[str, Any] = {name: exported.constants[name] for name in named}
    # by content, so that the constants of two graphs can be told apart
    names = {name: f"constant {_content(value)}" for name, value in found.items()}
    graph = _graph(exported, inputs[0].shape[0], names)
    _refuse_unknown(type(module).__name__, graph)
    return Traced(graph, {names[name]: value for name, value in found.items()})


class LastStates(TorchFunctionMode):
    """Gives the last states of an LSTM the shape of its first states.

    torch.export adds an axis of length 1 to them in PyTorch 2.11
    (https://github.com/pytorch/pytorch/issues/151200). PyTorch 2.13 does not.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func is not torch.lstm or not isinstance(args[1], list | tuple):  # a packed sequence
            return found
        outputs, *last = found
        return outputs, *(
            after if after.ndim == before.ndim else after.reshape(before.shape)
            for after, before in zip(last, args[1], strict=True)
        )


def _detach_what_has_no_gradient(graph: Any) -> None:
    """Detach the values of regions under `torch.no_grad`, which are dissolved later."""
    for region in [node for node in graph.nodes if _operation(node).endswith(WITHOUT_GRADIENT)]:
        if region.args[0]:
            continue
        for part in list(region.users):
            with graph.inserting_after(part):
                detached = graph.call_function(torch.ops.aten.detach.default, (part,))
            detached.meta = dict(part.meta)
            part.replace_all_uses_with(
                detached, lambda user, own=detached: user is not own and user.op != "output"
            )


def _content(value: torch.Tensor) -> str:
    data = value.detach().cpu().contiguous().numpy()
    return hashlib.sha256(repr((data.dtype, data.shape)).encode() + data.tobytes()).hexdigest()[:16]


@contextmanager
def quiet_export() -> Any:
    """Attention as operations that can be differentiated; no warnings about PyTorch itself, and no
    graphs printed where it fails.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            logging.disable(logging.ERROR)  # of what is raised, too
            yield
    finally:
        logging.disable(logging.NOTSET)
        torch.backends.mha.set_fastpath_enabled(fast)


def _decompositions() -> Any:
    table = torch.export.default_decompositions()
    for operation in list(table):
        if getattr(operation, "_schema", None) is not None and _packet(operation) in WHOLE:
            table.pop(operation)
    return table


def _packet(operation: Any) -> str:
    return operation._schema.name.partition("::")[2]


def place_of(module: nn.Module, error: BaseException) -> str:
    """Where in the module tracing failed: the submodule, and the line of its code."""
    names = {id(part): name for name, part in module.named_modules()}
    where, code = "", ""
    for frame, line in _frames(error):
        part = frame.f_locals.get("self")
        if id(part) in names and names[id(part)]:
            where = f", in {names[id(part)]} ({type(part).__name__})"
        if frame.f_code.co_name == "forward" and id(part) in names:
            file = frame.f_code.co_filename
            own = linecache.getline(file, line).strip()  # empty where code came without a file
            if not type(part).__module__.startswith("torch."):
                code = f", at `{own}`" if own else f", at line {line} of {Path(file).name}"
    return where + code


def _frames(error: BaseException | None) -> Iterable[tuple[Any, int]]:
    """Frames of an error and of those that caused it, the first cause last."""
    while error is not None:
        yield from traceback.walk_tb(error.__traceback__)
        error = error.__cause__ or error.__context__


def _remedy(error: BaseException) -> str:
    """What to do about an error of tracing."""
    if any(frame.f_locals.get("batch_sizes") is not None for frame, _ in _frames(error)):
        return PACKED
    parts = [frame.f_locals.get("self") for frame, _ in _frames(error)]
    if any(isinstance(part, _BatchNorm) and part.momentum is None for part in parts):
        return CUMULATIVE
    text = str(error)
    words = {"to be a constant": SIZES, "numpy": NUMPY}
    return next((remedy for word, remedy in words.items() if word in text), VALUES)


def first_lines(error: Exception, most: int = 300) -> str:
    text = " ".join(str(error).split())
    text = (ADVICE.split(text, maxsplit=1)[0] or text).rstrip(".!")
    return text if len(text) <= most else text[:most] + "…"


# From PyTorch's graph to ours.


def _graph(exported: Any, rows: int, constants: Mapping[str, str]) -> Graph:
    signature = exported.graph_signature
    places = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **{
            place: constants[name]
            for place, name in signature.inputs_to_lifted_tensor_constants.items()
        },
    }
    nodes = [node for node in exported.graph.nodes if node.op not in ("placeholder", "output")]
    if len(signature.user_outputs) != 1 or not isinstance(signature.user_outputs[0], str):
        raise ValueError(
            "The module must return one tensor of scores [n, classes], but it returns"
            f" {len(signature.user_outputs)} values. Wrap it in a module whose forward returns the"
            " scores alone."
        )
    return Graph(
        inputs=tuple(signature.user_inputs),
        places=places,
        nodes=tuple(map(_node, nodes)),
        output=Ref(signature.user_outputs[0]),
        changes={name: Ref(node) for node, name in signature.buffers_to_mutate.items()},
        width=max((_numbers(node) // rows for node in nodes), default=0),
    )


def _node(node: Any) -> Node:
    kwargs = {key: _argument(v) for key, v in node.kwargs.items() if key not in STORAGE}
    args = tuple(_argument(value) for value in node.args)
    return Node(node.name, _operation(node), args, kwargs, _where(node))


def _operation(node: Any) -> str:
    if node.op != "call_function":
        return f"{node.op}.{node.target}"
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return f"{getattr(node.target, '__module__', '')}.{node.target.__name__}".lstrip("_")
    return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"


def _argument(value: Any) -> Any:
    if isinstance(value, torch.fx.Node):
        return Ref(value.name)
    if isinstance(value, torch.dtype):
        return name_of(value)
    if isinstance(value, list | tuple):
        return [_argument(one) for one in value]
    return None if isinstance(value, torch.device | torch.layout | torch.memory_format) else value


def name_of(dtype: torch.dtype) -> str:
    """The name of a type, such as "float32"."""
    return str(dtype).removeprefix("torch.")


def _where(node: Any) -> str:
    """The submodule of a node, such as "layer1.0.bn1 (BatchNorm2d)"."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    name = kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]
    # sizes of the batch belong to no submodule, for which PyTorch has a name of its own
    return f"{path} ({name})" if path and not path.startswith("_empty") else "the module itself"


def _numbers(node: Any) -> int:
    """How many numbers the value of a node has in the example."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return 0
    return prod(side if isinstance(side, int) else side.node.hint or 0 for side in value.shape)


def _refuse_unknown(module: str, graph: Graph) -> None:
    missing = {
        f"{node.operation} in {node.where}"
        for node in graph.nodes
        if operation_of(node.operation) is None
    }
    if missing:
        raise ValueError(
            f"{module} has operations that have no translation to JAX: {'; '.join(sorted(missing))}"
            f". {REPLACE} The operations that are translated are in"
            " evenly.torch_models.operations.OPERATIONS."
        )


# Weights that are stored as `evenly.models.layers` wants them, so that no step transposes them.

DENSE = (1, 0)  # [out, in] -> [in, out]
STORED = {"aten.linear.default": "evenly.dense", "aten.convolution.default": "evenly.convolution"}


def stored_orders(graphs: Iterable[Graph], axes: Mapping[str, int]) -> dict[str, Sequence[int]]:
    """The order of the axes of parameters that are only weights of dense layers, or only filters of
    images. `axes` is the number of axes of each parameter.
    """
    uses: dict[str, set[Any]] = {name: set() for name in axes}
    for graph in graphs:
        for node in graph.nodes:
            for position, name in _parameters_of(node, graph):
                if name in uses:
                    uses[name].add(_order(node, position, axes[name]))
    return {
        name: order for name, orders in uses.items() if len(orders) == 1 and (order := orders.pop())
    }


def _parameters_of(node: Node, graph: Graph) -> Iterable[tuple[int, str]]:
    def below(value: Any) -> Iterable[str]:
        if isinstance(value, Ref):
            yield value.name
        elif isinstance(value, list | tuple):
            for one in value:
                yield from below(one)

    for position, value in enumerate((*node.args, *node.kwargs.values())):
        for name in below(value):
            if name in graph.places:
                yield position, graph.places[name]


def _order(node: Node, position: int, axes: int) -> Sequence[int] | None:
    if position == 1 and node.operation == "aten.linear.default":
        return DENSE
    if position == 1 and node.operation == "aten.convolution.default" and axes == 4:
        return None if node.args[6] else FILTERS
    return None


def with_stored(graph: Graph, orders: Mapping[str, Sequence[int]]) -> Graph:
    """The graph for parameters that are stored in other orders."""

    def renamed(node: Node) -> Node:
        weight = node.args[1] if len(node.args) > 1 else None
        if node.operation not in STORED or not isinstance(weight, Ref):
            return node
        if graph.places.get(weight.name) not in orders:
            return node
        own = STORED[node.operation]
        last = {"last": True} if own == "evenly.dense" and graph.output.name == node.name else {}
        return node._replace(operation=own, kwargs={**node.kwargs, **last})

    return dataclasses.replace(graph, nodes=tuple(map(renamed, graph.nodes)))

"""Graphs of a PyTorch module's operations, and their evaluation in JAX.

A `Graph` is plain data: nodes that name an operation, its arguments, and the submodule that it came
from. `evaluate` looks each operation up in `evenly.torch_models.operations.OPERATIONS`. Nothing
here needs PyTorch.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from evenly.torch_models.operands import Image, Operation, StepDraws, StepSettings, channels_first
from evenly.torch_models.operations import OPERATIONS
from evenly.types import Array

EMBEDDINGS = ("embedding", "_embedding_bag")
# operations whose values are those that they are given
SAME_NUMBERS = (
    "_to_copy", "alias", "clone", "contiguous", "detach", "flatten", "permute", "reshape",
    "squeeze", "t", "transpose", "unsqueeze", "view",
)  # fmt: skip


class Ref(NamedTuple):
    """The value of another node, by its name."""

    name: str


class Node(NamedTuple):
    """One operation."""

    name: str
    operation: str  # such as "aten.add.Tensor"
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    where: str  # the submodule, such as "layer1.0.bn1 (BatchNorm2d)"


@dataclass(frozen=True, eq=False)
class Graph:
    """What a module computes in training or in evaluation. Equal only to itself."""

    inputs: tuple[str, ...]  # names of the inputs, features first
    places: Mapping[str, str]  # names of the inputs that hold a parameter, buffer or constant
    nodes: tuple[Node, ...]
    output: Ref
    changes: Mapping[str, Ref]  # new values of buffers, by the name of the buffer
    # numbers that the largest intermediate value has for each row
    width: int = 0

    def __repr__(self) -> str:
        return f"Graph({len(self.nodes)} operations, sha256={self.digest()[:16]})"

    def digest(self) -> str:
        """Hash of everything that determines the outcome."""
        facts = (self.inputs, sorted(self.places.items()), self.nodes, self.output)
        text = repr((facts, sorted(self.changes.items())))
        return hashlib.sha256(text.encode()).hexdigest()

    def embeddings(self) -> set[str]:
        """Names of the embeddings that read the features as they are."""
        nodes = {node.name: node for node in self.nodes}
        found = set()
        for node in self.nodes:
            if node.operation.split(".")[1] not in EMBEDDINGS:
                continue
            name = node.args[1].name
            while name in nodes and nodes[name].operation.split(".")[1] in SAME_NUMBERS:
                name = nodes[name].args[0].name
            if name == self.inputs[0] and node.args[0].name in self.places:
                found.add(self.places[node.args[0].name])
        return found

    def same_as(self, other: "Graph") -> bool:
        """Whether another graph computes the same, from inputs that may have other names."""
        return self._numbered() == other._numbered()

    def _numbered(self) -> str:
        """The nodes, with numbers in place of names."""
        number = {name: f"input {i}" for i, name in enumerate(self.inputs)} | dict(self.places)
        number |= {node.name: f"#{i}" for i, node in enumerate(self.nodes)}

        def renamed(value: Any) -> Any:
            return Ref(number[value.name]) if isinstance(value, Ref) else value

        parts = [
            (node.operation, _replace(node.args, renamed), _replace(dict(node.kwargs), renamed))
            for node in self.nodes
        ]
        changes = {name: renamed(ref) for name, ref in sorted(self.changes.items())}
        return repr((parts, renamed(self.output), changes))


def operation_of(name: str) -> Operation | None:
    """The function of an operation: that of its overload, or that of all overloads."""
    return OPERATIONS.get(name) or OPERATIONS.get(name.rpartition(".")[0])


def evaluate(
    graph: Graph,
    values: Mapping[str, Array],
    *inputs: Array,
    mask: Array | None = None,
    draws: StepDraws | None = None,
    direct: bool = False,
) -> tuple[Any, dict[str, Array]]:
    """The output of a graph, and the new values of the buffers that it changes.

    Args:
        graph: What to compute.
        values: Parameters, buffers and constants by name.
        inputs: Features of a batch. [n, ...]
        mask: 1 for rows, 0 for padding. Statistics of the batch leave padding out. [n]
        draws: Source of random numbers.
        direct: Whether to use the device's own convolution.
    """
    found: dict[str, Any] = dict(zip(graph.inputs, inputs, strict=True))
    found |= {place: values[name] for place, name in graph.places.items()}
    step = StepSettings(mask=mask, draws=draws, direct=direct)
    for node in graph.nodes:
        try:
            found[node.name] = _apply(node, found, step)
        except NotImplementedError as error:
            raise ValueError(
                f"The operation {node.operation} in {node.where} cannot be translated to JAX:"
                f" {error}"
            ) from error
        except Exception as error:
            error.add_note(f"Operation {node.operation} in {node.where}.")
            raise
    lookup = lambda ref: channels_first(found[ref.name])  # noqa: E731
    return lookup(graph.output), {name: lookup(ref) for name, ref in graph.changes.items()}


def _apply(node: Node, found: Mapping[str, Any], step: StepSettings) -> Any:
    operation = operation_of(node.operation)
    if operation is None:
        raise NotImplementedError(f"The operation {node.operation} has no translation.")

    def value(argument: Any) -> Any:
        result = found[argument.name] if isinstance(argument, Ref) else argument
        return result if operation.images or not isinstance(result, Image) else result.first()

    args, kwargs = _replace(node.args, value), _replace(dict(node.kwargs), value)
    return operation.function(*((step,) if operation.step else ()), *args, **kwargs)


def _replace(tree: Any, function: Any) -> Any:
    """Lists, tuples and dicts with a function applied to what they hold."""
    if isinstance(tree, Ref | Image) or not isinstance(tree, list | tuple | dict):
        return function(tree)
    if isinstance(tree, dict):
        return {key: _replace(value, function) for key, value in tree.items()}
    return type(tree)(_replace(value, function) for value in tree)

"""Translated modules as tasks: what `evenly.from_torch` returns.

The model that travels is a dict from the names of PyTorch's parameters to arrays. Buffers that
training changes, such as the running statistics of batch norm, are the state of a `Stateful`. All
other buffers, and parameters that are frozen, stay with the task.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from evenly.data.federation import Shard
from evenly.models.layers import by_size
from evenly.records import record, static
from evenly.torch_models.graph import Graph, evaluate
from evenly.torch_models.objectives import Objective
from evenly.torch_models.operands import StepDraws
from evenly.trees import Stateful
from evenly.types import Array, Key, Tree

# numbers that a row needs at most between layers, if all rows are read at once
MOST_WIDTH = 2**13
_BUILDING = threading.Lock()  # PyTorch's random numbers belong to the process


class StateEntry(NamedTuple):
    """An entry of a state dict."""

    key: str
    name: str  # of the parameter, buffer or constant that holds its value
    dtype: str


class Origin(NamedTuple):
    """The module that a task was made of."""

    title: str  # name of its class
    row: tuple[int, ...]  # shape of an example
    dtype: str  # of the features
    entries: tuple[StateEntry, ...]
    orders: Mapping[str, Sequence[int]]  # axes of parameters that are stored in another order
    # builds the module anew; None: the module is given with its weights
    build: Callable[[], Any] | None

    def __repr__(self) -> str:
        return f"Origin({self.title!r}, {self.row}, {self.dtype!r})"

    def __hash__(self) -> int:
        return id(self.orders)


class Translated:
    """Losses, predictions and probabilities of a translated module."""

    initial: Tree
    constants: dict[str, Any]
    evaluation: Graph
    objective: Objective
    origin: Origin
    joint: bool
    reduction: str

    @property
    def symbols(self) -> int | None:
        """How many symbols its embeddings know, if they read the features as they are."""
        values = {**self.constants, **values_of(self.initial)}
        sizes = [values[name].shape[0] for name in self.evaluation.embeddings()]
        return min(sizes, default=None)

    def init(self, key: Key) -> Tree:
        """The weights of the module; of a function, those that it builds after
        `torch.manual_seed(seed)`, where `key` is `jax.random.key(seed)`.
        """
        if self.origin.build is None:
            return jax.tree.map(jnp.asarray, self.initial)
        if isinstance(key, Tracer):
            form = jax.eval_shape(lambda: self.initial)
            data = jax.random.key_data(key)
            return jax.pure_callback(self._built, form, data, vmap_method="sequential")
        return jax.tree.map(jnp.asarray, self._built(jax.random.key_data(key)))

    def _built(self, data: Any) -> Tree:
        high, low = (int(word) for word in np.asarray(data))
        module = built(self.origin.build, (high << 32) + low)
        return weights_of(module, self.initial, self.origin.orders)

    def outputs(self, model: Tree, x: Array) -> Array:
        """What the module returns in evaluation. [n, ...]"""
        values = {**self.constants, **values_of(model)}

        def network(rows: Array, *, direct: bool) -> Array:
            return evaluate(self.evaluation, values, rows, direct=direct)[0]

        rows = features(x, self.origin)
        if self.evaluation.width <= MOST_WIDTH:
            return network(rows, direct=False)
        return by_size(network, rows)

    def losses(self, params: Tree, shard: Shard) -> Array:
        """Loss of each row. [n]"""
        return self.objective.rows(self.outputs(params, shard.x), shard.y)

    def penalty(self, params: Tree) -> float:
        """No regularisation."""
        return 0.0

    def predict(self, params: Tree, x: Array) -> Array:
        """Number of the class with the largest score; of a single score, whether it is above 0."""
        return classes_of(self.outputs(params, x))

    def judge(self, params: Tree, shard: Shard) -> tuple[Array, Array]:
        """Losses and predictions from one pass. [n] and [n]"""
        outputs = self.outputs(params, shard.x)
        return self.objective.rows(outputs, shard.y), classes_of(outputs)

    def probabilities(self, params: Tree, x: Array) -> Array:
        """Softmax of the scores; of a single score, its sigmoid. [n, classes]"""
        outputs = self.outputs(params, x)
        if outputs.ndim == 2 and outputs.shape[1] > 1:
            return jax.nn.softmax(outputs, axis=1)
        score = outputs.reshape(outputs.shape[0])
        return jnp.stack([jax.nn.sigmoid(-score), jax.nn.sigmoid(score)], axis=1)

    def to_torch(self, model: Tree) -> dict[str, Any]:
        """A state dict with the weights and statistics of a trained model.

        Args:
            model: Model of this task, such as `Trace.model`.

        Returns:
            Tensors by name, for `load_state_dict` of the module.
        """
        import torch

        values = {**self.constants, **values_of(model)}

        def tensor(entry: StateEntry) -> Any:
            value = np.asarray(values[entry.name])
            order = self.origin.orders.get(entry.name)
            value = value if order is None else np.transpose(value, np.argsort(order))
            dtype = getattr(torch, entry.dtype)
            value = value if dtype.is_floating_point else np.rint(value)
            return torch.tensor(value).to(dtype)

        return {entry.key: tensor(entry) for entry in self.origin.entries}


@record
class TorchModel(Translated):
    """A translated module that computes the same in training and in evaluation."""

    initial: Tree
    constants: dict[str, Any]
    evaluation: Graph = static()
    objective: Objective = static()
    origin: Origin = static()
    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def __repr__(self) -> str:
        return shown(self, self.evaluation)


@record
class TorchTrainingModel(Translated):
    """A translated module with dropout, batch statistics or other differences in training."""

    initial: Tree
    constants: dict[str, Any]
    evaluation: Graph = static()
    training: Graph = static()
    objective: Objective = static()
    origin: Origin = static()
    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def __repr__(self) -> str:
        return shown(self, self.evaluation, self.training)

    def train_losses(self, model: Tree, shard: Shard, key: Any) -> tuple[Array, Tree]:
        """Loss of each row in training, and the new state of the model."""
        values = {**self.constants, **values_of(model)}
        rows = features(shard.x, self.origin)
        outputs, changed = evaluate(
            self.training, values, rows, mask=shard.mask, draws=StepDraws(key)
        )
        losses = self.objective.rows(outputs, shard.y)
        if not isinstance(model, Stateful):
            return losses, ()
        state = {
            name: jax.lax.stop_gradient(changed[name]).astype(old.dtype)
            for name, old in model.state.items()
        }
        return losses, state


def shown(task: Any, *graphs: Graph) -> str:
    """A task in one line."""
    size = sum(leaf.size for leaf in jax.tree.leaves(task.initial) if hasattr(leaf, "size"))
    parts = [f"{size:,} parameters", repr(task.origin), repr(task.objective), *map(repr, graphs)]
    return f"{type(task).__name__}({task.origin.title}: {', '.join(parts)})"


def values_of(model: Tree) -> dict[str, Array]:
    """Parameters and state of a model by name."""
    return {**model.params, **model.state} if isinstance(model, Stateful) else dict(model)


def classes_of(outputs: Array) -> Array:
    """Class numbers from scores. [n]"""
    if outputs.ndim == 2 and outputs.shape[1] > 1:
        return outputs.argmax(1)
    return (outputs.reshape(outputs.shape[0]) > 0).astype(jnp.int32)


def features(x: Array, origin: Origin) -> Array:
    """Features in the type that the module was traced with.

    Raises:
        ValueError: If rows have another shape, or are whole numbers where the module takes floats.
    """
    x, wanted = jnp.asarray(x), np.dtype(origin.dtype)
    if x.shape[1:] != origin.row:
        raise ValueError(
            f"the module was traced with rows of shape {list(origin.row)}. Pass an example of these"
            " data to from_torch, or reshape in its forward"
        )
    if wanted.kind == "f" and not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f"the module was traced with {wanted}, but the features are {x.dtype}. Pass an example"
            " of these data to from_torch, and convert them in its forward"
        )
    return x.astype(jax.dtypes.canonicalize_dtype(wanted))


def built(build: Any, seed: int) -> Any:
    """The module that a function builds after `torch.manual_seed(seed)`. PyTorch's own generator
    is left as it was.
    """
    import torch

    with _BUILDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def weights_of(module: Any, form: Tree, orders: Mapping[str, Sequence[int]]) -> Tree:
    """Parameters and state of a module, in the form of a model."""
    found = {
        name: value.detach().cpu()
        for part in (module.named_parameters, module.named_buffers)
        for name, value in part(remove_duplicate=False)
    }

    def array(name: str, leaf: Any) -> np.ndarray:
        value = found[name].to(getattr(__import__("torch"), str(leaf.dtype))).numpy()
        return np.array(np.transpose(value, orders[name]) if name in orders else value)

    def arrays(part: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {name: array(name, leaf) for name, leaf in part.items()}

    if isinstance(form, Stateful):
        return Stateful(arrays(form.params), arrays(form.state))
    return arrays(form)

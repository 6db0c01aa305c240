"""Losses of translated modules: cross-entropy, binary cross-entropy, or a function of the user.

The simulator needs the loss of each row, so that padding and row weights can count. A function in
PyTorch is traced for one row and vectorised. It must therefore be a mean, a sum, or a list of the
losses of rows; this is checked with an example.
"""

import hashlib
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from evenly.digests import digest_of
from evenly.models.linear import cross_entropy
from evenly.torch_models.gradients import (
    gradient_of,
    own_backwards,
    refuse_other_gradients,
    weights_for,
)
from evenly.torch_models.graph import Graph, evaluate
from evenly.torch_models.tracing import name_of, traced
from evenly.types import Array
from evenly.validation import shortened

CROSS_ENTROPY, BINARY = "cross-entropy", "binary"
LEAST_ROWS = 6  # of the example on which a loss is checked


class Objective(NamedTuple):
    """The loss of each row, from the outputs of a module and class numbers."""

    name: str
    reduction: str  # of a batch: "mean" or "sum"
    rows: Callable[[Array, Array], Array]  # outputs and class numbers [n] -> [n]
    digest: str = ""  # of what a function computes

    def __repr__(self) -> str:
        own = f", sha256={self.digest[:16]}" if self.digest else ""
        return f"Objective({self.name!r}, {self.reduction!r}{own})"


def objective_of(loss: Any, outputs: torch.Tensor) -> Objective:
    """The objective that a user asks for; `outputs` are those of a few rows.

    Raises:
        TypeError: If the loss is neither a word nor a function.
        ValueError: If it does not fit the outputs, or mixes the rows of a batch.
    """
    scores = outputs.shape[1] if outputs.ndim == 2 else 1
    if loss == CROSS_ENTROPY:
        if outputs.ndim != 2 or scores < 2:
            raise ValueError(
                "Cross-entropy requires outputs of shape [n, classes] with at least two classes,"
                f" got {_shape(outputs)}. Pass loss='binary' for a single score."
            )
        return Objective(CROSS_ENTROPY, "mean", cross_entropy)
    if loss == BINARY:
        if outputs.ndim > 2 or scores != 1:
            raise ValueError(
                "The loss 'binary' requires one score per row, [n] or [n, 1], got"
                f" {_shape(outputs)}. Pass loss='cross-entropy' for several classes."
            )
        return Objective(BINARY, "mean", _binary)
    if isinstance(loss, str) or not callable(loss):
        raise TypeError(
            f"loss must be 'cross-entropy', 'binary', or a function of outputs and labels in"
            f" PyTorch or JAX, got {shortened(loss)}."
        )
    if isinstance(loss, nn.BCELoss) or loss is nn.functional.binary_cross_entropy:
        raise ValueError(
            "BCELoss takes probabilities, which lose the digits of confident predictions. Leave the"
            " sigmoid out of the module, and pass loss='binary'."
        )
    return _of_function(loss, outputs)


def _shape(outputs: torch.Tensor) -> str:
    return str(["n", *outputs.shape[1:]]).replace("'", "")


def _binary(outputs: Array, y: Array) -> Array:
    score = outputs.reshape(outputs.shape[0])
    return jax.nn.softplus(jnp.where(y == 1, -score, score))


# A function of the user.


def _of_function(loss: Callable[..., Any], outputs: torch.Tensor) -> Objective:
    times = -(-LEAST_ROWS // outputs.shape[0])
    outputs = outputs.detach().repeat(times, *(1,) * (outputs.ndim - 1))
    classes = max(outputs.shape[1] if outputs.ndim > 1 else 1, 2)
    labels = torch.arange(outputs.shape[0]) % classes
    name, failures = getattr(loss, "__name__", type(loss).__name__), []
    for form in FORMS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # PyTorch warns where it broadcasts targets
                whole = loss(outputs, form(labels, outputs))
        except Exception as error:  # the user's function may raise anything
            failures.append(f"{type(error).__name__}: {error}")
            continue
        if isinstance(whole, torch.Tensor):
            return _torch_objective(name, loss, outputs, form(labels, outputs))
        break
    return _jax_objective(name, loss, outputs, failures)


# labels as PyTorch's losses want them: class numbers, or numbers in the form of the outputs
FORMS: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...] = (
    lambda y, outputs: y,
    lambda y, outputs: y.to(outputs.dtype),
    lambda y, outputs: y.to(outputs.dtype)[:, None],
)


class _OneRow(nn.Module):
    """A loss as a module, so that it can be traced."""

    def __init__(self, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.loss(outputs, target).reshape(())


def _torch_objective(name: str, loss: Any, outputs: torch.Tensor, target: torch.Tensor) -> Any:
    with torch.no_grad():
        whole, each = loss(outputs, target), _of_rows(loss, outputs, target)
    close = lambda a, b: a.shape == b.shape and torch.allclose(a, b, rtol=1e-4)  # noqa: E731
    reduction = "sum" if close(whole, each.sum()) else "mean"
    if not any(close(whole, one) for one in (each.sum(), each.mean(), each)):
        raise ValueError(
            f"The loss {name} of a batch is neither the sum nor the mean of the losses of its rows."
            " Losses that compare rows cannot be used. If it has weights for classes, pass"
            " reduction='none', so that they are not divided by the weights of the batch."
        )
    row = _OneRow(loss)
    graph, constants = traced(row, outputs[:1], target[:1], training=False, rows=False)
    fixed = {**constants, **dict(row.named_parameters()), **dict(row.named_buffers())}
    values = {key: value.detach().numpy() for key, value in fixed.items()}
    digest = hashlib.sha256(graph.digest().encode())
    for value in values.values():
        digest.update(value.tobytes())
    own = Objective(name, reduction, _row_by_row(graph, values, target), digest.hexdigest())
    _compare_gradients(own, loss, outputs, target)
    return own


def _of_rows(loss: Any, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    rows = range(outputs.shape[0])
    return torch.stack([loss(outputs[i : i + 1], target[i : i + 1]).reshape(()) for i in rows])


def _compare_gradients(
    objective: Objective, loss: Any, outputs: torch.Tensor, target: torch.Tensor
) -> None:
    """Raise unless the losses of rows have the gradient that they have in PyTorch."""
    scores = outputs.clone().requires_grad_()
    with torch.enable_grad():
        each = _of_rows(loss, scores, target)
    labels = jnp.asarray(target.numpy().reshape(-1), jnp.int32)
    weights = weights_for(each).numpy()

    def weighted(scores: Array) -> Array:
        return (objective.rows(scores, labels) * weights).sum()

    refuse_other_gradients(
        f"the loss {objective.name}",
        {"the scores": jax.grad(weighted)(jnp.asarray(outputs.numpy()))},
        gradient_of(each, {"the scores": scores}),
        own_backwards(each),
    )


def _row_by_row(
    graph: Graph, fixed: dict[str, Any], target: torch.Tensor
) -> Callable[[Array, Array], Array]:
    real, column = target.is_floating_point(), target.ndim == 2
    values = {name: jnp.asarray(value) for name, value in fixed.items()}

    def one(outputs: Array, y: Array) -> Array:
        y = y.astype(outputs.dtype) if real else y
        return evaluate(graph, values, outputs[None], y[None, None] if column else y[None])[0]

    return jax.vmap(one)


def _jax_objective(name: str, loss: Any, outputs: torch.Tensor, failures: list[str]) -> Objective:
    form = jax.ShapeDtypeStruct(tuple(outputs.shape), name_of(outputs.dtype))
    labels = jax.ShapeDtypeStruct(tuple(outputs.shape[:1]), jnp.int32)
    try:
        losses = jax.eval_shape(loss, form, labels)
    except Exception as error:  # the user's function may raise anything
        why = failures[0] if failures else "it returns no tensor"
        raise ValueError(
            f"The loss {name} works neither with tensors of PyTorch ({why}) nor with arrays of JAX"
            f" ({error})."
        ) from error
    if getattr(losses, "shape", None) != labels.shape:
        raise ValueError(
            f"The loss {name} must return one number per row, [n], but {labels.shape[0]} rows gave"
            f" {getattr(losses, 'shape', losses)}. In JAX the mean is taken by evenly."
        )
    _refuse_mixed(name, loss, outputs.numpy())
    return Objective(name, "mean", loss, digest_of(loss))


def _refuse_mixed(name: str, loss: Any, outputs: np.ndarray) -> None:
    """Raise unless a loss in JAX is the same for rows one by one."""
    scores = jnp.asarray(outputs)
    labels = jnp.arange(len(outputs)) % max(scores.shape[1] if scores.ndim > 1 else 1, 2)
    each = [loss(scores[i : i + 1], labels[i : i + 1]) for i in range(len(outputs))]
    together = np.asarray(loss(scores, labels))
    if not np.allclose(np.ravel(each), together, rtol=1e-4, atol=1e-6, equal_nan=True):
        raise ValueError(
            f"The loss {name} mixes the rows of a batch: the loss of a row alone is another than in"
            " a batch. Losses that compare rows cannot be used."
        )

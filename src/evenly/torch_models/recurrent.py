"""LSTM, GRU and plain recurrent layers as scans over time.

PyTorch exports a recurrent layer as one operation, with the weights of all layers and directions in
one list. A scan compiles one step and repeats it, while an unrolled graph would grow with the
length of the sequence.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from evenly.torch_models.operands import StepSettings
from evenly.types import Array

States = tuple[Array, ...]  # of one layer and direction: output, and the cell of an LSTM


class RecurrentCell(NamedTuple):
    """A kind of recurrent layer."""

    gates: int
    # states, what the inputs add to all gates, and what the last output adds -> states
    step: Callable[[States, Array, Array], States]


def _lstm_step(states: States, entering: Array, recurrent: Array) -> States:
    take, keep, new, show = jnp.split(entering + recurrent, 4, axis=-1)
    cell = jax.nn.sigmoid(keep) * states[1] + jax.nn.sigmoid(take) * jnp.tanh(new)
    return jax.nn.sigmoid(show) * jnp.tanh(cell), cell


def _gru_step(states: States, entering: Array, recurrent: Array) -> States:
    (reset, update, new), (own_reset, own_update, own_new) = (
        jnp.split(part, 3, axis=-1) for part in (entering, recurrent)
    )
    candidate = jnp.tanh(new + jax.nn.sigmoid(reset + own_reset) * own_new)
    kept = jax.nn.sigmoid(update + own_update)
    return ((1 - kept) * candidate + kept * states[0],)


LSTM = RecurrentCell(4, _lstm_step)
GRU = RecurrentCell(3, _gru_step)
TANH = RecurrentCell(1, lambda states, entering, recurrent: (jnp.tanh(entering + recurrent),))
RELU = RecurrentCell(1, lambda states, entering, recurrent: (jax.nn.relu(entering + recurrent),))


class Weights(NamedTuple):
    """Weights of one layer in one direction, as PyTorch has them."""

    inputs: Array  # [gates * hidden, inputs]
    recurrent: Array  # [gates * hidden, hidden]
    input_bias: Array | None = None
    recurrent_bias: Array | None = None
    projection: Array | None = None  # [outputs, hidden], of an LSTM whose outputs are projected


def _scan(cell: RecurrentCell, x: Array, weights: Weights, states: States, *, back: bool) -> Any:
    """All outputs of a layer, and its last states: [length, n, inputs] -> [length, n, outputs]."""
    length, n, inputs = x.shape
    # of all steps in one product
    entering = (x.reshape(-1, inputs) @ weights.inputs.T).reshape(length, n, -1)
    entering = entering if weights.input_bias is None else entering + weights.input_bias

    def step(states: States, now: Array) -> tuple[States, Array]:
        recurrent = states[0] @ weights.recurrent.T
        if weights.recurrent_bias is not None:
            recurrent = recurrent + weights.recurrent_bias
        output, *rest = cell.step(states, now, recurrent)
        if weights.projection is not None:
            output = output @ weights.projection.T
        return (output, *rest), output

    last, outputs = lax.scan(step, states, entering, reverse=back)
    return outputs, last


def _layers(
    cell: RecurrentCell,
    step: StepSettings,
    x: Array,
    states: States,
    weights: Sequence[Array],
    *rest: Any,
) -> tuple[Array, ...]:
    """Outputs of the last layer and the last states of all layers.

    `rest` is, as PyTorch has it: whether there are biases, the number of layers, the probability of
    dropout between layers, whether it trains, both directions, and the batch first.
    """
    biases, layers, dropout, training, both, batch_first = rest
    directions, x = 2 if both else 1, jnp.swapaxes(x, 0, 1) if batch_first else x
    each = len(weights) // (layers * directions)
    last = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            at = layer * directions + direction
            own = _weights(weights[at * each : (at + 1) * each], biases)
            own_states = tuple(state[at] for state in states)
            output, final = _scan(cell, x, own, own_states, back=direction == 1)
            outputs.append(output)
            last.append(final)
        x = outputs[0] if directions == 1 else jnp.concatenate(outputs, axis=-1)
        if training and dropout and layer < layers - 1:
            kept = step.random.keep(1 - dropout, x.shape)
            x = jnp.where(kept, x / (1 - dropout), 0)
    finals = [jnp.stack(values) for values in zip(*last, strict=True)]
    return jnp.swapaxes(x, 0, 1) if batch_first else x, *finals


def _weights(own: Sequence[Array], biases: bool) -> Weights:
    if biases:
        return Weights(*own)
    return Weights(own[0], own[1], projection=own[2] if len(own) > 2 else None)


def lstm_layers(
    step: StepSettings, x: Array, states: Sequence[Array], weights: Any, *rest: Any
) -> tuple[Array, ...]:
    """An LSTM: outputs, last outputs and last cells."""
    return _layers(LSTM, step, x, tuple(states), weights, *rest)


def gru_layers(step: StepSettings, x: Array, state: Array, weights: Any, *rest: Any) -> Any:
    """A GRU: outputs and last outputs."""
    return _layers(GRU, step, x, (state,), weights, *rest)


def tanh_layers(step: StepSettings, x: Array, state: Array, weights: Any, *rest: Any) -> Any:
    """A plain recurrent network with tanh: outputs and last outputs."""
    return _layers(TANH, step, x, (state,), weights, *rest)


def relu_layers(step: StepSettings, x: Array, state: Array, weights: Any, *rest: Any) -> Any:
    """A plain recurrent network with ReLU: outputs and last outputs."""
    return _layers(RELU, step, x, (state,), weights, *rest)

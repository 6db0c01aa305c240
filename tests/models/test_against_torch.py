"""The same weights give what PyTorch gives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.models import LeNet, ResNet
from evenly.models.layers import Layer, group_norm
from evenly.models.lstm import lstm, lstm_layer
from evenly.parts.work import batch_loss
from tests.models.networks import shard

torch: Any = pytest.importorskip(
    "torch", reason="PyTorch is not installed; `pip install torch` adds the comparison"
)
SIDE, WIDTHS = 10, (4, 6, 8)
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def tensor(value: Any) -> Any:
    return torch.from_numpy(np.array(value))


def channels_first(x: Any) -> Any:
    return tensor(np.moveaxis(np.asarray(x), -1, 1))


def kernel(w: Any) -> Any:
    return tensor(np.asarray(w).transpose(3, 2, 0, 1))


def dense1(w: Any) -> np.ndarray:
    """PyTorch flattens channels first."""
    return (
        np.asarray(w)
        .reshape(SIDE // 2, SIDE // 2, WIDTHS[1], WIDTHS[2])
        .transpose(3, 2, 0, 1)
        .reshape(WIDTHS[2], -1)
    )


@pytest.mark.parametrize("bias", [True, False])
def test_lenet_and_its_gradient(bias: bool):
    task = LeNet(classes=5, shape=(SIDE, SIDE, 1), widths=WIDTHS, bias=bias)
    params, x, y = (
        jax.jit(task.init)(jax.random.key(0)),
        drawn(0, 7, SIDE, SIDE, 1),
        np.arange(7) % 5,
    )
    first, second, hidden = WIDTHS
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, first, 3, padding=1, bias=bias), torch.nn.ReLU(),
        torch.nn.Conv2d(first, second, 3, padding=1, bias=bias), torch.nn.ReLU(),
        torch.nn.MaxPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(second * (SIDE // 2) ** 2, hidden, bias=bias), torch.nn.ReLU(),
        torch.nn.Linear(hidden, 5, bias=bias),
    )  # fmt: skip
    with torch.no_grad():
        for name, value in zip(dict(model.named_parameters()), in_torch_order(params), strict=True):
            dict(model.named_parameters())[name].copy_(value)
    loss = torch.nn.functional.cross_entropy(model(channels_first(x)), tensor(y))
    loss.backward()
    value, gradient = jax.jit(jax.value_and_grad(lambda p: batch_loss(task, p, shard(x, y))))(
        params
    )
    assert float(value) == pytest.approx(loss.item(), rel=1e-5)
    for ours, parameter in zip(in_torch_order(gradient), model.parameters(), strict=True):
        np.testing.assert_allclose(ours, parameter.grad, **CLOSE)


def in_torch_order(params: dict[str, Layer]) -> list[Any]:
    orders = {
        "conv1": kernel,
        "conv2": kernel,
        "dense1": lambda w: tensor(dense1(w)),
        "dense2": lambda w: tensor(np.asarray(w).T),
    }
    return [
        value
        for name, order in orders.items()
        for value in (order(params[name]["w"]), *map(tensor, _biases(params[name])))
    ]


def _biases(layer: Layer) -> list[Any]:
    return [layer["b"]] if "b" in layer else []


def test_an_lstm_layer_and_its_gradient():
    inputs, hidden, length, n = 3, 5, 9, 4
    layer = lstm_layer(jax.random.key(0), inputs, hidden)
    model, x, pull = (
        torch.nn.LSTM(inputs, hidden),
        drawn(0, length, n, inputs),
        drawn(1, length, n, hidden),
    )
    pairs = {
        "w": "weight_ih_l0",
        "recurrent_w": "weight_hh_l0",
        "b": "bias_ih_l0",
        "recurrent_b": "bias_hh_l0",
    }
    with torch.no_grad():
        for ours, theirs in pairs.items():
            getattr(model, theirs).copy_(tensor(np.asarray(layer[ours]).T))
    seen = tensor(x).requires_grad_()
    out, _ = model(seen)
    (out * tensor(pull)).sum().backward()
    np.testing.assert_allclose(lstm(jnp.asarray(x), layer), out.detach(), **CLOSE)
    slopes = jax.jit(jax.grad(lambda layer, x: (lstm(x, layer) * pull).sum(), (0, 1)))
    gradient, by_input = slopes(layer, jnp.asarray(x))
    for ours, theirs in pairs.items():
        np.testing.assert_allclose(
            np.asarray(gradient[ours]).T, getattr(model, theirs).grad, **CLOSE
        )
    np.testing.assert_allclose(by_input, seen.grad, **CLOSE)


@pytest.mark.parametrize("length", [1, 7, pytest.param(2, marks=pytest.mark.further)])
def test_runs_side_by_side_have_the_gradients_of_each_alone(length: int):
    layers = [lstm_layer(jax.random.key(k), 3, 5) for k in range(2)]
    x, pull = (jnp.asarray(drawn(k, length, 4, size)) for k, size in ((0, 3), (1, 5)))
    slopes = jax.grad(lambda layer: (lstm(x, layer) * pull).sum())
    together = jax.vmap(slopes)(jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers))
    for k, layer in enumerate(layers):
        for name, alone in slopes(layer).items():
            np.testing.assert_allclose(together[name][k], alone, **CLOSE)
    # a layer without recurrence in its only step has no gradient of the recurrent weights
    assert bool((together["recurrent_w"] == 0).all()) == (length == 1)


@pytest.mark.parametrize("groups", [2, 3])
def test_group_norm_and_its_gradient(groups: int):
    x, pull, layer = (
        3 + drawn(0, 2, 4, 5, 6),
        drawn(1, 2, 4, 5, 6),
        {"w": jnp.asarray(drawn(2, 6)), "b": jnp.asarray(drawn(3, 6))},
    )
    theirs = channels_first(x).requires_grad_()
    out = torch.nn.functional.group_norm(theirs, groups, tensor(layer["w"]), tensor(layer["b"]))
    (out * channels_first(pull)).sum().backward()
    np.testing.assert_allclose(
        group_norm(jnp.asarray(x), layer, groups=groups),
        np.moveaxis(out.detach().numpy(), 1, -1),
        **CLOSE,
    )
    gradient = jax.jit(jax.grad(lambda x: (group_norm(x, layer, groups=groups) * pull).sum()))(
        jnp.asarray(x)
    )
    np.testing.assert_allclose(gradient, np.moveaxis(theirs.grad.numpy(), 1, -1), **CLOSE)


def test_resnet():
    task = ResNet(classes=4, shape=(8, 8, 3), width=4, blocks=(2, 1))
    params, x = jax.jit(task.init)(jax.random.key(0)), drawn(0, 3, 8, 8, 3)

    def apply(x: Any, part: Any, stride: int = 1) -> Any:
        w = kernel(part["conv"]["w"])
        x = torch.nn.functional.conv2d(x, w, stride=stride, padding=w.shape[-1] // 2)
        return torch.nn.functional.group_norm(
            x, 2, tensor(part["norm"]["w"]), tensor(part["norm"]["b"])
        )

    h = apply(channels_first(x), params["stem"]).relu()
    for block, stride in zip(params["blocks"], (1, 1, 2), strict=True):
        inner = apply(h, block["first"], stride).relu()
        h = (
            apply(inner, block["second"])
            + (apply(h, block["aside"], stride) if "aside" in block else h)
        ).relu()
    logits = h.mean((2, 3)) @ tensor(params["dense"]["w"]) + tensor(params["dense"]["b"])
    np.testing.assert_allclose(
        jax.jit(task.probabilities)(params, jnp.asarray(x)), logits.softmax(1), **CLOSE
    )

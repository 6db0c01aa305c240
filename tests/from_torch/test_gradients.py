"""Gradients of modules and losses that stop or change them, against PyTorch's."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import evenly
from evenly.data.federation import Shard
from evenly.torch_models.graph import evaluate
from evenly.torch_models.tracing import traced
from evenly.trees import learned, with_learned

LABELS = torch.arange(6) % 3
SOME = torch.linspace(-2, 2, 24).reshape(6, 4).sin()


class Between(nn.Module):
    """Two layers, and a function of the first."""

    def __init__(self, function: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.function = nn.Linear(4, 5), nn.Linear(5, 3), function

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.function(self.a, x))


def agree(module: nn.Module, x: Tensor = SOME, y: Tensor = LABELS, loss: Any = None) -> None:
    """The gradient of the loss in training is PyTorch's."""
    task: Any = evenly.from_torch(module, x, loss=loss or "cross-entropy")
    whole = loss or functional.cross_entropy
    module.train().zero_grad()
    whole(module(x), y).backward()
    initial, numbers = task.init(jax.random.key(0)), np.zeros(len(x), np.int32)
    ones = np.ones(len(x), np.float32)
    shard = Shard(x.detach().numpy(), y.numpy().astype(np.int32), numbers, ones, ones)

    def mean(params: Any) -> Any:
        model = with_learned(initial, params)
        if hasattr(task, "train_losses"):
            return task.train_losses(model, shard, jax.random.key(1))[0].mean()
        return task.losses(model, shard).mean()

    gradient = jax.jit(jax.grad(mean))(learned(initial))
    found = task.to_torch(with_learned(initial, gradient))
    for name, value in module.named_parameters():
        wanted = torch.zeros_like(value) if value.grad is None else value.grad
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-6, err_msg=name)


def without_gradient(layer: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.tanh(layer(x))


def two_without_gradient(layer: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        low, high = torch.tanh(layer(x)), layer(x).exp()
    return low + high * layer(x)


def straight_through(layer: nn.Module, x: Tensor) -> Tensor:
    values = layer(x)
    return values + (values.round() - values).detach()


@pytest.mark.parametrize(
    "function",
    [
        without_gradient,
        two_without_gradient,
        straight_through,
        pytest.param(lambda layer, x: torch.tanh(layer(x)).detach(), marks=pytest.mark.further),
        lambda layer, x: functional.dropout(layer(x), 0.0, layer.training).detach() * layer(x),
    ],
)
def test_gradients_stop_where_pytorch_stops_them(function: Any):
    agree(Between(function))


CORNERS = torch.tensor([[-3.0, 0.0, 3.0], [3.0, -3.0, 0.0], [0.0, 3.0, -3.0], [-0.0, 1.0, -2.0]])


@pytest.mark.parametrize(
    "function",
    [
        torch.abs,
        lambda x: x.norm(p=1, dim=1, keepdim=True),
        functional.hardswish,
        functional.hardsigmoid,
        torch.sinc,
    ],
)
def test_gradients_of_corners_are_those_of_pytorch(function: Any):
    class Only(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(x)

    graph, constants = traced(Only(), CORNERS, training=False)
    values = {name: jnp.asarray(value.numpy()) for name, value in constants.items()}
    x = CORNERS.clone().requires_grad_()
    outputs = function(x)
    weights = torch.linspace(0.3, 1.7, outputs.numel()).reshape(outputs.shape)
    (gradient,) = torch.autograd.grad((outputs * weights).sum(), x)
    found, pull = jax.vjp(lambda x: evaluate(graph, values, x)[0], jnp.asarray(CORNERS.numpy()))
    np.testing.assert_allclose(found, outputs.detach(), atol=1e-6)
    np.testing.assert_allclose(pull(jnp.asarray(weights.numpy()))[0], gradient, atol=1e-6)


def test_the_gradient_of_binary_cross_entropy_at_zero_is_that_of_pytorch():
    module = nn.Linear(4, 1)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    labels = torch.tensor([0, 0, 0, 0, 1, 1])

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        target = y.to(outputs.dtype).reshape(outputs.shape)
        return functional.binary_cross_entropy_with_logits(outputs, target)

    agree(module, SOME, labels, loss)


def test_attention_to_nothing_is_zero_and_has_a_gradient():
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.embed, self.head = nn.Embedding(5, 8), nn.Linear(8, 3)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.layer(self.embed(x), src_key_padding_mask=x == 0).mean(1))

    x = torch.arange(18).reshape(6, 3) % 5
    x[2] = 0
    agree(Hidden(), x)


def focal(outputs: Tensor, y: Tensor) -> Tensor:
    each = functional.cross_entropy(outputs, y, reduction="none")
    return ((1 - torch.exp(-each)).detach() ** 2 * each).mean()


def focal_without_gradient(outputs: Tensor, y: Tensor) -> Tensor:
    each = functional.cross_entropy(outputs, y, reduction="none")
    with torch.no_grad():
        weight = (1 - torch.exp(-each)) ** 2
    return (weight * each).mean()


@pytest.mark.parametrize("loss", [focal, focal_without_gradient])
def test_weights_of_a_loss_that_are_detached_have_no_gradient(loss: Any):
    agree(nn.Linear(4, 3), loss=loss)


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return -gradients[0]


def reversed_gradient(layer: nn.Module, x: Tensor) -> Tensor:
    return Reversal.apply(torch.tanh(layer(x)))  # type: ignore[return-value]


def noisy_reversal(layer: nn.Module, x: Tensor) -> Tensor:
    if layer.training:
        return reversed_gradient(layer, functional.dropout(x, 0.5))
    return torch.tanh(layer(x))


@pytest.mark.parametrize(
    "function, example",
    [
        (noisy_reversal, SOME),
        (reversed_gradient, torch.zeros(2, 4)),
        pytest.param(reversed_gradient, SOME, marks=pytest.mark.further),
        pytest.param(noisy_reversal, torch.zeros(2, 4), marks=pytest.mark.further),
    ],
)
def test_a_function_with_its_own_backward_is_refused_by_name(function: Any, example: Tensor):
    with pytest.raises(ValueError, match=r"Between applies 'Reversal', .* Write another gradient"):
        evenly.from_torch(Between(function), example)


def test_a_loss_with_its_own_backward_is_refused_by_name():
    def loss(outputs: Tensor, y: Tensor) -> Any:
        return functional.cross_entropy(Reversal.apply(outputs), y)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="the loss loss applies 'Reversal'"):
        evenly.from_torch(nn.Linear(4, 3), SOME, loss=loss)


def test_a_hook_that_changes_the_gradient_is_refused():
    def hooked(layer: nn.Module, x: Tensor) -> Tensor:
        values = layer(x)
        if values.requires_grad:
            values.register_hook(lambda gradient: 2 * gradient)
        return values

    with pytest.raises(ValueError, match=r"for 'a\.weight', 'a\.bias'\. Hooks that change"):
        evenly.from_torch(Between(hooked), SOME)


def test_a_function_whose_backward_is_that_of_its_forward_is_used():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Any:
            return 2 * gradients[0]

    agree(Between(lambda layer, x: Doubled.apply(layer(x))))  # type: ignore[arg-type,return-value]


class Bytes(nn.Module):
    """Instance norm of images, which makes rounding of a constant image large."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.ReLU()),
            *(nn.Conv2d(4, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(16, 3)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x[:, None].float() / 255)


@pytest.mark.parametrize("module", [Bytes(), Bytes().layers])
def test_an_example_of_equal_numbers_is_no_reason_to_refuse(module: nn.Module):
    if isinstance(module, Bytes):
        evenly.from_torch(module, torch.zeros(2, 6, 6, dtype=torch.uint8))
    else:
        evenly.from_torch(module, torch.zeros(2, 1, 6, 6))


def test_numbers_of_symbols_are_compared_as_they_are():
    class Symbols(Between):
        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.function(self.a, functional.one_hot(x, 4).float().sum(1)))

    symbols = torch.arange(12).reshape(6, 2) % 4
    agree(Symbols(without_gradient), symbols)
    with pytest.raises(ValueError, match="Symbols applies 'Reversal'"):
        evenly.from_torch(Symbols(reversed_gradient), symbols[:1] * 0)

"""Translated modules against PyTorch: outputs, losses, gradients, ten steps, and weights back."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._decomp import decompositions

import evenly
from evenly.models.task import TrainingTask
from evenly.torch_models import arithmetic
from tests.from_torch.agreement import UNSTABLE, distances, drift
from tests.from_torch.modules import CASES

SHORT = {"mlp", "lenet"}
EVERY = [pytest.param(name, marks=[pytest.mark.further] * (name not in SHORT)) for name in CASES]
# those that are done in 15 seconds, and those that take up to two minutes
SOON = {"lenet", "tabular", "unet", "normed-mlp", "operations"}
SINGLE = [
    pytest.param(name, marks=pytest.mark.further if name in SOON else pytest.mark.slow)
    for name in CASES
    if name != "mlp"
]


@pytest.mark.parametrize("name", EVERY)
def test_in_float64_everything_agrees_to_eight_digits(name: str):
    found = distances(name, double=True)
    assert max(found) <= 1e-8, found


@pytest.mark.parametrize("name", ["mlp", *SINGLE])
def test_in_float32_outputs_agree_to_five_digits_and_ten_steps_to_three(name: str):
    found = distances(name, double=False)
    assert max(found.outputs, found.back) <= 1e-5, found
    assert found.steps <= 1e-3 or name == UNSTABLE, found


@pytest.mark.further
def test_a_large_embedding_that_is_looked_up_agrees(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(arithmetic, "MOST_HOT", 0)
    found = distances("text-lstm", double=True)
    assert max(found) <= 1e-8, found


@pytest.mark.slow
def test_rounding_moves_an_unstable_network_no_more_than_it_does_in_pytorch():
    """Three steps in float32, in both libraries, against PyTorch in float64."""
    ours, theirs = drift(UNSTABLE, steps=3)
    assert 0 < ours < 3 * theirs < 3e-3


def test_an_lstm_is_traced_by_a_pytorch_that_adds_an_axis_to_its_states(
    monkeypatch: pytest.MonkeyPatch,
):
    """As torch.export of PyTorch 2.11 does."""

    class LastStates(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            _, (output, cell) = self[0](x)
            return self[1](torch.cat([output, cell]).transpose(0, 1).flatten(1))

    def with_axis(*args: Any, **kwargs: Any) -> Any:
        outputs, states = one_layer(*args, **kwargs)
        return outputs, tuple(state.reshape(1, *state.shape[-2:]) for state in states)

    one_layer = decompositions.one_layer_lstm
    monkeypatch.setattr(decompositions, "one_layer_lstm", with_axis)
    module = LastStates(nn.LSTM(3, 4, 1, batch_first=True), nn.Linear(8, 2)).eval()
    x = torch.randn(3, 5, 3)
    task = evenly.from_torch(module, x[:2])
    found = task.outputs(task.init(jax.random.key(0)), x.numpy())
    np.testing.assert_allclose(found, module(x).detach().numpy(), atol=1e-6)


def test_a_module_is_traced_twice_only_if_training_differs():
    kinds = [
        isinstance(evenly.from_torch(module, torch.ones(2, 3)), TrainingTask)
        for module in (nn.Linear(3, 2), nn.Sequential(nn.Dropout(), nn.Linear(3, 2)))
    ]
    assert kinds == [False, True]
    assert not isinstance(nn.Linear(2, 2), TrainingTask)

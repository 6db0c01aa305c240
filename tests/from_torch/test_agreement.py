"""Translated modules against PyTorch: outputs, losses, gradients, ten steps, and weights back."""

import pytest
import torch
from torch import nn

import evenly
from evenly.models.task import TrainingTask
from tests.from_torch.agreement import UNSTABLE, distances, drift
from tests.from_torch.modules import CASES

SHORT = {"mlp", "lenet", "operations"}
EVERY = [pytest.param(name, marks=[pytest.mark.further] * (name not in SHORT)) for name in CASES]
SINGLE = [pytest.param(name, marks=[pytest.mark.slow] * (name != "mlp")) for name in CASES]


@pytest.mark.parametrize("name", EVERY)
def test_in_float64_everything_agrees_to_eight_digits(name: str):
    found = distances(name, double=True)
    assert max(found) <= 1e-8, found


@pytest.mark.parametrize("name", SINGLE)
def test_in_float32_outputs_agree_to_five_digits_and_ten_steps_to_three(name: str):
    found = distances(name, double=False)
    assert max(found.outputs, found.back) <= 1e-5, found
    assert found.steps <= 1e-3 or name == UNSTABLE, found


@pytest.mark.slow
def test_rounding_moves_an_unstable_network_no_more_than_it_does_in_pytorch():
    """Three steps in float32, in both libraries, against PyTorch in float64."""
    ours, theirs = drift(UNSTABLE, steps=3)
    assert 0 < ours < 3 * theirs < 3e-3


def test_a_module_is_traced_twice_only_if_training_differs():
    kinds = [
        isinstance(evenly.from_torch(module, torch.ones(2, 3)), TrainingTask)
        for module in (nn.Linear(3, 2), nn.Sequential(nn.Dropout(), nn.Linear(3, 2)))
    ]
    assert kinds == [False, True]
    assert not isinstance(nn.Linear(2, 2), TrainingTask)

"""Local training in PyTorch on a few rows, against numbers made by hand or in NumPy."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from evenly.algorithms import algorithm
from evenly.flower.clients import torch_popup, torch_training
from evenly.flower.clients.client import read_config
from evenly.flower.clients.rows import NO_ROWS, ClientData, rows
from evenly.flower.clients.torch import TorchEngine
from evenly.flower.clients.torch_training import (
    Batch,
    any_batches,
    batch_of,
    chunks,
    cross_entropy,
    mean_loss,
    outcome,
    probabilities,
    shape_loss,
    tensor,
)
from evenly.parts.work import FullGradient, LocalTraining, NashBargaining
from evenly.randomness import batches
from tests.flower.one_room import config


def line(weight: float = 2.0) -> nn.Module:
    """y = weight * x, without a bias."""
    made = nn.Linear(1, 1, bias=False)
    nn.init.constant_(made.weight, weight)
    return made


def product(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A loss that is linear in the output."""
    return output.reshape(-1) * (y + 1)


def rows_of(*x: float) -> Batch:
    return batch_of((np.array(x, np.float32).reshape(-1, 1), np.arange(len(x))))


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_one_logit_stands_for_two_classes(shape: tuple[int, ...]):
    output, y = torch.tensor([0.0, 1.5, -2.0]).reshape(shape), torch.tensor([1, 0, 1])
    likely = 1 / (1 + np.exp(-np.array([0.0, 1.5, -2.0])))
    np.testing.assert_allclose(
        cross_entropy(output, y),
        -np.log(np.where([True, False, True], likely, 1 - likely)),
        rtol=1e-6,
    )
    np.testing.assert_allclose(probabilities(output), np.stack([1 - likely, likely], 1), rtol=1e-6)
    assert outcome(output).tolist() == [0, 1, 0]


def test_two_logits_are_those_of_two_classes():
    output = torch.tensor([[0.0, 1.0], [3.0, -1.0]])
    p = np.exp(output.numpy()) / np.exp(output.numpy()).sum(1, keepdims=True)
    np.testing.assert_allclose(probabilities(output), p, rtol=1e-6)
    np.testing.assert_allclose(
        cross_entropy(output, torch.tensor([0, 0])), -np.log(p[:, 0]), rtol=1e-6
    )
    assert outcome(output).tolist() == [1, 0]


def test_a_tensor_shares_memory_unless_the_array_is_read_only():
    open_to_all, locked = np.zeros(2), np.zeros(2)
    locked.flags.writeable = False
    for array in (open_to_all, locked):
        tensor(array)[0] = 5.0
    assert (open_to_all[0], locked[0]) == (5.0, 0.0)
    assert tensor([1.0, 2.0]).tolist() == [1.0, 2.0]


def test_a_batch_has_groups_and_weights_also_where_none_are_given():
    x, y, group, weight = np.ones((2, 3)), np.array([0, 1]), np.array([1, 0]), np.array([0.5, 2.0])
    assert batch_of((x, y)).group.tolist() == [0, 0]
    assert batch_of((x, y)).weight.tolist() == [1.0, 1.0]
    assert (batch_of((x, y, group)).group.tolist(), batch_of((x, y, group)).weight.tolist()) == (
        [1, 0],
        [1.0, 1.0],
    )
    assert batch_of((x, y, group, weight)).weight.tolist() == [0.5, 2.0]


def test_chunks_are_all_rows_once():
    data = (np.arange(5.0).reshape(5, 1), np.zeros(5))
    assert [batch.x.reshape(-1).tolist() for batch in chunks(data, 2)] == [[0, 1], [2, 3], [4]]
    # a loader has its own batches
    assert [len(batch.y) for batch in chunks([data, data], 2)] == [5, 5]


@pytest.mark.parametrize("shuffle, most", [(True, 0), (True, 3), (False, 0)])
def test_batches_of_ones_own_follow_the_seed_of_pytorch(shuffle: bool, most: int):
    work, data = (
        LocalTraining(epochs=2, batch_size=4, shuffle=shuffle, max_steps=most),
        (np.zeros((9, 1)), np.zeros(9)),
    )
    torch.manual_seed(5)
    found = any_batches(data, work)
    torch.manual_seed(5)
    draw = np.random.default_rng(int(torch.randint(2**31, ()))) if shuffle else None
    expected = batches(
        np.arange(9, dtype=np.int32), 4, epochs=2, shuffle=draw, padding=-1, most=most or None
    )
    np.testing.assert_array_equal(found, expected)
    assert len(expected) == (most or 6)
    assert any_batches([data], work) is None


def test_propfairs_border_belongs_to_its_logarithm():
    found = shape_loss(torch.tensor(1.75), NashBargaining(M=2.0, epsilon=0.25))
    assert float(found) == pytest.approx(-np.log(1 - 1.75 / 2), rel=1e-6)
    assert float(shape_loss(torch.tensor(1.75), None)) == 1.75


@pytest.mark.parametrize(
    "x, expected", [((3.0,), 6.0), ((3.0, 1.0), (6.0 + 2 * 2.0) / 2), ((), 0.0)]
)
def test_a_mean_loss_is_divided_by_the_number_of_rows(x: tuple[float, ...], expected: float):
    assert float(mean_loss(line(), rows_of(*x), product).detach()) == pytest.approx(expected)


@pytest.mark.parametrize(
    "x, gradient", [((3.0,), 3.0), ((3.0, 1.0), (3.0 + 2 * 1.0) / 2), ((), 0.0)]
)
def test_a_full_gradient_is_the_mean_over_all_rows_however_they_are_read(
    x: tuple[float, ...], gradient: float
):
    model = line()
    parts = (
        [rows_of(*x)]
        if len(x) < 2
        else [rows_of(x[0]), rows_of(*x)._replace(weight=torch.tensor([0.0, 1.0]))]
    )
    counted = len(x) if len(x) < 2 else len(x) + 1
    torch_training.fit(model, parts, FullGradient(learning_rate=0.5), anchor=[], losses=product)
    assert float(next(model.parameters()).detach()) == pytest.approx(
        2.0 - 0.5 * gradient * len(x) / max(counted, 1)
    )


def test_a_proximal_step_pulls_towards_the_anchor():
    model = line(2.0)
    work = LocalTraining(learning_rate=0.1, mu=0.5)
    torch_training.fit(model, [rows_of(3.0)], work, anchor=[torch.tensor([[1.0]])], losses=product)
    assert float(next(model.parameters()).detach()) == pytest.approx(
        2.0 - 0.1 * (3.0 + 0.5 * (2.0 - 1.0))
    )


def test_one_row_is_normalised_by_kept_statistics_and_layers_stay_as_they_were():
    first, second = nn.BatchNorm1d(2), nn.BatchNorm1d(2).eval()
    model = nn.Sequential(first, second, nn.Linear(2, 1))
    for count, moved in ((1, 0), (2, 1)):
        mean_loss(model, batch_of((np.ones((count, 2), np.float32), np.zeros(count))), product)
        assert (first.training, second.training) == (True, False)
        assert [int(layer.state_dict()["num_batches_tracked"]) for layer in (first, second)] == [
            moved,
            0,
        ]


def test_slopes_of_the_entropy_are_those_of_small_steps():
    draw = np.random.default_rng(0)
    kept = [
        {"weight": torch.tensor(draw.normal(size=(3, 2)), dtype=torch.float64)} for _ in range(2)
    ]
    x = torch.tensor(draw.normal(size=(4, 2)))

    def entropy(shares: np.ndarray) -> float:
        weight = sum(share * own["weight"].numpy() for share, own in zip(shares, kept, strict=True))
        p = np.exp(x.numpy() @ np.transpose(weight))
        p /= p.sum(1, keepdims=True)
        return float(-(p * np.log(p)).sum(1).mean())

    shares, small = np.array([0.3, 0.7]), 1e-5
    expected = [
        (entropy(shares + small * side) - entropy(shares - small * side)) / (2 * small)
        for side in np.eye(2)
    ]
    module = nn.Linear(2, 3, bias=False, dtype=torch.float64)
    np.testing.assert_allclose(
        torch_popup._entropy_slopes(module, kept, torch.tensor(shares), x), expected, rtol=1e-5
    )
    broken = [{"weight": own["weight"] * np.nan} for own in kept]
    assert (
        torch_popup._entropy_slopes(module, broken, torch.tensor(shares), x)
        == np.finfo(np.float64).max
    ).all()


FINE, BROKEN = {"w": np.ones(2, np.float32)}, {"w": np.array([1, np.nan], np.float32)}


@pytest.mark.parametrize(
    "shared, personal, keeps", [(FINE, FINE, False), (BROKEN, FINE, True), (FINE, BROKEN, True)]
)
def test_a_client_whose_training_broke_keeps_its_personal_model(
    shared: Any, personal: Any, keeps: bool, monkeypatch: pytest.MonkeyPatch
):
    engine, trained = TorchEngine(line, product, None), iter([shared, personal])
    monkeypatch.setattr(engine, "_train", lambda *_: next(trained))
    client = ClientData(rows(np.ones((3, 1)), np.zeros(3)), NO_ROWS, NO_ROWS, ("a", "b"))
    memory = {"w": np.zeros(2, np.float32)}
    vector, new = engine.train(read_config(config("ditto", 1, 0)), client, memory, memory)
    np.testing.assert_array_equal(vector["w"], shared["w"])
    assert (new is memory) == keeps


@pytest.mark.parametrize("own, broken", [(FINE, False), (BROKEN, True)])
def test_a_client_that_trains_alone_sends_no_change(
    own: Any, broken: bool, monkeypatch: pytest.MonkeyPatch
):
    engine = TorchEngine(line, product, None)
    monkeypatch.setattr(engine, "_train", lambda *_: own)
    client = ClientData(rows(np.ones((3, 1)), np.zeros(3)), NO_ROWS, NO_ROWS, ("a", "b"))
    received = {"w": np.full(2, 3, np.float32), "steps": np.array(4)}
    vector, new = engine.train(read_config(config("local", 1, 0)), client, received, FINE)
    assert np.isnan(vector["w"]).all() if broken else not vector["w"].any()
    assert vector["steps"] == 0
    assert new is (FINE if broken else own)


def test_only_optimisers_that_pytorch_has_are_named():
    with pytest.raises(ValueError, match=r"sgd, momentum and adam, got 'adagrad'"):
        torch_training.optimiser_of(algorithm("fedavg+local-adagrad").work)  # pyright: ignore[reportArgumentType]

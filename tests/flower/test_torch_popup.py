"""Edge-popup in PyTorch, step by step, against numbers made by hand or in NumPy."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from evenly.data.federation import Federation
from evenly.flower.clients import torch_popup
from evenly.flower.clients.rows import client_of
from evenly.flower.clients.torch_popup import (
    _gradients,
    _mask,
    _scores,
    check_edges,
    first_places,
    freeze,
    search_places,
    subnetwork,
)
from evenly.flower.clients.torch_training import Batch
from evenly.parts.ranking import Frozen
from evenly.parts.ranking_work import EdgePopup

# what each unit's output adds to the loss, which is therefore linear
COUNTS = torch.tensor([1.0, -2.0, 0.5, 3.0])


def linear(inputs: int, units: int, **more: Any) -> nn.Linear:
    return nn.Linear(inputs, units, bias=False, **more)


def weights_of(model: nn.Module) -> np.ndarray:
    return next(model.parameters()).detach().numpy()


def loss(output: Tensor, _: Tensor) -> Tensor:
    return (output * COUNTS).sum(1)


def batch(rows: int, seed: int = 0) -> Batch:
    draw = np.random.Generator(np.random.Philox(seed))
    x, weight = draw.normal(size=(rows, 6)), draw.uniform(0.5, 2.0, rows)
    blank = torch.zeros(rows, dtype=torch.int64)
    return Batch(
        torch.tensor(x, dtype=torch.float32),
        blank,
        blank,
        torch.tensor(weight, dtype=torch.float32),
    )


def slopes(one: Batch, weights: np.ndarray) -> np.ndarray:
    """Of the linear loss by each edge's score: the mean weighted input, times the unit's count,
    times the edge's weight.
    """
    mean = (one.x.numpy() * one.weight.numpy()[:, None]).sum(0) / len(one.y)
    return COUNTS.numpy()[:, None] * mean[None, :] * weights


@pytest.mark.parametrize(
    "k, raw, kept",
    [
        (0.5, True, [0, 1, 1, 0]),
        (0.5, False, [1, 0, 0, 1]),
        (0.75, True, [0, 1, 1, 1]),
        (0.25, False, [1, 0, 0, 0]),
    ],
)
def test_a_mask_keeps_the_highest_share_of_scores_or_magnitudes(
    k: float, raw: bool, kept: list[int]
):
    assert _mask(torch.tensor([[-4.0, 1.0], [2.0, -3.0]]), k, raw).reshape(-1).tolist() == kept


def test_first_scores_lie_between_the_bounds_in_equal_steps():
    place, bound = torch.tensor([[0, 1, 2], [5, 4, 3]]), 1 / np.sqrt(3)
    both = np.array([[-11, -7, -3], [9, 5, 1]]) / 12 * bound
    above = np.array([[1, 3, 5], [11, 9, 7]]) / 12 * bound
    for scores in ("raw", "frl-compat"):
        np.testing.assert_allclose(_scores(place, Frozen(scores=scores)), both, rtol=1e-6)
    np.testing.assert_allclose(_scores(place, Frozen(scores="abs")), above, rtol=1e-6)
    np.testing.assert_allclose(_scores(place, Frozen(positive=True)), above, rtol=1e-6)


@pytest.mark.parametrize("network, kept", [
    (Frozen(), [0, 0, 1, 1]), (Frozen(k=0.25), [0, 0, 0, 1]), (Frozen(scores="abs"), [0, 0, 1, 1]),
    (Frozen(scores="frl-compat"), [1, 0, 0, 1]),
    (Frozen(scores="frl-compat", positive=True), [0, 0, 1, 1]),
])  # fmt: skip
def test_a_subnetwork_has_the_edges_that_its_order_keeps(network: Frozen, kept: list[int]):
    model = freeze(linear(2, 2), network, 0)
    found = subnetwork(model, network, {"weight": np.arange(4).reshape(2, 2)})["weight"]
    np.testing.assert_array_equal(found, weights_of(model) * np.reshape(kept, (2, 2)))


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("scores", ["raw", "abs", "frl-compat"])
def test_gradients_pass_straight_through_the_mask(rows: int, scores: str):
    weights = np.where(np.arange(24).reshape(4, 6) % 3, 0.5, -0.25).astype(np.float32)
    held = torch.tensor(np.linspace(-1, 1, 24).reshape(4, 6), dtype=torch.float32)
    one = batch(rows)
    found = _gradients(
        linear(6, 4),
        Frozen(scores=scores),
        {"weight": torch.tensor(weights)},
        {"weight": held},
        batch=one,
        losses=loss,
    )["weight"]
    sign = 1.0 if scores == "raw" else np.sign(held.numpy())
    np.testing.assert_allclose(found, slopes(one, weights) * sign, rtol=1e-4, atol=1e-6)


def test_no_rows_have_no_gradient():
    held = {"weight": torch.ones(4, 6)}
    assert not _gradients(linear(6, 4), Frozen(), held, held, batch=batch(0), losses=loss)[
        "weight"
    ].any()


@pytest.mark.parametrize(
    "rate, momentum, decay", [(0.1, 0.0, 0.0), (0.1, 0.9, 0.0), (0.3, 0.5, 0.8), (0.05, 0.0, 3.0)]
)
def test_places_are_those_of_scores_after_steps_with_momentum_and_decay(
    rate: float, momentum: float, decay: float
):
    model, places = freeze(linear(6, 4), Frozen(), 3), first_places(linear(6, 4), 1)
    steps, weights = [batch(3, seed) for seed in range(4)], weights_of(model)
    scores = (4 * places["weight"] + 1 - 48) / np.sqrt(6) / 48
    velocity = np.zeros((4, 6))
    for one in steps:
        velocity = momentum * velocity + slopes(one, weights) + decay * scores
        scores = scores - rate * velocity
    work = EdgePopup(learning_rate=rate, momentum=momentum, weight_decay=decay)
    found = search_places(model, Frozen(), places, steps, work=work, losses=loss)["weight"]
    np.testing.assert_array_equal(found, scores.ravel().argsort().argsort().reshape(4, 6))


def test_the_rate_falls_with_the_round_and_from_epoch_to_epoch():
    model, places = freeze(linear(6, 4), Frozen(), 3), first_places(linear(6, 4), 1)
    epoch, weights = [batch(3, 0), batch(2, 1)], weights_of(model)
    scores = (4 * places["weight"] + 1 - 48) / np.sqrt(6) / 48
    for factor, one in zip([1.0, 1.0, 0.5, 0.5], 2 * epoch, strict=True):
        scores = scores - 0.3 * 0.6**2 * factor * slopes(one, weights)
    work = EdgePopup(
        learning_rate=0.3, momentum=0.0, weight_decay=0.0, round_decay=0.6, cosine=True, epochs=2
    )
    found = search_places(
        model, Frozen(), places, 2 * epoch, work=work, losses=loss, number=2, rows=5
    )["weight"]
    np.testing.assert_array_equal(found, scores.ravel().argsort().argsort().reshape(4, 6))


def test_training_that_broke_is_nan_everywhere():
    model = freeze(linear(6, 4), Frozen(), 3)
    work = EdgePopup(learning_rate=1e38, momentum=0.9)
    found = search_places(
        model,
        Frozen(),
        first_places(model),
        [batch(3, seed) for seed in range(30)],
        work=work,
        losses=lambda o, y: 1e3 * loss(o, y),
    )
    assert np.isnan(found["weight"]).all()
    assert found["weight"].shape == (4, 6)


def test_frozen_weights_have_the_deviation_of_their_inputs():
    weight = weights_of(freeze(linear(8, 300), Frozen(), 5))
    assert set(np.unique(weight).tolist()) == {-0.5, 0.5}
    assert abs(weight.mean()) < 0.05
    normal = freeze(linear(200, 50), Frozen(frozen_weights="normal"), 5)
    assert 0.095 < weights_of(normal).std() < 0.105
    assert not any(own.requires_grad for own in normal.parameters())
    kernel = weights_of(freeze(nn.Conv2d(2, 5, 2, bias=False), Frozen(), 5))
    assert set(np.abs(kernel).ravel().tolist()) == {0.5}  # eight inputs to a unit


def test_first_places_are_an_order_that_a_seed_draws():
    found = first_places(linear(6, 4), 2)["weight"]
    assert (found.dtype, found.shape, sorted(found.ravel())) == (np.int32, (4, 6), list(range(24)))
    assert (first_places(linear(6, 4))["weight"] == first_places(linear(6, 4), 0)["weight"]).all()
    assert (found != first_places(linear(6, 4), 3)["weight"]).any()


@pytest.mark.parametrize("model, k, said", [
    (linear(2, 1), 0.5, ""), (linear(2**11, 2**11, device="meta"), 0.5, ""),
    (linear(2**11, 2**11 + 1, device="meta"), 0.5, "4196352 edges"),
    (linear(2, 1), 0.9, "keeps 2 of 2"), (linear(2, 1), 1e-9, "keeps 0 of 2"),
    (nn.Linear(2, 2), 0.5, "'bias' has shape"),
    (nn.BatchNorm1d(3, affine=False), 0.5, "'running_mean' is a statistic"),
])  # fmt: skip
def test_only_weights_whose_edges_can_be_ranked_are_frozen(model: nn.Module, k: float, said: str):
    if not said:
        check_edges(model, k)
        return
    with pytest.raises(ValueError, match=said):
        check_edges(model, k)


@pytest.mark.parametrize("inference, count, found, asked", [
    ("binary", 5, 4, [[0.2] * 5, [0, 1 / 3, 1 / 3, 0, 1 / 3], [0, 0, 0.5, 0, 0.5]]),
    ("one-shot", 5, 1, [[0.2] * 5]), ("binary", 1, 0, []), ("one-shot", 2, 1, [[0.5, 0.5]]),
])  # fmt: skip
def test_models_are_left_by_halves_or_at_once_and_those_that_left_do_not_come_back(
    inference: str,
    count: int,
    found: int,
    asked: list[list[float]],
    tiny: Federation,
    monkeypatch: pytest.MonkeyPatch,
):
    given, shares = iter([[5.0, 1, 2, 9, 3], [0.0, 3, 1, 0, 2], [0.0, 0, 8, 0, 7]]), []

    def slopes(_model: Any, _kept: Any, own: Tensor, _x: Any) -> np.ndarray:
        shares.append(own.tolist())
        return np.array(next(given)[:count])

    monkeypatch.setattr(torch_popup, "_entropy_slopes", slopes)
    offered = [first_places(linear(5, 3), seed) for seed in range(count)]
    assert (
        torch_popup.most_certain_model(
            linear(5, 3), Frozen(), offered, client_of(tiny, 5).train, inference
        )
        == found
    )
    assert len(shares) == len(asked)
    for own, wanted in zip(shares, asked, strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-6)

"""Edge-popup in PyTorch: the weights of a module stay as they were drawn, and clients learn which
edges to keep.

It follows `evenly.parts.ranking_work` and `evenly.parts.ranking`, with weights in the layout of
PyTorch, [units, inputs, ...]. All clients draw the same weights from one seed, so only places are
sent: integers, one for each edge, by the name of its parameter. Servers count them as votes, in any
framework.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from evenly.flower.clients.rows import ClientRows
from evenly.flower.clients.torch_training import (
    Batch,
    Losses,
    batch_of,
    device_of,
    probabilities,
    tensor,
)
from evenly.parts.client_groups import TINY
from evenly.parts.ranking import MOST_EDGES, Frozen, dropped
from evenly.parts.ranking_work import EdgePopup
from evenly.randomness import Draws
from evenly.records import require
from evenly.simulate.choosing import MOST_ROWS

Places = dict[str, np.ndarray]  # of every edge, by its parameter's name


def check_edges(model: nn.Module, k: float) -> None:
    """Raise unless a module learns only weights whose edges can be ranked."""
    kind = type(model).__name__
    for name, _ in model.named_buffers():
        raise ValueError(
            f"{kind}: {name!r} is a statistic that changes in training, and an order of edges has"
            " no place for it. Use a module without normalisation statistics, such as one with"
            " BatchNorm(affine=False, track_running_stats=False)."
        )
    for name, weight in model.named_parameters():
        where = f"{kind}: parameter {name!r} has shape {list(weight.shape)}"
        require(
            weight.ndim >= 2,
            f"{where}, but only weights [units, inputs, ...] can be frozen and ranked; biases and"
            " the scales of normalisation cannot. Use layers without them, such as"
            " Linear(bias=False).",
        )
        edges = weight.numel()
        require(
            edges <= MOST_EDGES,
            f"{where}, {edges} edges; at most {MOST_EDGES} can be ranked exactly. Use narrower"
            " layers.",
        )
        left = edges - dropped(edges, k)
        require(
            0 < left < edges,
            f"{where}, and k = {k} keeps {left} of {edges} edges. It must keep at least one and"
            " drop at least one.",
        )


def freeze(model: nn.Module, network: Frozen, seed: int) -> nn.Module:
    """Set weights from a seed: plus or minus sqrt(2 / fan-in), or normal with that standard
    deviation.
    """
    check_edges(model, network.k)
    draws = Draws(seed, "frozen weights")
    with torch.no_grad():
        for i, weight in enumerate(model.parameters()):
            chance, size = draws.at(i), (2 / _fan_in(weight)) ** 0.5
            normal = network.frozen_weights == "normal"
            drawn = (
                chance.normal(size=tuple(weight.shape))
                if normal
                else 2.0 * chance.integers(2, size=tuple(weight.shape)) - 1
            )
            weight.copy_(torch.as_tensor(size * drawn))
            weight.requires_grad_(False)
    return model


def first_places(model: nn.Module, seed: int = 0) -> Places:
    """Random order of edges, from which a federation starts."""
    draws = Draws(seed, "first places")
    return {
        name: draws.at(i).permutation(weight.numel()).astype(np.int32).reshape(tuple(weight.shape))
        for i, (name, weight) in enumerate(model.named_parameters())
    }


def subnetwork(model: nn.Module, network: Frozen, places: Places) -> dict[str, Tensor]:
    """Weights of the edges that an order keeps, the share k of every layer; 0 for the others."""
    kept = {}
    for name, weight in model.named_parameters():
        place = tensor(np.asarray(places[name]), weight.device).to(torch.float32)
        if network.scores == "frl-compat" and not network.positive:
            place = ((4 * place + 1 - 2 * place.numel()).abs() - 1) / 2
        kept[name] = weight.detach() * (place >= dropped(place.numel(), network.k))
    return kept


def search_places(
    model: nn.Module,
    network: Frozen,
    received: Places,
    batches: Iterable[Batch],
    *,
    work: EdgePopup,
    losses: Losses,
    number: int = 0,
    rows: int = 1,
) -> dict[str, np.ndarray]:
    """Places of edges after training; NaN if training diverged.

    The number of the round, from 0, and of the client's training rows matter only where the
    learning rate depends on the round or on the local epoch.
    """
    frozen = {name: weight.detach() for name, weight in model.named_parameters()}
    scores = {
        name: _scores(tensor(np.asarray(received[name]), w.device), network)
        for name, w in frozen.items()
    }
    velocity, seen = {name: torch.zeros_like(score) for name, score in scores.items()}, 0
    for batch in batches:
        rate = float(work.learning_rate * work.rate_factor(number, seen // rows))
        seen += len(batch.y)
        for name, gradient in _gradients(
            model, network, frozen, scores, batch=batch, losses=losses
        ).items():
            velocity[name] = (
                float(work.momentum) * velocity[name]
                + gradient
                + float(work.weight_decay) * scores[name]
            )
            scores[name] = scores[name] - rate * velocity[name]
    broken = not all(bool(score.isfinite().all()) for score in scores.values())
    ranked = {
        name: score.abs() if network.scores == "abs" else score for name, score in scores.items()
    }
    return {
        name: np.full(tuple(score.shape), np.nan, np.float32) if broken else _places(score)
        for name, score in ranked.items()
    }


def _gradients(
    model: nn.Module,
    network: Frozen,
    frozen: dict[str, Tensor],
    scores: dict[str, Tensor],
    *,
    batch: Batch,
    losses: Losses,
) -> dict[str, Tensor]:
    """Straight-through gradients of the scores: gradient of each edge's weight times the weight."""
    raw = network.scores == "raw"
    kept = {
        name: (weight * _mask(scores[name], network.k, raw)).requires_grad_()
        for name, weight in frozen.items()
    }
    loss = (losses(functional_call(model, kept, (batch.x,)), batch.y) * batch.weight).sum() / max(
        len(batch.y), 1
    )
    gradients = torch.autograd.grad(loss, list(kept.values()), allow_unused=True)
    found = {}
    for (name, weight), gradient in zip(frozen.items(), gradients, strict=True):
        through = torch.zeros_like(weight) if gradient is None else gradient * weight
        found[name] = through if raw else through * scores[name].sign()
    return found


def _mask(scores: Tensor, k: float, raw: bool) -> Tensor:
    values = scores if raw else scores.abs()
    lowest = torch.kthvalue(values.reshape(-1), dropped(values.numel(), k) + 1).values
    return (values >= lowest).to(scores.dtype)


def _scores(place: Tensor, network: Frozen) -> Tensor:
    """Initial scores of edges by their places."""
    size, bound = place.numel(), _fan_in(place) ** -0.5
    step = torch.tensor(bound / (2 * size), dtype=torch.float32, device=place.device)
    place = place.to(torch.float32)
    return (
        2 * place + 1 if network.positive or network.scores == "abs" else 4 * place + 1 - 2 * size
    ) * step


def _places(scores: Tensor) -> np.ndarray:
    order = np.argsort(scores.detach().cpu().numpy().reshape(-1), kind="stable")
    places = np.empty(order.size, np.float32)
    places[order] = np.arange(order.size)
    return places.reshape(tuple(scores.shape))


def _fan_in(weight: Tensor) -> int:
    """Number of inputs of a unit, from weights [units, inputs, ...]."""
    return weight.numel() // weight.shape[0]


def most_certain_model(
    model: nn.Module, network: Frozen, offered: Sequence[Places], rows: ClientRows, inference: str
) -> int:
    """Number of the model whose larger share makes a mixture of all models most certain on the
    first rows ("one-shot" and "binary" of E2FL).
    """
    x = batch_of(ClientRows(*(part[:MOST_ROWS] for part in rows)), device_of(model)).x
    kept = [subnetwork(model, network, places) for places in offered]
    active, left = np.ones(len(kept), bool), len(kept)
    while left > 1:
        slopes = np.where(
            active,
            _entropy_slopes(model, kept, torch.as_tensor(active / left, dtype=torch.float32), x),
            np.inf,
        )
        left = 1 if inference == "one-shot" else (left + 1) // 2
        active = np.isin(np.arange(len(kept)), np.argsort(slopes, kind="stable")[:left])
    return int(active.argmax())


def _entropy_slopes(
    model: nn.Module, kept: list[dict[str, Tensor]], shares: Tensor, x: Tensor
) -> np.ndarray:
    """Derivative of the mixture's prediction entropy by each model's share. NaN becomes the largest
    number.
    """
    shares = shares.to(x.device).requires_grad_()
    mixed = {
        name: torch.tensordot(shares, torch.stack([own[name] for own in kept]), 1)
        for name in kept[0]
    }
    p = probabilities(functional_call(model, mixed, (x,)))
    entropy = -(p * p.clamp_min(TINY).log()).sum(1).mean()
    (slopes,) = torch.autograd.grad(entropy, shares)
    return torch.nan_to_num(slopes, nan=torch.finfo(slopes.dtype).max).cpu().numpy()

"""Local training in PyTorch: batches, losses, optimisers, edge-popup, and the engine that runs them for a client."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from evenly.flower.clients.client import RoundConfig, weighted_rows
from evenly.flower.clients.rows import PADDING, ClientData, ClientRows, Look, RowOutcomes, batches_of
from evenly.parts.groups import TINY
from evenly.parts.optimisers import OPTIMISERS
from evenly.parts.ranking import MOST_EDGES, Frozen, dropped
from evenly.parts.ranking_work import EdgePopup
from evenly.parts.work import FullGradient, LocalTraining, NashBargaining, PersonalTraining, TrainingAlone
from evenly.randomness import Draws, batches
from evenly.records import require
from evenly.simulate.choosing import MOST_ROWS
from evenly.types import Several, Work

# Local training of an nn.Module as `evenly.parts.work` describes it: FedProx's pull, PropFair's loss, weighted rows.
#
# With the same model and the same batches it is the simulator's arithmetic, step by step.

CHUNK = 1024  # rows read at a time

Losses = Callable[[Tensor, Tensor], Tensor]  # what the module puts out and the labels -> one loss per row
MakeOptimiser = Callable[[list[nn.Parameter], float], torch.optim.Optimizer]  # from the parameters and the learning rate
Data = ClientRows | tuple[Any, ...] | Iterable[Any]  # rows, tensors (x, y[, group[, weight]]), or a DataLoader of such batches


class Batch(NamedTuple):
    """Rows as tensors."""

    x: Tensor
    y: Tensor
    group: Tensor
    weight: Tensor


def _has_all_logits(output: Tensor) -> bool:
    """Whether a module's output has one logit per class; else it has one logit in all, for two classes: [n] or [n, 1]."""
    return output.ndim == 2 and output.shape[1] > 1


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each row, from logits [n, classes], or from one logit [n] or [n, 1] for two classes. [n]"""
    if _has_all_logits(output):
        return nn.functional.cross_entropy(output, y, reduction="none")
    return nn.functional.binary_cross_entropy_with_logits(output.reshape(-1), y.to(output.dtype), reduction="none")


def outcome(output: Tensor) -> Tensor:
    """Predicted labels from a module's output. [n]"""
    return output.argmax(1) if _has_all_logits(output) else (output.reshape(-1) > 0).long()


def probabilities(output: Tensor) -> Tensor:
    """Probability of each label. [n, labels]"""
    if _has_all_logits(output):
        return output.softmax(1)
    likely = output.reshape(-1).sigmoid()
    return torch.stack([1 - likely, likely], 1)


def tensor(values: Any, device: torch.device | None = None) -> Tensor:
    """A tensor that shares memory with the array unless the array is read-only."""
    locked = isinstance(values, np.ndarray) and not values.flags.writeable
    return torch.as_tensor(values.copy() if locked else values, device=device)


def batch_of(parts: Iterable[Any], device: torch.device | None = None) -> Batch:
    """A batch from (x, y), (x, y, group) or (x, y, group, weight): NumPy's arrays or tensors."""
    x, y, *more = (tensor(part, device) for part in parts)
    group = more[0].long() if more else torch.zeros(len(y), dtype=torch.long, device=device)
    weight = more[1].float() if len(more) > 1 else torch.ones(len(y), device=device)
    return Batch(x, y.long(), group, weight)


def in_memory(data: Data) -> bool:
    """Whether data are arrays in memory; otherwise they are batches."""
    return isinstance(data, tuple)


def chunks(data: Data, size: int, device: torch.device | None = None) -> Iterator[Batch]:
    """All rows once, in order."""
    if not in_memory(data):
        yield from (batch_of(parts, device) for parts in data)
        return
    whole = batch_of(data)
    for start in range(0, len(whole.y), size):
        yield batch_of((part[start : start + size] for part in whole), device)


def training_batches(data: Data, epochs: int, numbers: np.ndarray | None, device: torch.device | None = None) -> Iterator[Batch]:
    """Training batches: the numbered rows, or the batches of a DataLoader for each epoch."""
    if not in_memory(data):
        for _ in range(epochs):
            yield from chunks(data, CHUNK, device)
        return
    assert numbers is not None
    whole = batch_of(data)
    for step in numbers:
        own = torch.as_tensor(step[step != PADDING].astype(np.int64))
        yield batch_of((part[own] for part in whole), device)


def any_batches(data: Data, work: Work) -> np.ndarray | None:
    """Random batches from PyTorch's seed; None if the data come in batches."""
    if not in_memory(data):
        return None
    rows = np.arange(len(batch_of(data).y), dtype=np.int32)
    shuffle = np.random.default_rng(int(torch.randint(2**31, ()))) if work.shuffle else None  # by PyTorch's own seed
    return batches(rows, work.batch_size, epochs=work.epochs, shuffle=shuffle, padding=PADDING, most=work.max_steps or None)


def shape_loss(loss: Tensor, shape: NashBargaining | None) -> Tensor:
    """PropFair's loss: -log(1 - loss/M), or a multiple of the loss where M - loss is below epsilon."""
    if shape is None:
        return loss
    if shape.M - float(loss.detach()) >= shape.epsilon:
        return -torch.log1p(-loss / shape.M)
    return loss / (shape.epsilon if shape.huber else shape.M)


def mean_loss(model: nn.Module, batch: Batch, losses: Losses) -> Tensor:
    """Sum of weighted losses divided by the number of rows."""
    return (losses(_output(model, batch), batch.y) * batch.weight).sum() / max(len(batch.y), 1)


def _output(model: nn.Module, batch: Batch) -> Tensor:
    """A single row has no statistics, and PyTorch refuses it: it is normalised by those that a layer has kept, as in an evaluation.
    Else a client whose last batch has one row would be left out of every round."""
    alone = [own for own in model.modules() if isinstance(own, nn.BatchNorm1d) and own.training] if len(batch.y) == 1 else []
    for layer in alone:
        layer.eval()
    output = model(batch.x)
    for layer in alone:
        layer.train()
    return output


def fit(
    model: nn.Module, batches: Iterable[Batch], work: Work, *, anchor: list[Tensor], losses: Losses, optimiser: MakeOptimiser | None = None
) -> None:
    """Train a module in place. FedProx pulls its parameters towards `anchor`."""
    model.train()
    if isinstance(work, FullGradient):
        _gradient_step(model, batches, work, losses)
    elif isinstance(work, LocalTraining):
        _local_steps(model, batches, work, anchor=anchor, losses=losses, optimiser=optimiser or optimiser_of(work))
    else:
        raise ValueError(f"work must be LocalTraining or FullGradient, got {type(work).__name__}. Use app(...) for other kinds.")


def _local_steps(
    model: nn.Module, batches: Iterable[Batch], work: LocalTraining, *, anchor: list[Tensor], losses: Losses, optimiser: MakeOptimiser
) -> None:
    parameters = trainable(model)
    moving = optimiser(parameters, float(work.learning_rate))
    for batch in batches:
        moving.zero_grad()
        shape_loss(mean_loss(model, batch, losses), work.shape).backward()
        if work.mu:
            for parameter, received in zip(parameters, anchor, strict=True):
                if parameter.grad is not None:
                    parameter.grad.add_(parameter.detach() - received, alpha=float(work.mu))
        moving.step()


def _gradient_step(model: nn.Module, batches: Iterable[Batch], work: FullGradient, losses: Losses) -> None:
    """One gradient step over all rows, read in batches."""
    rows = 0
    model.zero_grad()
    for batch in batches:
        (losses(_output(model, batch), batch.y) * batch.weight).sum().backward()
        rows += len(batch.y)
    with torch.no_grad():
        for parameter in trainable(model):
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=float(work.learning_rate) / max(rows, 1))


def look(model: nn.Module, batch: Batch, losses: Losses) -> RowOutcomes:
    """Loss and predicted label of each row in evaluation mode."""
    was = model.training
    model.eval()
    with torch.no_grad():
        output = model(batch.x)
        seen = RowOutcomes(losses(output, batch.y).cpu().numpy(), outcome(output).cpu().numpy())
    model.train(was)
    return seen


def concatenate(seen: Sequence[RowOutcomes]) -> RowOutcomes:
    """Outcomes of several batches as one."""
    nothing = RowOutcomes(np.zeros(0), np.zeros(0, np.int64))
    return RowOutcomes(*(np.concatenate(parts) for parts in zip(nothing, *seen, strict=True)))


def device_of(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def optimiser_of(work: LocalTraining) -> MakeOptimiser:
    """PyTorch's equivalent of the local optimiser."""
    kind = work.optimiser
    options = {**(OPTIMISERS[kind].settings if isinstance(kind, str) else {}), **work.options}
    if kind in ("sgd", "momentum"):
        return lambda parameters, rate: torch.optim.SGD(parameters, rate, momentum=float(options.get("momentum", 0.0)))
    if kind == "adam":
        betas = float(options["b1"]), float(options["b2"])
        return lambda parameters, rate: torch.optim.Adam(parameters, rate, betas=betas, eps=float(options["eps"]))
    raise ValueError(
        f"PyTorch clients support the local optimisers sgd, momentum and adam, got {kind!r}. "
        "Pass your own: optimiser=lambda parameters, rate: torch.optim.Adagrad(parameters, rate)."
    )


# Edge-popup for PyTorch: the weights of a module stay as they were drawn, and its clients learn which edges to keep.
#
# As `evenly.parts.ranking_work` and `evenly.parts.ranking.supernetwork` describe it; here weights lie as PyTorch has them, [units,
# inputs, ...]. Everybody draws the same weights from one seed, so only places travel: whole numbers, one for each edge, by its
# parameter's name. Any server that counts votes on them does, whatever framework its clients use.

Places = dict[str, np.ndarray]  # of every edge, by its parameter's name


def check_edges(model: nn.Module, k: float) -> None:
    """Raise unless a module learns only weights whose edges can be ranked."""
    kind = type(model).__name__
    for name, _ in model.named_buffers():
        raise ValueError(
            f"{kind}: {name!r} is a statistic that changes in training, and an order of edges has no place for it. "
            "Use a module without normalisation statistics, such as one with BatchNorm(affine=False, track_running_stats=False)."
        )
    for name, weight in model.named_parameters():
        where = f"{kind}: parameter {name!r} has shape {list(weight.shape)}"
        require(
            weight.ndim >= 2,
            f"{where}, but only weights [units, inputs, ...] can be frozen and ranked; biases and the scales of normalisation cannot. "
            "Use layers without them, such as Linear(bias=False).",
        )
        edges = weight.numel()
        require(edges <= MOST_EDGES, f"{where}, {edges} edges; at most {MOST_EDGES} can be ranked exactly. Use narrower layers.")
        left = edges - dropped(edges, k)
        require(0 < left < edges, f"{where}, and k = {k} keeps {left} of {edges} edges. It must keep at least one and drop at least one.")


def freeze(model: nn.Module, network: Frozen, seed: int) -> nn.Module:
    """Set weights from a seed: plus or minus sqrt(2 / fan-in), or normal with that standard deviation."""
    check_edges(model, network.k)
    draws = Draws(seed, "frozen weights")
    with torch.no_grad():
        for i, weight in enumerate(model.parameters()):
            chance, size = draws.at(i), (2 / _fan_in(weight)) ** 0.5
            normal = network.frozen_weights == "normal"
            drawn = chance.normal(size=tuple(weight.shape)) if normal else 2.0 * chance.integers(2, size=tuple(weight.shape)) - 1
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
    model: nn.Module, network: Frozen, received: Places, batches: Iterable[Batch], *, work: EdgePopup, losses: Losses
) -> dict[str, np.ndarray]:
    """Places of edges after training; NaN if training diverged."""
    frozen = {name: weight.detach() for name, weight in model.named_parameters()}
    scores = {name: _scores(tensor(np.asarray(received[name]), w.device), network) for name, w in frozen.items()}
    velocity = {name: torch.zeros_like(score) for name, score in scores.items()}
    for batch in batches:
        for name, gradient in _gradients(model, network, frozen, scores, batch=batch, losses=losses).items():
            velocity[name] = float(work.momentum) * velocity[name] + gradient + float(work.weight_decay) * scores[name]
            scores[name] = scores[name] - float(work.learning_rate) * velocity[name]
    broken = not all(bool(score.isfinite().all()) for score in scores.values())
    ranked = {name: score.abs() if network.scores == "abs" else score for name, score in scores.items()}
    return {name: np.full(tuple(score.shape), np.nan, np.float32) if broken else _places(score) for name, score in ranked.items()}


def _gradients(
    model: nn.Module, network: Frozen, frozen: dict[str, Tensor], scores: dict[str, Tensor], *, batch: Batch, losses: Losses
) -> dict[str, Tensor]:
    """Straight-through gradients of the scores: gradient of each edge's weight times the weight."""
    raw = network.scores == "raw"
    kept = {name: (weight * _mask(scores[name], network.k, raw)).requires_grad_() for name, weight in frozen.items()}
    loss = (losses(functional_call(model, kept, (batch.x,)), batch.y) * batch.weight).sum() / max(len(batch.y), 1)
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
    return (2 * place + 1 if network.positive or network.scores == "abs" else 4 * place + 1 - 2 * size) * step


def _places(scores: Tensor) -> np.ndarray:
    order = np.argsort(scores.detach().cpu().numpy().reshape(-1), kind="stable")
    places = np.empty(order.size, np.float32)
    places[order] = np.arange(order.size)
    return places.reshape(tuple(scores.shape))


def _fan_in(weight: Tensor) -> int:
    """Number of inputs of a unit, from weights [units, inputs, ...]."""
    return weight.numel() // weight.shape[0]


def surest(model: nn.Module, network: Frozen, offered: Sequence[Places], rows: ClientRows, inference: str) -> int:
    """Model whose larger share makes a mixture of all models most certain on the first rows ("one-shot" and "binary" of E2FL)."""
    x = batch_of(ClientRows(*(part[:MOST_ROWS] for part in rows)), device_of(model)).x
    kept = [subnetwork(model, network, places) for places in offered]
    active, left = np.ones(len(kept), bool), len(kept)
    while left > 1:
        slopes = np.where(active, _entropy_slopes(model, kept, torch.as_tensor(active / left, dtype=torch.float32), x), np.inf)
        left = 1 if inference == "one-shot" else (left + 1) // 2
        active = np.isin(np.arange(len(kept)), np.argsort(slopes, kind="stable")[:left])
    return int(active.argmax())


def _entropy_slopes(model: nn.Module, kept: list[dict[str, Tensor]], shares: Tensor, x: Tensor) -> np.ndarray:
    """Derivative of the mixture's prediction entropy by each model's share. NaN becomes the largest number."""
    shares = shares.to(x.device).requires_grad_()
    mixed = {name: torch.tensordot(shares, torch.stack([own[name] for own in kept]), 1) for name in kept[0]}
    p = probabilities(functional_call(model, mixed, (x,)))
    entropy = -(p * p.clamp_min(TINY).log()).sum(1).mean()
    (slopes,) = torch.autograd.grad(entropy, shares)
    return torch.nan_to_num(slopes, nan=torch.finfo(slopes.dtype).max).cpu().numpy()


# How a ready PyTorch client looks at models and trains them. Models are state_dicts, or the places of a frozen module's edges.

State = dict[str, np.ndarray]


class TorchEngine:
    """Trains and evaluates modules of one architecture; a new module for every message."""

    reduction = "mean"

    def __init__(self, make_model: Callable[[], nn.Module], losses: Losses, optimiser: MakeOptimiser | None) -> None:
        self._make, self._losses, self._optimiser = make_model, losses, optimiser

    def form(self, now: RoundConfig, client: ClientData) -> State:
        module = self._make()
        if isinstance(now.algorithm.network, Frozen):
            return {name: np.zeros(tuple(weight.shape), np.float32) for name, weight in module.named_parameters()}
        return state_of(module)

    def look(self, now: RoundConfig, model: State) -> Look:
        module, network = self._make(), now.algorithm.network
        if isinstance(network, Frozen):
            frozen = freeze(module, network, now.model_seed)
            module.load_state_dict(subnetwork(frozen, network, model))
        else:
            put(module, model)

        def looking(rows: ClientRows) -> RowOutcomes:
            return concatenate([look(module, batch, self._losses) for batch in chunks(rows, CHUNK, device_of(module))])

        return looking

    def penalty(self, now: RoundConfig, model: State) -> float:
        return 0.0

    def surest(self, now: RoundConfig, models: list[State], client: ClientData) -> int:
        network, rule = now.algorithm.network, now.algorithm.rule
        assert isinstance(network, Frozen)
        assert isinstance(rule, Several)
        module = freeze(self._make(), network, now.model_seed)
        return surest(module, network, models, client.train, rule.inference)

    def train(self, now: RoundConfig, client: ClientData, received: State, memory: State) -> tuple[State, State]:
        """Return the vector to send and the memory to keep. If training diverged, the memory stays unchanged."""
        work, network, rows = now.algorithm.work, now.algorithm.network, weighted_rows(now, client)
        numbers = batches_of(work, now.batch_seed, now.server_round, now.client, rows.size)
        if isinstance(work, EdgePopup):
            assert isinstance(network, Frozen)
            module = freeze(self._make(), network, now.model_seed)
            batches = training_batches(rows, work.epochs, numbers, device_of(module))
            return search_places(module, network, received, batches, work=work, losses=self._losses), memory
        if isinstance(work, PersonalTraining):
            shared = self._train(_plain(work), rows, numbers, received, received)
            own = self._train(_plain(work, work.pull), rows, numbers, memory, received)
            return _minus(shared, received), own if _finite(own) and _finite(shared) else memory
        if isinstance(work, TrainingAlone):
            own = self._train(_plain(work), rows, numbers, memory, memory)
            return _nothing(received, broken=not _finite(own)), own if _finite(own) else memory
        return _minus(self._train(work, rows, numbers, received, received), received), memory

    def _train(self, work: Work, rows: ClientRows, numbers: np.ndarray, start: State, towards: State) -> State:
        module = self._make()
        put(module, start)
        learned = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
        anchor = [torch.tensor(towards[name], device=device_of(module)) for name in learned]
        batches = training_batches(rows, work.epochs, numbers, device_of(module))
        fit(module, batches, work, anchor=anchor, losses=self._losses, optimiser=self._optimiser)
        return state_of(module)


def state_of(module: nn.Module) -> State:
    return {name: value.detach().cpu().numpy() for name, value in module.state_dict().items()}


def put(module: nn.Module, state: State) -> None:
    module.load_state_dict({name: torch.tensor(np.asarray(value)) for name, value in state.items()})


def _plain(work: PersonalTraining | TrainingAlone, mu: float | None = None) -> LocalTraining:
    return LocalTraining(
        learning_rate=work.learning_rate, epochs=work.epochs, batch_size=work.batch_size, mu=mu, optimiser=work.optimiser,
        options=work.options, max_steps=work.max_steps,
    )  # fmt: skip


def _minus(trained: State, received: State) -> State:
    return {name: trained[name] - np.asarray(received[name]) for name in trained}


def _finite(state: State) -> bool:
    return all(bool(np.isfinite(leaf).all()) for leaf in state.values())


def _nothing(like: State, *, broken: bool) -> State:
    """Zeros, or NaN where training diverged, so that the server notices."""
    return {name: np.full_like(leaf, np.nan) if broken and leaf.dtype.kind == "f" else np.zeros_like(leaf) for name, leaf in like.items()}

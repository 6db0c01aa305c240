"""Local training of an nn.Module as `evenly.parts.work` describes it: FedProx's pull, PropFair's loss, weighted rows.

With the same model and the same batches it is the simulator's arithmetic, step by step.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from evenly.flower.clients.batches import PADDING
from evenly.flower.clients.data import Rows
from evenly.flower.clients.measuring import Seen
from evenly.parts.optimisers import OPTIMISERS
from evenly.parts.work import FullGradient, LocalTraining, NashBargaining
from evenly.randomness import batches
from evenly.types import Work

CHUNK = 1024  # rows read at a time

Losses = Callable[[Tensor, Tensor], Tensor]  # what the module puts out and the labels -> one loss per row
MakeOptimiser = Callable[[list[nn.Parameter], float], torch.optim.Optimizer]  # from the parameters and the learning rate
Data = Rows | tuple[Any, ...] | Iterable[Any]  # rows, tensors (x, y[, group[, weight]]), or a DataLoader of such batches


class Batch(NamedTuple):
    """Some rows as tensors."""

    x: Tensor
    y: Tensor
    group: Tensor
    weight: Tensor


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    """Of logits [n, classes]; or of one logit [n] or [n, 1] for two classes. [n]"""
    if output.ndim == 2 and output.shape[1] > 1:
        return nn.functional.cross_entropy(output, y, reduction="none")
    return nn.functional.binary_cross_entropy_with_logits(output.reshape(-1), y.to(output.dtype), reduction="none")


def outcome(output: Tensor) -> Tensor:
    """The label numbers that a module's output stands for. [n]"""
    return output.argmax(1) if output.ndim == 2 and output.shape[1] > 1 else (output.reshape(-1) > 0).long()


def probabilities(output: Tensor) -> Tensor:
    """How likely each label is. [n, labels]"""
    if output.ndim == 2 and output.shape[1] > 1:
        return output.softmax(1)
    likely = output.reshape(-1).sigmoid()
    return torch.stack([1 - likely, likely], 1)


def tensor(values: Any, device: torch.device | None = None) -> Tensor:
    """A tensor that shares the memory of an array, unless the array may not be written to."""
    locked = isinstance(values, np.ndarray) and not values.flags.writeable
    return torch.as_tensor(values.copy() if locked else values, device=device)


def batch_of(parts: Iterable[Any], device: torch.device | None = None) -> Batch:
    """A batch from (x, y), (x, y, group) or (x, y, group, weight): NumPy's arrays or tensors."""
    x, y, *more = (tensor(part, device) for part in parts)
    group = more[0].long() if more else torch.zeros(len(y), dtype=torch.long, device=device)
    weight = more[1].float() if len(more) > 1 else torch.ones(len(y), device=device)
    return Batch(x, y.long(), group, weight)


def in_memory(data: Data) -> bool:
    """Whether data are arrays, of which batches can be drawn; else they are batches already."""
    return isinstance(data, tuple)


def chunks(data: Data, size: int, device: torch.device | None = None) -> Iterator[Batch]:
    """All rows once, in their order."""
    if not in_memory(data):
        yield from (batch_of(parts, device) for parts in data)
        return
    whole = batch_of(data)
    for start in range(0, len(whole.y), size):
        yield batch_of((part[start : start + size] for part in whole), device)


def drawn(data: Data, epochs: int, numbers: np.ndarray | None, device: torch.device | None = None) -> Iterator[Batch]:
    """What a client trains on: these batches of its rows; or, of a DataLoader, its own batches, epoch after epoch."""
    if not in_memory(data):
        for _ in range(epochs):
            yield from chunks(data, 0, device)
        return
    assert numbers is not None
    whole = batch_of(data)
    for step in numbers:
        own = torch.as_tensor(step[step != PADDING].astype(np.int64))
        yield batch_of((part[own] for part in whole), device)


def any_batches(data: Data, work: Work) -> np.ndarray | None:
    """Batches in an order that nobody else needs to know; None: the data come in batches."""
    if not in_memory(data):
        return None
    rows = np.arange(len(batch_of(data).y), dtype=np.int32)
    shuffle = np.random.default_rng(int(torch.randint(2**31, ()))) if work.shuffle else None  # by PyTorch's own seed
    return batches(rows, work.batch_size, epochs=work.epochs, shuffle=shuffle, padding=PADDING, most=work.max_steps or None)


def shaped(loss: Tensor, shape: NashBargaining | None) -> Tensor:
    """A batch's loss as PropFair sees it: -log(1 - loss/M), and where M - loss is under epsilon a multiple of the loss."""
    if shape is None:
        return loss
    if shape.M - float(loss.detach()) >= shape.epsilon:
        return -torch.log1p(-loss / shape.M)
    return loss / (shape.epsilon if shape.huber else shape.M)


def mean_loss(model: nn.Module, batch: Batch, losses: Losses) -> Tensor:
    """The sum of weighted losses over the number of rows."""
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
    """Train a module in place. `anchor` are the parameters that FedProx pulls towards, usually those received."""
    model.train()
    if isinstance(work, FullGradient):
        _gradient_step(model, batches, work, losses)
    elif isinstance(work, LocalTraining):
        _local_steps(model, batches, work, anchor, losses, optimiser or optimiser_of(work))
    else:
        raise ValueError(f"A module is trained by local training or by a full gradient, got {type(work).__name__}; app(...) knows others.")


def _local_steps(
    model: nn.Module, batches: Iterable[Batch], work: LocalTraining, anchor: list[Tensor], losses: Losses, optimiser: MakeOptimiser
) -> None:
    parameters = trainable(model)
    moving = optimiser(parameters, float(work.learning_rate))
    for batch in batches:
        moving.zero_grad()
        shaped(mean_loss(model, batch, losses), work.shape).backward()
        if work.mu:
            for parameter, received in zip(parameters, anchor, strict=True):
                if parameter.grad is not None:
                    parameter.grad.add_(parameter.detach() - received, alpha=float(work.mu))
        moving.step()


def _gradient_step(model: nn.Module, batches: Iterable[Batch], work: FullGradient, losses: Losses) -> None:
    """One step along the gradient over all rows, read in batches."""
    rows = 0
    model.zero_grad()
    for batch in batches:
        (losses(_output(model, batch), batch.y) * batch.weight).sum().backward()
        rows += len(batch.y)
    with torch.no_grad():
        for parameter in trainable(model):
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=float(work.learning_rate) / max(rows, 1))


def look(model: nn.Module, batch: Batch, losses: Losses) -> Seen:
    """Losses and outcomes of a module, row by row, as it is used: without dropout."""
    was = model.training
    model.eval()
    with torch.no_grad():
        output = model(batch.x)
        seen = Seen(losses(output, batch.y).cpu().numpy(), outcome(output).cpu().numpy())
    model.train(was)
    return seen


def joined(seen: Sequence[Seen]) -> Seen:
    """What was seen batch by batch, as one."""
    nothing = Seen(np.zeros(0), np.zeros(0, np.int64))
    return Seen(*(np.concatenate(parts) for parts in zip(nothing, *seen, strict=True)))


def device_of(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def optimiser_of(work: LocalTraining) -> MakeOptimiser:
    """PyTorch's optimiser of the same name and arithmetic."""
    kind = work.optimiser
    options = {**(OPTIMISERS[kind].settings if isinstance(kind, str) else {}), **work.options}
    if kind in ("sgd", "momentum"):
        return lambda parameters, rate: torch.optim.SGD(parameters, rate, momentum=float(options.get("momentum", 0.0)))
    if kind == "adam":
        betas = float(options["b1"]), float(options["b2"])
        return lambda parameters, rate: torch.optim.Adam(parameters, rate, betas=betas, eps=float(options["eps"]))
    raise ValueError(
        f"PyTorch clients know the local optimisers sgd, momentum and adam, got {kind!r}. "
        "Give one of your own: optimiser=lambda parameters, rate: torch.optim.Adagrad(parameters, rate)."
    )

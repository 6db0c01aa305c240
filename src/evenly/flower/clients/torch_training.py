"""Local training in PyTorch: batches, losses, optimisers and the steps of a client.

Training by edge-popup is in `torch_popup`, and the engine that runs both for a client in `torch`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from evenly.flower.clients.rows import PADDING, ClientRows, RowOutcomes
from evenly.parts.optimisers import OPTIMISERS
from evenly.parts.work import FullGradient, LocalTraining, NashBargaining
from evenly.randomness import batches
from evenly.types import Work

# Local training of an nn.Module as `evenly.parts.work` describes it: FedProx's pull, PropFair's
# loss, weighted rows.
#
# With the same model and the same batches it is the simulator's arithmetic, step by step.

CHUNK = 1024  # rows read at a time

# what the module puts out and the labels -> one loss per row
Losses = Callable[[Tensor, Tensor], Tensor]
# from the parameters and the learning rate
MakeOptimiser = Callable[[list[nn.Parameter], float], torch.optim.Optimizer]
# rows, tensors (x, y[, group[, weight]]), or a DataLoader of such batches
Data = ClientRows | tuple[Any, ...] | Iterable[Any]


class Batch(NamedTuple):
    """Rows as tensors."""

    x: Tensor
    y: Tensor
    group: Tensor
    weight: Tensor


def _has_all_logits(output: Tensor) -> bool:
    """Whether a module's output has one logit per class; else it has one logit in all, for two
    classes: [n] or [n, 1].
    """
    return output.ndim == 2 and output.shape[1] > 1


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each row, from logits [n, classes], or from one logit [n] or [n, 1] for two
    classes. [n]
    """
    if _has_all_logits(output):
        return nn.functional.cross_entropy(output, y, reduction="none")
    return nn.functional.binary_cross_entropy_with_logits(
        output.reshape(-1), y.to(output.dtype), reduction="none"
    )


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


def training_batches(
    data: Data, epochs: int, numbers: np.ndarray | None, device: torch.device | None = None
) -> Iterator[Batch]:
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
    # by PyTorch's own seed
    shuffle = np.random.default_rng(int(torch.randint(2**31, ()))) if work.shuffle else None
    return batches(
        rows,
        work.batch_size,
        epochs=work.epochs,
        shuffle=shuffle,
        padding=PADDING,
        most=work.max_steps or None,
    )


def shape_loss(loss: Tensor, shape: NashBargaining | None) -> Tensor:
    """PropFair's loss: -log(1 - loss/M), or a multiple of the loss where M - loss is
    below epsilon.
    """
    if shape is None:
        return loss
    if shape.M - float(loss.detach()) >= shape.epsilon:
        return -torch.log1p(-loss / shape.M)
    return loss / (shape.epsilon if shape.huber else shape.M)


def mean_loss(model: nn.Module, batch: Batch, losses: Losses) -> Tensor:
    """Sum of weighted losses divided by the number of rows."""
    return (losses(_output(model, batch), batch.y) * batch.weight).sum() / max(len(batch.y), 1)


def _output(model: nn.Module, batch: Batch) -> Tensor:
    """A single row has no statistics, and PyTorch refuses it: it is normalised by those that a
    layer has kept, as in an evaluation. Else a client whose last batch has one row would be left
    out of every round.
    """
    alone = (
        [own for own in model.modules() if isinstance(own, nn.BatchNorm1d) and own.training]
        if len(batch.y) == 1
        else []
    )
    for layer in alone:
        layer.eval()
    output = model(batch.x)
    for layer in alone:
        layer.train()
    return output


def fit(
    model: nn.Module,
    batches: Iterable[Batch],
    work: Work,
    *,
    anchor: list[Tensor],
    losses: Losses,
    optimiser: MakeOptimiser | None = None,
) -> None:
    """Train a module in place. FedProx pulls its parameters towards `anchor`."""
    model.train()
    if isinstance(work, FullGradient):
        _gradient_step(model, batches, work, losses)
    elif isinstance(work, LocalTraining):
        _local_steps(
            model,
            batches,
            work,
            anchor=anchor,
            losses=losses,
            optimiser=optimiser or optimiser_of(work),
        )
    else:
        raise ValueError(
            f"work must be LocalTraining or FullGradient, got {type(work).__name__}. Use app(...)"
            " for other kinds."
        )


def _local_steps(
    model: nn.Module,
    batches: Iterable[Batch],
    work: LocalTraining,
    *,
    anchor: list[Tensor],
    losses: Losses,
    optimiser: MakeOptimiser,
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


def _gradient_step(
    model: nn.Module, batches: Iterable[Batch], work: FullGradient, losses: Losses
) -> None:
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
        return lambda parameters, rate: torch.optim.SGD(
            parameters,
            rate,
            momentum=float(options.get("momentum", 0.0)),
            weight_decay=float(options.get("weight_decay", 0.0)),
        )
    if kind == "adam":
        betas = float(options["b1"]), float(options["b2"])
        return lambda parameters, rate: torch.optim.Adam(
            parameters, rate, betas=betas, eps=float(options["eps"])
        )
    raise ValueError(
        f"PyTorch clients support the local optimisers sgd, momentum and adam, got {kind!r}. "
        "Pass your own: optimiser=lambda parameters, rate: torch.optim.Adagrad(parameters, rate)."
    )

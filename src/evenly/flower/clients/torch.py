"""Flower clients in PyTorch: a few functions for an nn.Module and a DataLoader or tensors, and a
ready app.

    now = read_config(config)    the server's method, from the config of a message
    measure(model, data)         signals that a method needs, from the received model
    census(data, labels, groups) counts of a client's rows, for methods that need them
    row_weights(now, data)       weights of rows, from reweighing and from the server
    train(model, data, work)     local training with the method's own loss, in place
    reply(message, model, said)  the trained model and the metrics
    app(make_model, source)      all of it, as told by the server's method

A client that has its own training loop needs only `measure` and `reply`.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

try:
    import torch
except ImportError as error:
    raise ImportError(
        "evenly.flower.clients.torch needs PyTorch, which is not installed. Install it with: pip"
        ' install "evenly[flower,torch]"'
    ) from error

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from evenly.flower import wire
from evenly.flower.clients import client
from evenly.flower.clients.client import (
    RoundConfig,
    census_reply,
    client_app,
    read_config,
    weighted_rows,
)
from evenly.flower.clients.rows import (
    LOOKS,
    NO_ROWS,
    ClientData,
    ClientRows,
    Look,
    Metrics,
    RowOutcomes,
    Source,
    batches_of,
    rows,
    signals_from_outcomes,
    table,
)
from evenly.flower.clients.torch_popup import (
    first_places,
    freeze,
    most_certain_model,
    search_places,
    subnetwork,
)
from evenly.flower.clients.torch_training import (
    CHUNK,
    Data,
    Losses,
    MakeOptimiser,
    any_batches,
    chunks,
    concatenate,
    cross_entropy,
    device_of,
    fit,
    look,
    probabilities,
    trainable,
    training_batches,
)
from evenly.parts.ranking import Frozen
from evenly.parts.ranking_work import EdgePopup
from evenly.parts.work import LocalTraining, PersonalTraining, TrainingAlone
from evenly.records import require
from evenly.types import Work

__all__ = [
    "app",
    "arrays",
    "census",
    "first_places",
    "load",
    "measure",
    "read_config",
    "reply",
    "row_weights",
    "told",
    "train",
]

told = read_config  # the former name, for clients that use it


def load(model: nn.Module, received: ArrayRecord) -> None:
    """Load the arrays of a record into a module, by the names of its state_dict."""
    model.load_state_dict(
        {name: torch.tensor(wire.read(array)) for name, array in received.items()}
    )


def arrays(model: nn.Module) -> ArrayRecord:
    """State_dict of a module as a record."""
    return ArrayRecord(model.state_dict())


def measure(
    model: nn.Module, data: Data, needs: Iterable[str] = ("loss",), *, labels: int = 0,
    groups: int = 1, unprivileged: Iterable[int] = (0,), losses: Losses = cross_entropy,
    valid: Data | None = None,
) -> Metrics:  # fmt: skip
    """Metrics of the received model that a method needs; call it before training.

    `needs` are those of the method, `read_config(config).algorithm.needs`; all but the loss are
    about groups of people, so `data` then have a third part, the number of each row's group, and
    `labels` and `groups` say how many there are in the whole federation. `valid` are rows that the
    client does not train on, for methods that ask what the model makes of those.
    """
    needs = frozenset(needs)
    require(
        labels > 0 or not needs & {"table", "valid_table", "cell_loss"},
        f"measure needs the numbers of labels and groups for {', '.join(sorted(needs))}: pass for"
        " example labels=2, groups=2.",
    )
    require(
        valid is not None or "valid_table" not in needs,
        "measure needs held-out rows for valid_table: pass valid=...",
    )
    read, seen = [], []
    # once: a loader may give another order the next time
    for batch in chunks(data, CHUNK, device_of(model)):
        read.append((batch.y, batch.group))
        seen += [look(model, batch, losses)] if needs & LOOKS else []
    y, group = _labels_and_groups(read)
    found: Metrics = {wire.EXAMPLES: len(y)}
    if "unprivileged" in needs:
        found[wire.UNPRIVILEGED] = int(np.isin(group, list(unprivileged)).sum())
    if valid is not None and "valid_table" in needs:
        own = [
            (batch, look(model, batch, losses)) for batch in chunks(valid, CHUNK, device_of(model))
        ]
        counts = [
            table(*_labels_and_groups([(batch.y, batch.group)]), seen.outcome, (groups, labels))
            for batch, seen in own
        ]
        wire.put(found, wire.VALID_TABLE, sum(counts, np.zeros((groups, labels, labels), np.int64)))
    return found | signals_from_outcomes(concatenate(seen), y, group, needs, shape=(groups, labels))


def census(
    data: Data, *, labels: Sequence[str], groups: Sequence[str] = ("all",),
    unprivileged: Iterable[int] = (0,), favourable: int = 1, number: int | None = None,
    name: str = "", client_group: int | None = None,
) -> RecordDict:  # fmt: skip
    """Reply to "query.census": counts of training rows by group and label, and their names.

    `labels` and `groups` are the names of those that the whole federation has, in the order of
    their numbers. A client that has a `number`, or that belongs to a group as a whole, says so
    here.
    """
    y, group = _labels_and_groups([(batch.y, batch.group) for batch in chunks(data, CHUNK)])
    for kind, found, names in (("labels", y, labels), ("groups", group, groups)):
        require(
            bool(np.isin(found, np.arange(len(names))).all()),
            f"census names {len(names)} {kind}, so rows have numbers from 0 to {len(names) - 1},"
            f" got {found.min()} to {found.max()}. Name all {kind} of the federation, also those"
            f" that this client does not have: {kind}=('first', 'second', ...).",
        )
    known = ClientData(
        rows(y, y, group),
        NO_ROWS,
        NO_ROWS,
        tuple(labels),
        tuple(groups),
        tuple(unprivileged),
        favourable,
        number,
        name,
        client_group,
    )
    return census_reply(known)


def row_weights(now: RoundConfig, data: Data, *, labels: int, groups: int = 1) -> np.ndarray | None:
    """Weights of rows in training by group and label: of local reweighing (`+reweigh`) and of the
    server (FedFB). None: all equal. [groups, labels]
    """
    if now.algorithm.prepare is None:
        return now.row_weights
    y, group = _labels_and_groups([(batch.y, batch.group) for batch in chunks(data, CHUNK)])
    found = np.ones((groups, labels))
    found[group, y] = now.algorithm.prepare.weights(y, group)
    return found if now.row_weights is None else found * now.row_weights


def train(
    model: nn.Module, data: Data, work: Work | None = None, *, batches: np.ndarray | None = None,
    row_weights: Any = None, losses: Losses = cross_entropy, optimiser: MakeOptimiser | None = None,
) -> None:  # fmt: skip
    """Train a module in place: epochs of steps, with FedProx's pull or PropFair's loss if the
    method has them, or one full gradient.

    A DataLoader gives its own batches; of tensors they are those that `batches` numbers, or drawn
    anew. `row_weights` [groups, labels] is how much rows count, on top of the weight that they may
    have themselves as a fourth part. `optimiser` makes one of your own from the parameters and the
    learning rate.
    """
    work, device = LocalTraining() if work is None else work, device_of(model)
    own = training_batches(
        data, work.epochs, any_batches(data, work) if batches is None else batches, device
    )
    if row_weights is not None:
        told_so = torch.as_tensor(np.asarray(row_weights), dtype=torch.float32, device=device)
        own = (batch._replace(weight=batch.weight * told_so[batch.group, batch.y]) for batch in own)
    own = islice(own, work.max_steps or None)
    fit(
        model,
        own,
        work,
        anchor=[p.detach().clone() for p in trainable(model)],
        losses=losses,
        optimiser=optimiser,
    )


def reply(message: Message, model: nn.Module, metrics: Metrics) -> Message:
    """Reply to a train message: the trained model or, in two-phase rounds, coefficient times
    update; and the metrics.
    """
    return client.reply(message, arrays(model), metrics)


def app(
    make_model: Callable[[], nn.Module],
    source: Source,
    *,
    losses: Losses = cross_entropy,
    optimiser: MakeOptimiser | None = None,
    require_policy: bool = False,
) -> ClientApp:
    """ClientApp that trains with the method of the server, on the batches of the simulator.

    `source` is a Federation, of which `partition-id` in the node's config names the client, or a
    client's own data, or a function that finds them from Flower's context. With `require_policy`, a
    node without a policy answers nothing.
    """
    engine = TorchEngine(make_model, losses, optimiser)
    return client_app(source, engine, require_policy=require_policy)


def _labels_and_groups(
    read: list[tuple[torch.Tensor, torch.Tensor]],
) -> tuple[np.ndarray, np.ndarray]:
    """Labels and groups of all rows, from those of every batch."""
    return (
        torch.cat([y for y, _ in read]).cpu().numpy(),
        torch.cat([group for _, group in read]).cpu().numpy(),
    )


# Training and evaluation of modules. A model is a state_dict, or the places of the edges of a
# frozen module.

State = dict[str, np.ndarray]


class TorchEngine:
    """Trains and evaluates modules of one architecture; a new module for every message."""

    reduction = "mean"
    clips_rows = False

    def __init__(
        self, make_model: Callable[[], nn.Module], losses: Losses, optimiser: MakeOptimiser | None
    ) -> None:
        self._make, self._losses, self._optimiser = make_model, losses, optimiser

    def text(self, now: RoundConfig) -> str:
        return type(self).__name__

    def form(self, now: RoundConfig, client: ClientData) -> State:
        module = self._make()
        if isinstance(now.algorithm.network, Frozen):
            return {
                name: np.zeros(tuple(weight.shape), np.float32)
                for name, weight in module.named_parameters()
            }
        return state_of(module)

    def has_one_logit(self, now: RoundConfig) -> bool:
        module = self._make()
        parts = list(module) if type(module) is nn.Sequential else [module]
        linear = [part for part in parts if type(part) is not nn.Flatten]
        return (
            now.algorithm.network is None
            and self._losses is cross_entropy
            and len(linear) == 1
            and type(linear[0]) is nn.Linear  # a subclass may compute anything
            and linear[0].out_features <= 2
        )

    def look(self, now: RoundConfig, model: State) -> Look:
        module = self._module(now, model)

        def looking(rows: ClientRows) -> RowOutcomes:
            return concatenate(
                [
                    look(module, batch, self._losses)
                    for batch in chunks(rows, CHUNK, device_of(module))
                ]
            )

        return looking

    def _module(self, now: RoundConfig, model: State) -> nn.Module:
        """A module with the parameters of a model."""
        module, network = self._make(), now.algorithm.network
        if isinstance(network, Frozen):
            frozen = freeze(module, network, now.model_seed)
            module.load_state_dict(subnetwork(frozen, network, model))
        else:
            put(module, model)
        return module

    def penalty(self, now: RoundConfig, model: State) -> float:
        return 0.0

    def probabilities(self, now: RoundConfig, model: State, own: ClientRows) -> np.ndarray | None:
        if self._losses is not cross_entropy:  # what the outputs mean is the user's own affair
            return None
        module = self._module(now, model).eval()
        with torch.no_grad():
            parts = [
                probabilities(module(batch.x)).cpu().numpy()
                for batch in chunks(own, CHUNK, device_of(module))
            ]
        return np.concatenate(parts)

    def most_certain_model(self, now: RoundConfig, models: list[State], client: ClientData) -> int:
        network, rule = now.algorithm.network, now.algorithm.rule
        assert isinstance(network, Frozen)
        module = freeze(self._make(), network, now.model_seed)
        return most_certain_model(module, network, models, client.train, rule.inference)

    def train(
        self, now: RoundConfig, client: ClientData, received: State, memory: State
    ) -> tuple[State, State]:
        """Return the vector to send and the memory to keep. If training diverged, the memory stays
        unchanged.
        """
        work, network, rows = now.algorithm.work, now.algorithm.network, weighted_rows(now, client)
        numbers = batches_of(work, now.batch_seed, now.server_round, now.client, rows.size)
        if isinstance(work, EdgePopup):
            assert isinstance(network, Frozen)
            module = freeze(self._make(), network, now.model_seed)
            batches = training_batches(rows, work.epochs, numbers, device_of(module))
            return (
                search_places(
                    module,
                    network,
                    received,
                    batches,
                    work=work,
                    losses=self._losses,
                    number=now.server_round - 1,
                    rows=rows.size,
                ),
                memory,
            )
        if isinstance(work, PersonalTraining):
            shared = self._train(_plain(work), rows, numbers, received, received)
            own = self._train(_plain(work, work.pull), rows, numbers, memory, received)
            return _minus(shared, received), own if _finite(own) and _finite(shared) else memory
        if isinstance(work, TrainingAlone):
            own = self._train(_plain(work), rows, numbers, memory, memory)
            return _nothing(received, broken=not _finite(own)), own if _finite(own) else memory
        return _minus(self._train(work, rows, numbers, received, received), received), memory

    def _train(
        self, work: Work, rows: ClientRows, numbers: np.ndarray, start: State, towards: State
    ) -> State:
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
        learning_rate=work.learning_rate, epochs=work.epochs, batch_size=work.batch_size, mu=mu,
        optimiser=work.optimiser, options=work.options, max_steps=work.max_steps,
    )  # fmt: skip


def _minus(trained: State, received: State) -> State:
    return {name: trained[name] - np.asarray(received[name]) for name in trained}


def _finite(state: State) -> bool:
    return all(bool(np.isfinite(leaf).all()) for leaf in state.values())


def _nothing(like: State, *, broken: bool) -> State:
    """Zeros, or NaN where training diverged, so that the server notices."""
    return {
        name: (
            np.full_like(leaf, np.nan) if broken and leaf.dtype.kind == "f" else np.zeros_like(leaf)
        )
        for name, leaf in like.items()
    }

"""How a ready PyTorch client looks at models and trains them. Models are state_dicts, or the places of a frozen module's edges."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from evenly.flower.clients import torch_popup
from evenly.flower.clients.batches import batches_of
from evenly.flower.clients.data import ClientData, Rows
from evenly.flower.clients.measuring import Look, Seen
from evenly.flower.clients.told import Told, weighted
from evenly.flower.clients.torch_training import CHUNK, Losses, MakeOptimiser, chunks, device_of, drawn, fit, joined, look
from evenly.parts.ranking import Frozen
from evenly.parts.ranking_work import EdgePopup
from evenly.parts.work import LocalTraining, PersonalTraining, TrainingAlone
from evenly.types import Several, Work

State = dict[str, np.ndarray]


class TorchEngine:
    """One client's modules, made anew for every message."""

    reduction = "mean"

    def __init__(self, make_model: Callable[[], nn.Module], losses: Losses, optimiser: MakeOptimiser | None) -> None:
        self._make, self._losses, self._optimiser = make_model, losses, optimiser

    def form(self, now: Told, client: ClientData) -> State:
        module = self._make()
        if isinstance(now.algorithm.network, Frozen):
            return {name: np.zeros(tuple(weight.shape), np.float32) for name, weight in module.named_parameters()}
        return state_of(module)

    def look(self, now: Told, model: State) -> Look:
        module, network = self._make(), now.algorithm.network
        if isinstance(network, Frozen):
            frozen = torch_popup.freeze(module, network, now.model_seed)
            module.load_state_dict(torch_popup.subnetwork(frozen, network, model))
        else:
            put(module, model)

        def looking(rows: Rows) -> Seen:
            return joined([look(module, batch, self._losses) for batch in chunks(rows, CHUNK, device_of(module))])

        return looking

    def penalty(self, now: Told, model: State) -> float:
        return 0.0

    def surest(self, now: Told, models: list[State], client: ClientData) -> int:
        network, rule = now.algorithm.network, now.algorithm.rule
        assert isinstance(network, Frozen)
        assert isinstance(rule, Several)
        module = torch_popup.freeze(self._make(), network, now.model_seed)
        return torch_popup.surest(module, network, models, client.train, rule.inference)

    def train(self, now: Told, client: ClientData, received: State, memory: State) -> tuple[State, State]:
        """The vector to send and the memory to keep. A client whose training broke keeps what it had."""
        work, network, rows = now.algorithm.work, now.algorithm.network, weighted(now, client)
        numbers = batches_of(work, now.batch_seed, now.server_round, now.client, rows.size)
        if isinstance(work, EdgePopup):
            assert isinstance(network, Frozen)
            module = torch_popup.freeze(self._make(), network, now.model_seed)
            batches = drawn(rows, work.epochs, numbers, device_of(module))
            return torch_popup.searched(module, network, received, batches, work, self._losses), memory
        if isinstance(work, PersonalTraining):
            shared = self._trained(_plain(work), rows, numbers, received, received)
            own = self._trained(_plain(work, work.pull), rows, numbers, memory, received)
            return _minus(shared, received), own if _finite(own) and _finite(shared) else memory
        if isinstance(work, TrainingAlone):
            own = self._trained(_plain(work), rows, numbers, memory, memory)
            return _nothing(received, broken=not _finite(own)), own if _finite(own) else memory
        return _minus(self._trained(work, rows, numbers, received, received), received), memory

    def _trained(self, work: Work, rows: Rows, numbers: np.ndarray, start: State, towards: State) -> State:
        module = self._make()
        put(module, start)
        learned = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
        anchor = [torch.tensor(towards[name], device=device_of(module)) for name in learned]
        batches = drawn(rows, work.epochs, numbers, device_of(module))
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
    """No change; or, where training broke, NaN, so that the server sees it."""
    return {name: np.full_like(leaf, np.nan) if broken and leaf.dtype.kind == "f" else np.zeros_like(leaf) for name, leaf in like.items()}

"""The results of a run: evaluations while it runs, bytes sent, its history and its traces."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from evenly import trees
from evenly.data.federation import Federation
from evenly.data.splits import SPLITS, Ragged
from evenly.metrics.outcomes import examples
from evenly.notation import unknown
from evenly.parts.sampling import Full
from evenly.parts.work import TrainingAlone
from evenly.records import replace
from evenly.simulate.choosing import BEFORE_TRAINING
from evenly.simulate.layout import ClientMemories, RoundRecord, RunGroup, Shape, State
from evenly.simulate.schedule import Block
from evenly.types import NO_CHOICE, Algorithm, ReportingRule, RowRule, Trace, Tree

# Evaluations that are reported while a simulation runs.

# Evaluations since the last call: for each algorithm a Trace that holds only evaluations.
Observe = Callable[[list[Trace]], None]

NOBODY = np.zeros((0, 0), np.int32)


def evaluation_fields(
    federation: Federation,
    evaluated_clients: np.ndarray | None,
    evaluations: Sequence[np.ndarray],
    run: int,
) -> dict[str, Any]:
    """The fields of one run's Trace that evaluations fill, from the rounds, tables, losses and
    choices of all runs.
    """
    rounds, tables, losses, choices = evaluations
    tables, losses = tables[..., run], losses[..., run]  # [evaluations, owners, ...]
    clients = slice(None) if evaluated_clients is None else evaluated_clients
    counts = np.concatenate([federation.split(s).counts[clients] for s in SPLITS])
    means = np.divide(
        losses[:, :-1], counts, out=np.full(losses[:, :-1].shape, np.nan), where=counts > 0
    )
    by_split = (len(rounds), len(SPLITS), len(counts) // len(SPLITS))
    return {
        "rounds": rounds,
        "tables": tables[:, :-1].reshape(*by_split, *tables.shape[2:]),
        "losses": means.reshape(by_split).astype(np.float32),
        "central": tables[:, -1],
        "choice": choices[..., run] if choices.shape[1] else NO_CHOICE,
        "panel": evaluated_clients,
        "clients": (
            federation.names
            if evaluated_clients is None
            else tuple(federation.names[k] for k in evaluated_clients.tolist())
        ),
    }


class EvaluationFeed:
    """Sends every evaluation to an observer once. `positions` are those of the caller's algorithms
    among the runs.
    """

    def __init__(
        self,
        observe: Observe | None,
        federation: Federation,
        evaluated_clients: np.ndarray | None,
        positions: Sequence[int],
    ) -> None:
        self._observe, self._federation, self._clients, self._positions, self._sent = (
            observe,
            federation,
            evaluated_clients,
            positions,
            0,
        )

    def send(self, pieces: Sequence[list[np.ndarray]]) -> None:
        """Send the evaluations that were added to these lists of rounds, tables, losses and
        choices.
        """
        if self._observe is None or len(pieces[0]) == self._sent:
            return
        evaluations = [np.concatenate(piece[self._sent :]) for piece in pieces]
        self._sent = len(pieces[0])
        self._observe([self._partial_trace(evaluations, run) for run in self._positions])

    def _partial_trace(self, evaluations: Sequence[np.ndarray], run: int) -> Trace:
        return Trace(
            **evaluation_fields(self._federation, self._clients, evaluations, run),
            cohort=NOBODY,
            weights=NOBODY.astype(np.float32),
            excluded=np.zeros(self._federation.clients, np.int32),
            upload=0.0,
            download=0.0,
            model=None,
        )


# Bytes that a client sends and receives in a round, from the sizes of a model's layers and the kind
# of method.
#
# A model of floats takes 4 bytes for each parameter, a mask one bit for each edge, and a ranking
# ceil(log2 n) bits for each edge of a layer of n edges. (E2FL's published figures are exactly
# these, in MiB of 2^20 bytes.) The seed of frozen weights is sent once and not counted.

SCALAR = 4.0  # bytes


class Cost(NamedTuple):
    """Bytes of one client in one round."""

    up: float
    down: float


def layer_sizes(parameters: Tree) -> tuple[int, ...]:
    """Entries of each layer, from a tree of arrays or of shapes."""
    return tuple(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(parameters))


def float_bytes(sizes: Sequence[int]) -> float:
    """All parameters as 32-bit floats."""
    return 4.0 * sum(sizes)


def mask_bytes(sizes: Sequence[int]) -> float:
    """One bit for each edge."""
    return sum(sizes) / 8


def ranking_bytes(sizes: Sequence[int]) -> float:
    """The rank of each edge within its layer: ceil(log2 n) bits each.

    >>> ranking_bytes([288, 18432, 1605632, 1280]) * 8
    34011424.0
    """
    return sum(n * (n - 1).bit_length() for n in sizes) / 8


def round_cost(kind: str, sizes: Sequence[int], *, models: int = 1, scalars: int = 0) -> Cost:
    """The cost of a round of a method of this kind. `scalars` are further numbers that a client
    sends.

    - "model": a model each way (FedAvg, q-FedAvg, AFL, ...).
    - "clusters": `models` models down, one up (IFCA).
    - "independent": `models` models each way (device-specific q: one for each q).
    - "ranking": a ranking each way (FRL; E2FL where groups are known or clustered by the server).
    - "ranking and masks": a ranking each way and `models` masks down (E2FL where clients infer
      their group).
    - "none": nothing (local training).
    """
    if any(n < 1 for n in sizes) or models < 1 or scalars < 0:
        raise ValueError(
            f"Layers and models must be at least 1 and scalars at least 0, got {list(sizes)},"
            f" {models} and {scalars}."
        )
    model, ranking, mask = float_bytes(sizes), ranking_bytes(sizes), mask_bytes(sizes)
    kinds = {
        "model": Cost(model, model),
        "clusters": Cost(model, models * model),
        "independent": Cost(models * model, models * model),
        "ranking": Cost(ranking, ranking),
        "ranking and masks": Cost(ranking, ranking + models * mask),
        "none": Cost(0.0, 0.0),
    }
    if kind not in kinds:
        raise unknown("kind of communication", kind, kinds)
    return kinds[kind]._replace(up=kinds[kind].up + SCALAR * scalars)


# derived from the updates themselves, or drawn by the server
NOT_SENT = {"square_norm", "gram", "chance"}


def cost_of(algorithm: Algorithm, sizes: Sequence[int], shape: Shape) -> Cost:
    """Bytes up and down, from the sizes of the model's layers, the kind of communication and the
    signals that the rule needs.
    """
    rule = algorithm.rule
    models = rule.groups or 1
    if isinstance(algorithm.work, TrainingAlone):
        kind = "none"
    elif algorithm.network is not None:
        kind = (
            "ranking"
            if rule.groups is None or rule.known_votes or rule.inference in BEFORE_TRAINING
            else "ranking and masks"
        )
    else:
        kind = "model" if rule.groups is None else "clusters"
    cells = shape.groups * shape.labels
    many = {"table": cells * shape.labels, "valid_table": cells * shape.labels, "cell_loss": cells}
    scalars = sum(many.get(need, 1) for need in rule.needs - NOT_SENT)
    row_weights = SCALAR * cells if isinstance(rule, RowRule) else 0.0
    cost = round_cost(kind, sizes, models=models, scalars=scalars)
    return cost._replace(down=cost.down + row_weights)


# The history of a run on the host, and the traces made of it.


class RunHistory(NamedTuple):
    """Results of the blocks so far: lists of arrays that are concatenated in the end.

    Checkpoints store them, too: a change of its fields raises `checkpoints.FORMAT`.
    """

    cohort: list[np.ndarray]
    samplings: list[np.ndarray]  # [rounds, K, selects]; no selects where there is one sampling only
    weights: list[np.ndarray]
    returned: list[np.ndarray]
    rounds: list[np.ndarray]
    tables: list[np.ndarray]
    losses: list[np.ndarray]
    # [evaluations, clients, runs]; no clients where there is one model for all
    choice: list[np.ndarray]
    clips: list[np.ndarray]  # [rounds, runs]; no runs where none has a gate
    cuts: list[np.ndarray]  # int8 [rounds, K, runs]

    @staticmethod
    def empty() -> "RunHistory":
        return RunHistory(*([] for _ in RunHistory._fields))

    @property
    def evaluations(self) -> tuple[list[np.ndarray], ...]:
        """Rounds, tables, losses and choices."""
        return self.rounds, self.tables, self.losses, self.choice

    def arrays(self) -> tuple[np.ndarray, ...]:
        """One array for each field."""
        return tuple(np.concatenate(pieces) for pieces in self)

    def add_rounds(self, block: Block, record: RoundRecord, rounds: int) -> None:
        """Move the results of a block's rounds to the host; this waits for the device."""
        # Copies, because views of a short block would keep its padded arrays in memory.
        self.cohort.append(block.cohort[:rounds].copy())
        self.samplings.append(
            np.zeros((rounds, 0, 0), bool)
            if block.samplings is None
            else block.samplings[:rounds].copy()
        )
        self.weights.append(np.asarray(record.weights)[:rounds].copy())
        self.returned.append(block.returned[:rounds].copy())
        gated = record.gated
        self.clips.append(
            np.zeros((rounds, 0)) if gated is None else np.asarray(gated.clip)[:rounds].copy()
        )
        self.cuts.append(
            np.zeros((rounds, 0, 0), np.int8)
            if gated is None
            else np.asarray(gated.cut)[:rounds].copy()
        )

    def add_evaluations(
        self,
        block: Block,
        record: RoundRecord,
        start: int,
        owners: np.ndarray | slice,
        clients: np.ndarray | slice,
    ) -> None:
        """Move the results of a block's evaluations to the host, for these owners of rows and these
        clients.
        """
        marked = np.flatnonzero(block.evaluate)
        if len(marked):
            no_choice = np.zeros((len(marked), 0, record.losses.shape[-1]), np.int32)
            choice = (
                no_choice
                if record.choice is None
                else np.asarray(record.choice)[marked][:, clients]
            )
            tables, losses = (
                np.asarray(record.tables)[marked][:, owners],
                np.asarray(record.losses)[marked][:, owners],
            )
            self.add_evaluation(start + block.stops[marked], tables, losses, choice)

    def add_evaluation(
        self, rounds: np.ndarray, tables: np.ndarray, losses: np.ndarray, choice: np.ndarray
    ) -> None:
        """Add evaluations that are on the host already."""
        self.rounds.append(rounds)
        self.tables.append(tables)
        self.losses.append(losses)
        self.choice.append(choice)


def row_owners(evaluated_clients: np.ndarray, clients: int) -> np.ndarray:
    """The owners of the evaluated clients' training, validation and test rows, and of the central
    test set, among all owners.
    """
    return np.concatenate(
        [
            *(split * clients + evaluated_clients for split in range(len(SPLITS))),
            [len(SPLITS) * clients],
        ]
    )


def make_traces(
    arrays: tuple[np.ndarray, ...],
    state: State,
    run_group: RunGroup,
    *,
    federation: Federation,
    evaluated_clients: np.ndarray | None,
    shape: Shape,
    sizes: Sequence[int],
) -> list[Trace]:
    """One trace for each run, in the caller's order, from the arrays of a RunHistory. `sizes` are
    those of the model's layers.
    """
    cohort, samplings, weights, returned, *evaluations, clip, cut = arrays
    # Once for all runs: a transfer from a device takes as long for one run as for all.
    cohort_of = None if run_group.parts.cohort is None else np.asarray(run_group.parts.cohort)
    traces = []
    for run, algorithm in enumerate(run_group.algorithms):
        clients, coefficients, back = cohort, weights[..., run], returned
        gated = cut[..., run] if cut.shape[-1] else np.zeros(cohort.shape, np.int8)
        # of all clients that trained, those that this run's sampling drew
        if cohort_of is not None:
            members = samplings[..., cohort_of[run]]
            clients, coefficients, back, gated = _only_members(
                members, cohort, coefficients, returned & members, gated
            )
        cost = cost_of(algorithm, sizes, shape)
        fields = evaluation_fields(federation, evaluated_clients, evaluations, run)
        trace = Trace(
            **fields,
            cohort=clients,
            weights=coefficients,
            excluded=np.asarray(state.excluded)[:, run],
            upload=cost.up,
            download=cost.down,
            # a copy, not a view of all runs
            model=jax.tree.map(np.array, trees.take(state.model, run, shape.axis)),
            reports=_reports(run_group, state, run),
            method=algorithm.label,
            groups=federation.groups,
            returned=back,
            **({"clip": clip[:, run], "cut": gated} if algorithm.privacy and clip.shape[1] else {}),
            public=_of_rule(state.public, run_group, run),
            **_memories(state.memory, run_group, run, shape.axis),
        )
        traces.append(trace)
    return [traces[position] for position in run_group.positions]


def _only_members(members: np.ndarray, *by_slot: np.ndarray) -> list[np.ndarray]:
    """The entries of the slots that are members; others fill up rounds with fewer of them. [rounds,
    members]
    """
    slots = np.argsort(~members, axis=1, kind="stable")[:, : int(members.sum(1).max())]
    return [np.take_along_axis(values, slots, 1) for values in by_slot]


def _reports(run_group: RunGroup, state: State, run: int) -> dict[str, float]:
    rule = run_group.algorithms[run].rule
    if not isinstance(rule, ReportingRule):
        return {}
    own = _of_rule(state.public, run_group, run)
    return {name: float(value) for name, value in rule.report(own).items()}


def _of_rule(each: Sequence[Tree], run_group: RunGroup, run: int, axis: int = 0) -> Tree:
    """One run's part of trees that each rule group has."""
    group = int(np.searchsorted(run_group.bounds, run, side="right")) - 1
    return trees.take(each[group], run - run_group.bounds[group], axis)


def _memories(memory: Tree, run_group: RunGroup, run: int, axis: int) -> dict[str, Tree]:
    """What every client remembers under one run; nothing if it was not kept."""
    if not isinstance(memory, ClientMemories):
        return {}
    work = jax.tree.map(lambda leaf: leaf[:, run] if axis == 0 else leaf[..., run], memory.work)
    return {"personal": work, "memory": _of_rule(memory.rules, run_group, run, -1)}


# Clients with rows of several groups of people: each group votes as a client of its own (E2FL on
# Adult).


def split_people(
    federation: Federation, algorithms: Sequence[Algorithm]
) -> tuple[Federation, np.ndarray]:
    """A federation with one client for each client and group of people among its training rows, and
    the original client of each.

    Validation and test rows of groups without training rows of the client are assigned to its first
    group.
    """
    for algorithm in algorithms:
        if not isinstance(algorithm.select, Full):
            raise ValueError(
                f"{algorithm.label}: with people = true every client takes part in every round; add"
                " +full."
            )
    if len(federation.groups) < 2:
        raise ValueError(
            f"{algorithms[0].label}: the data have no groups of people. Name a sensitive column, or"
            " leave people out."
        )
    present = federation.census().cells.sum(2) > 0  # [clients, groups]
    owner, group = np.nonzero(present)
    parts = {}
    for split in SPLITS:
        rows, offsets = federation.split(split)
        of_client = np.repeat(np.arange(federation.clients), np.diff(offsets))
        of_group = federation.group[rows]
        of_group = np.where(present[of_client, of_group], of_group, present.argmax(1)[of_client])
        parts[split] = Ragged.from_lists(
            [rows[(of_client == k) & (of_group == g)] for k, g in zip(owner, group, strict=True)]
        )
    names = tuple(
        f"{federation.names[k]}, {federation.groups[g]}" for k, g in zip(owner, group, strict=True)
    )
    return replace(federation, **parts, names=names, client_group=group.astype(np.int32)), owner


def join_people(trace: Trace, owner: np.ndarray, names: tuple[str, ...]) -> Trace:
    """The trace with the groups of each client joined again. All clients use the shared model."""
    clients = int(owner.max()) + 1
    first = np.searchsorted(owner, np.arange(clients))
    counts = examples(trace.tables)
    total = np.add.reduceat(counts, first, axis=2)
    losses = np.add.reduceat(
        np.where(counts > 0, np.nan_to_num(trace.losses) * counts, 0.0), first, axis=2
    )
    return trace._replace(
        tables=np.add.reduceat(trace.tables, first, axis=2),
        losses=np.divide(losses, total, out=np.full(losses.shape, np.nan), where=total > 0).astype(
            np.float32
        ),
        cohort=owner[trace.cohort].astype(np.int32),
        excluded=np.add.reduceat(trace.excluded, first),
        upload=trace.upload * (len(owner) / clients),
        model=jax.tree.map(lambda leaf: leaf[0], trace.model),
        choice=NO_CHOICE,
        clients=names,
        memory=(),
        personal=(),
    )

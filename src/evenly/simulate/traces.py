"""What a run leaves behind: traces of evaluations, cohorts and weights, bytes sent, and people joined again to clients."""

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
from evenly.simulate.choosing import GIVEN
from evenly.simulate.layout import Company, RoundRecord, Shape, State
from evenly.simulate.schedule import Block
from evenly.types import NO_CHOICE, Algorithm, ReportingRule, RowRule, Several, Trace, Tree

# Telling somebody what a running simulation has measured, while it runs.

# What was evaluated since the last call: for each algorithm a Trace in which only the evaluations are filled in.
Observe = Callable[[list[Trace]], None]

NOBODY = np.zeros((0, 0), np.int32)


def evaluated(federation: Federation, panel: np.ndarray | None, seen: Sequence[np.ndarray], run: int) -> dict[str, Any]:
    """One run's fields of a Trace that evaluations fill, from the rounds, tables, losses and choices of all runs."""
    rounds, tables, losses, choices = seen
    tables, losses = tables[..., run], losses[..., run]  # [evaluations, owners, ...]
    counts = np.concatenate([federation.split(s).counts[slice(None) if panel is None else panel] for s in SPLITS])
    means = np.divide(losses[:, :-1], counts, out=np.full(losses[:, :-1].shape, np.nan), where=counts > 0)
    each = (len(rounds), len(SPLITS), len(counts) // len(SPLITS))
    return {
        "rounds": rounds,
        "tables": tables[:, :-1].reshape(*each, *tables.shape[2:]),
        "losses": means.reshape(each).astype(np.float32),
        "central": tables[:, -1],
        "choice": choices[..., run] if choices.shape[1] else NO_CHOICE,
        "panel": panel,
    }


class Teller:
    """Tells an observer of every evaluation once. `place` is where each of the caller's algorithms is among the runs."""

    def __init__(self, observe: Observe | None, federation: Federation, panel: np.ndarray | None, place: Sequence[int]) -> None:
        self._observe, self._federation, self._panel, self._place, self._pieces = observe, federation, panel, place, 0

    def new(self, pieces: Sequence[list[np.ndarray]]) -> None:
        """Pass on what was added to these lists of rounds, tables, losses and choices."""
        if self._observe is None or len(pieces[0]) == self._pieces:
            return
        seen = [np.concatenate(piece[self._pieces :]) for piece in pieces]
        self._pieces = len(pieces[0])
        self._observe([self._partial(seen, run) for run in self._place])

    def _partial(self, seen: Sequence[np.ndarray], run: int) -> Trace:
        return Trace(
            **evaluated(self._federation, self._panel, seen, run),
            cohort=NOBODY,
            weights=NOBODY.astype(np.float32),
            excluded=np.zeros(self._federation.clients, np.int32),
            upload=0.0,
            download=0.0,
            model=None,
        )


# What a client sends and receives in a round, in bytes, from the sizes of a model's layers and the kind of method.
#
# A model of floats takes 4 bytes a parameter; a mask one bit an edge; a ranking, for every edge of a layer of n, the ceil(log2 n) bits
# that tell its place (E2FL's published figures come out exactly so, in MiB of 2^20 bytes). A seed from which frozen weights are derived
# is sent once and not counted.

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
    """For each edge its place within its layer: ceil(log2 n) bits each.

    >>> ranking_bytes([288, 18432, 1605632, 1280]) * 8
    34011424.0
    """
    return sum(n * (n - 1).bit_length() for n in sizes) / 8


def round_cost(kind: str, sizes: Sequence[int], *, models: int = 1, scalars: int = 0) -> Cost:
    """The cost of a round of a method of this kind; `scalars` are numbers that a client sends besides.

    - "model": a model each way (FedAvg, q-FedAvg, AFL, ...).
    - "clusters": `models` models down, one up (IFCA).
    - "independent": `models` models each way (device-specific q: one for each q).
    - "ranking": a ranking each way (FRL; E2FL where groups are known or clustered by the server).
    - "ranking and masks": a ranking each way and `models` masks down (E2FL where clients infer their group).
    - "none": nothing (local training).
    """
    if any(n < 1 for n in sizes) or models < 1 or scalars < 0:
        raise ValueError(f"Layers and models must be at least 1 and scalars at least 0, got {list(sizes)}, {models} and {scalars}.")
    whole, ranking, mask = float_bytes(sizes), ranking_bytes(sizes), mask_bytes(sizes)
    kinds = {
        "model": Cost(whole, whole),
        "clusters": Cost(whole, models * whole),
        "independent": Cost(models * whole, models * whole),
        "ranking": Cost(ranking, ranking),
        "ranking and masks": Cost(ranking, ranking + models * mask),
        "none": Cost(0.0, 0.0),
    }
    if kind not in kinds:
        raise unknown("kind of communication", kind, kinds)
    return kinds[kind]._replace(up=kinds[kind].up + SCALAR * scalars)


NOT_SENT = {"square_norm", "gram", "chance"}  # read off the updates themselves, or drawn by the server


def cost_of(algorithm: Algorithm, sizes: Sequence[int], shape: Shape) -> Cost:
    """Bytes up and down, from the sizes of the model's layers, how the method talks and what it makes clients reveal."""
    rule = algorithm.rule
    models = rule.groups if isinstance(rule, Several) else 1
    if isinstance(algorithm.work, TrainingAlone):
        kind = "none"
    elif algorithm.network is not None:
        kind = "ranking" if not isinstance(rule, Several) or rule.known_votes or rule.inference in GIVEN else "ranking and masks"
    else:
        kind = "clusters" if isinstance(rule, Several) else "model"
    cells = shape.groups * shape.labels
    many = {"table": cells * shape.labels, "valid_table": cells * shape.labels, "cell_loss": cells}
    scalars = sum(many.get(need, 1) for need in rule.needs - NOT_SENT)
    told = SCALAR * cells if isinstance(rule, RowRule) else 0.0
    cost = round_cost(kind, sizes, models=models, scalars=scalars)
    return cost._replace(down=cost.down + told)


# What finished blocks have left, on the host, and the traces that it becomes.


class Collected(NamedTuple):
    """Pieces, to be laid end to end."""

    cohort: list[np.ndarray]
    chosen: list[np.ndarray]  # [rounds, K, selects]; no selects where there is one sampling only
    weights: list[np.ndarray]
    rounds: list[np.ndarray]
    tables: list[np.ndarray]
    losses: list[np.ndarray]
    choice: list[np.ndarray]  # [evaluations, clients, runs]; no clients where there is one model for all

    @property
    def evaluations(self) -> tuple[list[np.ndarray], ...]:
        return self.rounds, self.tables, self.losses, self.choice

    def whole(self) -> tuple[np.ndarray, ...]:
        return tuple(np.concatenate(pieces) for pieces in self)

    def add_rounds(self, block: Block, record: RoundRecord, rounds: int) -> None:
        """Bring what a block left of its rounds to the host; this waits for the device."""
        # Copies: a short block's few rounds would otherwise keep the whole of its padded arrays in memory.
        self.cohort.append(block.cohort[:rounds].copy())
        self.chosen.append(np.zeros((rounds, 0, 0), bool) if block.chosen is None else block.chosen[:rounds].copy())
        self.weights.append(np.asarray(record.weights)[:rounds].copy())

    def add_evaluations(self, block: Block, record: RoundRecord, start: int, owners: np.ndarray | slice, panel: np.ndarray | slice) -> None:
        """And of the evaluations that were made in it: of these owners of rows, and these clients."""
        marked = np.flatnonzero(block.evaluate)
        if len(marked):
            none = np.zeros((len(marked), 0, record.losses.shape[-1]), np.int32)
            choice = none if record.choice is None else np.asarray(record.choice)[marked][:, panel]
            tables, losses = np.asarray(record.tables)[marked][:, owners], np.asarray(record.losses)[marked][:, owners]
            self.add_evaluation(start + block.stops[marked], tables, losses, choice)

    def add_evaluation(self, rounds: np.ndarray, tables: np.ndarray, losses: np.ndarray, choice: np.ndarray) -> None:
        self.rounds.append(rounds)
        self.tables.append(tables)
        self.losses.append(losses)
        self.choice.append(choice)


def owners_of(panel: np.ndarray, clients: int) -> np.ndarray:
    """The numbers of a panel's training, validation and test rows among all owners, and of the central test set."""
    return np.concatenate([*(split * clients + panel for split in range(len(SPLITS))), [len(SPLITS) * clients]])


def traces(
    whole: tuple[np.ndarray, ...], state: State, federation: Federation, panel: np.ndarray | None, company: Company, shape: Shape,
    sizes: Sequence[int],
) -> list[Trace]:  # fmt: skip
    """Everything that was collected, run by run, in the order in which the runs were given. `sizes` are the model's layers'."""
    cohort, chosen, weights, *seen = whole
    # Once: a device answers about one run as slowly as about all.
    cohort_of = None if company.parts.cohort is None else np.asarray(company.parts.cohort)
    made = []
    for run, algorithm in enumerate(company.algorithms):
        own, counted = cohort, weights[..., run]
        if cohort_of is not None:  # of everybody who trained, those whom this run's sampling chose
            mine = chosen[..., cohort_of[run]]
            slots = np.argsort(~mine, axis=1, kind="stable")[:, : int(mine[0].sum())]
            own, counted = np.take_along_axis(cohort, slots, 1), np.take_along_axis(counted, slots, 1)
        cost = cost_of(algorithm, sizes, shape)
        fields: dict[str, Any] = evaluated(federation, panel, seen, run)
        made.append(
            Trace(
                **fields,
                cohort=own,
                weights=counted,
                excluded=np.asarray(state.excluded)[:, run],
                upload=cost.up,
                download=cost.down,
                model=jax.tree.map(np.array, trees.take(state.model, run, shape.axis)),  # its own, not a view of all
                reports=_reports(company, state, run),
            )
        )
    return [made[at] for at in company.place]


def _reports(company: Company, state: State, run: int) -> dict[str, float]:
    rule = company.algorithms[run].rule
    if not isinstance(rule, ReportingRule):
        return {}
    band = int(np.searchsorted(company.bands, run, side="right")) - 1
    own = trees.take(state.rule[band], run - company.bands[band])
    return {name: float(value) for name, value in rule.report(own).items()}


# Clients that hold rows of several groups of people: each of its groups votes as a client of its own (E2FL on Adult).


def by_group(federation: Federation, algorithms: Sequence[Algorithm]) -> tuple[Federation, np.ndarray]:
    """One client for each client and group of people among its training rows; and whose each is.

    Validation and test rows of people of whom a client has no training rows stay with its first group.
    """
    for algorithm in algorithms:
        if not isinstance(algorithm.select, Full):
            raise ValueError(f"{algorithm.label}: with people = true every client takes part in every round; add +full.")
    if len(federation.groups) < 2:
        raise ValueError(f"{algorithms[0].label}: the data have no groups of people. Name a sensitive column, or leave people out.")
    present = federation.census().cells.sum(2) > 0  # [clients, groups]
    owner, group = np.nonzero(present)
    parts = {}
    for split in SPLITS:
        rows, offsets = federation.split(split)
        of_client = np.repeat(np.arange(federation.clients), np.diff(offsets))
        of_group = federation.group[rows]
        of_group = np.where(present[of_client, of_group], of_group, present.argmax(1)[of_client])
        parts[split] = Ragged.from_lists([rows[(of_client == k) & (of_group == g)] for k, g in zip(owner, group, strict=True)])
    names = tuple(f"{federation.names[k]}, {federation.groups[g]}" for k, g in zip(owner, group, strict=True))
    return replace(federation, **parts, names=names, client_group=group.astype(np.int32)), owner


def joined(trace: Trace, federation: Federation, owner: np.ndarray) -> Trace:
    """The trace with each client's groups put together again; everybody is served the model of all."""
    clients = int(owner.max()) + 1
    first = np.searchsorted(owner, np.arange(clients))
    counts = examples(trace.tables)
    total = np.add.reduceat(counts, first, axis=2)
    losses = np.add.reduceat(np.where(counts > 0, np.nan_to_num(trace.losses) * counts, 0.0), first, axis=2)
    each = len(owner) / clients  # orders that a client sends, on average
    return trace._replace(
        tables=np.add.reduceat(trace.tables, first, axis=2),
        losses=np.divide(losses, total, out=np.full(losses.shape, np.nan), where=total > 0).astype(np.float32),
        cohort=owner[trace.cohort].astype(np.int32),
        excluded=np.add.reduceat(trace.excluded, first),
        upload=trace.upload * each,
        model=jax.tree.map(lambda leaf: leaf[0], trace.model),
        choice=NO_CHOICE,
    )

"""The whole system in one page: what a round is made of.

One round, for every method:

    select   who takes part                          cohort = select(...)
    measure  clients look at the model they received  signals
    weigh    scalars decide the weights               coefficients, state = rule.weigh(state, signals)
    train    clients train; vectors are only summed   total = coefficients @ vectors
    step     how far the server moves                 change, state = rule.step(state, signals, effort, total)

A vector is *trained minus received*. Signals are known before training, effort only after it. Everything below is
written for one run; the simulator carries many runs at once (see `evenly.simulate`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from evenly.data.federation import Census, Federation, Shard
from evenly.data.sensitive import Attribute
from evenly.data.splits import Ragged
from evenly.records import record, static

__all__ = [
    "Algorithm", "Attribute", "Census", "Effort", "Federation", "Network", "Prepare", "Ragged", "ReportingRule", "RowRule", "Rule",
    "Seeds", "Select", "Server", "Several", "Shard", "Signals", "Task", "Trace", "Tree", "Work",
]  # fmt: skip

Tree = Any  # a pytree of arrays: a model, an update, a rule's state
Key = jax.Array
Array = jax.Array


class Task(Protocol):
    """A model and its loss.

    `joint` says that `losses` and `predict` also accept parameters with one extra trailing axis, the runs, and then
    return [n, runs]: linear models do, so that a whole sweep is one matrix product. Others are vmapped.
    """

    @property
    def joint(self) -> bool: ...
    @property
    def reduction(self) -> str: ...  # "mean" or "sum": how a batch's losses become one number
    def init(self, key: Key) -> Tree: ...
    def losses(self, params: Tree, shard: Shard) -> Array: ...  # [n]
    def penalty(self, params: Tree) -> Array | float: ...  # added to the reduced loss
    def predict(self, params: Tree, x: Array) -> Array: ...  # [n], class numbers


class Signals(NamedTuple):
    """What clients say before training, stacked [K]. Entries that the rule does not need are None."""

    client: Any  # which client sits in each slot
    returned: Any  # whether its update counts
    examples: Any  # training rows
    loss: Any = None  # of the model received, on training rows
    table: Any = None  # [K, groups, labels, outcomes] counts of the model received, on training rows
    cell_loss: Any = None  # [K, groups, labels] summed losses of the model received, on training rows
    valid_table: Any = None  # [K, groups, labels, outcomes] counts of the model received, on validation rows
    unprivileged: Any = None  # training rows of people in unprivileged groups
    choice: Any = None  # cluster or group chosen
    gram: Any = None  # [K, K] inner products of the vectors: only rules that need the vectors themselves, after training
    chance: Any = None  # [2] uniform numbers of this round, for rules that draw


class Effort(NamedTuple):
    """What is known only after training, stacked [K]."""

    square_norm: Any = None  # of each vector


@runtime_checkable
class Work(Protocol):
    """What a client minimises and sends. Written so that hyper-parameters may carry a trailing run axis.

    `start`, then `step` for every batch, then `finish` make up training; `epochs`, `batch_size` and `shuffle` say which
    batches there are. `memory` is what a client keeps between the rounds it takes part in (None: nothing).
    """

    @property
    def epochs(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def shuffle(self) -> bool: ...
    @property
    def max_steps(self) -> int: ...  # local steps in a round at most; 0: no limit
    def remember(self, model: Tree) -> Tree: ...  # the memory of a client that was never chosen
    def start(self, task: Task, received: Tree, memory: Tree) -> Tree: ...
    def step(self, task: Task, received: Tree, local: Tree, batch: Shard) -> Tree: ...
    def finish(self, task: Task, received: Tree, local: Tree) -> tuple[Tree, Tree]: ...  # vector, memory
    def deploy(self, model: Tree, memory: Tree) -> Tree: ...  # what a client uses, from the shared model and its memory


@runtime_checkable
class Rule(Protocol):
    """How much each client counts, and how far the server moves.

    `needs` names what clients must reveal besides their update: fields of `Signals` and `Effort`.
    Coefficients are 0 where a client did not return, and sum to 1 unless the rule documents otherwise.
    """

    @property
    def needs(self) -> frozenset[str]: ...
    @property
    def counts_sizes(self) -> bool: ...  # whether larger clients get larger coefficients
    def init(self, census: Census) -> Tree: ...
    def weigh(self, state: Tree, signals: Signals) -> tuple[Array, Tree]: ...
    def step(self, state: Tree, signals: Signals, effort: Effort, total: Tree) -> tuple[Tree, Tree]: ...


@runtime_checkable
class RowRule(Rule, Protocol):
    """A rule that also tells clients how much each kind of row counts in their loss, as known after the last round."""

    def row_weights(self, state: Tree) -> Array: ...  # [groups, labels]


@runtime_checkable
class ReportingRule(Rule, Protocol):
    """A rule that counted something that the reader of a run's results should know."""

    def report(self, state: Tree) -> dict[str, Array]: ...  # scalars of the whole run, from the last state


@runtime_checkable
class Several(Rule, Protocol):
    """A rule that keeps several models, of which every client is served one.

    Its coefficients are [models, K], and `step` is given a total with one entry for each model in front. The client's choice
    among the models is `Signals.choice`: "known" takes it from the federation, "rank-clustering" finds it once before training,
    the others ("lowest-loss", "one-shot", "binary") are measured by clients, before training, on the models they received.
    """

    @property
    def groups(self) -> int: ...  # how many models; 0: as many as the federation has groups of clients
    @property
    def inference(self) -> str: ...  # how clients come to their model
    @property
    def known_votes(self) -> bool: ...  # whether the federation's groups count while training, and clients choose what they are served
    @property
    def apart(self) -> bool: ...  # whether clients train the model they chose; else all of them train one shared model
    @property
    def final_pass(self) -> bool: ...  # whether everybody takes part in one more round at the end


@runtime_checkable
class Network(Protocol):
    """What a method makes of the task before anything is trained, such as a network whose weights are drawn and stay."""

    def of(self, task: Task, seed: int) -> Task: ...


@runtime_checkable
class Prepare(Protocol):
    """What a client does once with its training rows, before the first round: how much each counts in its loss."""

    def weights(self, y: np.ndarray, group: np.ndarray) -> np.ndarray: ...  # one client's rows, [n] -> [n]


@runtime_checkable
class Select(Protocol):
    """Who takes part. Runs on the host; `generator` is keyed by the round, so no draw depends on earlier ones.

    `needs` names what the server must know of clients to choose them: fields of `Signals`.
    """

    @property
    def needs(self) -> frozenset[str]: ...
    @property
    def by_size(self) -> bool: ...  # whether larger clients are drawn more often
    def slots(self, census: Census) -> int: ...
    def init(self, census: Census) -> Any: ...
    def __call__(self, state: Any, generator: np.random.Generator) -> tuple[np.ndarray, Any]: ...


@runtime_checkable
class Server(Protocol):
    """How the change decided by the rule moves the model (an optax optimiser; without one it is added)."""

    def init(self, model: Tree) -> Tree: ...
    def update(self, change: Tree, state: Tree, model: Tree) -> tuple[Tree, Tree]: ...
    def serve(self, model: Tree, state: Tree) -> Tree: ...  # the model that clients are given to use


@record
class Algorithm:
    """A federated method: parts that compose. Leaves of the parts are hyper-parameters and may be swept."""

    work: Work
    rule: Rule
    select: Select = static()
    server: Server | None = None
    prepare: Prepare | None = static(default=None)
    network: Network | None = static(default=None)
    label: str = static(default="")

    def task(self, task: Task, seeds: "Seeds") -> Task:
        """The task that is trained."""
        return task if self.network is None else self.network.of(task, seeds.model)

    def __post_init__(self) -> None:
        # JAX rebuilds records with placeholders inside; those carry no rule to check.
        if isinstance(self.rule, Rule) and isinstance(self.select, Select) and self.rule.counts_sizes and self.select.by_size:
            raise ValueError(
                f"{self.label or type(self.rule).__name__}: sizes would count twice, once because larger clients are sampled more "
                "often and once because their updates weigh more. Use equal weights with sampling by size, or sample uniformly."
            )

    @property
    def needs(self) -> frozenset[str]:
        """What clients reveal besides their update, to be weighed and to be chosen."""
        return self.rule.needs | self.select.needs


@record
class Seeds:
    """Four independent seeds: the data split, the first model, who takes part, and the order of batches."""

    data: int = static(default=0)
    model: int = static(default=0)
    cohort: int = static(default=0)
    batches: int = static(default=0)

    @staticmethod
    def all(seed: int) -> "Seeds":
        return Seeds(data=seed, model=seed, cohort=seed, batches=seed)


NO_CHOICE = np.zeros((0, 0), np.int32)


class Trace(NamedTuple):
    """What a run leaves behind: counts, not metrics. Every metric is a function of it."""

    rounds: np.ndarray  # [evaluations] number of rounds done at each evaluation
    tables: np.ndarray  # int32 [evaluations, splits, clients, groups, labels, outcomes]
    losses: np.ndarray  # float32 [evaluations, splits, clients] mean loss; NaN without rows
    central: np.ndarray  # int32 [evaluations, groups, labels, outcomes] on the central test set
    cohort: np.ndarray  # int32 [rounds, K]
    weights: np.ndarray  # float32 [rounds, K] final coefficients; 0 where an update did not count
    excluded: np.ndarray  # int32 [clients] how often a client's update or loss was not finite
    upload: float  # bytes each client sends in a round
    download: float  # bytes each client receives in a round
    model: Tree  # the final model; several of them, stacked in front, where clients are served different ones
    reports: Mapping[str, float] = {}  # what the rule counted over the run, if anything
    choice: np.ndarray = NO_CHOICE  # int32 [evaluations, clients] which of several models each client is served; else empty
    panel: np.ndarray | None = None  # int32 the clients in tables, losses and choice, where not all were evaluated; None: all

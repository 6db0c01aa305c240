"""The parts of a federated method and the data that pass between them: the system on one page.

Every method performs a round in five steps:

    select    choose the clients that take part
              cohort = select(...)
    measure   each client evaluates the model it received
              own
    weigh     a client's own numbers and sums over all clients decide its weight
              weight = rule.weigh(public, own, sums)
    train     clients train; their vectors are only summed
              total = sum of weight * vector
    step      the server computes the change of the model from the sums
              change, public = rule.step(public, sums, totals)

A *vector* is the trained model minus the received model. A rule is written for one client: it
never sees two clients at once, so that everything a server must learn is a sum. `evenly.round`
derives the round of a whole cohort from it. An `Algorithm` combines the parts. The protocols
describe one run; the simulator vectorises them over many runs (see `evenly.simulate`).

Shapes are written in brackets: K is the number of slots in a cohort, n the number of rows.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from evenly.client_limits import Bounds, Limits
from evenly.data.federation import Census, Federation, Shard
from evenly.data.sensitive import Attribute
from evenly.data.splits import Ragged
from evenly.randomness import Seeds
from evenly.records import leaf, record, static

__all__ = [
    "Algorithm", "Attribute", "Bounds", "Census", "Federation", "Limits", "Network", "Own",
    "Prepare", "Ragged", "ReportingRule", "RowRule", "Rule", "Seeds", "Select", "Server", "Shard",
    "Signals", "Task", "Totals", "Trace", "Tree", "Weighed", "Work", "leaf", "record", "static",
]  # fmt: skip

Tree = Any
"""A pytree of arrays: a model, an update, or the state of a rule.

Example:
    >>> model: Tree = {"w": np.zeros((2, 3)), "b": np.zeros(3)}
    >>> jax.tree.map(np.shape, model, is_leaf=lambda leaf: isinstance(leaf, np.ndarray))
    {'b': (3,), 'w': (2, 3)}
"""
Key = jax.Array
Array = jax.Array


class Task(Protocol):
    """A model and its loss.

    Implementations are records (see `evenly.records`), so that they can be passed to compiled
    functions. `evenly.models` has linear models and networks; `evenly.models.Custom` and
    `from_equinox` wrap any other JAX model.

    Example:
        >>> from evenly.models import Softmax
        >>> task = Softmax(features=2, classes=3)
        >>> model = task.init(jax.random.key(0))
        >>> task.predict(model, np.zeros((4, 2))).shape
        (4,)
    """

    @property
    def joint(self) -> bool:
        """Whether `losses` and `predict` also accept parameters with a trailing axis of runs and
        then return [n, runs].

        Linear models do, so that a sweep is one matrix product. Other models are vmapped.
        """
        ...

    @property
    def reduction(self) -> str:
        """How the losses of a batch become one number: "mean" or "sum"."""
        ...

    def init(self, key: Key) -> Tree:
        """Initial parameters: a pytree of float arrays."""
        ...

    def losses(self, params: Tree, shard: Shard) -> Array:
        """Loss of each row. [n]"""
        ...

    def penalty(self, params: Tree) -> Array | float:
        """Regularisation term, added to the reduced loss."""
        ...

    def predict(self, params: Tree, x: Array) -> Array:
        """Predicted class number of each row. [n]"""
        ...


class Own(NamedTuple):
    """The numbers that one client knows about itself in a round.

    Fields that are not in the `needs` of the rule are None.

    Example:
        >>> own = Own(examples=40, loss=0.7)
        >>> own.loss, own.table
        (0.7, None)
    """

    examples: Any = None  # number of training rows
    loss: Any = None  # mean loss of the received model on the training rows
    # [groups, labels, outcomes] predictions of the received model on the training rows, counted
    table: Any = None
    # [groups, labels] losses of the received model on the training rows, summed
    cell_loss: Any = None
    valid_table: Any = None  # [groups, labels, outcomes] like `table`, on the validation rows
    unprivileged: Any = None  # number of training rows of people in unprivileged groups
    choice: Any = None  # which of several models the client uses
    square_norm: Any = None  # squared Euclidean norm of the vector; 0 before training
    memory: Any = ()  # what the rule let the client keep from its last round


class Signals(NamedTuple):
    """The numbers of all clients of a round, stacked over the slots [K].

    All fields between `returned` and `gram` are those of `Own`.

    Example:
        >>> client, returned = np.array([3, 7]), np.array([True, False])
        >>> signals = Signals(client, returned, examples=np.array([40, 60]))
        >>> signals.own.examples.tolist()
        [40, 60]
    """

    client: Any  # number of the client in each slot
    returned: Any  # bool: whether the client takes part in the sums
    examples: Any
    loss: Any = None
    table: Any = None
    cell_loss: Any = None
    valid_table: Any = None
    unprivileged: Any = None
    choice: Any = None
    square_norm: Any = None
    memory: Any = ()
    # [K, K] inner products of the vectors; for rules that need the vectors themselves, after
    # training
    gram: Any = None
    chance: Any = None  # [2] uniform random numbers of this round

    @property
    def own(self) -> Own:
        """The numbers of each client, without those that only the server has."""
        return Own(*(getattr(self, name) for name in Own._fields))


class Weighed(NamedTuple):
    """How much one client counts in the sums of a round.

    The client's vector is summed with the factor weight * exp(exponent). The round may add the
    same number to the exponents of all clients, which changes no mean, so that nothing overflows.

    Example:
        A weight of loss ** 2, for any loss without overflow:

        >>> weighed = Weighed(1.0, exponent=2 * np.log(3.0))
        >>> round(float(weighed.weight * np.exp(weighed.exponent)), 6)
        9.0
    """

    weight: Any  # of the client's vector; with several models, one weight for each [models]
    exponent: Any = None
    averages: Any = ()  # numbers that are summed with the same factor as the vector
    extras: Any = ()  # numbers that are summed as they are
    memory: Any = ()  # what the client keeps until its next round


class Totals(NamedTuple):
    """The sums of a round over the clients whose update counts.

    Example:
        >>> totals = Totals(mean={"w": np.array([0.5, -0.5])}, weight=100.0)
        >>> totals.mean["w"].tolist(), totals.weight
        ([0.5, -0.5], 100.0)
    """

    mean: Any  # sum of factor times vector, divided by the rule's `norm`
    weight: Any  # sum of the factors; with several models [models]
    averages: Any = ()  # sums of factor times `Weighed.averages`, divided by `weight`
    extras: Any = ()  # sums of `Weighed.extras`


@runtime_checkable
class Work(Protocol):
    """The local training of a client: what it minimises and which vector it sends.

    `start`, one `step` for each batch, and `finish` make up the training of one round. `epochs`,
    `batch_size`, `shuffle` and `max_steps` determine the batches. A client may keep a *memory*,
    such as a personal model, between the rounds it takes part in. Hyper-parameters may carry a
    trailing axis of runs.

    Example:
        >>> import evenly
        >>> work = evenly.algorithm("fedprox(epochs=2, batch_size=5)").work
        >>> isinstance(work, Work), work.epochs, work.batch_size
        (True, 2, 5)
    """

    @property
    def epochs(self) -> int:
        """Passes over the training rows in a round."""
        ...

    @property
    def batch_size(self) -> int:
        """Rows in a batch; the last batch of an epoch may be smaller."""
        ...

    @property
    def shuffle(self) -> bool:
        """Whether rows are visited in random order."""
        ...

    @property
    def max_steps(self) -> int:
        """Largest number of local steps in a round; 0 means no limit."""
        ...

    def remember(self, model: Tree) -> Tree:
        """Memory of a client that has not taken part yet, from the initial model; None without
        memory.
        """
        ...

    def start(self, task: Task, received: Tree, memory: Tree) -> Tree:
        """Local state before the first batch."""
        ...

    def step(
        self, task: Task, received: Tree, local: Tree, batch: Shard, key: Key | None = None
    ) -> Tree:
        """Local state after one more batch. The key is None where the task takes no random
        numbers.
        """
        ...

    def finish(self, task: Task, received: Tree, local: Tree) -> tuple[Tree, Tree]:
        """The vector that is sent, and the new memory."""
        ...

    def deploy(self, model: Tree, memory: Tree) -> Tree:
        """The model that a client uses for predictions, from the shared model and its memory."""
        ...


@runtime_checkable
class Rule(Protocol):
    """The weights of a method and the change of its model, written for one client.

    A rule is a record. Only `weigh` must be implemented by a class that derives from `Rule`; all
    other members have defaults. `public` holds the numbers that the server keeps and everybody may
    know: they follow from the sums of earlier rounds alone. What differs between clients is the
    client's memory.

    Example:
        Clients with a larger loss count more:

        >>> from evenly.records import record
        >>> from evenly.types import Own, Rule, Weighed
        >>> @record
        ... class ByLoss(Rule):
        ...     @property
        ...     def needs(self):
        ...         return frozenset({"loss"})
        ...
        ...     def weigh(self, public, own, sums):
        ...         return Weighed(own.loss)
        >>> ByLoss().weigh((), Own(loss=0.5), ()).weight
        0.5
    """

    @property
    def needs(self) -> frozenset[str]:
        """Fields of `Own` and `Signals` that the rule reads, so that clients must report them.

        By default the number of training rows if sizes count, else nothing.
        """
        return frozenset({"examples"} if self.counts_sizes else ())

    @property
    def counts_sizes(self) -> bool:
        """Whether larger clients get larger weights. By default, whether the rule has a field
        `weights` that is "size".
        """
        return getattr(self, "weights", "") == "size"

    def size(self, own: Own) -> Array | float:
        """The client's number of training rows if sizes count, else 1."""
        return own.examples if self.counts_sizes else 1.0

    @property
    def stages(self) -> int:
        """Number of sums over the cohort that `weigh` needs. By default none."""
        return 0

    @property
    def whole_cohort(self) -> str:
        """Why the rule must see all clients of a round at once, if it must; else empty.

        Such a rule implements `weigh_cohort` in place of `weigh`. It works only where the server
        sees the numbers of every client.
        """
        return ""

    def begin(self, census: Census) -> Tree:
        """Public numbers before the first round, from sums over the census. By default none."""
        return ()

    def after_begin(self) -> "Rule":
        """The same rule without the settings that only `begin` reads: rules that are alike then
        share a compiled program. By default the rule itself.
        """
        return self

    def remember(self, public: Tree, own: Own) -> Tree:
        """Memory of a client that takes part for the first time. By default none."""
        return ()

    def contribute(self, public: Tree, own: Own, sums: tuple[Tree, ...]) -> Tree:
        """This client's part of the next sum, where `sums` are those of the earlier stages."""
        raise TypeError(f"{type(self).__name__} has stages, but does not implement contribute.")

    def weigh(self, public: Tree, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        """How much this client counts, where `sums` are those of all stages.

        The weight must not depend on `own.square_norm`, which is known only after training.
        """
        raise TypeError(f"{type(self).__name__} does not implement weigh.")

    def weigh_cohort(self, public: Tree, signals: Signals) -> Weighed:
        """The same for all clients of the cohort at once, for rules with `whole_cohort`. [K]"""
        raise TypeError(f"{type(self).__name__} weighs clients one by one.")

    def norm(self, public: Tree, totals: Totals) -> Array:
        """The number by which the sum of vectors is divided: by default the sum of the weights.

        Called with totals whose `mean` is not computed yet.
        """
        return totals.weight

    def step(self, public: Tree, sums: tuple[Tree, ...], totals: Totals) -> tuple[Tree, Tree]:
        """Change of the model, and the next public numbers. By default the mean of the vectors."""
        return totals.mean, public

    def bounds(self, public: Tree, limits: Limits) -> Bounds:
        """How much one client can add to the sums, for differential privacy.

        The gate enforces the bounds, so that wrong ones cost accuracy and not privacy. What `begin`
        returns is not bounded and counts as public. By default clients add nothing but their vector
        and weight.
        """
        return Bounds(typical=limits.rows / limits.weight if self.counts_sizes else 1.0)

    # Rules with several models, of which each client uses one. The weight of a client is then
    # [models], and so is the leading axis of `Totals.mean`. `Own.choice` is the client's model.

    # Number of models if clients are grouped; 0: as many as the federation has groups of clients.
    # None: there is one model for all.
    groups: Any = None
    # How the choice of each client is determined. "known" takes it from the federation.
    # "rank-clustering" computes it once before training. With "lowest-loss", "one-shot" and
    # "binary" clients compute it in every round from the models they received.
    inference: str = ""
    # Whether training uses the federation's groups, so that clients infer only the model that
    # serves them.
    known_votes: bool = False
    # Whether each client trains the model it chose; otherwise all clients train one shared model.
    apart: bool = False
    # Whether all clients take part in one additional round at the end.
    final_pass: bool = False
    # Whether each group of people among a client's rows takes part as a client of its own.
    people: bool = False


@runtime_checkable
class RowRule(Rule, Protocol):
    """A rule that also weights rows in the clients' loss, by group and label, with weights that
    follow from the last round.

    Example:
        >>> import evenly
        >>> rules = [evenly.algorithm(name).rule for name in ("fedfb", "fedavg")]
        >>> [isinstance(rule, RowRule) for rule in rules]
        [True, False]
    """

    def row_weights(self, public: Tree) -> Array:
        """Weight of the rows of each group and label. [groups, labels]"""
        ...


@runtime_checkable
class ReportingRule(Rule, Protocol):
    """A rule that counts events which readers of the results should see.

    Example:
        >>> import evenly
        >>> rules = [evenly.algorithm(name).rule for name in ("fairfed", "fedavg")]
        >>> [isinstance(rule, ReportingRule) for rule in rules]
        [True, False]
    """

    def report(self, public: Tree) -> dict[str, Array]:
        """Scalars by name, from the public numbers after the last round."""
        ...


@runtime_checkable
class Network(Protocol):
    """A transformation of the task before training, such as freezing random weights and learning
    which of them to keep.

    Example:
        >>> import evenly
        >>> from evenly.models import MLP
        >>> network = evenly.algorithm("frl").network
        >>> task = MLP(features=4, classes=2, hidden=(8,), bias=False)
        >>> type(network.of(task, seed=0)).__name__
        'Supernetwork'
    """

    def of(self, task: Task, seed: int) -> Task:
        """The task that is trained instead of `task`; `seed` is the seed of the initial model."""
        ...


@runtime_checkable
class Prepare(Protocol):
    """Weights of a client's training rows, computed once before the first round.

    Example:
        >>> import evenly
        >>> prepare = evenly.algorithm("fedavg+reweigh").prepare
        >>> prepare.weights(y=np.array([1, 1, 1, 0]), group=np.array([0, 0, 1, 1])).tolist()
        [0.75, 0.75, 1.5, 0.5]
    """

    def weights(self, y: np.ndarray, group: np.ndarray) -> np.ndarray:
        """Weight of each row, from the labels and groups of one client's rows. [n]"""
        ...


@runtime_checkable
class Select(Protocol):
    """The sampling of clients. It runs on the host and is called once for each round.

    Example:
        >>> import evenly
        >>> census = evenly.synthetic(clients=20).census()
        >>> select = evenly.algorithm("fedavg+uniform(clients=4)").select
        >>> cohort, _ = select(select.init(census), np.random.default_rng(0))
        >>> select.slots(census), len(set(cohort.tolist()))
        (4, 4)
    """

    @property
    def needs(self) -> frozenset[str]:
        """Fields of `Signals` that the server must know of all clients before the first round."""
        ...

    @property
    def by_size(self) -> bool:
        """Whether larger clients are sampled more often."""
        ...

    def slots(self, census: Census) -> int:
        """Number of clients in a round; the largest where it varies."""
        ...

    def init(self, census: Census) -> Any:
        """State of the sampling before the first round."""
        ...

    def __call__(self, state: Any, generator: np.random.Generator) -> tuple[np.ndarray, Any]:
        """Numbers of the clients of a round, and the next state: as many as there are slots, or
        fewer where the number varies.

        The generator is seeded with the round, so no draw depends on earlier draws.
        """
        ...


@runtime_checkable
class Server(Protocol):
    """How the server applies the change that the rule computed. Without a server, the change is
    added to the model.

    A class that derives from `Server` must implement only `update`.

    Example:
        A server that goes half as far as the rule says:

        >>> from evenly.types import Server
        >>> @record
        ... class Careful(Server):
        ...     def update(self, change, state, model):
        ...         return jax.tree.map(lambda w, step: w + step / 2, model, change), state
        >>> Careful().update(change={"w": 2.0}, state=(), model={"w": 1.0})
        ({'w': 2.0}, ())
    """

    def init(self, model: Tree) -> Tree:
        """State of the server before the first round. By default empty."""
        return ()

    def update(self, change: Tree, state: Tree, model: Tree) -> tuple[Tree, Tree]:
        """The new model and the next state."""
        ...

    def serve(self, model: Tree, state: Tree) -> Tree:
        """The model that clients use for predictions. By default the trained model."""
        return model


@record
class Algorithm:
    """A federated method, assembled from parts. `evenly.algorithm` builds one from its notation.

    Numbers in the parts that are not static are hyper-parameters: they can be swept without
    compiling again.

    Args:
        work: Local training of the clients.
        rule: Coefficients of the clients and change of the model.
        select: Sampling of clients.
        server: How the server applies the change; None adds it to the model.
        prepare: Weights of training rows, computed before the first round; None gives all rows the
            weight 1.
        network: Transformation of the task before training; None leaves it as it is.
        privacy: Differential privacy (`evenly.privacy.Privacy`); None promises nothing.
        label: Name in results; the notation where the algorithm was built from one.

    Raises:
        ValueError: If both the sampling and the rule count sizes.

    Example:
        >>> import evenly
        >>> built = evenly.algorithm("q-fedavg(q=2)+uniform(clients=5)")
        >>> built.rule.q, built.select.clients, sorted(built.needs)
        (2, 5, ['loss', 'square_norm'])
    """

    work: Work
    rule: Rule
    select: Select = static()
    server: Server | None = None
    prepare: Prepare | None = static(default=None)
    network: Network | None = static(default=None)
    privacy: Any = static(default=None)
    label: str = static(default="")

    def task(self, task: Task, seeds: "Seeds") -> Task:
        """The task that is trained: `task`, or what `network` makes of it."""
        return task if self.network is None else self.network.of(task, seeds.model)

    def __post_init__(self) -> None:
        # JAX rebuilds records with placeholders inside; those have nothing to check.
        if getattr(self.select, "by_size", False) and getattr(self.rule, "counts_sizes", False):
            raise ValueError(
                f"{self.label or type(self.rule).__name__}: client sizes would count twice, because"
                " larger clients are sampled more often and their updates also get larger"
                " coefficients. Use weights=equal with sampling by size, or sample uniformly."
            )

    @property
    def needs(self) -> frozenset[str]:
        """Fields of `Own` and `Signals` that clients reveal besides their update, for the rule
        and for the sampling.
        """
        return self.rule.needs | self.select.needs


NO_CHOICE = np.zeros((0, 0), np.int32)


class Trace(NamedTuple):
    """The result of a run: counts and losses at each evaluation, the cohorts, and the final model.

    Every metric is a function of these counts. `evenly.final_metrics` computes the metrics of the
    last evaluation. The splits are training, validation and test, in this order.

    Example:
        >>> import evenly
        >>> federation = evenly.synthetic(clients=5)
        >>> task = evenly.models.Softmax(features=60, classes=len(federation.labels))
        >>> (trace,) = evenly.train(task, federation, "fedavg", rounds=2)
        >>> trace.rounds.tolist(), trace.cohort.shape
        ([0, 2], (2, 5))
    """

    rounds: np.ndarray  # [evaluations] number of rounds before each evaluation
    # int32 [evaluations, splits, clients, groups, labels, outcomes] number of rows
    tables: np.ndarray
    losses: np.ndarray  # float32 [evaluations, splits, clients] mean loss; NaN without rows
    # int32 [evaluations, groups, labels, outcomes] number of rows of the central test set
    central: np.ndarray
    cohort: np.ndarray  # int32 [rounds, K] number of the client in each slot
    weights: np.ndarray  # float32 [rounds, K] coefficients; 0 where an update did not count
    # int32 [clients] number of rounds in which a client's update or loss was not finite
    excluded: np.ndarray
    upload: float  # bytes that each client sends in a round
    download: float  # bytes that each client receives in a round
    model: Tree  # final model; with several models, they are stacked on a leading axis
    reports: Mapping[str, float] = {}  # scalars that the rule reported
    # int32 [evaluations, clients] which of several models each client uses; empty with one model
    choice: np.ndarray = NO_CHOICE
    # int32 numbers of the evaluated clients in tables, losses and choice; None means all
    panel: np.ndarray | None = None
    # With differential privacy for clients: float32 [rounds] the longest vector that counted
    clip: np.ndarray | None = None
    # int8 [rounds, K] what was cut to its bound: 1 the vector, 2 the weight, 3 both
    cut: np.ndarray | None = None
    # The fields below are not stored in folders of results.
    method: str = ""  # label of the algorithm
    clients: tuple[str, ...] = ()  # names of the evaluated clients
    groups: tuple[str, ...] = ()  # names of the groups of people
    # bool [rounds, K] whether the client of each slot returned; its update may still have weight 0
    returned: np.ndarray | None = None
    public: Tree = ()  # public numbers of the rule after the last round
    # what each client remembers [clients, ...], if it was asked for: numbers of the rule, such as
    # AFL's weights, and the personal model or other state of its local training
    memory: Tree = ()
    personal: Tree = ()

    def __repr__(self) -> str:
        evaluations, _, clients, groups, *_ = self.tables.shape
        facts = [
            f"{len(self.weights):,} rounds",
            f"{evaluations:,} evaluations of {clients:,} clients",
            *([f"{groups} groups of people"] if groups > 1 else []),
        ]
        return f"Trace of {self.method or 'a run'}: {', '.join(facts)}"

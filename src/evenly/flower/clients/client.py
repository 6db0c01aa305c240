"""A client of a deployment: reads the config of a round and replies with arrays and metrics."""

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from evenly.algorithms import algorithm
from evenly.data.sensitive import MOST_CLASSES
from evenly.data.splits import SPLITS
from evenly.flower import wire
from evenly.flower.clients import guard, memory, private, rows
from evenly.flower.clients.ledger import ToldError
from evenly.flower.clients.rows import (
    ClientData,
    ClientRows,
    Decisions,
    Look,
    Metrics,
    RowOutcomes,
    Source,
    batches_of,
    client_from,
)
from evenly.parts.row_privacy import NoisedReweigh
from evenly.plugins import load_installed
from evenly.records import require
from evenly.simulate.choosing import BEFORE_TRAINING
from evenly.types import Algorithm, Tree

# What a server tells a client in a round, read from the message's config.


class RoundConfig(NamedTuple):
    """Config of a round, as one client receives it."""

    algorithm: Algorithm
    server_round: int
    client: int
    batch_seed: int
    model_seed: int
    group: int | None  # the client's model, where the server knows or drew it
    row_weights: np.ndarray | None  # [groups, labels]
    # a number, or one for each of several models; None: the server weighs what it is sent
    coefficient: np.ndarray | None
    # noised counts by group and label, where rows are private and weighed by them
    counts: np.ndarray | None = None
    # of the model that a client keeps: the deployment, and after which round it is
    deployment: str = ""
    trained: int | None = None

    @property
    def moment(self) -> memory.Moment:
        return memory.Moment(self.deployment, self.server_round, self.trained, self.client)


def read_config(config: Mapping[str, Any]) -> RoundConfig:
    """Parse the config of a message."""
    if wire.METHOD not in config:
        raise ValueError(
            "This client needs the method in the message's config, but there is no"
            f" {wire.METHOD!r}. Use evenly.flower.strategy on the server, or train by hand."
        )
    return RoundConfig(
        algorithm=_algorithm(str(config[wire.METHOD])),
        server_round=int(config.get(wire.ROUND, 0)),
        client=int(config.get(wire.CLIENT, 0)),
        batch_seed=int(config.get(wire.BATCH_SEED, 0)),
        model_seed=int(config.get(wire.MODEL_SEED, 0)),
        group=int(config[wire.GROUP]) if wire.GROUP in config else None,
        row_weights=wire.get(config, wire.ROW_WEIGHTS),
        coefficient=wire.get(config, wire.COEFFICIENT),
        deployment=str(config.get(wire.DEPLOYMENT, "")),
        trained=int(config[wire.TRAINED]) if wire.TRAINED in config else None,
    )


@lru_cache(maxsize=64)
def _algorithm(notation: str) -> Algorithm:
    load_installed()
    return algorithm(notation)


def weighted_rows(now: RoundConfig, client: ClientData) -> ClientRows:
    """Training rows with their weights: those of the data, of local reweighing, and of
    the server.
    """
    rows, prepare = client.train, now.algorithm.prepare
    weight = rows.weight
    if isinstance(prepare, NoisedReweigh):
        assert now.counts is not None
        weight = weight * prepare.from_counts(now.counts)[rows.group, rows.y].astype(np.float32)
    elif prepare is not None:
        weight = weight * prepare.weights(rows.y, rows.group).astype(np.float32)
    if now.row_weights is not None:
        weight = weight * now.row_weights[rows.group, rows.y].astype(np.float32)
    return rows._replace(weight=weight)


# The second half of a two-phase round at a client: what leaves it is its coefficient times its
# update.
#
# The server sees the sum of these. What nobody learns among a model's arrays, such as PyTorch's
# `running_mean` and `num_batches_tracked`, goes the same way, but is no part of the update's
# length.


def scale(vector: Tree, coefficient: np.ndarray) -> ArrayRecord:
    """Coefficient times update; one record for each model where there are several coefficients."""
    require(
        all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(vector)),
        "Training gave NaN or infinity, so nothing is sent. Try a smaller learning rate.",
    )
    if coefficient.ndim == 0:
        return wire.to_arrays(_times(vector, coefficient))
    return wire.record_of_models([_times(vector, own) for own in coefficient])


def scaling_metrics(now: RoundConfig, vector: Tree) -> Metrics:
    """Metrics of the second half of a two-phase round: the coefficient, and the length of the
    update if the method needs it.
    """
    metrics: Metrics = {}
    wire.put(metrics, wire.COEFFICIENT, now.coefficient)
    if "square_norm" in now.algorithm.needs:
        metrics[wire.SQUARE_NORM] = _square_norm(vector)
    return metrics


def reply(message: Message, trained: ArrayRecord, metrics: Metrics) -> Message:
    """Reply to a train message with the trained model or, in two-phase rounds, with coefficient
    times update.
    """
    config = next(iter(message.content.config_records.values()), {})
    if wire.COEFFICIENT in config:
        now = read_config(config)
        assert now.coefficient is not None
        vector = _update(now, trained, next(iter(message.content.array_records.values())))
        trained, metrics = (
            scale(vector, now.coefficient),
            {**metrics, **scaling_metrics(now, vector)},
        )
    return Message(
        RecordDict({wire.ARRAYS: trained, wire.METRICS: MetricRecord(metrics)}), reply_to=message
    )


def _update(now: RoundConfig, trained: ArrayRecord, received: ArrayRecord) -> dict[str, np.ndarray]:
    """Trained minus received model, or the client's own of several; places of edges stay as they
    are.
    """
    if now.algorithm.network is not None:
        return {name: wire.read(array) for name, array in trained.items()}
    prefix = "" if now.group is None else wire.prefix_of(now.group)
    return {
        name: wire.read(array) - wire.read(received[prefix + name])
        for name, array in trained.items()
    }


def _times(vector: Tree, coefficient: np.ndarray) -> Tree:
    return jax.tree.map(lambda leaf: np.float32(coefficient) * np.asarray(leaf), vector)


def _square_norm(vector: Tree) -> float:
    learned = wire.are_learned(wire.names_of(vector))
    leaves = zip(learned, wire.leaves_of(vector), strict=True)
    learned = [leaf for own, leaf in leaves if own and leaf.dtype.kind == "f"]
    return float(sum(np.sum(np.square(leaf, dtype=np.float64)) for leaf in learned))


# A ready Flower client: what it answers is the same in every framework; how it looks at a model and
# trains it is the engine's.
#
# Models are trees of arrays. What a method lets a client keep, such as Ditto's personal model,
# never leaves the node.

LEAST_SCORES = 5  # people in a cell of scores, also where the site has no policy


class Engine(Protocol):
    """Training and evaluation of models in one framework."""

    @property
    def reduction(self) -> str:
        """How losses of rows become one number: "mean" or "sum"."""
        ...

    @property
    def clips_rows(self) -> bool:
        """Whether it can train with private rows."""
        ...

    def text(self, now: RoundConfig) -> str:
        """The task, or what else training depends on besides a message and the client's rows."""
        ...

    def form(self, now: RoundConfig, client: ClientData) -> Tree:
        """A model, or the shapes of one."""
        ...

    def has_one_logit(self, now: RoundConfig) -> bool:
        """Whether models are linear and trained on the cross-entropy of two classes."""
        ...

    def look(self, now: RoundConfig, model: Tree) -> Look:
        """A function that returns the losses and predictions of rows under this model."""
        ...

    def penalty(self, now: RoundConfig, model: Tree) -> float:
        """What is added to the mean loss, such as a regularisation."""
        ...

    def probabilities(self, now: RoundConfig, model: Tree, own: ClientRows) -> np.ndarray | None:
        """Probabilities of the labels [rows, labels]; None if this model has none."""
        ...

    def most_certain_model(self, now: RoundConfig, models: list[Tree], client: ClientData) -> int:
        """Number of the model that makes a mixture of all most certain, which E2FL chooses."""
        ...

    def train(
        self, now: RoundConfig, client: ClientData, received: Tree, memory: Tree
    ) -> tuple[Tree, Tree]:
        """Train the received model. Returns the vector and the client's new memory."""
        ...


class ClientRequest(NamedTuple):
    """A request of the server, as a client has read it."""

    config: RoundConfig
    client: ClientData
    model: Tree
    choice: int | None  # which of several models is the client's
    # where the rows of the client are private: what it may answer, and from which random numbers
    question: private.Question | None = None
    admitted: private.Admitted | None = None
    noised: bool = False  # whether what it says of training and validation rows was counted


def client_app(source: Source, engine: Engine, *, require_policy: bool = False) -> ClientApp:
    """ClientApp that replies to census, measure, train, evaluate and audit. `source` provides the
    data.

    It answers within the policy that the node's config names. Without one it answers everything, or
    nothing if `require_policy`.
    """
    policy = guard.site_policy if require_policy else guard.site_policy_if_any
    ready = ClientApp(mods=[private.hide_errors, policy])

    def own(context: Context) -> ClientData:
        client = client_from(source, context)
        guard.inspect_rows(client)
        return client

    @ready.query("census")
    def census(message: Message, context: Context) -> Message:
        return Message(_census(message, own(context), context), reply_to=message)

    @ready.query("measure")
    def measure(message: Message, context: Context) -> Message:
        return _respond(engine, message, context, own(context), "measure")

    @ready.train()
    def train(message: Message, context: Context) -> Message:
        return _respond(engine, message, context, own(context), "train")

    @ready.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        request = _read_request(engine, message, own(context), context)
        return _reply(message, _evaluation(engine, request, context))

    @ready.query("audit")
    def audit(message: Message, context: Context) -> Message:
        return _reply(message, _audit(engine, message, own(context), context))

    return ready


def _respond(
    engine: Engine, message: Message, context: Context, client: ClientData, kind: str
) -> Message:
    """Measure or train. Where rows are private, the same message gets the same answer."""
    answer = _train if kind == "train" else _measure
    request = _read_request(engine, message, client, context)
    if not private.protects(request.config.algorithm):
        return answer(engine, message, context, request)
    _refuse_unprotected(engine, request)
    digest = private.request_digest(kind, message, client, engine.text(request.config))
    if (kept := private.kept_answer(kind, digest, context)) is not None:
        return Message(kept, reply_to=message)
    reply = answer(engine, message, context, _admitted(request, context, kind))
    private.keep_answer(kind, digest, context, reply.content)
    return reply


def _measure(engine: Engine, message: Message, context: Context, request: ClientRequest) -> Message:
    found = _signals(engine, request, context)
    _inspect_cells(request)
    return _reply(message, found)


def _evaluation(engine: Engine, request: ClientRequest, context: Context) -> Metrics:
    """What the model counts on the client's rows, and which model it is, if there are several."""
    model = request.config.algorithm.work.deploy(request.model, _memory(request, context))
    look, splits = _inspected(engine.look(request.config, model)), _splits(request)
    losses = guard.evaluated_losses_leave()
    for split in splits if losses else ():
        guard.inspect_features(request.client.splits[split])
    found = rows.evaluation_metrics(request.client, look, splits, losses=losses)
    return found | _choice(request)


def _audit(engine: Engine, message: Message, client: ClientData, context: Context) -> Metrics:
    """The counts of an audit, of the received model or of the client's own predictions."""
    decided = (
        _model_decisions(engine, _read_request(engine, message, client, context), context)
        if wire.ARRAYS in message.content
        else client.decisions
    )
    require(
        decided is not None,
        "This client has no predictions of its own. Name their column in the node's config"
        ' (prediction="COLUMN"), or audit a model.',
    )
    assert decided is not None
    return rows.audit_metrics(client, decided, max(guard.least_cell(), LEAST_SCORES))


def _model_decisions(engine: Engine, request: ClientRequest, context: Context) -> Decisions:
    """What the received model, or the client's own one made from it, decides on the test rows."""
    now, client = request.config, request.client
    model = now.algorithm.work.deploy(request.model, _memory(request, context))
    seen = _inspected(engine.look(now, model))(client.test)
    each = engine.probabilities(now, model, client.test) if client.test.size else None
    score = None if each is None else np.clip(each[:, client.favourable], 0, 1).astype(np.float64)
    return Decisions(seen.outcome, score)


def _train(engine: Engine, message: Message, context: Context, request: ClientRequest) -> Message:
    """Train, keep the client's memory, and reply with the model, or in a two-phase round with
    coefficient times update.
    """
    _inspect_training(engine, request)
    vector, own = engine.train(
        request.config, request.client, request.model, _memory(request, context)
    )
    keep = partial(memory.keep, context, request.config.moment, own)
    if request.noised:  # its answer is kept as well, and sent again without training
        keep()
    else:
        guard.once_released(keep)
    if request.config.coefficient is None:
        return _reply(
            message,
            _signals(engine, request, context),
            {wire.ARRAYS: _trained_record(request, vector)},
        )
    metrics = {wire.EXAMPLES: request.client.train.size} | scaling_metrics(request.config, vector)
    return _reply(message, metrics, {wire.ARRAYS: scale(vector, request.config.coefficient)})


def _inspect_training(engine: Engine, request: ClientRequest) -> None:
    """Show the site's policy the rows that training rests on."""
    if not guard.watching():
        return
    now, own = request.config, request.client
    numbers = batches_of(
        now.algorithm.work, now.batch_seed, now.server_round, now.client, own.train.size
    )
    guard.inspect_training(own, now.row_weights, numbers, noised=request.noised)
    if now.algorithm.network is None and not request.noised:
        _inspected(engine.look(now, request.model), by_cell=_by_cell(now))(own.train)
    _inspect_cells(request)


def _inspect_cells(request: ClientRequest) -> None:
    """Show the site's policy how many training rows have each label and rare values, where they
    answer exactly.
    """
    weighed = request.config.row_weights is not None or request.config.algorithm.prepare is not None
    if not request.noised:
        guard.inspect_cells(request.client, by_group=weighed)
        guard.inspect_features(request.client.train)


def _splits(request: ClientRequest) -> tuple[str, ...]:
    """The rows that an evaluation counts: of private rows, only those that nobody trains on."""
    hidden = {"train", "valid"} if private.protects(request.config.algorithm) else set()
    return tuple(split for split in guard.allowed_splits(SPLITS) if split not in hidden)


def _by_cell(now: RoundConfig) -> bool:
    """Whether rows are weighed, or losses added up, by group and label."""
    return now.row_weights is not None or "cell_loss" in now.algorithm.needs


def _inspected(look: Look, *, by_cell: bool = False) -> Look:
    """A look at a model whose losses the site's policy sees."""

    def inspected(own: ClientRows) -> RowOutcomes:
        seen = look(own)
        guard.inspect_losses(seen, own.group * MOST_CLASSES + own.y if by_cell else None)
        return seen

    return inspected


def census_reply(client: ClientData, metrics: Metrics | None = None) -> RecordDict:
    """Reply to the census: counts of rows, and names of labels and groups."""
    return RecordDict(
        {
            wire.ABOUT: ConfigRecord(rows.about(client)),
            wire.METRICS: MetricRecord(rows.census(client) if metrics is None else metrics),
        }
    )


def _census(message: Message, client: ClientData, context: Context) -> RecordDict:
    """Reply to the census, with noised counts where the rows of the client are private."""
    config, first = message.content.get(wire.CONFIG, {}), message.content.get(wire.ARRAYS)
    # methods whose clients keep a model of their own introduce the first one here
    if isinstance(first, ArrayRecord):
        deployment = str(config.get(wire.DEPLOYMENT, ""))
        moment = memory.Moment(deployment, number=0, trained=None, client=-1)
        guard.once_released(partial(memory.introduce, context, moment, first))
    method = _algorithm(str(config[wire.METHOD])) if wire.METHOD in config else None
    private.refuse_others(method, context)
    if method is None or not private.protects(method):
        return census_reply(client)
    question = private.Question(
        kind="census", algorithm=method, number=0, client=client.number or 0, seed=0, signals=False
    )
    return census_reply(client, private.census(question, client, context))


def _admitted(request: ClientRequest, context: Context, kind: str) -> ClientRequest:
    """The request with secret random numbers, after what its answer reveals was counted."""
    now = request.config
    question = private.Question(
        kind, now.algorithm, now.server_round, now.client, now.batch_seed,
        kind == "measure" or now.coefficient is None,
    )  # fmt: skip
    admitted = private.admit(question, request.client, context)
    now = now._replace(batch_seed=admitted.seed, counts=admitted.counts)
    noised = private.ledger_of(context) is not None
    return request._replace(config=now, question=question, admitted=admitted, noised=noised)


def _refuse_unprotected(engine: Engine, request: ClientRequest) -> None:
    """Raise if rows cannot be protected, or if there is not a weight for each group and label:
    whether training then fails would depend on single rows.
    """
    row_weights, shape = request.config.row_weights, request.client.shape
    if not engine.clips_rows:
        raise ToldError(
            f"{request.config.algorithm.label}: gradients of single rows are clipped by JAX clients"
            " only (evenly.flower.clients.jax). Use those, or leave +dp(unit=row) out."
        )
    if row_weights is not None and row_weights.shape != shape:
        raise ToldError(
            f"Row weights must have shape {shape}, one for each group and label of this client, got"
            f" {row_weights.shape}."
        )


def _read_request(
    engine: Engine, message: Message, client: ClientData, context: Context
) -> ClientRequest:
    """Read the config and the model of a message; of several models, the client's own."""
    config, arrays = message.content.get(wire.CONFIG), message.content.get(wire.ARRAYS)
    if not isinstance(config, ConfigRecord) or not isinstance(arrays, ArrayRecord):
        given = ", ".join(map(repr, message.content))
        raise ValueError(
            f"The message must hold a config record {wire.CONFIG!r} and an array record"
            f" {wire.ARRAYS!r}, got {given}."
        )
    offered = message.content.get(wire.OFFERED, arrays)
    assert isinstance(offered, ArrayRecord)
    now = read_config(config)
    private.refuse_others(now.algorithm, context)  # before several models are tried on rows
    guard.inspect_model(
        one_logit=len(client.labels) == 2 and engine.has_one_logit(now),
        noised=private.protects(now.algorithm) and private.ledger_of(context) is not None,
    )
    form = engine.form(now, client)
    models, served = _models(offered, form), _models(arrays, form)
    if (models or served) and now.algorithm.rule.groups is None:
        raise ToldError(
            f"The message offers several models, but {now.algorithm.label} has one: which one fits"
            " a client best would be told by its answer."
        )
    choice = (
        now.group if now.group is not None or not models else _choose(engine, now, models, client)
    )
    model = wire.from_arrays(arrays, form) if choice is None or not served else served[choice]
    return ClientRequest(now, client, model, choice)


def _models(arrays: ArrayRecord, form: Tree) -> list[Tree]:
    """Models of a record that holds several; otherwise none."""
    first = wire.names_of(form)[0]
    count = sum(wire.prefix_of(q) + first in arrays for q in range(len(arrays)))
    return [wire.from_arrays(arrays, form, wire.prefix_of(q)) for q in range(count)]


def _choose(engine: Engine, now: RoundConfig, models: list[Tree], client: ClientData) -> int:
    """Number of the model with the lowest loss on the training rows; the first of equals."""
    rule = now.algorithm.rule
    require(
        rule.inference not in BEFORE_TRAINING,
        f"{now.algorithm.label}: the server assigns each client to one of the models, and the"
        f" request does not say ({wire.GROUP!r}) which model is this client's.",
    )
    if rule.inference != "lowest-loss":
        return engine.most_certain_model(now, models, client)
    seen = [_inspected(engine.look(now, model))(client.train).losses for model in models]
    guard.inspect_choice(seen)
    losses = [
        float(own.mean()) + engine.penalty(now, model)
        for own, model in zip(seen, models, strict=True)
    ]
    return int(np.argmin(np.where(np.isnan(losses), np.inf, losses)))


def _signals(engine: Engine, request: ClientRequest, context: Context) -> Metrics:
    now, model = request.config, request.model
    look, penalty = engine.look(now, model), engine.penalty(now, model)
    look = look if request.noised else _inspected(look, by_cell=_by_cell(now))
    if request.question is not None and request.admitted is not None:
        return private.signals(
            request.question, request.admitted, request.client, context, look,
            penalty=penalty, reduction=engine.reduction,
        )  # fmt: skip
    return rows.signals(
        request.client, now.algorithm.needs, look, penalty=penalty, reduction=engine.reduction
    ) | _choice(request)


def _choice(request: ClientRequest) -> Metrics:
    return {} if request.choice is None else {wire.CHOICE: request.choice}


def _memory(request: ClientRequest, context: Context) -> Tree:
    """What the method lets the client keep; before it trained, the work's memory of the initial
    model or of the first model it receives.
    """
    first = request.config.algorithm.work.remember(request.model)
    return memory.recall(context, request.config.moment, first)


def _trained_record(request: ClientRequest, vector: Tree) -> ArrayRecord:
    """Record of the trained model; for methods that rank edges, the places of all edges as
    integers.
    """
    if request.config.algorithm.network is None:
        return wire.to_arrays(
            jax.tree.map(lambda m, v: np.asarray(m) + np.asarray(v), request.model, vector)
        )
    whole = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(vector))
    # NaN has no whole number: sent as it is, the server sees that training broke.
    return wire.to_arrays(
        jax.tree.map(lambda places: np.asarray(places, np.int32), vector) if whole else vector
    )


def _reply(message: Message, metrics: Metrics, more: dict[str, Any] | None = None) -> Message:
    return Message(
        RecordDict({**(more or {}), wire.METRICS: MetricRecord(metrics)}), reply_to=message
    )

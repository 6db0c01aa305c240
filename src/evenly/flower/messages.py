"""Messages to clients, and their replies as a round uses them: usable replies, exclusions, signals
and averaged metrics.
"""

import functools
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from evenly.experiment.deployment import UNKNOWN, Exclusion
from evenly.flower import aggregation, roster, wire
from evenly.flower.aggregation import Leaves, ServerState
from evenly.flower.checks import ARRAYS, ReplySpec
from evenly.flower.replies import (
    POLICY,
    ClientEvaluation,
    Reply,
    check_evaluation,
    check_reply,
    no_answer,
    size_of,
)
from evenly.flower.roster import DeploymentSetting, notation_of
from evenly.flower.wire import ModelParts, model_record, models_record
from evenly.round import form_of_own
from evenly.types import Algorithm, RowRule, Signals

# Messages: the model, the models to choose from, and the config of each client.


class PersonalModels(NamedTuple):
    """What clients are told of the models of their own that a method lets them keep."""

    deployment: str
    # the last round from which there is a reply of each client
    trained: Mapping[int, int]

    def config(self, client: int) -> dict[str, Any]:
        return {wire.DEPLOYMENT: self.deployment, wire.TRAINED: self.trained.get(client, 0)}


def keeps_models(algorithm: Algorithm) -> bool:
    """Whether a method lets clients keep models of their own."""
    return bool(jax.tree.leaves(algorithm.work.remember(np.zeros(()))))


class DeploymentState(NamedTuple):
    """State of a deployment after some rounds."""

    state: ServerState
    carried: Leaves  # the model's entries that are not learned


def message(
    kind: str,
    node: int,
    records: Mapping[str, ArrayRecord],
    config: ConfigRecord,
    config_key: str = wire.CONFIG,
) -> Message:
    return Message(RecordDict({**records, config_key: config}), message_type=kind, dst_node_id=node)


def to_clients(
    kind: str,
    setting: DeploymentSetting,
    current: DeploymentState,
    *,
    number: int,
    clients: Iterable[int],
    config: ConfigRecord,
    arrays: ArrayRecord,
    coefficients: Mapping[int, Mapping[str, Any]] | None = None,
    personal: PersonalModels | None = None,
) -> list[Message]:
    """Messages of one kind for a round: one to each client, with arrays and config.

    `coefficients` are the additional entries of each client's config in the second half of a
    two-phase round. Clients chose their model in the first half, so no models to choose from are
    sent then.
    """
    records = {setting.options.arrayrecord_key: arrays}
    if (
        coefficients is None
        and setting.models
        and not setting.apart
        and clients_choose_now(setting, current)
    ):
        records[wire.OFFERED] = models_record(
            setting.form,
            aggregation.models_to_choose(setting.algorithm, current.state),
            current.carried,
        )
    common, extra = {**config, **_common_config(setting, current, number)}, coefficients or {}
    configs = {
        k: ConfigRecord(
            {
                **common,
                **_client_config(setting, current, k),
                **({} if personal is None else personal.config(k)),
                **extra.get(k, {}),
            }
        )
        for k in clients
    }
    key = setting.options.configrecord_key
    return [message(kind, setting.roll.nodes[k], records, own, key) for k, own in configs.items()]


def _common_config(
    setting: DeploymentSetting, current: DeploymentState, number: int
) -> ConfigRecord:
    algorithm, seeds = setting.algorithm, setting.options.seeds
    told = ConfigRecord({wire.ROUND: number, wire.METHOD: notation_of(algorithm)})
    told[wire.BATCH_SEED], told[wire.MODEL_SEED] = seeds.batches, seeds.model
    if isinstance(algorithm.rule, RowRule):
        wire.put(
            told, wire.ROW_WEIGHTS, np.asarray(algorithm.rule.row_weights(current.state.public))
        )
    if setting.models:
        told[wire.MODELS] = setting.models
    return told


def _client_config(
    setting: DeploymentSetting, current: DeploymentState, client: int
) -> dict[str, int]:
    """Config entries of one client: its number, and its model where the server decides it."""
    given = current.state.choice
    if given is None or clients_choose_now(setting, current):
        return {wire.CLIENT: client}
    return {wire.CLIENT: client, wire.GROUP: int(given[client])}


def clients_choose_now(setting: DeploymentSetting, current: DeploymentState) -> bool:
    """Whether clients choose among several models themselves in this round."""
    return roster.clients_choose(setting.algorithm, current.state.begun)


def needs_of(setting: DeploymentSetting, current: DeploymentState) -> frozenset[str]:
    """Signals that clients must send in this round: a choice only where they choose their model."""
    needs = setting.algorithm.rule.needs & wire.SIGNALS.keys()
    return needs if clients_choose_now(setting, current) else needs - {"choice"}


def trained_record(setting: DeploymentSetting, current: DeploymentState) -> ArrayRecord:
    """The arrays that clients train: one model, or all models that they choose from."""
    if setting.apart:
        return models_record(setting.form, current.state.model, current.carried)
    return model_record(setting.form, ModelParts(current.state.model, current.carried))


def served_record(setting: DeploymentSetting, current: DeploymentState) -> ArrayRecord:
    """The arrays that clients use: one model, or all models."""
    model = aggregation.served_model(setting.algorithm, current.state)
    if setting.models:
        return models_record(setting.form, model, current.carried)
    return model_record(setting.form, ModelParts(model, current.carried))


# Replies: those that can be used, and exclusions with a reason.

LOG = logging.getLogger("flwr")
QUOTED = 5  # reasons in one sentence
START_AGAIN = (
    "When enough clients can answer, start the run again: with the same folder, it resumes after"
    " the last stored round."
)
BY_POLICY = (
    " What a policy refuses is in the log of that site (`evenly flower egress`), and"
    " docs/flower-policy.md says what to do about it."
)
OWN_METRICS = 2**24  # bytes that a client's metrics may have besides tables
# bytes of tables where no census says how large they are: of a thousand labels, say
UNKNOWN_TABLES = 2**26


class RoundRequest(NamedTuple):
    """The clients that a round or an evaluation addresses, and what they must send."""

    number: int  # from 1; 0: before the first
    cohort: np.ndarray  # int32 [K]: clients, one for each slot
    connected: tuple[int, ...]  # clients of the cohort that are connected
    needs: frozenset[str] = frozenset()  # signals that clients must send
    phase: str = "train"
    # two-phase rounds: factor of each client's update
    coefficients: Mapping[int, np.ndarray] | None = None
    masked: bool = False  # whether only the sum of the replies can be read

    @property
    def chosen(self) -> list[int]:
        return sorted(set(self.cohort.tolist()))


class TrainingReplies(NamedTuple):
    """Replies to a round of training."""

    replies: dict[int, Reply]  # by client
    contents: list[RecordDict]  # of the same, for metrics
    left_out: list[Exclusion]


class EvaluationReplies(NamedTuple):
    """Replies to an evaluation."""

    replies: list[ClientEvaluation]
    contents: list[RecordDict]  # of all clients that sent metrics
    left_out: list[Exclusion]


def read_replies(
    setting: DeploymentSetting, request: RoundRequest, replies: Iterable[Message]
) -> TrainingReplies:
    """Read the replies to a round of training: usable ones, and exclusions with a reason."""
    found, contents, left_out = {}, [], []
    for client, message in _by_client(setting, request, replies, left_out):
        reply = check_reply(message, reply_spec(setting, request, client))
        if isinstance(reply, Exclusion):
            left_out.append(reply)
        else:
            found[client] = reply
            contents.append(message.content)
    _log_left_out(left_out)
    return TrainingReplies(found, contents, left_out)


def read_evaluations(
    setting: DeploymentSetting, request: RoundRequest, replies: Iterable[Message]
) -> EvaluationReplies:
    """Read the replies to an evaluation. Metrics that the report cannot use may still be
    averaged.
    """
    found, contents, left_out = [], [], []
    for client, message in _by_client(setting, request, replies, left_out):
        reply = check_evaluation(message, reply_spec(setting, request, client))
        (left_out if isinstance(reply, Exclusion) else found).append(reply)
        if (
            message.has_content()
            and message.content.metric_records
            and size_of(message.content) <= most_bytes(setting, request)
        ):
            contents.append(message.content)
    _log_left_out(left_out)
    return EvaluationReplies(found, contents, left_out)


def leave_out_broken(
    setting: DeploymentSetting, request: RoundRequest, usable: TrainingReplies, counted: set[int]
) -> TrainingReplies:
    """Exclude clients whose arrays are finite but whose update is too long to be summed."""
    reason = "sent an update whose length is NaN or infinity"
    more = [
        reply_spec(setting, request, k).left_out(reason, ARRAYS)
        for k in sorted(usable.replies.keys() - counted)
    ]
    _log_left_out(more)
    return usable._replace(left_out=usable.left_out + more)


def require_enough(
    setting: DeploymentSetting, request: RoundRequest, usable: TrainingReplies
) -> None:
    """Raise with the reasons if too few replies are usable."""
    least = setting.options.min_train_nodes
    if len(usable.replies) >= max(min(least, len(request.chosen)), 1):
        return
    raise ValueError(
        f"Round {request.number} of {setting.algorithm.label}: at least {least} of the"
        f" {len(request.chosen)} chosen clients must send a usable reply (min_train_nodes), and"
        f" {len(usable.replies)} did. {quote_reasons(usable.left_out, setting.roll.names)}"
        f"{BY_POLICY if any(POLICY in one.reason for one in usable.left_out) else ''} {START_AGAIN}"
    )


def quote_reasons(
    left_out: list[Exclusion], names: Sequence[str] = (), *, most: int = QUOTED
) -> str:
    """Every reason once, most frequent first, with one node that has it and the number of
    others. `names` are those of the clients, where they are known.
    """
    counts = Counter(one.reason for one in left_out)
    first = {one.reason: one for one in reversed(left_out)}
    said = []
    for reason, count in counts.most_common(most):
        node, client = first[reason].node, first[reason].client
        known = "" if client == UNKNOWN else names[client] if names else f"client {client}"
        who = f"Node {node} ({known})" if known else f"Node {node}"
        others = f", like {count - 1} other{'s' if count > 2 else ''}," if count > 1 else ""
        said.append(f"{who}{others} {reason}.")
    rest = sum(counts.values()) - sum(count for _, count in counts.most_common(most))
    return " ".join([*said, f"{rest} more were left out for other reasons."] if rest else said)


def reply_spec(setting: DeploymentSetting, request: RoundRequest, client: int) -> ReplySpec:
    """Requirements on one client's reply."""
    roll, options = setting.roll, setting.options
    known = roll.has_census
    coefficient = None if request.coefficients is None else request.coefficients.get(client)
    return ReplySpec(
        node=roll.nodes[client],
        client=client,
        round=request.number,
        method=setting.algorithm.label,
        needs=request.needs,
        layout=_layout(setting, request, coefficient),
        ranked=setting.form.ranks and coefficient is None,
        examples=(
            int(roll.census.examples[client])
            if known and request.phase in ("train", "measure")
            else None
        ),
        cells=(roll.census.cells.shape[1], roll.census.cells.shape[2]) if known else None,
        models=max(setting.models, 1),
        phase=request.phase,
        coefficient=coefficient,
        masked=request.masked,
        arrays_key=options.arrayrecord_key,
        examples_key=options.weighted_by_key,
        most_bytes=most_bytes(setting, request),
    )


def most_bytes(setting: DeploymentSetting, request: RoundRequest) -> int:
    """Largest size of a reply in bytes: arrays in double precision, tables, and further metrics."""
    if setting.options.max_reply_bytes is not None:
        return setting.options.max_reply_bytes
    census = setting.roll.census.cells.shape[1:] if setting.roll.has_census else None
    if request.phase != "train":
        return metrics_bytes(census)
    models = next(iter(request.coefficients.values())).shape if request.coefficients else ()
    return setting.form.most_bytes(models) + metrics_bytes(census)


def metrics_bytes(cells: tuple[int, ...] | None) -> int:
    """Largest size of metrics in bytes: tables of all splits where groups and labels are known, and
    further metrics.
    """
    if cells is None:
        return UNKNOWN_TABLES + OWN_METRICS
    groups, labels = cells
    return 8 * groups * labels * (4 * labels + 2) + OWN_METRICS


def _layout(
    setting: DeploymentSetting, request: RoundRequest, coefficient: np.ndarray | None
) -> wire.Layout | None:
    """Form of the arrays that a client sends: a trained model, or coefficient times update."""
    if request.phase != "train" or request.masked:
        return None
    return setting.form.layout if coefficient is None else setting.form.scaled(coefficient.shape)


def _by_client(
    setting: DeploymentSetting,
    request: RoundRequest,
    replies: Iterable[Message],
    left_out: list[Exclusion],
) -> Iterable[tuple[int, Message]]:
    """The first reply of each client. Clients without one are added to `left_out`."""
    waiting = {setting.roll.nodes[k]: k for k in request.connected}
    for message in replies:
        client = waiting.pop(message.metadata.src_node_id, None)
        if client is not None:  # else it answers an earlier round
            yield client, message
    left_out += [no_answer(reply_spec(setting, request, k)) for k in waiting.values()]
    away = sorted(set(request.chosen) - set(request.connected))
    left_out += [no_answer(reply_spec(setting, request, k), "is not connected") for k in away]


def _log_left_out(left_out: list[Exclusion]) -> None:
    for one in left_out:
        LOG.warning(
            "Round %d: client %d (node %d) %s.", one.round, one.client, one.node, one.reason
        )


def signals_of(
    algorithm: Algorithm,
    state: ServerState,
    cohort: np.ndarray,
    heard: Mapping[int, Reply],
    chance: np.ndarray,
    *,
    cells: tuple[int, int] | None = None,
) -> Signals:
    """Signals of the cohort, stacked by slot [K]; zeros for clients without a usable reply. `cells`
    are the numbers of groups and labels, which say how many zeros where nobody is heard.
    """
    who, told = cohort.tolist(), {}
    forms = form_of_own(*cells) if cells else None
    for name in sorted(algorithm.rule.needs & wire.SIGNALS.keys()):
        known = {k: reply.signals[name] for k, reply in heard.items() if name in reply.signals}
        if name == "choice":
            assert state.choice is not None
            told[name] = np.array([int(known.get(k, state.choice[k])) for k in who], np.int32)
        elif known or forms:
            like = next(iter(known.values())) if known else getattr(forms, name)
            nothing = np.zeros(np.shape(like))
            told[name] = np.stack([known.get(k, nothing) for k in who]).astype(np.float32)
            if name == "valid_table" and heard and not told[name].any():
                LOG.warning(
                    "%s: no client in this round has validation rows, which the method needs:"
                    " coefficients do not change",
                    algorithm.label,
                )
    return Signals(
        client=cohort,
        returned=np.array([k in heard for k in who]),
        examples=np.array([heard[k].examples if k in heard else 0 for k in who], np.float32),
        chance=chance,
        **told,
    )


# Metrics of a round, averaged over clients by their rows and not by their coefficients.

# Signals, of which a mean over clients has no meaning.
NOT_MEANS = (
    wire.TABLE, wire.CELL_LOSS, wire.CELLS, wire.UNPRIVILEGED, wire.CHOICE, wire.SQUARE_NORM,
    wire.COEFFICIENT, wire.CLIENT, wire.CLIENT_GROUP,
)  # fmt: skip


def average_metrics(contents: list[RecordDict], weighted_by_key: str) -> MetricRecord:
    """Mean of each metric over the clients that sent a finite number, weighted by their rows, as in
    Flower's own strategies.

    What one client sends never costs the mean of the others: without a size it does not count, and
    NaN is no number.
    """
    # by metric: weights, and weights times values
    said: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    with np.errstate(all="ignore"):
        for content in contents:
            metrics = content.metric_records.get(wire.METRICS) or next(
                iter(content.metric_records.values())
            )
            weight = _finite(metrics.get(weighted_by_key))
            if weight is None or weight.ndim or not weight > 0:
                continue
            for name, value in metrics.items():
                own = _finite(value) if name != weighted_by_key and _is_mean(name) else None
                if own is not None and np.isfinite(weight * own).all():
                    said.setdefault(name, []).append((weight, np.asarray(weight * own)))
        return MetricRecord({name: _mean(own) for name, own in said.items()})


def _finite(value: Any) -> np.ndarray | None:
    """The value as an array; None unless it is numeric and finite."""
    try:
        found = np.asarray(value, float)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if np.isfinite(found).all() else None


def _mean(said: list[tuple[np.ndarray, np.ndarray]]) -> Any:
    """Weighted mean of the values that have the most frequent shape."""
    usual = Counter(own.shape for _, own in said).most_common()[0][0]
    weights, products = zip(
        *((weight, own) for weight, own in said if own.shape == usual), strict=True
    )
    return (functools.reduce(np.add, products) / functools.reduce(np.add, weights)).tolist()


def _is_mean(name: str) -> bool:
    """Whether a mean of this metric is meaningful: it is no signal, no signal of a split and no
    shape.
    """
    plain = name.removeprefix("train-").removeprefix("valid-")
    return (
        not name.endswith(wire.SHAPE)
        and plain not in NOT_MEANS
        and not plain.endswith(wire.EXAMPLES)
    )

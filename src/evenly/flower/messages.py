"""What is sent to clients: the model, what they may choose from, and what the method has to say to each of them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from evenly.flower import first, rounds, wire
from evenly.flower.model_arrays import Parts, sent, sent_several
from evenly.flower.naming import notation_of
from evenly.flower.options import Setting
from evenly.flower.rounds import Leaves, State
from evenly.types import RowRule


class Standing(NamedTuple):
    """Where a deployment is after some rounds."""

    state: State
    carried: Leaves  # the model's entries that are not learned


def message(kind: str, node: int, records: Mapping[str, ArrayRecord], config: ConfigRecord, config_key: str = wire.CONFIG) -> Message:
    return Message(RecordDict({**records, config_key: config}), message_type=kind, dst_node_id=node)


def to_train(
    setting: Setting, standing: Standing, number: int, clients: Iterable[int], config: ConfigRecord, model: ArrayRecord
) -> list[Message]:
    """The round's messages to these clients; `model` is what they train."""
    return _to_each(MessageType.TRAIN, setting, standing, number, clients, config, model)


def to_measure(
    setting: Setting, standing: Standing, number: int, clients: Iterable[int], config: ConfigRecord, model: ArrayRecord
) -> list[Message]:
    """The first half of a round of two phases: what they will train, to be looked at."""
    return _to_each(wire.MEASURE, setting, standing, number, clients, config, model)


def to_add(
    setting: Setting, standing: Standing, number: int, told: Mapping[int, Mapping[str, Any]], config: ConfigRecord, model: ArrayRecord
) -> list[Message]:
    """The second half: clients train and send coefficient times update. What they were offered, they chose from before."""
    return _to_each(MessageType.TRAIN, setting, standing, number, told, config, model, told)


def to_evaluate(
    setting: Setting, standing: Standing, number: int, clients: Iterable[int], config: ConfigRecord, served: ArrayRecord
) -> list[Message]:
    """The evaluation's messages to these clients; `served` is what they use."""
    return _to_each(MessageType.EVALUATE, setting, standing, number, clients, config, served)


def _to_each(
    kind: str,
    setting: Setting,
    standing: Standing,
    number: int,
    clients: Iterable[int],
    config: ConfigRecord,
    arrays: ArrayRecord,
    more: Mapping[int, Mapping[str, Any]] | None = None,
) -> list[Message]:
    records = {setting.options.arrayrecord_key: arrays}
    if more is None and setting.models and not setting.apart and chosen_by_clients(setting, standing):
        records[wire.OFFERED] = sent_several(setting.form, rounds.offered(setting.algorithm, standing.state), standing.carried)
    common = {**config, **_told_to_all(setting, standing, number)}
    return [
        message(
            kind,
            setting.roll.nodes[k],
            records,
            ConfigRecord({**common, **_told_to(setting, standing, k), **(more[k] if more is not None else {})}),
            setting.options.configrecord_key,
        )
        for k in clients
    ]


def _told_to_all(setting: Setting, standing: Standing, number: int) -> ConfigRecord:
    algorithm, seeds = setting.algorithm, setting.options.seeds
    told = ConfigRecord({wire.ROUND: number, wire.METHOD: notation_of(algorithm)})
    told[wire.BATCH_SEED], told[wire.MODEL_SEED] = seeds.batches, seeds.model
    if isinstance(algorithm.rule, RowRule):
        wire.put(told, wire.ROW_WEIGHTS, np.asarray(algorithm.rule.row_weights(standing.state.rule)))
    if setting.models:
        told[wire.MODELS] = setting.models
    return told


def _told_to(setting: Setting, standing: Standing, client: int) -> dict[str, int]:
    """The client's number, and its model where it does not choose."""
    given = standing.state.choice
    if given is None or chosen_by_clients(setting, standing):
        return {wire.CLIENT: client}
    return {wire.CLIENT: client, wire.GROUP: int(given[client])}


def chosen_by_clients(setting: Setting, standing: Standing) -> bool:
    """Whether clients choose among several models themselves; else they are told, or there is one."""
    return first.clients_choose(setting.algorithm, standing.state.begun)


def trained_record(setting: Setting, standing: Standing) -> ArrayRecord:
    """What clients train: one model, or all of those among which they choose."""
    if setting.apart:
        return sent_several(setting.form, standing.state.model, standing.carried)
    return sent(setting.form, Parts(standing.state.model, standing.carried))


def served_record(setting: Setting, standing: Standing) -> ArrayRecord:
    """What clients are given to use: one model, or all of those of which one is theirs."""
    model = rounds.served(setting.algorithm, standing.state)
    if setting.models:
        return sent_several(setting.form, model, standing.carried)
    return sent(setting.form, Parts(model, standing.carried))

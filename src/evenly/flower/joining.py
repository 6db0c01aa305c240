"""Clients that join a deployment after its start, and clients that come back to one.

A client is recognised by the number that it says in the census or, where clients say none, by its
node. A number belongs to the node that said it first: during a run nobody else can take it, and
after it nobody with another registered key, where Flower tells keys (`evenly.flower.versions`).
Clients that take part already never change their number: who is new gets the next one. Rules do not
begin anew. A new client has no memory yet, and starts from the public numbers of the round in which
it first takes part.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid

from evenly.data.federation import Census
from evenly.data.sensitive import attributes_from
from evenly.experiment.deployment import Exclusion, Flag
from evenly.flower import aggregation, messages, roster, wire
from evenly.flower.checks import replies_to
from evenly.flower.messages import DeploymentState, metrics_bytes, quote_reasons
from evenly.flower.replies import CensusReply, census_exclusion, consistent_censuses
from evenly.flower.roster import (
    DeploymentSetting,
    Options,
    Roll,
    answers_of,
    roll_in_order,
    unknown_clients,
    with_sampling,
)
from evenly.records import require
from evenly.types import Algorithm, Rule
from evenly.validation import check_kinds

LOG = logging.getLogger("flwr")
JOINING = "joining"  # the phase of exclusions of clients that wanted to join
NOTES = {
    "examples": list[int], "cells": list[list[list[int]]], "unprivileged": list[int],
    "favourable": int, "names": list[str], "labels": list[str], "groups": list[str],
    "client_group": list[int] | None,
}  # fmt: skip


class Enrolment(NamedTuple):
    """A deployment after clients joined."""

    setting: DeploymentSetting
    state: DeploymentState
    left_out: Sequence[Exclusion] = ()
    flagged: Sequence[Flag] = ()


class Asking(NamedTuple):
    """What questions before a round need."""

    grid: Grid
    number: int  # of the round
    config: ConfigRecord
    timeout: float


class Admission(NamedTuple):
    """A roll with additional clients, and nodes that are left out."""

    roll: Roll
    left_out: list[Exclusion]


def census_questions(
    options: Options,
    nodes: Iterable[int],
    config: ConfigRecord,
    records: Mapping[str, ArrayRecord] | None = None,
    *,
    algorithm: Algorithm,
) -> list[Message]:
    """Messages that ask nodes for their census. Clients with private rows are told the method,
    from which the noise of their counts follows.
    """
    key, told = options.configrecord_key, dict(config)
    if algorithm.privacy is not None and algorithm.privacy.unit == "row":
        told[wire.METHOD] = roster.notation_of(algorithm)
    return [
        messages.message(wire.CENSUS, node, records or {}, ConfigRecord(told), key)
        for node in nodes
    ]


def known_groups(rule: Rule) -> int:
    """Number of groups that whole clients may belong to; 0: any."""
    return (rule.groups or 0) if rule.inference == "known" else 0


def welcome(
    setting: DeploymentSetting,
    current: DeploymentState,
    nodes: Sequence[int],
    asking: Asking,
    *,
    held: frozenset[int],
) -> Enrolment:
    """Add nodes that connected since the last round. `held` are those that ever were in this run.

    Where the clients have a census, the new nodes are asked for theirs. Who sends none that fits
    those of before is left out with a reason.
    """
    grid = asking.grid
    roll = setting.roll
    if not roll.has_census:
        admission = Admission(unknown_clients((*roll.nodes, *nodes)), [])
    else:
        most = setting.options.max_reply_bytes or metrics_bytes(None)
        replies = replies_to(
            grid,
            census_questions(setting.options, nodes, asking.config, algorithm=setting.algorithm),
            asking.timeout,
        )
        told, silent = roster.registered_censuses(grid, replies, nodes, most=most)
        groups = known_groups(setting.algorithm.rule)
        admission = admit(roll, told, held=held, groups=groups)
        admission = admission._replace(left_out=[*silent, *admission.left_out])
    joined = Enrolment(setting, current)
    if admission.roll.nodes != roll.nodes:
        try:
            joined = with_roll(setting, current, admission.roll)
        except ValueError as error:  # more clients than the method can serve
            more = [census_exclusion(node, f"cannot join: {error}") for node in nodes]
            admission = Admission(roll, more)
    return joined._replace(left_out=report_changes(roll, admission, joined.setting, asking.number))


def report_changes(
    before: Roll, admission: Admission, setting: DeploymentSetting, number: int
) -> list[Exclusion]:
    """Log who joins, is back and is left out before round `number`. Returns the exclusions."""
    for one in admission.left_out:
        LOG.warning("Node %d %s; it does not join.", one.node, one.reason)
    old, now = before.nodes, setting.roll.nodes
    if back := [k for k, node in enumerate(old) if node != now[k] >= 0]:
        LOG.info("Clients %s are back, on other nodes than before.", back)
    if new := list(range(len(old), len(now))):
        LOG.info("Clients %s join from now on.", new)
        if setting.algorithm.rule.inference == "rank-clustering":
            LOG.info("Their groups are drawn, because clients were clustered before they joined.")
    return [one._replace(round=number, phase=JOINING) for one in admission.left_out]


def admit(
    before: Roll,
    answers: Sequence[CensusReply],
    *,
    held: frozenset[int] = frozenset(),
    groups: int = 0,
) -> Admission:
    """The roll with the clients that answered: who was a client before keeps its number, and others
    get the next ones.

    The clients of before decide what all must agree on. A number is taken if the node that said it
    before has another registered key or, where keys are not known, is one of `held`. `groups` are
    those that whole clients may belong to.
    """
    usable, left_out = consistent_censuses(answers, groups, answers_of(before))
    usable.sort(key=lambda answer: _key(before, answer))
    places = {key: k for k, key in enumerate(before.numbers or before.nodes)}
    now: dict[int, CensusReply] = {}
    for answer in usable:
        place = places.setdefault(_key(before, answer), len(places))
        reason = _taken(before, place, answer, held) if place < before.clients else ""
        if reason:
            left_out.append(census_exclusion(answer.node, reason))
        else:
            now[place] = answer
    return Admission(_merge(before, now), left_out)


def _taken(before: Roll, place: int, answer: CensusReply, held: frozenset[int]) -> str:
    """Why a node cannot be the client at this place; "" if it can."""
    holder, key = before.nodes[place], before.keys[place] if before.keys else ""
    says = f"says that it is client {answer.client}, as node {holder} does"
    if holder == answer.node:
        return ""
    if key and answer.key:
        why = f"{says}, whose registered key is another: start it with the key of that client"
        return "" if key == answer.key else f"{why}, or give it a number of its own"
    why = f"{says}: each client needs its own number, and keeps its node until the run ends"
    return why if holder in held else ""


def _key(before: Roll, answer: CensusReply) -> int:
    """What a client is recognised by: its number or, where clients say none, its node."""
    return answer.client if before.numbered and answer.client is not None else answer.node


def _merge(before: Roll, now: Mapping[int, CensusReply]) -> Roll:
    """The roll of before with what clients say now, by number. Who is away, and whose node is
    another client's now, has no node.
    """
    nodes = {answer.node for answer in now.values()}
    rows = dict(enumerate(answers_of(before)))
    away = {k: row._replace(node=-1 - k) for k, row in rows.items() if row.node in nodes}
    return roll_in_order([one for _, one in sorted({**rows, **away, **now}.items())])


def come_back(
    before: Roll,
    now: Roll,
    told: Sequence[CensusReply],
    *,
    label: str,
    keeps: bool,
    groups: int,
) -> Admission:
    """The roll of a server that goes on: `before` is that of the earlier one, and `now` are the
    connected clients. `told` are all censuses that they sent, because those of the clients of
    before decide which of them fit.

    Clients that are away keep their number. `keeps` is whether anything is kept for each client.

    Raises:
        ValueError: If clients cannot be recognised.
    """
    if before.has_census and now.has_census:
        admission = admit(before, told, groups=groups)
        strange = {one.node for one in admission.left_out}
        usable = {_key(before, answer) for answer in told if answer.node not in strange}
        found = usable & set(before.numbers or before.nodes)
    else:
        admission = Admission(_same_nodes(before, now), [])
        found = set[int]()
    if found or set(now.nodes) & set(before.nodes):
        return admission
    require(
        not keeps and not before.has_census and not now.has_census,
        f"{label}: none of the connected nodes took part before, so clients cannot be matched. Wait"
        f" for all with min_available_nodes={before.clients}, let clients send their number in the"
        " census (introduce=True), or choose another folder to start over."
        f" {quote_reasons(admission.left_out)}".rstrip(),
    )
    # Flower gave all nodes new ids: they take the numbers of before
    return Admission(unknown_clients((*now.nodes, *before.nodes[now.clients :])), [])


def _same_nodes(before: Roll, now: Roll) -> Roll:
    """The nodes of before in their order, then new ones; with a census if all of them sent one."""
    nodes = (*before.nodes, *(node for node in now.nodes if node not in before.nodes))
    if not now.has_census or set(nodes) != set(now.nodes):
        return unknown_clients(nodes)
    return roll_in_order(sorted(answers_of(now), key=lambda answer: nodes.index(answer.node)))


def with_roll(setting: DeploymentSetting, current: DeploymentState, roll: Roll) -> Enrolment:
    """The setting and the state with this roll, whose first clients are those of the state.

    Additional clients have no memory yet, and the model of their group, or of a drawn one.
    """
    algorithm, options, state = setting.algorithm, setting.options, current.state
    algorithm = roster.fit_to_clients(with_sampling(algorithm, options, roll.census), roll)
    census, flagged = roll.census, []
    if options.caps is not None:
        census, flagged = options.caps.census(census)
    first, choice = len(state.memory.seen), state.choice
    if choice is not None:
        drawn = roster.first_choices(algorithm, roll, options.seeds)
        assert drawn is not None
        choice = np.concatenate([choice, drawn[first:]])
    memory = aggregation.with_clients(state.memory, roll.clients)
    return Enrolment(
        setting._replace(algorithm=algorithm, roll=roll, census=census),
        current._replace(state=state._replace(memory=memory, choice=choice)),
        flagged=[flag for flag in flagged if flag.client >= first],
    )


# The roll of a deployment in the file of its state, so that clients that are away when a server
# goes on are known to it.


def roll_notes(roll: Roll) -> dict[str, Any]:
    """What a state notes of the clients besides their nodes."""
    if not roll.has_census:
        return {"numbers": [], "census": None}
    census, group = roll.census, roll.client_group
    return {
        "numbers": list(roll.numbers),
        "keys": list(roll.keys),
        "census": {
            "examples": census.examples.tolist(),
            "cells": census.cells.tolist(),
            "unprivileged": list(census.unprivileged),
            "favourable": census.favourable,
            "names": list(roll.names),
            "labels": list(roll.labels),
            "groups": list(roll.groups),
            "attributes": [one._asdict() for one in roll.attributes],
            "assumed": list(roll.assumed),
            "client_group": None if group is None else group.tolist(),
        },
    }


def roll_from(nodes: Sequence[int], notes: Mapping[str, Any]) -> Roll:
    """The roll that `roll_notes` noted. Raises ValueError if it cannot be one."""
    check_kinds(notes, {"numbers": list[int], "census": dict[str, Any] | None}, complete=True)
    told = notes["census"]
    if told is None:
        return unknown_clients(nodes)
    check_kinds(told, NOTES, complete=True)
    # states of earlier versions have none of these
    check_kinds(notes, {"keys": list[str]})
    check_kinds(told, {"attributes": list[dict[str, Any]], "assumed": list[str]})
    group = told["client_group"]
    cells = np.array(told["cells"], np.int64)
    lengths = {len(nodes), len(told["examples"]), len(told["names"]), len(cells)}
    lengths |= {len(own) for own in (notes["numbers"], notes.get("keys"), group) if own}
    require(len(lengths) == 1 and cells.ndim == 3, "The clients of the state are damaged.")
    return Roll(
        nodes=tuple(nodes),
        census=Census(
            np.array(told["examples"], np.int64),
            cells,
            tuple(told["unprivileged"]),
            told["favourable"],
        ),
        numbers=tuple(notes["numbers"]),
        has_census=True,
        client_group=None if group is None else np.array(group, np.int32),
        names=tuple(told["names"]),
        labels=tuple(told["labels"]),
        groups=tuple(told["groups"]),
        attributes=attributes_from(told.get("attributes", ())),
        assumed=tuple(told.get("assumed", ())),
        keys=tuple(notes.get("keys", ())),
    )

"""Clients that connect after the start take part from the next round on, with every method; who is
there already keeps its number, and a server that goes on knows all of them.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from evenly.experiment.deployment import read_exclusions, read_facts
from evenly.flower import Caps, first_arrays, joining, strategy, wire
from evenly.flower.adapter import FairStrategy
from evenly.flower.clients.jax import app
from evenly.flower.joining import Admission, admit, come_back, roll_from, roll_notes
from evenly.flower.recorder import Recorder
from evenly.flower.replies import CensusReply
from evenly.flower.roster import Roll, answers_of, roll_of, unknown_clients
from evenly.simulate.schedule import CohortDraws
from evenly.types import Seeds, Trace
from tests.flower.grids import OneProcess, reply, settings
from tests.flower.small import SEEDS, algorithm_of, small, task_of

NODES = (70, 30, 60, 10)  # of clients 0 to 3
LATE = NODES[3]
Answer = Callable[[Message, Context], Message]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of the log reach the tests, and no report is written."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    monkeypatch.setattr(Recorder, "_write_report", lambda *_: None)


class Arriving(OneProcess):
    """A grid on which some nodes connect, or are gone, once clients were asked to train in a
    round.
    """

    def __init__(
        self,
        answer: Answer,
        nodes: tuple[int, ...] = NODES,
        *,
        arrives: dict[int, int] | None = None,
        leaves: dict[int, int] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(answer, nodes, **more)
        self.arrives, self.leaves, self.round = arrives or {}, leaves or {}, 0

    def get_node_ids(self) -> list[int]:
        return [
            node
            for node in self.nodes
            if self.round >= self.arrives.get(node, 0) and self.round < self.leaves.get(node, 10**6)
        ]

    def push_messages(self, messages: Any) -> Any:
        told = list(messages)
        for message in told:
            if message.metadata.message_type == "train":
                self.round = max(self.round, int(settings(message)[wire.ROUND]))  # pyright: ignore[reportArgumentType]
        return super().push_messages(told)


# Every kind of method, with the clients of evenly: rounds 1 and 2 have three clients, and the
# fourth joins before round 3.

ROUNDS, JOINS, KILLED = 5, 3, 5
METHODS = ["fairfed", "afl(form=local)", "fedcvg-ratio", "ifca(groups=2)", "q-fedavg(q=1)"]
WITHOUT_CENSUS = ["afl", "ifca(groups=2)", "q-fedavg(q=1)"]
# With these every client counts by its size, or all alike: what a late client counts is known.
NEUTRAL = {
    "fairfed(beta=0)": "size",
    "afl(form=local, rate_lambda=0)": "size",
    "fedcvg-ratio(alpha=0, memory=0)": "size",
    "q-fedavg(q=0)": "equal",
    "fedavg": "size",
}


def made(text: str, folder: Path | None = None, **more: Any) -> FairStrategy:
    given = {"min_available_nodes": 3, "min_train_nodes": 1, "introduce": True, **more}
    return strategy(algorithm_of(text), seeds=SEEDS, folder=folder, **given)


def arriving(text: str, answer: Answer | None = None, **more: Any) -> Arriving:
    honest = answer or app(small(4), task_of(text))
    return Arriving(honest, **{"arrives": {LATE: JOINS - 1}, **more})


def run(server: FairStrategy, grid: OneProcess, text: str) -> tuple[dict[str, np.ndarray], Trace]:
    arrays = first_arrays(algorithm_of(text), task_of(text), SEEDS)
    result = server.start(grid, arrays, num_rounds=ROUNDS)
    return (
        {name: array.numpy() for name, array in result.arrays.items()},
        server.history.recorder.trace(),
    )


@pytest.mark.parametrize("text", NEUTRAL)
def test_a_late_client_counts_as_if_it_had_been_there(text: str):
    server = made(text)
    _, trace = run(server, arriving(text), text)
    sizes = small(4).train.counts if NEUTRAL[text] == "size" else np.ones(4)
    for t, row in enumerate(trace.weights):
        who = 3 if t < JOINS - 1 else 4
        shares = sizes[:who] / sizes[:who].sum()
        np.testing.assert_allclose(row[:who], shares, rtol=1e-4, err_msg=f"round {t + 1}")
        assert not row[who:].any()


def killing(answer: Answer) -> Answer:
    def answered(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train" and settings(message)[wire.ROUND] == KILLED:
            raise KeyboardInterrupt
        return answer(message, context)

    return answered


CASES = [*((text, True) for text in METHODS), *((text, False) for text in WITHOUT_CENSUS)]


@pytest.mark.parametrize("text, introduce", CASES)
def test_a_late_client_is_served_and_weighed_and_remembered(
    text: str, introduce: bool, tmp_path: Path
):
    """And the same after the server was killed: nodes that were there before are matched by their
    number or by their id, whatever the order in which they connect.
    """
    whole = made(text, introduce=introduce)
    expected, trace = run(whole, arriving(text), text)
    nodes = tuple(whole.history.recorder.about.nodes)
    late = whole.history.setting.roll.number(LATE)
    assert late == 3  # although its node has the smallest id: others keep their number
    assert sorted(nodes[:3]) == sorted(NODES[:3])
    memory = whole.history.state.state.memory
    assert memory.seen.tolist() == [True] * 4
    assert all(leaf.shape == (4,) for leaf in _leaves(memory.value))
    assert (trace.weights[JOINS - 1 :][trace.cohort[JOINS - 1 :] == late] > 0).any()
    assert trace.tables[-1][:, late].sum() > 0  # it evaluated
    if introduce:
        assert trace.tables[JOINS - 2][:, late].sum() == 0  # and not before it was there
    grid = arriving(text, killing(app(small(4), task_of(text))))
    with pytest.raises(KeyboardInterrupt):
        run(made(text, tmp_path, introduce=introduce), grid, text)
    again = OneProcess(app(small(4), task_of(text)), NODES)
    again.contexts, again.nodes = grid.contexts, [NODES[3], NODES[0], NODES[2], NODES[1]]
    server = made(text, tmp_path, introduce=introduce)
    found, resumed = run(server, again, text)
    assert server.history.recorder.about.nodes == nodes
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        np.testing.assert_array_equal(found[name], leaf, err_msg=name)
    np.testing.assert_array_equal(resumed.weights, trace.weights)
    after = server.history.state.state.memory
    for one, other in zip(_leaves(after), _leaves(memory), strict=True):
        np.testing.assert_array_equal(one, other)


def _leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in _flat(tree)]


def _flat(tree: Any) -> list[Any]:
    return [leaf for own in tree for leaf in _flat(own)] if isinstance(tree, tuple) else [tree]


@pytest.mark.parametrize("text", ["fairfed", "afl(form=local)"])
def test_a_node_that_is_restarted_forgets_nothing(text: str):
    """The server keeps what the method lets a client keep. It does not matter that a node loses
    its own state, nor that its key is registered again and it comes back with another id.
    """
    honest = app(small(4), task_of(text))
    expected, trace = run(made(text), Arriving(honest), text)
    lost = Arriving(honest)

    def forgetting(message: Message, context: Context) -> Message:
        found = honest(message, context)
        context.state = RecordDict()
        return found

    lost.answer = forgetting
    other = Arriving(honest, (*NODES, 99), leaves={NODES[1]: 2}, arrives={99: 2})
    other.contexts[99].node_config["partition-id"] = 1
    other.keys = {NODES[1]: b"own", 99: b"own"}
    for grid in (lost, other):
        server = made(text)
        found, again = run(server, grid, text)
        for name, leaf in expected.items():
            np.testing.assert_array_equal(found[name], leaf, err_msg=name)
        np.testing.assert_array_equal(again.weights, trace.weights)
    assert server.history.setting.roll.nodes == (NODES[0], 99, *NODES[2:])


def test_groups_of_late_clients_are_known_or_drawn(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "flwr")
    text = "e2fl(groups=2)"
    server = made(text)
    run(server, arriving(text), text)
    assert server.history.state.state.choice.tolist() == [0, 1, 0, 1]  # pyright: ignore[reportOptionalMemberAccess]
    assert "groups are drawn" not in caplog.text
    text = "e2fl(groups=2, inference=rank-clustering)"
    server = made(text)
    run(server, arriving(text), text)
    assert server.history.state.state.choice.shape == (4,)  # pyright: ignore[reportOptionalMemberAccess]
    assert "Clients [3] join from now on" in caplog.text
    assert "groups are drawn, because clients were clustered before" in caplog.text


# Who does not fit, with clients written by hand.

SIZES = (10, 40, 20, 5, 30, 60)


def first() -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros(3, np.float32))})


def introducing(**others: Any) -> Answer:
    """Clients with a census; `others` says differently for client 3."""

    def answer(message: Message, context: Context) -> Message:
        k, kind = int(context.node_config["partition-id"]), message.metadata.message_type
        if kind == "evaluate":
            return reply(message, None, {"num-examples": SIZES[k], "accuracy": 0.5})
        if kind == "train":
            own = message.content.array_records["arrays"]["w"].numpy() + np.float32(k)
            return reply(message, ArrayRecord({"w": Array(own)}), {"num-examples": SIZES[k]})
        told = {"num-examples": SIZES[k], "cells": [[SIZES[k], 0]], "client": k}
        about: dict[str, Any] = {"labels": ["no", "yes"]}
        if k == 3:
            told |= {key: value for key, value in others.items() if key not in about}
            about |= {key: value for key, value in others.items() if key in about}
        cells = np.array(told.pop("cells"))
        told = {key: value for key, value in told.items() if value is not None}
        wire.put(told, "cells", cells)
        found = reply(message, None, told)
        found.content["about"] = ConfigRecord(about)
        return found

    return answer


def joined(answer: Answer, rounds: int = 4, **more: Any) -> tuple[FairStrategy, Arriving]:
    options = {key: more.pop(key) for key in ("folder", "caps", "fraction_train") if key in more}
    least = more.pop("least", 3)
    server = strategy(
        "fedavg", introduce=True, min_available_nodes=least, min_train_nodes=1, **options
    )
    grid = Arriving(answer, **{"arrives": {LATE: 2}, **more})
    server.start(grid, first(), num_rounds=rounds)
    return server, grid


def test_a_late_client_is_asked_for_its_census_once_and_is_in_the_files(tmp_path: Path):
    server, grid = joined(introducing(), folder=tmp_path / "run")
    assert [node for kind, node in grid.asked if kind == wire.CENSUS] == [*NODES]
    roll = server.history.setting.roll
    assert (roll.nodes, roll.numbers) == (NODES, (0, 1, 2, 3))
    assert roll.census.examples.tolist() == [*SIZES[:4]]
    assert roll.labels == ("no", "yes")
    about = read_facts(tmp_path / "run")
    assert about.nodes == NODES
    assert about.examples == SIZES[:4]
    assert about == server.history.recorder.about
    trace = server.history.recorder.trace()
    np.testing.assert_allclose(trace.weights[2], np.array(SIZES[:4]) / 75, rtol=1e-5)


WRONG = {
    "other labels": ({"labels": ["yes", "no"]}, "of names of labels, where most clients say"),
    "other groups": ({"cells": [[5], [0]], "labels": ["no"]}, "says (2, 1) of groups and labels"),
    "no number": ({"client": None}, "did not say 'client', and most clients did"),
    "a number that is taken": (
        {"client": 1},
        "says that it is client 1, as node 30 does: each client needs its own number",
    ),
    "a group, where nobody has one": ({"client-group": 0}, "says 'client-group', and most"),
    "a size that cannot be": ({"num-examples": -5}, "sent -5 as 'num-examples'"),
}


@pytest.mark.parametrize("others, reason", WRONG.values(), ids=WRONG)
def test_who_does_not_fit_the_clients_of_before_does_not_join(
    others: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
):
    server, grid = joined(introducing(**others))
    assert server.history.setting.roll.nodes == NODES[:3]
    assert [node for kind, node in grid.asked if kind == wire.CENSUS] == [*NODES]  # once
    (one,) = server.history.recorder.left_out
    assert (one.node, one.round, one.phase) == (LATE, 3, "joining")
    assert reason in one.reason
    assert len([line for line in caplog.messages if f"Node {LATE}" in line]) == 1
    assert all(row.tolist() == [0, 1, 2] for row in server.history.recorder.trace().cohort)


def test_a_late_node_that_is_silent_is_not_waited_for_again():
    server, grid = joined(introducing(), silent=[LATE])
    assert [node for kind, node in grid.asked if kind == wire.CENSUS] == [*NODES]
    assert "did not answer in time" in server.history.recorder.left_out[0].reason


def test_nodes_that_were_left_out_at_the_start_are_not_asked_again():
    def erring(message: Message, context: Context) -> Message:
        if message.metadata.message_type == wire.CENSUS and context.node_id == NODES[1]:
            raise RuntimeError("no such file")
        return introducing()(message, context)

    server, grid = joined(erring, arrives={})
    assert [node for kind, node in grid.asked if kind == wire.CENSUS] == [*NODES]
    assert server.history.setting.roll.nodes == (NODES[0], *NODES[2:])


def test_nobody_takes_the_number_of_a_node_that_is_gone():
    server, grid = joined(introducing(client=1), rounds=6, leaves={NODES[1]: 1})
    assert server.history.setting.roll.nodes == NODES[:3]
    assert [node for kind, node in grid.asked if kind == wire.CENSUS] == [*NODES]
    (one,) = [one for one in server.history.recorder.left_out if one.phase == "joining"]
    assert (one.node, one.round) == (LATE, 3)
    assert "keeps its node until the run ends" in one.reason


def test_a_registered_key_has_its_number_and_its_name_for_ever():
    before = roll_of([told(10, 0, key="a"), told(20, 1, key="b")])
    notes = json.loads(json.dumps(roll_notes(before)))
    now = roll_of([told(30, 0, key="a"), told(40, 1, key="stolen"), told(50, 2)])
    admission = back(roll_from(before.nodes, notes), now)
    assert admission.roll.nodes == (30, 20, 50)
    assert ["whose registered key is another" in one.reason for one in admission.left_out] == [True]
    grid = Arriving(introducing())
    grid.keys, grid.names = {NODES[0]: b"own"}, {NODES[0]: "north"}
    server = strategy("fedavg", introduce=True, min_available_nodes=4)
    server.start(grid, first(), num_rounds=1)
    roll = server.history.setting.roll
    assert roll.names == ("north", "client 1", "client 2", "client 3")
    assert [bool(key) for key in roll.keys] == [True, False, False, False]


THIEF = 5  # its node is below all others, and it says that it is client 1


def thieving(nodes: tuple[int, ...], **more: Any) -> Arriving:
    grid = Arriving(introducing(), nodes, **more)
    own = {NODES[1]: 1, 99: 1, THIEF: 1}
    for node, context in grid.contexts.items():
        context.node_config["partition-id"] = own[node] if node in own else NODES.index(node)
    grid.keys = {node: b"key of %d" % NODES.index(node) for node in NODES}
    grid.keys |= {99: grid.keys[NODES[1]], THIEF: b"another"}
    return grid


def test_nobody_keeps_a_client_out_by_its_number_while_it_reconnects():
    grid = thieving((*NODES, 99, THIEF), leaves={NODES[1]: 1}, arrives={99: 2, THIEF: 2})
    server = strategy("fedavg", introduce=True, min_available_nodes=4, min_train_nodes=1)
    server.start(grid, first(), num_rounds=4)
    assert server.history.setting.roll.nodes == (NODES[0], 99, *NODES[2:])
    left_out = [one for one in server.history.recorder.left_out if one.phase == "joining"]
    assert [(one.node, one.round) for one in left_out] == [(THIEF, 3)]
    assert server.history.recorder.trace().cohort[3].tolist() == [0, 1, 2, 3]


def test_nobody_keeps_a_client_out_by_its_number_when_a_server_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    def run_of(grid: OneProcess, rounds: int) -> FairStrategy:
        server = strategy("fedavg", introduce=True, min_available_nodes=4, folder=tmp_path)
        server.start(grid, first(), num_rounds=rounds)
        return server

    run_of(thieving(NODES), 2)
    server = run_of(thieving((*NODES, THIEF)), 4)
    roll, left_out = server.history.setting.roll, server.history.recorder.left_out
    assert (roll.nodes, roll.numbers) == (NODES, (0, 1, 2, 3))
    assert [(one.node, one.round, one.phase) for one in left_out] == [(THIEF, 3, "joining")]
    assert server.history.recorder.trace().cohort[3].tolist() == [0, 1, 2, 3]
    assert [line.split()[1] for line in caplog.messages if "does not join" in line] == [str(THIEF)]
    assert "not one of the clients" not in caplog.text


def test_cohorts_are_drawn_from_all_clients_as_soon_as_they_are_there():
    server, _ = joined(introducing(), fraction_train=0.7)
    trace, history = server.history.recorder.trace(), server.history
    assert [len(set(row.tolist())) for row in trace.cohort] == [2, 2, 2, 2]
    now = CohortDraws(history.setting.algorithm.select, history.setting.census, Seeds())
    for t in (2, 3):
        np.testing.assert_array_equal(trace.cohort[t], now.cohort(t))
    assert history.setting.algorithm.select.slots(history.setting.census) == 2


def test_caps_hold_for_late_clients_too():
    server, _ = joined(introducing(**{"num-examples": 5, "cells": [[5, 0]]}), caps=Caps(examples=4))
    sizes = server.history.setting.census.examples
    assert sizes.tolist() == [4, 4, 4, 4]
    flags = [
        (one.round, one.flag.client)
        for one in server.history.recorder.flagged
        if one.flag.what == "examples"
    ]
    assert (3, 3) in flags
    assert (3, 0) in flags  # of its update, not of its census again
    assert len([flag for flag in flags if flag[1] == 0]) == 1 + 4


def test_clients_that_a_method_cannot_serve_do_not_join(monkeypatch: pytest.MonkeyPatch):
    def refused(*_: Any) -> None:
        raise ValueError("at most 3 clients can vote in a round, got 4. Sample fewer.")

    real = joining.roster.fit_to_clients
    monkeypatch.setattr(
        joining.roster,
        "fit_to_clients",
        lambda algorithm, roll: refused() if roll.clients > 3 else real(algorithm, roll),
    )
    server, _ = joined(introducing())
    assert server.history.setting.roll.nodes == NODES[:3]
    (one,) = server.history.recorder.left_out
    assert "cannot join: at most 3 clients can vote" in one.reason


# Rolls: who is a client of before, and who is new.


def told(node: int, client: int | None = None, size: int = 3, **more: Any) -> CensusReply:
    given = {
        "name": None,
        "labels": ("no", "yes"),
        "groups": (),
        "unprivileged": (0,),
        "favourable": 1,
        "client_group": None,
        **more,
    }
    return CensusReply(node, size, np.array([[1, size - 1]]), client, **given)


def back(before: Roll, now: Roll, *, keeps: bool = True) -> Admission:
    """A server goes on, and all clients that are connected told a census that fits."""
    said = answers_of(now) if now.has_census else []
    return come_back(before, now, said, label="fairfed", keeps=keeps, groups=0)


@pytest.mark.parametrize("others", [("", ""), ("theirs", "mine")], ids=["no keys", "keys"])
def test_of_two_answers_with_one_number_that_of_the_client_of_before_counts(
    others: tuple[str, str],
):
    thief, own = others
    before = roll_of([told(10, 0), told(40, 3, key=own)])
    for order in (1, -1):
        answers = [told(5, 3, key=thief), told(40, 3, key=own)][::order]
        admission = admit(before, answers)
        assert admission.roll.nodes == (10, 40)
        assert [one.node for one in admission.left_out] == [5]


def test_numbers_with_gaps_are_never_filled():
    roll = roll_of([told(10, 0), told(20, 1), told(30, 4)])
    admission = admit(roll, [told(50, 3), told(40, 2)])
    assert admission.roll.nodes == (10, 20, 30, 40, 50)
    assert admission.roll.numbers == (0, 1, 4, 2, 3)
    assert not admission.left_out


def test_newcomers_do_not_outvote_those_who_are_there():
    roll = roll_of([told(10, 0), told(20, 1)])
    strange = [told(node, node, labels=("yes", "no")) for node in (3, 4, 5, 6)]
    admission = admit(roll, [*strange, told(7, 7)])
    assert admission.roll.nodes == (10, 20, 7)
    assert [one.node for one in admission.left_out] == [3, 4, 5, 6]
    unnumbered = admit(roll_of([told(10), told(20)]), [told(30, 5), told(40, 6), told(50)])
    assert unnumbered.roll.nodes == (10, 20, 50)


def test_two_newcomers_with_one_number_are_not_both_taken():
    roll = roll_of([told(10, 0), told(20, 1)])
    admission = admit(roll, [told(30, 2), told(40, 2)])
    assert admission.roll.nodes == (10, 20, 30)
    assert ["as node 30 does" in one.reason for one in admission.left_out] == [True]


def test_a_server_that_goes_on_matches_clients_by_number_and_then_by_node():
    before = roll_of([told(10, 0), told(20, 1), told(30, 2)])
    now = roll_of([told(20, 0), told(99, 2), told(40, 5)])
    roll = back(before, now).roll
    assert roll.numbers == (0, 1, 2, 5)
    # client 1 is away, and the node that it had is that of client 0 now
    assert roll.nodes == (20, -2, 99, 40)
    unnumbered = roll_of([told(10), told(20, size=7), told(30)])
    now = roll_of([told(30), told(40), told(20, size=8)])
    roll = back(unnumbered, now).roll
    assert roll.nodes == (10, 20, 30, 40)
    assert roll.census.examples.tolist() == [3, 8, 3, 3]


@pytest.mark.parametrize(
    "before, now",
    [
        (roll_of([told(10, 0), told(20, 1)]), roll_of([told(30, 2), told(40, 3)])),
        (roll_of([told(10), told(20)]), roll_of([told(30), told(40)])),
        (unknown_clients([10, 20]), unknown_clients([30, 40])),
    ],
)
def test_where_nobody_is_recognised_the_deployment_does_not_go_on(before: Roll, now: Roll):
    with pytest.raises(
        ValueError,
        match=r"clients cannot be matched\. Wait for all with min_available_nodes=2.*introduce=Tr",
    ):
        back(before, now)


def test_where_nothing_is_kept_nodes_with_new_ids_take_the_numbers_of_before():
    found = back(unknown_clients([10, 20, 30]), unknown_clients([5, 6]), keeps=False)
    assert found.roll.nodes == (5, 6, 30)


def test_a_census_that_is_asked_for_later_or_no_more_does_not_renumber_clients():
    plain, asked = unknown_clients([30, 10]), roll_of([told(10, 0), told(30, 1), told(50, 2)])
    more = back(plain, asked, keeps=False).roll
    assert (more.nodes, more.numbers, more.has_census) == ((30, 10, 50), (1, 0, 2), True)
    some = back(plain, roll_of([told(10, 0)]), keeps=False).roll
    assert (some.nodes, some.has_census) == ((30, 10), False)
    less = back(asked, unknown_clients([30, 70]), keeps=False).roll
    assert (less.nodes, less.has_census) == ((10, 30, 50, 70), False)


def test_a_roll_comes_back_from_its_notes():
    roll = roll_of([told(10, 4, name="ward", client_group=1), told(2**63 + 5, 0, client_group=0)])
    again = roll_from(roll.nodes, json.loads(json.dumps(roll_notes(roll))))
    assert again._replace(census=None, client_group=None) == roll._replace(  # pyright: ignore[reportArgumentType]
        census=None,  # pyright: ignore[reportArgumentType]
        client_group=None,
    )
    np.testing.assert_array_equal(again.census.cells, roll.census.cells)
    np.testing.assert_array_equal(again.census.examples, roll.census.examples)
    assert again.census[2:] == roll.census[2:]
    assert again.client_group.tolist() == [0, 1]  # pyright: ignore[reportOptionalMemberAccess]
    plain = roll_from([5, 6], roll_notes(unknown_clients([5, 6])))
    assert (plain.nodes, plain.has_census) == ((5, 6), False)
    for wrong in ({}, {"numbers": [], "census": {}}, roll_notes(roll) | {"numbers": [1]}):
        with pytest.raises(ValueError):
            roll_from(roll.nodes, wrong)


# A server that goes on without some of its clients.


@pytest.mark.parametrize("text", ["fairfed", "afl(form=local)"])
def test_a_server_goes_on_without_clients_that_are_away_and_knows_them_when_they_are_back(
    text: str, tmp_path: Path
):
    """Client 1 is away in rounds 3 and 4. The server was killed after round 2 and has to begin
    without the client; it ends as one that was not killed.
    """
    honest = app(small(4), task_of(text))

    def away(message: Message, context: Context) -> Message:
        if (
            message.metadata.message_type != wire.CENSUS
            and context.node_config["partition-id"] == 1
            and settings(message)[wire.ROUND] in (3, 4)
        ):
            raise RuntimeError("away")
        return honest(message, context)

    whole = made(text)
    expected, trace = run(whole, Arriving(away), text)
    first_arrays_ = first_arrays(algorithm_of(text), task_of(text), SEEDS)
    made(text, tmp_path).start(Arriving(honest), first_arrays_, num_rounds=2)
    grid = Arriving(honest, arrives={NODES[1]: 4})
    server = made(text, tmp_path)
    found, resumed = run(server, grid, text)
    for name, leaf in expected.items():
        np.testing.assert_array_equal(found[name], leaf, err_msg=name)
    np.testing.assert_array_equal(resumed.weights, trace.weights)
    reasons = {one.reason for one in server.history.recorder.left_out if one.phase == "train"}
    assert reasons == {"is not connected"}


def test_a_state_whose_clients_cannot_be_read_is_damaged(tmp_path: Path):
    joined(introducing(), folder=tmp_path / "run", rounds=1)
    path = tmp_path / "run" / "state.npz"
    with np.load(path) as file:
        held = dict(file)
    header = json.loads(str(held["header"]))
    header["told"]["census"]["examples"].pop()
    with open(path, "wb") as file:
        np.savez(file, **(held | {"header": np.array(json.dumps(header))}))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"state\.npz' is damaged\. Remove it to start"):
        joined(introducing(), folder=tmp_path / "run", rounds=2)


def test_who_does_not_fit_is_named_when_a_server_goes_on(tmp_path: Path):
    folder = tmp_path / "run"
    joined(introducing(), folder=folder, rounds=1)
    server, grid = joined(introducing(labels=["yes", "no"]), folder=folder, rounds=3, arrives={})
    (one,) = server.history.recorder.left_out
    assert (one.node, one.round, one.phase) == (LATE, 2, "joining")
    assert "of names of labels" in one.reason
    assert server.history.setting.roll.nodes == NODES[:3]
    assert [node for kind, node in grid.asked if kind == wire.CENSUS] == [*NODES]
    assert read_exclusions(folder)[0] == [one]
    # it does not go on with strangers alone
    away, before = dict.fromkeys(NODES[:3], 99), (folder / "state.npz").read_bytes()
    with pytest.raises(
        ValueError, match=r"cannot be matched.*Node 10 says \('yes', 'no'\) of names"
    ):
        joined(introducing(labels=["yes", "no"]), folder=folder, arrives=away, least=1)
    assert (folder / "state.npz").read_bytes() == before
    # where strangers are as many as clients of before, these decide
    del away[NODES[0]]
    server, _ = joined(introducing(labels=["yes", "no"]), folder=folder, arrives=away, least=2)
    assert server.history.setting.roll.nodes == NODES[:3]
    assert server.history.setting.roll.labels == ("no", "yes")


def test_new_clients_are_told_and_flagged_when_a_server_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "flwr")
    folder, caps = tmp_path / "run", Caps(examples=4)
    joined(introducing(), folder=folder, rounds=1, caps=caps)
    caplog.clear()
    server, _ = joined(introducing(), folder=folder, rounds=1, caps=caps, arrives={})
    assert "Clients [3] join from now on." in caplog.messages
    flags = [(one.round, one.flag.client) for one in server.history.recorder.flagged]
    assert (2, 3) in flags
    assert (2, 0) not in flags

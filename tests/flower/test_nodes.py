"""Who is connected, and what is known of them before the first round."""

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evenly.algorithms import algorithm
from evenly.flower import roster
from evenly.flower.replies import CensusReply
from evenly.flower.roster import (
    answers_of,
    evaluating_clients,
    roll_of,
    unknown_clients,
    wait_for_nodes,
)
from evenly.types import Seeds


class Slow:
    """A grid whose nodes connect one by one, every five seconds."""

    def __init__(self, *connected: int) -> None:
        self.connected, self.now, self.slept = list(connected), 10.5, 0

    def get_node_ids(self) -> list[int]:
        return [*range(self.connected[self.slept])]

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _: float) -> None:
        self.slept, self.now = self.slept + 1, self.now + 5.0


def test_it_is_told_at_once_and_then_every_ten_seconds_who_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
):
    said: list[Any] = []
    monkeypatch.setattr(roster, "LOG", SimpleNamespace(info=lambda _, *words: said.append(words)))
    grid = Slow(0, 1, 1, 2, 2, 3)
    monkeypatch.setattr(roster, "time", grid)
    assert wait_for_nodes(grid, 3) == [0, 1, 2]
    # after 0 and 15 seconds: at 10 it has not been longer than that
    assert said == [(0, 3), (2, 3)]
    assert wait_for_nodes(Slow(2), 2) == [0, 1]


def told(node: int, client: int | None = None, **more: Any) -> CensusReply:
    given = {
        "name": None,
        "labels": (),
        "groups": (),
        "unprivileged": None,
        "favourable": None,
        "client_group": None,
        **more,
    }
    return CensusReply(node, 3, np.array([[1, 2]]), client, **given)


def test_who_says_nothing_has_the_first_group_unprivileged_and_the_second_label_favourable():
    roll = roll_of([told(5), told(9)])
    assert (roll.census.unprivileged, roll.census.favourable) == ((0,), 1)
    assert (roll.names, roll.numbers, roll.numbered, roll.has_census) == (
        ("client 0", "client 1"),
        (),
        False,
        True,
    )
    assert (roll.number(9), roll.number(7)) == (1, None)
    other = roll_of([told(5), told(9, unprivileged=(2,), favourable=0)])
    assert (other.census.unprivileged, other.census.favourable) == ((2,), 0)


@pytest.mark.parametrize("numbers, gaps", [((1, 0), False), ((0, 2), True), ((None, None), False)])
def test_gaps_between_numbers_are_told(
    numbers: Any, gaps: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    roll_of([told(5, numbers[0]), told(9, numbers[1])])
    assert ("Some client numbers are missing" in caplog.text) == gaps


def test_of_unknown_clients_only_their_number_is_known():
    roll = unknown_clients([30, 10, 20])
    assert (roll.nodes, roll.clients, roll.has_census) == ((30, 10, 20), 3, False)
    assert roll.census.examples.tolist() == [1, 1, 1]
    assert roll.census.cells.tolist() == [[[1]]] * 3


def test_what_clients_said_can_be_read_from_the_roll():
    answers = [
        told(5, 1, name="ward", client_group=1, labels=("no", "yes")),
        told(9, 0, client_group=0, unprivileged=(0,), favourable=1),
    ]
    roll = roll_of(answers)
    again = answers_of(roll)
    assert [(one.node, one.client, one.client_group) for one in again] == [(9, 0, 0), (5, 1, 1)]
    assert [one.name for one in again] == [None, "ward"]
    assert {(one.labels, one.unprivileged, one.favourable) for one in again} == {
        (("no", "yes"), (0,), 1)
    }
    assert again[0].cells.tolist() == [[1, 2]]


def test_who_evaluates_is_drawn_by_seed_and_round():
    present = np.array([1, 4, 5, 8], np.int32)
    some = [evaluating_clients(3, t, present, 2).tolist() for t in range(20)]
    assert some == [evaluating_clients(3, t, present, 2).tolist() for t in range(20)]
    assert all(one == sorted(set(one)) and len(one) == 2 for one in some)
    assert {k for one in some for k in one} == {1, 4, 5, 8}
    assert evaluating_clients(3, 0, present, 9).tolist() == [1, 4, 5, 8]
    assert some != [evaluating_clients(4, t, present, 2).tolist() for t in range(20)]


def test_rank_clustering_compares_one_layer_or_all():
    """In the first layer clients 0 and 1 agree, in the second clients 0 and 3; client 2 did not
    answer.
    """
    up, down = np.arange(6), np.arange(6)[::-1].copy()
    places = {0: [up, up], 1: [up, down], 3: [down, up]}
    drawn = np.array([0, 0, 1, 0], np.int32)

    def pairs(layer: int) -> list[bool]:
        made = algorithm(f"e2fl(groups=2, inference=rank-clustering, layer={layer})")
        found = roster.cluster_by_ranks(made, places, drawn, Seeds())
        assert found[2] == 1
        return [bool(found[0] == found[k]) for k in (1, 3)]

    assert pairs(1) == [True, False]
    assert pairs(2) == [False, True]
    assert sum(pairs(0)) == 1
    assert drawn.tolist() == [0, 0, 1, 0]
    with pytest.raises(ValueError, match=r"layer must be 0 \(all\) or from 1 to 2, got 3"):
        pairs(3)


def test_models_can_be_told_apart_once_they_differ():
    apart = algorithm("ifca(groups=2)")
    equal = [np.ones((2, 3)), np.zeros((2, 1))]
    assert not roster.models_differ(apart, equal)
    assert roster.models_differ(apart, [equal[0], np.array([[0.0], [1.0]])])
    assert not roster.models_differ(algorithm("fedavg"), [np.arange(6.0).reshape(2, 3)])

"""Who is connected, and what is known of them before the first round."""

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evenly.algorithms import algorithm
from evenly.flower import roster
from evenly.flower.replies import CensusReply
from evenly.flower.roster import grown, grows, introduced, present, unknown_clients


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


def test_it_is_told_at_once_and_then_every_ten_seconds_who_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    said: list[Any] = []
    monkeypatch.setattr(roster, "LOG", SimpleNamespace(info=lambda _, *words: said.append(words)))
    grid = Slow(0, 1, 1, 2, 2, 3)
    monkeypatch.setattr(roster, "time", grid)
    assert present(grid, 3) == [0, 1, 2]
    assert said == [(0, 3), (2, 3)]  # after 0 and 15 seconds: at 10 it has not been longer than that
    assert present(Slow(2), 2) == [0, 1]


def told(node: int, client: int | None = None, **more: Any) -> CensusReply:
    given = {"name": None, "labels": (), "groups": (), "unprivileged": None, "favourable": None, "client_group": None, **more}
    return CensusReply(node, 3, np.array([[1, 2]]), client, **given)


def test_who_says_nothing_has_the_first_group_unprivileged_and_the_second_label_favourable():
    roll = introduced([told(5), told(9)])
    assert (roll.census.unprivileged, roll.census.favourable) == ((0,), 1)
    assert (roll.names, roll.numbers, roll.numbered, roll.introduced) == (("client 0", "client 1"), (), False, True)
    assert (roll.number(9), roll.number(7)) == (1, None)
    other = introduced([told(5), told(9, unprivileged=(2,), favourable=0)])
    assert (other.census.unprivileged, other.census.favourable) == ((2,), 0)


@pytest.mark.parametrize("numbers, gaps", [((1, 0), False), ((0, 2), True), ((None, None), False)])
def test_gaps_between_numbers_are_told(numbers: Any, gaps: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    introduced([told(5, numbers[0]), told(9, numbers[1])])
    assert ("Some numbers of clients are missing" in caplog.text) == gaps


def test_of_unknown_clients_only_their_number_is_known():
    roll = grown(unknown_clients([30, 10]), [20])
    assert (roll.nodes, roll.clients, roll.introduced) == ((30, 10, 20), 3, False)
    assert roll.census.examples.tolist() == [1, 1, 1]
    assert roll.census.cells.tolist() == [[[1]]] * 3


@pytest.mark.parametrize("text, may", [("q-fedavg(q=1)", True), ("afl", False)])
def test_clients_may_join_where_nothing_is_kept_for_each(text: str, may: bool):
    assert grows(algorithm(text).rule) is may

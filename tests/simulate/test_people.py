"""Clients taken apart by the groups of people in their rows, and put together again; counted by
hand.
"""

import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.data.splits import SPLITS, Ragged
from evenly.records import replace
from evenly.simulate.traces import join_people, split_people
from evenly.types import NO_CHOICE, Trace
from tests.simulations import algorithms

EVERYONE = algorithms("e2fl(people=true)+full")


@pytest.fixture
def mixed() -> Federation:
    """Client 0 trains on rows of both groups, client 1 on rows of group b only, but is tested on
    one of group a too.
    """
    group = np.array(["a", "b", "a", "a", "b", "b", "a", "b"])
    made = Federation.from_arrays(
        np.zeros((8, 1)), np.arange(8) % 2, np.array([0, 0, 0, 0, 1, 1, 1, 1]), group=group
    )
    lists = ([[0, 1, 2], [4, 5]], [[], [7]], [[3], [6]])
    parts = {
        split: Ragged.from_lists([np.array(own, np.int64) for own in of])
        for split, of in zip(SPLITS, lists, strict=True)
    }
    return replace(made, **parts, names=("north", "south"))


def test_each_group_of_a_clients_people_is_a_client(mixed: Federation):
    apart, owner = split_people(mixed, EVERYONE)
    assert owner.tolist() == [0, 0, 1]
    assert apart.names == ("north, a", "north, b", "south, b")
    assert apart.client_group is not None
    assert apart.client_group.tolist() == [0, 1, 1]
    assert [apart.train.of(k).tolist() for k in range(3)] == [[0, 2], [1], [4, 5]]
    assert [apart.valid.of(k).tolist() for k in range(3)] == [[], [], [7]]
    assert [apart.test.of(k).tolist() for k in range(3)] == [
        [3],
        [],
        [6],
    ], "of whom there are no training rows, with the first group"


def test_only_where_everybody_takes_part_and_there_are_groups(mixed: Federation):
    with pytest.raises(
        ValueError,
        match=r"with people = true every client takes part in every round; add \+full\.$",
    ):
        split_people(mixed, [*EVERYONE, *algorithms("e2fl(people=true)+uniform(clients=2)")])
    with pytest.raises(ValueError, match=r"the data have no groups of people\."):
        split_people(replace(mixed, groups=("all",), group=np.zeros(8, int)), EVERYONE)


def test_what_was_counted_of_each_group_is_added_up(mixed: Federation):
    # evaluations, splits, clients, groups, labels, outcomes
    tables = np.zeros((1, 3, 3, 1, 1, 2), int)
    tables[0, 0, :, 0, 0] = [[2, 1], [1, 0], [0, 4]]
    tables[0, 2, :, 0, 0] = [[0, 0], [5, 0], [0, 0]]
    losses = np.full((1, 3, 3), np.nan, np.float32)
    losses[0, 0], losses[0, 2, 1] = [1.0, 3.0, 0.5], 2.0
    trace = Trace(
        rounds=np.array([1]), tables=tables, losses=losses, central=np.zeros((1, 1, 1, 2)),
        choice=np.zeros((1, 3)), panel=None, cohort=np.array([[2, 0, 1]]),
        weights=np.array([[1.0, 2.0, 3.0]]), excluded=np.array([4, 5, 6]), upload=10.0,
        download=7.0, model={"a": np.array([[1.0], [2.0]])},
    )  # fmt: skip
    found = join_people(trace, np.array([0, 0, 1]), ("a", "b"))
    assert found.tables[0, 0, :, 0, 0].tolist() == [[3, 1], [0, 4]]
    assert found.losses[0, 0].tolist() == [1.5, 0.5]  # (3 * 1 + 1 * 3) / 4
    assert found.losses[0, 2, 0] == 2
    assert np.isnan(found.losses[0, 1]).all()
    assert np.isnan(found.losses[0, 2, 1])
    assert found.cohort.tolist() == [[1, 0, 0]]
    assert found.excluded.tolist() == [9, 6]
    assert (found.upload, found.download) == (
        15.0,
        7.0,
    ), "a client sends one and a half orders, and receives one"
    assert found.model["a"].tolist() == [1.0]
    assert found.choice is NO_CHOICE

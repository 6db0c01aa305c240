"""Clients that are tested on the very same rows: those are read once, and the counts are as if each
had its own.
"""

import numpy as np
import pytest

from evenly.algorithms import algorithm
from evenly.data.federation import Federation
from evenly.data.splits import Ragged
from evenly.models import MLP
from evenly.records import replace
from evenly.simulate import simulate
from evenly.simulate.measuring import device_data, evaluation_lists
from tests.federations import tiny as tiny_federation


def shared_and_apart() -> tuple[Federation, Federation]:
    """Two groups of clients, each tested on one list of rows; and the same where every client has a
    copy of those rows.
    """
    federation = tiny_federation()
    lists = [federation.test.rows[:5], federation.test.rows[5:9]]
    group = np.array([0, 1, 0, 1, 1, 0])
    shared = replace(
        federation,
        test=Ragged.from_lists([lists[g] for g in group]),
        client_group=group.astype(np.int32),
    )
    copies, at = [], len(federation.y)
    for g in group:
        copies.append(np.arange(at, at + len(lists[g])))
        at += len(lists[g])
    taken = np.concatenate([np.arange(len(federation.y)), *(lists[g] for g in group)])
    apart = replace(
        shared,
        x=federation.x[taken],
        y=federation.y[taken],
        group=federation.group[taken],
        test=Ragged.from_lists(copies),
    )
    return shared, apart


@pytest.mark.parametrize(
    "text",
    [
        "ditto",
        "ifca(groups=3)",
        *(
            pytest.param(text, marks=pytest.mark.further)
            for text in ("fedavg", "local", "e2fl", "e2fl(inference=lowest-loss)")
        ),
    ],
)
def test_counts_are_those_of_clients_with_their_own_copies(text: str):
    mlp = MLP(features=5, classes=3, hidden=(8,), bias=False)
    one, other = (
        simulate(mlp, f, [algorithm(text + "+uniform(clients=4)", batch_size=5)], 4)[0]
        for f in shared_and_apart()
    )
    np.testing.assert_array_equal(one.tables, other.tables)
    np.testing.assert_array_equal(one.central, other.central)
    np.testing.assert_allclose(one.losses, other.losses, rtol=1e-6)
    assert one.tables[-1, 2].sum() == 3 * 5 + 3 * 4


def test_shared_lists_lie_on_the_device_once():
    shared, apart = shared_and_apart()
    lists, of = evaluation_lists(shared)
    assert of is not None
    assert len(lists.counts) == 6 + 6 + 2 + 1, (
        "training, validation, two lists of test rows, the central test set"
    )
    for owner, number in enumerate(of):
        split, k = divmod(owner, 6)
        expected = (
            shared.central if split == 3 else (shared.train, shared.valid, shared.test)[split].of(k)
        )
        np.testing.assert_array_equal(lists.of(int(number)), expected)
    once, each = device_data(shared, None, 1), device_data(apart, None, 1)
    assert each.eval_rows.size - once.eval_rows.size == 2 * 5 + 2 * 4
    assert each.eval_shared is None


def test_nobody_shares_by_being_empty_or_by_overlapping():
    federation = tiny_federation()
    empty = Ragged.from_lists([np.zeros(0, int)] * 6)
    lists, of = evaluation_lists(
        replace(federation, test=empty, valid=empty, central=np.zeros(0, np.int32))
    )
    assert of is None
    assert len(lists.counts) == 19
    overlapping = Ragged.from_lists([federation.test.rows[: n + 1] for n in range(6)])
    lists, of = evaluation_lists(replace(federation, test=overlapping))
    assert of is None, "they start with the same row but differ"
    assert len(lists.counts) == 19

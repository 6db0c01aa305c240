"""Gaps within clients: which clients may be shown, and their mean."""

import numpy as np
import pytest

from evenly.auditing.estimates import NOTHING
from evenly.auditing.within import client_gaps

ENOUGH = [[20, 10], [15, 15]]  # 60 people, 25 of them selected; 15 of 30 with the favourable label
OTHERS = [[15, 25], [10, 30]]  # 80 people, 55 of them selected; 30 of 40 with the favourable label
NOBODY = [[0, 0], [0, 0]]


def seen(*clients: tuple, rest: list | None = None, gone: tuple[int, ...] = (), min_cell: int = 10):
    hidden = np.isin(np.arange(len(clients)), gone)
    return client_gaps(
        np.array(clients), np.array(rest or [NOBODY] * len(clients)), hidden, min_cell
    )


def known(found) -> list[bool]:
    return [gap.has_value for gap in found.spd]


def test_gaps_are_the_group_less_all_others_and_count_by_people():
    found = seen((ENOUGH, OTHERS), (OTHERS, ENOUGH), (ENOUGH, ENOUGH))
    gap, miss = 25 / 60 - 55 / 80, 15 / 30 - 30 / 40
    assert [each.value for each in found.spd] == pytest.approx([gap, -gap, 0])
    assert [each.value for each in found.eod] == pytest.approx([miss, -miss, 0])
    assert [each.rows for each in found.spd] == [140, 140, 120]
    assert [each.rows for each in found.eod] == [70, 70, 60]
    assert found.clients == 3
    uneven = seen((ENOUGH, OTHERS), (OTHERS, ENOUGH), (ENOUGH, OTHERS), (ENOUGH, ENOUGH)).mean
    assert uneven.value == pytest.approx((2 * 140 * gap - 140 * gap) / 540)
    assert uneven.rows == 540
    assert not uneven.has_interval


@pytest.mark.parametrize("few", [9, 10])
def test_a_client_with_few_people_on_one_side_is_hidden_with_another_that_would_tell_it(few: int):
    side = [[few, 0], [0, 0]]
    for pair in ((side, OTHERS), (OTHERS, side)):
        found = known(seen(pair, (ENOUGH, OTHERS), (OTHERS, OTHERS)))
        assert found[0] == (few == 10)
        assert (sum(found) == 3) == (few == 10)
        assert sum(found) < 2 or few == 10


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("few", [9, 10])
def test_few_people_with_one_label_hide_a_client(few: int, label: int):
    side = [[20, 20], [20, 20]]
    side[label] = [few, 0]
    assert known(seen((side, OTHERS), (ENOUGH, OTHERS), (OTHERS, OTHERS)))[0] == (few == 10)


@pytest.mark.parametrize("few", [9, 10])
def test_few_people_on_neither_side_hide_a_client(few: int):
    rest = [[[few, 0], [0, 0]], NOBODY, NOBODY]
    assert known(seen((ENOUGH, OTHERS), (ENOUGH, OTHERS), (OTHERS, OTHERS), rest=rest))[0] == (
        few == 10
    )


def test_a_client_without_anybody_on_one_side_has_no_gap():
    found = seen((NOBODY, OTHERS), (ENOUGH, OTHERS), (OTHERS, NOBODY))
    assert known(found) == [False, True, False]
    assert found.mean.value == pytest.approx(25 / 60 - 55 / 80)


def test_a_hidden_client_has_no_gap_and_does_not_count():
    found = seen(
        (ENOUGH, OTHERS), (OTHERS, ENOUGH), (OTHERS, ENOUGH), (OTHERS, OTHERS), gone=(0, 1)
    )
    assert known(found) == [False, False, True, True]
    assert found.mean.rows == 140 + 160
    nothing = seen((ENOUGH, OTHERS), gone=(0,))
    assert nothing.mean == NOTHING or np.isnan(nothing.mean.value)
    assert (nothing.clients, nothing.mean.rows) == (0, 0)


@pytest.mark.parametrize("clients", [9, 10])
def test_the_mean_of_ten_clients_has_an_interval(clients: int):
    pairs = [(ENOUGH, OTHERS) if k % 2 else (OTHERS, ENOUGH) for k in range(clients)]
    mean = seen(*pairs).mean
    assert mean.has_interval == (clients == 10)
    if mean.has_interval:
        gap = 55 / 80 - 25 / 60
        assert mean.value == pytest.approx(0, abs=1e-12)
        assert (mean.high - mean.low) / 2 == pytest.approx(1.96 * gap / np.sqrt(10), rel=0.1)
        assert mean.rows == 1400

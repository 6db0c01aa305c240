"""Groups of one column: who is compared with all others, on how many people figures rest, and who
is favoured least.
"""

from functools import partial

import numpy as np
import pytest

from evenly.auditing.hiding import column_veil
from evenly.auditing.views import (
    AGAINST,
    IMPACT,
    MOST_COMPARED,
    GroupView,
    _enough,
    add_client_gaps,
    group_view,
    intersection_view,
    overall,
)
from evenly.metrics import rates
from evenly.metrics.groups import view as of_sides

MISSING = "(missing)"


def table(
    people: int, *, favourable: int, selected: int, found: int | None = None
) -> list[list[int]]:
    """Of so many people some are labelled favourable and some selected, of these `found` with that
    label.
    """
    both = min(favourable, selected) if found is None else found
    return [[people - favourable - selected + both, selected - both], [favourable - both, both]]


def seen(
    *tables: list[list[int]],
    names: str = "abcdefgh",
    min_cell: int = 10,
    has_favourable: bool = True,
    **more,
) -> GroupView:
    units = np.array(tables)[None]
    return group_view(
        "sex",
        more.pop("named", tuple(names[: len(tables)])),
        units,
        has_favourable=has_favourable,
        min_cell=min_cell,
        veil=column_veil(units[0], min_cell),
        **more,
    )


LARGE = table(200, favourable=100, selected=120, found=80)


def test_rates_are_shares_of_those_whom_they_are_of():
    view = seen(table(100, favourable=40, selected=30, found=20), LARGE)
    found = {name: each[0].value for name, each in view.rates.items()}
    assert found == pytest.approx(
        {"accuracy": 70, "selection_rate": 30, "tpr": 50, "fpr": 100 / 6, "base_rate": 40}
    )
    behind = {name: each[0].rows for name, each in view.rates.items()}
    assert behind == {
        "accuracy": 100,
        "selection_rate": 100,
        "tpr": 40,
        "fpr": 60,
        "base_rate": 100,
    }
    for each in view.rates.values():
        assert 0 < each[0].low < each[0].value < each[0].high < 100
    assert view.rows.tolist() == [100, 200]


@pytest.mark.parametrize("people", [9, 10])
def test_a_side_needs_as_many_people_as_a_figure_must_rest_on(people: int):
    small, other = table(people, favourable=0, selected=4), table(300, favourable=0, selected=100)
    both = seen(small, other)
    assert [gap.has_value for gap in both.against["spd"]] == [people == 10] * 2
    # nobody has the favourable label
    assert [gap.has_value for gap in both.against["eod"]] == [False] * 2
    assert both.rows.tolist() == ([10, 300] if people == 10 else [0, 0])


@pytest.mark.parametrize("labelled", [9, 10])
def test_a_side_needs_as_many_people_with_the_label_that_a_gap_is_of(labelled: int):
    few, many = table(100, favourable=labelled, selected=20), table(100, favourable=50, selected=40)
    known = {name: gaps[0].has_value for name, gaps in seen(few, many, many).against.items()}
    enough = labelled == 10
    assert known == {
        "spd": True,
        "impact_ratio": True,
        "eod": enough,
        "aod": enough,
        "odds_diff": enough,
        "acc_diff": enough,
        # the people with the other label follow from the total, so they are hidden as well
        "fpr_diff": enough,
    }
    reverse = table(100, favourable=100 - labelled, selected=20)
    assert seen(reverse, many, many).against["aod"][0].has_value == enough


def test_gaps_are_the_group_less_all_others_with_the_groups_rows():
    view = seen(
        table(100, favourable=40, selected=30, found=20),
        LARGE,
        table(50, favourable=20, selected=10, found=5),
    )
    gap = view.against["spd"][0]
    assert gap.value == pytest.approx(30 / 100 - 130 / 250)
    assert gap.rows == 100
    assert gap.low < gap.value < gap.high
    assert view.against["eod"][1].value == pytest.approx(80 / 100 - 25 / 60)
    assert view.against["impact_ratio"][2].value == pytest.approx((10 / 50) / (150 / 300))


def test_nobody_selected_among_all_others_leaves_the_ratio_open():
    tables = np.array([table(50, favourable=20, selected=10), table(50, favourable=20, selected=0)])
    ratios = [
        float(IMPACT.function(of_sides(tables, favourable=1, unprivileged=(g,)))) for g in (0, 1)
    ]
    assert np.isnan(ratios[0])
    assert ratios[1] == 0
    assert not seen(*tables.tolist()).against["impact_ratio"][0].has_value
    assert seen(*tables.tolist()).against["spd"][0].value == pytest.approx(0.2)
    assert AGAINST["impact_ratio"].better == 0


def test_the_largest_groups_are_compared_and_the_unprivileged_in_any_case():
    groups = MOST_COMPARED + 3
    sizes = [table(20 + g, favourable=10, selected=5) for g in range(groups)]
    names = tuple(f"g{g}" for g in range(groups))
    gaps = seen(*sizes, named=names, min_cell=0, unprivileged=1).against["spd"]
    assert [g for g, gap in enumerate(gaps) if gap.has_value] == [1, *range(3, groups)]


def test_people_without_a_value_are_on_neither_side():
    tables = table(60, favourable=30, selected=10), LARGE, table(40, favourable=20, selected=40)
    view = seen(*tables, named=("a", "b", MISSING))
    assert [gap.has_value for gap in view.against["spd"]] == [True, True, False]
    assert view.against["spd"][0].value == pytest.approx(10 / 60 - 120 / 200)
    assert view.ranges["spd_range"].value == pytest.approx(120 / 200 - 10 / 60)
    assert view.ranges["spd_range"].rows == 260
    assert view.unprivileged == 0
    assert view.by_default
    lowest = seen(LARGE, tables[0], table(40, favourable=20, selected=0), named=("a", "b", MISSING))
    assert lowest.unprivileged == 1  # nobody without a value is selected, but that is no group


def test_ranges_rest_on_the_groups_that_are_shown():
    tables = (
        LARGE,
        table(100, favourable=50, selected=20),
        table(4, favourable=2, selected=2),
        table(40, favourable=20, selected=40),
    )
    view = seen(*tables)
    assert view.veil.groups.cells.tolist() == [False, False, True, True]
    assert view.rows.tolist() == [200, 100, 0, 0]
    assert view.ranges["spd_range"].value == pytest.approx(0.6 - 0.2)
    assert view.ranges["spd_range"].rows == 300
    assert view.ranges["worst_accuracy"].value == pytest.approx(100 * min(140, 70) / 100)
    units, compared = np.array(tables)[None], np.array([True, False, True, True])
    crossed = intersection_view(
        "both", tuple("abcd"), units, has_favourable=True, veil=view.veil, compared=compared
    )
    assert crossed.rows.tolist() == [200, 100, 0, 0]
    assert crossed.ranges["worst_selection"].value == pytest.approx(60)
    assert crossed.ranges["worst_selection"].rows == 200
    assert crossed.against == {}
    assert (crossed.unprivileged, crossed.by_default) == (None, False)


def test_without_a_favourable_label_only_accuracy_is_compared_and_decides_who_is_unprivileged():
    right, wrong = [[80, 20], [0, 0]], [[60, 40], [0, 0]]
    view = seen(right, wrong, has_favourable=False)
    assert set(view.rates) == {"accuracy"}
    assert set(view.against) == {"acc_diff"}
    assert set(view.ranges) == {"acc_range", "worst_accuracy"}
    assert view.unprivileged == 1
    assert view.against["acc_diff"][1].value == pytest.approx(-0.2)
    units = np.array([right, wrong])[None]
    assert add_client_gaps(view, units, np.zeros(1, bool), 10) is view


def test_the_least_favoured_is_the_largest_where_no_rate_is_shown():
    small = seen(
        table(4, favourable=2, selected=1),
        table(8, favourable=4, selected=3),
        table(7, favourable=2, selected=2),
    )
    assert small.unprivileged == 1
    largest_has_none = seen(
        table(4, favourable=2, selected=1),
        table(5, favourable=2, selected=1),
        LARGE,
        named=("a", "b", MISSING),
    )
    assert largest_has_none.unprivileged == 1


def test_who_is_named_is_unprivileged_whatever_the_rates_are():
    view = seen(LARGE, table(100, favourable=40, selected=10), unprivileged=0)
    assert (view.unprivileged, view.by_default) == (0, False)


def test_rates_of_few_people_are_counted():
    # 20 and 10 people with each label, below 30
    view = seen(table(30, favourable=20, selected=20), LARGE)
    assert view.few(30) == 2
    assert view.few(20) == 1
    assert view.few(31) == 5


def test_everybody_together_has_every_rate():
    units = np.array([[LARGE], [table(100, favourable=50, selected=20)]])
    found = overall(units, has_favourable=True, min_cell=10)
    expected = rates(units.sum((0, 1))[None], 1)
    for name in ("accuracy", "selection_rate", "tpr", "fpr", "base_rate"):
        assert found[name].value == pytest.approx(100 * getattr(expected, name)[0])
    assert set(overall(units, has_favourable=False, min_cell=10)) == {"accuracy"}


def test_gaps_within_clients_are_of_the_unprivileged_against_those_with_a_value():
    one, two = table(60, favourable=30, selected=10), table(80, favourable=40, selected=60)
    none, third = table(40, favourable=20, selected=40), table(50, favourable=25, selected=20)
    units = np.array([[none, third, one, two], [none, third, two, one]])
    names = (MISSING, "a", "b", "c")
    make = partial(
        group_view,
        "sex",
        names,
        units,
        has_favourable=True,
        min_cell=10,
        veil=column_veil(units.sum(0), 10),
    )
    found = add_client_gaps(make(unprivileged=2), units, np.zeros(2, bool), 10).client_gaps
    assert found is not None
    assert found.spd[0].value == pytest.approx(10 / 60 - 80 / 130)
    assert found.spd[1].value == pytest.approx(60 / 80 - 30 / 110)
    assert [gap.rows for gap in found.spd] == [190, 190]
    assert found.mean.value == pytest.approx((found.spd[0].value + found.spd[1].value) / 2)
    assert found.mean.rows == 380
    hidden = add_client_gaps(make(unprivileged=2), units, np.array([True, False]), 10).client_gaps
    assert hidden is not None
    assert not hidden.spd[0].has_value


@pytest.mark.parametrize(
    ("metric", "fewest"),
    [
        ("spd", [9, 1]),
        ("acc_diff", [9, 1]),
        ("eod", [0, 10]),
        ("aod", [10, 10]),
        ("odds_diff", [10, 10]),
    ],
)
def test_both_sides_need_enough_people_with_the_labels_that_a_metric_rests_on(
    metric: str, fewest: list[int]
):
    """`fewest` are the smallest numbers of people without and with the favourable label on one
    side.
    """
    others = [50, 50]
    for pair in ([fewest, others], [others, fewest]):
        assert _enough(np.array(pair), metric, 10)
    for label in np.flatnonzero(fewest):
        fewer = [count - (i == label) for i, count in enumerate(fewest)]
        for pair in ([fewer, others], [others, fewer]):
            assert not _enough(np.array(pair), metric, 10)


def test_few_people_without_a_value_hide_the_gap_of_their_client():
    """Five people of the first client have no value. Its gap is hidden, and one more, so that the
    total does not reveal them.
    """
    units = np.full((3, 3, 2, 2), 30)
    units[0, 2] = [[3, 0], [2, 0]]
    names = ("f", "m", MISSING)
    view = group_view(
        "sex",
        names,
        units,
        has_favourable=True,
        min_cell=10,
        veil=column_veil(units.sum(0), 10),
        unprivileged=0,
    )
    gaps = add_client_gaps(view, units, np.zeros(3, bool), 10).client_gaps
    assert gaps is not None
    assert not gaps.spd[0].has_value
    assert gaps.clients == 1

"""What is hidden of groups, of their intersections and within clients: on tables small enough to be
worked out by hand.
"""

import numpy as np
import pandas as pd
import pytest

import evenly
from evenly.auditing.hiding import (
    Gap,
    HiddenClients,
    Veil,
    Veils,
    column_veil,
    gaps_expose,
    label_counts,
    veils,
    visible_rates,
)
from evenly.data.sensitive import Attribute
from evenly.report.disclosure import Hidden, hide

LEAST = 10


def test_each_rate_is_shown_where_those_whom_it_is_of_are():
    groups, labels = (
        np.array([False, False, False, True]),
        np.array([[False, False], [True, False], [False, True], [True, True]]),
    )
    own = Veil(Hidden(groups, groups, {}), Hidden(labels, labels, {}))
    both, group = [True, False, False, False], [True, True, True, False]
    assert {name: mask.tolist() for name, mask in visible_rates(own, True).items()} == {
        "accuracy": both,
        "selection_rate": group,
        "tpr": [True, True, False, False],
        "fpr": [True, False, True, False],
        "base_rate": both,
    }
    assert {name: mask.tolist() for name, mask in visible_rates(own, False).items()} == {
        "accuracy": group
    }
    assert own.both_labels.tolist() == both
    hidden = Veil(
        Hidden(np.ones(1, bool), np.ones(1, bool), {}),
        Hidden(np.zeros((1, 2), bool), np.zeros((1, 2), bool), {}),
    )
    assert not any(mask.any() for mask in visible_rates(hidden, True).values())


def test_people_are_counted_by_label_in_tables_of_any_shape():
    tables = np.arange(2 * 3 * 3 * 3).reshape(2, 3, 3, 3)
    found = label_counts(tables)
    assert found.shape == (2, 3, 2)
    assert found[1, 2].tolist() == [tables[1, 2, [0, 2]].sum(), tables[1, 2, 1].sum()]


def test_what_is_hidden_in_any_case_is_hidden_with_both_labels():
    found = column_veil(np.full((4, 2, 2), 50), LEAST, np.array([True, True, False, False]))
    assert found.groups.cells.tolist() == [True, True, False, False]
    assert found.labels.cells.tolist() == [
        [True, True],
        [True, True],
        [False, False],
        [False, False],
    ]
    assert not found.groups.small.any()
    assert not column_veil(np.full((4, 2, 2), 50), LEAST).groups.any


def test_a_group_whose_small_counts_would_follow_is_hidden_entirely():
    """Nobody is selected, so that accuracy and rates tell labels: hiding the labels of the third
    group alone is not enough.
    """
    column = Attribute("sex", ("x", "y", "z"), (0, 1, 2))
    tables = np.array([[[10, 0], [0, 0]], [[0, 0], [13, 0]], [[9, 0], [3, 0]]])
    assert not column_veil(tables, LEAST).groups.any
    found = veils(tables, (column,), LEAST, has_favourable=True)
    assert found.columns[0].groups.cells.tolist() == [True, False, True]
    assert found.intersections is None
    assert not found.solvable
    assert (
        veils(np.full((3, 2, 2), 20), (column,), LEAST, has_favourable=True)
        .columns[0]
        .labels.cells.sum()
        == 0
    )


def two_columns(seed: int) -> tuple[np.ndarray, tuple[Attribute, Attribute], bool]:
    """Random people by two columns, many of them in small cells, and whether there is a favourable
    label.
    """
    draw = np.random.default_rng(seed)
    first, second = (int(n) for n in draw.integers((2, 2), (4, 5)))
    people = draw.integers(0, draw.choice([6, 15, 30]), (first * second, 2, 2))
    if seed % 2:  # always right
        people[:, 0, 1] = people[:, 1, 0] = 0
    people[draw.random(len(people)) < 0.15] = 0
    kept = people.sum((1, 2)) > 0
    places = [
        np.unique(place[kept], return_inverse=True)
        for place in np.divmod(np.arange(len(people)), second)
    ]
    columns = [
        Attribute(name, tuple(map(str, used)), tuple(map(int, of)))
        for name, (used, of) in zip("ab", places, strict=True)
    ]
    return people[kept], (columns[0], columns[1]), seed % 5 != 0


def test_the_gaps_within_clients_are_weighed_with_the_rates_of_a_client():
    """All men with the favourable label are of the first client. So those of the second are women,
    two of them: who knows how many have this label there knows that, once the women of the first
    are told apart by their gap.
    """
    units = np.array(
        [
            [[[20, 10], [10, 20]], [[20, 10], [10, 30]]],
            [[[10, 10], [1, 1]], [[10, 10], [0, 0]]],
            [[[10, 10], [3, 3]], [[10, 10], [0, 0]]],
        ]
    )
    sex, own = Attribute("sex", ("f", "m"), (0, 1)), np.array([True, False])
    single, nobody = column_veil(units.sum(0), 4), hide(units.sum((1, 2, 3)), 4, sums=[0])
    assert not single.labels.any

    def exposed(shown: list[int], rated: tuple[int, ...] = ()) -> bool:
        gap = Gap(own, ~own, np.isin(np.arange(3), shown))
        return gaps_expose(
            units,
            (sex,),
            Veils((single,)),
            clients=HiddenClients(nobody, rated),
            gaps=[gap],
            min_cell=4,
        )

    assert [exposed([0], rated) for rated in ((), (0,), (1,), (2,))] == [False, False, True, True]
    assert exposed([1])  # the gap itself tells the two women
    assert not exposed([2])
    assert not exposed([], (1,))


@pytest.mark.parametrize(("right", "told"), [(False, True), (True, False)])
def test_gaps_within_clients_are_left_out_where_the_rates_of_the_worst_client_would_tell_few_people(
    right: bool, told: bool
):
    """The two women with the favourable label at k2 are all who are left beside those at k1, if k1
    is the client whose rates are shown.
    """
    first = (
        [[[40, 20], [20, 40]], [[40, 20], [20, 60]]]
        if right
        else [[[20, 40], [40, 20]], [[20, 40], [60, 20]]]
    )
    people = np.array(
        [first, [[[30, 30], [8, 12]], [[30, 30], [0, 0]]], [[[40, 20], [0, 2]], [[40, 20], [0, 0]]]]
    )
    rows = [
        (f"k{k}", "fm"[g], y, p)
        for k, g, y, p in np.ndindex(people.shape)
        for _ in range(people[k, g, y, p])
    ]
    frame = pd.DataFrame(rows, columns=["site", "sex", "y", "p"])
    found = evenly.audit(
        frame, label="y", prediction="p", client="site", sensitive="sex", unprivileged="f"
    )
    assert found.clients is not None
    assert found.clients.worst_first()[0] == (1 if right else 0)
    assert (found.groups[0].client_gaps is not None) == told


@pytest.mark.parametrize(
    ("seed", "single", "both"),
    [
        (2, [(0, 6), (0, 4)], (6, 12)),
        (3, [(3, 6), (2, 4)], (5, 9)),
        (17, [(3, 6), (4, 8)], (12, 19)),
        (23, [(0, 0), (3, 8)], (6, 11)),
        (33, [(0, 0), (2, 4)], (8, 14)),
        (158, [(0, 4), (2, 8)], None),  # no way of hiding intersections is enough, so none is shown
    ],
)
def test_as_much_is_shown_as_was(
    seed: int, single: list[tuple[int, int]], both: tuple[int, int] | None
):
    """That nothing follows is tested elsewhere. Here hidden groups and labels are counted as they
    are known to be enough, so that a change which hides more, and takes figures from everybody, is
    noticed.
    """
    tables, columns, has_favourable = two_columns(seed)
    found = veils(tables, columns, LEAST, has_favourable=has_favourable)
    hidden = [
        (int(own.groups.cells.sum()), int(own.labels.cells.sum()))
        for own in (*found.columns, *filter(None, [found.intersections]))
    ]
    assert hidden == [*single, *([both] if both else [])]
    assert found.solvable == (both is None)

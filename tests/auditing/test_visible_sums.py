"""Which sums the integer program is given: the counts that visible figures amount to, and the small
counts that must stay secret.

The expected sums are sets of (client, group, label, outcome), collected by plain loops over every
combination.
"""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from evenly.auditing import hiding
from evenly.auditing.hiding import Gap, HiddenClients, Veil, Veils, gaps_expose, veils
from evenly.data.sensitive import Attribute
from evenly.report.disclosure import Hidden

COUNTS: dict[str, Callable[[int, int], bool]] = {
    "rows": lambda y, p: True,
    "right": lambda y, p: y == p,
    "selected": lambda y, p: p == 1,
    "labelled": lambda y, p: y == 1,
    "otherwise": lambda y, p: y != 1,
    "true positives": lambda y, p: y == 1 and p == 1,
    "false positives": lambda y, p: y != 1 and p == 1,
}
BY_LABEL = {"tpr": ("true positives", "labelled"), "fpr": ("false positives", "otherwise")}
SEX, RACE = Attribute("sex", ("f", "m"), (0, 0, 1, 1)), Attribute("race", ("a", "b"), (0, 1, 0, 1))
FEW = 4


def hidden(cells: list, small: list | None = None) -> Hidden:
    return Hidden(np.array(cells, bool), np.array(cells if small is None else small, bool), {})


def group_counts(veil: Veil, g: int) -> list[str]:
    """The counts that the visible rates of a group amount to."""
    if veil.groups.cells[g]:
        return []
    unfavourable, favourable = (not gone for gone in veil.labels.cells[g])
    counts = ["selected", "rows"]
    counts += ["right", "labelled"] if unfavourable and favourable else []
    counts += BY_LABEL["tpr"] if favourable else []
    return counts + list(BY_LABEL["fpr"] if unfavourable else ())


def small_counts(veil: Veil, g: int) -> list[str]:
    small = zip(
        ("rows", "otherwise", "labelled"),
        (veil.groups.small[g], *veil.labels.small[g]),
        strict=True,
    )
    return [name for name, is_small in small if is_small]


class Recorder:
    """Stands in for `recoverable`: records its arguments as sets of people and answers as the test
    wishes.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        cells: list[tuple],
        kinds: int,
        answer: Callable[[frozenset], bool],
    ):
        self.cells, self.kinds, self.answer, self.calls = cells, kinds, answer, []
        monkeypatch.setattr(hiding, "recoverable", self)

    def __call__(self, counts, visible, secrets, occupied):
        sets = [[self.people(each) for each in sums] for sums in (visible, secrets)]
        self.calls.append(
            SimpleNamespace(counts=counts, visible=set(sets[0]), secrets=sets[1], occupied=occupied)
        )
        return [self.answer(secret) for secret in sets[1]]

    def people(self, of: hiding.Sum) -> frozenset:
        kinds = [divmod(int(kind), self.kinds) for kind in np.flatnonzero(of.kinds)]
        return frozenset(
            (*self.cells[cell], *kind) for cell in np.flatnonzero(of.cells) for kind in kinds
        )


def clients_and_groups() -> np.ndarray:
    """People of four clients by four groups, three labels and three outcomes; two groups have
    nobody in some clients.
    """
    units = np.random.default_rng(3).integers(0, 3, (4, 4, 3, 3))
    units[0, 1] = units[2, 3] = 0
    units[1, :2, 1] = 0  # women of the second client: none with the favourable label
    units[3, :2, 1] = [[1, 1, 0], [1, 1, 0]]  # as many as are enough
    units[0, 2:, 1] = [[1, 0, 0], [1, 1, 0]]  # one fewer
    return units


def test_gaps_are_checked_with_all_that_is_visible(monkeypatch: pytest.MonkeyPatch):
    units = clients_and_groups()
    sexes = Veil(hidden([0, 0]), hidden([[0, 0], [1, 0]], [[0, 0], [0, 0]]))
    races = Veil(hidden([0, 1], [0, 1]), hidden([[0, 1], [1, 1]], [[0, 1], [0, 1]]))
    crossing = Veil(
        hidden([0, 1, 0, 1], [0, 0, 0, 1]),
        hidden([[0, 0], [1, 1], [1, 0], [1, 1]], [[0, 0], [0, 1], [1, 0], [0, 0]]),
    )
    clients = HiddenClients(hidden([0, 1, 1, 0], [0, 1, 0, 0]), rated=(3,))
    women = np.array([True, True, False, False])
    gaps = [
        Gap(women, ~women, np.array([True, False, False, True])),
        Gap(np.arange(4) == 2, np.arange(4) % 2 == 1, np.arange(4) == 3),
    ]
    cells = [(k, g) for k, g in np.ndindex(4, 4) if units[k, g].sum()]
    people = [(*cell, y, p) for cell in cells for y, p in np.ndindex(3, 3)]

    def those(name: str, member: Callable[[int, int], bool]) -> frozenset:
        return frozenset(
            (k, g, y, p) for k, g, y, p in people if member(k, g) and COUNTS[name](y, p)
        )

    def number(of: frozenset) -> int:
        return sum(int(units[each]) for each in of)

    for both in (crossing, None):
        seen = Recorder(monkeypatch, cells, 3, lambda secret: False)
        assert not gaps_expose(
            units,
            (SEX, RACE),
            Veils((sexes, races), both),
            clients=clients,
            gaps=gaps,
            min_cell=FEW,
        )
        visible = {those(name, lambda k, g: True) for name in COUNTS}
        secrets = []
        groupings = [
            (SEX.of_group, sexes),
            (RACE.of_group, races),
            *([((0, 1, 2, 3), both)] if both else []),
        ]
        for of_group, veil in groupings:
            for value in range(len(veil.groups.cells)):
                member = lambda k, g, of_group=of_group, value=value: of_group[g] == value  # noqa: E731
                visible |= {those(name, member) for name in group_counts(veil, value)}
                secrets += [those(name, member) for name in small_counts(veil, value)]
        visible |= {
            those(name, lambda k, g, own=own: k == own)
            for own in (0, 3)
            for name in ("right", "rows")
        }
        visible |= {
            those(name, lambda k, g: k == 3)
            for name in ("labelled", "true positives", "false positives")
        }
        secrets.append(those("rows", lambda k, g: k == 1))
        sizes = []
        for gap in gaps:
            for side in (gap.group, gap.others):
                for own in range(4):
                    member = lambda k, g, side=side, own=own: k == own and bool(side[g])  # noqa: E731
                    if gap.clients[own]:
                        visible |= {
                            those(name, member)
                            for name in ("rows", "selected", "labelled", "true positives")
                        }
                    parts = [those(name, member) for name in ("rows", "labelled", "otherwise")]
                    secrets += [part for part in parts if number(part) in range(1, FEW)]
                    sizes += map(number, parts)
        assert {0, FEW - 1, FEW} <= set(sizes)
        (call,) = seen.calls
        assert call.visible == visible
        assert sorted(map(sorted, call.secrets)) == sorted(map(sorted, secrets))
        assert call.counts.tolist() == [units[cell].ravel().tolist() for cell in cells]
        assert call.occupied.tolist() == [g if both else 0 for _, g in cells]


def test_one_recoverable_count_is_enough_and_many_cells_are_not_checked(
    monkeypatch: pytest.MonkeyPatch,
):
    units = clients_and_groups()
    women, nobody = np.array([True, True, False, False]), HiddenClients(hidden([0] * 4))
    plain = Veils((Veil(hidden([0, 0]), hidden([[0, 0], [0, 0]])),))
    cells = [(k, g) for k, g in np.ndindex(4, 4) if units[k, g].sum()]
    # of the first client: three have the label
    men = frozenset((0, 2, 1, p) for p in range(3)) | {(0, 3, 1, p) for p in range(3)}

    def exposed(secret: frozenset | None, clients: list[int], most: int = 14) -> bool:
        monkeypatch.setattr(hiding, "MOST_INFERRED_CELLS", most)
        Recorder(monkeypatch, cells, 3, lambda each: each == secret)
        gap = Gap(women, ~women, np.isin(np.arange(4), clients))
        return gaps_expose(units, (SEX,), plain, clients=nobody, gaps=[gap], min_cell=FEW)

    assert len(cells) == 14
    assert exposed(men, [3])
    assert not exposed(None, [3])
    assert not exposed(men, [])
    assert not exposed(men, [3], most=13)


@pytest.mark.parametrize("has_favourable", [True, False])
def test_only_cells_with_hidden_counts_are_checked(
    has_favourable: bool, monkeypatch: pytest.MonkeyPatch
):
    tables = np.random.default_rng(0).integers(1, 9, (4, 2, 2))
    sexes = Veil(hidden([0, 1], [0, 1]), hidden([[0, 0], [1, 1]], [[0, 0], [1, 0]]))
    crossing = Veil(
        hidden([0, 1, 0, 1], [0, 1, 0, 0]),
        hidden([[0, 0], [1, 1], [0, 1], [1, 1]], [[0, 0], [0, 0], [0, 1], [0, 0]]),
    )
    views = [
        hiding._Grouping(np.array(SEX.of_group), sexes),
        hiding._Grouping(np.arange(4), crossing),
    ]
    cells = [(0, g) for g in ((1, 2, 3) if has_favourable else (1, 3))]
    everybody = [
        frozenset((0, g, y, p) for _, g in cells for y, p in np.ndindex(2, 2) if COUNTS[name](y, p))
        for name in COUNTS
    ]
    for occupied in (True, False):
        seen = Recorder(monkeypatch, cells, 2, lambda secret: True)
        exposed = hiding._exposed(tables, views, has_favourable, occupied=occupied)
        by_label = [[False, True], [False, True, True, False]]
        by_rows = [[False, True], [False, True, False, False]]
        assert [each.tolist() for each in exposed] == (by_label if has_favourable else by_rows)
        (call,) = seen.calls
        assert call.counts.tolist() == [tables[g].ravel().tolist() for _, g in cells]
        assert call.occupied.tolist() == [i if occupied else 0 for i in range(len(cells))]
        assert set(everybody if has_favourable else everybody[:2]) <= call.visible
    Recorder(
        monkeypatch,
        cells,
        2,
        lambda secret: secret == frozenset((0, 1, y, p) for y, p in np.ndindex(2, 2)),
    )
    assert [each.tolist() for each in hiding._exposed(tables, views, has_favourable)] == [
        [False, False],
        [False, True, False, False],
    ]


# Where hiding single groups is not enough


def test_columns_hide_their_labels_where_they_alone_expose_a_small_intersection(
    monkeypatch: pytest.MonkeyPatch,
):
    """Four women of race b have an error that only one value of each column makes, so the columns
    tell how many there are.
    """
    exposing = np.array(
        [[[0, 15], [12, 13]], [[13, 0], [5, 5]], [[0, 10], [0, 10]], [[5, 0], [17, 4]]]
    )

    def labels_hidden(tables: np.ndarray, *, has_favourable: bool = True) -> list[bool]:
        answer = veils(tables, (SEX, RACE), 10, has_favourable=has_favourable)
        assert answer.intersections is None
        assert answer.solvable
        assert not any(veil.groups.any for veil in answer.columns)
        return [bool(veil.labels.cells.all()) for veil in answer.columns]

    assert labels_hidden(exposing) == [True, True]
    monkeypatch.setattr(hiding, "_veil_together", lambda *_: None)
    assert labels_hidden(exposing) == [True, True]
    assert labels_hidden(exposing, has_favourable=False) == [False, False]
    assert labels_hidden(np.full((4, 2, 2), 50)) == [False, False]
    monkeypatch.setattr(hiding, "MOST_INFERRED_CELLS", 4)
    assert labels_hidden(exposing) == [True, True]
    monkeypatch.setattr(hiding, "MOST_INFERRED_CELLS", 3)
    assert labels_hidden(exposing) == [False, False]


def test_one_column_and_columns_of_too_many_combinations_are_never_crossed(
    monkeypatch: pytest.MonkeyPatch,
):
    tables = np.full((4, 2, 2), 50)
    assert veils(tables, (SEX, RACE), 10, has_favourable=True).intersections is not None
    alone = veils(tables, (SEX,), 10, has_favourable=True)
    monkeypatch.setattr(hiding, "MOST_CELLS", 3)
    many = veils(tables, (SEX, RACE), 10, has_favourable=True)
    assert [(each.intersections, each.solvable) for each in (alone, many)] == [(None, False)] * 2


def test_groups_with_one_hidden_label_are_hidden_entirely_where_hidden_groups_are_exposed(
    monkeypatch: pytest.MonkeyPatch,
):
    """The first pass exposes only a group that is hidden already, so the next one hides the groups
    with a hidden label.
    """
    tables, passes = np.full((9, 2, 2), 50), []
    tables[0] = [[2, 1], [1, 1]]  # five people
    tables[8, 1] = [3, 2]  # five people with the favourable label
    first, second = (
        Attribute(name, ("a", "b", "c"), of)
        for name, of in (("x", (0, 0, 0, 1, 1, 1, 2, 2, 2)), ("y", (0, 1, 2) * 3))
    )

    def exposed(tables, views, has_favourable):
        passes.append(views[-1].veil)
        masks = [np.zeros(len(view.veil.groups.cells), bool) for view in views]
        masks[-1][0] = len(passes) == 1
        return masks

    monkeypatch.setattr(hiding, "_exposed", exposed)
    answer = veils(tables, (first, second), 10, has_favourable=True)
    before, after = passes
    partly = ~before.both_labels & ~before.groups.cells
    assert before.groups.cells[0]
    assert partly[8]
    assert answer.intersections is after
    assert after.groups.cells[partly].all()
    assert not any(veil.groups.any for veil in answer.columns)


def test_intersections_are_left_out_where_every_group_that_could_help_is_hidden(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(
        hiding,
        "_exposed",
        lambda tables, views, *_, **__: [
            np.ones(len(view.veil.groups.cells), bool) for view in views
        ],
    )
    tables = np.full((4, 2, 2), 50)
    assert hiding._veil_together(tables, (SEX, RACE), 10, True) is None
    assert hiding._veil_alone(tables, 10, True).groups.cells.all()


def test_groups_that_are_not_shown_keep_their_small_counts_secret():
    tables = np.array([[[9, 1], [3, 0]], [[4, 5], [10, 0]], [[1, 0], [2, 3]]])
    view = hiding._invisible(tables, 10)
    assert view.group.tolist() == [0, 1, 2]
    assert view.veil.groups.cells.all()
    assert view.veil.labels.cells.all()
    assert view.veil.groups.small.tolist() == [False, False, True]
    assert view.veil.labels.small.tolist() == [[False, True], [True, False], [True, True]]

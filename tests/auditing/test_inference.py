"""No small count that an audit hides can be worked out from what it shows: integer programming
finds several answers for each.
"""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.optimize

import evenly
from evenly.auditing import hiding
from evenly.auditing.hiding import MOST_INFERRED_CELLS, Sum, recoverable, veils
from evenly.data.sensitive import Attribute
from tests.auditing.attack import Attack, Bound

LEAST = 10
COLUMNS = ["sex", "race"]


def hostile(seed: int) -> pd.DataFrame:
    """A random table of few people, many of them in small groups: rare labels, models that select
    nobody or are always right.
    """
    draw = np.random.default_rng(seed)
    rows, sexes, races = draw.integers(60, 400), draw.integers(2, 4), draw.integers(2, 5)
    sex, race = (
        draw.choice(size, rows, p=draw.dirichlet(np.full(size, 2))) for size in (sexes, races)
    )
    rare, right = draw.beta(1, 2) * draw.uniform(0.3, 1, sexes), draw.uniform(0.5, 1.1)
    label = (draw.random(rows) < rare[sex]).astype(int)
    label[:2] = 0, 1
    chosen = np.where(draw.random(rows) < right, label, 1 - label)
    chosen = (
        np.where(race == 0, 0, chosen)
        if seed % 4 == 0
        else chosen * (draw.random(rows) < 0.2)
        if seed % 4 == 1
        else chosen
    )
    frame = pd.DataFrame(
        {"sex": [f"s{i}" for i in sex], "race": [f"r{i}" for i in race], "y": label, "p": chosen}
    )
    if seed % 3 == 0:
        frame.loc[draw.random(rows) < 0.08, "race"] = None
    return frame.assign(site=[f"k{i}" for i in draw.integers(0, draw.integers(2, 7), rows)])


def attacked(seed: int) -> list[Bound]:
    frame, client = hostile(seed), "site" if seed % 2 else None
    found = evenly.audit(
        frame, label="y", prediction="p", sensitive=COLUMNS, client=client, min_cell=LEAST
    )
    return Attack(frame, COLUMNS, client, found.table).run(LEAST)


@pytest.mark.parametrize("seed", [3, 4, 5, 7, 11, 13])
def test_integer_programming_recovers_no_small_count(seed: int):
    """In each of these tables some were recovered while accuracy and selection rate stood beside
    hidden label counts.
    """
    bounds = attacked(seed)
    assert bounds
    assert not [bound for bound in bounds if bound.recovered]


@pytest.mark.slow
def test_integer_programming_recovers_no_small_count_of_many_tables():
    bounds = [bound for seed in range(100, 190) for bound in attacked(seed)]
    assert len(bounds) > 500
    assert not [bound for bound in bounds if bound.recovered]


def test_the_attack_finds_what_is_given_away():
    """With every figure shown, most small counts are known: an attack that found none would prove
    nothing.
    """
    frame = hostile(5)
    found = evenly.audit(frame, label="y", prediction="p", sensitive=COLUMNS, min_cell=0)
    bounds = Attack(frame, COLUMNS, None, found.table).run(LEAST)
    assert sum(bound.recovered for bound in bounds) > len(bounds) / 2


def test_a_group_of_which_nobody_is_selected_does_not_tell_its_labels_by_its_errors():
    rows = (
        [("f", 0, 0)] * 40
        + [("f", 1, 0)] * 4
        + [("m", 0, 0)] * 30
        + [("m", 1, 0)] * 8
        + [("x", 0, 1)] * 20
        + [("x", 1, 1)] * 20
    )
    frame = pd.DataFrame(rows, columns=["sex", "y", "p"])
    view = evenly.audit(frame, label="y", prediction="p", sensitive="sex").groups[0]
    f = view.names.index("f")
    # 40 of 44 right, none selected: four have the favourable label
    assert not view.rates["accuracy"][f].has_value
    assert not view.against["acc_diff"][f].has_value
    assert view.rates["selection_rate"][f].value == 0


def test_what_is_hidden_of_a_column_does_not_follow_from_its_intersections():
    """The label counts of a value that is hidden for another's sake are hidden in all of its
    intersections.
    """
    draw = np.random.default_rng(1)
    sex, race = (
        Attribute(name, ("a", "b", "c"), of)
        for name, of in (("sex", (0, 0, 0, 1, 1, 1, 2, 2, 2)), ("race", (0, 1, 2) * 3))
    )
    tables = draw.integers(15, 40, (9, 2, 2))
    tables[:3, 1] = [[1, 1], [1, 0], [0, 1]]  # four people with sex a have the favourable label
    found = veils(tables, (sex, race), LEAST, has_favourable=True)
    hidden = np.flatnonzero(found.columns[0].labels.cells[:, 1])
    assert len(hidden) > 1
    assert found.intersections is not None
    assert found.intersections.labels.cells[np.isin(sex.of_group, hidden), 1].all()


def test_too_few_people_with_one_label_leave_accuracy_only():
    frame = pd.DataFrame({"sex": ["f", "m"] * 100, "y": [1] * 6 + [0] * 194, "p": [0, 1] * 100})
    found = evenly.audit(frame, label="y", prediction="p", sensitive="sex")
    assert set(found.table["metric"]) <= {"accuracy", "acc_diff", "acc_range", "worst_accuracy"}
    assert any("Fewer than 10 people have the label “1”" in warning for warning in found.warnings)


def test_scores_of_0_and_1_do_not_tell_hidden_labels():
    """The mean of such scores is the selection rate, so their bias would tell how many people have
    the favourable label.
    """
    frame = hostile(7).assign(s=lambda table: table["p"])
    found = evenly.audit(frame, label="y", prediction="p", score="s", sensitive=COLUMNS)
    for view in (*found.groups, *([found.intersections] if found.intersections else [])):
        hidden = view.veil.labels.cells.any(-1)
        assert not any(
            view.scores[name][g].has_value
            for name in ("auc", "ece", "bias")
            for g in np.flatnonzero(hidden)
        )


def test_more_cells_than_can_be_solved_count_as_recovered():
    counts, all_kinds = np.ones((MOST_INFERRED_CELLS + 1, 4), int), np.ones(4, bool)
    secret = Sum(np.arange(len(counts)) == 0, all_kinds)
    assert recoverable(counts, [], [secret]) == [True]
    assert recoverable(counts[:10], [], [Sum(secret.cells[:10], all_kinds)]) == [False]


# What follows from sums, against all tables that there are


def every_table(shape: tuple[int, int], people: int) -> np.ndarray:
    """All tables of so many people. [tables, cells, kinds]"""
    size = shape[0] * shape[1]
    bars = np.array(list(itertools.combinations(range(people + size - 1), size - 1)))
    edges = np.concatenate(
        [np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), people + size - 1)], axis=1
    )
    return (np.diff(edges, axis=1) - 1).reshape(-1, *shape)


def follows(
    counts: np.ndarray, shown: list[Sum], secrets: list[Sum], listed: np.ndarray
) -> list[bool]:
    tables = every_table(counts.shape, int(counts.sum()))
    somebody = np.stack(
        [tables[:, listed == one].sum((1, 2)) > 0 for one in np.unique(listed)]
    ).all(0)
    agree = [t for t in tables[somebody] if all(each.of(t) == each.of(counts) for each in shown)]
    return [len({secret.of(t) for t in agree}) == 1 for secret in secrets]


@pytest.mark.parametrize("probes", [0, 8])
def test_a_secret_follows_exactly_where_all_tables_agree_on_it(
    probes: int, monkeypatch: pytest.MonkeyPatch
):
    """Without probes, every secret is looked at by itself, from both sides."""
    monkeypatch.setattr(hiding, "PROBES", probes)
    draw, told = np.random.default_rng(1), []
    for _ in range(25):
        shape = (int(draw.integers(2, 4)), 2)
        counts = draw.multinomial(6, np.full(shape[0] * 2, 1 / (shape[0] * 2))).reshape(shape)
        listed = (
            draw.permutation(np.arange(shape[0]) % 2)
            if draw.random() < 0.5
            else np.arange(shape[0])
        )
        if not all(counts[listed == one].sum() for one in np.unique(listed)):
            continue
        shown = [Sum(draw.random(shape[0]) < 0.6, draw.random(2) < 0.7) for _ in range(2)]
        secrets = [
            Sum(np.arange(shape[0]) == cell, np.arange(2) == kind)
            for cell in range(shape[0])
            for kind in range(2)
        ]
        found = recoverable(counts, shown, secrets, listed)
        assert found == follows(counts, shown, secrets, listed)
        told += found
    assert 5 < sum(told) < len(told) - 5


def test_that_somebody_is_in_every_cell_tells_something():
    """Of two people in two cells each has one, if nobody is in neither; with one set of both cells
    that does not follow.
    """
    counts, one, kind = np.array([[1], [1]]), np.array([True, False]), np.array([True])
    secret = Sum(one, kind)
    assert recoverable(counts, [], [secret]) == [True]
    assert recoverable(counts, [], [secret], np.array([0, 0])) == [False]
    assert recoverable(np.array([[1], [2]]), [], [secret]) == [False]
    assert recoverable(np.array([[2], [1]]), [], [secret]) == [False]
    assert recoverable(counts, [], []) == []


def test_as_many_cells_as_can_be_solved_are_decided():
    counts, kind = np.full((MOST_INFERRED_CELLS, 1), 2), np.array([True])
    assert recoverable(counts, [], [Sum(np.arange(MOST_INFERRED_CELLS) == 0, kind)]) == [False]


@pytest.mark.parametrize(
    "solution", [None, [1.5, 1.5], [3.0, 3.0], [4.0, -1.0], [3.0, 0.0002]], ids=str
)
def test_a_solution_that_is_none_decides_nothing(
    solution: list[float] | None, monkeypatch: pytest.MonkeyPatch
):
    """No table in time, or one that does not agree with what is shown: the secret counts as
    recovered.
    """
    found = SimpleNamespace(x=None if solution is None else np.array(solution))
    monkeypatch.setattr(scipy.optimize, "milp", lambda *_, **__: found)
    secret = Sum(np.array([True, False]), np.array([True]))
    assert recoverable(np.array([[1], [2]]), [], [secret]) == [True]
    found.x = np.array([2.0, 1.0 + 1e-9])
    assert recoverable(np.array([[1], [2]]), [], [secret]) == [False]

"""An audit of count tables equals that of all rows; scores are within their bounds."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenly
from evenly.auditing.site_tables import SiteCounts, audit_tables, reduced
from evenly.data.sensitive import Attribute
from evenly.metrics.score_cells import BINS, auc_bounds, refuse_wrong_cells, score_cells
from tests.auditing.invented import predictions

SCORES = {"auc", "ece", "bias"}


def crossed(frame: pd.DataFrame) -> tuple[list[Attribute], np.ndarray]:
    """Attributes of sex and race, with all combinations as groups, and the group of each row."""
    values = [tuple(sorted(frame[name].unique())) for name in ("sex", "race")]
    sizes = [len(each) for each in values]
    numbers = np.unravel_index(np.arange(np.prod(sizes)), sizes)
    made = [
        Attribute(name, own, tuple(of.tolist()))
        for name, own, of in zip(("sex", "race"), values, numbers, strict=True)
    ]
    codes = [
        frame[name].map(own.index).to_numpy()
        for name, own in zip(("sex", "race"), values, strict=True)
    ]
    return made, np.ravel_multi_index(tuple(codes), sizes)


def sites_of(frame: pd.DataFrame, group: np.ndarray, labels: list[str], least: int = 1):
    groups, made = int(group.max()) + 1, []
    for name in sorted(frame["hospital"].unique()):
        own = (frame["hospital"] == name).to_numpy()
        table = np.zeros((groups, len(labels), len(labels)), np.int64)
        y, p = (
            frame[column][own].astype(str).map(labels.index).to_numpy() for column in ("y", "p")
        )
        np.add.at(table, (group[own], y, p), 1)
        cells = score_cells(frame["s"].to_numpy()[own], y == 1, group[own], least)
        made.append(SiteCounts(name, table, cells))
    return made


def figures_of(audit) -> dict:
    return {
        (f.level, f.name, f.metric): (f.value, f.low, f.high, f.rows)
        for f in audit.figures
        if f.level not in ("model", "clients")
    } | {("all", f.metric): f[3:7] for f in audit.figures if f.level in ("model", "clients")}


@pytest.mark.parametrize("rows", [600, 3000])
@pytest.mark.parametrize("unprivileged", [None, {"sex": "female"}])
def test_it_equals_the_audit_of_all_rows_on_counts(rows: int, unprivileged):
    frame = predictions(rows)
    attributes, group = crossed(frame)
    pooled = evenly.audit(
        frame,
        client="hospital",
        label="y",
        prediction="p",
        score="s",
        sensitive=["sex", "race"],
        unprivileged=unprivileged,
    )
    found = audit_tables(
        sites_of(frame, group, ["0", "1"]),
        labels=("0", "1"),
        attributes=attributes,
        unprivileged=unprivileged,
    )
    ours, theirs = figures_of(found), figures_of(pooled)
    counted = {key: value for key, value in theirs.items() if key[-1] not in SCORES}
    assert {key: ours[key] for key in counted if key in ours}.keys() == counted.keys()
    for key, value in counted.items():
        assert ours[key] == pytest.approx(value, nan_ok=True, abs=0, rel=0), key
    assert found.trivial == pooled.trivial
    assert found.groups[0].names == pooled.groups[0].names
    # one hospital's scores lie so close together that the ranges do not tell its AUC
    auc = [key for key in theirs if key[-1] == "auc" and key in ours]
    assert len(auc) > 5
    assert ("all", "auc") in auc
    for key in auc:
        assert ours[key][1] <= theirs[key][0] <= ours[key][2], key
        assert ours[key][0] == pytest.approx(theirs[key][0], abs=0.1), key
    assert ours["all", "auc"][0] == pytest.approx(theirs["all", "auc"][0], abs=0.01)
    for key in (key for key in theirs if key[-1] in ("bias", "ece")):
        assert ours[key][0] == pytest.approx(theirs[key][0], abs=0.005 + 1e-9), key


def test_the_auc_lies_within_the_bound_that_is_told():
    frame = predictions(3000)
    group = np.zeros(len(frame), int)  # everybody together has enough people for every cell
    pooled = evenly.audit(frame, client="hospital", label="y", prediction="p", score="s")
    for least in (1, 5, 20):
        sites = sites_of(frame, group, ["0", "1"], least)
        assert all((site.cells[:, 4] >= least).all() for site in sites)
        everything = np.concatenate([site.cells for site in sites])
        bounds = auc_bounds(everything, np.zeros(len(everything), int), 1)
        assert bounds.low[0] <= pooled.whole["auc"].value <= bounds.high[0]
        found = audit_tables(sites, labels=("0", "1"))
        exact = bounds.error[0] <= 0.1
        words = (
            f"is exact to ±{bounds.error[0]:.4f}"
            if exact
            else f"is not shown, because it is known to ±{bounds.error[0]:.2f} only"
        )
        assert any(words in note for note in found.notes)
        assert ("auc" in found.whole and found.whole["auc"].has_value) == exact


@given(st.integers(0, 10_000), st.integers(1, 8))
def test_bounds_hold_and_cells_have_enough_people(seed: int, least: int):
    draw = np.random.default_rng(seed)
    label = np.arange(60) % 2
    score = np.round(draw.beta(1 + 2 * label, 2), draw.integers(1, 4))
    group = draw.integers(0, 2, 60) * (seed % 2)
    if np.bincount(group * 2 + label)[np.bincount(group * 2 + label) > 0].min() < least:
        return
    cells = score_cells(score, label == 1, group, least)
    assert (cells[:, 4] >= least).all()
    assert cells[:, 4].sum() == 60
    labels = np.zeros((2, 2), int)
    np.add.at(labels, (group, label), 1)
    refuse_wrong_cells(cells, labels)
    bounds = auc_bounds(cells, np.zeros(len(cells), int), 1)
    pairs = score[label == 1][:, None] - score[label == 0][None]
    auc = ((pairs > 0) + 0.5 * (pairs == 0)).mean()
    assert bounds.low[0] - 1e-12 <= auc <= bounds.high[0] + 1e-12


def test_single_bins_give_the_auc_of_binned_scores():
    draw = np.random.default_rng(0)
    label = draw.integers(0, 2, 500)
    score = draw.integers(0, BINS, 500) / BINS + 0.005
    cells = score_cells(score, label == 1, np.zeros(500, int))
    pairs = score[label == 1][:, None] - score[label == 0][None]
    auc = ((pairs > 0) + 0.5 * (pairs == 0)).mean()
    assert auc_bounds(cells, np.zeros(len(cells), int), 1).middle[0] == pytest.approx(auc)


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        ([0, 0, 3, 2, 5], "unknown group, label or bin"),
        ([1, 0, 3, 4, 5], "unknown group, label or bin"),
        ([0, 0, 3, 100, 5], "unknown group, label or bin"),
        ([0, 0, 3, 4, 6], "other numbers of people"),
    ],
)
def test_cells_that_cannot_be_right_are_refused(cell: list[int], what: str):
    with pytest.raises(ValueError, match=what):
        refuse_wrong_cells(np.array([cell]), np.array([[5, 0]]))


@given(st.integers(0, 1000), st.integers(2, 5), st.booleans())
def test_tables_are_reduced_as_rows_are(seed: int, labels: int, named: bool):
    from evenly.auditing.people import MatchedLabels, outcomes

    draw = np.random.default_rng(seed)
    y, p = draw.integers(0, labels, (2, 40))
    favourable = int(draw.integers(labels)) if named else None
    words = tuple(map(str, range(labels)))
    label, outcome, kinds = outcomes(MatchedLabels(words, y, p, ()), favourable)
    wanted, table = np.zeros((kinds, kinds), int), np.zeros((labels, labels), int)
    np.add.at(wanted, (label, outcome), 1)
    np.add.at(table, (y, p), 1)
    assert reduced(table, favourable).tolist() == wanted.tolist()


def test_bad_tables_are_one_sentence():
    good = SiteCounts("a", np.full((1, 2, 2), 10))
    for sites, what in [
        ([], "at least one site"),
        ([good, good], "'a' occurs twice"),
        ([good, SiteCounts("b", np.full((1, 3, 3), 10))], "must have shape"),
        ([SiteCounts("b", np.full((1, 2, 2), -1))], "whole numbers"),
        ([SiteCounts("b", np.zeros((1, 2, 2)))], "0 people"),
    ]:
        with pytest.raises(ValueError, match=what):
            audit_tables(sites, labels=("0", "1"))
    sex = Attribute("sex", ("f", "m"), (0, 1))
    two = SiteCounts("a", np.stack([np.full((2, 2), 10), np.zeros((2, 2))]))
    with pytest.raises(ValueError, match="at least two values among all people"):
        audit_tables([two], labels=("0", "1"), attributes=[sex])
    both = [SiteCounts("a", np.full((2, 2, 2), 10))]
    with pytest.raises(ValueError, match="favourable"):
        audit_tables(both, labels=("cat", "dog"), attributes=[sex])


def test_scores_need_cells_of_every_site():
    frame = predictions(800)
    attributes, group = crossed(frame)
    sites = sites_of(frame, group, ["0", "1"])
    sites[0] = sites[0]._replace(cells=None)
    found = audit_tables(sites, labels=("0", "1"), attributes=attributes)
    assert "auc" not in found.whole
    assert any("sites sent none" in note for note in found.notes)


def test_joined_ranges_do_not_tell_the_lowest_or_the_highest_score():
    """The lowest and the highest of 60 scores may be anywhere in their ranges: the cells stay."""
    score = np.sort(np.random.default_rng(3).random(60))
    label, group = np.ones(60, bool), np.zeros(60, int)
    cells = score_cells(score, label, group, 5)
    assert (cells[0, 2], cells[-1, 3]) == (0, BINS - 1)
    assert (cells[1:, 2] == cells[:-1, 3] + 1).all()
    for other in (0.0, score[3]):
        moved = np.concatenate([[other], score[1:-1], [1.0]])
        np.testing.assert_array_equal(score_cells(moved, label, group, 5), cells)

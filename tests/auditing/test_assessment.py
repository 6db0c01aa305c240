"""From a table to an audit: what is refused, what is assumed, and what is left out because too few
people are behind it.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import evenly
from evenly.auditing.hiding import MOST_CELLS, can_cross
from evenly.data.sensitive import Attribute

NAMES: dict[str, Any] = {"label": "y", "prediction": "p"}


def rows(*cells: tuple[str, object, object, int], column: str = "sex") -> pd.DataFrame:
    """A table of people by group, label and prediction, so many of each."""
    return pd.DataFrame(
        [(who, y, p) for who, y, p, n in cells for _ in range(n)], columns=[column, "y", "p"]
    )


def both(n: int = 20) -> pd.DataFrame:
    return rows(*((who, y, p, n) for who in "fm" for y in (0, 1) for p in (0, 1)))


@pytest.mark.parametrize("min_cell", [0, 1, 40])
def test_a_figure_may_rest_on_everybody(min_cell: int):
    assert (
        evenly.audit(both(5), **NAMES, sensitive="sex", min_cell=min_cell).whole["accuracy"].value
        == 50
    )


@pytest.mark.parametrize(
    ("min_cell", "words"),
    [
        (-1, "must be 0 or more, got -1"),
        (41, "has 40 rows, but with min_cell=41 every figure must rest on at least 41 people"),
    ],
)
def test_a_least_number_that_nothing_can_rest_on_is_refused(min_cell: int, words: str):
    with pytest.raises(ValueError, match=words):
        evenly.audit(both(5), **NAMES, sensitive="sex", min_cell=min_cell)


def test_one_row_is_a_table():
    with pytest.raises(ValueError, match="at least two labels"):
        evenly.audit(both(1).head(1), **NAMES, client="sex", min_cell=0)


def test_scores_need_a_label_that_they_are_of():
    three = both().assign(y=[0, 1, 2, 1] * 40, s=0.5)
    with pytest.raises(
        ValueError,
        match=(
            "must be the score of the favourable label, but there are 3 labels and none is named as"
            " favourable"
        ),
    ):
        evenly.audit(three, **NAMES, client="sex", score="s")
    words = both().replace({"y": {0: "bad", 1: "good"}, "p": {0: "bad", 1: "good"}}).assign(s=0.5)
    with pytest.raises(ValueError, match="do not say which that is"):
        evenly.audit(words, **NAMES, client="sex", score="s")
    assert evenly.audit(words, **NAMES, client="sex").about.favourable is None


def test_what_was_assumed_of_the_favourable_label_is_said():
    taken = "“1” is assumed to be the favourable label. Name another one with --favourable."
    assert taken in evenly.audit(both(), **NAMES, sensitive="sex").notes
    assert evenly.audit(both(), **NAMES, sensitive="sex", favourable=0).notes == ()
    assert evenly.audit(both(), **NAMES, sensitive="sex", favourable=0).about.favourable == "0"
    words = both().replace({"y": {0: "bad", 1: "good"}, "p": {0: "bad", 1: "good"}})
    only = "No label is named as favourable, so only accuracy is shown. Name one with --favourable."
    assert evenly.audit(words, **NAMES, client="sex").notes == (only,)


def test_the_columns_of_an_audit_are_told_by_their_roles():
    found = evenly.audit(both().assign(s=0.5), **NAMES, client="sex", score="s").about
    assert found.columns == {"Label": "y", "Prediction": "p", "Score": "s", "Client": "sex"}
    assert (found.rows, found.labels, found.min_cell, found.anonymous) == (
        160,
        ("0", "1"),
        10,
        False,
    )
    assert evenly.audit(both(), **NAMES, sensitive="sex").about.columns == {
        "Label": "y",
        "Prediction": "p",
        "Sensitive": "sex",
    }


# The trivial model


def test_the_trivial_model_predicts_the_most_frequent_label():
    frame = rows(("f", 0, 0, 40), ("f", 0, 1, 20), ("m", 1, 1, 30), ("m", 1, 0, 10))
    found = evenly.audit(frame, **NAMES, client="sex").trivial
    assert found is not None
    assert (found.label, found.accuracy, found.positive, found.learnt) == ("0", 60, False, False)
    # right where the trivial one is not, and the reverse
    differs = np.repeat([1.0, -1.0, 0.0], [30, 20, 50])
    assert found.half_width == pytest.approx(100 * 1.96 * differs.std() / np.sqrt(100))
    turned = evenly.audit(frame, **NAMES, client="sex", favourable=0).trivial
    assert turned is not None
    assert turned.positive


@pytest.mark.parametrize("few", [9, 10])
def test_the_trivial_model_is_not_told_where_it_would_tell_of_few(few: int):
    two = rows(("f", 0, 0, 60), ("m", 1, 1, few))
    assert (evenly.audit(two, **NAMES, client="sex", min_cell=10).trivial is not None) == (
        few == 10
    )
    three = rows(("f", "a", "a", 60), ("m", "b", "b", 30), ("m", "c", "c", few))
    for favourable, told in {"b": few == 10, "c": True, "a": True}.items():
        assert (
            evenly.audit(three, **NAMES, client="sex", favourable=favourable).trivial is not None
        ) == told
    assert evenly.audit(three, **NAMES, client="sex").trivial is not None


@pytest.mark.parametrize("few", [9, 10])
def test_few_people_with_one_label_leave_accuracy_only(few: int):
    frame = rows(("f", 0, 0, 60), ("f", 0, 1, 30), ("m", 0, 0, 40), ("m", 1, 1, few)).assign(s=0.5)
    found = evenly.audit(frame, **NAMES, sensitive="sex", score="s")
    enough = few == 10
    assert (found.about.favourable, "tpr" in found.whole, "auc" in found.whole) == (
        ("1" if enough else None),
        enough,
        enough,
    )
    assert any("Fewer than 10 people have the label “1”" in note for note in found.notes) != enough


# Scores of clients and groups


def clinics(small: int, labelled: int) -> pd.DataFrame:
    """Four clinics: a small one, one with few people of the favourable label, and two
    large ones.
    """
    sizes = {"small": (small - 2, 2), "rare": (60, labelled), "one": (50, 50), "two": (60, 60)}
    cells = [(name, y, y, n) for name, counts in sizes.items() for y, n in enumerate(counts)]
    frame = rows(*cells, column="clinic")
    return frame.assign(s=np.random.default_rng(0).random(len(frame)))


def test_scores_of_clients_do_not_tell_of_few_people():
    view = evenly.audit(clinics(4, 40), **NAMES, client="clinic", score="s").clients
    assert view is not None
    hidden = dict(zip(view.names, view.hidden.cells.tolist(), strict=True))
    assert hidden["small"]
    for name in ("auc", "ece", "bias"):
        assert not any(view.scores[name][k].has_value for k in np.flatnonzero(view.hidden.cells))
    shown = evenly.audit(clinics(60, 5), **NAMES, client="clinic", score="s", min_cell=10).clients
    assert shown is not None
    assert not shown.hidden.any
    told = {name: shown.scores["bias"][k].has_value for k, name in enumerate(shown.names)}
    assert not told["rare"]
    assert told["two"]
    all_of_them = evenly.audit(
        clinics(60, 5), **NAMES, client="clinic", score="s", min_cell=0
    ).clients
    assert all_of_them is not None
    assert all(figure.has_value for figure in all_of_them.scores["auc"])


def test_both_labels_of_a_client_are_hidden_and_of_each_label_a_second_client():
    """The rows of a client are shown, so one label of it tells the other. Client a has one person
    with the favourable label; b hides that one but nothing of the other label, which c must do.
    """
    counts = {"a": (33, 1), "b": (0, 21), "c": (28, 38), "d": (35, 29)}
    frame = rows(
        *((who, y, y, n) for who, both in counts.items() for y, n in enumerate(both)),
        column="clinic",
    ).assign(s=0.5)
    view = evenly.audit(frame, **NAMES, client="clinic", score="s", min_cell=10).clients
    assert view is not None
    shown = {name: view.scores["bias"][k].has_value for k, name in enumerate(view.names)}
    assert shown == {"a": False, "b": False, "c": False, "d": True}


def test_scores_of_groups_and_intersections_do_not_tell_of_few_people():
    frame = clinics(60, 5).assign(sex=lambda t: np.where(t.index % 2, "f", "m"))
    found = evenly.audit(frame, **NAMES, sensitive=["clinic", "sex"], score="s")
    for view in (*found.groups, *([found.intersections] if found.intersections else [])):
        gone = view.veil.groups.cells | view.veil.labels.cells.any(-1)
        assert [figure.has_value for figure in view.scores["bias"]] == (~gone).tolist()
    assert found.groups[0].veil.labels.cells.any()


# Several columns


@pytest.mark.parametrize(
    ("sizes", "few"), [((200, 100), True), ((200, 101), False), ((1, 1), True)]
)
def test_combinations_are_looked_at_up_to_a_limit(sizes: tuple[int, int], few: bool):
    assert MOST_CELLS == 20_000
    assert can_cross([Attribute("a", ("v",) * n, (0,)) for n in sizes]) == few


def test_too_many_combinations_are_said_to_be_left_out():
    frame = pd.DataFrame(
        {
            "a": np.arange(402) % 201,
            "b": np.arange(402) // 2 % 101,
            "y": [0, 1] * 201,
            "p": [0, 1, 1, 0, 1, 1] * 67,
        }
    )
    found = evenly.audit(frame.astype(str), **NAMES, sensitive=["a", "b"], min_cell=0)
    assert found.intersections is None
    assert any("too many combinations of values" in note for note in found.notes)
    few = evenly.audit(
        both().assign(b=["u", "v"] * 80), **NAMES, sensitive=["sex", "b"], min_cell=0
    )
    assert few.intersections is not None
    assert few.intersections.title == "sex and b"
    assert not any("combinations" in note or "Intersections" in note for note in few.notes)
    assert not any(
        "combinations" in note for note in evenly.audit(both(), **NAMES, sensitive="sex").notes
    )


# Gaps within clients


@pytest.mark.parametrize("clients", [1, 2])
def test_gaps_within_clients_need_two_of_them(clients: int):
    frame = both(60).assign(site=lambda t: np.arange(len(t)) % clients)
    view = evenly.audit(frame, **NAMES, client="site", sensitive="sex").groups[0]
    assert (view.client_gaps is not None) == (clients == 2)

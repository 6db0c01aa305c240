"""What rests on too few people is nowhere: not in the figures, not in the files, and not to be had
by subtraction.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenly
from evenly.auditing.hiding import column_veil, intersection_veil, label_counts
from evenly.auditing.views import client_view
from evenly.data.sensitive import Attribute
from tests.auditing.invented import WHO, predictions

LEAST = 10


def tables(groups: int):
    """Small tables of groups, so that many cells are hidden."""
    return st.lists(st.integers(0, 25), min_size=4 * groups, max_size=4 * groups).map(
        lambda n: np.array(n).reshape(groups, 2, 2)
    )


def cannot_be_had(hidden: np.ndarray, counts: np.ndarray, axis: int) -> bool:
    """In every line whose total is at least what may be shown: nothing is hidden, or several cells
    with enough people.
    """
    people, cells = np.where(hidden, counts, 0).sum(axis), (hidden & (counts > 0)).sum(axis)
    exhausted = (~hidden & (counts > 0)).sum(axis) == 0  # everything in the line is hidden already
    return bool(((people == 0) | ((people >= LEAST) & (cells > 1)) | exhausted).all())


@settings(max_examples=60, deadline=None)
@given(tables(5))
def test_no_group_and_no_label_of_one_follows_from_the_totals(table: np.ndarray):
    found, counts = column_veil(table, LEAST), label_counts(table)
    assert not ((counts.sum(-1) > 0) & (counts.sum(-1) < LEAST) & ~found.groups.cells).any()
    assert not ((counts > 0) & (counts < LEAST) & ~found.labels.cells).any()
    assert cannot_be_had(found.groups.cells, counts.sum(-1), 0)
    assert all(cannot_be_had(found.labels.cells, counts, axis) for axis in (0, 1))


@settings(max_examples=60, deadline=None)
@given(tables(6))
def test_no_intersection_follows_from_what_is_shown_of_each_column(table: np.ndarray):
    sex, race = (
        Attribute("sex", ("f", "m"), (0, 0, 0, 1, 1, 1)),
        Attribute("race", ("a", "b", "c"), (0, 1, 2, 0, 1, 2)),
    )
    single = [column_veil(table.reshape(2, 3, 2, 2).sum(axis), LEAST) for axis in (1, 0)]
    found = intersection_veil(table, (sex, race), single, LEAST)
    counts, hidden = label_counts(table).sum(-1).reshape(2, 3), found.groups.cells.reshape(2, 3)
    assert not ((counts > 0) & (counts < LEAST) & ~hidden).any()
    assert all(cannot_be_had(hidden, counts, axis) for axis in (0, 1))
    # What is hidden of a column on its own is hidden in all of its intersections.
    for axis, own in enumerate(single):
        lines = np.moveaxis(hidden | (counts == 0), axis, 0)
        assert lines[own.groups.cells].all()


def few(rows: int = 1500) -> Any:
    """Race Z has six people, and one hospital four."""
    frame = predictions(rows)
    frame.loc[frame.index[:6], "race"] = "Z"
    frame.loc[frame.index[:4], "hospital"] = "tiny clinic"
    return frame


def test_small_groups_and_clients_are_nowhere(tmp_path):
    found = evenly.audit(few(), **WHO, score="s")
    assert min(found.table["rows"]) >= LEAST
    shown = set(found.table["name"])
    assert "race=Z" not in shown
    assert "tiny clinic" not in shown
    races = found.groups[1]
    hidden = [name for name, gone in zip(races.names, races.veil.groups.cells, strict=True) if gone]
    assert len(hidden) == 2  # another one as well, or its people would follow from the total
    assert "Z" in hidden
    folder = found.write(tmp_path / "out")
    for name in ("audit.csv", "audit.json", "report.html"):
        assert "tiny clinic" not in (folder / name).read_text()
    assert any("fewer than 10 people" in warning for warning in found.warnings)


def test_everything_is_shown_if_nobody_is_to_be_hidden():
    found = evenly.audit(few(), **WHO, min_cell=0)
    assert {"race=Z", "tiny clinic"} <= set(found.table["name"])
    assert not any("not shown" in warning for warning in found.warnings)


def test_few_people_with_one_label_hide_the_rates_that_rest_on_them():
    frame = predictions(1500)
    favoured = frame.index[(frame["race"] == "C") & (frame["y"] == 1)]
    frame = frame.drop(favoured[5:])  # five people of race C have the favourable label
    found = evenly.audit(frame, **WHO)
    races = dict(zip(found.groups[1].names, range(3), strict=True))
    of = {rate: each[races["C"]].has_value for rate, each in found.groups[1].rates.items()}
    assert of == {
        "accuracy": False,
        "selection_rate": True,
        "tpr": False,
        "fpr": False,
        "base_rate": False,
    }
    assert not found.groups[1].against["eod"][races["C"]].has_value
    assert found.groups[1].against["spd"][races["C"]].has_value


def test_few_hidden_clients_do_not_count_in_figures_over_clients():
    """Mean and variance of all would be two equations for the accuracies of two hidden clients, and
    their rows would follow.
    """
    frame = few()
    # always wrong: the worst client
    frame.loc[frame["hospital"] == "tiny clinic", "p"] = 1 - frame["y"]
    found = evenly.audit(frame, **WHO)
    assert found.clients is not None
    shown = np.array([own.value for own in found.clients.accuracy if own.has_value])
    assert len(shown) == found.clients.clients_in_summary == found.clients.clients - 2
    summary = found.clients.summary
    assert summary["average_devices"].value == pytest.approx(shown.mean())
    assert summary["variance"].value == pytest.approx(shown.var())
    assert summary["min"].value == shown.min() > 0
    assert summary["worst10"].value == shown.min()


def test_many_hidden_clients_count_but_none_at_the_ends_is_given_away():
    rows = np.array([*[5] * 18, *[100] * 12])
    # one hidden client is the worst, with two more than it in the worst tenth
    right = np.array([0, *[3] * 17, *[60] * 12])
    right[-2:] = 20
    tables = np.stack([right, rows - right], axis=-1)[:, None, None, :]
    view = client_view(
        "site", tuple(map(str, range(30))), tables, min_cell=LEAST, few=30, anonymous=False
    )
    assert view.clients_in_summary == 30
    assert not view.summary["min"].has_value
    assert not view.summary["worst10"].has_value
    assert view.summary["variance"].value == pytest.approx((100 * right / rows).var())


def test_people_without_a_value_do_not_follow_from_a_comparison_with_all_others():
    frame = predictions(900).assign(sex=lambda t: t["sex"].where(t.index >= 3))  # three have none
    found = evenly.audit(frame, **WHO | {"sensitive": "sex", "client": None})
    view = found.groups[0]
    g = next(g for g, rate in enumerate(view.rates["selection_rate"]) if rate.has_value)
    own = frame["sex"] == view.names[g]
    # all others are everybody else: nothing is left to subtract
    gap = frame.loc[own, "p"].mean() - frame.loc[~own, "p"].mean()
    assert view.against["spd"][g].value == pytest.approx(gap)


def test_people_without_a_value_do_not_follow_from_a_clients_total():
    frame = predictions(3000)
    frame.loc[frame.index[frame["hospital"] == "hospital 01"][:60], "sex"] = None
    frame.loc[frame.index[frame["hospital"] == "hospital 02"][:4], "sex"] = None
    found = evenly.audit(frame, **WHO)
    within, names = found.groups[0].client_gaps, found.clients.names if found.clients else ()
    assert within is not None
    known = {name for name, gap in zip(names, within.spd, strict=True) if gap.has_value}
    assert "hospital 02" not in known
    assert "hospital 03" in known


def test_the_bins_of_a_group_do_not_tell_its_hidden_labels():
    frame = predictions(1500)
    frame = frame.drop(frame.index[(frame["race"] == "C") & (frame["y"] == 1)][5:])
    view = evenly.audit(frame, **WHO, score="s").groups[1]
    hidden = ~view.veil.both_labels
    assert hidden[view.names.index("C")]
    assert view.curves is not None
    assert not view.curves.rows[hidden].any()
    assert view.curves.rows[~hidden].any()


def test_no_side_of_a_client_is_small_or_follows_from_totals():
    frame = predictions(900)
    first = frame.index[frame["hospital"] == "hospital 01"]
    frame.loc[first, "sex"] = "male"
    frame.loc[first[:3], "sex"] = "female"  # three women
    found = evenly.audit(frame, **WHO)
    within, names = found.groups[0].client_gaps, found.clients.names if found.clients else ()
    assert within is not None
    hidden = {name for name, gap in zip(names, within.spd, strict=True) if not gap.has_value}
    assert "hospital 01" in hidden
    assert len(hidden) > 1  # women of one client would follow from those of all others


def test_names_of_clients_can_be_left_out():
    found = evenly.audit(predictions(), **WHO, anonymous=True)
    assert not any("hospital 0" in name for name in found.table["name"])
    largest = predictions()["hospital"].value_counts().iloc[0]
    assert found.client_table.loc["client 01", "rows"] == largest

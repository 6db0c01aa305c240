"""Clients: who is served worst, who counted how much, and what they reveal."""

import numpy as np
import pytest
from invented import comparison, federation

from evenly.report.reveal import needs_of, revealed
from evenly.report.served import influence, served, wilson, worst_clients


def test_worst_clients_come_first_with_name_sizes_and_both_accuracies():
    found = comparison(seeds=2)
    rows = worst_clients(found, "fedavg", "q-fedavg(q=1)", limit=5)
    own, other = served(found, "fedavg"), served(found, "q-fedavg(q=1)")
    assert [row.accuracy for row in rows] == sorted(row.accuracy for row in rows)
    assert rows[0].accuracy == pytest.approx(np.nanmin(own.accuracy))
    k = found.federation.names.index(rows[0].name)
    assert rows[0].train == found.federation.train.counts[k]
    assert rows[0].elsewhere == pytest.approx(other.accuracy[k])
    assert len(rows) == 5


def test_clients_without_rows_are_not_listed():
    assert worst_clients(comparison(data=federation(3, rows=(10, 5, 0))), "fedavg", "fedavg") == []


def test_wilson_holds_the_share_and_narrows_with_rows():
    low, high = wilson(np.array([0.5, 0.5, 0.0]), np.array([10, 1000, 10]))
    assert (low <= [0.5, 0.5, 0]).all()
    assert (high >= [0.5, 0.5, 0]).all()
    assert high[1] - low[1] < high[0] - low[0]
    assert np.isnan(wilson(np.array([np.nan]), np.array([0]))[0]).all()


def test_influence_is_each_clients_share_of_all_weight():
    found = comparison(("fedavg",), data=federation(4), seeds=1)
    run = found.runs[0]
    trace = run.trace._replace(cohort=np.array([[0, 1], [0, 2]]), weights=np.array([[0.75, 0.25], [0.5, 0.5]]))
    share = influence(found._replace(runs=[run._replace(trace=trace)]), "fedavg")
    # Client 0 has (0.75 + 0.5) / 2 of all weight, and client 3 was never chosen.
    np.testing.assert_allclose(share.weight, [0.625, 0.125, 0.25, 0.0])
    assert share.rows.sum() == pytest.approx(1)


def test_a_method_of_several_models_has_no_single_influence():
    assert np.isnan(influence(comparison(("multi-q",)), "multi-q").weight).all()


@pytest.mark.parametrize(
    ("label", "needs"),
    [
        ("q-fedavg(q=1)", ("loss", "square_norm")),
        ("fedmgda", ("examples", "gram")),
        ("fedavg", ()),
        ("no-such-method", None),
    ],
)
def test_what_a_method_reveals_is_what_its_run_recorded(label, needs):
    assert needs_of(comparison((label,)).runs[0]) == needs


def test_every_need_has_words():
    assert all(" " in words for words in revealed(comparison(("q-fedavg(q=1)",)), "q-fedavg(q=1)").words)

"""Where clients are very many, a panel is evaluated: the same one everywhere, under its own names,
and it is said.
"""

import numpy as np
import pytest

from evenly.cli.terminal_tables import results_table
from evenly.data.federation import Federation
from evenly.data.splits import SPLITS
from evenly.experiment.comparison import Comparison
from evenly.experiment.execute import evaluated_clients, execute
from evenly.experiment.folder import Store
from evenly.experiment.plan import Plan
from evenly.experiment.reopen import open_results
from evenly.experiment.result_rows import tidy_rows
from evenly.metrics import slots_of_evaluated
from evenly.report.page import render
from evenly.report.values import influence, mean_effective_clients
from evenly.types import Trace

PLAN = Plan(
    name="test",
    data={"name": "synthetic-crowd", "clients": 12, "features": 5, "classes": 3},
    methods=("fedavg", "q-fedavg"),
    rounds=8,
    seeds=(0, 1),
    sampling="uniform(clients=4)",
    evaluate_every=4,
)
FEW = 5


@pytest.fixture(scope="module")
def whole() -> Comparison:
    return execute(PLAN)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenly.experiment.execute.MOST_EVALUATED", FEW)


@pytest.fixture
def part(few: None) -> Comparison:
    return execute(PLAN)


def test_a_panel_is_drawn_only_where_clients_are_very_many(tiny: Federation, few: None):
    panel = evaluated_clients(tiny)
    assert panel is not None
    assert len(set(panel.tolist())) == FEW
    assert (np.diff(panel) > 0).all()
    np.testing.assert_array_equal(panel, evaluated_clients(tiny))
    assert evaluated_clients(tiny.only(panel)) is None


def test_a_federation_of_some_clients_has_their_names_and_rows(tiny: Federation):
    own = tiny.only(np.array([4, 1]))
    assert own.names == (tiny.names[4], tiny.names[1])
    for name in SPLITS:
        np.testing.assert_array_equal(own.split(name).of(0), tiny.split(name).of(4))
        np.testing.assert_array_equal(own.split(name).of(1), tiny.split(name).of(1))
    assert own.x is tiny.x


def test_the_panel_is_served_as_it_is_among_all(whole: Comparison, part: Comparison):
    panel = part.runs[0].trace.panel
    assert panel is not None
    assert whole.registered is None
    assert part.registered is not None
    assert part.registered.names == whole.federation.names
    assert part.federation.names == tuple(whole.federation.names[k] for k in panel)
    for one, other in zip(part.runs, whole.runs, strict=True):
        np.testing.assert_array_equal(one.trace.tables, other.trace.tables[:, :, panel])
        np.testing.assert_array_equal(one.trace.cohort, other.trace.cohort)


def test_influence_is_that_of_the_panel(whole: Comparison, part: Comparison):
    panel = part.runs[0].trace.panel
    full, own = influence(whole, "fedavg"), influence(part, "fedavg")
    expected = np.mean(
        [_shares(run.trace)[panel] / _shares(run.trace)[panel].sum() for run in whole.of("fedavg")],
        axis=0,
    )
    np.testing.assert_allclose(own.weight, expected, rtol=1e-6)
    np.testing.assert_allclose(own.rows, full.rows[panel] / full.rows[panel].sum(), rtol=1e-6)
    assert mean_effective_clients(part, "fedavg") == mean_effective_clients(whole, "fedavg")


def _shares(trace: Trace) -> np.ndarray:
    return np.bincount(trace.cohort.ravel(), trace.weights.ravel(), minlength=12)


def test_a_slot_of_somebody_outside_the_panel_has_no_weight(some_trace: Trace):
    trace = some_trace._replace(
        panel=np.array([1, 3]),
        cohort=np.array([[3, 0], [1, 2]]),
        weights=np.array([[0.75, 0.25], [0.5, 0.5]]),
    )
    cohort, weights = slots_of_evaluated(trace)
    assert cohort.tolist() == [[1, 0], [0, 0]]
    assert weights.tolist() == [[0.75, 0], [0.5, 0]]


def test_the_report_and_the_table_say_how_many_were_evaluated(part: Comparison):
    page = render(part)
    assert "5, drawn at random" in page
    assert "<dd>12</dd>" in page
    assert "5 of 12 clients" in str(results_table(part).title)
    names = {row["name"] for row in tidy_rows(part) if row["level"] == "client"}
    assert names == set(part.federation.names)


def test_a_kept_panel_is_opened_again(few: None, tmp_path):
    store = Store(tmp_path / "out", PLAN)
    made, opened = execute(PLAN, store), open_results(tmp_path / "out")
    np.testing.assert_array_equal(made.runs[0].trace.panel, opened.runs[0].trace.panel)
    assert render(opened._replace(seconds=made.seconds)) == render(made)


def test_excluded_clients_are_named_whether_or_not_they_are_of_the_panel(part: Comparison):
    panel = part.runs[0].trace.panel
    assert panel is not None
    outside = next(k for k in range(12) if k not in panel)
    excluded = np.zeros(12, np.int32)
    excluded[outside] = 3
    runs = [run._replace(trace=run.trace._replace(excluded=excluded)) for run in part.runs]
    page = render(part._replace(runs=runs))
    assert part.registered is not None
    assert part.registered.names[outside] in page
    rows = int(part.registered.train.counts[outside])
    assert part.registered.names[outside] not in render(part._replace(runs=runs), least=rows + 1)

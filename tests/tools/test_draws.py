"""Figures of several draws: means over splits, where the paper lies, and the typical draw."""

import json
from typing import Any

import numpy as np
import pytest

import evenly
from evenly.experiment.comparison import Comparison, final_by_seed
from evenly.experiment.execute import execute
from evenly.experiment.paper import Paper
from evenly.experiment.plan import Plan
from tools import draws

PAPER = Paper(
    reference="qffl",
    dataset="Synthetic",
    rows={"q-fedavg(q=0)": "q=0", "q-fedavg(q=1)": "q=1"},
    metrics={"angle_deg": "angle"},
)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    """Two draws with two splits each."""
    plan = Plan(
        name="test", data={"name": "synthetic", "clients": 12, "draws": 2},
        methods=("q-fedavg(q=[0, 1])",), rounds=8, seeds=(0, 1, 2, 3), evaluate_every=1,
    )  # fmt: skip
    return execute(plan, None, models=False)


@pytest.fixture(scope="module")
def stored(comparison: Comparison) -> dict[str, Any]:
    record = draws.draws_record(comparison, PAPER, 2)
    return json.loads(json.dumps({"draws": record}, allow_nan=False))


def test_a_figure_of_a_draw_is_the_mean_over_its_splits(stored, comparison):
    seeds = final_by_seed(comparison, "q-fedavg(q=1)", "test")["variance"]
    figure = next(
        one
        for one in stored["draws"]["figures"]
        if (one["label"], one["split"], one["metric"]) == ("q-fedavg(q=1)", "test", "variance")
    )
    expected = [(seeds[0] + seeds[2]) / 2, (seeds[1] + seeds[3]) / 2]
    assert figure["values"] == pytest.approx(expected, abs=1e-4)
    assert (figure["paper"], figure["paper_deviation"]) == (472, 14)


def test_sizes_are_those_of_the_draw(stored):
    for draw, (mean, deviation) in enumerate(stored["draws"]["rows"]):
        own = evenly.synthetic(clients=12, seed=draw)
        rows = own.train.counts + own.valid.counts + own.test.counts
        assert (mean, deviation) == (
            pytest.approx(rows.mean(), abs=0.1),
            pytest.approx(rows.std(), abs=0.1),
        )
    assert stored["draws"]["splits"] == 2


def test_losses_are_averaged_over_the_last_two_quarters(stored, comparison):
    traces = [run.trace for run in comparison.of("q-fedavg(q=0)") if run.seed % 2 == 1]
    rows = evenly.synthetic(clients=12, draws=2, split_seed=1).train.counts
    losses = [(trace.losses[:, 0] * rows).sum(1) / rows.sum() for trace in traces]
    expected = [np.mean([loss[part] for loss in losses]) for part in (slice(5, 7), slice(7, 9))]
    own = next(one for one in stored["draws"]["losses"] if one["label"] == "q-fedavg(q=0)")
    assert own["values"][1] == pytest.approx(expected, abs=1e-3)


def test_the_typical_draw_is_closest_to_the_medians():
    figures = [
        {"metric": "average", "values": [70.0, 80.0, 81.0, 95.0, 50.0]},
        {"metric": "variance", "values": [900.0, 500.0, 510.0, 400.0, 2000.0]},
    ]
    assert draws.typical_draw(figures) == 1


def test_the_table_says_where_the_paper_lies():
    figure = {
        "split": "test", "label": "m", "metric": "worst10", "paper": 18.8, "paper_deviation": 5.0,
        "values": [1.0, 20.0, 17.0],
    }  # fmt: skip
    record = {"rows": [[1, 1]] * 3, "figures": [figure]}
    assert draws.draws_table(record, fold=True).splitlines() == [
        "| method |  | worst 10 % |",
        "| --- | --- | ---: |",
        "| `m` | paper | 18.8 (sd 5.0) |",
        "|  | median of 3 draws | 17.0 |",
        "|  | lowest to highest | 1.0 to 20.0 |",
        "|  | below | 2 of 3 |",
    ]


def test_changes_are_within_draws():
    def figure(label: str, *values: float) -> dict[str, Any]:
        return {"split": "test", "label": label, "metric": "variance", "values": list(values)}

    record = {"figures": [figure("a", 700, 1000), figure("b", 500, 900), figure("c", 800, 300)]}
    lines = draws.changes_table(record).splitlines()[2:]
    assert [line.split(" | ")[:2] for line in lines] == [
        ["| `b`", "`a`"], ["| `c`", "`a`"], ["| `c`", "`b`"],
    ]  # fmt: skip
    half = 12.706204736 * np.std([-200, -100], ddof=1) / np.sqrt(2)
    assert lines[0].endswith(f"| −150 ± {half:.0f} (2 of 2) |")


def test_the_page_and_the_chart_show_every_draw(stored):
    page = draws.draws_page(stored)
    assert page.count("(typical)") == 1
    assert "nan" not in page
    chart = draws.draws_chart(stored)
    assert "the paper" in chart
    assert chart.count("a draw") >= 1

"""The papers' figures beside ours, from files of means and from files of single figures with
levels.
"""

import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.experiment.comparison import Comparison, Run
from evenly.experiment.config import packaged_experiments, read_packaged
from evenly.experiment.paper import Paper, side_by_side
from evenly.metrics.clients import group_means
from evenly.metrics.outcomes import accuracy
from evenly.types import Trace


def comparison(federation: Federation, trace: Trace) -> Comparison:
    runs = [Run(label, "e2fl", {}, 0, trace) for label in ("e2fl", "ifca")]
    return Comparison("test", federation, "natural", "LeNet", runs, 12, "", 1.0, {})


def test_levels_stand_before_the_names_of_metrics(tiny: Federation, some_trace: Trace):
    paper = Paper(
        reference="e2fl",
        dataset="FairMNISTRotate",
        column="algorithm",
        rows={"e2fl": "E2FL"},
        metrics={
            "group_avg": "group_average",
            "user_avg": "average_devices",
            "upload_mb": "upload",
        },
    )
    lines = {line.metric: line for line in side_by_side(comparison(tiny, some_trace), paper)}
    assert {name: line.paper for name, line in lines.items()} == {
        "group_average": 96.52, "group_worst10": 93.90, "group_best10": 97.81,
        "group_variance": 1.63, "average_devices": 97.48, "upload": 4.05,
    }  # fmt: skip
    own = 100 * group_means(accuracy(some_trace.tables[-1, 2]), np.asarray(tiny.client_group), 3)
    assert lines["group_average"].ours.mean == pytest.approx(own.mean())
    assert lines["group_variance"].ours.mean == pytest.approx(own.var())
    assert lines["upload"].ours.mean == some_trace.upload / 2**20


def test_methods_that_were_not_run_are_left_out(tiny: Federation, some_trace: Trace):
    paper = Paper(
        reference="e2fl",
        dataset="FairMNISTRotate",
        column="algorithm",
        rows={"e2fl": "E2FL", "fedavg": "FedAvg"},
    )
    assert {line.label for line in side_by_side(comparison(tiny, some_trace), paper)} == {"e2fl"}


def test_a_setting_and_a_split_choose_among_figures(tiny: Federation, some_trace: Trace):
    paper = Paper(
        reference="e2fl", dataset="Adult", column="algorithm", setting="dirichlet_alpha=1",
        split="central", rows={"e2fl": "E2FL"}, metrics={"group_eod": "eod", "group_di": "f1_diff"},
    )  # fmt: skip
    lines = side_by_side(comparison(tiny, some_trace), paper)
    assert [(line.metric, line.paper, line.split) for line in lines] == [
        ("accuracy", 85.20, "central"), ("eod", -0.0222, "central"),
        ("f1_diff", -0.0252, "central"),
    ]  # fmt: skip


CHART = "e2fl/inference-clients"  # stands beside a chart, of which no figures are known


@pytest.mark.parametrize(
    "name", [name for name in packaged_experiments() if name.startswith("e2fl/") and name != CHART]
)
def test_every_method_named_beside_the_paper_has_figures_there(
    name: str, tiny: Federation, some_trace: Trace
):
    paper = read_packaged(name).paper
    assert paper is not None
    chosen = some_trace._replace(choice=np.zeros((2, tiny.clients), np.int32))
    runs = [Run(label, "any", {}, 0, chosen) for label in paper.rows]
    lines = side_by_side(comparison(tiny, some_trace)._replace(runs=runs), paper)
    assert {line.label for line in lines} == set(paper.rows)

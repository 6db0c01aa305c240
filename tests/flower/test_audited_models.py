"""Audits and evaluations of a finished deployment use the models that clients used in training."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from flwr.app import ArrayRecord

import evenly
from evenly.data.federation import Federation
from evenly.data.splits import SPLITS
from evenly.experiment.reopen import open_results
from evenly.flower import audit, final_arrays, first_arrays, strategy
from evenly.flower.final_model import finished_model
from evenly.types import Trace
from tests.flower.grids import NODES, OneProcess
from tests.flower.small import SEEDS, algorithm_of, small, task_of
from tests.flower.test_going_on import CLIENTS, honest, made
from tests.flower.test_memory import grid_of
from tests.flower.test_site_audit import figures_of

ROUNDS = 3
PERSONAL = ["ditto", "local"]
SEVERAL = [
    "e2fl",
    "e2fl(groups=2, inference=rank-clustering)",
    "e2fl(groups=2, inference=lowest-loss)",
    "ifca(groups=2)",
]
# one's own model, a group that the server knows, and one that the client finds
FEW = {"ditto", "e2fl(groups=2, inference=rank-clustering)", "ifca(groups=2)"}
EVERY = pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, marks=[pytest.mark.further] * (text not in FEW))
        for text in (*PERSONAL, *SEVERAL)
    ],
)


def trained(text: str, tmp_path: Path, *, memory: bool = True) -> Trace:
    """Train a deployment in the folder "run" and return what clients said."""
    server = made(text, tmp_path / "run")
    first = first_arrays(algorithm_of(text), task_of(text), SEEDS)
    grid = grid_of(honest(text), tmp_path / "models" if memory else None)
    server.start(grid, first, num_rounds=ROUNDS)
    return server.history.recorder.trace()


def pooled(tables: np.ndarray, federation: Federation) -> pd.DataFrame:
    """One row for each person that clients counted by group, label and prediction. [clients,
    groups, labels, outcomes]
    """
    at = np.repeat(np.argwhere(tables >= 0), tables.ravel().astype(int), axis=0)
    frame = pd.DataFrame(at, columns=["site", "group", "y", "p"])
    return frame.assign(
        site=[federation.names[k] for k in frame["site"]],
        group=[federation.groups[g] for g in frame["group"]],
    )


@EVERY
def test_an_audit_in_a_new_run_equals_that_of_all_rows(text: str, tmp_path: Path):
    trace, federation = trained(text, tmp_path), small(CLIENTS)
    grid = grid_of(honest(text), tmp_path / "models")
    found = audit(grid, tmp_path / "run", min_available_nodes=CLIENTS, min_cell=0)
    rows = pooled(trace.tables[-1][SPLITS.index("test")], federation)
    favourable = found.about.favourable
    assert favourable is not None
    expected = evenly.audit(
        rows, client="site", label="y", prediction="p", sensitive=["group"],
        favourable=int(favourable), min_cell=0,
    )  # fmt: skip
    ours, theirs = figures_of(found), figures_of(expected)
    assert len(theirs) > 30
    for name, values in theirs.items():  # ours also has figures of scores
        assert ours[name] == pytest.approx(values, nan_ok=True, rel=0, abs=0), name


@EVERY
def test_an_evaluation_in_a_new_run_equals_the_last_one_of_training(text: str, tmp_path: Path):
    trace = trained(text, tmp_path)
    grid = grid_of(honest(text), tmp_path / "models")
    server = strategy(
        algorithm_of(text), task=task_of(text), seeds=SEEDS, folder=tmp_path / "evaluation",
        introduce=True, min_available_nodes=CLIENTS,
    )  # fmt: skip
    server.evaluate(grid, str(tmp_path / "run"))
    assert {kind for kind, _ in grid.asked} == {"query.census", "evaluate"}  # nobody trained
    found = open_results(tmp_path / "evaluation").runs[0].trace
    np.testing.assert_array_equal(found.tables[-1], trace.tables[-1])


@pytest.mark.parametrize("text", PERSONAL)
def test_without_the_models_of_clients_there_is_no_audit(text: str, tmp_path: Path):
    trained(text, tmp_path, memory=False)
    arrays = final_arrays(tmp_path / "run")
    with pytest.raises(ValueError, match=r"each client keeps a model of its own, and arrays do no"):
        audit(OneProcess(honest(text), NODES[:CLIENTS]), arrays, method=text)
    server = made(text, tmp_path / "evaluation")
    with pytest.raises(ValueError, match="Give the folder of the deployment in place of its array"):
        server.evaluate(grid_of(honest(text), None), arrays)
    with pytest.raises(
        ValueError, match=r"'client 0' .*it keeps no model of its own of the deployment that train"
    ):
        audit(grid_of(honest(text), None), tmp_path / "run")


def test_a_site_that_took_no_part_is_not_audited_with_the_model_of_others(tmp_path: Path):
    trained("ditto", tmp_path)
    (tmp_path / "models" / "node-1").rename(tmp_path / "elsewhere")
    grid = grid_of(honest("ditto"), tmp_path / "models")
    found = audit(grid, tmp_path / "run", min_available_nodes=3, min_cell=0)
    assert any("1 site is not in this audit, of 4" in words for words in found.notes)
    with pytest.raises(ValueError, match="needs answers of at least 4 sites"):
        audit(grid, tmp_path / "run", min_evaluate_nodes=4)


def test_groups_that_the_server_assigned_need_the_folder(tmp_path: Path):
    text = SEVERAL[1]
    trained(text, tmp_path)
    grid = grid_of(honest(text), None)
    with pytest.raises(ValueError, match="the server assigned clients to models in training"):
        audit(grid, final_arrays(tmp_path / "run"), method=text, seeds=SEEDS)
    assert not grid.asked
    newcomer = OneProcess(honest(text), NODES[:CLIENTS])
    for context in newcomer.contexts.values():
        own = context.node_config["partition-id"]
        assert isinstance(own, int)
        context.node_config = {"partition-id": CLIENTS - 1 - own}
    same = audit(newcomer, tmp_path / "run", min_available_nodes=CLIENTS, min_cell=0)
    other = audit(grid, tmp_path / "run", min_available_nodes=CLIENTS, min_cell=0)
    assert same.whole["accuracy"].value == other.whole["accuracy"].value


def test_the_audit_of_a_run_of_an_earlier_version_says_so(tmp_path: Path):
    trained("ditto", tmp_path)
    plan = tmp_path / "run" / "plan.json"
    lines = [line for line in plan.read_text().splitlines() if '"identity"' not in line]
    plan.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"run' was trained by an earlier version .*Train again"):
        finished_model(tmp_path / "run", algorithm_of("ditto"))


def test_one_model_needs_no_folder():
    arrays = first_arrays("fedavg", task_of("fedavg"), SEEDS)
    found = finished_model(arrays, algorithm_of("fedavg"))
    assert isinstance(found.arrays, ArrayRecord)
    assert found.first(algorithm_of("fedavg")) is arrays

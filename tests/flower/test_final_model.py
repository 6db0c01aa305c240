"""The final model in the folder of a deployment, and evaluation without training."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import evenly
from evenly.experiment.reopen import open_results
from evenly.flower import final_arrays, first_arrays, strategy, wire
from evenly.flower.clients.jax import app
from evenly.models import Softmax
from tests.flower.grids import OneProcess
from tests.flower.small import FEATURES, SEEDS, small

CLIENTS = 3
TASK = Softmax(features=FEATURES, classes=2)


def trained(folder: Path, method: str = "fedavg", rounds: int = 2):
    made = strategy(
        method, task=TASK, seeds=SEEDS, folder=folder, introduce=True, min_available_nodes=CLIENTS
    )
    grid = OneProcess(app(small(CLIENTS), TASK), range(CLIENTS))
    return grid, made.start(grid, first_arrays(method, TASK, SEEDS), num_rounds=rounds)


def test_the_model_is_that_of_the_last_round_in_every_form(tmp_path: Path):
    _, result = trained(tmp_path / "run")
    last = {name: wire.read(array) for name, array in result.arrays.items()}
    kept = final_arrays(tmp_path / "run")
    assert list(kept) == list(last)
    for name, array in last.items():
        assert np.array_equal(wire.read(kept[name]), array)
        assert np.array_equal(kept.to_torch_state_dict()[name], torch.from_numpy(array.copy()))
    model = evenly.load(tmp_path / "run" / "models" / "model.npz")
    x = np.random.default_rng(0).normal(size=(9, FEATURES)).astype(np.float32)
    outcome = np.argmax(x @ last["w"] + last["b"], axis=1)
    assert model.predict(x).tolist() == model.classes[outcome].tolist()


def test_several_models_are_kept_as_arrays_only(tmp_path: Path):
    trained(tmp_path / "run", "ifca(groups=2)")
    assert any(name.startswith("1/") for name in final_arrays(tmp_path / "run"))
    assert not (tmp_path / "run" / "models" / "model.npz").exists()


def test_a_folder_without_a_model_is_one_sentence(tmp_path: Path):
    with pytest.raises(ValueError, match="There is no final model"):
        final_arrays(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "arrays.npz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="is damaged"):
        final_arrays(tmp_path)


def test_figures_of_a_private_model_are_withheld_where_it_is_only_evaluated(tmp_path: Path):
    """Such a folder counts no release, from which a report takes the promise."""
    grid, _ = trained(tmp_path / "run")
    method = "fedavg+full+dp(noise_multiplier=1, forced=true)"
    made = strategy(
        method, task=TASK, seeds=SEEDS, folder=tmp_path / "only", introduce=True,
        min_available_nodes=CLIENTS,
    )  # fmt: skip
    assert made.evaluate(grid, final_arrays(tmp_path / "run")) is not None
    page = (tmp_path / "only" / "report.html").read_text()
    assert "no claim: this folder does not say what was released" in page
    for section in ("results", "clients", "groups"):
        assert f'id="{section}"' not in page
    live = (tmp_path / "only" / "live.jsonl").read_text().splitlines()
    assert not any(json.loads(line).get("values") for line in live)


def test_evaluation_without_training_gives_the_tables_of_the_last_round(tmp_path: Path):
    grid, _ = trained(tmp_path / "run")
    made = strategy(
        "fedavg", task=TASK, seeds=SEEDS, folder=tmp_path / "only", introduce=True,
        min_available_nodes=CLIENTS,
    )  # fmt: skip
    grid.asked.clear()
    assert made.evaluate(grid, final_arrays(tmp_path / "run")) is not None
    assert "train" not in {kind for kind, _ in grid.asked}
    last, only = (open_results(tmp_path / name).runs[0].trace for name in ("run", "only"))
    assert only.rounds.tolist() == [0]
    assert np.array_equal(only.tables[-1], last.tables[-1])
    assert (tmp_path / "only" / "report.html").exists()
    again = strategy(
        "fedavg", task=TASK, seeds=SEEDS, folder=tmp_path / "run", introduce=True,
        min_available_nodes=CLIENTS,
    )  # fmt: skip
    with pytest.raises(ValueError, match="holds rounds of training already"):
        again.evaluate(grid, final_arrays(tmp_path / "run"))

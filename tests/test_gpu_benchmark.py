"""The benchmark for a GPU judges what it found, and says what it needs."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import jax
import pytest

import evenly

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return __import__("gpu")


def test_every_part_has_a_target_that_can_be_missed(gpu: ModuleType):
    plain = gpu.FEDAVG[0]
    found = {
        "study": {"process_seconds": 31.0}, "cell": {"median_seconds": 1.1},
        "rotate": {plain: {"ms_per_round": 7.6}}, "same": {"points_apart": 0.01},
        "same-rotate": {"points_apart": 0.3, "seeds_apart": 0.25},
        "resnet": {"evenly": {"ms": 1.5}, "share": 0.3}, "lstm": {"evenly": {"ms": 3.1}},
        "pfl": {"share": 0.9, "evenly": {"accuracy": 69.0}, "PyTorch": {"accuracy": 71.5}},
    }  # fmt: skip
    assert {name: target["reached"] for name, target in gpu.judged(found).items()} == {
        "study": True, "cell": True, "rotate": False, "same": True, "same-rotate": False,
        "resnet": True, "resnet-share": False, "lstm": False, "pfl": True,
        "pfl-accuracy": False,
    }  # fmt: skip
    assert {*gpu.PARTS, *gpu.NETWORKS, "resnet-share", "pfl-accuracy"} == set(gpu.TARGETS)
    assert gpu.judged({}) == {}


def test_stored_results_are_judged_by_todays_targets(gpu: ModuleType):
    found = json.loads((BENCHMARKS / "results" / "gpu.json").read_text())
    assert found["targets"] == gpu.judged(found)


def test_without_pytorch_there_is_no_share_to_judge(gpu: ModuleType):
    found = {"resnet": {"evenly": {"ms": 1.5}}, "pfl": {"evenly": {"seconds": 3.0}}}
    assert set(gpu.judged(found)) == {"resnet"}


def test_both_sides_train_the_same_networks(gpu: ModuleType):
    """By the shapes of their parameters."""
    networks, models = gpu.networks, evenly.models
    pairs = [
        (models.ResNet(), networks._torch_resnet()),
        (networks.DropoutCNN(), networks._torch_cnn()),
        (models.CharLSTM(symbols=80), networks._torch_lstm(80, 256)),
    ]
    for task, module in pairs:
        shapes = jax.eval_shape(task.init, jax.random.key(0))
        ours = sorted(leaf.size for leaf in jax.tree.leaves(shapes))
        assert ours == sorted(own.numel() for own in module.parameters())


@pytest.mark.slow
def test_networks_beside_pytorch_run_on_a_cpu(tmp_path: Path):
    file = tmp_path / "found.json"
    subprocess.run(
        [
            sys.executable, BENCHMARKS / "gpu.py", "--quick", "--only", "resnet,lstm,pfl", "--json",
            file,
        ],
        check=True,
    )  # fmt: skip
    found = json.loads(file.read_text())
    assert all("evenly" in found[part] and "PyTorch" in found[part] for part in ("resnet", "lstm"))
    assert found["pfl"]["rounds"] == 2


def test_accuracies_are_as_far_apart_as_the_farthest(gpu: ModuleType):
    assert gpu.apart({"accuracies": [80.0, 70.0]}, {"accuracies": [80.25, 69.5]}) == 0.5


def test_a_missing_plan_and_unknown_parts_are_named(
    gpu: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    def said(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["gpu.py", *words])
        with pytest.raises(SystemExit, match="2"):
            gpu.main()
        return capsys.readouterr().err

    assert "write it with: python benchmarks/thesis.py --write-plan" in said(
        str(tmp_path / "none.json")
    )
    assert "parts among study, cell, rotate, same, same-rotate, resnet, lstm, pfl, got walk." in (
        said("x", "--only", "walk,cell")
    )
    assert "--quick is for the parts resnet, lstm, pfl; name them with --only." in said(
        "--quick", "--only", "cell"
    )

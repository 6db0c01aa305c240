"""The benchmark runs, compares like with like, and does not claim more than was measured."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def summary(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import summary

    return summary


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict:
    out = tmp_path_factory.mktemp("bench") / "out.json"
    command = [sys.executable, str(BENCHMARKS / "synthetic.py"), "--rounds", "10", "--repeats", "1", "--patience", "0", "--json", str(out)]
    env = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "NPROC", "JAX_DISABLE_MOST_OPTIMIZATIONS")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "25 runs together" in done.stdout
    return json.loads(out.read_text())


def test_the_script_keeps_what_is_needed_to_repeat_it(results: dict):
    assert results["command"] == "python benchmarks/synthetic.py --rounds 10 --repeats 1"
    assert {"cpu", "cores", "system"} == results["machine"].keys()
    assert {"python", "evenly", "jax"} <= results["versions"].keys()
    assert results["evenly"]["ms_per_round"] > 0


def test_both_contenders_learn_the_same(results: dict):
    if "torch" not in results:
        pytest.skip("PyTorch is not installed; `pip install torch` adds the comparison")
    assert results["ratios"]["agreement_reached"], results["differences"]


def test_medians_and_ranges_are_in_ms_per_round(summary: ModuleType):
    timed = [summary.Timed(seconds, 0.0) for seconds in (0.4, 0.2, 1.0)]
    assert summary.summary(200, timed) == {"ms_per_round": 2.0, "range": [1.0, 5.0], "others": 0.0}


def test_a_missed_target_is_said_to_be_missed(summary: ModuleType):
    found = {
        "evenly": {"ms_per_round": 2.0},
        "evenly25": {"ms_per_round": 17.0},
        "torch": {"ms_per_round": 38.0},
        "differences": {"10": 1e-3},
    }
    ratios = summary.conclusions(found)
    assert ratios == {"together": 8.5, "together_reached": False, "faster": 19.0, "faster_reached": False, "agreement_reached": False}


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> dict:
    out = tmp_path_factory.mktemp("memory") / "out.json"
    command = [sys.executable, str(BENCHMARKS / "memory.py"), "--quick", "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "8 lanes: program" in done.stdout
    return json.loads(out.read_text())


def test_memory_grows_with_lanes_and_models_and_not_with_clients(memory: dict):
    one, lanes, clients = memory["cases"]
    assert (one["lanes"], lanes["lanes"]) == (1, 8)
    models = (lanes["program_megabytes"] - one["program_megabytes"]) / one["model_megabytes"]
    assert 7 <= models <= 7 * 4
    # Every client's counts are kept for some evaluations, 16 MB in all; its model would take 6 MB.
    assert clients["clients"] - one["clients"] == 450
    assert clients["program_megabytes"] - one["program_megabytes"] < 20
    assert all(case["program_megabytes"] < case["peak_megabytes"] for case in memory["cases"])


def test_memory_is_kept_with_what_is_needed_to_repeat_it(memory: dict):
    assert memory["command"] == "python benchmarks/memory.py --quick"
    assert {"cpu", "cores", "system", "device"} == memory["machine"].keys()
    assert {"python", "evenly", "jax"} <= memory["versions"].keys()
    assert all(case["found"] in ("random", "cifar10") for case in memory["cases"])


def test_kept_results_name_no_folder_and_no_machine():
    for path in (BENCHMARKS / "results").glob("*.json"):
        text = path.read_text()
        assert not [folder for folder in ("/home", "/work", "/tmp") if folder in text]
        assert {"command", "date", "machine", "versions"} <= json.loads(text).keys()

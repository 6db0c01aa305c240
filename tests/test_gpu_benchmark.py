"""The benchmark for a GPU judges what it found, and says what it needs."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return __import__("gpu")


def test_every_part_has_a_target_that_can_be_missed(gpu: ModuleType):
    plain = gpu.FEDAVG[0]
    found = {
        "study": {"process_seconds": 31.0}, "cell": {"median_seconds": 2.7},
        "rotate": {plain: {"ms_per_round": 10.1}}, "same": {"points_apart": 0.01},
        "same-rotate": {"points_apart": 0.3, "seeds_apart": 0.25},
    }  # fmt: skip
    assert {name: target["reached"] for name, target in gpu.judged(found).items()} == {
        "study": True, "cell": True, "rotate": False, "same": True, "same-rotate": False,
    }  # fmt: skip
    assert set(gpu.judged(found)) == set(gpu.PARTS) == set(gpu.TARGETS)
    assert gpu.judged({}) == {}


def test_accuracies_are_as_far_apart_as_the_farthest(gpu: ModuleType):
    assert gpu.apart({"accuracies": [80.0, 70.0]}, {"accuracies": [80.25, 69.5]}) == 0.5


def test_a_missing_plan_and_unknown_parts_are_named(tmp_path: Path):
    def said(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, BENCHMARKS / "gpu.py", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        return done.stderr

    assert "write it with: python benchmarks/thesis.py --write-plan" in said(
        str(tmp_path / "none.json")
    )
    assert "--only must name parts among study, cell, rotate, same, same-rotate, got walk." in said(
        "x", "--only", "walk,cell"
    )

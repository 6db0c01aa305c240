"""The benchmark of the thesis' study: it needs only the core packages, says only what was measured,
and leaves nothing running.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.datasets.real_data import need

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NOT_CORE = ("pandas", "pyarrow", "altair", "typer", "rich", "pydantic", "torch", "flwr")
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({NOT_CORE})); import thesis; thesis.main()"
FOUND = {
    "study": {
        "cells": 1,
        "seeds": 2,
        "trainings": 288,
        "training_rounds": 5760,
        "seconds": 2.88,
        "compile_seconds": 1.0,
        "ms_per_round": 0.5,
        "megabytes": 900,
        "others": 0.02,
    },
    "one": {"rounds": 20, "ms_per_round": 5.0, "range": [4.0, 6.0], "others": 0.3},
    "flower": {
        "rounds": 5,
        "ms_per_round": 100.0,
        "range": [99.0, 101.0],
        "impatient_ms_per_round": 60.0,
        "first_seconds": 9.0,
        "megabytes": 700,
        "left_processes": 0,
        "accuracy": {"evenly": 84.0, "flower": 82.5},
        "difference": 0.2,
    },
}


def thesis(
    *options: str, code: str = "import thesis; thesis.main()"
) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code, *options], cwd=BENCHMARKS, capture_output=True, text=True,
        timeout=300, check=False
    )  # fmt: skip


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def load(name: str) -> ModuleType:
        return __import__(name)

    return load


def test_a_study_is_written_to_a_file(tmp_path: Path):
    done = thesis("--cells", "2", "--seeds", "3", "--write-plan", str(tmp_path / "plan.json"))
    assert done.returncode == 0, done.stderr
    cells = json.loads((tmp_path / "plan.json").read_text())["cells"]
    assert [cell["seeds"] for cell in cells.values()] == [[42, 123, 456]] * 2


@pytest.mark.slow
def test_evenly_alone_is_measured_where_only_the_core_packages_are(tmp_path: Path):
    need("adult-sex")
    plan, out = tmp_path / "plan.json", tmp_path / "out.json"
    assert thesis("--quick", "--seeds", "1", "--write-plan", str(plan)).returncode == 0
    done = thesis(
        "--only",
        "evenly",
        "--quick",
        "--plan",
        str(plan),
        "--patience",
        "0",
        "--json",
        str(out),
        code=WITHOUT,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["study"]["trainings"] == 144
    assert found["study"]["training_rounds"] == 144 * 20
    assert "Flower was not measured" in done.stdout


def test_without_the_core_packages_only_it_says_what_it_is_for():
    done = thesis("--help", code=WITHOUT)
    assert done.returncode == 0, done.stderr
    assert "--write-plan" in done.stdout


def test_one_round_of_flower_is_not_enough():
    done = thesis("--flower-rounds", "1")
    assert done.returncode == 2
    assert "at least 2" in done.stderr


def test_ratios_and_a_disagreement_are_said(module):
    summary = module("thesis_summary")
    found = {**FOUND, "ratios": summary.conclusions(FOUND)}
    assert found["ratios"] == {
        "agreement_reached": False,
        "faster_study": 200.0,
        "faster_one": 20.0,
        "flower_hours": 0.16,
    }
    text = summary.sentences(found)
    assert "NOT the same" in text
    assert "NOT quiet" in text
    assert "computed, not run" in text


def test_what_was_not_measured_is_not_compared(module):
    summary = module("thesis_summary")
    found = {name: FOUND[name] for name in ("study", "one")}
    assert summary.conclusions(found) == {}
    assert "times as fast" not in summary.sentences({**found, "ratios": {}})


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="reads Linux's /proc")
def test_what_a_command_leaves_behind_is_ended(module, tmp_path: Path):
    watched = module("watched")
    child = f"import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True, stderr=subprocess.DEVNULL); open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid)); time.sleep(2)"  # noqa: E501
    ended = watched.run([sys.executable, "-c", child], dict(os.environ), limit=60)
    assert ended.returncode == 0, ended.errors
    assert ended.left == 1
    assert ended.megabytes > 1
    left = int((tmp_path / "pid").read_text())
    assert not [process for process in watched.tree(left) if watched.alive(process)]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="reads Linux's /proc")
def test_a_command_that_takes_too_long_is_ended(module):
    ended = module("watched").run(
        [sys.executable, "-c", "import time; time.sleep(600)"], dict(os.environ), limit=0.5
    )
    assert ended.returncode != 0
    assert "did not end" in ended.errors


def test_an_environment_that_cannot_be_made_says_why(
    module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    environment = module("environment")
    monkeypatch.setattr(environment.sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(environment.NotInstalledError, match="no-python"):
        environment.python_with("flower", ("flwr==1.41.0",), folder=tmp_path)

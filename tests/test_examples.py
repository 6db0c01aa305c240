"""Every example runs and prints what it promises: here in this process, and in the slow set as a
user starts it.
"""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PROMISES = {
    "audit_predictions.py": [
        "it serves hospital “hospital 7” worst",
        "points less often than all others",
        "audit.csv, audit.json",
    ],
    "own_model.py": ["fedavg", "q-fedavg", "clients"],
    "own_data.py": ["age is missing", "worst hospital", "new patients come back: yes"],
    "own_method.py": ["fedavg", "urgent(temperature=1)", "urgent(temperature=0.5)"],
}


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} >= PROMISES.keys()


EVERY = pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)


def check(path: Path, printed: str) -> None:
    for promise in PROMISES.get(path.name, []):
        assert promise in printed
    assert len(path.read_text().splitlines()) <= 90


@pytest.mark.further
@EVERY
@pytest.mark.usefixtures("registries")
def test_the_example_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """With fewer rounds, since programs that are compiled quickly run slowly; the slow test runs
    all of them.
    """
    monkeypatch.chdir(tmp_path)
    shorter = tmp_path / path.name
    shorter.write_text(re.sub(r"rounds=\d{3}\b", "rounds=50", path.read_text()))
    runpy.run_path(str(shorter), run_name="__main__")
    check(path, capsys.readouterr().out)


@pytest.mark.slow
@EVERY
def test_the_example_runs_in_a_process_of_its_own(path: Path, tmp_path: Path):
    # The tests' own way of compiling (quickly, to slow programs) is not what a user has.
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")
    }
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    check(path, done.stdout)

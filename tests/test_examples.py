"""Every example runs, in a process of its own, and prints what it promises."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PROMISES = {
    "audit_predictions.py": ["Served worst is hospital “hospital 7”", "points less often than all others", "audit.csv, audit.json"],
    "own_model.py": ["fedavg", "q-fedavg", "clients"],
    "own_data.py": ["age is missing", "worst hospital", "new patients come back: yes"],
    "own_method.py": ["fedavg", "urgent(temperature=1)", "urgent(temperature=0.5)"],
}


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} >= PROMISES.keys()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_the_example_runs(path: Path, tmp_path: Path):
    # The tests' own way of compiling (quickly, to slow programs) is not what a user has.
    env = {k: v for k, v in os.environ.items() if k not in ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")}
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for promise in PROMISES.get(path.name, []):
        assert promise in done.stdout
    assert len(path.read_text().splitlines()) <= 80

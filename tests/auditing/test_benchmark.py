"""The benchmark of an audit runs, and fails unless fairlearn finds the same rates."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "audit.py"


@pytest.mark.slow
def test_both_find_the_same_rates(tmp_path: Path):
    out = tmp_path / "out.json"
    command = [
        sys.executable,
        str(SCRIPT),
        "--rows",
        "20000",
        "--repeats",
        "1",
        "--patience",
        "0",
        "--json",
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    # clients have their accuracy, groups four rates
    assert found["rates_compared"] == 50 + 4 * (2 + 5 + 10)
    assert found["largest_difference"] < 1e-12
    assert {"command", "date", "machine", "versions"} <= found.keys()

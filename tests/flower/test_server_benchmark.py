"""The benchmark of the server's part of a round runs, compares like with like, and what was kept of
it reaches its target.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_the_script_finds_both_models_equal_and_no_second_copy_of_the_replies(tmp_path: Path):
    out, replies = tmp_path / "out.json", 8
    command = [
        sys.executable,
        str(BENCHMARKS / "flower_server.py"),
        "--parameters",
        "1000000",
        "--replies",
        str(replies),
        "--repeats",
        "1",
    ]
    done = subprocess.run(
        [*command, "--patience", "0", "--json", str(out)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for own in json.loads(out.read_text())["methods"].values():
        assert own["largest_difference"] < 1e-5
        assert own["models_in_memory"]["evenly"] < replies / 2


def test_what_was_kept_reaches_the_target():
    kept = json.loads((BENCHMARKS / "results" / "flower_server.json").read_text())
    assert kept["parameters"] >= 10_000_000
    assert kept["replies"] == 20
    assert kept["methods"]["fedavg"]["cpu_ratio"] <= 1.10
    assert kept["methods"]["fedavg"]["models_in_memory"]["evenly"] < 5

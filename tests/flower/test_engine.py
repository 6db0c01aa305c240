"""Flower's own simulation engine, with Ray, runs the strategy and its clients as they are."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from evenly.simulate import simulate
from tests.flower.small import SEEDS, algorithm_of, small, task_of


@pytest.mark.slow
@pytest.mark.parametrize("text", ["q-fedavg(q=1)", "fairfed+reweigh"])
def test_the_engine_gives_the_simulators_model(text: str, tmp_path: Path):
    out = tmp_path / "model.npz"
    home = Path(__file__).parents[2]
    env = {
        **os.environ,
        "PYTHONPATH": str(home),
        "FLWR_HOME": str(tmp_path),
        "FLWR_TELEMETRY_ENABLED": "0",
    }
    command = [sys.executable, "-m", "tests.flower.in_engine", text, str(out)]
    ended = subprocess.run(
        command, cwd=home, env=env, capture_output=True, text=True, timeout=400, check=False
    )
    assert out.exists(), ended.stdout + ended.stderr
    (trace,) = simulate(task_of(text), small(2), [algorithm_of(text)], 2, seeds=SEEDS)
    with np.load(out) as found:
        for name, expected in trace.model.items():
            np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-5)

"""An experiment killed by the system at random moments, and resumed, ends as if nothing had
happened.

`evenly run` and `evenly resume` are real processes on made-up data, killed with SIGKILL. Blocks are
small and each is followed by a checkpoint; every write waits a moment before the file is renamed
into place, so that kills fall into the middle of it. Drawing the report's charts is left out: it
takes longer than everything else and reads only what is finished.
"""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
EXPERIMENT = """
title = "Killed"
methods = ["fedavg", "q-fedavg(q=[0, 2])", "fedsgd"]
rounds = 24
seeds = 2
sampling = "weighted(clients=2)"
evaluate_every = 8
[data]
name = "synthetic"
clients = 4
[training]
learning_rate = 0.1
"""
PROCESS = """
import os, sys, time, types
from evenly.cli import main
from evenly.simulate import run, schedule
from evenly.writing import write_whole
report = lambda comparison, path, lines, **_: write_whole(path, lambda file: file.write(b"report"))
sys.modules["evenly.report.page"] = types.SimpleNamespace(write_report=report)
run.CHECKPOINT_SECONDS, schedule.LARGEST_BLOCK_ROWS = 0.0, 600
synced = os.fsync
def slow(file):
    time.sleep(0.01)
    synced(file)
os.fsync = slow
print("ready", flush=True)
main()
"""
SAME = ("results.csv", "results.parquet", "plan.json", "traces", "models")


class Undisturbed(NamedTuple):
    """What a run that nobody killed has left, and how many seconds it took."""

    files: dict[str, bytes]
    seconds: float


def start(folder: Path, *arguments: str) -> subprocess.Popen:
    """A process of evenly, when its imports are done."""
    with (folder / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", PROCESS, *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=said,
        )
    assert process.stdout
    assert process.stdout.readline() == b"ready\n", (folder / "said.txt").read_text()
    return process


def finish(process: subprocess.Popen, folder: Path) -> None:
    process.communicate(timeout=120)
    assert process.returncode == 0, (folder / "said.txt").read_text()


def files_of(out: Path) -> dict[str, bytes]:
    found = [
        path
        for name in SAME
        for path in ([out / name] if (out / name).is_file() else sorted((out / name).iterdir()))
    ]
    return {str(path.relative_to(out)): path.read_bytes() for path in found}


def run_arguments(folder: Path) -> list[str]:
    (folder / "killed.toml").write_text(EXPERIMENT)
    return ["run", str(folder / "killed.toml"), "--out", str(folder / "out")]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    process, began = start(folder, *run_arguments(folder)), time.monotonic()
    finish(process, folder)
    return Undisturbed(files_of(folder / "out"), time.monotonic() - began)


def finished_runs(out: Path) -> dict[str, tuple[int, int]]:
    """The files of finished runs, and what changes when one is written again."""
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in (out / "traces").glob("[!.]*")
    }


def check_whole(out: Path, expected: dict[str, bytes]) -> None:
    """Whatever is there under its own name is complete; half a file has another name."""
    for path in out.rglob("[!.]*.npz"):
        with np.load(path) as file:
            assert all(file[name] is not None for name in file.files)
    for path in (path for name in ("traces", "models") for path in (out / name).glob("[!.]*")):
        assert path.read_bytes() == expected[str(path.relative_to(out))]


def killed_and_resumed(folder: Path, moments: list[float], expected: dict[str, bytes]) -> int:
    """Kill a run, and those that go on with it, after so many seconds each; then let it end. How
    many were killed in time.
    """
    out, arguments, kills, before = folder / "out", run_arguments(folder), 0, {}
    for moment in [*moments, None]:
        process = start(folder, *arguments)
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
        else:
            finish(process, folder)
        after = finished_runs(out)
        assert {name: after.get(name) for name in before} == before, "a finished run was done again"
        check_whole(out, expected)
        before = after
        if process.returncode == 0:
            break
        if (out / "plan.json").exists():
            arguments = ["resume", str(out)]
    assert files_of(out) == expected
    assert not [path for path in out.rglob(".*") if path.is_file()], (
        "nothing is left beside its place"
    )
    assert not list((out / "checkpoints").glob("*"))
    return kills


def kill_often(
    undisturbed: Undisturbed, tmp_path: Path, kills: int, each: int, draw: random.Random
) -> None:
    """Run anew until there were so many kills, at most `each` of one run. Some runs end before they
    can be killed.
    """
    for attempt in range(3 * kills):
        if not kills:
            return
        folder = tmp_path / str(attempt)
        folder.mkdir()
        moments = [draw.uniform(0.02, 0.8) * undisturbed.seconds for _ in range(min(kills, each))]
        kills -= killed_and_resumed(folder, moments, undisturbed.files)
    pytest.fail(f"{kills} kills were not in time")


@pytest.mark.further
def test_a_kill_changes_nothing(undisturbed: Undisturbed, tmp_path: Path):
    kill_often(undisturbed, tmp_path, kills=1, each=1, draw=random.Random(5))


@pytest.mark.slow
def test_thirty_kills_change_nothing(undisturbed: Undisturbed, tmp_path: Path):
    kill_often(undisturbed, tmp_path, kills=30, each=2, draw=random.Random(30))

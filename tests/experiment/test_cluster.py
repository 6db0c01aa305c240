"""Jobs on a real Ray cluster of two workers: the same files as here, also when a worker is killed."""

import dataclasses
import os
import signal
import subprocess
from collections import Counter
from importlib.util import find_spec

import pytest

from evenly.experiment import cluster
from evenly.experiment.execute import execute
from evenly.experiment.files import write_rows
from evenly.experiment.plan import Plan
from evenly.experiment.store import Store

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")  # importing it would fix its settings

PLAN = Plan(
    name="test",
    data={"name": "synthetic", "clients": 6},
    methods=("fedavg", "q-fedavg(q=[0, 1])", "fedavg+uniform(clients=3)"),
    rounds=40,
    seeds=(0, 1),
    sampling="weighted(clients=2)",
    evaluate_every=10,
)
LONG = dataclasses.replace(PLAN, rounds=6_000, evaluate_every=20, seeds=(0,))  # some seconds, told several times on the way


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))  # workers' checkpoints
        with cluster.on_ray(cores=2) as place:
            yield place


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """The long plan, executed here."""
    return files(LONG, tmp_path_factory.mktemp("here"))


def files(plan, folder, **options):
    """Everything an execution leaves in its folder, by name."""
    store = Store(folder / "out", plan)
    write_rows(store, execute(plan, store, **options))
    return contents(folder / "out")


def contents(folder):
    kept = ("results.csv", "traces/*.npz", "models/*.npz")
    return {str(path.relative_to(folder)): path.read_bytes() for pattern in kept for path in sorted(folder.glob(pattern))}


def workers():
    """Process ids of those who are training for this process, whatever else runs on the machine."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    parents = {int(pid): int(parent) for pid, parent, *_ in rows}

    def ours(pid):
        return pid == os.getpid() or (pid in parents and ours(parents[pid]))

    return [int(row[0]) for row in rows if row[2:] and row[2].startswith("ray::train_program") and ours(int(row[0]))]


def kill_one(killed):
    """Progress that kills one worker for good, once it is in the middle of its program."""

    def progress(done, total):
        if 0 < done < LONG.rounds and not killed:
            killed.extend(workers()[:1])
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    return progress


def test_two_workers_leave_the_same_files_as_this_process(where, tmp_path):
    told = []
    there = files(PLAN, tmp_path / "there", where=where, progress=lambda done, total: told.append((done, total)))
    here = files(PLAN, tmp_path / "here")
    assert len([name for name in here if name.startswith("traces/")]) == 4  # two programs on each of two seeds
    assert there.keys() == here.keys()
    assert all(there[name] == here[name] for name in here)
    assert told[-1] == (4 * PLAN.rounds, 4 * PLAN.rounds)


def test_a_killed_workers_program_runs_again_and_nothing_is_doubled(where, long, tmp_path, monkeypatch, caplog):
    saved, save, killed = Counter(), Store.save_traces, []
    monkeypatch.setattr(Store, "save_traces", lambda store, keys, *a, **k: (saved.update([tuple(keys)]), save(store, keys, *a, **k)))
    there = files(LONG, tmp_path, where=where, progress=kill_one(killed))
    assert killed
    assert "its worker died" in caplog.text
    assert "attempt 2 of 3" in caplog.text
    assert there == long
    assert set(saved.values()) == {1}
    assert len(saved) == 2

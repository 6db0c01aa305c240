"""Jobs on a real Ray cluster of two workers: the same files as here, also when a worker
is killed.
"""

import dataclasses
import os
import signal
import subprocess
import time
from collections import Counter
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from evenly.cli import app
from evenly.datasets.load import table_source
from evenly.experiment import cluster
from evenly.experiment.execute import Result, execute
from evenly.experiment.folder import Store, write_results
from evenly.experiment.plan import Plan

# importing it would fix its settings
pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")

PLAN = Plan(
    name="test",
    data={"name": "synthetic", "clients": 6},
    methods=("fedavg", "q-fedavg(q=[0, 1])", "fedavg+uniform(clients=3)"),
    rounds=40,
    seeds=(0, 1),
    sampling="weighted(clients=2)",
    evaluate_every=10,
)
# some seconds, told several times on the way
LONG = dataclasses.replace(PLAN, rounds=6_000, evaluate_every=20, seeds=(0,))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where workers keep checkpoints."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def where(cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        with cluster.on_ray(cores=2) as place:
            yield place


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """What the long plan leaves when it is executed here."""
    return files(LONG, tmp_path_factory.mktemp("here"))


def files(plan, folder, **options):
    """Execute a plan: everything that is in its folder afterwards and must not depend on where it
    ran.
    """
    store = Store(folder / "out", plan)
    write_results(store, execute(plan, store, **options))
    kept = ("results.csv", "traces/*.npz", "models/*.npz")
    return {
        str(p.relative_to(store.folder)): p.read_bytes()
        for name in kept
        for p in sorted(store.folder.glob(name))
    }


def workers():
    """Process ids of those who are training for this process, whatever else runs on the machine."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    parents = {int(pid): int(parent) for pid, parent, *_ in rows}

    def ours(pid):
        return pid == os.getpid() or (pid in parents and ours(parents[pid]))

    return [
        int(row[0])
        for row in rows
        if row[2:] and row[2].startswith("ray::train_program") and ours(int(row[0]))
    ]


def kill_one(killed):
    """Progress that kills one worker for good, once there is one in the middle of its program."""

    def progress(done, total):
        if 0 < done < total and not killed:
            killed.extend(workers()[:1])
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    return progress


@pytest.mark.slow
def test_two_workers_leave_the_same_files_as_this_process(where, tmp_path):
    told = []
    there = files(
        PLAN,
        tmp_path / "there",
        where=where,
        progress=lambda done, total: told.append((done, total)),
    )
    here = files(PLAN, tmp_path / "here")
    # two programs on each of two seeds
    assert len([name for name in here if name.startswith("traces/")]) == 4
    assert there.keys() == here.keys()
    assert all(there[name] == here[name] for name in here)
    assert told[-1] == (4 * PLAN.rounds, 4 * PLAN.rounds)


@pytest.mark.slow
def test_a_killed_workers_program_runs_again_and_nothing_is_doubled(
    where, long, tmp_path, monkeypatch, caplog
):
    saved, save, killed, points = Counter(), Store.save_traces, [], Counter()
    monkeypatch.setattr(
        Store,
        "save_traces",
        lambda store, keys, *a, **k: (saved.update([tuple(keys)]), save(store, keys, *a, **k)),
    )
    there = files(
        LONG,
        tmp_path,
        where=where,
        progress=kill_one(killed),
        log=lambda point: points.update([(point.run.label, point.round)]),
    )
    assert killed
    assert "its worker died" in caplog.text
    assert "attempt 2 of 3" in caplog.text
    assert there == long
    assert len(saved) == 2
    assert set(saved.values()) == {1}
    assert len(points) == 4 * (LONG.rounds // 20 + 1)  # each evaluation of each run is told
    assert set(points.values()) == {1}


@pytest.mark.slow
def test_a_program_whose_workers_always_die_is_named(where, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "ATTEMPTS", 1)
    killed = []
    with pytest.raises(
        ChildProcessError,
        match=r"The program of (fedavg|fedavg\+uniform).* on seed 0 was started 1 times",
    ) as raised:
        files(LONG, tmp_path, where=where, progress=kill_one(killed))
    assert killed
    assert "All other finished programs are stored" in str(raised.value)


@pytest.mark.slow
def test_stopped_by_the_user_workers_keep_what_they_have(where, cache, long, tmp_path):
    def stop(done, total):
        if done > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files(LONG, tmp_path, where=where, progress=stop)
    ended = time.monotonic() + 10
    while workers() and time.monotonic() < ended:
        time.sleep(0.2)
    assert not workers()
    assert list(cache.rglob("*.npz"))
    assert files(LONG, tmp_path, where=where) == long
    assert not list(cache.rglob("*.npz"))


@pytest.mark.further
def test_a_table_travels_to_workers_that_do_not_have_it(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # workers are elsewhere, and the path is relative
    draw = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "site": draw.integers(0, 4, 200),
            "age": draw.normal(size=200),
            "ill": draw.integers(0, 2, 200),
        }
    )
    table.to_csv("patients.csv", index=False)
    data = table_source("patients.csv", client="site", label="ill")
    plan = dataclasses.replace(PLAN, data=data, methods=("fedavg",), seeds=(0,), rounds=20)
    assert files(plan, tmp_path / "there", where=where) == files(plan, tmp_path / "here")


def test_a_jobs_own_error_comes_back_as_it_is(where):
    plan = dataclasses.replace(PLAN, methods=("fairfed",), seeds=(0,))
    with pytest.raises(ValueError, match="this federation has only one group") as there:
        execute(plan, where=where)
    with pytest.raises(ValueError, match="this federation has only one group") as here:
        execute(plan)
    assert str(there.value) == str(here.value)


FILE = """
title = "My experiment"
methods = ["fedavg", "q-fedavg(q=1)"]
rounds = 20
seeds = 2
[data]
name = "synthetic"
clients = 6
"""


def evenly(*words, code=0):
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result


@pytest.mark.slow
def test_run_and_resume_take_a_cluster(where, tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text(FILE)
    evenly("run", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "here"))
    evenly("run", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "there"), "--on", "ray")
    results = (tmp_path / "here" / "results.csv").read_bytes()
    assert (tmp_path / "there" / "results.csv").read_bytes() == results
    for trace in sorted((tmp_path / "there" / "traces").iterdir())[1:]:
        trace.unlink()
    monkeypatch.setattr(
        "evenly.experiment.execute.run_job", lambda *_, **__: pytest.fail("trained here")
    )
    evenly("resume", str(tmp_path / "there"), "--on", "ray")
    assert (tmp_path / "there" / "results.csv").read_bytes() == results


@pytest.mark.parametrize(
    "options, sentence",
    [(["--address", "auto"], "needs --on ray"), (["--on", "rya"], "Did you mean 'ray'?")],
)
def test_mistakes_about_the_place_are_told_in_a_sentence(options, sentence, tmp_path):
    (tmp_path / "mine.toml").write_text(FILE)
    assert sentence in evenly("run", str(tmp_path / "mine.toml"), *options, code=2).stderr


def test_without_ray_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cluster, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match="pip install 'evenly\\[ray\\]'"), cluster.on_ray():
        pass


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_an_address_without_a_cluster_is_told_at_once(address):
    with (
        pytest.raises(ValueError, match=f"There is no Ray cluster at {address} .*ray start --head"),
        cluster.on_ray(address),
    ):
        pass


def test_workers_take_the_flags_of_whoever_asks(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_mine")
    monkeypatch.setenv("EVENLY_DATA", "/data")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("NPROC", "2")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    settings = cluster.worker_environment()
    assert {
        "XLA_FLAGS": "--xla_mine",
        "EVENLY_DATA": "/data",
        "NPROC": "2",
        "OPENBLAS_NUM_THREADS": "3",
    }.items() <= settings.items()
    assert "HOME" not in settings


def test_what_comes_to_its_end_while_everything_stops_is_kept():
    class LostError(Exception):
        pass

    class Ray:
        exceptions = SimpleNamespace(RayError=LostError)

        def wait(self, jobs, **_):
            return jobs, []

        def get(self, job):
            if job == "whole":
                return Result([], {})
            raise LostError

    kept = []
    driver: Any = object.__new__(cluster._Driver)
    driver._ray, driver._board, driver._programs, driver._observers = (
        Ray(),
        MagicMock(),
        ["first", "second"],
        {0: None, 1: None},
    )
    driver._jobs = SimpleNamespace(save=lambda program, result: kept.append(program))
    driver._running = {"stopped": (0, 1), "whole": (1, 1)}
    driver._stop()
    assert kept == ["second"]

"""Loggers: what they were told can be read back, a run that goes on doubles nothing, and one that
fails disturbs nobody.
"""

import json
import struct
import sys
import threading
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evenly.cli import app
from evenly.experiment import loggers
from evenly.experiment.loggers import logging_to, path_of
from evenly.experiment.observe import Point, RunId

LABEL = "q-fedavg(q=1)"
PARAMS = {
    "experiment": "paper/test",
    "data": "tiny",
    "method": "q-fedavg",
    "method.q": 1.0,
    "method.list": [1, 2],
    "seed": 0,
}


def point(done: int, seed: int = 0, label: str = LABEL) -> Point:
    values = {"test": {"average": 50.0 + done, "worst10": 12.5}, "central": {"eod_abs": 0.25}}
    return Point(
        RunId("paper/test", label, seed), done, 20, values, {**PARAMS, "seed": seed, "label": label}
    )


def log_all(name: str, folder: Path, points: Sequence[Point]) -> None:
    with logging_to([name], folder) as log:
        assert log is not None
        for one in points:
            log(one)


def go_on(name: str, folder: Path) -> None:
    """A run that is killed at round 10 and goes on: it begins with what was before."""
    with pytest.raises(KeyboardInterrupt), logging_to([name], folder) as log:  # noqa: PT012
        assert log is not None
        log(point(0))
        log(point(10))
        log(point(0, seed=1))
        raise KeyboardInterrupt
    log_all(name, folder, [point(done, seed) for seed in (0, 1) for done in (0, 10, 20)])


def events(path: Path) -> list[tuple[int, str, float]]:
    """Scalars in an event file: records of a length, a checksum, as many bytes, and a checksum."""
    Event = import_module("tensorboardX.proto.event_pb2").Event
    data, found = path.read_bytes(), []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + size])
        found += [
            (event.step, value.tag, value.simple_value)
            for value in event.summary.value
            if value.WhichOneof("value") == "simple_value"
        ]
        data = data[16 + size :]
    return found


def test_tensorboard_holds_every_point_once(tmp_path: Path):
    go_on("tensorboard", tmp_path)
    for seed in (0, 1):
        (file,) = (
            tmp_path / "logs" / "tensorboard" / "paper" / "test" / LABEL / f"seed-{seed}"
        ).glob("events.out.tfevents.*")
        found = events(file)
        assert [(step, value) for step, tag, value in found if tag == "test/average"] == [
            (0, 50.0),
            (10, 60.0),
            (20, 70.0),
        ]
        assert [(step, value) for step, tag, value in found if tag == "central/eod_abs"] == [
            (0, 0.25),
            (10, 0.25),
            (20, 0.25),
        ]
        assert b"method.q" in file.read_bytes(), "the settings are there"


@pytest.mark.further
@pytest.mark.filterwarnings("ignore")  # the database library warns of its own future
def test_mlflow_holds_every_point_once_with_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    go_on("mlflow", tmp_path / "out")
    client = MlflowClient(f"sqlite:///{tmp_path / 'out' / 'logs' / 'mlflow' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("evenly/paper/test")
    assert experiment is not None
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {f"{LABEL} seed 0", f"{LABEL} seed 1"}
    for run in runs.values():
        history = client.get_metric_history(run.info.run_id, "test/average")
        assert [(one.step, one.value) for one in history] == [(0, 50.0), (10, 60.0), (20, 70.0)]
        assert run.info.status == "FINISHED"
        assert {
            "method.q": "1.0",
            "method.list": "[1, 2]",
            "data": "tiny",
        }.items() <= run.data.params.items()
    assert [path.name for path in tmp_path.iterdir()] == ["out"], (
        "nothing is left where the user happens to be"
    )


def records(path: Path) -> list[Any]:
    """What a W&B file holds: after seven bytes, records of a checksum, a length, a kind and as many
    bytes, in blocks of 32 KiB.
    """
    Record = import_module("wandb.proto.wandb_internal_pb2").Record
    data, at, begun, found = path.read_bytes(), 7, b"", []
    while at < len(data):
        if at // 32768 != (at + 6) // 32768:  # no head fits into the rest of a block
            at = -(-at // 32768) * 32768
        if len(data) < at + 7:
            break  # not yet written
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        if len(data) < at + 7 + size:
            break
        begun += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            found.append(Record.FromString(begun))
            begun = b""
    return found


def written(path: Path) -> list[Any]:
    """The same once it is whole: W&B writes in a process of its own, which on a loaded machine
    comes later.
    """
    until = time.monotonic() + 30
    while True:
        found = records(path)
        if (
            any(record.WhichOneof("record_type") == "exit" for record in found)
            or time.monotonic() > until
        ):
            return found
        time.sleep(0.2)


@pytest.mark.further
def test_wandb_offline_holds_every_point_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    go_on("wandb", tmp_path)
    files = sorted((tmp_path / "logs" / "wandb").glob("wandb/offline-run-*/run-*.wandb"))
    assert len(files) == 2, "one for each seed; that of the killed attempt is gone"
    names = set()
    for file in files:
        steps = []
        for record in written(file):
            if record.WhichOneof("record_type") == "history":
                steps += [
                    item.value_json
                    for item in record.history.item
                    if (item.key or item.nested_key[0]) == "test/average"
                ]
            elif record.WhichOneof("record_type") == "run":
                names.add(record.run.display_name)
                assert record.run.run_group == "paper/test"
        assert [float(value) for value in steps] == [50.0, 60.0, 70.0]
    assert names == {f"{LABEL} seed 0", f"{LABEL} seed 1"}


def test_a_command_logs_where_it_is_asked_to_and_nowhere_else(tmp_path: Path):
    data = [
        "--data",
        "synthetic(clients=5)",
        "--algorithms",
        "fedavg",
        "--rounds",
        "20",
        "--seeds",
        "1",
        "--sampling",
        "uniform(clients=2)",
    ]
    found = CliRunner().invoke(
        app,
        [
            "compare",
            *data,
            "--evaluate-every",
            "10",
            "--log",
            "tensorboard",
            "--out",
            str(tmp_path),
            "--json",
        ],
    )
    assert found.exit_code == 0, found.output
    (file,) = (tmp_path / "logs").rglob("events.out.tfevents.*")
    rows = json.loads(found.stdout)["rows"]
    wanted = {
        r["round"]: r["value"]
        for r in rows
        if (r["level"], r["split"], r["metric"]) == ("model", "test", "average")
    }
    assert {
        step: value for step, tag, value in events(file) if tag == "test/average"
    } == pytest.approx(wanted)
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["tensorboard"]
    refused = CliRunner().invoke(
        app, ["compare", *data, "--log", "tensorbord", "--out", str(tmp_path / "none")]
    )
    assert refused.exit_code == 2
    assert "Did you mean 'tensorboard'?" in refused.output
    assert not (tmp_path / "none").exists()


def test_a_missing_package_is_named_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delitem(sys.modules, "tensorboardX", raising=False)
    monkeypatch.setattr("evenly.experiment.loggers.find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r"needs the package tensorboardX, .*pip install 'evenly\[logging\]'"
    ):
        log_all("tensorboard", tmp_path, [])


def test_a_misspelt_logger_is_refused_before_anything_is_written(tmp_path: Path):
    with pytest.raises(ValueError, match="tensorboard"):
        log_all("tensorbord", tmp_path / "out", [])
    assert not (tmp_path / "out").exists()


def test_wandb_without_a_login_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import wandb

    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr(type(wandb.api), "api_key", None)
    with pytest.raises(ValueError, match="WANDB_MODE=offline"):
        log_all("wandb", tmp_path, [])


class Backend:
    """Fails or hangs after some points."""

    def __init__(self, fails_at: int = -1, hangs_at: int = -1) -> None:
        self.logged, self.closed = [], threading.Event()
        self._fails_at, self._hangs_at = fails_at, hangs_at

    def log(self, point: Point) -> None:
        if len(self.logged) == self._fails_at:
            raise ConnectionError("the server is gone\nand more")
        if len(self.logged) == self._hangs_at:
            self.closed.wait(10)
        self.logged.append(point.round)

    def close(self, *, finished: bool) -> None:
        self.logged.append("finished" if finished else "stopped")


def test_a_logger_that_fails_is_given_up_with_one_sentence(caplog: pytest.LogCaptureFixture):
    backend = Backend(fails_at=2)
    with loggers.in_background("mlflow", backend) as log:
        for done in range(50):
            log(point(done))
    assert backend.logged == [0, 1]
    assert [r.message for r in caplog.records] == [
        "Logging to mlflow stopped (ConnectionError: the server is gone). Training continues."
    ]


def test_a_logger_that_hangs_is_not_waited_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loggers, "PATIENCE", 0.1)
    backend, began = Backend(hangs_at=1), time.monotonic()
    with loggers.in_background("wandb", backend) as log:
        for done in range(5):
            log(point(done))
        assert time.monotonic() - began < 1, "training does not wait"
    assert time.monotonic() - began < 5
    assert "did not respond; 4 points were not logged" in caplog.text
    backend.closed.set()


def test_everything_is_logged_before_the_end_and_an_interrupt_is_told():
    backend = Backend()
    with loggers.in_background("mlflow", backend) as log:
        for done in range(200):
            log(point(done))
    assert backend.logged == [*range(200), "finished"]
    stopped = Backend()
    with pytest.raises(KeyboardInterrupt), loggers.in_background("mlflow", stopped):
        raise KeyboardInterrupt
    assert stopped.logged == ["stopped"]


def test_folders_of_runs_are_safe_and_differ():
    paths = [
        path_of(point(0, label=label))
        for label in ("a/b", "a_b", "..", "a<b", "x" * 300, "x" * 301, LABEL)
    ]
    assert len({str(path) for path in paths}) == len(paths)
    assert all(len(path.parts) == 4 and ".." not in path.parts for path in paths)

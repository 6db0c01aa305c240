"""The live file: what a running experiment has found, once and whole, and never in the experiment's
way.
"""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.data.splits import CENTRAL, SPLITS
from evenly.experiment import observe
from evenly.experiment.comparison import Comparison, final_spreads, group_metrics, live_metrics
from evenly.experiment.execute import execute, setting_of
from evenly.experiment.folder import Store
from evenly.experiment.observe import Followers, Point
from evenly.experiment.plan import Plan, Program
from evenly.metrics import METRICS, accuracy, examples, measure
from evenly.types import Trace

PLAN = Plan(
    name="test",
    data={"name": "synthetic-census", "clients": 6, "rows": 600},
    methods=("fedavg", "multi-q(q=[0, 1])"),
    rounds=60,
    seeds=(0, 1),
    sampling="uniform(clients=2)",
    evaluate_every=20,
)
LABELS = [v.label for v in PLAN.variants()]


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("evenly.simulate.schedule.LARGEST_BLOCK_ROWS", 400)
    monkeypatch.setattr(observe, "PAUSE", 0.0)


@pytest.fixture(scope="module")
def plain() -> Comparison:
    return execute(PLAN)


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / observe.LIVE_FILE).read_text().splitlines()]


def of_runs(told: list[dict]) -> list[tuple]:
    return sorted((line["label"], line["seed"], line["round"]) for line in told if "round" in line)


EVERY = sorted(
    (label, seed, done) for label in LABELS for seed in (0, 1) for done in (0, 20, 40, 60)
)


def test_every_evaluation_is_there_once_with_the_figures_of_the_results(
    tmp_path: Path, plain: Comparison
):
    execute(PLAN, Store(tmp_path, PLAN))
    head, *told = lines(tmp_path)
    assert head["runs"] == [[label, seed] for label in LABELS for seed in (0, 1)]
    assert head["rounds"] == 60
    assert of_runs(told) == EVERY
    for label in LABELS:
        for split, metric in (
            ("valid", "average"),
            ("valid", "worst10"),
            ("valid", "variance"),
            ("central", "accuracy"),
            ("central", "eod_abs"),
        ):
            last = [
                line["values"][split][metric]
                for line in told
                if line.get("label") == label and line["round"] == 60
            ]
            assert sum(last) / 2 == pytest.approx(
                final_spreads(plain, label, split)[metric].mean, rel=2e-4
            ), metric
    done = [line["done"] for line in told if "done" in line]
    assert done == sorted(done)
    assert {"done": 120, "total": 120}.items() <= [line for line in told if "done" in line][
        -1
    ].items()
    assert told[-1]["end"] == "finished"
    assert not observe.is_running(tmp_path / observe.LIVE_FILE)


def test_a_run_that_goes_on_begins_the_file_anew_and_doubles_nothing(tmp_path: Path):
    store = Store(tmp_path, PLAN)

    def stop(done: int, total: int) -> None:
        assert observe.is_running(tmp_path / observe.LIVE_FILE)
        if done > 70:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(PLAN, store, progress=stop)
    assert lines(tmp_path)[-1]["end"] == "stopped"
    assert 0 < len(of_runs(lines(tmp_path))) < len(EVERY)
    execute(PLAN, store)
    assert of_runs(lines(tmp_path)) == EVERY
    before = (tmp_path / observe.LIVE_FILE).stat()
    execute(PLAN, store)
    assert (tmp_path / observe.LIVE_FILE).stat() == before, "nothing runs, so nothing is written"


def test_a_failure_is_written_down_with_the_runs_that_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from evenly.experiment import execute as jobs

    def broken(*given: object, **options: object) -> None:
        raise ValueError("the loss is not finite")

    monkeypatch.setattr(jobs, "simulate", broken)
    with pytest.raises(ValueError, match="not finite"):
        execute(PLAN, Store(tmp_path, PLAN))
    *_, end = told = lines(tmp_path)
    assert end["end"] == "failed"
    assert end["error"] == "the loss is not finite"
    assert ["fedavg", 0] in [run for line in told if "failed" in line for run in line["failed"]]


def test_a_full_disk_ends_the_file_and_not_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: Comparison
):
    real: Callable[[int, bytes], int] = os.write

    def full(file: int, data: bytes) -> int:
        if b'"round":20' in data:
            real(file, data[:7])  # the disk takes a little more, as disks do
            raise OSError(28, "No space left on device")
        return real(file, data)

    monkeypatch.setattr(os, "write", full)
    found = execute(PLAN, Store(tmp_path, PLAN))
    assert (
        final_spreads(found, "fedavg", "valid")["average"]
        == final_spreads(plain, "fedavg", "valid")["average"]
    )


def test_the_file_stays_small_however_often_is_evaluated(tmp_path: Path):
    about = {"name": "test", "rounds": 20_000, "every": 3, "splits": ["test"]}
    file = observe.Live(tmp_path, about, [("fedavg", 0)])
    for done in [*range(0, 20_000, 3), 20_000]:
        file.point("fedavg", 0, done, {"test": {"average": 12.3456789}, "train": {"average": 1.0}})
    file.end("finished")
    kept = [line for line in lines(tmp_path) if "round" in line]
    assert 150 < len(kept) <= observe.MOST_EVALUATIONS + 2
    assert kept[0]["round"] == 0
    assert kept[-1] == {**kept[-1], "round": 20_000, "values": {"test": {"average": 12.346}}}


def test_very_many_runs_are_written_down_at_fewer_rounds(tmp_path: Path):
    about = {"name": "test", "rounds": 100, "every": 1, "splits": ["test"]}
    file = observe.Live(tmp_path, about, [("fedavg", seed) for seed in range(2000)])
    kept = [done for done in range(101) if file.wants(done)]
    assert len(kept) == 11
    assert (kept[0], kept[-1]) == (0, 100)
    file.end("finished")


def test_what_is_followed_is_measured_as_the_results_are(some_trace: Trace, tiny: Federation):
    for split in (*SPLITS, CENTRAL):
        for name, values in live_metrics(tiny, some_trace, split).items():
            for i, value in enumerate(values):
                if split != CENTRAL and name in METRICS:
                    tables = some_trace.tables[i, SPLITS.index(split)]
                    wanted = measure(accuracy(tables), examples(tables))[name]
                elif name == "loss":
                    at = SPLITS.index(split)
                    losses, rows = some_trace.losses[i, at], examples(some_trace.tables[i, at])
                    wanted = (
                        sum(loss * n for loss, n in zip(losses, rows, strict=True) if n)
                        / rows.sum()
                    )
                else:
                    wanted = group_metrics(tiny, some_trace, split)[name][i]
                assert value == pytest.approx(wanted, rel=1e-6, nan_ok=True), (split, name)


def test_what_cannot_be_measured_does_not_end_training(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, plain: Comparison
):
    def broken(*given: object) -> None:
        raise ZeroDivisionError("no rows")

    monkeypatch.setattr("evenly.experiment.observe.live_metrics", broken)
    found = execute(PLAN, log=lambda point: None)
    assert (
        final_spreads(found, "fedavg", "valid")["average"]
        == final_spreads(plain, "fedavg", "valid")["average"]
    )
    assert [r.message for r in caplog.records] == [
        "Progress reporting failed and is off (ZeroDivisionError: no rows). Training continues."
    ]


def test_a_log_is_told_every_point_with_every_split_and_the_settings():
    told: list[Point] = []
    execute(PLAN, log=told.append)
    assert sorted((p.run.label, p.run.seed, p.round) for p in told) == EVERY
    point = told[0]
    assert {"train", "valid", "central"} == set(point.values)
    assert {"average", "worst10", "variance", "loss", "eod_abs"} <= set(point.values["valid"])
    assert point.params["data"] == "synthetic-census"
    assert point.params["data.clients"] == 6
    assert point.params["method"] in ("fedavg", "multi-q")
    assert point.params["seed"] == point.run.seed


def test_a_log_that_fails_is_dropped_with_one_sentence(
    plain: Comparison, caplog: pytest.LogCaptureFixture
):
    calls = []

    def broken(point: Point) -> None:
        calls.append(point)
        raise ConnectionError("the server is gone")

    found = execute(PLAN, log=broken)
    assert len(calls) == 1
    assert [r.message for r in caplog.records] == [
        "Logging stopped (ConnectionError: the server is gone). Training continues."
    ]
    assert (
        final_spreads(found, "fedavg", "valid")["average"]
        == final_spreads(plain, "fedavg", "valid")["average"]
    )


def test_the_round_in_which_everybody_votes_is_the_end(tmp_path: Path):
    plan = dataclasses.replace(
        PLAN, methods=("e2fl(final_pass=true)",), rounds=30, seeds=(0,), evaluate_every=30
    )
    federation, points = setting_of(plan, 0).federation, list[Point]()
    each = (len(federation.groups), len(federation.labels), len(federation.labels))
    told = Trace(
        rounds=np.array([30, 31]),
        tables=np.ones((2, len(SPLITS), federation.clients, *each), np.int32),
        losses=np.ones((2, len(SPLITS), federation.clients), np.float32),
        central=np.ones((2, *each), np.int32), cohort=np.zeros((0, 0), np.int32),
        weights=np.zeros((0, 0), np.float32), excluded=np.zeros(federation.clients, np.int32),
        upload=0.0, download=0.0, model=None,
    )  # fmt: skip
    followers = Followers(plan, plan.variants(), federation, tmp_path, points.append)
    with followers.session({Program(0, (0,), ("one",)): [told]}, 1):
        pass
    assert [(point.round, point.rounds) for point in points] == [
        (30, 31),
        (31, 31),
    ], "a logger closes a run at its last point"
    assert [line["round"] for line in lines(tmp_path) if "round" in line] == [30, 31]

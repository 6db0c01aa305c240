"""What the page is told of a folder: before, during and after an experiment, and after a kill."""

import json
import os
import time
from pathlib import Path

import pytest

from evenly.experiment.observe import LIVE_FILE, Live
from evenly.watch.state import Tail, WatchState

ABOUT = {"name": "test", "data": "tiny", "rounds": 20, "every": 10, "splits": ["test", "central"]}
RUNS = [("fedavg", 0), ("fedavg", 1), ("q-fedavg(q=1)", 0), ("q-fedavg(q=1)", 1)]


def begun(folder: Path) -> Live:
    """Half of an experiment: one seed of two has come to the end, the other is half-way, the second
    method waits.
    """
    file = Live(folder, ABOUT, RUNS)
    file.progress(0, 80)
    file.mark("started", [("fedavg", 0), ("fedavg", 1)])
    for seed, rounds in ((0, (0, 10, 20)), (1, (0, 10))):
        for done in rounds:
            file.point(
                "fedavg",
                seed,
                done,
                {
                    "test": {"average": 50.0 + done + 4 * seed, "worst10": 10.0},
                    "central": {"eod_abs": 0.125},
                },
            )
    return file


def told(folder: Path, **asked: str) -> dict:
    found = WatchState(folder).look(**asked)
    json.dumps(found, allow_nan=False)
    return found


def test_nothing_there_yet_is_said(tmp_path: Path):
    found = told(tmp_path / "later")
    assert found["status"] == "waiting"
    assert "Nothing has begun" in found["sentence"]
    assert "methods" not in found


def test_a_running_experiment_is_told_in_numbers(tmp_path: Path):
    file = begun(tmp_path)
    found = told(tmp_path)
    assert (found["status"], found["sentence"]) == ("running", "Training.")
    assert found["runs"] == {"finished": 1, "running": 1, "waiting": 2, "stopped": 0, "failed": 0}
    first, second = found["methods"]
    assert first["round"] == 20
    assert first["values"]["test:average"] == {"text": "70.0", "seeds": 1, "span": "70.0 to 70.0"}
    assert first["stages"] == {"finished": 1, "running": 1}
    assert second == {
        "label": "q-fedavg(q=1)",
        "round": 0,
        "seeds": 2,
        "stages": {"waiting": 2},
        "values": {},
    }
    lines = {line["round"]: line for line in found["lines"]}
    assert (lines[10]["mean"], lines[10]["low"], lines[10]["high"], lines[10]["span"]) == (
        62.0,
        60.0,
        64.0,
        "60.0 to 64.0",
    )
    assert list(found["metrics"]) == ["test:average", "test:worst10", "central:eod_abs"]
    assert found["metrics"]["central:eod_abs"] == "|EOD|, central test set"
    assert "lines" not in told(tmp_path, seen=found["version"]), (
        "what the page has is not sent again"
    )
    assert {
        line["mean"]
        for line in told(tmp_path, metric="central:eod_abs", seen=found["version"])["lines"]
    } == {0.125}
    file.end("finished")


def test_a_killed_experiment_says_how_to_go_on(tmp_path: Path):
    file = begun(tmp_path)
    assert file._file is not None
    os.close(file._file)  # as the kernel does
    with open(tmp_path / LIVE_FILE, "a") as torn:
        torn.write('{"time": 1, "label": "fedavg", "se')
    found = told(tmp_path)
    assert found["status"] == "gone"
    assert (
        "the process has ended. Finished results are stored; continue with `evenly resume"
        f" {tmp_path}`." in found["sentence"]
    )
    assert found["runs"]["stopped"] == 1
    assert found["runs"]["running"] == 0


@pytest.mark.parametrize(
    "how, error, words",
    [
        ("stopped", "", "Training was stopped."),
        ("failed", "Too large.", "Training failed: Too large."),
    ],
)
def test_an_end_before_the_end_is_explained(tmp_path: Path, how: str, error: str, words: str):
    begun(tmp_path).end(how, error)
    found = told(tmp_path)
    assert found["status"] == how
    assert found["sentence"].startswith(words)
    assert "evenly resume" in found["sentence"]


def test_the_report_is_offered_once_it_is_of_this_execution(tmp_path: Path):
    report = tmp_path / "report.html"
    report.write_text("old")
    os.utime(report, (1.0, 1.0))
    begun(tmp_path).end("finished")
    found = told(tmp_path)
    assert (found["status"], found["report"]) == ("running", False)
    assert "being written" in found["sentence"]
    report.write_text("new")
    os.utime(report, (time.time() + 1, time.time() + 1))
    assert told(tmp_path)["status"] == "finished"


def test_a_study_has_a_part_for_each_partition(tmp_path: Path):
    from evenly.experiment.folder import slug

    (tmp_path / "plan.json").write_text(json.dumps({"cells": {"0.1": {}, "10": {}}}))
    first = begun(tmp_path / "cells" / slug("0.1"))
    first.progress(80, 80)
    first.end("finished")
    second = begun(tmp_path / "cells" / slug("10"))
    found = told(tmp_path)
    assert found["parts"] == {"0.1": "finished", "10": "running"}
    assert found["part"] == "10"
    assert (found["progress"]["done"], found["progress"]["total"]) == (80, 160)
    assert told(tmp_path, part="0.1")["part"] == "0.1"
    second.end("stopped")


def test_what_runs_further_down_is_found(tmp_path: Path):
    (tmp_path / "plan.json").write_text("{}")
    assert "Nothing is being trained" in told(tmp_path)["sentence"]
    file = begun(tmp_path / "batches" / "0-16")
    assert told(tmp_path)["part"] == "batches/0-16"
    assert told(tmp_path)["status"] == "running"
    file.end("finished")


def test_the_time_left_follows_the_pace_of_late(tmp_path: Path):
    head = {"live": 1, "time": 100.0, "pid": 1, "host": "elsewhere", **ABOUT, "runs": RUNS}
    notes = [
        {"time": 100.0 + t, "done": done, "total": 1000}
        for t, done in ((0, 0), (60, 10), (80, 110), (100, 210))
    ]
    (tmp_path / LIVE_FILE).write_text("".join(json.dumps(line) + "\n" for line in [head, *notes]))
    assert told(tmp_path)["progress"]["left"] == pytest.approx(790 / 5, rel=0.5)


def test_only_whole_lines_are_read_and_only_once(tmp_path: Path):
    path = tmp_path / LIVE_FILE
    tail = Tail(tmp_path, path)
    assert tail.read() == []
    head = {"live": 1, "time": 1.0, "pid": 1, "host": "h", **ABOUT, "runs": [["fedavg", 0]]}
    note = {"time": 2.0, "done": 1, "total": 3}
    path.write_text(f'{json.dumps(head)}\n{json.dumps(note)}\nnot json\n{{"done": 2}}\n{{"done"')
    assert tail.read() == [
        head,
        note,
    ], "lines that are torn, or not whole in what they say, are not read"
    with open(path, "ab") as file:
        file.write(b': 2, "total": 3, "time": 2.5}\n')
    assert tail.read()[-1] == {"done": 2, "total": 3, "time": 2.5}
    beside = tmp_path / "new"
    beside.write_text(json.dumps(head | {"time": 3.0}) + "\n")
    os.replace(beside, path)
    assert tail.read() == [head | {"time": 3.0}]
    path.write_bytes(b'{"live": 99}\n')
    assert tail.read() == [], "a later version's file is not guessed at"

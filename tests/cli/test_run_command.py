"""`evenly run`, `resume`, `export` and `diff`: output, files, errors and interruptions."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from evenly.cli import app
from evenly.writing import write_whole

GOOD = """
title = "A test of mine"
notes = "What it is about."
methods = ["fedavg", "fedsgd"]
rounds = 3
seeds = 2
sampling = "weighted(clients=2)"
[data]
name = "synthetic"
clients = 4
[training]
learning_rate = 0.1
[quick]
rounds = 2
seeds = 1
"""


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def sentence(result):
    """Return the line of an error, which comes last."""
    *_, last = (line for line in result.stderr.splitlines() if line.strip())
    assert last.startswith("error: ")
    assert result.stderr.count("error: ") == 1
    assert "Traceback" not in result.output
    return last


@pytest.fixture(autouse=True)
def _no_charts(monkeypatch):
    """Skip the charts, which take longest and have tests of their own."""

    def report(comparison, path, lines, **_):
        return write_whole(path, lambda file: file.write(comparison.title.encode()))

    monkeypatch.setattr("evenly.report.page.write_report", report)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Results that tests only read."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evenly.report.page.write_report", lambda *_, **__: None)
        (folder / "mine.toml").write_text(GOOD)
        run("run", folder / "mine.toml", "--out", folder / "out")
    return folder / "out"


def results(folder: Path) -> dict[str, bytes]:
    """Return the files that must not depend on interruptions."""
    own = [folder / "results.csv", *(folder / "traces").iterdir(), *(folder / "models").iterdir()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in own}


def test_a_file_is_run_into_a_folder_with_its_metadata(file, finished):
    out = file.parent / "out"
    said = run("run", file, "--out", out)
    for words in (
        "2 methods, 2 seeds, 3 rounds",
        "4 to run, 2 to compile",
        "4 clients",
        "not known before the first rounds",
    ):
        assert words in said.stderr
    known = json.loads((out / "run.json").read_text())
    assert (known["schema"], known["status"], known["title"], known["notes"]) == (
        1,
        "finished",
        "A test of mine",
        "What it is about.",
    )
    assert (out / "report.html").read_text() == "A test of mine"
    assert set(pd.read_csv(out / "results.csv").experiment) == {"mine"}
    assert results(out) == results(finished)


def test_finished_results_are_resumed_without_training(finished, tmp_path, monkeypatch):
    out = Path(shutil.copytree(finished, tmp_path / "out"))
    monkeypatch.setattr(
        "evenly.experiment.execute.simulate", lambda *_, **__: pytest.fail("trained again")
    )
    before = json.loads((out / "run.json").read_text())
    said = run("resume", out, "--json")
    assert "all 4 are finished" in said.stderr
    assert len(json.loads(said.stdout)["rows"]) == len(pd.read_csv(out / "results.csv"))
    assert json.loads((out / "run.json").read_text()) == before
    assert results(out) == results(finished)


def test_a_dry_run_writes_nothing(file):
    said = run("run", file, "--plan", "--seeds", "5", "--out", file.parent / "out")
    assert "2 methods, 5 seeds, 3 rounds" in said.stdout
    assert "models of" in said.stdout
    assert [path.name for path in file.parent.iterdir()] == ["mine.toml"]


def test_the_plan_says_that_sizes_do_not_count_where_everybody_takes_part(file):
    words = "All 4 clients take part in every round, and larger ones do not count more."
    assert words not in " ".join(run("run", file, "--plan").stdout.split())
    file.write_text(GOOD.replace("weighted(clients=2)", "weighted(clients=10)"))
    assert words in " ".join(run("run", file, "--plan").stdout.split())


def test_a_dry_run_of_a_stopped_run_estimates_the_remaining_time(finished, tmp_path):
    out = Path(shutil.copytree(finished, tmp_path / "out"))
    kept = sorted((out / "traces").iterdir())
    for path in kept[1:]:
        path.unlink()
    (out / "run.json").write_text(
        json.dumps(json.loads((out / "run.json").read_text()) | {"seconds": 240.0})
    )
    (tmp_path / "mine.toml").write_text(GOOD)
    said = run("run", tmp_path / "mine.toml", "--plan", "--out", out).stdout
    assert "3 to run, 2 to compile; 1 of 4 are finished" in said
    assert "about 12.0 minutes" in said


def test_quick_is_named_in_the_title(file):
    run("run", file, "--quick", "--out", file.parent / "out")
    assert (file.parent / "out" / "report.html").read_text() == "A test of mine (short version)"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("rounds = 3", "rouns = 3"), "mine.toml: There is no key 'rouns'. Did you mean 'rounds'?"),
        (
            ("rounds = 2", "round = 2"),
            "There is no key 'quick.round'. Did you mean 'quick.rounds'?",
        ),
        (
            ("learning_rate", "learning_rat"),
            "There is no key 'training.learning_rat'. Did you mean 'training.learning_rate'?",
        ),
        (("clients = 4", "cliens = 4"), "There is no setting 'cliens'. Did you mean 'clients'?"),
        (("rounds = 3", 'rounds = "3"'), "key 'rounds': Input should be a valid integer, got '3'"),
        (
            ("seeds = 2", 'seeds = "two"'),
            "key 'seeds': Input should be a number of seeds or a list of seeds, got 'two'",
        ),
        (("seeds = 2", "seeds = [1, 1]"), "Seeds must be different whole numbers"),
        (
            ('methods = ["fedavg", "fedsgd"]', 'methods = "fedavg"'),
            "key 'methods': Input should be a valid list, got 'fedavg'",
        ),
        (
            ('"fedsgd"', '"q-fedavg(q=[])"'),
            "q-fedavg: the sweep over 'q' must have at least one value, got an empty list",
        ),
        (('"fedsgd"', '"fedavg"'), "Method 'fedavg' is listed twice"),
        (('"fedsgd"', '"q-fedavg(q=[1, 1.0])"'), "Method 'q-fedavg(q=1)' is listed twice"),
        (
            ('"fedsgd"', '"fedsdg"'),
            "mine.toml: There is no method 'fedsdg'. Did you mean 'fedsgd'?",
        ),
        (
            ('name = "synthetic"', ""),
            "[data] must have either the name of a data set or the path of a table",
        ),
        (("[data]", "[data"), "mine.toml is not valid TOML"),
        (
            ('name = "synthetic"', 'path = "a.csv"\nclint = "x"'),
            "There is no key 'data.clint'. Did you mean 'data.client'?",
        ),
        (
            (
                "[quick]",
                (
                    "[study]\ncells = [{skew = 1}, {skew = 1}]\nchoose = {learning_rate ="
                    " [1]}\n[quick]"
                ),
            ),
            "'1' occurs twice",
        ),
        (
            ("[quick]", "[study]\ncells = []\nchoose = {learning_rate = [1]}\n[quick]"),
            "key 'study.cells'",
        ),
    ],
)
def test_mistakes_in_a_file_get_one_sentence_and_nothing_is_written(file, change, words):
    assert change[0] in GOOD
    file.write_text(GOOD.replace(*change))
    assert words in sentence(run("run", file, "--out", file.parent / "out", code=2))
    assert [path.name for path in file.parent.iterdir()] == ["mine.toml"]


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    assert "There is no experiment file" in sentence(run("run", tmp_path / "none.toml", code=2))
    assert "is a folder. `evenly resume` continues one" in sentence(run("run", tmp_path, code=2))
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    assert "must be UTF-8 text" in sentence(run("run", tmp_path / "bytes.toml", code=2))


@pytest.fixture
def table(tmp_path):
    """An experiment on a table in the same folder."""
    draw = np.random.Generator(np.random.Philox(1))
    frame = pd.DataFrame(
        {
            "site": draw.choice(["a", "b"], 60),
            "sex": draw.choice(["f", "m"], 60),
            "x": draw.normal(size=60),
        }
    )
    frame["y"] = (frame.x > 0).map({True: "yes", False: "no"})
    (tmp_path / "study").mkdir()
    frame.to_csv(tmp_path / "study" / "own.csv", index=False)
    data = (
        'path = "own.csv"\nclient = "site"\nlabel = "y"\nsensitive = ["sex"]\nunprivileged ='
        ' ["m"]\nfavourable = "yes"\n'
    )
    text = (
        GOOD.replace('name = "synthetic"\nclients = 4\n', data)
        .replace('["fedavg", "fedsgd"]', '["fedavg"]')
        .replace("seeds = 2", "seeds = 1")
    )
    (tmp_path / "study" / "mine.toml").write_text(text)
    return tmp_path


def test_a_table_is_found_beside_its_file_and_from_anywhere_afterwards(table, monkeypatch):
    monkeypatch.chdir(table)
    said = run("run", "study/mine.toml", "--out", "out")
    assert "unprivileged: sex=m, favourable: yes" in " ".join(said.stdout.split())
    next(Path("out/traces").iterdir()).unlink()
    (table / "elsewhere").mkdir()
    monkeypatch.chdir(table / "elsewhere")
    run("resume", "../out")
    assert list((table / "out" / "traces").iterdir())
    assert "site" not in run("export", "../out", "--format", "latex").stdout


def test_the_plan_lists_the_use_of_each_column_and_a_file_may_drop_some(table):
    own, file = table / "study" / "own.csv", table / "study" / "mine.toml"
    frame = pd.read_csv(own).assign(
        person_id=range(100, 160),
        day=[f"2024-01-{i % 28 + 1:02d}" for i in range(60)],
        ward=["heart", "lung"] * 30,
    )
    frame.loc[:30, "x"] = None
    frame.to_csv(own, index=False)
    said = sentence(run("run", file, "--plan", code=2))
    assert (
        "2 columns of the table cannot be features: 'person_id' looks like an identifier (60"
        " different numbers in 60 rows)" in said
    )
    assert "'day' holds dates or times as text. Leave them out with --drop person_id,day" in said
    file.write_text(
        file.read_text().replace(
            'favourable = "yes"\n', 'favourable = "yes"\ndrop = ["person_id", "day"]\n'
        )
    )
    said = " ".join(run("run", file, "--plan").stdout.split())
    for line in (
        "numbers x",
        "one-hot ward (2)",
        "x: the mean of the training rows, and a 0/1 feature marks them",
        "not used person_id, day",
    ):
        assert line in said
    file.write_text(file.read_text().replace("drop = [", "features = [").replace('"day"', '"dya"'))
    assert "There is no column 'dya' for features. Did you mean 'day'?" in sentence(
        run("run", file, "--plan", code=2)
    )


def test_a_table_that_has_changed_is_not_mixed_with_older_results(table, monkeypatch):
    monkeypatch.chdir(table)
    run("run", "study/mine.toml", "--out", "out")
    with Path("study/own.csv").open("a") as file:
        file.write("a,f,0.5,yes\n")
    assert "has changed since these results were begun" in sentence(run("resume", "out", code=2))
    assert "contains results with different settings" in sentence(
        run("run", "study/mine.toml", "--out", "out", code=2)
    )


def test_a_stopped_run_prints_how_to_resume_and_resumes(file, finished, monkeypatch):
    out, calls = file.parent / "out", []
    from evenly.experiment import execute

    real = execute.simulate

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments, **options)

    monkeypatch.setattr(execute, "simulate", interrupted)
    said = run("run", file, "--out", out, code=130)
    assert "Stopping as soon as the training so far is stored." in said.stderr
    assert (
        f"Stopped. Finished parts are stored in {out}; `evenly resume {out}` resumes."
        in said.stderr
    )
    assert not (out / ".lock").exists()
    assert json.loads((out / "run.json").read_text())["status"] == "running"
    monkeypatch.setattr(execute, "simulate", real)
    run("resume", out)
    assert results(out) == results(finished)
    assert json.loads((out / "run.json").read_text())["status"] == "finished"


def test_a_stopped_study_resumes(tmp_path, monkeypatch):
    made = """[data]\nname = "synthetic-census"\nclients = 3\nrows = 300
[study]\ncells = [{skew = 0.2}, {skew = 0.8}]
choose = {learning_rate = [0.1, 0.01]}\n"""
    text = (
        'title = "Mine"\nmethods = ["fedavg+full"]\nrounds = 2\nseeds = 2\nmodel ='
        ' "logistic"\nsampling = "full"\n'
    )
    (tmp_path / "mine.toml").write_text(text + made)
    monkeypatch.setattr("evenly.papers.study_page.write_study_report", lambda *_: None)
    run("run", tmp_path / "mine.toml", "--out", tmp_path / "whole")
    run("run", tmp_path / "mine.toml", "--out", tmp_path / "stopped")
    for path in (tmp_path / "stopped" / "cells").glob("0.8*/traces/*"):
        path.unlink()
    assert "is not finished: 2 of 4 programs" in sentence(
        run("export", tmp_path / "stopped", code=2)
    )
    said = run("resume", tmp_path / "stopped")
    assert "2 partitions, 2 methods, 2 seeds, 2 rounds" in said.stderr
    assert "2 to run, 1 to compile; 2 of 4 are finished" in said.stderr
    assert "thesis:" not in said.stdout.lower(), "what the thesis says is about its own studies"
    assert "The same" in run("diff", tmp_path / "whole", tmp_path / "stopped").stdout
    assert (
        run("export", tmp_path / "stopped").stdout
        == (tmp_path / "whole" / "results.csv").read_text()
    )
    assert "holds a study of 2 partitions" in sentence(
        run("export", tmp_path / "stopped", "--format", "latex", code=2)
    )


def test_a_second_process_on_the_same_folder_is_refused(file):
    from evenly.experiment.folder import folder_lock

    out = file.parent / "out"
    with folder_lock(out):
        assert f"Process {os.getpid()} on " in sentence(run("run", file, "--out", out, code=2))
        run("run", file, "--plan", "--out", out)  # looking is free
        # and so are other folders of the same parent
        run("run", file, "--out", file.parent / "other", "--quick")


def test_a_newer_folder_is_left_alone(finished, tmp_path):
    out = Path(shutil.copytree(finished, tmp_path / "out"))
    (tmp_path / "mine.toml").write_text(GOOD)
    plan = json.loads((out / "plan.json").read_text())
    (out / "plan.json").write_text(json.dumps(plan | {"schema": 99}))
    before = results(out)
    for arguments in (
        ["run", tmp_path / "mine.toml", "--out", out, "--force"],
        ["resume", out],
        ["export", out],
        ["diff", out, finished],
    ):
        assert "newer version of evenly" in sentence(run(*arguments, code=2))
    assert results(out) == before


FULL = [errno.ENOSPC, errno.EDQUOT]


@pytest.mark.parametrize("number", FULL)
def test_a_full_disk_keeps_finished_parts_and_prints_how_to_resume(
    file, finished, monkeypatch, number
):
    out, real, written = file.parent / "out", os.fsync, []

    def full(descriptor):
        if len(written) == 5:
            raise OSError(number, os.strerror(number))
        written.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    said = sentence(run("run", file, "--out", out, code=2))
    assert os.strerror(number) in said
    assert (
        f"Finished parts are stored in {out}; free some space, and `evenly resume {out}` resumes."
        in said
    )
    monkeypatch.setattr(os, "fsync", real)
    run("resume", out)
    assert results(out) == results(finished)


@pytest.fixture
def small_disk(tmp_path):
    """A small file system that can be enlarged, if the test may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "evenly-test", place],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs to be root")
    yield place
    subprocess.run(["umount", place], check=True)


# full at the first traces, at later ones, at the rows
@pytest.mark.parametrize("size", ["24k", "64k", "200k"])
def test_a_disk_that_really_fills_up(file, finished, small_disk, size):
    subprocess.run(["mount", "-o", f"remount,size={size}", small_disk], check=True)
    out = small_disk / "out"
    assert "No space left on device" in sentence(run("run", file, "--out", out, code=2))
    assert not [path for path in out.rglob(".*") if path.is_file()]
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    run("resume", out)
    assert results(out) == results(finished)


def test_export_gives_the_rows_that_are_in_the_folder(finished, tmp_path):
    assert run("export", finished).stdout == (finished / "results.csv").read_text()
    run("export", finished, "--format", "parquet", "--out", tmp_path / "rows.parquet")
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "rows.parquet"), pd.read_parquet(finished / "results.parquet")
    )
    assert "cannot be printed. Choose a file with --out" in sentence(
        run("export", finished, "--format", "parquet", code=2)
    )


def test_export_to_latex(finished, tmp_path):
    run("export", finished, "--format", "latex", "--out", tmp_path / "table.tex")
    lines = (tmp_path / "table.tex").read_text().splitlines()
    assert r"\begin{tabular}{lrrrr}" in lines
    assert r"method & average (rows) & worst 10 \% & variance & variance from sampling \\" in lines
    assert lines.count(r"\midrule") == 1
    assert "Did you mean 'gini'" in sentence(
        run("export", finished, "--format", "latex", "--metrics", "gni", code=2)
    )
    assert (
        "method & Gini" in run("export", finished, "--format", "latex", "--metrics", "gini").stdout
    )


def test_diff_of_the_same_and_of_others(finished, file):
    other = file.parent / "other"
    assert "The same: settings, methods and all" in run("diff", finished, finished).stdout
    file.write_text(GOOD.replace('"fedsgd"', '"q-fedavg(q=1)"').replace("rounds = 3", "rounds = 4"))
    run("run", file, "--out", other)
    said = run("diff", finished, other, code=1).stdout
    for words in (
        "rounds",
        "methods",
        f"only in {finished}: fedsgd",
        f"only in {other}: q-fedavg(q=1)",
        "figures differ",
    ):
        assert words in " ".join(said.split())
    found = json.loads(run("diff", finished, other, "--json", code=1).stdout)
    assert (found["same"], found["only_first"], found["only_second"]) == (
        False,
        ["fedsgd"],
        ["q-fedavg(q=1)"],
    )
    assert {"key": "rounds", "first": 3, "second": 4} in found["settings"]
    assert {figure["label"] for figure in found["figures"]} == {"fedavg"}
    some = found["figures"][0]
    assert some["difference"] == pytest.approx(some["second"] - some["first"])
    assert (
        json.loads(run("diff", finished, other, "--json", "--tolerance", "1e9", code=1).stdout)[
            "figures"
        ]
        == []
    )


def test_diff_needs_finished_folders(finished, tmp_path):
    out = Path(shutil.copytree(finished, tmp_path / "out"))
    next((out / "traces").iterdir()).unlink()
    assert "is not finished: 3 of 4 programs" in sentence(run("diff", finished, out, code=2))
    assert "tolerance must be at least 0" in sentence(
        run("diff", finished, finished, "--tolerance", "-1", code=2)
    )


def test_an_audit_is_not_exported_but_its_rows_are_named(tmp_path):
    (tmp_path / "audit.json").write_text("{}")
    for command in ("export", "report"):
        said = sentence(run(command, tmp_path, code=2))
        assert f"contains an audit. Its figures are in '{tmp_path / 'audit.csv'}'" in said


def test_a_search_of_settings_is_continued_by_its_own_command(tmp_path):
    (tmp_path / "plan.json").write_text('{"schema": 1, "shared": {}}')
    (tmp_path / "run.json").write_text('{"schema": 1, "command": "evenly tune --trials 3"}')
    assert (
        "contains a search for settings. Run the command that started it to continue: evenly tune"
        " --trials 3" in sentence(run("resume", tmp_path, code=2))
    )


STUBBORN = """
import os, signal, threading, time
from evenly.cli.interruption import ECHO_SECONDS, prompt_stop
threading.Thread(target=time.sleep, args=(60,)).start()
with prompt_stop():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGINT)  # the same one, passed on
        time.sleep(ECHO_SECONDS)
        print("still here", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
"""


def test_a_second_ctrl_c_does_not_wait_for_training():
    done = subprocess.run(
        [sys.executable, "-c", STUBBORN], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout) == (130, "still here\n")

"""`evenly tune`: its output, its files, and one line for every mistake."""

import csv
import json

import pytest

from evenly.experiment import tuning
from evenly.experiment.reopen import open_results, read_plan
from tests.cli.test_cli import run, sentence
from tests.report.invented import unbroken
from tests.tunings import Trainer

FRONT = [
    "tune", "--data", "synthetic-census(clients=4, rows=600)", "--method",
    "fairfed(beta=0.1..3:log)", "--search", "learning_rate=0.1,0.3", "--objective", "accuracy",
    "--objective", "eod_abs", "--trials", "4", "--batch", "4", "--rounds", "4", "--seeds", "1",
    "--json",
]  # fmt: skip


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    """A search for a Pareto front on data with groups."""
    out = tmp_path_factory.mktemp("tune") / "out"
    return out, run(*FRONT, "--out", str(out))


def test_all_files_are_written(front):
    out, result = front
    assert {path.name for path in out.iterdir()} == {
        "plan.json",
        "run.json",
        "study.db",
        "tuning.csv",
        "report.html",
        "chosen",
    }
    assert {"plan.json", "results.csv", "report.html", "models"} <= {
        path.name for path in (out / "chosen").iterdir()
    }
    with open(out / "tuning.csv") as file:
        assert [row["trial"] for row in csv.DictReader(file)] == ["baseline", "0", "1", "2", "3"]
    assert "tuning.csv" in result.stderr


def test_json_has_the_choice_and_the_rows_of_the_choice_and_the_baseline(front):
    printed = json.loads(front[1].stdout)
    assert {row["label"] for row in printed["rows"]} == {"fedavg", printed["chosen"]}
    assert [trial["chosen"] for trial in printed["trials"]].count(True) == 1
    assert len(printed["trials"]) == 5


def test_the_choice_has_a_folder_of_results(front):
    out, result = front
    assert open_results(out / "chosen").labels == list(
        dict.fromkeys(["fedavg", json.loads(result.stdout)["chosen"]])
    )
    words = f"The results of the chosen settings are in '{out / 'chosen'}': give that folder"
    for command in ("report", "export", "resume"):
        refused = sentence(run(command, str(out), code=2))
        assert words in refused
        assert f"All trials are in '{out / 'tuning.csv'}'." in refused
    with pytest.raises(ValueError, match=r"run the command that started it: .*"):
        read_plan(out)


def test_the_results_open_with_the_chosen_settings(front):
    """The baseline is there for comparison only."""
    out, result = front
    chosen = json.loads(result.stdout)["chosen"]
    assert open_results(out / "chosen").chosen == chosen
    assert f"{chosen} is " in " ".join(result.stderr.split())
    page = unbroken((out / "chosen" / "report.html").read_text())
    assert f'<p class="lead">{chosen} is ' in page


def test_sizes_that_do_not_count_are_told(monkeypatch, tmp_path):
    monkeypatch.setattr(tuning, "execute", Trainer())
    words = "! All 2 clients take part in every round, and larger ones do not count more."
    for sampling in ("weighted(clients=10)", "weighted(clients=1)"):
        options = ["--data", "synthetic(clients=2)", "--rounds", "10", "--sampling", sampling]
        said = run("tune", *options, "--out", str(tmp_path / sampling)).stdout
        assert (words in " ".join(said.split())) == (sampling == "weighted(clients=10)")


def test_the_same_command_again_trains_nothing(front, monkeypatch):
    out, before = front
    monkeypatch.setattr(
        "evenly.experiment.execute.simulate", lambda *_, **__: pytest.fail("trained again")
    )
    assert run(*FRONT, "--out", str(out)).stdout == before.stdout


def test_ctrl_c_prints_how_to_resume(monkeypatch, tmp_path):
    trainer = Trainer()
    trainer.stop_before = 0
    monkeypatch.setattr(tuning, "execute", trainer)
    result = run("tune", "--data", "synthetic(clients=2)", "--out", str(tmp_path / "out"), code=130)
    assert "Stopped." in result.stderr
    assert f"the same command with --out {tmp_path / 'out'}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--search", "q=1..0"], "q must go from the lower to the higher number, got 1..0"),
        (["--search", "qq=0..1"], "Did you mean 'q'"),
        (["--method", "fedavg"], "fedavg has no setting to search"),
        (["--method", "fedavgg(learning_rate=0.1..1)"], "Did you mean 'fedavg'"),
        (["--grid", "1,x"], "q must be a number, got 'x'"),
        (["--search", "learning_rate=-1..1"], "learning_rate must be above 0, got -1"),
        (["--objective", "varince"], "Did you mean 'variance'"),
        (["--objective", "eod_abs"], "its rows belong to no groups of people"),
        (["--baseline", "fedavgg"], "Did you mean 'fedavg'"),
        (["--trials", "0"], "trials must be at least 1"),
        (["--data", "syntetic"], "Did you mean 'synthetic'"),
    ],
)
def test_mistakes_get_one_sentence_and_leave_nothing(arguments, words, tmp_path):
    result = run("tune", *arguments, "--out", str(tmp_path / "out"), code=2)
    assert words in sentence(result)
    assert not (tmp_path / "out").exists()

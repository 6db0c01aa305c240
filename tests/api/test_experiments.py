"""`evenly.run`, `reproduce`, `tune` and `load_results` beside the command line."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import evenly
from evenly.api import experiments
from evenly.cli import app
from evenly.experiment.config import Experiment, experiment_of
from evenly.experiment.folder import read_record
from tests.api.patients import COLUMNS, patients

EXPERIMENT = """
title = "A try"
methods = ["fedavg", "q-fedavg(q=1)"]
rounds = 3
seeds = 2
[data]
name = "synthetic"
clients = 5
"""


def command(*words: Any) -> None:
    """In this process: what importing costs is not asked here."""
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, done.output


def process(*words: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "evenly", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def same_rows(first: Path, second: Path) -> None:
    assert (first / "results.csv").read_text() == (second / "results.csv").read_text()


def test_a_file_and_a_dict_and_the_command_line_run_the_same(tmp_path: Path):
    import tomllib

    (tmp_path / "mine.toml").write_text(EXPERIMENT)
    from_file = evenly.run(tmp_path / "mine.toml", out=tmp_path / "python", progress=False)
    from_dict = evenly.run(tomllib.loads(EXPERIMENT), progress=False)
    command("run", tmp_path / "mine.toml", "--out", tmp_path / "command")
    same_rows(tmp_path / "python", tmp_path / "command")
    assert isinstance(from_dict, evenly.Results)
    pd.testing.assert_frame_equal(from_file.table(), from_dict.table())
    with pytest.raises(ValueError, match="The experiment: There is no key 'rouns'"):
        evenly.run({**tomllib.loads(EXPERIMENT), "rouns": 3})


@pytest.mark.further
def test_an_experiment_of_a_paper_is_reproduced_as_by_the_command(tmp_path: Path):
    short = {"quick": True, "seeds": 1, "rounds": 2}
    results = evenly.reproduce("qffl/synthetic", out=tmp_path / "python", progress=False, **short)
    command(
        "reproduce", "qffl/synthetic", "--quick", "--seeds", 1, "--rounds", 2, "--out",
        tmp_path / "command",
    )  # fmt: skip
    same_rows(tmp_path / "python", tmp_path / "command")
    assert isinstance(results, evenly.Results)
    paper = results.paper()
    assert {"average", "variance"} <= set(paper["metric"])
    np.testing.assert_allclose(paper["difference"], paper["ours"] - paper["paper"])
    with pytest.raises(ValueError, match="no experiment 'qffl/synthetc'"):
        evenly.reproduce("qffl/synthetc")


@pytest.mark.further
@pytest.mark.data
def test_a_study_has_its_partitions(tmp_path: Path):
    results = evenly.reproduce(
        "thesis/compas-dirichlet", quick=True, seeds=1, rounds=1, out=tmp_path, progress=False
    )
    assert isinstance(results, evenly.StudyResults)
    assert len(results) == len(results.partitions) >= 1
    first = results[results.partitions[0]]
    assert isinstance(first, evenly.Results)
    assert len(results.table()) > 0
    again = evenly.load_results(tmp_path)
    assert isinstance(again, evenly.StudyResults)
    pd.testing.assert_frame_equal(again.table(), results.table())
    assert repr(results).startswith("StudyResults of thesis/compas-dirichlet: ")
    with pytest.raises(ValueError, match="no partition 'x'"):
        results["x"]


@pytest.mark.further
def test_a_search_gives_the_same_as_the_command(tmp_path: Path):
    patients().to_csv(tmp_path / "patients.csv", index=False)
    method = "q-fedavg(q=[1, 5])"
    found = evenly.tune(
        tmp_path / "patients.csv", method, **COLUMNS, rounds=3, seeds=2, out=tmp_path / "python",
        epochs=2, dropout=0.2, evaluate_every=2, progress=False,
    )  # fmt: skip
    command(
        "tune", "--data", tmp_path / "patients.csv", "--client", "hospital", "--label",
        "readmitted", "--sensitive", "sex", "--drop", "id", "--method", method, "--rounds", 3,
        "--seeds", 2, "--epochs", 2, "--dropout", 0.2, "--evaluate-every", 2, "--out",
        tmp_path / "command",
    )  # fmt: skip
    for name in ("tuning.csv", "chosen/results.csv"):
        texts = [(tmp_path / folder / name).read_text() for folder in ("python", "command")]
        assert texts[0] == texts[1], name
    table = found.table()
    assert len(table) == 3
    assert table[table["chosen"]]["method"].tolist() == [found.best]
    assert found.best in found.results
    assert found.results.model(found.best).predict(patients().head(2)).shape == (2,)
    assert found.results.history()["round"].unique().tolist() == [0, 2, 3]
    again = evenly.load_results(tmp_path / "command")
    assert isinstance(again, evenly.TuningResults)
    pd.testing.assert_frame_equal(again.table(), table)
    pd.testing.assert_frame_equal(again.results.table(), found.results.table())
    assert repr(again) == repr(found)


def test_epochs_and_dropout_change_a_search():
    def losses(**settings: Any) -> list[float]:
        found = evenly.tune(
            "synthetic(clients=5)", "q-fedavg(q=[1])", rounds=3, seeds=1, progress=False, **settings
        )
        return found.results["q-fedavg(q=0)"].history()["loss"].tolist()

    plain = losses()
    assert losses(epochs=4) != plain
    assert losses(dropout=0.9) != plain


def test_a_study_of_a_method_that_is_private_for_clients_is_refused(tmp_path: Path):
    experiment = {
        "title": "Exact figures of a private method", "data": {"name": "synthetic"}, "rounds": 1,
        "methods": ["fedavg+poisson(rate=0.5)+dp(noise_multiplier=1, forced=true)"],
        "study": {"cells": [{"clients": 4}, {"clients": 6}], "choose": {"learning_rate": [0.1]}},
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"a study shows figures .* without noise"):
        evenly.run(experiment, out=tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


def test_a_search_that_is_not_finished_is_not_read(tmp_path: Path):
    evenly.tune(
        "synthetic(clients=5)", "q-fedavg(q=[1])", rounds=2, seeds=1, out=tmp_path, progress=False
    )
    assert isinstance(evenly.load_results(tmp_path), evenly.TuningResults)
    table, study, plan = (tmp_path / name for name in ("tuning.csv", "study.db", "plan.json"))
    for path, content, words in (
        (table, None, r"has no tuning\.csv\. Run the command"),
        (table, b"", r"has a damaged tuning\.csv"),
        (table, b"trial\n\xff\n0\n", r"has a damaged tuning\.csv"),
        (table, table.read_bytes() * 2, r"has a damaged tuning\.csv"),
        (study, None, r"has no study\.db\. Run the command"),
        (plan, b"\xff{", r"plan\.json' is damaged"),
        (plan, plan.read_bytes().replace(b'"seeds"', b'"plugins": 3, "seeds"'), "is damaged"),
    ):
        kept = path.read_bytes()
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(ValueError, match=words):
            evenly.load_results(tmp_path)
        assert content is not None or not path.exists(), "reading writes nothing"
        path.write_bytes(kept)
    (tmp_path / "chosen" / "results.csv").unlink()
    with pytest.raises(ValueError, match=r"started it to continue: evenly\.tune"):
        evenly.load_results(tmp_path)


def test_a_search_over_a_table_in_memory_with_a_model_of_ones_own():
    task = evenly.models.Logistic(features=4)
    found = evenly.tune(
        patients(), "q-fedavg(q=[1, 5])", **COLUMNS, rounds=3, seeds=[4, 5], model=task,
        objectives=["worst10", "eod_abs"], progress=False,
    )  # fmt: skip
    assert len(found) == 2
    assert found.results.seeds == [4, 5]
    assert "Search of 2 settings" in repr(found)
    assert "<table" in found._repr_html_()
    assert found.plot().to_dict()["title"]


def test_a_folder_that_holds_no_results(tmp_path: Path):
    with pytest.raises(ValueError, match="holds no results of evenly"):
        evenly.load_results(tmp_path)


PLUGIN = """
import dataclasses

import evenly
from evenly.algorithms import METHODS

evenly.register(dataclasses.replace(METHODS["fedavg"], name="careful"))
"""


@pytest.mark.further
@pytest.mark.usefixtures("registries")
def test_results_of_a_plugin_are_read_with_the_plugin(tmp_path: Path):
    own = tmp_path / "own.py"
    own.write_text(PLUGIN)
    words = ["--algorithms", "careful", "--plugin", own, "--rounds", 2, "--seeds", 1]
    process("compare", "--data", "synthetic(clients=4)", *words, "--out", tmp_path / "out")
    with pytest.raises(ValueError, match=r"\(plugins= in Python\)"):
        evenly.load_results(tmp_path / "out")
    assert list(evenly.load_results(tmp_path / "out", plugins=str(own))) == ["careful"]


@pytest.mark.usefixtures("registries")
def test_a_command_names_plugins_and_changes_and_every_evaluation_is_logged(tmp_path: Path):
    own = tmp_path / "own.py"
    own.write_text(PLUGIN)
    experiment = {
        "title": "Mine", "methods": ["careful"], "data": {"name": "synthetic", "clients": 4},
        "rounds": 9, "seeds": 1,
    }  # fmt: skip
    points: list[Any] = []
    found = evenly.run(
        experiment, rounds=2, plugins=own, log=points.append, out=tmp_path / "out", progress=False
    )
    assert list(found) == ["careful"]
    assert {point.round for point in points} == {0, 1, 2}
    record = read_record(tmp_path / "out")
    assert record is not None
    assert record.command == f"evenly.run(..., rounds=2, plugins=['{own}'])"


def test_the_command_of_methods_from_a_generator_names_them(tmp_path: Path):
    methods = (f"q-fedavg(q={q})" for q in (1, 2))
    table = tmp_path / "patients.csv"
    patients().to_csv(table, index=False)
    evenly.compare(
        table, methods, **COLUMNS, rounds=1, seeds=1, out=tmp_path / "out", progress=False
    )
    record = read_record(tmp_path / "out")
    assert record is not None
    begin = f"evenly.compare('{table}', ['q-fedavg(q=1)', 'q-fedavg(q=2)'], "
    assert record.command.startswith(begin)


def test_an_experiment_of_a_paper_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As on the command line. Studies get a joint report."""
    cells = {"cells": [{"clients": 4}, {"clients": 6}], "choose": {"learning_rate": [0.1]}}
    study = {
        "title": "Sizes", "methods": ["fedavg"], "data": {"name": "synthetic"}, "rounds": 1,
        "seeds": 1, "study": cells,
    }  # fmt: skip
    names = ["own/one", "own/broken", "own/two"]

    def contents(name: str) -> Experiment:
        if name == "own/broken":
            raise ValueError("The file census.csv is missing.")
        return experiment_of(dict(study), name)

    monkeypatch.setattr(experiments, "paper_experiments", lambda name: names)
    monkeypatch.setattr(experiments, "read_packaged", contents)
    with pytest.warns(UserWarning, match="own/broken was not run. The file census.csv is missing"):
        found = evenly.reproduce("own", out=tmp_path, progress=False)
    assert list(found) == ["own/one", "own/two"]
    assert "All studies of own together" in (tmp_path / "report.html").read_text()

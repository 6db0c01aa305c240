"""`evenly.compare`: data and methods of every kind, in memory and in a folder, and errors."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import evenly
from evenly.algorithms import FedAvg
from evenly.cli import app
from evenly.parts.sampling import Full
from evenly.parts.work import LocalTraining
from tests.api.patients import COLUMNS, patients

SHORT = {"rounds": 4, "seeds": 2, "progress": False}
METHODS = ["fedavg", "q-fedavg(q=1)"]


def own(rate: float = 0.1, label: str = "mine") -> evenly.Algorithm:
    work = LocalTraining(learning_rate=rate)
    return evenly.Algorithm(work=work, rule=FedAvg(weights="size"), select=Full(), label=label)


def compared(data: Any = None, methods: Any = METHODS, **settings: Any) -> evenly.Results:
    table = patients() if data is None else data
    return evenly.compare(table, methods, **{**COLUMNS, **SHORT, **settings})


def same(first: evenly.Results, second: evenly.Results) -> None:
    pd.testing.assert_frame_equal(first.table(), second.table())
    pd.testing.assert_frame_equal(first.clients(), second.clients())
    pd.testing.assert_frame_equal(first.groups(), second.groups())
    pd.testing.assert_frame_equal(first.history(), second.history())


def test_a_table_gives_the_same_in_memory_and_in_a_folder_and_read_again(tmp_path: Path):
    mine = own()
    here = compared(methods=[*METHODS, mine])
    there = compared(methods=[*METHODS, mine], out=tmp_path / "out")
    same(here, there)
    again = evenly.load_results(tmp_path / "out")
    assert isinstance(again, evenly.Results)
    same(here, again)
    rows = [one.table(tidy=True).drop(columns="params") for one in (here, there, again)]
    pd.testing.assert_frame_equal(rows[0], rows[1])
    pd.testing.assert_frame_equal(rows[0], rows[2])
    for name in ("report.html", "results.csv", "results.parquet", "plan.json", "run.json"):
        assert (tmp_path / "out" / name).exists(), name


def test_an_unprivileged_value_of_several_columns_is_a_dict_in_python():
    columns = {**COLUMNS, "sensitive": ["sex", "ward"]}
    with pytest.raises(ValueError, match=r"in Python unprivileged={COLUMN: VALUE}\), .* sex, ward"):
        evenly.compare(patients(), "fedavg", **columns, unprivileged="female")


def test_rows_are_not_stored(tmp_path: Path):
    compared(out=tmp_path / "out")
    kept = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert b"p00017" not in kept


def test_the_same_call_finds_what_is_finished_and_other_data_are_refused(tmp_path: Path):
    first = compared(out=tmp_path / "out")
    calls: list[int] = []
    again = compared(out=tmp_path / "out", progress=lambda done, of: calls.append(done))
    same(first, again)
    with pytest.raises(ValueError, match="different settings: data"):
        compared(patients(seed=1), out=tmp_path / "out")
    with pytest.raises(ValueError, match="different settings"):
        compared(methods=[*METHODS, own()], out=tmp_path / "out")
    other = compared(patients(seed=1), out=tmp_path / "out", force=True)
    assert not other.table().equals(first.table())


def test_other_numbers_in_an_algorithm_are_other_settings(tmp_path: Path):
    compared(methods=[own(0.1)], out=tmp_path / "out")
    with pytest.raises(ValueError, match="different settings: objects of your own"):
        compared(methods=[own(0.2)], out=tmp_path / "out")


def test_a_file_gives_the_same_as_the_command_line(tmp_path: Path):
    patients().to_csv(tmp_path / "patients.csv", index=False)
    here = compared(tmp_path / "patients.csv", out=tmp_path / "python")
    words = [
        "compare", "--data", str(tmp_path / "patients.csv"), "--client", "hospital", "--label",
        "readmitted", "--sensitive", "sex", "--drop", "id", "--algorithms", ",".join(METHODS),
        "--rounds", "4", "--seeds", "2", "--out", str(tmp_path / "command"),
    ]  # fmt: skip
    assert CliRunner().invoke(app, words).exit_code == 0
    there = evenly.load_results(tmp_path / "command")
    assert isinstance(there, evenly.Results)
    same(here, there)
    for name in ("results.csv", "plan.json"):
        texts = [(tmp_path / folder / name).read_text() for folder in ("python", "command")]
        plain = [_methods_split(text) if name == "plan.json" else text for text in texts]
        assert plain[0] == plain[1], name


def _methods_split(text: str) -> dict[str, Any]:
    """A plan whose methods are a list: the command line has one text with commas."""
    plan = json.loads(text)
    return {**plan, "methods": ",".join(plan["methods"]).split(",")}


def test_polars_and_pandas_give_the_same():
    polars = pytest.importorskip("polars")
    same(compared(), compared(polars.from_pandas(patients())))


def test_a_federation_keeps_its_split(tmp_path: Path):
    federation = evenly.Federation.from_frame(
        patients(), client="hospital", label="readmitted", sensitive="sex", drop="id", name="ours"
    )
    results = evenly.compare(federation, METHODS, out=tmp_path / "out", **SHORT)
    assert results.federation is federation
    assert "Results on ours (4 clients)" in repr(results)
    same(results, evenly.load_results(tmp_path / "out"))  # type: ignore[arg-type]


def test_a_split_column_and_groups_of_clients():
    table = patients()
    draw = np.random.default_rng(1)
    table["part"] = draw.choice(["train", "valid", "test"], len(table), p=[0.6, 0.2, 0.2])
    table["kind"] = np.where(table["hospital"].isin(["North", "West"]), "university", "town")
    results = compared(table, split="part", client_group="kind", seeds=[3, 5])
    federation = results.federation
    assert len(federation.train.rows) == (table["part"] == "train").sum()
    assert dict(zip(federation.names, federation.client_group.tolist(), strict=True)) == {
        "East": 0, "North": 1, "South": 0, "West": 1
    }  # fmt: skip
    assert results.seeds == [3, 5]
    table.loc[0, "kind"] = "other"
    with pytest.raises(ValueError, match="must have the same value in all rows of a client"):
        compared(table, client_group="kind")


def test_a_model_object_is_trained_and_predicts(tmp_path: Path):
    task = evenly.models.MLP(features=4, classes=2, hidden=(3,))
    here = compared(model=task)
    there = compared(model=task, out=tmp_path / "out")
    same(here, there)
    rows = patients().head(5)
    expected = here.model("fedavg").predict(rows)
    np.testing.assert_array_equal(there.model("fedavg").predict(rows), expected)
    again = evenly.load_results(tmp_path / "out")
    assert isinstance(again, evenly.Results)
    np.testing.assert_array_equal(again.model("fedavg").predict(rows), expected)
    assert again.comparison.model == "MLP"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"roundz": 3}, TypeError, "no argument 'roundz'. Did you mean 'rounds'"),
        ({"methods": 3}, TypeError, "methods must be a notation"),
        ({"methods": [3]}, TypeError, "A method must be a notation"),
        ({"methods": ["fedavg", own(label="fedavg")]}, ValueError, "Two methods are called"),
        ({"methods": []}, ValueError, "At least one method is needed"),
        ({"model": evenly.models.MLP}, TypeError, "the class MLP"),
        ({"model": 3}, TypeError, "model must be a name"),
        ({"model": SimpleNamespace(state_dict=None)}, TypeError, "evenly.from_torch"),
        ({"methods": "fedavg(optimiser=adam)"}, ValueError, "fedavg.server-adam"),
        ({"methods": [FedAvg]}, TypeError, r"Make a method of the rule, evenly\.Method"),
        ({"data": 3}, TypeError, "data must be a DataFrame"),
        ({"data": ([[1.0]], [0], [0])}, TypeError, r"Federation\.from_arrays\(x, y, client\)"),
        ({"data": "synthetic"}, ValueError, "are for a table, but the data are 'synthetic'"),
        ({"client": None}, ValueError, "A table needs client and label"),
        ({"client": "ward7"}, ValueError, "must have the column 'ward7'"),
        ({"data": "nowhere.csv"}, ValueError, "There is no file 'nowhere.csv'"),
        ({"seeds": 0}, ValueError, "seeds must be at least 1"),
        ({"drop": []}, ValueError, "'id' looks like an identifier"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        compared(**change)


def test_a_model_that_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path):
    task = evenly.models.MLP(features=7, classes=2, hidden=(3,))
    with pytest.raises(ValueError, match="features"):
        compared(model=task, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_settings_are_in_the_signature():
    import inspect

    parameters = inspect.signature(evenly.compare).parameters
    assert {"client", "label", "rounds", "seeds", "epochs", "model"} <= set(parameters)
    assert "settings" not in parameters
    assert parameters["rounds"].default == 2000


MODULE = """
import evenly
from evenly.algorithms import FedAvg
from evenly.parts.sampling import Full
from evenly.parts.work import LocalTraining

rule = FedAvg(weights="size")
mine = evenly.Algorithm(work=LocalTraining(), rule=rule, select=Full(), label="mine")
"""


@pytest.mark.further
def test_an_importable_object_is_stored_by_its_name_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "their_methods.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    import their_methods  # pyright: ignore[reportMissingImports]

    evenly.compare(
        "synthetic(clients=4)", [their_methods.mine], out=tmp_path / "out", rounds=3, seeds=1,
        progress=False,
    )  # fmt: skip
    stored = json.loads((tmp_path / "out" / "plan.json").read_text())["own"]["methods"]["mine"]
    assert stored["reference"] == "their_methods:mine"
    for path in (tmp_path / "out" / "traces").iterdir():
        path.unlink()
    command = [sys.executable, "-m", "evenly", "resume", str(tmp_path / "out")]
    done = subprocess.run(
        command, capture_output=True, text=True, env=_environment(tmp_path), check=False
    )
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "out" / "traces").iterdir())


def test_an_object_without_a_name_can_be_read_but_not_resumed(tmp_path: Path):
    evenly.compare(
        "synthetic(clients=4)", [own()], out=tmp_path / "out", rounds=3, seeds=1, progress=False
    )
    out = str(tmp_path / "out")
    read = CliRunner().invoke(app, ["report", out])
    assert read.exit_code == 0, read.stderr
    for path in (tmp_path / "out" / "traces").iterdir():
        path.unlink()
    done = CliRunner().invoke(app, ["resume", out])
    assert done.exit_code == 2
    words = " ".join(done.stderr.split())
    assert "was passed from Python and has no importable name" in words
    assert "Repeat the call of evenly.compare" in words


def _environment(folder: Path) -> dict[str, str]:
    import os

    source = str(Path(evenly.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), source])}


def test_results_without_groups_have_a_table_of_groups_with_its_columns():
    groups = evenly.compare("synthetic(clients=4)", "fedavg", rounds=1, seeds=1, progress=False)
    table = groups.groups()
    assert len(table) == 0
    assert len(table["method"]) == 0
    assert "tpr_high" in table

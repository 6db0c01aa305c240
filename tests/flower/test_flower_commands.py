"""`evenly flower new`, `up`, `certificates` and `key`, as far as they go without a network; trials
of `up` are slow tests.
"""

import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context, RecordDict
from flwr.common.config import parse_config_args
from typer.testing import CliRunner

from evenly.cli import app
from evenly.cli.flower_commands import _remedy, _show_results
from evenly.flower.deploy.loopback import Loopback, follow, read_app, start
from evenly.flower.versions import config_text
from tests.flower.grids import OneProcess

TABLE = ["--data", "table.csv", "--client", "hospital", "--label", "returned"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder with a table; modules of apps that a test imports are forgotten."""
    monkeypatch.chdir(tmp_path)
    draw, n = np.random.Generator(np.random.Philox(3)), 240
    age = draw.normal(60, 12, n).round()
    people = {
        "hospital": draw.choice(["north", "St. Mary's", "west"], n),
        "sex": draw.choice(["f", "m"], n),
        "age": age,
    }
    pd.DataFrame(
        {**people, "returned": np.where(age + draw.normal(0, 8, n) > 60, "yes", "no")}
    ).to_csv("table.csv", index=False)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("ward", "toy"):
            del sys.modules[name]


def evenly(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["flower", *words])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return " ".join(result.output.split())


def trained(
    package: str, names: tuple[str, ...], told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> OneProcess:
    """Run an app that was written, with a Grid in this process."""
    monkeypatch.syspath_prepend(str(Path(package).resolve()))
    from importlib import import_module

    found = read_app(Path(package))
    client, server = (
        import_module(f"{package}.client_app").app,
        import_module(f"{package}.server_app").app,
    )
    grid = OneProcess(client, nodes=[40, 10, 30][: len(names)])
    config = {**found.config, "rounds": 2, "folder": "results", **told}
    for context, node in zip(grid.contexts.values(), found.nodes.values(), strict=True):
        context.node_config.update(node)
        context.run_config.update(config)
    server(
        grid=grid,
        context=Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config),
    )
    return grid


def test_an_app_on_a_table_trains_and_reports(monkeypatch: pytest.MonkeyPatch):
    printed = evenly("new", "ward", *TABLE, "--sensitive", "sex")
    assert "Wrote ward/pyproject.toml" in printed
    assert "favourable: the label 'yes' (assumed; change it with --favourable)" in printed
    assert (
        "% of all others (assumed, because it has the lowest share; change it with --unprivileged"
        " sex=VALUE)" in printed
    )
    assert (
        "method: fairfed(metric=eod)+reweigh (chosen because there are sensitive columns: it aims"
        " at equal true positive rates of their groups; change it with --method)" in printed
    )
    assert printed.endswith("Next: evenly flower up ward")
    grid = trained("ward", ("St. Mary's", "north", "west"), {}, monkeypatch)
    assert {kind for kind, _ in grid.asked} == {"query.census", "train", "evaluate"}
    page = Path("results/report.html").read_text()
    assert "St. Mary" in page
    assert "FairFed" in page or "fairfed" in page


def test_an_app_on_a_synthetic_federation_trains(monkeypatch: pytest.MonkeyPatch):
    printed = evenly("new", "toy")
    assert "method: q-fedavg(q=1) (chosen because there are no sensitive columns" in printed
    shown = evenly("new", "plain", "--method", "fedavg")
    assert " method: fedavg policies: " in shown
    assert "they allow any model, for this trial" in shown
    trained("toy", ("client-0", "client-1", "client-2"), {}, monkeypatch)
    assert Path("results/report.html").exists()


def test_nothing_is_overwritten(folder: Path):
    Path("ward").mkdir()
    Path("ward/mine.txt").write_text("mine")
    assert "nothing is overwritten" in evenly("new", "ward", code=2)
    assert sorted(path.name for path in Path("ward").iterdir()) == ["mine.txt"]
    assert "nothing is overwritten" in evenly("new", "table.csv", code=2)
    Path("empty").mkdir()
    evenly("new", "empty")


def test_mistakes_are_told_before_anything_is_written():
    assert "no method 'q-fedavgg'" in evenly("new", "ward", "--method", "q-fedavgg", code=2)
    assert "--data is not given" in evenly("new", "ward", "--label", "returned", code=2)
    assert "no file 'tabel.csv'" in evenly(
        "new", "ward", "--data", "tabel.csv", "--client", "hospital", "--label", "returned", code=2
    )
    assert "needs client and label" in evenly("new", "ward", "--data", "table.csv", code=2)
    assert not Path("ward").exists()


@pytest.mark.parametrize("name", ["2 wards", "class", "evenly", "fedavg", "Ünïcode"])
def test_any_folder_makes_a_name_that_python_accepts(name: str):
    evenly("new", name)
    found = read_app(Path(name))
    package = found.name.replace("-", "_")
    assert package.isidentifier()
    assert (Path(name) / package / "server_app.py").exists()


@pytest.mark.parametrize(("table", "later"), [(TABLE, True), ([], False)])
def test_neither_rows_nor_results_travel_with_the_app(folder: Path, table: list[str], later: bool):
    evenly("new", "ward", *table)
    if later:
        Path("ward/table.csv").write_bytes(Path("table.csv").read_bytes())
        Path("ward/results/run-1").mkdir(parents=True)
        Path("ward/results/run-1/plan.json").write_text("{}")
    env = {
        **os.environ,
        "FLWR_HOME": str(folder / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
    }
    flwr = Path(sys.executable).with_name("flwr")
    subprocess.run(
        [flwr, "build", "--app", "ward"], env=env, check=True, capture_output=True, timeout=60
    )
    (bundle,) = folder.rglob("*.fab")
    code = {f"ward/{name}.py" for name in ("__init__", "client_app", "server_app", "task")}
    with zipfile.ZipFile(bundle) as held:
        names = {name for name in held.namelist() if not name.startswith(".info")}
    assert names == code | {"pyproject.toml"} | ({"ward/schema.json"} if table else set())


def test_each_supernode_is_told_its_client(folder: Path):
    evenly("new", "ward", *TABLE)
    nodes = read_app(Path("ward")).nodes
    assert list(nodes) == ["client-0-St--Mary-s", "client-1-north", "client-2-west"]
    assert nodes["client-1-north"] == {
        "partition-id": 1,
        "num-partitions": 3,
        "client": "north",
        "table": str(folder / "table.csv"),
        "policy": str(folder / "ward" / "sites" / "client-1-north" / "policy.toml"),
        "memory": str(folder / "ward" / "sites" / "client-1-north" / "memory"),
    }
    assert len(read_app(Path("ward"), clients=2).nodes) == 2
    assert "clients must be at most" in evenly("up", "ward", "--clients", "4", code=2)


def test_up_says_what_is_missing():
    assert "pyproject.toml is missing" in evenly("up", "nowhere", code=2)
    Path("pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert "does not describe a Flower app" in evenly("up", code=2)
    evenly("new", "ward", *TABLE)
    Path("table.csv").unlink()
    assert "Put it back, or correct" in evenly("up", "ward", code=2)


def test_certificates_and_keys_are_made_once():
    said = evenly("certificates", "tls", "--host", "fl.example.org", "--host", "192.0.2.7")
    assert "For every client: tls/ca.pem" in said
    assert {path.name for path in Path("tls").iterdir()} == {
        "ca.pem",
        "ca.key",
        "server.pem",
        "server.key",
    }
    assert "never overwritten" in evenly("certificates", "tls", "--host", "fl.example.org", code=2)
    assert "keys/north.pub" in evenly("key", "keys/north")
    assert "never overwritten" in evenly("key", "keys/north", code=2)


def test_a_run_is_followed_by_what_it_says(tmp_path: Path):
    lines = 'echo "Waiting for nodes to connect: 2 connected (minimum required: 4)."; sleep 0.4; '
    lines += 'for k in 1 2 3; do echo "INFO: [ROUND $k/3]"; sleep 0.4; done'
    run = start("run", ["bash", "-c", lines], tmp_path / "run.log", os.environ)
    waiting, *stands = follow(run, 3)
    assert waiting.waiting == (2, 4)
    assert [stand.done for stand in stands] == [0, 1, 2]
    assert stands[0].left is None
    assert stands[1].left is not None
    assert 0.3 < stands[1].left < 30  # twice what the first round took


def processes_of(folder: Path) -> list[str]:
    """What still runs of a trial whose logs or table lie in this folder."""
    found = subprocess.run(
        ["ps", "-axo", "pid=,args="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [line for line in found if str(folder) in line and "flower" in line]


def begun(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start a trial that Ctrl-C reaches, also if these tests run in the background."""
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    start = f"{listen}; from evenly.cli import main; main()"
    command = [sys.executable, "-c", start, "flower", "up", *words]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_a_trial_ends_with_the_figures_that_compare_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """It printed paths only."""
    evenly("new", "ward", *TABLE, "--sensitive", "sex")
    trained("ward", ("north", "St. Mary's", "west"), {}, monkeypatch)
    capsys.readouterr()
    _show_results(Path("results"))
    said = " ".join(capsys.readouterr().out.split())
    assert "test accuracy in percent of 3 clients after 2 rounds" in said
    assert "worst 10 %" in said
    assert "Of the clients, it serves" in said
    _show_results(Path("elsewhere"))  # an app that writes no results of evenly
    assert capsys.readouterr().out == ""


def test_after_an_interruption_it_is_said_how_many_rounds_are_stored(
    monkeypatch: pytest.MonkeyPatch,
):
    again = "evenly flower up ward --out results"
    assert _remedy(Path("results"), again) == (
        f"No round was stored; `{again}` starts again from the first round."
    )
    evenly("new", "ward", *TABLE)
    trained("ward", ("north", "St. Mary's", "west"), {}, monkeypatch)
    assert _remedy(Path("results"), again) == (
        f"2 rounds are stored; `{again}` resumes after the last one."
    )


@pytest.mark.slow
def test_a_trial_on_a_table_ends_with_a_report_and_leaves_nothing_running(folder: Path):
    evenly("new", "ward", *TABLE, "--sensitive", "sex", "--rounds", "2")
    trial = begun(folder, "ward")
    said, _ = trial.communicate(timeout=400)
    assert trial.returncode == 0, said
    assert "with 3 SuperNodes: client-0-St--Mary-s, client-1-north, client-2-west" in " ".join(
        said.split()
    )
    report = folder / "ward" / "results" / "run-1" / "report.html"
    assert f"Report: {report}" in said
    assert "Of the clients, it serves" in " ".join(said.split())
    assert "north" in report.read_text()
    assert not processes_of(folder)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_trial_that_is_interrupted_stops_everything_and_can_go_on(
    folder: Path, number: signal.Signals
):
    evenly("new", "ward", *TABLE, "--rounds", "3")
    trial = begun(folder, "ward", "--out", "kept")
    end, log = time.monotonic() + 200, folder / "kept-logs" / "run.log"
    while not (log.exists() and "[ROUND 2" in log.read_text()):
        assert time.monotonic() < end, "the second round did not begin"
        assert trial.poll() is None
        time.sleep(0.2)
    trial.send_signal(number)
    said, _ = trial.communicate(timeout=200)
    assert trial.returncode == 130, said
    assert "resumes after the last one" in " ".join(said.split())
    assert not processes_of(folder)
    again = begun(folder, "ward", "--out", "kept")
    said, _ = again.communicate(timeout=400)
    assert again.returncode == 0, said
    assert (folder / "kept" / "report.html").exists()
    assert not processes_of(folder)


@pytest.mark.slow
def test_a_client_app_that_cannot_start_says_which_log_to_read(folder: Path):
    evenly("new", "ward", *TABLE, "--rounds", "1")
    server = folder / "ward" / "ward" / "server_app.py"
    server.write_text(
        server.read_text().replace("from evenly import Seeds", "from evenly import Seedz")
    )
    trial = begun(folder, "ward")
    said, _ = trial.communicate(timeout=200)
    assert trial.returncode == 2, said
    assert "run-1-logs/serverapp.log" in "".join(said.split())
    assert not processes_of(folder)


def test_hospitals_with_odd_names_are_told_theirs_or_refused_before_anything_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    frame = pd.read_csv("table.csv")
    odd = frame.replace({"north": 'St. "Mary"', "west": "ward 🏥"})
    Path("Zürich 🏥").mkdir()
    odd.to_csv("Zürich 🏥/table.csv", index=False)
    evenly("new", "ward", *("Zürich 🏥/table.csv" if w == "table.csv" else w for w in TABLE))
    nodes = read_app(Path("ward")).nodes
    assert {node["client"] for node in nodes.values()} == {*odd["hospital"]}
    for node in nodes.values():
        assert parse_config_args([config_text(node)]) == node
    frame.replace({"north": """St. "Mary's\""""}).to_csv("table.csv", index=False)
    evenly("new", "other", *TABLE)
    monkeypatch.setattr(Loopback, "__enter__", lambda self: pytest.fail("something was started"))
    refused = evenly("up", "other", code=2)
    assert "client must be text without control characters and with only one kind" in refused
    assert """got 'St. "Mary\\'s"'.""" in refused
    assert not Path("other/results").exists()


def test_an_audit_without_a_finished_run_or_with_an_older_app_is_one_sentence(folder: Path):
    evenly("new", "ward", *TABLE, "--sensitive", "sex")
    assert "holds no finished run with a model" in evenly("audit", "ward", code=2)
    both = evenly("audit", "ward", "--model", "x", "--prediction", "p", code=2)
    assert "an audit is about one of them" in both
    assert "--score needs --prediction" in evenly("audit", "ward", "--score", "s", code=2)
    assert "must be COLUMN=VALUE" in evenly("audit", "ward", "--unprivileged", "f", code=2)
    assert "A requirement must be" in evenly("audit", "ward", "--require", "spd", code=2)
    Path("run").mkdir()
    Path("run/report.html").write_text("of a run")
    refused = evenly("audit", "ward", "--prediction", "p", "--out", "run", code=2)
    assert "holds the file report.html that no audit wrote" in refused
    assert not Path("run-logs").exists()
    project = folder / "ward" / "pyproject.toml"
    project.write_text(project.read_text().replace('job = "train"', 'unused = "train"'))
    assert "can only train" in evenly("audit", "ward", "--prediction", "p", code=2)
    assert not (folder / "ward" / "results").exists()


@pytest.mark.slow
def test_an_audit_over_tls_equals_that_of_all_rows_together(folder: Path):
    """A SuperLink and SuperNodes with keys; predictions are a column of the clients' tables."""
    import evenly as library
    from evenly.datasets.load import read_table
    from evenly.flower.app import client_of_table, read_schema

    frame = pd.concat([pd.read_csv("table.csv")] * 200, ignore_index=True)
    draw = np.random.default_rng(1)
    frame["s"] = draw.random(len(frame)).round(4)
    frame["p"] = np.where(frame["s"] > 0.4, "yes", "no")
    frame.to_csv("table.csv", index=False)
    evenly("new", "ward", *TABLE, "--sensitive", "sex", "--drop", "s,p")
    words = ["audit", "ward", "--prediction", "p", "--score", "s", "--out", "out"]
    command = [sys.executable, "-m", "evenly", "flower", *words, "--require", "accuracy>=99"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Not met: accuracy at least 99 %." in done.stdout
    schema = read_schema(folder / "ward" / "ward" / "schema.json")
    rows = []
    for name in schema.clients:
        table = read_table(folder / "table.csv", schema.identifying_columns)
        client = client_of_table(schema, table, name, prediction="p", score="s")
        assert client.decisions is not None
        rows.append(
            pd.DataFrame(
                {
                    "site": name,
                    "sex": [schema.groups[g] for g in client.test.group],
                    "y": [schema.labels[y] for y in client.test.y],
                    "p": [schema.labels[y] for y in client.decisions.outcome],
                    "s": client.decisions.score,
                }
            )
        )
    pooled = library.audit(
        pd.concat(rows), client="site", label="y", prediction="p", score="s", sensitive="sex",
        favourable="yes",
    )  # fmt: skip
    found = pd.read_csv(folder / "out" / "audit.csv").set_index(["level", "name", "metric"])
    exact = (figure for figure in pooled.figures if figure.metric not in ("auc", "ece", "bias"))
    for figure in exact:
        name = "ward" if figure.level == "model" else figure.name
        own = found.loc[(figure.level, name, figure.metric)]
        assert own["value"] == pytest.approx(figure.value, rel=1e-12), figure
    auc = found.loc[("model", "ward", "auc")]
    assert auc["low"] <= pooled.whole["auc"].value <= auc["high"]
    assert not processes_of(folder)

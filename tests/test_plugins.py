"""A user's own method, metric and data set from a file or an installed package: on the command
line, in plans, and wherever a plan runs.
"""

import dataclasses
import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import evenly
from evenly import plugins
from evenly.algorithms import METHODS
from evenly.cli import app
from evenly.cli.experiment_runs import RunResult, RunTarget
from evenly.datasets import DATASETS
from evenly.experiment import execute, reopen, worker
from evenly.experiment.config import read
from evenly.experiment.plan import Plan
from evenly.experiment.study import StudyPlan
from evenly.experiment.tuning_space import TuningPlan
from evenly.metrics import EVERY_METRIC, METRICS

OWN = """
import dataclasses
import evenly
from evenly.algorithms import METHODS
from evenly.datasets import DatasetCard
from evenly.metrics import Metric

METHOD = dataclasses.replace(METHODS["fedavg"], name="urgent", title="Urgent", reference="here")
low = lambda a, n: 100 * (a < 0.5).mean()
METRIC = Metric("below_half", "clients below 50 %", "share", "0 to 100 %", -1, low, "clients")
load = lambda stations=3, *, split_seed=0: evenly.synthetic(clients=stations)
CARD = DatasetCard(name="weather", title="Rain", load=load)
"""
REGISTERED = OWN + "for thing in (METHOD, METRIC, CARD):\n    evenly.register(thing)\n"
PLAN: dict[str, Any] = {
    "name": "p",
    "data": {"name": "weather"},
    "methods": ("urgent",),
    "rounds": 2,
    "seeds": (0,),
}

pytestmark = pytest.mark.usefixtures("registries")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(REGISTERED)
    return Path("own.py")


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def sentence(result: Result) -> str:
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit), "a sentence, not a traceback"
    return " ".join(result.output.split())


class Planned(Exception):  # noqa: N818 (ends a command early; no error)
    """A command came as far as its plan."""


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(plan: Any, *_: Any, **__: Any) -> None:
        raise Planned(plan)

    for name in (
        "experiment_runs.run_plan",
        "experiment_runs.run_experiment",
        "tuning_command._run_search",
    ):
        monkeypatch.setattr(f"evenly.cli.{name}", stop)


def planned(*words: str) -> Any:
    found = call(*words).exception
    assert isinstance(found, Planned), found
    return found.args[0]


def test_a_plugin_is_listed_and_described(own: Path):
    listed = call("list", "--plugin", str(own))
    assert listed.exit_code == 0, listed.output
    assert all(name in listed.output for name in ("urgent", "below_half", "weather"))
    assert "Urgent (here)" in call("describe", "urgent", "--plugin", str(own)).output
    assert (
        "Computed from the accuracies of all clients."
        in call("describe", "below_half", "--plugin", str(own)).output
    )
    assert "Rain" in call("data", "list", "--plugin", str(own)).output
    assert (
        "weather: Rain"
        in call("data", "describe", "weather(stations=4)", "--plugin", str(own)).output
    )


def test_a_comparison_and_a_search_use_a_plugin_and_keep_it_in_their_plan(own: Path, stopped: None):
    options = ("--plugin", "own.py", "--data", "weather(stations=4)")
    plan = planned("compare", *options, "--algorithms", "fedavg,urgent(learning_rate=0.2)")
    assert [variant.label for variant in plan.variants()] == ["fedavg", "urgent(learning_rate=0.2)"]
    (kept,) = plan.plugins
    assert kept["path"] == "own.py"
    assert Plan.from_json(plan.to_json()) == plan
    search = planned(
        "tune",
        *options,
        "--method",
        "urgent(learning_rate=[0.1, 0.2])",
        "--objective",
        "below_half",
    )
    assert search.shared.plugins == search.final("urgent(learning_rate=0.1)").plugins == (kept,)
    assert TuningPlan.from_json(search.to_json()) == search
    assert planned("reproduce", "qffl/synthetic", "--quick", "--plugin", "own.py").plugins == (
        kept,
    )


def test_an_experiment_file_names_plugins_beside_it(
    own: Path, stopped: None, monkeypatch: pytest.MonkeyPatch
):
    text = (
        'title = "t"\nplugins = ["own.py"]\nmethods = ["urgent"]\nrounds = 2\nseeds ='
        ' 1\n[data]\nname = "weather"\n'
    )
    folder = Path("deep")
    folder.mkdir()
    (folder / "own.py").write_text(REGISTERED)
    (folder / "experiment.toml").write_text(text)
    plan = planned("run", "deep/experiment.toml", "--plugin", "own.py")
    assert [one["path"] for one in plan.plugins] == ["deep/own.py"], (
        "the same file twice is kept once"
    )
    assert plan.variants()[0].method.title == "Urgent"
    (folder / "study.toml").write_text(
        text
        + "[study]\ncells = [{stations = 3}, {stations = 4}]\nchoose = {learning_rate = [0.1]}\n"
    )
    study = planned("run", "deep/study.toml")
    assert StudyPlan.from_json(study.to_json()) == study
    assert all(cell.plugins == plan.plugins for cell in study.cells.values())
    (folder / "experiment.toml").write_text(text.replace("own.py", "gone.py"))
    with pytest.raises(ValueError, match=r"^There is no plugin file 'deep/gone\.py'\.$"):
        read(folder / "experiment.toml")


def test_plans_without_plugins_have_the_same_fingerprint_as_before():
    """Results from before there were plugins are still found."""
    plan = Plan(**{**PLAN, "methods": ("fedavg",), "data": {"name": "synthetic"}})
    assert "plugins" not in json.loads(plan.to_json())
    assert plan.fingerprint() == "897bd93bdbcf6ec3"
    assert Plan.from_json(plan.to_json()).plugins == ()


@pytest.fixture
def plan(own: Path) -> Plan:
    """A plan with a plugin that this process has not loaded."""
    return Plan(
        **PLAN,
        plugins=({"path": str(own), "sha256": hashlib.sha256(own.read_bytes()).hexdigest()},),
    )


@pytest.fixture
def begun(plan: Plan) -> Path:
    """A folder of results, looked at from elsewhere than where it was begun."""
    from evenly.experiment.folder import RunRecord, begin

    into = Path("results") / "begun"
    into.mkdir(parents=True)
    (into / "plan.json").write_text(plan.to_json())
    begin(into, RunRecord(command="evenly compare"))
    return into.resolve()


def test_resume_loads_what_the_plan_names(
    begun: Path, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    done: list[Plan] = []

    def run(plan: Plan, about: Any, target: RunTarget) -> RunResult:
        assert [variant.method.title for variant in plan.variants()] == ["Urgent"]
        done.append(plan)
        return RunResult(begun, [], [])

    monkeypatch.setattr("evenly.cli.experiment_runs.run_experiment", run)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = call("resume", str(begun))
    assert found.exit_code == 0, found.output
    assert done == [plan]
    assert "below_half" in EVERY_METRIC


def test_resume_refuses_a_plugin_that_changed_or_is_gone(
    begun: Path, own: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "evenly.cli.experiment_runs.run_experiment", lambda plan, *_, **__: RunResult(begun, [], [])
    )
    own.rename("moved.py")
    assert (
        "There is no plugin file 'own.py'. The plan needs it; pass the same file with --plugin"
        in sentence(call("resume", str(begun)))
    )
    own.write_text(REGISTERED + "# another line\n")
    assert (
        "The plugin 'own.py' has changed since these results were started. Restore it"
        in sentence(call("resume", str(begun)))
    )
    assert "urgent" not in METHODS
    assert call("resume", str(begun), "--plugin", "moved.py").exit_code == 0


@pytest.mark.parametrize("command", [("report",), ("export",), ("diff", "DIR")])
def test_whoever_reads_results_runs_no_code_that_their_folder_names(
    command: tuple[str, ...], begun: Path, monkeypatch: pytest.MonkeyPatch
):
    words = [command[0], *(str(begun) for _ in command)]
    text = sentence(call(*words))
    assert (
        "were computed with the plugin 'own.py'. Load the same file with `--plugin own.py`"
        " (plugins= in Python); evenly does not run code" in text
    )
    assert "urgent" not in METHODS

    def opened(*_: Any) -> None:
        raise Planned

    monkeypatch.setattr(reopen, "_stored_setting", opened)
    assert isinstance(call(*words, "--plugin", "own.py").exception, Planned)


def test_a_plan_is_executed_with_its_plugins_alone(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """`python -m evenly.experiment.execute plan.json OUT`"""

    def stop(plan: Plan, *_: Any, **__: Any) -> None:
        assert plan.variants()[0].label == "urgent"
        raise Planned

    Path("plan.json").write_text(plan.to_json())
    monkeypatch.setattr("sys.argv", ["execute", "plan.json", str(tmp_path / "out")])
    monkeypatch.setattr(execute, "execute", stop)
    with pytest.raises(Planned):
        execute.main()


def test_training_a_plan_loads_its_plugins(plan: Plan, monkeypatch: pytest.MonkeyPatch):
    def stop(*_: Any) -> None:
        assert "urgent" in METHODS
        raise Planned

    monkeypatch.setattr(execute, "setting_of", stop)
    with pytest.raises(Planned):
        execute.execute(plan)


def test_a_worker_of_a_cluster_is_sent_the_files(
    plan: Plan, own: Path, monkeypatch: pytest.MonkeyPatch
):
    """A worker has another disk: the file is not there."""
    job = pickle.loads(
        pickle.dumps(
            worker.Job(
                plan.to_json(),
                None,
                True,
                False,
                execute.versions(),
                plugins.sources_of(plan.plugins),
            )
        )
    )  # type: ignore[arg-type]
    own.unlink()

    def stop(plan: Plan, *_: Any) -> None:
        assert plan.variants()[0].method.title == "Urgent"
        raise Planned

    monkeypatch.setattr(worker, "_send", lambda *_: False)
    monkeypatch.setattr(worker, "_setting", stop)
    monkeypatch.setattr(worker, "_checkpoint", stop)
    job = job._replace(program=type("Program", (), {"seed": 0}))
    with pytest.raises(Planned):
        worker.train_program(job, None, 0, None)
    assert METRICS["below_half"].rests_on == "clients"


@pytest.mark.parametrize(
    "name, text, said",
    [
        (
            "bad.py",
            "x = 1\ny = zz\n",
            "The plugin 'bad.py' cannot be loaded. Line 2: NameError: name 'zz' is not defined.",
        ),
        (
            "bad.py",
            "x = 1\nfoo(\n",
            "The plugin 'bad.py' cannot be loaded. Line 2: SyntaxError: '(' was never closed.",
        ),
        (
            "bad.py",
            "import nowhere_at_all\n",
            "Line 1: ModuleNotFoundError: No module named 'nowhere_at_all'.",
        ),
        ("bad.py", "raise SystemExit(3)\n", "Line 1: SystemExit: 3."),
        ("bad.py", "def f():\n    1 / 0\n\nf()\n", "Line 2: ZeroDivisionError: division by zero."),
        (
            "bad.py",
            "import evenly\nevenly.register(3)\n",
            "Line 2: TypeError: evenly.register needs a Method (evenly.algorithms),",
        ),
        (
            "bad.py",
            "x = 1\n",
            "The plugin 'bad.py' registers nothing. It must call evenly.register(...)",
        ),
        (
            "bad.py",
            REGISTERED.replace('"urgent"', '"fedprox"'),
            "There is already a method 'fedprox'. It is part of evenly",
        ),
        (
            "bad.py",
            REGISTERED.replace('"urgent"', '"uniform"'),
            "There is already a method 'uniform'. It is part of evenly",
        ),
        (
            "bad.py",
            REGISTERED.replace('"weather"', '"adult"'),
            "There is already a data set 'adult'. It is part of evenly",
        ),
        (
            "bad.py",
            REGISTERED.replace(', "clients")', ")"),
            "Metric 'below_half': rests_on must say what the value is computed from",
        ),
        ("bad.py", REGISTERED + "1 / 0\n", "ZeroDivisionError: division by zero."),
        (
            "bad.txt",
            REGISTERED,
            "A plugin must be a Python file whose name ends with .py, got 'bad.txt'.",
        ),
        ("gone.py", None, "There is no plugin file 'gone.py'."),
    ],
)
def test_a_plugin_that_fails_is_answered_with_file_line_and_error(
    name: str, text: str | None, said: str, own: Path
):
    if text is not None:
        Path(name).write_text(text)
    before = {*METHODS, *DATASETS, *EVERY_METRIC}
    assert said in sentence(call("list", "--plugin", name))
    assert {*METHODS, *DATASETS, *EVERY_METRIC} == before, "nothing of it stays"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with entry points, as pip leaves one."""
    (tmp_path / "evenly_weather.py").write_text(OWN)
    info = tmp_path / "evenly_weather-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evenly-weather\nVersion: 1.0\n")
    points = {
        "methods": "urgent = evenly_weather:METHOD",
        "metrics": "b = evenly_weather:METRIC",
        "datasets": "w = evenly_weather:CARD",
    }
    (info / "entry_points.txt").write_text(
        "".join(f"[evenly.{group}]\n{point}\n" for group, point in points.items())
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "evenly_weather", raising=False)
    monkeypatch.setattr(plugins, "_installed", [])
    return info / "entry_points.txt"


def test_an_installed_package_is_found_without_an_option(installed: Path):
    assert "Urgent (here)" in call("describe", "urgent").output
    assert "below_half" in EVERY_METRIC
    assert DATASETS["weather"].title == "Rain"


def test_an_installed_package_is_found_for_a_new_app_of_flower(installed: Path, tmp_path: Path):
    pytest.importorskip("flwr")
    written = call("flower", "new", str(tmp_path / "rain"), "--method", "urgent")
    assert written.exit_code == 0, written.output


@pytest.mark.parametrize("role", ["server", "client"])
def test_an_installed_package_is_found_by_apps_of_flower(installed: Path, role: str):
    pytest.importorskip("flwr")
    from evenly.flower.clients.client import read_config
    from evenly.flower.roster import algorithm_of
    from evenly.flower.wire import METHOD

    label = "urgent(learning_rate=0.3)"
    found = algorithm_of(label) if role == "server" else read_config({METHOD: label}).algorithm
    assert found.label == label


def test_an_installed_package_is_found_from_python(installed: Path):
    assert evenly.algorithm("urgent(learning_rate=0.3)").label == "urgent(learning_rate=0.3)"


@pytest.mark.parametrize(
    "point, said",
    [
        (
            "urgent = evenly_weather:CARD",
            (
                "'urgent' = 'evenly_weather:CARD' (evenly.methods), which cannot be used:"
                " TypeError: it must"
            ),
        ),
        (
            "urgent = evenly_weather:GONE",
            (
                "which cannot be used: AttributeError: module 'evenly_weather' has no attribute"
                " 'GONE'."
            ),
        ),
        (
            "urgent = evenly_gone:METHOD",
            "which cannot be used: ModuleNotFoundError: No module named 'evenly_gone'.",
        ),
    ],
)
def test_an_installed_package_that_fails_is_named(installed: Path, point: str, said: str):
    installed.write_text(f"[evenly.datasets]\nw = evenly_weather:CARD\n[evenly.methods]\n{point}\n")
    text = sentence(call("list"))
    assert "The installed package evenly-weather provides " in text
    assert said in text
    assert "Correct or uninstall the package." in text
    assert "weather" not in DATASETS


def test_a_name_belongs_to_whoever_came_first():
    mine = dataclasses.replace(METHODS["fedavg"], name="mine")
    evenly.register(mine)
    evenly.register(mine)
    with pytest.raises(ValueError, match=r"already a method 'mine'\. Pass replace=True"):
        evenly.register(dataclasses.replace(mine, title="Other"))
    evenly.register(dataclasses.replace(mine, title="Other"), replace=True)
    assert METHODS["mine"].title == "Other"
    with pytest.raises(ValueError, match=r"already a method 'fedavg'\. It is part of evenly"):
        evenly.register(dataclasses.replace(mine, name="fedavg"), replace=True)
    assert METHODS["fedavg"].title == "FedAvg"


def test_a_file_that_was_edited_replaces_what_it_registered(own: Path):
    plugins.load_files(["own.py"])
    own.write_text(REGISTERED.replace('"Urgent"', '"Later"'))
    plugins.load_files(["own.py"])
    assert METHODS["urgent"].title == "Later"
    own.write_text(REGISTERED.replace('"Urgent"', '"Broken"') + "1 / 0\n")
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        plugins.load_files(["own.py"])
    assert METHODS["urgent"].title == "Later"
    Path("other.py").write_text(REGISTERED)
    with pytest.raises(ValueError, match="already a method 'urgent'"):
        plugins.load_files(["other.py"])

"""The Flower examples run, server and few clients in this process, and do what they promise."""

import importlib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context, RecordDict

from evenly.experiment.reopen import open_results
from evenly.flower import strategy
from tests.flower.grids import OneProcess
from tests.pages import blocks

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
torch.set_num_threads(1)  # for models this small a second thread is only waited for


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import an example's modules as Flower would, from its folder; they are forgotten
    afterwards.
    """
    before = set(sys.modules)

    def of(folder: Path, *names: str) -> list[Any]:
        monkeypatch.syspath_prepend(str(folder))
        return [importlib.import_module(name) for name in names]

    yield of
    for name in set(sys.modules) - before:
        if name.split(".")[0] in (
            "task",
            "client_app",
            "server_app",
            "hospitals",
            "devices",
            "q_fedavg",
        ):
            del sys.modules[name]


def run(server: Any, client: Any, clients: int, config: dict[str, Any]) -> OneProcess:
    grid = OneProcess(client.app, nodes=range(10, 10 + clients))
    for context in grid.contexts.values():
        context.node_config["num-partitions"] = clients
    server.app(
        grid, Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    )
    return grid


def configured(example: Path, **changes: Any) -> dict[str, Any]:
    app = tomllib.loads((example / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    return {**app["config"], **changes}


@pytest.mark.parametrize("folder", ["flower_hospitals", "flower_devices", "flower_one_metric"])
def test_the_components_that_an_app_names_are_there(folder: str, imported: Any) -> None:
    app = tomllib.loads((EXAMPLES / folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    for component in app["components"].values():
        module, _, name = component.partition(":")
        assert hasattr(imported(EXAMPLES / folder, module)[0], name)


def test_hospitals_are_named_and_their_groups_counted(imported: Any, tmp_path: Path) -> None:
    folder = EXAMPLES / "flower_hospitals"
    client, server = imported(folder, "hospitals.client_app", "hospitals.server_app")
    run(server, client, 3, configured(folder, rounds=2, clients=3, folder=str(tmp_path / "run")))
    found = open_results(tmp_path / "run")
    assert found.federation.names == ("hospital 1", "hospital 2", "hospital 3")
    assert found.federation.groups == ("unprivileged", "privileged")
    tested = found.runs[0].trace.tables[-1, 2]  # by hospital, group, label and outcome
    assert (tested.sum((1, 2, 3)) == 48).all()
    assert (tested[:, 0].sum((1, 2)) > 0).all()


def test_few_devices_train_in_a_round(imported: Any, tmp_path: Path) -> None:
    folder = EXAMPLES / "flower_devices"
    client, server = imported(folder, "devices.client_app", "devices.server_app")
    grid = run(
        server, client, 8, configured(folder, rounds=2, clients=8, folder=str(tmp_path / "run"))
    )
    trained = [node for kind, node in grid.asked if kind == "train"]
    assert len(trained) == 2 * 2
    evaluated = [node for kind, node in grid.asked if kind == "evaluate"]
    assert len(evaluated) == 2 * 8


def test_one_metric_more_makes_fedavg_fair(
    imported: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, losses = EXAMPLES / "flower_one_metric", {}
    (task,) = imported(folder, "task")
    for version in ("fedavg", "q_fedavg"):
        client, server = imported(folder / version, "client_app", "server_app")
        for name in ("client_app", "server_app"):
            del sys.modules[name]
        saved = tmp_path / f"{version}.pt"
        run(server, client, 4, {"rounds": 8, "save": str(saved)})
        net = task.Net()
        net.load_state_dict(torch.load(saved))
        losses[version] = np.array([task.test(net, task.load_data(k)[0])[0] for k in range(4)])
    assert losses["q_fedavg"].max() < losses["fedavg"].max() - 0.05
    assert losses["q_fedavg"].std() < losses["fedavg"].std()


def test_the_clients_of_the_page_answer_a_strategy() -> None:
    """Its Python is run elsewhere; here a server asks the clients that it makes."""
    python = [
        block.text
        for block in blocks(ROOT / "docs" / "flower-clients.md")
        if block.kind == "python"
    ]
    names: dict[str, Any] = {"__name__": "page"}
    exec(python[0], names)
    first = ArrayRecord(names["nn"].Linear(5, 2).state_dict())
    for method in ("q-fedavg(q=1)", "fedprox(mu=0.1)", "fairfed(metric=eod)"):
        made = strategy(method, fraction_evaluate=0.0)
        result = made.start(OneProcess(names["app"], nodes=[1, 2]), first, num_rounds=2)
        assert not np.array_equal(result.arrays["weight"].numpy(), first["weight"].numpy())
    for text in python[1:4]:
        exec(text, names)
    client = names["client"]
    result = names["fair"].start(
        OneProcess(client, nodes=range(1, 6)), names["first"], num_rounds=2
    )
    assert sorted(result.arrays["2.weight"].numpy().ravel()) == list(range(64))
    grouped = strategy("e2fl(groups=2, inference=lowest-loss)").start(
        OneProcess(client, nodes=range(1, 6)), names["first"], num_rounds=2
    )
    assert {name[:2] for name in grouped.arrays} == {"0/", "1/"}

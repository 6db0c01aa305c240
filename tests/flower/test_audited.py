"""The report of a deployment says what the server was told, and what clients told it besides what
the method needs.
"""

import html
import re
from pathlib import Path

import pytest

from evenly.experiment.comparison import Comparison
from evenly.experiment.deployment import OPTIONS, ServerOptions, read_options
from evenly.experiment.reopen import open_results
from evenly.flower import Caps, first_arrays, strategy
from evenly.flower.clients.jax import app
from evenly.flower.lifecycle import options_record
from evenly.flower.two_phase import plain_sum
from evenly.report.setup_sections import settings_section
from evenly.report.trust_sections import privacy_section
from tests.flower.deployments import one_round, recorder
from tests.flower.grids import NODES, OneProcess
from tests.flower.small import SEEDS, algorithm_of, small, task_of


def facts(comparison: Comparison) -> dict[str, str]:
    page = settings_section(comparison).replace("<wbr>", "")
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page)
    return {
        re.sub(r".*\((\w+)\)$", r"\1", html.unescape(term)): html.unescape(text)
        for term, text in found
    }


def words(comparison: Comparison) -> str:
    return html.unescape(privacy_section(comparison))


def written(folder: Path, options: ServerOptions | None, *, groups: bool = True) -> Comparison:
    kept = recorder(folder, groups=groups, options=options)
    one_round(kept, 1, groups=groups)
    return open_results(folder)


def test_the_options_of_a_strategy_reach_the_report(tmp_path):
    server = strategy(
        algorithm_of("q-fedavg(q=1)"), seeds=SEEDS, folder=tmp_path / "run", introduce=True,
        fraction_train=0.5, min_train_nodes=1, min_available_nodes=4, caps=Caps(loss="10x"),
        two_phase=True,
    )  # fmt: skip
    task = task_of("q-fedavg(q=1)")
    grid = OneProcess(app(small(4), task), NODES[:4])
    server.start(grid, first_arrays(algorithm_of("q-fedavg(q=1)"), task, SEEDS), num_rounds=1)
    comparison = open_results(tmp_path / "run")
    told = facts(comparison)
    expected = {
        "caps": "loss = 10x",
        "fraction_train": "0.5",
        "min_train_nodes": "1",
        "min_available_nodes": "4",
    }
    expected |= {
        "fraction_evaluate": "1",
        "min_evaluate_nodes": "2",
        "two_phase": "yes, updates in the clear",
    }
    assert {name: told[name] for name in expected} == expected
    assert "fraction" in told["Sampling, unless a method says otherwise"]
    text = words(comparison)
    assert "the number of training rows of each group and label" in text
    assert "The server still receives the update of each client separately" in text
    assert server.history.recorder.comparison().deployed == comparison.deployed


def test_a_function_that_makes_the_sum_is_told_from_the_plain_one():
    plain, own, no = (
        options_record(strategy("fedavg", two_phase=two).options, 1)
        for two in (True, lambda sent: plain_sum(sent), False)
    )
    assert [(one.two_phase, one.given_sum) for one in (plain, own, no)] == [
        (True, False),
        (True, True),
        (False, False),
    ]


@pytest.mark.parametrize(
    ("options", "phases", "updates"),
    [
        (ServerOptions(1), "no", "the server receives the update of each client separately"),
        (
            ServerOptions(1, two_phase=True),
            "yes, updates in the clear",
            "there is no function for a masked sum",
        ),
        (
            ServerOptions(1, two_phase=True, given_sum=True),
            "yes, with a given function that makes the sum",
            "which evenly does not check",
        ),
    ],
)
def test_how_updates_reach_the_server(
    options: ServerOptions, phases: str, updates: str, tmp_path: Path
):
    comparison = written(tmp_path / "run", options)
    assert facts(comparison)["two_phase"] == phases
    assert updates in words(comparison)


def test_evaluations_and_a_census_that_was_not_asked_for(tmp_path):
    tables = words(written(tmp_path / "tables", ServerOptions(1)))
    assert (
        "the number of its test rows, its mean loss on them, and counts by group, label and"
        " prediction." in tables
    )
    assert "Census: none was requested." in tables
    assert "its mean loss on them, and its accuracy" in words(
        written(tmp_path / "accuracies", ServerOptions(1), groups=False)
    )


def test_a_folder_without_options_is_read(tmp_path):
    comparison = written(tmp_path / "run", None)
    assert not (tmp_path / "run" / OPTIONS).exists()
    told = facts(comparison)
    assert told["caps"] == "none"
    assert "two_phase" not in told
    assert "it was not recorded whether there was a function for a masked sum" in words(comparison)


def test_a_server_that_goes_on_with_other_options_says_since_when(tmp_path):
    for done, options in (
        (0, ServerOptions(1)),
        (1, ServerOptions(2)),
        (2, ServerOptions(3, min_train_nodes=3, two_phase=True)),
        (4, ServerOptions(5)),
    ):
        kept = recorder(tmp_path / "run", done=done, options=options)
        for t in range(done + 1, min(done + 2, 4) + 1):
            one_round(kept, t)
    assert [one.since for one in read_options(tmp_path / "run")] == [1, 3, 5]
    comparison = open_results(tmp_path / "run")
    # in round 5 nobody trained
    assert facts(comparison)["min_train_nodes"] == "2; from round 3 on 3"
    assert "separately. This applies to some of the rounds" in words(comparison)


def test_a_server_that_goes_on_in_an_older_folder_does_not_speak_for_its_first_rounds(tmp_path):
    one_round(recorder(tmp_path / "run"), 1)
    one_round(
        recorder(
            tmp_path / "run", done=1, options=ServerOptions(2, two_phase=True, given_sum=True)
        ),
        2,
    )
    comparison = open_results(tmp_path / "run")
    assert facts(comparison)["min_available_nodes"] == "not kept; from round 2 on 2"
    assert "it was not recorded" in words(comparison)


def test_damaged_options_are_named(tmp_path):
    written(tmp_path / "run", ServerOptions(1))
    (tmp_path / "run" / OPTIONS).write_text("{")
    with pytest.raises(ValueError, match=r"options\.json' is damaged"):
        open_results(tmp_path / "run")


def test_a_simulation_has_neither(tmp_path):
    comparison = written(tmp_path / "run", ServerOptions(1))._replace(deployed=None)
    assert "caps" not in facts(comparison)
    assert "This is a deployment" not in words(comparison)

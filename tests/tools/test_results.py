"""Results that are stored for the documentation: complete, and shown beside the paper's figures."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from evenly.experiment.config import read_packaged
from tests.studies import METHODS, study
from tools import results

RECORD = {
    "device": "a CPU",
    "date": "2026-01-01",
    "versions": {"evenly": "0.1.0"},
    "seconds": 1234.5,
    "command": "x",
}
GROUP = np.array([0, 0, 1, 1])
ALPHAS = (0.1, 0.2, 0.5, 10, 5000)


@pytest.fixture(scope="module")
def stored() -> dict:
    record = results.study_record(
        study(alphas=ALPHAS), RECORD, read_packaged("thesis/adult-dirichlet")
    )
    return json.loads(json.dumps(record, allow_nan=False))


def test_the_command_says_what_was_changed(stored):
    assert stored["command"] == "evenly reproduce thesis/adult-dirichlet --rounds 3 --seeds 3"


@pytest.mark.parametrize(
    "file", sorted((results.DOCS / "results").glob("*.json")), ids=lambda file: file.stem
)
def test_stored_commands_repeat_the_stored_rounds_and_seeds(file: Path):
    stored = json.loads(file.read_text())
    experiment = read_packaged(stored["experiment"])
    ran = SimpleNamespace(rounds=stored["rounds"], seeds=range(stored["seeds"]))
    usual = cast("Any", experiment.plan(stored["experiment"]))
    assert stored["command"] == results.command(stored["experiment"], cast("Any", ran), usual)


def test_every_method_is_stored_with_the_papers_figures(stored):
    partition = stored["study"]["partitions"][0]
    assert partition["table"] == "A.1"
    assert len(partition["methods"]) == len(METHODS)
    at = stored["study"]["metrics"].index("eod_abs")
    assert partition["methods"]["FEDAVG"]["paper"]["mean"][at] == 0.104
    outcome = study(alphas=ALPHAS).one("honest", "0.1", "fedavg+full")
    assert partition["methods"]["FEDAVG"]["honest"]["mean"][at] == pytest.approx(
        outcome.mean("eod_abs"), abs=1e-5
    )


def test_the_page_has_findings_and_a_row_for_every_method_and_partition(stored):
    page = results.page(stored)
    assert page.index("## Findings") < page.index("## Every method")
    assert page.count("\n| FEDAVG+LD |") == 10  # two tables for each partition
    assert "| \\|SPD\\|, paper | \\|SPD\\|, study's | \\|SPD\\|, honest |" in page
    assert "Taken 2026-01-01 on a CPU in 1,234 s" in page
    assert "nan" not in page.replace("nanme", "")
    for text in page.split("## Every method")[1].split("\n\n"):
        widths = {
            line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("|")
        }
        assert len(widths) <= 1


def test_a_quick_study_is_refused():
    with pytest.raises(ValueError, match="Store whole studies, not quick ones"):
        results.study_record(study(alphas=(0.1,)), RECORD, read_packaged("thesis/adult-dirichlet"))


def test_a_folder_without_run_json_is_refused(tmp_path):
    (tmp_path / "plan.json").write_text(study().plan.to_json())
    with pytest.raises(ValueError, match=r"no run\.json"):
        results.read_study(tmp_path)


def comparison(*choices: list[list[int]]) -> Any:
    """Return one method with, for each seed, the choices of four clients of two groups before the
    first round and after two and four.
    """
    cohort = np.array([[0, 1], [0, 2], [1, 2], [1, 3]])
    traces = [
        SimpleNamespace(rounds=np.array([0, 2, 4]), choice=np.array(choice), cohort=cohort)
        for choice in choices
    ]
    runs = [SimpleNamespace(trace=trace) for trace in traces]
    return cast(
        Any,
        SimpleNamespace(
            federation=SimpleNamespace(client_group=GROUP), labels=["m"], of=lambda label: runs
        ),
    )


def test_shares_count_all_clients_and_the_clients_of_the_last_round():
    first = [[0, 0, 0, 0], [0, 1, 1, 0], [1, 0, 1, 1]]
    second = [[0, 0, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0]]
    course = list(results.course(comparison(first, second)))
    assert [one["round"] for one in course] == [2, 4]  # before the first round all models are equal
    assert course[0]["all"] == pytest.approx([62.5, np.std([50, 75], ddof=1)])
    assert course[0]["voted"] == [100.0, 0.0]  # clients 0 and 2
    assert course[1]["voted"] == pytest.approx([50.0, np.std([100, 0], ddof=1)])  # clients 1 and 3


def test_the_course_table_has_a_row_for_all_clients_and_one_for_the_last_round():
    course = list(results.course(comparison([[0, 0, 0, 0], [0, 1, 1, 0], [1, 0, 1, 1]])))
    stored = json.loads(json.dumps({"course": course, "seeds": 1}))
    assert results.course_table(stored).splitlines() == [
        "| method | clients | 2 | 4 |",
        "| --- | --- | ---: | ---: |",
        "| `m` | all | 50.0 | 75.0 |",
        "|  | of the last round | 100.0 | 100.0 |",
    ]

"""A study kept for the documentation: small, complete, and shown beside the paper's figures."""

import json
import sys
from pathlib import Path

import pytest

from evenly.experiment.config import read_packaged
from tests.studies import METHODS, study

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

import kept_studies as studies

RECORD = {"device": "a CPU", "date": "2026-01-01", "versions": {"evenly": "0.1.0"}, "seconds": 1234.5, "command": "x"}
ALPHAS = (0.1, 0.2, 0.5, 10, 5000)


@pytest.fixture(scope="module")
def found() -> dict:
    kept = studies.kept(study(alphas=ALPHAS), RECORD, read_packaged("thesis/adult-dirichlet"))
    return json.loads(json.dumps(kept, allow_nan=False))


def test_the_command_says_what_was_changed(found):
    assert found["command"] == "evenly reproduce thesis/adult-dirichlet --rounds 3 --seeds 3"


def test_every_method_is_kept_with_the_papers_figures(found):
    own = found["study"]["partitions"][0]
    assert own["table"] == "A.1"
    assert len(own["methods"]) == len(METHODS)
    at = found["study"]["metrics"].index("eod_abs")
    assert own["methods"]["FEDAVG"]["paper"]["mean"][at] == 0.104
    outcome = study(alphas=ALPHAS).one("honest", "0.1", "fedavg+full")
    assert own["methods"]["FEDAVG"]["honest"]["mean"][at] == pytest.approx(outcome.mean("eod_abs"), abs=1e-5)


def test_the_page_has_findings_and_a_row_for_every_method_and_partition(found):
    page = studies.page(found)
    assert page.index("## Findings") < page.index("## Every method")
    assert page.count("\n| FEDAVG+LD |") == 10  # two tables for each partition
    assert "| \\|SPD\\|, paper | \\|SPD\\|, study's | \\|SPD\\|, honest |" in page
    assert "Taken 2026-01-01 on a CPU in 1,234 s" in page
    assert "nan" not in page.replace("nanme", "")
    for text in page.split("## Every method")[1].split("\n\n"):
        widths = {line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("|")}
        assert len(widths) <= 1


def test_a_quick_study_is_not_kept():
    with pytest.raises(ValueError, match="Keep whole studies, not quick ones"):
        studies.kept(study(alphas=(0.1,)), RECORD, read_packaged("thesis/adult-dirichlet"))


def test_a_folder_that_does_not_say_where_it_was_trained_is_refused(tmp_path):
    (tmp_path / "plan.json").write_text(study().plan.to_json())
    with pytest.raises(ValueError, match=r"no run\.json"):
        studies.read(tmp_path)

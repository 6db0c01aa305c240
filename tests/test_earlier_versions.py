"""What version 0.1.0 wrote is read: a comparison, a saved model, and a deployment.

`tests/fixtures/version_0_1_0` holds the files that it wrote, without pages and results.csv. The
people in people.csv are made up.
"""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import evenly
from evenly.cli import app
from evenly.flower import server_state

FIXTURES = Path(__file__).parent / "fixtures" / "version_0_1_0"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A copy, because reading a folder may add files to it."""
    return shutil.copytree(FIXTURES, tmp_path / "written")


def test_a_finished_comparison_gives_the_results_that_were_written(written: Path):
    before = pd.read_parquet(written / "compare" / "results.parquet")
    found = evenly.load_results(written / "compare").table(tidy=True)
    keys = [name for name in before if name not in ("schema", "params", "value")]
    both = before.merge(found, on=keys, how="left", suffixes=("", "_now"), validate="one_to_one")
    np.testing.assert_allclose(both["value_now"], both["value"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("folder", ["compare", "deployment"])
def test_the_report_of_a_finished_folder_is_written(folder: str, written: Path):
    outcome = CliRunner().invoke(app, ["report", str(written / folder)])
    assert outcome.exit_code == 0, outcome.output
    page = (written / folder / "report.html").read_text()
    assert {"compare": "q-fedavg(q=1)", "deployment": "fairfed+reweigh"}[folder] in page


def test_a_finished_deployment_has_its_rounds(written: Path):
    results = evenly.load_results(written / "deployment")
    assert results.methods == ["fairfed+reweigh"]
    assert results.table(tidy=True)["round"].max() == 4


def test_a_deployment_is_not_continued(written: Path):
    with pytest.raises(ValueError, match=r"only that version can train its next rounds"):
        server_state.rounds_done(written / "deployment")


def test_a_saved_model_predicts_what_it_predicted(written: Path):
    model = evenly.load(written / "compare" / "models" / "fedavg_0-06a3638e.npz")
    predictions = model.predict(pd.read_csv(written / "people.csv"))
    assert predictions[:6].tolist() == ["no", "yes", "yes", "yes", "yes", "yes"]
    assert (predictions == "yes").sum() == 63

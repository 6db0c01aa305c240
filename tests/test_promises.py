"""What the changelog promises is still there."""

import json
import re
from pathlib import Path

import evenly
from evenly.experiment import plan, result_rows
from tests.promises import PROMISED, PUBLIC, present

CHANGELOG = (Path(__file__).parents[1] / "CHANGELOG.md").read_text()


def test_no_promised_name_is_gone():
    """New names may come; `python -m tests.promises` adds them. Taking one away breaks somebody's
    scripts and needs an entry under "Upgrade" in the changelog.
    """
    found, promised = present(), json.loads(PROMISED.read_text())
    gone = {what: sorted({*names} - {*found.get(what, ())}) for what, names in promised.items()}
    assert {what: names for what, names in gone.items() if names} == {}
    assert len(promised["names in evenly"]) > 20


def test_columns_of_results_keep_their_order():
    assert (
        present()["columns of results.csv"]
        == json.loads(PROMISED.read_text())["columns of results.csv"]
    )


def test_the_changelog_promises_what_is_tested():
    stable = CHANGELOG.partition("## What is stable")[2].partition("\n## ")[0]
    assert all(f"`{module}`" in stable for module in PUBLIC)
    assert (result_rows.RESULTS_SCHEMA, plan.SCHEMA) == (1, 1)
    assert "a schema number, which is 1" in " ".join(stable.split())


def test_the_newest_version_in_the_changelog_is_this_one():
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", CHANGELOG, re.MULTILINE)
    assert versions[0] == evenly.__version__
    assert versions == sorted(
        versions, key=lambda version: [*map(int, version.split("."))], reverse=True
    )

"""`evenly data`: every data set is listed and described, and missing or damaged files are reported
in one line.
"""

import shutil

import pytest
from typer.testing import CliRunner

from evenly.cli import app
from evenly.datasets import DATASETS, data_folder
from tests.datasets.real_data import need

runner = CliRunner()


def run(*arguments, code=0):
    result = runner.invoke(app, ["data", *arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """An empty data folder."""
    monkeypatch.setenv("EVENLY_DATA", str(tmp_path))
    return tmp_path


def test_every_data_set_is_listed():
    listed = run("list").stdout
    assert all(name in listed for name in DATASETS)


@pytest.mark.parametrize("name", DATASETS)
def test_every_data_set_is_described_without_its_files(name, nowhere):
    described = run("describe", name).stdout
    assert "licence" in described
    assert "from:" in described


def test_clients_are_shown_where_nothing_has_to_be_downloaded():
    assert "100 clients" in run("describe", "synthetic").stdout


def test_groups_and_their_rates_are_shown():
    described = run("describe", "synthetic-census").stdout
    assert "the favourable label is 'granted'" in described
    assert "unprivileged" in described
    assert "privileged" in described.replace("unprivileged", "")
    assert "groups" not in run("describe", "synthetic").stdout


def test_an_unknown_name_gets_the_nearest():
    assert "Did you mean 'adult'" in run("describe", "adlt", code=2).stderr


def test_a_set_that_cannot_be_fetched_says_how_to_get_it(nowhere):
    error = run("fetch", "femnist", code=2).stderr
    assert "LEAF" in error
    assert str(nowhere) in error.replace("\n", "")


def test_missing_files_are_named_when_training(nowhere):
    result = runner.invoke(app, ["compare", "--data", "adult", "--out", str(nowhere / "out")])
    assert result.exit_code == 2
    assert "evenly data fetch adult" in result.stderr


def test_a_damaged_file_is_found(nowhere):
    (nowhere / "adult").mkdir()
    for file in DATASETS["adult"].files:
        (nowhere / file.path).write_text("cut off")
    assert "bytes, found 7" in run("check", "adult", code=2).stderr


@pytest.mark.data
def test_whole_files_pass(tmp_path, monkeypatch):
    from tests.datasets.real_data import need

    need("adult")
    source = data_folder() / "adult"
    shutil.copytree(source, tmp_path / "adult")
    monkeypatch.setenv("EVENLY_DATA", str(tmp_path))
    assert "files whole" in run("check", "adult").stdout
    assert "48,842 rows" in run("describe", "adult").stdout


def test_a_data_set_is_described_with_its_settings():
    described = run("describe", "synthetic-census(clients=4)").stdout
    assert "4 clients" in described
    assert "good clients" not in described
    refused = run("describe", "synthetic-census(client=4)", code=2)
    assert "There is no setting 'client'. Did you mean 'clients'?" in " ".join(
        refused.stderr.split()
    )


def test_good_clients_are_counted_where_the_partition_is_by_coverage():
    need("compas")
    described = " ".join(run("describe", "compas(partition=cov-same-size)").stdout.split())
    assert (
        "good clients, with at least 90 % of a coverage of 854 unprivileged rows: 4 of 5"
        in described
    )

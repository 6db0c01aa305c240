"""`evenly report`: the page again from finished results, its charts as files, and a sentence where
that cannot be.
"""

import pytest
from tests.report.invented import comparison, federation
from tests.studies import study
from typer.testing import CliRunner

from evenly.cli import app
from evenly.experiment.execute import execute
from evenly.experiment.folder import RunRecord, Store, begin, finish, training_timer
from evenly.experiment.plan import Plan
from evenly.report.html import file_name, write_figures
from evenly.report.page import build, write_report

PLAN = Plan(
    name="test",
    data={"name": "synthetic", "clients": 4},
    methods=("fedavg", "q-fedavg(q=1)"),
    rounds=2,
    seeds=(0,),
    sampling="full",
)
STARTS = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Finished results, with the report that was written when they were made."""
    found = tmp_path_factory.mktemp("results") / "out"
    store = Store(found, PLAN)
    begin(found, RunRecord(command="evenly run test.toml", title="A test"))
    with training_timer(found, found / "traces"):
        execute(PLAN, store)
    finish(found)
    from evenly.experiment.reopen import open_results

    write_report(open_results(found), found / "report.html")
    return found


def call(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["report", *map(str, arguments)])
    return done.exit_code, " ".join((done.output + done.stderr).split())


def test_the_report_is_written_again_as_it_was_and_nothing_else_is_touched(folder, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    code, said = call(folder, "--out", tmp_path / "new" / "again.html")
    assert code == 0, said
    assert (tmp_path / "new" / "again.html").read_bytes() == (folder / "report.html").read_bytes()
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_every_chart_is_written_as_a_file(folder, tmp_path):
    code, said = call(
        folder,
        "--out",
        tmp_path / "r.html",
        "--figures",
        tmp_path / "figures",
        "--format",
        "svg",
        "--min-cell",
        5,
    )
    assert code == 0, said
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {
        "front.svg",
        "front-worst10.svg",
        "clients.svg",
        "rounds-average.svg",
        "rounds-average-bytes.svg",
        "influence.svg",
    } <= names
    assert f"Figures: {len(names)} files in" in said
    assert all(path.read_bytes().startswith(b"<svg") for path in (tmp_path / "figures").iterdir())
    assert "Values that rest on fewer than 5 people are hidden" in (tmp_path / "r.html").read_text()


def test_what_cannot_be_written_is_said(folder, tmp_path):
    code, said = call(folder, "--format", "png")
    assert (code, "Choose a folder for them with --figures DIR" in said) == (2, True)
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    code, said = call(folder, "--out", tmp_path / "r.html", "--figures", file)
    assert (code, "but it is a file. Choose another place." in said) == (2, True)


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_charts_are_drawn_offline_with_title_legend_and_colours_of_their_own(tmp_path, kind):
    specs = build(comparison(seeds=1, data=federation(5))).specs
    (path,) = write_figures({"chart-front@worst10": specs["chart-front@worst10"]}, tmp_path, kind)
    content = path.read_bytes()
    assert path.name == f"front-worst10.{kind}"
    assert content.startswith(STARTS[kind])
    assert b"var(--" not in content
    if kind == "svg":
        assert "worst 10 %" in content.decode()
        assert "q-fedavg(q=1)" in content.decode()


def test_names_of_files_are_plain():
    assert (
        file_name("chart-influence-rounds@2-fedavg(lr=0.1)+x/y")
        == "influence-rounds-2-fedavg-lr=0.1-x-y"
    )


def test_what_cannot_be_reported_is_said_in_a_sentence(folder, tmp_path):
    assert "no folder" in call(tmp_path / "nowhere")[1]
    (tmp_path / "empty").mkdir()
    code, said = call(tmp_path / "empty")
    assert code != 0
    assert "no plan.json" in said
    with pytest.raises(ValueError, match="must be one of png, svg, pdf, got 'gif'"):
        write_figures({}, tmp_path, "gif")


def test_unfinished_results_say_how_to_go_on(tmp_path):
    Store(tmp_path / "out", PLAN)
    code, said = call(tmp_path / "out")
    assert code != 0
    assert "is not finished: 0 of 1 programs" in said
    assert "evenly resume" in said


def test_a_study_is_reported_too_and_hides_nothing(tmp_path, monkeypatch):
    found = study()
    monkeypatch.setattr("evenly.experiment.reopen.read_plan", lambda folder: found.plan)
    monkeypatch.setattr("evenly.experiment.reopen.open_study", lambda folder: found)
    code, said = call(tmp_path, "--figures", tmp_path / "figures")
    assert code == 0, said
    assert "Findings" in (tmp_path / "report.html").read_text()
    assert f"Figures: {len(list((tmp_path / 'figures').iterdir()))} files" in said
    code, said = call(tmp_path, "--min-cell", 10)
    assert code != 0
    assert "--min-cell is for the report of one comparison" in said

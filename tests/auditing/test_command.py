"""`evenly audit` from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import evenly
from evenly.cli import app
from tests.auditing.invented import predictions

ASKED = [
    "--client",
    "hospital",
    "--label",
    "y",
    "--prediction",
    "p",
    "--sensitive",
    "sex,race",
    "--score",
    "s",
]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    predictions(800).to_csv(tmp_path / "predictions.csv", index=False)
    return Path("predictions.csv")


def ran(*arguments: str, code: int = 0):
    done = CliRunner().invoke(app, ["audit", *arguments])
    assert done.exit_code == code, done.output
    return done


def test_python_gives_the_same_as_the_command(table: Path):
    ran(str(table), *ASKED, "--unprivileged", "sex=female", "--unprivileged", "race=B")
    found = evenly.audit(
        predictions(800),
        client="hospital",
        label="y",
        prediction="p",
        score="s",
        sensitive=["sex", "race"],
        unprivileged={"sex": "female", "race": "B"},
        name="predictions.csv",
    )
    found.write("python")
    command, python = Path("results/audit-predictions"), Path("python")
    for file in ("audit.csv", "audit.json"):
        assert (command / file).read_bytes() == (python / file).read_bytes()
    assert "<table" in found._repr_html_()
    gap = found.group_table.loc["sex=female", "spd"]
    assert abs(gap) < 1
    assert f"<td>{gap:.3f}".rstrip("0") in found._repr_html_()
    accuracy = found.group_table.loc["sex=female", "accuracy"]
    assert f"<td>{accuracy:.1f}</td>" in found._repr_html_(), "percentages have one digit"
    assert repr(found).startswith("Audit of 800 rows")


def test_tables_of_other_libraries_and_paths_give_the_same(table: Path):
    pa, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    frame = predictions(800).astype({"y": bool, "p": bool})
    roles: dict[str, Any] = {
        "client": "hospital", "label": "y", "prediction": "p", "score": "s",
        "sensitive": ["sex", "race"], "name": "visits", "require": "impact_ratio>=0.99",
    }  # fmt: skip
    frame.to_parquet("visits.parquet")
    expected = evenly.audit(frame, **roles).json()
    assert [check["met"] for check in expected["requirements"]] == [False]
    tables = (
        polars.from_pandas(frame), polars.from_pandas(frame).lazy(), pa.table(frame),
        "visits.parquet", Path("visits.parquet"),
    )  # fmt: skip
    for one in tables:
        assert evenly.audit(one, **roles).json() == expected


def test_a_requirement_that_cannot_be_read_is_refused_before_the_table_is(table: Path):
    with pytest.raises(ValueError, match="impact_ratio is 1"):
        evenly.audit("nowhere.csv", label="y", prediction="p", require=["impact_ratio is 1"])


def test_names_of_columns_with_commas_are_in_quotes_as_elsewhere(table: Path):
    predictions(800).rename(columns={"race": "race, as stated"}).to_csv(table, index=False)
    asked = ['sex,"race, as stated"' if word == "sex,race" else word for word in ASKED]
    ran(str(table), *asked)
    found = json.loads(Path("results/audit-predictions/audit.json").read_text())
    assert "race, as stated" in json.dumps(found)


def test_one_file_in_and_one_report_out(table: Path):
    done = ran(str(table), *ASKED, "--unprivileged", "sex=female", "--unprivileged", "race=B")
    folder = Path("results/audit-predictions")
    assert {path.name for path in folder.iterdir()} == {"audit.csv", "audit.json", "report.html"}
    assert "The model is right for" in done.output
    assert "People with sex “female” are predicted “1”" in done.output
    assert str(folder / "report.html") in done.output
    ran(str(table), *ASKED)  # an audit may replace an audit


def test_json_is_all_there_is_on_stdout(table: Path):
    done = ran(
        str(table),
        *ASKED,
        "--json",
        "--out",
        "out",
        "--min-cell",
        "0",
        "--anonymous",
        "--favourable",
        "0",
    )
    found = json.loads(done.stdout)
    assert found["schema"] == 1
    assert found["audited"]["favourable"] == "0"
    assert found["report"] == "out/report.html"
    assert {row["level"] for row in found["rows"]} == {
        "model",
        "clients",
        "client",
        "column",
        "group",
        "intersections",
        "intersection",
    }
    assert not [row for row in found["rows"] if row["name"].startswith("hospital 0")]


def test_mistakes_are_one_sentence_and_nothing_is_lost(table: Path):
    done = ran(str(table), "--label", "y", "--prediction", "q", "--client", "hospital", code=2)
    assert "There is no column 'q'." in done.output
    assert not Path("results").exists()
    Path("out").mkdir()
    Path("out/report.html").write_text("of an experiment")
    assert "that no audit wrote" in ran(str(table), *ASKED, "--out", "out", code=2).output
    assert Path("out/report.html").read_text() == "of an experiment"
    assert (
        "must be given once for each"
        in ran(str(table), *ASKED, "--unprivileged", "a", "--unprivileged", "b", code=2).output
    )


def test_the_audited_file_is_never_replaced(table: Path):
    ran(str(table), *ASKED, "--out", "out")
    predictions(400).to_csv("out/audit.csv", index=False)
    assert "would replace" in ran("out/audit.csv", *ASKED, "--out", "out", code=2).output


def test_the_help_says_what_an_audit_does_without_an_unprivileged_value():
    told = " ".join(ran("--help").output.replace("│", " ").split())
    assert "By default every value is compared with all others" in told
    assert "lowest share of favourable labels" not in told

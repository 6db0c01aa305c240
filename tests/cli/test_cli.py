"""The command line: its output, its files, and one line with exit code 2 for every mistake."""

import errno
import gzip
import html
import json
import os
import re
import shlex

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from evenly.cli import app

runner = CliRunner()
SMALL = [
    "--rounds",
    "4",
    "--seeds",
    "2",
    "--data",
    "synthetic(clients=6)",
    "--sampling",
    "weighted(clients=3)",
]


def run(*arguments, code=0):
    result = runner.invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A comparison that several tests read."""
    out = tmp_path_factory.mktemp("cli") / "out"
    result = run(
        "compare", *SMALL, "--algorithms", "fedavg,q-fedavg(q=[0, 1])", "--out", str(out), "--json"
    )
    return out, result


@pytest.fixture
def table(tmp_path):
    """A small table with missing values."""
    draw = np.random.Generator(np.random.Philox(1))
    n = 240
    frame = pd.DataFrame(
        {
            "hospital": draw.choice(["north", "south", "west"], n),
            "sex": draw.choice(["f", "m"], n),
            "age": draw.normal(50, 10, n),
        }
    )
    frame["smokes"] = draw.choice(["yes", "no"], n)
    frame["ill"] = (frame.age + draw.normal(0, 5, n) > 50).map({True: "ill", False: "well"})
    frame.loc[::17, "age"] = np.nan
    path = tmp_path / "patients.csv"
    frame.to_csv(path, index=False)
    return path, frame


def sentence(result):
    """Return the line of an error, which comes last."""
    *_, last = (line for line in result.stderr.splitlines() if line.strip())
    assert last.startswith("error: ")
    assert result.stderr.count("error: ") == 1
    assert "Traceback" not in result.output
    return last


def paths(command, path=()):
    """Yield the path of every command and group of commands."""
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from paths(below, (*path, name))


@pytest.mark.parametrize("path", [*paths(typer.main.get_command(app))], ids=" ".join)
def test_help_is_plain_text_and_every_summary_fits_its_line(path):
    """Typer escapes `[default: ...]` with a backslash and cuts off long summaries."""
    result = runner.invoke(app, [*path, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    assert "\\" not in result.output
    assert max(map(len, result.output.splitlines())) <= 80
    _, _, summaries = result.output.partition("Commands:")
    assert not re.search(r"\.\.\.|…", summaries)
    assert all(line.endswith(".") for line in summaries.splitlines() if line)


def test_help_shows_defaults():
    assert "[default: 0.1]" in run("compare", "--help").output


def test_compare_writes_rows_traces_models_and_report(small):
    out, _ = small
    assert {"plan.json", "report.html", "results.csv", "results.parquet", "traces", "models"} <= {
        p.name for p in out.iterdir()
    }
    # runs made together, here those of a seed, are kept in one file
    assert len(list((out / "traces").iterdir())) == 2


def test_rows_follow_the_schema(small):
    out, _ = small
    frame = pd.read_parquet(out / "results.parquet")
    wanted = (
        "schema experiment run label algorithm params data partition seed round split level name"
        " metric value"
    )
    assert " ".join(frame.columns) == wanted
    assert set(frame.level) == {"model", "client"}
    assert set(frame.split) == {"train", "valid", "test"}
    assert len(pd.read_csv(out / "results.csv")) == len(frame)


def test_json_goes_to_stdout_and_the_rest_to_stderr(small):
    out, result = small
    printed = json.loads(result.stdout)
    assert printed["schema"] == 1
    assert printed["report"] == str(out / "report.html")
    assert {row["label"] for row in printed["rows"]} == {"fedavg", "q-fedavg(q=0)", "q-fedavg(q=1)"}
    assert "fedavg" in result.stderr


def test_the_same_command_again_trains_nothing(small, monkeypatch):
    out, _ = small
    monkeypatch.setattr(
        "evenly.experiment.execute.simulate", lambda *_, **__: pytest.fail("trained again")
    )
    run("compare", *SMALL, "--algorithms", "fedavg,q-fedavg(q=[0, 1])", "--out", str(out))


def test_other_settings_do_not_overwrite_results(small):
    out, _ = small
    before = (out / "results.csv").read_bytes()
    result = run("compare", *SMALL, "--algorithms", "fedavg", "--out", str(out), code=2)
    assert "contains results with different settings" in sentence(result)
    assert (out / "results.csv").read_bytes() == before


def test_a_users_own_table(table, tmp_path):
    path, _ = table
    out = tmp_path / "out"
    columns = [
        "--client",
        "hospital",
        "--label",
        "ill",
        "--sensitive",
        "sex",
        "--favourable",
        "well",
    ]
    result = run(
        "compare", "--data", str(path), *columns, "--rounds", "3", "--seeds", "1", "--out", str(out)
    )
    assert "Report:" in result.stdout
    rows = pd.read_parquet(out / "results.parquet")
    assert set(rows.name[rows.level != "group"]) == {"", "north", "south", "west"}
    assert set(rows.metric[rows.level == "group"]) == {
        "accuracy",
        "selection_rate",
        "tpr",
        "fpr",
        "examples",
    }


def test_the_favourable_label_and_the_unprivileged_value_can_be_chosen(table, tmp_path):
    path, _ = table
    columns = [
        "--data",
        str(path),
        "--client",
        "hospital",
        "--label",
        "ill",
        "--rounds",
        "3",
        "--seeds",
        "1",
        "--algorithms",
        "fedavg",
    ]
    usual, other = tmp_path / "usual", tmp_path / "other"
    assert "--favourable ill or --favourable well" in sentence(
        run("compare", *columns, "--sensitive", "sex", code=2)
    )
    assumed = " ".join(
        run(
            "compare", *columns, "--sensitive", "sex", "--favourable", "well", "--out", str(usual)
        ).stderr.split()
    )
    assert "favourable the label 'well' unprivileged sex=m: " in assumed
    assert (
        "of all others (assumed, because it has the lowest share; change it with --unprivileged"
        " sex=VALUE)" in assumed
    )
    result = run(
        "compare",
        *columns,
        "--sensitive",
        "sex",
        "--favourable",
        "ill",
        "--unprivileged",
        "f",
        "--out",
        str(other),
    )
    assert "unprivileged: sex=f, favourable: ill" in " ".join(result.stdout.split())

    def spd(out):
        rows = pd.read_parquet(out / "results.parquet")
        last = (
            (rows["round"] == 3)
            & (rows.split == "test")
            & (rows.level == "model")
            & (rows.metric == "spd")
        )
        return rows.value[last].item()

    # Both sides and both labels swapped: P(well | m) - P(well | f) = P(ill | f) - P(ill | m).
    assert spd(other) == pytest.approx(spd(usual), abs=1e-12)
    assert spd(usual) != 0


def test_tune_accepts_the_columns_of_a_table(table, tmp_path):
    columns = [
        "--client",
        "hospital",
        "--label",
        "ill",
        "--sensitive",
        "smokes,sex",
        "--unprivileged",
        "sex=m",
        "--favourable",
        "well",
    ]
    shorter = ["--grid", "1", "--rounds", "3", "--seeds", "1"]
    result = run(
        "tune", "--data", str(table[0]), *columns, *shorter, "--out", str(tmp_path / "out")
    )
    assert "unprivileged: sex=m (compared here), smokes=yes, favourable: well" in " ".join(
        result.stdout.split()
    )


def test_a_saved_model_predicts_new_rows(table, tmp_path):
    import evenly

    path, frame = table
    out = tmp_path / "out"
    run(
        "compare",
        "--data",
        str(path),
        "--client",
        "hospital",
        "--label",
        "ill",
        "--rounds",
        "30",
        "--seeds",
        "1",
        "--out",
        str(out),
    )
    model = evenly.load(sorted((out / "models").glob("fedavg*.npz"))[0])
    predicted = model.predict(frame.drop(columns=["ill", "hospital"]))
    assert set(predicted) <= {"ill", "well"}
    assert (predicted == frame.ill).mean() > 0.7


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--algorithms", "fedavgg"], "Did you mean 'fedavg'"),
        (["--algorithms", "q-fedavg(qq=1)"], "Did you mean 'q'"),
        (["--algorithms", "q-fedavg(q=-1)"], "q must be at least 0, got -1"),
        (["--algorithms", "fedavg(weights=size)"], "sizes would count twice"),
        (["--algorithms", "fedavg+unifrm"], "Did you mean 'uniform'"),
        (["--rounds", "0"], "rounds must be at least 1"),
        (["--seeds", "0"], "seeds must be at least 1"),
        (["--model", "svm"], "requires a label with two classes, got 10"),
        (["--data", "syntetic"], "Did you mean 'synthetic'"),
        (["--data", "synthetic(kinds=iid)"], "Did you mean 'kind'"),
        (
            ["--data", "nowhere.csv", "--client", "a", "--label", "b"],
            "There is no file 'nowhere.csv'",
        ),
        (["--client", "hospital"], "for a table of your own"),
        (
            ["--data", "synthetic-census", "--unprivileged", "female"],
            "--unprivileged is for a table of your own",
        ),
        (["--learning-rate", "-1"], "learning_rate must be above 0"),
        (["--dropout", "2"], "dropout must be at least 0 and below 1"),
        (["--sampling", "uniform(clients=0)"], "clients must be a whole number of at least 1"),
    ],
)
def test_mistakes_get_one_sentence_and_exit_code_two(arguments, words, tmp_path):
    out = tmp_path / "out"
    result = run("compare", *arguments, "--out", str(out), code=2)
    assert words in sentence(result)
    assert not (out / "results.csv").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.assign(ill="ill"), "at least two classes"),
        (lambda f: f.drop(columns="hospital"), "must have the column 'hospital'"),
        (
            lambda f: f.assign(hospital=f.hospital.where(f.index != 3)),
            "rows is empty, the first is row 3",
        ),
        (lambda f: f.assign(age=f.age.where(f.index != 5, np.inf)), "finite"),
        (lambda f: f.iloc[:0], "at least one row"),
    ],
)
def test_bad_tables_get_one_sentence(change, words, table, tmp_path):
    path, frame = table
    change(frame).to_csv(path, index=False)
    out = tmp_path / "out"
    result = run(
        "compare",
        "--data",
        str(path),
        "--client",
        "hospital",
        "--label",
        "ill",
        "--out",
        str(out),
        code=2,
    )
    assert words in sentence(result)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--sensitive", "sex", "--unprivileged", "x", "--favourable", "ill"],
            "There is no value 'x' in column 'sex'. Known: f, m.",
        ),
        (["--sensitive", "sex", "--favourable", "il"], "Did you mean 'ill'"),
        (
            ["--sensitive", "sex", "--unprivileged", "f", "--unprivileged", "m"],
            "must give one value of sex, got several",
        ),
        (
            ["--sensitive", "sex,smokes", "--unprivileged", "f"],
            "COLUMN: VALUE}), with a column of sex, smokes, got 'f'",
        ),
        (["--unprivileged", "f"], "--unprivileged f needs a sensitive column"),
    ],
)
def test_mistakes_about_groups_get_one_sentence(arguments, words, table, tmp_path):
    columns = ["--data", str(table[0]), "--client", "hospital", "--label", "ill"]
    assert words in sentence(
        run("compare", *columns, *arguments, "--out", str(tmp_path / "out"), code=2)
    )


def test_a_method_for_groups_is_refused_before_anything_is_written(table, tmp_path):
    out = tmp_path / "out"
    columns = [
        "--data",
        str(table[0]),
        "--client",
        "hospital",
        "--label",
        "ill",
        "--algorithms",
        "fedavg,fairfed",
    ]
    assert "--sensitive of the command" in sentence(
        run("compare", *columns, "--out", str(out), code=2)
    )
    assert not (out / "run.json").exists()


def test_groups_with_several_labels_need_the_favourable_one(table, tmp_path):
    path, frame = table
    frame.assign(ill=[("well", "ill", "very ill")[i % 3] for i in range(len(frame))]).to_csv(
        path, index=False
    )
    columns = [
        "--data",
        str(path),
        "--client",
        "hospital",
        "--label",
        "ill",
        "--rounds",
        "1",
        "--seeds",
        "1",
        "--out",
        str(tmp_path / "out"),
    ]
    said = sentence(run("compare", *columns, "--sensitive", "sex", code=2))
    assert "there are 3 labels: ill, very ill, well" in said
    assert "--favourable" in said
    run("compare", *columns, "--sensitive", "sex", "--favourable", "well")


def test_a_table_needs_its_columns_named(table):
    result = run("compare", "--data", str(table[0]), code=2)
    assert "needs client and label" in sentence(result)


def test_a_file_that_is_not_text_gets_one_sentence(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_bytes(b"a,b\n\xff\xfe\xfa,1\n")
    result = run(
        "compare",
        "--data",
        str(path),
        "--client",
        "a",
        "--label",
        "b",
        "--out",
        str(tmp_path / "out"),
        code=2,
    )
    assert "must be UTF-8" in sentence(result)


@pytest.mark.parametrize("kept", [slice(0, -40), slice(0, 12)])
def test_a_compressed_table_that_was_cut_gets_one_sentence(table, tmp_path, kept):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(table[0].read_bytes())[kept])
    roles = ("--client", "hospital", "--label", "ill", "--out", str(tmp_path / "out"))
    result = run("compare", "--data", str(path), *roles, code=2)
    assert "t.csv.gz is incomplete or damaged: Compressed file ended" in sentence(result)


def test_a_compressed_table_with_another_bit_gets_one_sentence(table, tmp_path):
    content = bytearray(gzip.compress(table[0].read_bytes()))
    content[10] |= 6  # a kind of block that does not exist
    path = tmp_path / "t.csv.gz"
    path.write_bytes(content)
    roles = ("--client", "hospital", "--label", "ill", "--out", str(tmp_path / "out"))
    result = run("compare", "--data", str(path), *roles, code=2)
    assert "t.csv.gz is incomplete or damaged: Error -3" in sentence(result)


def test_a_full_disk_loses_nothing_already_written(tmp_path, monkeypatch):
    out = tmp_path / "out"
    arguments = ["compare", *SMALL, "--algorithms", "fedavg", "--out", str(out)]
    real, written = os.replace, []

    def full_after_three(source, target):
        if len(written) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        written.append(str(target))
        real(source, target)

    monkeypatch.setattr(os, "replace", full_after_three)
    result = run(*arguments, code=2)
    assert "No space left on device" in sentence(result)
    assert all(os.path.getsize(path) > 0 for path in written)
    monkeypatch.setattr(os, "replace", real)
    run(*arguments)  # space was made: the same command goes on
    assert (out / "report.html").exists()


def test_list_and_describe_cover_the_registry():
    from evenly.algorithms import METHODS
    from evenly.metrics import EVERY_METRIC
    from evenly.parts.sampling import SAMPLINGS
    from evenly.parts.work import PREPARES

    listed = run("list").stdout
    for name in (*METHODS, *EVERY_METRIC, *SAMPLINGS, *PREPARES):
        assert name in listed
        assert run("describe", name).stdout.strip()


@pytest.mark.parametrize(
    ("name", "revealed"),
    [
        ("parity", "examples (once), unprivileged (once)"),
        ("weighted", "examples (once)"),
        ("uniform", "nothing"),
    ],
)
def test_describing_a_sampling_names_the_revealed_information(name, revealed):
    assert f"For the sampling, clients reveal: {revealed}." in run("describe", name).stdout


def test_describing_a_method_names_what_its_default_sampling_needs():
    """The report says the same: with sampling by size, the server knows how many rows clients
    have.
    """
    shown = run("describe", "fedavg").stdout
    assert "Clients reveal, besides their update: examples (once)." in shown
    assert "With --sampling full, they reveal: examples." in shown
    assert "examples – how many training rows it has" in shown
    assert "loss –" not in shown
    shown = run("describe", "q-fedavg").stdout
    assert "Clients reveal, besides their update: loss, square_norm, examples (once)." in shown
    assert "With --sampling full, they reveal: loss, square_norm." in shown


def test_the_commands_that_describe_suggests_compare_different_methods():
    from evenly.algorithms import METHODS
    from evenly.catalogue import trial
    from evenly.experiment.plan import Plan

    for method in METHODS.values():
        methods = shlex.split(trial(method))[-1]
        plan = Plan(
            name="trial", data={"name": "synthetic"}, methods=(methods,), rounds=1, seeds=(0,)
        )
        assert plan.variants()[0].label == "fedavg"


def test_describe_an_unknown_name():
    assert "Did you mean 'q-fedavg'" in sentence(run("describe", "q-fedavgg", code=2))


def test_reproduce_prints_paper_and_ours(tmp_path, monkeypatch):
    from evenly.experiment import config

    experiment = config.read_packaged("qffl/synthetic")
    short = experiment.model_copy(update={"quick": config.Quick(rounds=3, seeds=2)})
    monkeypatch.setattr(config, "read_packaged", lambda name: short)
    result = run("reproduce", "qffl/synthetic", "--quick", "--out", str(tmp_path / "out"))
    for word in ("paper", "ours", "724 (sd", "472 (sd"):
        assert word in " ".join(result.stdout.split())
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Beside the paper" in page
    assert f"<h1>{short.title} (short version)</h1>" in page
    assert "evenly · qffl/synthetic" in page
    assert html.escape(short.notes.strip().splitlines()[0]) in page


def test_tune_names_the_chosen_q(tmp_path):
    result = run(
        "tune",
        "--data",
        "synthetic(clients=12)",
        "--grid",
        "1,5",
        "--rounds",
        "20",
        "--seeds",
        "1",
        "--out",
        str(tmp_path / "o"),
        "--json",
    )
    assert json.loads(result.stdout)["chosen"] in {
        "q-fedavg(q=0)",
        "q-fedavg(q=1)",
        "q-fedavg(q=5)",
    }
    assert "chosen" in result.stderr


@pytest.fixture
def small_study(monkeypatch):
    """The experiments of the thesis, shortened to a synthetic census and two methods."""
    from evenly.experiment import config

    def short(name):
        made = {"name": "synthetic-census", "clients": 3, "rows": 300}
        given = {
            "methods": ["fedavg+full", "fedavg+reweigh+full"],
            "data": made,
            "study": config.StudyTable(
                cells=[{"skew": 0.5}], choose={"learning_rate": [0.1, 0.01]}
            ),
            "quick": config.Quick(rounds=2, seeds=2),
        }
        return config.Experiment(title=name, rounds=2, model="logistic", sampling="full", **given)

    monkeypatch.setattr(config, "read_packaged", short)


def test_reproduce_runs_a_study_and_prints_findings(small_study, tmp_path):
    result = run(
        "reproduce", "thesis/compas-dirichlet", "--quick", "--out", str(tmp_path / "out"), "--json"
    )
    printed = json.loads(result.stdout)
    assert {(row["protocol"], row["label"]) for row in printed["rows"]} == {
        (p, m) for p in ("study", "honest") for m in ("fedavg+full", "fedavg+reweigh+full")
    }
    assert {
        "plan.json",
        "study.csv",
        "results.csv",
        "results.parquet",
        "report.html",
        "cells",
        "run.json",
    } == {p.name for p in (tmp_path / "out").iterdir()}
    assert "Does local reweighing lower |EOD|" in result.stderr
    assert [found["key"] for found in printed["findings"]] == ["debias", "accuracy", "choice"]
    assert "contains results with different settings" in sentence(
        run(
            "reproduce",
            "thesis/compas-dirichlet",
            "--rounds",
            "3",
            "--out",
            str(tmp_path / "out"),
            code=2,
        )
    )


def test_a_papers_name_runs_all_its_experiments(small_study, tmp_path):
    result = run("reproduce", "thesis", "--quick", "--out", str(tmp_path / "all"), "--json")
    names = ["adult-coverage", "adult-dirichlet", "compas-coverage", "compas-dirichlet"]
    assert sorted(p.name for p in (tmp_path / "all").iterdir()) == [*names, "report.html"]
    printed = json.loads(result.stdout)
    assert list(printed["reports"]) == [f"thesis/{name}" for name in names]
    assert printed["report"] == str(tmp_path / "all" / "report.html")
    assert "4 studies together" in result.stderr


def test_a_stopped_paper_is_continued_by_the_same_command(small_study, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("evenly.experiment.execute.simulate", stopped)
    result = run("reproduce", "thesis", "--quick", "--out", str(tmp_path / "all"), code=130)
    assert f"the same command with --out {tmp_path / 'all'} resumes" in result.stderr


def test_an_experiment_that_cannot_be_run_does_not_stop_the_others(small_study, tmp_path):
    (tmp_path / "all" / "adult-dirichlet").mkdir(parents=True)
    (tmp_path / "all" / "adult-dirichlet" / "mine.txt").write_text("mine")
    result = run("reproduce", "thesis", "--quick", "--out", str(tmp_path / "all"), code=2)
    assert "thesis/adult-dirichlet was not run" in result.stdout
    assert (tmp_path / "all" / "compas-dirichlet" / "report.html").exists()


def test_a_study_that_is_stopped_prints_how_to_resume(small_study, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("evenly.experiment.execute.simulate", stop)
    result = run("reproduce", "thesis", "--quick", "--out", str(tmp_path / "all"), code=130)
    assert f"the same command with --out {tmp_path / 'all'} resumes" in " ".join(
        result.stderr.split()
    )


@pytest.mark.parametrize("name", ["weighted", "parity", "reweigh", "average", "variance"])
def test_describe_shows_sentences_and_no_sections_of_docstrings(name: str):
    shown = run("describe", name).stdout
    assert not re.search(r"Args:|Raises:|Example:|>>>", shown)
